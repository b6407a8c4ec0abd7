"""Service Bus's part of the message page: actions on the message, and why it is not delivered."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, QueryDict

from broker_core import reads, service_bus
from broker_core.common.types import Actor, BodyKind, EntityAddress, MessageState, Right, SubQueue
from broker_core.reads import EntityRow, Explanation, MessageDetail, MessageRow, Tab
from broker_core.service_bus.rules.display_state import DisplayState
from explorer.bodies.display import Readable
from explorer.frames import releasing
from explorer.frames.actions import Action
from explorer.frames.family import MessagePage, MessageRecord
from explorer.frames.filtering import in_query
from explorer.frames.forms.queries import MESSAGE_TABS, EntityQuery
from explorer.frames.lists import neighbour
from explorer.frames.presenters import actor_name, property_name
from explorer.frames.shell import Act, act
from explorer.frames.values import Fact, StateLine
from explorer.service_bus.forms.receiver import SettleForm

from . import message_facts, settling
from .amqp_values import read_sections
from .entity import is_newest_first, list_of, resubmitted

DEAD_LETTER = "dead-letter-unlocked"


class ServiceBusMessagePage(MessagePage):
    """The page of a message of Service Bus."""

    def actions(self, detail: MessageDetail, actor: Actor) -> list[Action]:
        """The actions for a message in its state, each with the reason if it is not allowed."""
        row = detail.row
        no_right = "" if Right.OPERATE in actor.rights else "Acting on messages requires the operator role."
        why_locked = (
            ""
            if row.display_state != DisplayState.LOCKED
            else f"Locked by {actor_name(row.locked_by) or 'a receiver'}; available again when the lock ends."
        )
        if row.state == MessageState.SCHEDULED:
            return [Action("cancel", "Cancel message", "cross", no_right, "Removes the message before it is enqueued.")]
        if settling.is_held_by(row, actor):
            return []
        message_actions = []
        if row.display_state == DisplayState.LOCKED:
            message_actions.append(releasing.action(row, no_right))
        if row.subqueue == SubQueue.DEAD_LETTER:
            says = "Moves the message from the dead-letter queue to the end of the queue, with a new number."
            message_actions.append(Action("resubmit", "Resubmit", "back", no_right or why_locked, says))
        if row.state == MessageState.DEFERRED:
            says = "Locks the message so that you can complete, abandon or dead-letter it."
            message_actions.append(Action("receive-deferred", "Receive", "hand", no_right or why_locked, says))
        if row.subqueue == SubQueue.MAIN and row.lock_token is None and row.display_state != DisplayState.EXPIRED:
            says = "Moves the message to the dead-letter queue, with your reason. Its delivery count stays."
            message_actions.append(Action(DEAD_LETTER, "Dead-letter…", "dead", no_right, says, asks_reason=True, is_danger=True))
        return message_actions

    def carry_out(self, request: HttpRequest, address: EntityAddress, number: int, action: str) -> Act | None:
        """Carry out an action. None: Service Bus has no such action."""
        actor, target = request.actor, f"message {number}"
        match action:
            case "resubmit":
                dead = address.dead_letter
                return act(
                    request, action, dead, lambda: service_bus.resubmit(dead, [number], actor=actor),
                    target=target, says=lambda new: resubmitted(new, [number]),
                )  # fmt: skip
            case releasing.RELEASE:
                return releasing.release_message(request, address, number)
            case "cancel":
                return act(
                    request, "cancel scheduled", address, lambda: service_bus.cancel_scheduled(address, [number], actor=actor),
                    target=target, says=lambda _: f"Cancelled message {number}.",
                )  # fmt: skip
            case "receive-deferred":
                return act(
                    request, "receive deferred", address, lambda: service_bus.receive_deferred(address, [number], actor=actor),
                    target=target, says=lambda _: f"Received message {number}.",
                )  # fmt: skip
            case _ if action == DEAD_LETTER:
                reason = releasing.reason_of(request)
                return act(
                    request, "dead-letter", address,
                    lambda: service_bus.dead_letter_unlocked(address, [number], reason or None, actor=actor),
                    target=target,
                    says=lambda done: (
                        f"Dead-lettered message {number}: {reason}." if done
                        else f"Message {number} was not dead-lettered: it is locked, expired or no longer in the queue."
                    ),
                )  # fmt: skip
            case _ if action in settling.SETTLEMENTS:
                detail = reads.message(address, number, actor=actor)
                place = detail.row.address if detail else address
                return settling.settle(request, place, action, SettleForm(request.POST))
        return None

    def explain(self, address: EntityAddress, number: int, actor: Actor) -> Explanation | None:
        return service_bus.explain(address, number, actor=actor)

    def beside(self, query: QueryDict, record: MessageRecord, side: str, actor: Actor) -> int | None:
        """The next or previous message in the list that the query selects; None: none, or it selects no list of messages."""
        form = EntityQuery(query)
        if not form.is_valid():
            return None
        tab = form.cleaned_data["tab"] or str(_own_tab(record.row))
        if tab not in MESSAGE_TABS:
            return None
        if (narrowed := in_query(query, record.row)) is None:
            return None
        row = record.row
        due = row.scheduled_enqueue_at if tab == Tab.SCHEDULED and row and row.state is MessageState.SCHEDULED else None
        newest_first = is_newest_first(tab, form.cleaned_data["order"])
        read = partial(reads.list_messages, record.address, list_of(tab), filter=narrowed, by_number=due is None, actor=actor)
        return neighbour(side, record.number, newest_first=newest_first, read=read, due=due)

    def is_held_by(self, row: MessageRow, actor: Actor) -> bool:
        return settling.is_held_by(row, actor)

    def property_name(self, name: str) -> str:
        return property_name(name)

    def state_line(self, detail: MessageDetail, explanation: Explanation | None, entity: EntityRow, actor: Actor) -> StateLine:
        return message_facts.state_line(detail, explanation, entity, actor)

    def facts(self, record: MessageRecord) -> list[Fact]:
        return message_facts.facts(record)

    def read_sections(self, kind: BodyKind, body: bytes) -> bytes | Readable:
        return read_sections(kind, body)


_TAB_OF = {SubQueue.DEAD_LETTER: Tab.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER: Tab.TRANSFER_DEAD_LETTER}


def _own_tab(row: MessageRow | None) -> Tab:
    return _TAB_OF.get(row.subqueue, Tab.ALL) if row else Tab.ALL
