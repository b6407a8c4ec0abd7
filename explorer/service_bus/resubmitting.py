"""Resubmits all dead letters of an entity, or one group of them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from broker_core import reads, service_bus
from explorer.shared.resubmit_all import Resubmission, resubmit_all
from explorer.shared.shell import address_of

from .entity import resubmitted


def dead_letters(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address.dead_letter
    plan = Resubmission(
        address, "Resubmit", "dead letters", "?tab=dead-letter",
        resubmit=lambda numbers: service_bus.resubmit(address, numbers, actor=request.actor),
        because=lambda group: group.reason or "no reason given",
        goes_to=lambda group: entity.address.name,
        says=resubmitted,
    )  # fmt: skip
    return resubmit_all(request, entity, plan)
