"""The button that pauses and resumes the demo. The runner reads the row every second."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from explorer.models import Demonstration
from explorer.shared.shell import act, notify_error, page

_MESSAGES = {
    "pause": "Demo paused. Waiting messages stay; TTLs, locks and schedules keep running.",
    "resume": "Demo running.",
}


@page
@require_POST
def demonstration(request: HttpRequest) -> HttpResponse:
    """POST `do`: pause or resume. Idempotent."""
    action = request.POST.get("do", "")
    if action not in _MESSAGES:
        raise InvalidArgument("do", "must be pause or resume")
    done = act(
        request, f"{action} demonstration", None, says=lambda _: _MESSAGES[action],
        call=lambda: set_paused(action == "pause", request.actor),
    )  # fmt: skip
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(reverse("explorer:entities"))


def set_paused(paused: bool, actor: Actor) -> None:
    """Raises NotAuthorized without Right.OPERATE."""
    actor.require(Right.OPERATE, "the demo")
    Demonstration.objects.filter(pk=Demonstration.ONLY).update(is_paused=paused, changed_at=timezone.now(), changed_by=str(actor))


def shown() -> Demonstration | None:
    """The demo's state; None if this site has no demo."""
    return Demonstration.objects.filter(pk=Demonstration.ONLY).first() if getattr(settings, "VITRINE_DEMO", False) else None
