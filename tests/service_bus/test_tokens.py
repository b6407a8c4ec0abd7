"""Who a client is: whose key it has, what is kept of it, and when it ends.

The tests with two databases are in store/test_namespace_databases.py."""

from __future__ import annotations

import asyncio
import hmac
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import namespaces
from broker_core.common.actors import parsed
from broker_core.common.errors import BrokerError, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.service_bus import entities, tokens
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.entities.shared_access import AccessPolicy, Proof, Proofs
from broker_core.service_bus.rules import sas
from broker_core.service_bus.rules.entity_settings import check_namespace_name
from broker_core.service_bus.rules.sas import TokenRefused
from broker_core.service_bus.tokens import Verified, label_of, refusal_of

ORDERS = EntityAddress("space", "orders")
LATER = int(time.time()) + 86_400  # beyond the end of the slowest run
KEYS = "first-key-of-the-policy", "second-key-of-the-policy"
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def policy(name: str = "app", namespace: str = "space", path: str | None = None, keys=KEYS, *, rights=(True, True, True)):
    return AccessPolicy(7, name, namespace, path, *keys, *rights)


@pytest.fixture(autouse=True)
def _nothing_kept():
    tokens._cached.clear()
    yield
    tokens._cached.clear()


class Found:
    """In place of the database: the policies that a search finds, and how often it was asked."""

    def __init__(self, *policies: AccessPolicy):
        self.policies, self.searches = list(policies), 0

    async def search(self, label, path, name, proves):
        self.searches += 1
        tried = [each for each in self.policies if each.name.lower() == name]
        return Proofs(
            False, len(tried) > tokens.MOST_CANDIDATES, [Proof(each, key) for each in tried for key in each.keys if proves(key)]
        )

    def run(self, call):
        with patch.object(tokens.shared_access, "search_by_key", SimpleNamespace(aio=self.search)):
            return asyncio.run(call())


def by_token(key: str = KEYS[0], name: str = "app", uri: str = "sb://localhost/orders", expires: int = LATER, host="localhost"):
    return tokens.verify_token(sas.sign(uri, name, key, expires), host=host, path="/orders", entity="orders")


def by_key(key: str = KEYS[0], name: str = "app", host: str = "localhost"):
    return tokens.verify_key(name, key, host=host)


WAYS = pytest.mark.parametrize("way", [by_token, by_key])


@WAYS
@pytest.mark.parametrize("key", KEYS)
def test_either_key_is_that_of_its_policy(way, key):
    verified = Found(policy()).run(lambda: way(key))
    assert (verified.policy, verified.key, verified.namespace) == (policy(), key, "space")
    assert verified.expires_at == (datetime.fromtimestamp(LATER, UTC) if way is by_token else None)
    assert key not in repr(verified)


@WAYS
@pytest.mark.parametrize(
    ("name", "key"), [("app", "another-key"), ("app", ""), ("none", KEYS[0]), ("a\x00b", KEYS[0]), ("", "x")]
)
def test_a_wrong_key_and_an_unknown_name_are_refused_alike(way, name, key):
    if way is by_token and not name:
        return  # a token without a name is none
    found = Found(policy())
    with pytest.raises(TokenRefused) as refused:
        found.run(lambda: way(key, name))
    assert refused.value.sub_code == TokenRefused.SIGNATURE and str(refused.value).replace(repr(name), "'app'") == _refusal(way)
    assert not tokens._cached


def _refusal(way) -> str:
    with pytest.raises(TokenRefused) as refused:
        Found(policy()).run(lambda: way("a-wrong-key"))
    return str(refused.value)


@WAYS
def test_every_key_is_compared_in_constant_time(way):
    found = Found(policy(keys=("right-key", "other-key1")), policy(namespace="other", keys=("other-key2", "other-key3")))
    with patch.object(hmac, "compare_digest", side_effect=hmac.compare_digest) as compared:
        found.run(lambda: way("right-key"))
        assert compared.call_count == 4
        compared.reset_mock()
        with pytest.raises(TokenRefused):
            found.run(lambda: way("wrong-key"))
        assert compared.call_count >= 4


@WAYS
def test_only_what_was_verified_is_kept_and_only_for_a_second(way, monkeypatch):
    found = Found(policy())
    for _ in range(3):
        found.run(lambda: way(KEYS[1]))
    assert found.searches == 1 and len(tokens._cached) == 1
    for n in range(20):
        with pytest.raises(TokenRefused):
            found.run(lambda n=n: way("wrong-key", f"name{n}", host=f"host{n}.example.org"))
    assert len(tokens._cached) == 1
    tokens._cached.clear()
    monkeypatch.setattr(tokens, "CACHE_SECONDS", 0)
    for _ in range(3):
        found.run(lambda: way(KEYS[1]))
    assert found.searches == 24


@WAYS
def test_clients_of_several_namespaces_at_one_host_are_all_kept(way):
    found = Found(*(policy(namespace=f"space{n}", keys=(f"key-of-space-{n}", "other-key")) for n in range(3)))
    for _ in range(3):
        assert [found.run(lambda n=n: way(f"key-of-space-{n}")).namespace for n in range(3)] == [f"space{n}" for n in range(3)]
    assert found.searches == 3


