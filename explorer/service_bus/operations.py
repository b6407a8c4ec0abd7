"""Operations on many messages of Service Bus queues and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_core import service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import MessageState, SubQueue
from broker_core.export_format.messages import Sent
from broker_core.operations import NOT_IN_LIST, Batch, Outcome, Place, Skip
from broker_core.reads import EntityRow, Tab
from broker_core.service_bus.rules.amqp.properties import TYPES, decode_property
from broker_core.service_bus.rules.amqp.sections import AmqpSections
from broker_core.service_bus.rules.messages import prepare
from broker_core.service_bus.rules.values import JSON_PROPERTIES, Message
from broker_core.store.driver import Steps
from explorer.frames.family import FamilyOperations


class ServiceBusOperations(FamilyOperations):
    """Operations on messages of Service Bus."""

    lists = {
        str(Tab.ALL): Place(states=tuple(MessageState)),
        str(Tab.ACTIVE): Place(locked=False),
        str(Tab.LOCKED): Place(locked=True),
        str(Tab.DEFERRED): Place(states=(MessageState.DEFERRED,)),
        str(Tab.SCHEDULED): Place(states=(MessageState.SCHEDULED,)),
        str(Tab.DEAD_LETTER): Place(SubQueue.DEAD_LETTER),
        str(Tab.TRANSFER_DEAD_LETTER): Place(SubQueue.TRANSFER_DEAD_LETTER),
    }
    releases = (str(Tab.LOCKED),)
    sets_properties = True

    def resubmit(self, batch: Batch) -> Steps:
        operation = batch.operation
        moved = yield from service_bus.resubmit.steps(
            operation.selection.address.dead_letter,
            batch.numbers,
            properties=operation.options.get("properties"),
            actor=batch.actor,
        )
        return {old: [(operation.entity_id, new)] for old, new in moved.items()}, {}

    def move(self, batch: Batch) -> Steps:
        operation = batch.operation
        return (
            yield from service_bus.move.steps(
                operation.selection.address, batch.numbers, operation.options["to"], states=batch.place.states, actor=batch.actor
            )
        )

    def resubmits(self, tab: str, entity: EntityRow) -> bool:
        return tab == Tab.DEAD_LETTER

    def release(self, batch: Batch) -> Steps:
        released = yield from service_bus.release_locks.steps(
            batch.operation.selection.address.main, batch.numbers, actor=batch.actor
        )
        remaining = set(batch.numbers) - set(released)
        return Outcome(len(released), dict.fromkeys(remaining, Skip(f"not locked, or {NOT_IN_LIST}")))

    def read_sent(self, sent: Sent) -> Message:
        amqp = None if sent.encoded is None else AmqpSections.parse(sent.encoded)
        properties = {name: value for name, value in (sent.properties or {}).items() if name in JSON_PROPERTIES}
        if amqp is not None and "correlation_id" in properties:
            properties["correlation_id"] = amqp.typed_id("correlation-id", properties["correlation_id"])
        message = Message(
            sent.body,
            body_kind=sent.body_kind,
            message_id=sent.message_id if amqp is None else amqp.typed_id("message-id", sent.message_id),
            session_id=sent.session_id,
            time_to_live=sent.time_to_live,
            scheduled_enqueue_at=sent.scheduled_enqueue_at,
            properties={name: _value(name, pair) for name, pair in (sent.application_properties or {}).items()},
            amqp=amqp,
            **properties,
        )
        prepare(message)
        return message

    def send_records(self, batch: Batch, messages: Sequence[Message]) -> Steps:
        operation = batch.operation
        numbers = yield from service_bus.send.steps(operation.address, messages, actor=batch.actor)
        duplicate = Skip("its id was sent before (duplicate detection)")
        return [duplicate if number is None else [(operation.entity_id, number)] for number in numbers]


def _value(name: str, pair: Any) -> Any:
    """A property of a file, as a Python value."""
    try:
        kind, text = pair
        if kind not in TYPES:
            raise ValueError(kind)
        return decode_property(kind, text)
    except (ValueError, ArithmeticError, TypeError, IndexError):
        raise InvalidArgument(f"application property {name!r}", 'must be [type, text], such as ["int", "5"]') from None
