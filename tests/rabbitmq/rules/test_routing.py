"""Where publications go."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.exchanges import BindingDef, ExchangeDef, Router
from broker_core.rabbitmq.rules.routing import Destination, Headers, Topic, _Node
from broker_core.rabbitmq.rules.table import Typed

QUEUES = ("q1", "q2", "q3", "")


def a_router(type="direct", bindings=(), *, queues=QUEUES, others=()):
    """One exchange `x`, with bindings as (queue, key, arguments)."""
    found = [BindingDef("x", queue, True, key, arguments) for queue, key, arguments in bindings]
    return Router([ExchangeDef("x", type), *others], found, queues)


def routed(router, key="", headers=None, exchange="x"):
    return router.route(exchange, (key,), headers).queues


def test_direct_compares_byte_for_byte():
    router = a_router("direct", [("q1", "k", {}), ("q2", "K", {}), ("q3", "k", {})])
    assert routed(router, "k") == ("q1", "q3")
    assert routed(router, "K") == ("q2",)
    assert routed(router, "k ") == ()


def test_fanout_ignores_the_key():
    router = a_router("fanout", [("q1", "a", {}), ("q2", "", {}), ("q2", "b", {})])
    assert routed(router, "whatever") == ("q1", "q2")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (
            "",
            [
                "",
            ],
            ["a", "."],
        ),
        ("#", ["", "a", "a.b", "."], []),
        ("#.#", ["", "a", "a.b"], []),
        ("a.*", ["a.b", "a.c", "a."], ["a", "a.b.c", "b.a"]),
        ("a.#", ["a", "a.b", "a..b"], ["b", "", "ab"]),
        ("*.*", [".", "a.b"], ["a", "a.b.c"]),
        ("#.b", ["b", "a.b", "a.c.b"], ["a", "b.a"]),
        ("*", ["a"], ["", "a.b"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z", "a.z.b"]),
        ("#.a.#", ["a", "x.a", "a.x", "x.a.y"], ["b", ""]),
        ("a*", ["a*"], ["ab", "a.b"]),  # only a whole word is a wildcard
    ],
)
def test_topic_patterns_match_words(pattern, matching, others):
    router = a_router("topic", [("q1", pattern, {})])
    assert [key for key in matching + others if routed(router, key)] == matching


WORDS = st.sampled_from(["a", "b", "", "*", "#"])
PATTERNS = st.lists(WORDS, max_size=6).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=7).map(".".join)


def _naive(pattern, key):
    """As the documentation says it, trying everything."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(_naive(pattern[1:], key[i:]) for i in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and _naive(pattern[1:], key[1:])


@settings(max_examples=500)
@given(st.lists(PATTERNS, max_size=8), KEYS)
def test_the_trie_agrees_with_a_naive_matcher(patterns, key):
    topic = Topic()
    for pattern in patterns:
        topic.add(Destination(pattern, True), pattern, {})
    words = key.split(".") if key else []
    assert topic.match((key,), {}) == {Destination(p, True) for p in patterns if _naive(p.split(".") if p else [], words)}


def test_matching_many_wildcards_terminates():
    """Tried one way after the other, they would not in a lifetime."""
    topic = Topic()
    topic.add(Destination("q", True), ".".join(["#", "a"] * 40 + ["z"]), {})
    assert topic.match((".".join(["a"] * 120),), {}) == set()


HEADERS = {"n": 1, "s": "text", "x-h": "yes", "t": {"a": [1]}}