@WAYS
def test_of_several_namespaces_with_a_key_the_published_one_counts(way):
    several = [policy(namespace="one"), policy(namespace="two")]
    assert Found(*several, policy(namespace="SBEmulatorNS")).run(way).namespace == "SBEmulatorNS"
    tokens._cached.clear()
    with pytest.raises(TokenRefused, match=r"several namespaces .*Name the namespace in the host"):
        Found(*several).run(way)


def test_a_namespaces_own_policies_of_one_key_are_no_conflict():
    of_entity = policy(path="orders")
    assert Found(of_entity, policy()).run(by_token).policy == of_entity


@WAYS
def test_too_many_policies_of_a_name_are_not_tried(way, monkeypatch):
    monkeypatch.setattr(tokens, "MOST_CANDIDATES", 2)
    with pytest.raises(TokenRefused, match="More than 2 policies have the name 'app'"):
        Found(*[policy()] * 3).run(way)


@pytest.mark.parametrize(
    ("given", "sub_code"),
    [
        ({"uri": "sb://localhost/other"}, TokenRefused.AUDIENCE),
        ({"uri": "sb://elsewhere/orders"}, TokenRefused.AUDIENCE),
        ({"expires": 1}, TokenRefused.EXPIRED),
    ],
)
def test_a_signed_token_must_cover_the_address_and_the_time(given, sub_code):
    with pytest.raises(TokenRefused) as refused:
        Found(policy()).run(lambda: by_token(**given))
    assert refused.value.sub_code == sub_code


def test_a_token_without_end_ends_in_the_year_9999():
    assert Found(policy()).run(lambda: by_token(expires=10**15 - 1)).expires_at == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


# Properties

names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
keys = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=";"), min_size=8, max_size=64)


@given(st.text(max_size=200), st.text(max_size=60), st.text(max_size=60))
def test_any_text_as_a_token_is_refused_as_a_token(text, host, entity):
    for given_text in (text, f"{sas.SCHEME} {text}", f"{sas.SCHEME} sr={text}&sig={text}&se=1&skn={text}"):
        with pytest.raises(TokenRefused):
            Found(policy()).run(lambda g=given_text: tokens.verify_token(g, host=host, path=f"/{entity}", entity=entity))


@given(st.text(max_size=60), st.text(max_size=80), st.text(max_size=60))
def test_any_text_as_a_name_and_a_key_is_refused(name, key, host):
    if key not in KEYS:
        with pytest.raises(TokenRefused):
            Found(policy()).run(lambda: tokens.verify_key(name, key, host=host))


@given(names, keys, keys, st.integers(0, 1))
def test_a_key_is_valid_and_no_other(name, one, two, which):
    if one == two:
        return
    own, found = (one, two)[which], Found(policy(name, keys=(one, one)))
    for way in (by_token, by_key):
        tokens._cached.clear()
        if own == one:
            assert found.run(lambda w=way: w(own, name)).key == own
        else:
            with pytest.raises(TokenRefused):
                found.run(lambda w=way: w(own, name))


@pytest.mark.parametrize(
    ("host", "label"),
    [
        ("demo.servicebus.windows.net", "demo"),
        ("DEMO.localhost:5672", "demo"),
        ("demo", "demo"),
        ("demo:5672", "demo"),
        ("my-space.localhost", "my-space"),
        *((host, None) for host in ("", ":5672", "127.0.0.1", "127.0.0.1:5672", "[::1]:5672", "::1", "a b.c", "-a.b", "x" * 51)),
        *((host, None) for host in ("a\x00.b", "%64emo.x", "größe.x", "demo/x", ".demo")),
    ],
)
def test_the_first_label_of_a_host_may_name_a_namespace(host, label):
    assert label_of(host) == label


@given(st.text(max_size=100))
def test_a_label_is_a_valid_name_or_none(host):
    label = label_of(host)
    assert label is None or check_namespace_name(label) == label.lower()


# Who it is


def test_the_actor_is_the_policy_in_its_namespace_and_says_who_holds_its_locks():
    actor = Verified(policy(rights=(True, False, False)), KEYS[0]).actor("amqp", "10.0.0.7:49152")
    assert actor == Actor("key", "app", Right.SEND, "amqp:app@10.0.0.7:49152", namespace="space")
    assert str(parsed(actor.holder_label)) == str(actor)
    actor.require(Right.SEND, ORDERS)
    for right, address in ((Right.SEND, EntityAddress("other", "orders")), (Right.LISTEN, ORDERS)):
        with pytest.raises(NotAuthorized):
            actor.require(right, address)


