"""Messages that ended, as long as their namespace keeps them (docs/design.md D20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import TERMINAL_KINDS, Actor, BodyKind, EntityAddress, Right
from broker_core.runtime.keeping import LONGEST
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from .messages import BODY_BYTES, Body
from .shared import pairs, require
from .timelines import Event, timeline

SLOTS = range(34)  # message_tables.sql


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """What is kept of a message that ended; its events say the rest. until: it can be read until then, by the namespace's clock,
    and for at most seven days of real time. The properties, body_kind, body_size and encoded are those of a MessageDetail."""

    address: EntityAddress
    entity_id: int
    sequence_number: int
    until: datetime
    slot: int
    removed_at: datetime
    broker_properties: Mapping[str, str]
    application_properties: Mapping[str, tuple[str, str | None]]
    body_kind: BodyKind
    body_size: int
    encoded: bytes | None


@use_case(namespace=WHOLE_DATABASE)
def kept_message(
    entity_id: int, sequence_number: int, *, events: Sequence[Event] | None = None, actor: Actor | None = None
) -> Steps[KeptMessage | None]:
    """A message that ended and is kept; None: it is not, or no longer. events: its timeline, if the caller has it."""
    require(actor, Right.BROWSE, f"entity {entity_id}")
    if events is None:
        events = yield from timeline.steps(entity_id, sequence_number, actor=actor)
    own = [event for event in events if (event.entity_id, event.sequence_number) == (entity_id, sequence_number)]
    end = next((event for event in reversed(own) if event.kind in TERMINAL_KINDS), None)
    if end is None or datetime.now(UTC) - end.recorded_at > LONGEST:  # all slots would be searched in vain
        return None
    entities = yield call("kept_period", entity_id=entity_id)
    if not entities:
        return None
    [entity] = entities
    key = {"entity_id": entity_id, "sequence_number": sequence_number, "removed_at": end.recorded_at, "ended_at": end.at}
    for slots in (_likely_slots(end.recorded_at, entity.keep_messages_for), list(SLOTS)):
        rows = yield call("read_kept_message", slots=slots, **key)
        if rows:
            [row] = rows
            return KeptMessage(
                EntityAddress(entity.namespace, entity.path), entity_id, sequence_number, end.at + row.kept_for, row.slot,
                end.recorded_at, row.properties or {}, pairs(row.application_properties), BodyKind(row.body_kind), row.body_size,
                row.encoded,
            )  # fmt: skip
    return None


@use_case(namespace=WHOLE_DATABASE)
def kept_body(
    message: KeptMessage, *, offset: int = 0, length: int = BODY_BYTES, actor: Actor | None = None
) -> Steps[Body | None]:
    """As `body`, of a kept message; None: it is kept no longer. Raises NotAuthorized without Right.SEE_BODIES."""
    require(actor, Right.BROWSE | Right.SEE_BODIES, message.address)
    if offset < 0 or length < 0:
        raise InvalidArgument("range", "offset and length must not be negative")
    rows = yield call(
        "read_kept_body", slots=[message.slot], removed_at=message.removed_at, entity_id=message.entity_id,
        sequence_number=message.sequence_number, offset=offset, length=length, until=message.until,
    )  # fmt: skip
    if not rows:
        return None
    [found] = rows
    return Body(bytes(found.content), offset, found.total, BodyKind(found.body_kind), found.content_type)


@use_case(namespace=WHOLE_DATABASE)
def kept_bytes(*, actor: Actor | None = None) -> Steps[int]:
    """How many bytes on disk all kept messages of a database take."""
    require(actor, Right.BROWSE, "kept messages")
    (row,) = yield call("kept_bytes")
    return row.bytes


@use_case(namespace="namespace")
def kept_in(namespace: str, *, actor: Actor | None = None) -> Steps[tuple[int, int]]:
    """How many messages of a namespace are kept, and their size in bytes. Reads all kept messages of the database."""
    require(actor, Right.BROWSE, namespace)
    (row,) = yield call("kept_in_namespace", namespace=namespace)
    return row.messages, row.bytes


def _likely_slots(removed_at: datetime, period: timedelta | None) -> list[int]:
    """The slots of what ended then, if the setting was the same: by a process that read the slot some seconds before, and with a
    clock that is real or not."""
    likely = set()
    for kept_for in {period or timedelta(hours=1), LONGEST}:
        for late in (0, 10):
            ends = (removed_at + kept_for).timestamp() - late
            likely.add(int(ends // 1800) % 16 if kept_for <= timedelta(hours=6) else 16 + int(ends // 43200) % 18)
    return sorted(likely)