@pytest.mark.parametrize(
    ("arguments", "there"),
    [
        ({"n": 1}, True),  # all is the default
        ({"n": 1, "s": "text"}, True),
        ({"x-match": "all", "n": 1, "s": "other"}, False),
        ({"x-match": "any", "n": 2, "s": "text"}, True),
        ({"x-match": "any", "n": 2}, False),
        ({"n": "1"}, False),  # types count
        ({"n": Typed("long", 1)}, False),
        ({"n": Typed("signedint", 1)}, True),
        ({"n": None}, True),  # presence
        ({"absent": None}, False),
        ({"t": {"a": [1]}}, True),
        ({"t": {"a": ["1"]}}, False),
        ({"x-h": "no"}, True),  # x- keys do not count ...
        ({"x-match": "any", "x-h": "yes"}, False),
        ({"x-match": "all-with-x", "x-h": "no"}, False),  # ... but with these
        ({"x-match": "any-with-x", "x-h": "yes"}, True),
        ({}, True),
        ({"x-match": "all"}, True),
        ({"x-match": "any"}, False),
        ({"x-match": "any-with-x"}, False),
        ({"x-match": Typed("longstr", "any"), "n": 1}, True),
    ],
)
def test_headers_exchanges_match_by_their_mode(arguments, there):
    router = a_router("headers", [("q1", "ignored", arguments)])
    assert routed(router, "k", HEADERS) == (("q1",) if there else ())


def test_a_message_without_headers_matches_only_bindings_without_arguments():
    router = a_router("headers", [("q1", "", {}), ("q2", "", {"n": 1})])
    assert routed(router, "k", None) == ("q1",)


def test_every_queue_is_bound_to_the_default_exchange():
    router = a_router()
    assert router.route("", ("q1", "q2", "none"), None).queues == ("q1", "q2")
    assert "" in router and "x" in router and "y" not in router


def test_a_missing_exchange_is_not_found():
    with pytest.raises(AmqpError) as refused:
        routed(a_router(), exchange="w.none")
    assert refused.value.text == "NOT_FOUND - no exchange 'w.none' in vhost '/'"
    assert (refused.value.reply_code, refused.value.is_connection_error) == (404, False)


def test_the_broker_itself_may_publish_to_a_missing_exchange():
    assert a_router().route("none", ("k",), by_broker=True) == ((), ("none",))


def test_an_internal_exchange_is_reached_only_by_exchanges():
    router = Router(
        [ExchangeDef("x", "fanout"), ExchangeDef("in", "fanout", internal=True)],
        [BindingDef("x", "in", False), BindingDef("in", "q1")],
        QUEUES,
    )
    assert routed(router) == ("q1",)
    with pytest.raises(AmqpError) as refused:
        routed(router, exchange="in")
    assert refused.value.text == "ACCESS_REFUSED - cannot publish to internal exchange 'in' in vhost '/'"
    assert router.route("in", ("k",), by_broker=True).queues == ("q1",)


def test_cycles_of_exchanges_end():
    exchanges = [ExchangeDef(name, "fanout") for name in "xyz"]
    ring = [BindingDef("x", "y", False), BindingDef("y", "z", False), BindingDef("z", "x", False)]
    router = Router(exchanges, [*ring, *(BindingDef(name, "q1") for name in "xyz"), BindingDef("z", "q2")], QUEUES)
    assert routed(router) == ("q1", "q2")
    assert routed(router, exchange="y") == ("q1", "q2")


def test_alternate_exchanges_can_be_chained():
    exchanges = [
        ExchangeDef("x", "direct", alternate_exchange="y"),
        ExchangeDef("y", "direct", alternate_exchange="z"),
        ExchangeDef("z", "fanout", alternate_exchange="x"),
    ]
    bindings = [BindingDef("x", "q1", True, "1"), BindingDef("y", "q2", True, "2"), BindingDef("z", "q3")]
    router = Router(exchanges, bindings, QUEUES)
    assert routed(router, "1") == ("q1",)  # only where nothing matched
    assert routed(router, "2") == ("q2",)
    assert routed(router, "3") == ("q3",)
    assert routed(Router(exchanges, bindings[:2], QUEUES), "3") == ()  # round and round, once


def test_a_missing_alternate_exchange_is_ignored():
    router = Router([ExchangeDef("x", "direct", alternate_exchange="gone")], [], QUEUES)
    assert router.route("x", ("k",)) == ((), ("gone",))


