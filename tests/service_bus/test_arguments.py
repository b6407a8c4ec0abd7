"""Arguments of the wrong kind, and texts that no database can hold: refused by name, before anything is stored."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, ExpiryMode, HistoryLevel, Right
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.rules.errors import InvalidPolicy
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.reads import list_messages, traffic
from broker_core.service_bus import entities
from broker_core.service_bus.configured_limits import limits
from broker_core.service_bus.rules.values import Message, QueueSettings

NUL, HALF = "a\x00b", "a\ud800b"
WRONG_TYPE = (InvalidArgument, TypeError, AttributeError)  # annotations are checked by mypy, not at each call


def untyped(value: Any) -> Any:
    """A value of which a type checker does not know what it is."""
    return value


@pytest.mark.parametrize("value", [None, 5, b"q", ["q"]], ids=repr)
def test_an_address_must_consist_of_texts(value):
    for parts in ((value, "q"), ("ns", value)):
        with pytest.raises(InvalidArgument, match="must be a string"):
            EntityAddress(*parts)
    with pytest.raises(InvalidArgument, match="address: must be a string"):
        EntityAddress.parse(value)


def test_a_statement_refuses_values_of_another_type(queue):
    """PostgreSQL would read these texts as an instant, a duration and a boolean, and the instant in the server's time zone."""
    for call, name in (
        (lambda: service_bus.delete_batch(queue, max_count=1, enqueued_before=untyped("yesterday")), "enqueued_before"),
        (lambda: service_bus.delete_batch(queue, max_count=1, enqueued_before=datetime(2020, 1, 1)), "enqueued_before"),
        (lambda: namespaces.step_clock(queue.namespace, untyped("1 day")), "step"),
        (lambda: service_bus.send(queue, [Message()], actor=untyped("me")), "actor"),
    ):
        with pytest.raises(WRONG_TYPE) as refused:
            call()
        if isinstance(refused.value, InvalidArgument):
            assert refused.value.name == name
    assert service_bus.peek(queue) == []


@pytest.mark.parametrize("text", [NUL, HALF], ids=ascii)
@pytest.mark.parametrize(
    "name", ["subject", "message_id", "session_id", "correlation_id", "content_type", "to", "reply_to", "partition_key"]
)
def test_invalid_texts_of_a_message_are_refused_by_name(queue, name, text):
    with pytest.raises(InvalidArgument) as refused:
        service_bus.send(queue, [Message(**{name: text})])
    assert refused.value.name == name and service_bus.peek(queue) == []


@pytest.mark.parametrize("text", [NUL, HALF], ids=ascii)
def test_other_invalid_texts_stored_with_messages_are_refused_by_name(queue, text):
    with pytest.raises(InvalidArgument, match="^application property"):
        service_bus.send(queue, [Message(properties={text: "n"})])
    with pytest.raises(InvalidArgument, match="^actor: "):
        service_bus.send(queue, [Message()], actor=Actor("user", text, Right.ALL))
    with pytest.raises(InvalidArgument, match="^user_metadata: "):
        entities.update_queue(queue, user_metadata=text)
    assert service_bus.peek(queue) == []
    service_bus.send(queue, [Message()])
    (message,) = service_bus.receive(queue)
    for name in ("reason", "description"):
        with pytest.raises(InvalidArgument, match=f"^{name}: "):
            service_bus.dead_letter(queue, [message.lock_token], **{name: text})


@pytest.mark.parametrize("wrong", [NUL, HALF, 5, None, b"x"], ids=ascii)
def test_names_in_a_publication_are_checked(vhost, wrong):
    address = rabbitmq.declare_queue(EntityAddress(vhost, "q")).address
    properties = [name for name in ("message_id", "reply_to", "type", "app_id") if wrong is not None]
    for publication in (
        Publication(b"", exchange=wrong, routing_key="q"),
        Publication(b"", routing_key=wrong),
        *(Publication(b"", routing_key="q", properties=Properties(**{name: wrong})) for name in properties),
        Publication(b"", routing_key="q", properties=Properties(headers={wrong: 1})),
    ):
        with pytest.raises(InvalidArgument) as refused:
            rabbitmq.publish(vhost, [publication])
        assert refused.value.name in ("exchange", "routing_key", *properties, "header")
    assert rabbitmq.declare_queue(address).messages == 0


@pytest.mark.parametrize("wrong", [NUL, HALF, 5, None], ids=ascii)
@pytest.mark.parametrize("name", ["name", "pattern", "apply_to"])
def test_a_policys_texts_are_checked(vhost, name, wrong):
    values = {"name": "p", "pattern": "", "apply_to": "all", "priority": 0, "definition": {"max-length": 1}, name: wrong}
    with pytest.raises(InvalidPolicy, match="^" + name.replace("_", "-")):
        rabbitmq.set_policy(vhost, Policy(**values))
    assert rabbitmq.list_policies(vhost) == []


@pytest.mark.parametrize("wrong", [NUL, HALF, 5, None], ids=ascii)
def test_metadata_of_a_storage_queue_is_checked(account, wrong):
    for metadata in ({"n": wrong}, {wrong: "x"}):
        with pytest.raises(InvalidArgument, match="(?i)metadata"):
            queue_storage.create_queue(EntityAddress(account, "orders"), metadata=metadata)
    assert queue_storage.list_queues(account) == []


def test_values_refused_by_the_database_are_named_by_the_statement(queue):
    with pytest.raises(InvalidArgument, match="^enqueued_before: .*datetime"):
        service_bus.delete_batch(queue, max_count=1, enqueued_before=untyped("yesterday"))
    with pytest.raises(InvalidArgument, match=r"^max_count: .* 2\^63"):
        service_bus.delete_batch(queue, max_count=2**70, enqueued_before=datetime(2020, 1, 1, tzinfo=UTC))


