"""What the administration API reads, writes and reads again is the same; a path names its segments, decoded once."""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from hypothesis import assume, given
from hypothesis import strategies as st

from broker_core.common.durations import FOREVER
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.common.types import EntityKind
from broker_core.service_bus.administration import documents, paths
from broker_core.service_bus.administration.paths import Level
from broker_core.service_bus.rules.entity_settings import DURATIONS, MAY_BE_NEVER, SERVICE_SETTINGS, STATUSES, new_settings
from broker_core.service_bus.rules.filters import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    TrueFilter,
    compile_action,
    compile_filter,
)
from broker_core.service_bus.rules.kept_properties import AVAILABILITY, effective_kept
from broker_core.service_bus.rules.values import GivenPolicy

from .client import entry
from .written import LIMITS, check_entity, check_rule, policies_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=[chr(n) for n in range(32)] + ["\x7f"]), max_size=40)
NAMES = st.from_regex(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,20}", fullmatch=True)
PATHS = st.lists(NAMES.filter(lambda name: name.lower() != "subscriptions"), min_size=1, max_size=4).map("/".join)
FLAGS = st.booleans()


def duration(name):
    allowed = getattr(LIMITS, name)
    finite = st.timedeltas(allowed.minimum, allowed.maximum or FOREVER - timedelta.resolution)
    return finite | st.none() if name in MAY_BE_NEVER else finite


def setting(kind, name):
    """Valid values."""
    if name in DURATIONS:
        return duration(name)
    if name == "status":
        return st.sampled_from(STATUSES[kind])
    if name == "user_metadata":
        return TEXTS.map(lambda text: text or None)
    if name.startswith("forward"):
        return PATHS | st.none()
    if name in ("max_delivery_count", "max_size_in_megabytes", "max_message_size_in_kilobytes"):
        allowed = getattr(LIMITS, name)
        return st.integers(allowed.minimum // allowed.step, allowed.maximum // allowed.step).map(lambda n: n * allowed.step)
    return FLAGS


def kept(kind):
    return st.fixed_dictionaries(
        {},
        optional={
            name: FLAGS if isinstance(value, bool) else st.sampled_from(AVAILABILITY)
            for name, value in effective_kept(kind, {}).items()
        },
    )


@st.composite
def entities(draw):
    """A kind and its settings."""
    kind = draw(st.sampled_from(list(SERVICE_SETTINGS)))
    values = {name: draw(setting(kind, name)) for name in SERVICE_SETTINGS[kind].values()}
    return kind, new_settings(kind, values | {"kept_properties": draw(kept(kind))}, LIMITS)


KEYS = st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=";"), min_size=8, max_size=64)
POLICIES = st.lists(
    st.builds(
        GivenPolicy, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}[A-Za-z0-9]", fullmatch=True), FLAGS, FLAGS, FLAGS, KEYS, KEYS
    ),
    max_size=4,
)
VALUES = st.one_of(
    TEXTS,
    FLAGS,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: Typed("long", number)),
    st.floats(allow_nan=False, allow_infinity=False),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC)),
    st.timedeltas(timedelta(days=-3000), timedelta(days=3000)),
)
PARAMETERS = st.dictionaries(st.from_regex(r"@[A-Za-z][A-Za-z0-9_]{0,10}", fullmatch=True), VALUES, max_size=4)
FIELDS = ("correlation_id", "message_id", "to", "reply_to", "subject", "session_id", "reply_to_session_id", "content_type")


@st.composite
def filters(draw):
    match draw(st.sampled_from(["true", "false", "sql", "correlation"])):
        case "true":
            return TrueFilter()
        case "false":
            return FalseFilter()
        case "sql":
            parameters = one_of_each_name(draw(PARAMETERS))
            expression = " OR ".join(["size > 5", *(f"p = {name}" for name in parameters)])
            return compile_filter(expression, parameters)
    texts = draw(st.dictionaries(st.sampled_from(FIELDS), TEXTS, max_size=3))
    properties = one_of_each_name(draw(st.dictionaries(TEXTS.filter(bool), VALUES, max_size=4)))
    assume(texts or properties)
    return CorrelationFilter(**texts, properties=properties)


