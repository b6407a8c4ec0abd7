"""Edits of the messages of Service Bus: their bodies and application properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from broker_core import service_bus
from broker_core.common.types import Actor, EntityAddress, SubQueue
from broker_core.reads import MessageRow
from broker_core.service_bus.rules.amqp.properties import decode_property, text_of
from broker_core.service_bus.rules.display_state import DisplayState
from explorer.frames.family import EditPages, MessageEdit
from explorer.frames.presenters import actor_name
from explorer.service_bus.forms.properties import PropertyRows


class ServiceBusEdits(EditPages):
    """How operators edit active, scheduled and deferred messages."""

    def why_not(self, row: MessageRow) -> str:
        if row.subqueue is not SubQueue.MAIN:
            return "Dead letters cannot be edited. Repair and resubmit the message instead."
        if row.display_state == DisplayState.LOCKED:
            return f"Locked by {actor_name(row.locked_by) or 'a receiver'}. Release its lock first."
        expired = (DisplayState.EXPIRED, DisplayState.DEFERRED_EXPIRED)
        return "The message has expired. Send a new one instead." if row.display_state in expired else ""

    def rows(self, data: QueryDict | None, properties: Mapping[str, tuple[str, Any]]) -> PropertyRows:
        kept = {(name, kind, text_of(text) or ""): decode_property(kind, text) for name, (kind, text) in properties.items()}
        return PropertyRows("property", "application property", data, list(kept), kept=kept)

    def edit(self, address: EntityAddress, number: int, change: MessageEdit, actor: Actor) -> Any:
        body = None if change.body is None else change.body.encode()
        return service_bus.edit(
            address, number, body=body, properties=change.properties, version=change.version, reason=change.reason, actor=actor
        )