def test_bindings_of_deleted_objects_are_ignored():
    router = Router([ExchangeDef("x", "fanout")], [BindingDef("x", "gone"), BindingDef("y", "q1"), BindingDef("x", "q2")], QUEUES)
    assert routed(router) == ("q2",)


def test_several_keys_make_one_copy():
    router = a_router("direct", [("q1", "a", {}), ("q1", "b", {}), ("q2", "b", {})])
    assert router.route("x", ("a", "b")).queues == ("q1", "q2")


def test_the_matching_binding_is_found_among_ten_thousand():
    topic = Topic()
    for i in range(10_000):
        topic.add(Destination(f"q{i}", True), f"a.{i}.b.#", {})
    assert topic.match(("a.77.b.c",), {}) == {("q77", True)}


ENDS = st.sampled_from([("q1", True), ("q2", True), ("x", False), ("y", False)])
ARGUMENTS = st.sampled_from([{}, {"a": 1}, {"a": 1, "x-match": "any"}, {"b": True, "a": 1}, {"x-c": 1, "x-match": "all-with-x"}])
SOME_BINDINGS = st.lists(
    st.builds(
        lambda source, end, key, arguments: BindingDef(source, end[0], end[1], key, arguments),
        st.sampled_from("xy"),
        ENDS,
        st.sampled_from(["", "a", "a.b", "*.b", "#", "a.#"]),
        ARGUMENTS,
    ),
    max_size=8,
    unique_by=lambda b: (b.source, b.destination, b.routing_key, str(b.arguments)),
)
TYPES = st.sampled_from(["direct", "fanout", "topic", "headers"])


def everywhere(router):
    probes = [((key,), headers) for key in ("", "a", "a.b", "c.b") for headers in ({}, {"a": 1}, {"a": 1, "b": True, "x-c": 1})]
    return [router.route(exchange, *probe) for exchange in ("x", "y", "") for probe in [*probes, (("q1", "q2", "a"), {})]]


@given(TYPES, TYPES, SOME_BINDINGS, st.lists(st.tuples(TYPES, SOME_BINDINGS, st.sets(st.integers(0, 7))), max_size=4))
def test_an_updated_router_routes_like_a_new_router(type, other, bindings, changes):
    """And the one before as ever. x may become another exchange, which loses its bindings; y stays."""
    y = ExchangeDef("y", other)
    router, now = Router([ExchangeDef("x", type), y], bindings, QUEUES), bindings
    for new_type, more, stay in changes:
        is_new = new_type != type
        type = new_type
        x = ExchangeDef("x", type, alternate_exchange="y")
        kept = [b for i, b in enumerate(now) if i in stay and not (is_new and "x" in (b.source, b.destination))]
        lost, new = [b for b in now if b not in kept], [b for b in more if b not in kept]
        before = everywhere(router)
        later = router.changed({"x": x, "z": None}, lost, new, QUEUES)
        assert everywhere(later) == everywhere(Router([x, y], kept + new, QUEUES))
        assert everywhere(router) == before
        router, now = later, kept + new


def test_removed_bindings_leave_no_matcher_nodes():
    bindings = [BindingDef("x", "q1", True, key) for key in ("a.b", "a.c", "a", "#")] + [BindingDef("x", "q2", True, "a.b")]
    for type in ("direct", "fanout", "topic"):
        router = Router([ExchangeDef("x", type)], bindings, QUEUES).changed({}, bindings, [], QUEUES)
        assert router._exchanges["x"].matcher._root == _Node(None)
    headers = [BindingDef("x", "q1", True, "", {"a": 1}), BindingDef("x", "q2", True, "", {"a": 1, "b": 2})]
    router = Router([ExchangeDef("x", "headers")], headers, QUEUES).changed({}, headers, [], QUEUES)
    assert vars(router._exchanges["x"].matcher) == vars(Headers())
