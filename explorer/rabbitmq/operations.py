"""Operations on many messages of RabbitMQ queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, LedgerState
from broker_core.export_format.messages import Sent
from broker_core.operations import NOT_IN_LIST, Batch, Outcome, Place, Places, Skip
from broker_core.rabbitmq import Back, DeadLetterOrigin, Publication, ToExchange, ToQueue
from broker_core.rabbitmq.connections import channels
from broker_core.rabbitmq.messages import properties
from broker_core.rabbitmq.messages.moving import Target
from broker_core.reads import EXPIRED, EntityRow
from broker_core.store.driver import Steps
from explorer.frames.family import FamilyOperations
from explorer.rabbitmq.forms.move import in_words, read_group

from .shared import link


def target_json(target: Target) -> dict[str, Any]:
    """A target as an operation stores it."""
    match target:
        case ToQueue(name):
            return {"queue": name}
        case ToExchange(exchange, key):
            return {"exchange": exchange, "routing_key": key}
        case Back(first):
            return {"back": "first" if first else "last"}


def read_target(stored: Mapping[str, Any]) -> Target:
    if "queue" in stored:
        return ToQueue(stored["queue"])
    if "exchange" in stored:
        return ToExchange(stored["exchange"], stored["routing_key"])
    return Back(first=stored.get("back") == "first")


def _to(batch: Batch, target: Target, of: DeadLetterOrigin | None = None) -> Steps:
    address = batch.operation.selection.address
    copies, why = yield from rabbitmq.move_numbers.steps(address, target, batch.numbers, of=of, actor=batch.actor)
    if of is None:
        return copies, why
    others = dict.fromkeys((number for number in batch.numbers if number not in copies), "not of the chosen group")
    return copies, others | why


class RabbitOperations(FamilyOperations):
    """Operations on messages of RabbitMQ queues."""

    lists = {
        "messages": Place(),
        "ready": Place(holds=(0,)),
        "unacked": Place(holds=(int(LedgerState.LOCKED),)),
        "expired": Place(holds=(EXPIRED,)),
    }
    releases = ("unacked",)
    largest_body = 128 * 1024 * 1024

    def resubmit(self, batch: Batch) -> Steps:
        return (yield from _to(batch, Back()))

    def move(self, batch: Batch) -> Steps:
        options = batch.operation.options
        of = read_group(options["group"]) if options.get("group") else None
        return (yield from _to(batch, read_target(options["to"]), of))

    def target(self, name: str) -> dict[str, Any]:
        return target_json(ToQueue(name))

    def target_words(self, target: Mapping[str, Any]) -> str:
        return in_words(read_target(target))

    def move_page(self, address: EntityAddress) -> str:
        return link("move", address.namespace, address.path)

    def resubmits(self, tab: str, entity: EntityRow) -> bool:
        return tab in ("messages", "ready")

    def release(self, batch: Batch) -> Steps:
        released = yield from channels.release.steps(batch.operation.selection.address.main, batch.numbers, actor=batch.actor)
        remaining = set(batch.numbers) - set(released)
        return Outcome(len(released), dict.fromkeys(remaining, Skip(f"not held, or {NOT_IN_LIST}")))

    def read_sent(self, sent: Sent) -> Publication:
        try:
            sent_properties = properties.read(sent.properties or {}, sent.message_id, sent.application_properties or {})
        except (ValueError, ArithmeticError, TypeError, LookupError, AttributeError, RecursionError):
            raise InvalidArgument("application_properties", 'must be headers as exported, such as {"n": ["int", "5"]}') from None
        properties.check(sent_properties)
        return Publication(sent.body, properties=sent_properties)

    def send_records(self, batch: Batch, publications: Sequence[Publication]) -> Steps:
        """To the queue itself, through the default exchange."""
        operation = batch.operation
        named = [replace(publication, routing_key=operation.address.path) for publication in publications]
        published = yield from rabbitmq.publish.steps(operation.address.namespace, named, actor=batch.actor)
        return [_stored(result, operation.address.path, operation.entity_id) for result in published]


def _stored(published: rabbitmq.Published, name: str, entity_id: int) -> Places | Skip:
    """Where a message is. One with copies (CC, BCC) in other queues cannot be recalled: entity 0 is never found."""
    if published.refused:
        return Skip("refused: the queue is full", failed=True)
    return [(entity_id if queue == name else 0, number) for queue, number in published.queues]
