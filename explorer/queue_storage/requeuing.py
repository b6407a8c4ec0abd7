"""Requeues all messages of a poison queue, or one group of them."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse

from broker_core import queue_storage, reads
from broker_core.common.types import EntityAddress
from broker_core.queue_storage.rules.names import REQUEUED, SPENT, requeued_to
from broker_core.reads import DeadLetterGroup
from explorer.shared.resubmit_all import Resubmission, resubmit_all
from explorer.shared.shell import BadQuery, address_of

from .lists import origin_address
from .queue import requeued

_REASONS = {SPENT: "max dequeue count reached", REQUEUED: "requeued by an operator", None: "put directly"}


def poison(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address
    if origin_address(address, request.actor) is None:
        raise BadQuery([("queue", f"{address.path} is not a poison queue.")])
    plan = Resubmission(
        address, "Requeue", "poison messages", "",
        resubmit=lambda numbers: queue_storage.requeue_poison(address, numbers, actor=request.actor),
        because=lambda group: _REASONS.get(group.reason, group.reason or ""),
        goes_to=partial(_requeued_to, address),
        says=requeued,
    )  # fmt: skip
    return resubmit_all(request, entity, plan)


def _requeued_to(address: EntityAddress, group: DeadLetterGroup) -> str:
    return requeued_to(address.path, {"path": group.origin, "reason": group.reason} if group.origin else None) or ""
