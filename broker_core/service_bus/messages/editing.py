"""Edits of waiting messages (SB-079)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker_core.common.errors import MessageTooLarge, NotAllowed, QuotaExceeded
from broker_core.common.types import Actor, BodyKind, EntityAddress, SubQueue
from broker_core.runtime import editing
from broker_core.runtime.editing import Content, Edit
from broker_core.service_bus.rules import messages as service_bus
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .rows import sent_message
from .shared import entity_status


@use_case
def edit(
    address: EntityAddress,
    sequence_number: int,
    *,
    body: bytes | None = None,
    properties: Mapping[str, Any] | None = None,
    version: str | None = None,
    reason: str | None = None,
    actor: Actor | None = None,
) -> Steps[str]:
    """Replace the body, all application properties, or both, of an active, scheduled or deferred message that nobody holds
    (SB-079). What is None stays; so do its number, position, times, session and delivery count. Returns its new version.

    version: of the message as it was read (reads.message); an edit of one that has changed since is refused.
    Raises MessageHeld, MessageChanged, MessageNotFound; NotAllowed for a dead letter and an expired message; as a send does
    InvalidArgument, MessageTooLarge (SB-007), QuotaExceeded (SB-012), StorageFull.
    """
    actor = editing.authorized(address, actor)
    if address.subqueue is not SubQueue.MAIN:
        raise NotAllowed(f"Messages of {address} cannot be edited. Repair and resubmit them instead.")
    if body is not None:
        service_bus.check_body(body)
        body = bytes(body)
    edit = editing.checked(sequence_number, body, _as_json(properties), version, reason, actor)
    entity_id, status = yield from entity_status(address)
    if address.topic is not None:  # whose limits hold for its copies
        _, status = yield from entity_status(address.topic)

    def content_of(row: Any) -> Steps[Content]:
        size = yield from _size_of(entity_id, row, edit, properties)
        if size > max(status.largest, row.size):
            raise MessageTooLarge("message", size, status.largest)
        return Content(size, edit.properties)

    def full(most: int) -> QuotaExceeded:
        return QuotaExceeded(str(address), most)

    return (yield from editing.apply(address, entity_id, "edit", edit, hold="lock", content_of=content_of, full=full))


def _as_json(properties: Mapping[str, Any] | None) -> str | None:
    return None if properties is None else service_bus.properties_json(properties) or "{}"


def _size_of(entity_id: int, row: Any, edit: Edit, properties: Mapping[str, Any] | None) -> Steps[int]:
    """The size of the message with the edit, encoded in AMQP (SB-007)."""
    numbers = [edit.number]
    rows = yield call("read_contents", entity_id=entity_id, subqueue=SubQueue.MAIN, numbers=numbers, max_bytes=1)
    if not rows:  # it has left meanwhile, which the statement finds too
        return row.size
    message = sent_message(rows[0])
    if edit.body is not None:
        message = replace(message, body=edit.body, body_kind=BodyKind.DATA)
    if properties is not None:
        message = replace(message, properties=properties)
    return service_bus.prepare(message).size
