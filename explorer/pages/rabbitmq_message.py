"""What the message's page has of its own for RabbitMQ: why a message is not delivered. Looking changes nothing (RMQ-906)."""

from __future__ import annotations

from django.http import HttpRequest

from broker_core import reads
from broker_core.reads import Explanation, MessageDetail
from broker_core.semantics.explaining import Reason
from broker_core.semantics.types import Actor, EntityAddress
from explorer.pages.actions import Action
from explorer.pages.shell import Act

_AT_HAND = "It is ready: the queue delivers it when its turn comes and a consumer has room for it."


def actions(detail: MessageDetail, actor: Actor) -> list[Action]:
    """Nothing is done to one message alone: RabbitMQ's get takes what is at the head."""
    return []


def carry_out(request: HttpRequest, address: EntityAddress, number: int, action: str) -> Act | None:
    return None


def explain(address: EntityAddress, number: int, actor: Actor) -> Explanation | None:
    detail = reads.message(address, number, actor=actor)
    if detail is None:
        return None
    row = detail.row
    why_not = row.why_not_deliverable
    reason = Reason(row.standing, why_not or _AT_HAND, {}, row.deadline, is_obstacle=why_not is not None)
    return Explanation(row, (reason,), why_not is None, row.read_at)
