"""Queue Storage's part of the message page: an operator's actions, and why the message is not visible."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, QueryDict

from broker_core import queue_storage, reads
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.queue_storage.rules.names import requeued_to
from broker_core.reads import EntityRow, Explanation, MessageDetail, MessageRow, Tab
from explorer.frames import releasing
from explorer.frames.actions import Action
from explorer.frames.family import MessagePage, MessageRecord
from explorer.frames.filtering import in_query
from explorer.frames.forms.queries import HISTORY, RECEIVERS, StorageQuery
from explorer.frames.lists import neighbour
from explorer.frames.presenters import actor_name, property_name
from explorer.frames.shell import Act, act
from explorer.frames.values import Fact, StateLine

from . import lists, message_facts
from .queue import requeued
from .receiver import by_receipt


class StorageMessagePage(MessagePage):
    """The page of a message of a storage queue."""

    def actions(self, detail: MessageDetail, actor: Actor) -> list[Action]:
        """The actions that need no pop receipt, each with the reason if it is not allowed."""
        row, message_actions = detail.row, []
        no_right = "" if Right.OPERATE in actor.rights else "Acting on messages requires the operator role."
        if row.display_state is DisplayState.EXPIRED:
            return []
        if row.display_state is not DisplayState.VISIBLE:
            message_actions.append(releasing.action(row, no_right))
        if requeued_to(row.address.path, detail.resubmitted_from):
            leased = row.display_state in (DisplayState.LEASED, DisplayState.EXTENDED)
            why_leased = f"Leased by {actor_name(row.locked_by) or 'a client'}; release it first." if leased else ""
            says = "Moves the message back to the queue it came from, as a new message that refers to this one."
            message_actions.append(Action("requeue", "Requeue", "back", no_right or why_leased, says))
        return message_actions

    def carry_out(self, request: HttpRequest, address: EntityAddress, number: int, action: str) -> Act | None:
        """Carry out an action. None: Queue Storage has no such action."""
        actor, target = request.actor, f"message {number}"
        match action:
            case releasing.RELEASE:
                return releasing.release_message(request, address, number)
            case "requeue":
                done = act(
                    request, action, address, lambda: queue_storage.requeue_poison(address, [number], actor=actor),
                    target=target, says=lambda moved: requeued(moved, [number]),
                )  # fmt: skip
                return Act(error=done.error)  # the new message is in another queue: this message's page links to it
            case "update" | "delete":
                return by_receipt(request, address)
        return None

    def explain(self, address: EntityAddress, number: int, actor: Actor) -> Explanation | None:
        return queue_storage.explain(address, number, actor=actor)

    def is_held_by(self, row: MessageRow, actor: Actor) -> bool:
        """Whether the actor has the current pop receipt, which is valid with or without a lease (QS-051)."""
        return row.locked_by == actor.holder_label and row.display_state is not DisplayState.EXPIRED

    def beside(self, query: QueryDict, record: MessageRecord, side: str, actor: Actor) -> int | None:
        """The next or previous message in the list that the query selects; None: none, or it selects no list of messages."""
        form = StorageQuery(query, tabs=lists.SLUGS)
        if not form.is_valid() or form.cleaned_data["tab"] in (HISTORY, RECEIVERS):
            return None
        if (narrowed := in_query(query, record.row, lists.holds_of(form.cleaned_data["tab"]))) is None:
            return None
        newest_first = form.cleaned_data["order"] != "oldest"
        read = partial(reads.list_messages, record.address, Tab.ACTIVE, filter=narrowed, actor=actor)
        return neighbour(side, record.number, newest_first=newest_first, read=read)

    def property_name(self, name: str) -> str:
        return property_name(name)

    def state_line(self, detail: MessageDetail, explanation: Explanation | None, entity: EntityRow, actor: Actor) -> StateLine:
        return message_facts.state_line(detail, explanation, entity, actor)

    def facts(self, record: MessageRecord) -> list[Fact]:
        return message_facts.facts(record)