DURATION = r"must be a timedelta, such as timedelta\(seconds=5\)( or None)?, not 5$"


def test_a_number_for_a_duration_is_refused_with_an_example(queue, account):
    orders = queue_storage.create_queue(EntityAddress(account, "orders")).address
    for name, call in {
        "time_to_live": lambda: service_bus.send(queue, [Message(time_to_live=untyped(5))]),
        "auto_renew": lambda: service_bus.receive(queue, auto_renew=untyped(5)),
        "visibility_timeout": lambda: queue_storage.put(orders, "x", visibility_timeout=untyped(5)),
        "expiry_grace": lambda: queue_storage.create_queue(orders, expiry_grace=untyped(5)),
    }.items():
        with pytest.raises(InvalidArgument, match=f"^{name}: {DURATION}"):
            call()
    with pytest.raises(InvalidArgument, match=f"^time_to_live: {DURATION}"):
        queue_storage.put(orders, "x", time_to_live=untyped(5))
    assert service_bus.peek(queue) == [] and queue_storage.peek(orders) == []


@pytest.mark.parametrize("wrong", [Message(), None, 5, [None], ["x"], [b"x"], {"a": 1}], ids=repr)
def test_an_invalid_list_of_messages_is_refused(queue, wrong):
    for send in (service_bus.send, service_bus.transaction().send):
        with pytest.raises(WRONG_TYPE):
            send(queue, wrong)
    assert service_bus.peek(queue) == []


@pytest.mark.parametrize("wrong", [[None], ["x"], {"a": 1}], ids=repr)
def test_the_items_of_lists_are_checked(queue, vhost, wrong):
    with pytest.raises(InvalidArgument, match="^publications: must be a Publication, not "):
        rabbitmq.publish(vhost, wrong)
    with pytest.raises(InvalidArgument, match="^addresses: must be an EntityAddress, such as "):
        service_bus.receive_from(wrong)


def test_a_text_is_refused_as_an_address(queue):
    text = untyped(str(queue))
    for call in (
        lambda: service_bus.send(text, [Message()]),
        lambda: service_bus.receive(text),
        lambda: service_bus.peek(text),
        lambda: service_bus.transaction(via=text),
    ):
        with pytest.raises(WRONG_TYPE):
            call()
    with pytest.raises(
        InvalidArgument, match=r"^address: must be an EntityAddress, such as EntityAddress\('namespace', 'queue'\)"
    ):
        service_bus.receive(text)


@pytest.mark.parametrize("wrong", ["five", [5], timedelta(seconds=5)], ids=repr)
def test_a_value_that_is_not_a_number_is_refused(queue, wrong):
    for call in (
        lambda: service_bus.receive(queue, wrong),
        lambda: service_bus.peek(queue, wrong),
        lambda: list_messages(queue, limit=wrong),
        lambda: service_bus.receive(queue, max_wait_seconds=wrong),
        lambda: service_bus.purge(queue, max_count=wrong),
    ):
        with pytest.raises(WRONG_TYPE):
            call()


@pytest.mark.parametrize("wrong", [5, "x", [1], b"x", True], ids=repr)
@pytest.mark.parametrize("name", ["time_to_live", "scheduled_enqueue_at", "properties", "amqp"])
def test_other_invalid_fields_of_a_message_are_refused_by_name(queue, name, wrong):
    with pytest.raises(InvalidArgument, match=f"^{name}: must be "):
        service_bus.send(queue, [Message(**{name: wrong})])
    assert service_bus.peek(queue) == []


@pytest.mark.parametrize("wrong", [5, "x", [1], None], ids=repr)
def test_an_invalid_kind_of_body_is_refused_by_name(queue, wrong):
    with pytest.raises(InvalidArgument, match="^body_kind: must be one of BodyKind"):
        service_bus.send(queue, [Message(body_kind=wrong)])


def test_invalid_parts_of_arguments_are_refused_by_name(queue, vhost):
    naive = datetime(2030, 1, 1)
    for call, name in (
        (lambda: service_bus.resubmit(queue.dead_letter, [1], body=untyped({})), "body"),
        (lambda: namespaces.step_clock_to(queue.namespace, naive), "at"),
        (lambda: limits(untyped("")), "tier"),
        (lambda: list_messages(queue, limit=-1), "limit"),
        (lambda: traffic(queue, minutes=2**31), "minutes"),
        (lambda: EntityAddress("ns", "q", untyped({})), "subqueue"),
        (lambda: Actor("user", untyped(5)), "name"),
        (lambda: rabbitmq.publish(vhost, [Publication(b"", properties=untyped(None))]), "properties"),
        (lambda: rabbitmq.publish(vhost, [Publication(b"", properties=Properties(headers=untyped(5)))]), "headers"),
        (lambda: service_bus.send(queue, [Message(amqp=untyped({"a": object()}))]), "amqp"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            call()
        assert refused.value.name == name


def test_settings_accept_the_value_of_an_enum(namespace):
    queue = EntityAddress(namespace, "q")
    made = entities.create_queue(queue, QueueSettings(expiry_mode="on_activity", history_level=1)).settings  # type: ignore[arg-type]
    assert (made.expiry_mode, made.history_level) == (ExpiryMode.ON_ACTIVITY, HistoryLevel(1))
    with pytest.raises(InvalidArgument, match="expiry_mode: 'sometimes' must be one of eager, on_activity"):
        entities.create_queue(queue, QueueSettings(expiry_mode="sometimes"))  # type: ignore[arg-type]
