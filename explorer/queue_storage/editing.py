"""Edits of the messages of storage queues: their texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from broker_core import queue_storage
from broker_core.common.types import Actor, EntityAddress
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.reads import MessageRow
from explorer.frames.family import EditPages, MessageEdit
from explorer.frames.presenters import actor_name


class StorageEdits(EditPages):
    """How operators edit messages that are not leased."""

    def why_not(self, row: MessageRow) -> str:
        if row.display_state in (DisplayState.LEASED, DisplayState.EXTENDED):
            return f"Leased by {actor_name(row.locked_by) or 'a client'}. Release its lease first."
        return "The message has expired. Put a new one instead." if row.display_state is DisplayState.EXPIRED else ""

    def rows(self, data: QueryDict | None, properties: Mapping[str, tuple[str, Any]]) -> None:
        return None

    def edit(self, address: EntityAddress, number: int, change: MessageEdit, actor: Actor) -> Any:
        text = change.body or ""
        return queue_storage.edit(address, number, text=text, version=change.version, reason=change.reason, actor=actor)
