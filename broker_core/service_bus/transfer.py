"""Service Bus in exports and imports: settings of the three kinds, topics before their subscriptions. Locks are not exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.common import amqp_message
from broker_core.common.amqp_sections import AmqpSections
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import BodyKind, EntityAddress, EntityKind, MessageState, SubQueue, Tier
from broker_core.runtime.configured_limits import limits
from broker_core.service_bus.entities.kinds import as_parameters, from_row
from broker_core.service_bus.rules.entity_settings import (
    DURATIONS,
    check_path,
    check_subscription_name,
    new_settings,
    values_of,
)
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.transfer import part
from broker_core.transfer.lines import Fields, duration, parse_duration
from broker_core.transfer.part import Given


def lines_before(namespace_id: int) -> Steps:
    yield from ()
    return []


def lines_after(namespace_id: int, entity_ids: list[int]) -> Steps:
    yield from ()
    return []


def described(row: Any) -> dict[str, Any]:
    """The settings of the entity's kind."""
    settings = {name: _setting(value) for name, value in values_of(from_row(row).settings).items()}
    return {"settings": {name: value for name, value in settings.items() if value is not None}}


def message_fields(row: Any) -> dict[str, Any]:
    return {}


def _setting(value: Any) -> Any:
    return duration(value) if hasattr(value, "total_seconds") else value


class Reader(part.Reader):
    """Keeps the topics read so far, and the limits of the tier."""

    def __init__(self, namespace_id: int, name: str, tier: Tier):
        super().__init__(namespace_id, name, tier)
        self.limits = limits(tier)
        self.topics: dict[str, int] = {}

    def entity(self, address: EntityAddress, content: Fields) -> Given:
        kind = content.member("kind", EntityKind)
        topic_id = self._topic_of(address, kind, content)
        given = content.mapping("settings")
        read = {n: parse_duration(v, f"{content.where}.settings.{n}") if n in DURATIONS else v for n, v in given.items()}
        settings = new_settings(kind, {"default_message_time_to_live": None, "auto_delete_on_idle": None, **read}, self.limits)
        return Given(kind, as_parameters(settings), topic_id, getattr(settings, "requires_session", False))

    def entity_stored(self, address: EntityAddress, given: Given, entity_id: int) -> None:
        if given.kind is EntityKind.TOPIC:
            self.topics[address.path.lower()] = entity_id

    def check_encoded(self, row: Mapping[str, Any], content: Fields) -> None:
        try:
            amqp_message.check_body(BodyKind(row["body_kind"]), row["body"])
        except InvalidArgument as exc:
            content.refuse("body", exc.problem)
        try:
            AmqpSections.parse(row["encoded"] or b"")
        except InvalidArgument as exc:
            content.refuse("encoded", exc.problem)

    def check_message(self, row: Mapping[str, Any], given: Given, content: Fields) -> None:
        if row["subqueue"] != SubQueue.MAIN:
            return
        if given.kind is EntityKind.TOPIC and row["state"] != MessageState.SCHEDULED:
            content.refuse("state", "must be scheduled: a topic stores only scheduled messages")
        if given.requires_session and row["session_id"] is None:
            content.refuse("session_id", "is required: the entity requires sessions")

    def entity_end(self, entity_id: int) -> Steps:
        yield call("import_finish_service_bus", entity_id=entity_id)

    def _topic_of(self, address: EntityAddress, kind: EntityKind, content: Fields) -> int | None:
        if kind is not EntityKind.QUEUE and not self.limits.topics:
            content.refuse("kind", f"a namespace of the tier {self.limits.tier} has no topics")
        if kind is not EntityKind.SUBSCRIPTION:
            check_path(address.path)
            return None
        topic = address.topic
        if topic is None or topic.path.lower() not in self.topics:
            content.refuse("path", f"'{address.path}' refers to a topic that does not precede it")
        check_subscription_name(address.name)
        return self.topics[topic.path.lower()]