@pytest.mark.parametrize(
    ("path", "address", "applies"),
    [
        (None, ORDERS, True),
        (None, EntityAddress("SPACE", "news/Subscriptions/all"), True),
        (None, EntityAddress("other", "orders"), False),
        ("orders", EntityAddress("space", "ORDERS").dead_letter, True),
        ("orders", EntityAddress("space", "orders2"), False),
        ("orders", EntityAddress("other", "orders"), False),
        ("news", EntityAddress("space", "News/subscriptions/all"), True),
        ("all", EntityAddress("space", "news/Subscriptions/all"), False),
    ],
)
def test_a_policy_applies_to_its_namespace_or_to_its_entity(path, address, applies):
    verified = Verified(policy(path=path), KEYS[0])
    if applies:
        verified.require_scope(address)
    else:
        with pytest.raises(NotAuthorized):
            verified.require_scope(address)


# Whether it still is


@pytest.mark.parametrize(
    ("current", "expires_at", "problem"),
    [
        (policy(), None, None),
        (policy(keys=(KEYS[0], "replaced")), None, None),
        (policy(keys=("replaced", KEYS[0])), None, None),
        (policy(name="APP"), NOW + timedelta(seconds=1), None),
        (policy(keys=("replaced", KEYS[1])), None, "key .* replaced"),
        (None, None, "deleted"),
        (policy(rights=(True, True, False)), None, "lost a right"),
        (policy(), NOW, "expired at 2026-11-29T00:00:00Z"),
        (None, NOW, "expired"),
    ],
)
def test_a_credential_ends_with_its_key_its_policy_its_rights_and_its_time(current, expires_at, problem):
    refusal = refusal_of(Verified(policy(), KEYS[0], expires_at), current, NOW)
    if problem is None:
        assert refusal is None
    else:
        assert refusal is not None
        with pytest.raises(TokenRefused, match=problem):
            raise refusal
        expected = TokenRefused.EXPIRED if "expired" in problem else TokenRefused.SIGNATURE
        assert refusal.sub_code == expected and not any(key in str(refusal) for key in KEYS)


@pytest.mark.django_db(transaction=True)
async def test_one_statement_looks_for_all_and_none_when_nothing_is_in_use(monkeypatch):
    monkeypatch.setattr(tokens, "CHECK_SECONDS", 0.01)
    asked: list[list[int]] = []

    async def stored(ids):
        asked.append(ids)
        if len(asked) == 1:
            raise BrokerError("away")
        return [policy()]

    monkeypatch.setattr(tokens.shared_access, "stored_policies", SimpleNamespace(aio=stored))
    kept, ending = Verified(policy(), KEYS[0]), Verified(policy(), "replaced-key")
    with tokens.watched(kept) as first, tokens.watched(kept) as second, tokens.watched(ending) as third:
        assert "replaced" in str(await third)
        assert not first.done() and not second.done()
    assert asked == [[7]] * 2
    watch = tokens._watches[asyncio.get_running_loop()]
    await asyncio.wait_for(watch._looking, 10)
    assert not watch._used


# Against the database


@pytest.mark.django_db(transaction=True)
def test_policies_are_searched_by_name_namespace_and_path():
    for name in ("one", "two"):
        namespaces.create_namespace(name, Family.SERVICE_BUS)
        entities.create_queue(EntityAddress(name, "orders"))
        shared_access.create_policy(name, "app", send=True, secondary_key="other-key")
    shared_access.create_policy(EntityAddress("two", "orders"), "APP", listen=True, secondary_key="other-key")
    namespaces.create_namespace("three", Family.SERVICE_BUS)
    namespaces.create_namespace("devaccount", Family.QUEUE_STORAGE)

    def found(label, path, name="app"):
        is_named, is_cut, proofs = shared_access.search_by_key(label, path, name, lambda key: key != "other-key")
        assert not is_cut
        return is_named, [(policy.namespace, policy.path) for policy, _ in proofs]

    everywhere = [("two", "orders"), ("one", None), ("two", None)]
    assert found(None, "ORDERS") == (False, everywhere) == found("nowhere", "orders")
    assert found(None, None, "App") == (False, everywhere) == found("devaccount", None)
    assert found(None, "") == (False, everywhere[1:])
    assert found("TWO", "orders") == (True, [("two", "orders"), ("two", None)])
    assert found("three", "orders") == (True, [])
    assert found(None, "orders", "none") == (False, [])
    entities.delete_queue(EntityAddress("two", "orders"))
    assert found(None, None) == (False, everywhere[1:])
    with patch.object(shared_access, "MOST_CANDIDATES", 1):
        assert [shared_access.search_by_key(label, None, "app", lambda key: True).is_cut for label in (None, "one")] == [
            True,
            False,
        ]
    ids = [policy.id for policy, _ in shared_access.search_by_key(None, None, "app", lambda key: True).proofs]
    shared_access.delete_policy("one", "app")
    assert [each.namespace for each in shared_access.stored_policies([*ids, 0])] == ["two"]


@pytest.mark.parametrize("odd", ["\x00", "\ud800", "x" * 10_000])
def test_odd_names_reach_no_statement(odd):
    """Without a database: none is asked."""
    for way in (lambda: by_key(KEYS[0], odd), lambda: by_key(odd), lambda: by_key(host=f"{odd}.x")):
        with pytest.raises((TokenRefused, InvalidArgument)):
            Found().run(way)
