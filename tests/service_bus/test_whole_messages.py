"""A message comes back as it was sent: every type of AMQP, through every operation, byte for byte (docs/messages.md)."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_core import namespaces, service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind, EntityAddress, Family
from broker_core.service_bus import AmqpSections, Section, encode_message, entities, read_message, sections
from broker_core.service_bus.rules.amqp.sections import list_items, map_items
from broker_core.service_bus.rules.amqp.types import decode, encode
from broker_core.service_bus.rules.amqp_messages import with_text_ids
from broker_core.service_bus.rules.filters import Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import LockedMessage, Message
from broker_core.store import connections
from broker_core.transfer.exporting import export
from broker_core.transfer.importing import import_
from tests import amqp_values
from tests.broker_state import entity_id, ledger_agrees, now

HOUR = timedelta(hours=1)


# What can be done with messages that are sent to a queue. Each returns them as received at the end.


def received(queue, count):
    return service_bus.receive(queue, count)


def tokens(messages):
    return [message.lock_token for message in messages]


def directly(queue, sent):
    service_bus.send(queue, sent)
    return received(queue, len(sent))


def received_and_deleted(queue, sent):
    service_bus.send(queue, sent)
    return service_bus.receive_and_delete(queue, len(sent))


def peeked(queue, sent):
    service_bus.send(queue, sent)
    return service_bus.peek(queue)


def abandoned(queue, sent):
    service_bus.abandon(queue, tokens(directly(queue, sent)))
    return received(queue, len(sent))


def deferred(queue, sent):
    messages = directly(queue, sent)
    service_bus.defer(queue, tokens(messages))
    return service_bus.receive_deferred(queue, [message.sequence_number for message in messages])


def resubmitted(queue, sent):
    service_bus.dead_letter(queue, tokens(directly(queue, sent)), "why", "because")
    service_bus.resubmit(queue, [message.sequence_number for message in service_bus.peek(queue.dead_letter)])
    return received(queue, len(sent))


def dead_lettered_without_a_reason(queue, sent):
    service_bus.dead_letter(queue, tokens(directly(queue, sent)))
    return received(queue.dead_letter, len(sent))


def another_queue(queue, **options):
    """Another queue of the namespace."""
    other = EntityAddress(queue.namespace, f"q-{uuid.uuid4().hex[:8]}")
    entities.create_queue(other, **options)
    return other


def forwarded(queue, sent):
    service_bus.send(another_queue(queue, forward_to=queue.path), sent)
    return received(queue, len(sent))


def forwarded_as_dead_letters(queue, sent):
    other = another_queue(queue, forward_dead_lettered_messages_to=queue.path)
    service_bus.dead_letter(other, tokens(directly(other, sent)))
    return received(queue, len(sent))


def published(queue, sent):
    topic = EntityAddress(queue.namespace, f"t-{uuid.uuid4().hex[:8]}")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    service_bus.send(topic, sent)
    return received(topic.subscription("all"), len(sent))


def published_and_forwarded(queue, sent):
    topic = EntityAddress(queue.namespace, f"t-{uuid.uuid4().hex[:8]}")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("on"), forward_to=queue.path)
    service_bus.send(topic, sent)
    return received(queue, len(sent))


def in_a_transaction(queue, sent):
    with service_bus.transaction() as tx:
        tx.send(queue, sent)
    return received(queue, len(sent))


def via_another_entity(queue, sent):
    with service_bus.transaction(via=another_queue(queue)) as tx:
        tx.send(queue, sent)
    return received(queue, len(sent))


def exported_and_imported(queue, sent):
    service_bus.send(queue, sent)
    lines = []
    export([queue.namespace], lines.append)
    copy = EntityAddress(f"c-{uuid.uuid4().hex[:10]}", queue.path)
    import_(lines, name=copy.namespace)
    return received(copy, len(sent))


# Ids that are numbers, in the properties as the broker writes them itself.
PLAIN_BUT_FOR_ITS_IDS = b"\x00Ss\xc0\x10\rD@@@@D@@@@@@\xa1\x010\x00Su\xb0\x00\x00\x00\x00"

OPERATIONS = (
    directly, received_and_deleted, peeked, abandoned, deferred, resubmitted, dead_lettered_without_a_reason, forwarded,
    forwarded_as_dead_letters, published, published_and_forwarded, in_a_transaction, via_another_entity, exported_and_imported,
)  # fmt: skip

many = settings(max_examples=8)


def a_queue():
    queue = EntityAddress(f"w-{uuid.uuid4().hex[:10]}", "queue")
    namespaces.create_namespace(queue.namespace, Family.SERVICE_BUS)
    entities.create_queue(queue)
    return queue


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@many
@given(encoded=st.lists(amqp_values.messages(), min_size=1, max_size=6))
@example(encoded=[PLAIN_BUT_FOR_ITS_IDS])
def test_a_message_is_returned_byte_for_byte(broker_database, operation, encoded):
    queue = a_queue()
    deliveries = operation(queue, [read_message(raw) for raw in encoded])
    assert [encode_message(message) for message in deliveries] == encoded
    sent = [with_text_ids(read_message(raw)).amqp for raw in encoded]  # ids that are no texts are in the sections
    assert [message.amqp for message in deliveries] == sent
    assert ledger_agrees(queue)


LATER = datetime(2030, 1, 1, tzinfo=UTC)
SCHEDULED = AmqpSections(message_annotations={"x-opt-scheduled-enqueue-time": LATER, "own": 1}).raw[3:]


@many
@given(encoded=amqp_values.messages(st.just(SCHEDULED)))
def test_a_scheduled_message_is_returned_byte_for_byte(broker_database, encoded):
    """Its annotation says when (SB-045); it is activated at that time, and published then if it waits in a topic (SB-051)."""
    queue = a_queue()
    topic = EntityAddress(queue.namespace, "topic")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    message = read_message(encoded)
    for address in (queue, topic):
        service_bus.send(address, [message])
    if message.scheduled_enqueue_at is not None:
        assert received(queue, 1) == []
        namespaces.step_clock_to(queue.namespace, message.scheduled_enqueue_at + HOUR)
    for address in (queue, topic.subscription("all")):
        (received_message,) = received(address, 1)
        assert encode_message(received_message) == encoded


@many
@given(encoded=amqp_values.messages(), change=st.dictionaries(st.sampled_from(["a", "added"]), amqp_values.SIMPLE.map(decode)))
@pytest.mark.parametrize("how", ["abandon", "defer", "dead_letter", "resubmit"])
def test_changed_properties_are_encoded_again_and_all_other_bytes_stay(broker_database, how, encoded, change):
    queue, before = a_queue(), sections(read_message(encoded))
    (message,) = directly(queue, [read_message(encoded)])
    if how == "abandon":
        service_bus.abandon(queue, message.lock_token, change)
        (received_message,) = received(queue, 1)
    elif how == "defer":
        service_bus.defer(queue, message.lock_token, change)
        (received_message,) = service_bus.receive_deferred(queue, [message.sequence_number])
    elif how == "resubmit":
        service_bus.dead_letter(queue, message.lock_token)
        service_bus.resubmit(queue, [message.sequence_number], properties=change)
        (received_message,) = received(queue, 1)
    else:
        service_bus.dead_letter(queue, message.lock_token, "why", None, change)
        (received_message,) = received(queue.dead_letter, 1)
        change = change | {"DeadLetterReason": "why"}
    after = sections(received_message)
    assert_changed(before.pop(Section.APPLICATION_PROPERTIES, None), after.pop(Section.APPLICATION_PROPERTIES, None), change)
    assert after == before
    assert encode_message(received_message) == b"".join(sections(received_message).values())


def assert_changed(before, after, change):
    """The items are those from before in their encoding, but for the changed ones, which have their new values. They keep their
    order, unless it is the one that PostgreSQL gives to JSON anyway."""
    old = {decode(name): (name, value) for name, value in map_items(before)} if before else {}
    new = {decode(name): (name, value) for name, value in map_items(after)} if after else {}
    assert new.keys() == old.keys() | change.keys()
    assert list(new)[: len(old)] == list(old) or list(new) == sorted(new, key=lambda name: (len(name.encode()), name.encode()))
    for name, (_, value) in new.items():
        if name in change:
            assert repr(decode(value)) == repr(decode(encode(change[name])))
        else:
            assert new[name] == old[name]


@many
@given(encoded=amqp_values.messages())
def test_an_action_changes_only_the_properties_it_names(broker_database, encoded):
    """SB-215, SB-260: subject and one property; a type is kept where it fits (SB-261). The other copy is the message as sent."""
    topic = EntityAddress(a_queue().namespace, "topic")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("plain"))
    action = compile_action("SET sys.Label = 'changed'; SET added = 5; REMOVE gone")
    entities.create_subscription(topic.subscription("changed"), rule=Rule("r", compile_filter("1 = 1"), action))
    service_bus.send(topic, [read_message(encoded)])
    (plain,), (changed,) = received(topic.subscription("plain"), 1), received(topic.subscription("changed"), 1)
    assert encode_message(plain) == encoded
    before, after = sections(plain), sections(changed)
    assert_changed(
        before.pop(Section.APPLICATION_PROPERTIES, None), after.pop(Section.APPLICATION_PROPERTIES, None),
        {"added": Typed("long", 5), "RuleName": "r"},
    )  # fmt: skip
    old, new = list_items(before.pop(Section.PROPERTIES)), list_items(after.pop(Section.PROPERTIES))
    assert after == before and decode(new[3]) == "changed"
    padded = [*old, *[b"\x40"] * 4][: len(new)]
    assert [item for place, item in enumerate(new) if place != 3] == [item for place, item in enumerate(padded) if place != 3]


@pytest.mark.parametrize("message_id", ["text", UUID(int=5), 7, 0, 2**64 - 1, b"\x00\xff", Typed("ulong", 7)], ids=repr)
def test_ids_have_four_types(queue, message_id: Any):
    service_bus.send(queue, [Message(b"", message_id=message_id, correlation_id=message_id)])
    (message,) = received(queue, 1)
    assert (message.message_id, message.correlation_id) == (message_id, message_id)
    assert type(message.message_id) is type(getattr(message_id, "value", message_id)) or isinstance(message.message_id, int)
    assert read_message(encode_message(message)).message_id == message_id


def test_ids_are_compared_by_their_text(make_queue):
    """SB-130: duplicates have the same text, which for binary is base64."""
    queue = make_queue(requires_duplicate_detection=True)
    ids: list[Any] = [UUID(int=5), str(UUID(int=5)), 7, "7", b"\x00", "AA=="]
    assert service_bus.send(queue, [Message(b"", message_id=message_id) for message_id in ids]) == [1, None, 2, None, 3, None]
    assert [m.message_id for m in service_bus.peek(queue)] == [UUID(int=5), 7, b"\x00"]


def test_filters_see_ids_as_text_and_typed_numbers_as_numbers(queue):
    topic = EntityAddress(queue.namespace, "typed")
    entities.create_topic(topic)
    text = f"sys.MessageId = '{UUID(int=5)}' AND sys.CorrelationId = '7' AND n > 4 AND d < 2"
    entities.create_subscription(topic.subscription("s"), rule=Rule("r", compile_filter(text)))
    properties = {"n": Typed("ubyte", 5), "d": Typed("decimal64", 1)}
    service_bus.send(topic, [Message(b"", message_id=UUID(int=5), correlation_id=7, properties=properties)])
    (message,) = received(topic.subscription("s"), 1)
    assert message.properties == {"n": 5, "d": 1} and message.properties["n"] + 1 == 6
    assert (message.message_id, message.correlation_id) == (UUID(int=5), 7)


def test_amqp_sections_set_from_python_are_returned(queue):
    amqp = AmqpSections(
        durable=True, priority=4, user_id=b"me", content_encoding="gzip", creation_time=datetime(2026, 1, 1, tzinfo=UTC),
        absolute_expiry_time=datetime(2030, 1, 1, tzinfo=UTC), group_sequence=3, delivery_annotations={"d": 1},
        message_annotations={"m": [1, "two"]}, footer={"f": True},
    )  # fmt: skip
    service_bus.send(queue, [Message(b"x", subject="s", message_id="m", time_to_live=HOUR, amqp=amqp)])
    (message,) = received(queue, 1)
    assert message.amqp == amqp and message.amqp.user_id == b"me" and message.subject == "s"
    again = read_message(encode_message(message))
    assert (again.subject, again.message_id, again.time_to_live) == ("s", "m", HOUR)
    assert (again.amqp.durable, again.amqp.priority, again.amqp.group_sequence) == (True, 4, 3)
    assert again.amqp.footer == {"f": True} and again.amqp.message_annotations == {"m": [1, "two"]}


def column(queue):
    query = "SELECT encoded FROM vitrine_message WHERE entity_id = %s ORDER BY sequence_number"
    return [row[0] for row in connections.current().execute(query, [entity_id(queue)])]


def test_sections_that_the_values_represent_exactly_are_not_stored_twice(queue):
    """A plain message has NULL in `encoded`, whoever sent it; of another, only the sections that need it are kept."""
    plain = Message(
        b"x" * 300, message_id="m", subject="s", content_type="text/plain", partition_key="p", time_to_live=HOUR,
        properties={"b": 1, "aa": "text", "ccc": Typed("ubyte", 1)}, scheduled_enqueue_at=datetime(2020, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    by_amqp = read_message(encode_message(plain))
    assert by_amqp == plain
    footer = AmqpSections(footer={"f": 1})
    service_bus.send(
        queue, [Message(b""), plain, by_amqp, read_message(encode_message(Message(b"", message_id="m", amqp=footer)))]
    )
    assert column(queue) == [None, None, None, footer.raw]
    first, second = service_bus.peek(queue, 2, 2)
    assert encode_message(first) == encode_message(second) == encode_message(plain)


def test_a_message_without_an_id_is_given_one(queue):
    """SB-134. It is added to the properties as they were sent."""
    service_bus.send(queue, [read_message(AmqpSections(user_id=b"u").raw + bytes.fromhex("00537740"))])
    (message,) = received(queue, 1)
    assert message.message_id and message.amqp.user_id == b"u"
    items = list_items(sections(message)[Section.PROPERTIES])
    assert [decode(item) for item in items] == [message.message_id, b"u"]


def test_the_time_to_live_of_the_entity_applies(make_queue):
    """SB-021: the header says the time that the message really has, and keeps its other fields."""
    queue = make_queue(default_message_time_to_live=HOUR)
    header = bytes.fromhex("005370c00903" + "4150097000ffffff")
    service_bus.send(queue, [read_message(header + bytes.fromhex("005375a00178"))])
    (message,) = received(queue, 1)
    items = [decode(item) for item in list_items(sections(message)[Section.HEADER])]
    assert items == [True, 9, 3_600_000]


def test_a_long_time_to_live_is_sent_as_two_instants(queue):
    """A client whose time-to-live does not fit into the header gives its creation and its end."""
    begin, end = now(queue), now(queue) + timedelta(days=400)
    begin, end = (at.replace(microsecond=0) for at in (begin, end))
    told = AmqpSections(creation_time=begin, absolute_expiry_time=end)
    encoded = encode_message(Message(b"", message_id="m", time_to_live=end - begin, amqp=told))
    service_bus.send(queue, [read_message(encoded)])
    (message,) = received(queue, 1)
    assert message.time_to_live == timedelta(days=400) and encode_message(message) == encoded


def test_a_new_body_of_a_resubmitted_message_is_data(queue):
    """SB-105. The rest stays as it was sent; a limit on the message counts its other sections, too (SB-007)."""
    sent = Message(service_bus.encode_body(BodyKind.VALUE, {"a": 1}), body_kind=BodyKind.VALUE, amqp=AmqpSections(priority=2))
    (message,) = directly(queue, [sent])
    assert service_bus.body_value(message.body_kind, message.body) == {"a": 1}
    service_bus.dead_letter(queue, message.lock_token)
    service_bus.resubmit(queue, [message.sequence_number], body=b"new")
    (received_message,) = received(queue, 1)
    assert (received_message.body_kind, received_message.body, received_message.amqp.priority) == (BodyKind.DATA, b"new", 2)
    assert sections(received_message)[Section.DATA] == bytes.fromhex("005375a003") + b"new"


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        (
            Message(b"", amqp=AmqpSections.stored(b"\x00\x53\x73\x40")),
            "amqp: is no valid AMQP: a list or map",
        ),
        (Message(b"", amqp=AmqpSections.stored(b"nonsense")), "amqp: is no valid AMQP: no section begins at byte 0"),
        (Message(b"text", body_kind=BodyKind.VALUE), "body: is no valid AMQP: no section begins at byte 0"),
    ],
)
def test_invalid_amqp_sections_are_refused_and_nothing_is_stored(queue, bad, name):
    with pytest.raises(InvalidArgument, match=name):
        service_bus.send(queue, [Message(b"good"), bad])
    assert service_bus.peek(queue) == []


def test_a_session_id_is_the_group_id(make_queue):
    queue = make_queue(requires_session=True)
    sent = Message(b"x", session_id="s", message_id=UUID(int=1), amqp=AmqpSections(group_sequence=1))
    message = read_message(encode_message(sent))
    service_bus.send(queue, [message])
    session = service_bus.accept_session(queue, "s", max_count=1)
    (received_message,) = session.messages or service_bus.receive_from_session(session)
    assert (
        isinstance(received_message, LockedMessage)
        and received_message.session_id == "s"
        and received_message.amqp.group_sequence == 1
    )
    assert encode_message(received_message) == encode_message(message)
