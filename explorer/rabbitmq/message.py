"""RabbitMQ's part of the message page: why a message is not delivered, and moving it back.

Showing the page changes nothing (RMQ-906).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.http import HttpRequest, QueryDict

from broker_core import rabbitmq, reads
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq import Back
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.moving import Why
from broker_core.rabbitmq.rules.deaths import BEFORE_MOVE, X_DEATH
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.reads import EntityRow, Explanation, MessageDetail, Tab
from explorer.frames import releasing
from explorer.frames.actions import Action
from explorer.frames.family import MessagePage, MessageRecord
from explorer.frames.filtering import in_query
from explorer.frames.lists import neighbour
from explorer.frames.shell import Act, act
from explorer.frames.values import Fact, StateLine
from explorer.operations.presenters import report, undo_url
from explorer.rabbitmq.forms.move import in_words
from explorer.rabbitmq.forms.topology import QueueQuery

from . import message_facts, presenters
from .moving import move_back
from .queue import HOLDS


class RabbitMessagePage(MessagePage):
    """The page of a message of a RabbitMQ queue."""

    def actions(self, detail: MessageDetail, actor: Actor) -> list[Action]:
        """Release an unacknowledged message; and "move back", if it records where it died."""
        no_right = "" if Right.OPERATE in actor.rights else "Acting on messages requires the operator role."
        message_actions = [releasing.action(detail.row, no_right)] if detail.row.owner_id is not None else []
        return message_actions + _move_back(detail, actor, no_right)

    def carry_out(self, request: HttpRequest, address: EntityAddress, number: int, action: str) -> Act | None:
        """Carry out an action. None: RabbitMQ has no such action."""
        if action == releasing.RELEASE:
            return releasing.release_message(request, address, number)
        if action != "move-back":
            return None
        done = act(
            request, "move", address, lambda: move_back(address, number, request.actor),
            target=f"message {number} {in_words(Back(), 1)}", says=report,
            undo=lambda operation: undo_url(operation, request.path),
        )  # fmt: skip
        return Act(error=done.error)  # the new message is in another queue: this message's page links to it

    def explain(self, address: EntityAddress, number: int, actor: Actor) -> Explanation | None:
        return browsing.explain(address, number, actor=actor)

    def anchors(self, headers: Mapping[str, Any]) -> dict[str, str]:
        """The headers that have their own section on the page, with the section's id."""
        sections = {X_DEATH: "deaths", BEFORE_MOVE: "deaths-before"}
        return {name: section for name, section in sections.items() if presenters.deaths(headers.get(name))}

    def beside(self, query: QueryDict, record: MessageRecord, side: str, actor: Actor) -> int | None:
        """The next or previous message in the list that the query selects; None: none, or it selects no list of messages."""
        form = QueueQuery(query)
        if not form.is_valid() or (tab := form.cleaned_data["tab"] or "messages") not in HOLDS:
            return None
        if (narrowed := in_query(query, record.row, HOLDS[tab])) is None:
            return None
        newest_first = form.cleaned_data["order"] == "newest"
        read = partial(reads.list_messages, record.address, Tab.ACTIVE, filter=narrowed, actor=actor)
        return neighbour(side, record.number, newest_first=newest_first, read=read)

    def state_line(self, detail: MessageDetail, explanation: Explanation | None, entity: EntityRow, actor: Actor) -> StateLine:
        return message_facts.state_line(detail, explanation, entity, actor)

    def facts(self, record: MessageRecord) -> list[Fact]:
        return message_facts.facts(record)

    def property_text(self, name: str, value: Any) -> tuple[str, str]:
        return message_facts.property_text(name, value)


def _move_back(detail: MessageDetail, actor: Actor, no_right: str) -> list[Action]:
    """There is no action for a ready message: a get takes the head of the queue."""
    address, number = detail.row.address, detail.row.sequence_number
    try:
        would = rabbitmq.preview_move(address, Back(), [number], actor=actor)
    except AmqpError:  # an exclusive queue can be used only by its connection
        return []
    [left] = would.left or [None]
    if left is not None and left.why in (Why.NEVER_DIED, Why.DIED_IN_THIS_QUEUE, Why.GONE):
        return []
    why_not = "" if left is None else f"Cannot be moved: {left}."
    where = ", ".join(would.arriving) or "its original queue"
    says = f"Moves the message back to {where}, where it died last, as a new message that refers to this one."
    return [Action("move-back", f"Move back to {where}", "back", no_right or why_not, says)]
