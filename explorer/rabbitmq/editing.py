"""Edits of the messages of RabbitMQ queues: their bodies and the headers of their publishers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from broker_core import rabbitmq
from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.deaths import is_own
from broker_core.rabbitmq.rules.display_state import DisplayState
from broker_core.reads import MessageRow
from explorer.frames.family import EditPages, MessageEdit
from explorer.frames.presenters import actor_name
from explorer.rabbitmq.forms.table import TableRows, rows_of


class RabbitEdits(EditPages):
    """How operators edit ready messages."""

    def why_not(self, row: MessageRow) -> str:
        if row.display_state is DisplayState.UNACKED:
            return f"Unacknowledged by {actor_name(row.locked_by) or 'a consumer'}. Release its delivery first."
        return "The message has expired. Publish a new one instead." if row.display_state is DisplayState.EXPIRED else ""

    def rows(self, data: QueryDict | None, properties: Mapping[str, tuple[str, Any]]) -> TableRows:
        stored = {name: list(value) for name, value in properties.items() if not is_own(name)}
        headers = table.decode(stored)
        rows = rows_of({name: table.plain(value) for name, value in headers.items()})
        return TableRows("header", "header", data, rows, kept=dict(zip(rows, headers.values(), strict=True)))

    def edit(self, address: EntityAddress, number: int, change: MessageEdit, actor: Actor) -> Any:
        body = None if change.body is None else change.body.encode()
        return rabbitmq.edit(
            address, number, body=body, headers=change.properties, version=change.version, reason=change.reason, actor=actor
        )