def one_of_each_name(values):
    """Names are case-insensitive."""
    return dict({name.lower(): (name, value) for name, value in values.items()}.values())


@st.composite
def actions(draw):
    parameters = one_of_each_name(draw(PARAMETERS))
    statements = ["REMOVE colour", *(f"SET p{number} = {name}" for number, name in enumerate(parameters))]
    return draw(st.none() | st.just(compile_action("; ".join(statements), parameters)))


@given(entities(), POLICIES)
def test_settings_kept_properties_and_policies_are_read_as_they_were_written(made, given_policies):
    kind, settings = made
    policies = [] if kind is EntityKind.SUBSCRIPTION else policies_of(documents.EntityElement(kind, {}, tuple(given_policies)))
    check_entity(kind, settings, policies)


@given(st.from_regex(r"[A-Za-z0-9 $._%~-]{1,50}", fullmatch=True), filters(), actions())
def test_rules_and_their_typed_values_are_read_as_they_were_written(name, rule_filter, action):
    check_rule(Rule(name, rule_filter, action))


@given(
    st.permutations(sorted(SERVICE_SETTINGS[EntityKind.QUEUE])), st.sampled_from(["  \n", "", "<x:a xmlns:x='u'/>", "<Unknown/>"])
)
def test_elements_are_read_in_any_order(names, between):
    values = {
        "LockDuration": "PT7S",
        "MaxDeliveryCount": "3",
        "Status": "Disabled",
        "ForwardTo": "sb://h/q",
        "RequiresSession": "true",
    }
    inner = between.join(f"<{name}>{values[name]}</{name}>" for name in names if name in values)
    read = documents.read_entity(entry("QueueDescription", inner), [EntityKind.QUEUE]).settings
    assert read == {
        "lock_duration": timedelta(seconds=7),
        "max_delivery_count": 3,
        "status": "Disabled",
        "forward_to": "q",
        "requires_session": True,
    }


# Paths


@st.composite
def encoded(draw, text):
    """The text with any of its characters percent-encoded, in capitals or not."""
    parts = []
    for character in text:
        if quote(character, safe="$") != character or draw(FLAGS):
            escaped = "".join(f"%{byte:02x}" for byte in character.encode())
            parts.append(escaped.upper() if draw(FLAGS) else escaped)
        else:
            parts.append(character)
    return "".join(parts)


@st.composite
def of_any_case(draw, word):
    return "".join(letter.upper() if draw(FLAGS) else letter.lower() for letter in word)


SEGMENTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\x00"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and name.lower() != "subscriptions"
)


@given(st.data(), st.lists(SEGMENTS, min_size=1, max_size=4), SEGMENTS, SEGMENTS, st.integers(0, 4))
def test_a_path_names_its_segments_decoded_once(data, topic, subscription, rule, depth):
    assume(topic[0].lower() not in ("$resources", "$namespaceinfo"))
    segments = [*topic, data.draw(of_any_case("Subscriptions")), subscription, data.draw(of_any_case("Rules")), rule]
    segments = segments[: len(topic) + depth]
    target = paths.target_of("".join(f"/{data.draw(encoded(segment))}" for segment in segments))
    entity = "/".join(topic)
    below = f"{entity}/Subscriptions/{subscription}"
    expected = [
        (Level.ENTITY, entity, ""),
        (Level.SUBSCRIPTIONS, entity, ""),
        (Level.SUBSCRIPTION, below, ""),
        (Level.RULES, below, ""),
        (Level.RULE, below, rule),
    ]
    assert (target.level, target.entity, target.rule) == expected[depth]
    assert target.path == "/" + "/".join(segments)


@given(st.text(max_size=30), st.sampled_from(["", ".", "..", "%2e", "%2E%2e", "a%00", "%FF", "%ED%A0%80"]), st.text(max_size=30))
def test_a_path_with_a_segment_that_is_none_is_refused(before, bad, after):
    raw = f"/{quote(before, safe='', errors='replace')}x/{bad}/{quote(after, safe='', errors='replace')}x"
    try:
        target = paths.target_of(raw)
    except (InvalidArgument, paths.UnknownResource):
        return
    raise AssertionError(target)
