"""Whether this site has a demo, and whether it is paused."""

from __future__ import annotations

from django.conf import settings
from django.utils import timezone

from broker_core.common.types import Actor, Right
from explorer.models import Demonstration


def demo_state() -> Demonstration | None:
    """The demo's state; None if this site has no demo."""
    return Demonstration.objects.filter(pk=Demonstration.ONLY).first() if getattr(settings, "VITRINE_DEMO", False) else None


def set_paused(paused: bool, actor: Actor) -> None:
    """Raises NotAuthorized without Right.OPERATE."""
    actor.require(Right.OPERATE, "the demo")
    Demonstration.objects.filter(pk=Demonstration.ONLY).update(is_paused=paused, changed_at=timezone.now(), changed_by=str(actor))
