"""Sends a message, or several copies of it, to a queue or a topic."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import reads, service_bus
from broker_core.common.errors import NotAllowed
from broker_core.common.types import EntityAddress, EntityKind, Family, HistoryLevel, Right
from broker_core.reads import EntityRow
from broker_core.service_bus.rules.amqp.properties import text_of
from explorer.frames import presenters
from explorer.frames.copying import original_of, text_to_copy
from explorer.frames.shell import Act, about, act, address_of, page, show, wants_fragment
from explorer.pages import message_templates
from explorer.pages.message_templates import Sender
from explorer.service_bus.forms.send import CONTENT_TYPES, SendForm

from .presenters import short_time_to_live_warning

_FIELDS = ("subject", "content_type", "correlation_id", "to", "reply_to", "reply_to_session_id", "partition_key")


@page
@require_http_methods(["GET", "POST"])
def send(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """The form. `?like=12` fills it from message 12 of this entity, or of `of`; `?template=3` from a template. A short
    time-to-live gets a warning."""
    address = address_of(namespace, path)
    entity = reads.entity(address, actor=request.actor)
    if entity.kind == EntityKind.SUBSCRIPTION:
        raise NotAllowed(f"'{entity.address}' is a subscription; send to its topic instead (SB-013).")
    sender = _sender(entity)
    if request.method != "POST":
        request.actor.require(Right.SEND, entity.address)
        initial = message_templates.initial(request, sender) or _initial_from(
            request, address_of(namespace, request.GET.get("of", path))
        )
        return _show(request, entity, SendForm(initial=initial))
    form = SendForm(request.POST, request.FILES)
    answer = message_templates.saving(
        request, sender, form, lambda form, done: _show(request, entity, form, done=done, status=done.status)
    )
    if answer:
        return answer
    if not form.is_valid():
        return _show(request, entity, form, status=400)
    warning = warning_for(form, entity)
    if warning and "anyway" not in request.POST:
        return _show(request, entity, form, warning=warning, status=422)
    done = act(request, "send", entity.address, lambda: _send(request, entity, form), target=_target(form), says=sent)
    if done.error:
        return _show(request, entity, form, done=done, status=done.status)
    url = _next_url(entity, form, done.result)
    return HttpResponse(headers={"HX-Redirect": url}) if wants_fragment(request) else HttpResponseRedirect(url)


def _send(request: HttpRequest, entity: EntityRow, form: SendForm) -> list[int | None]:
    return service_bus.send(entity.address, form.messages(entity.clock.now), actor=request.actor)


def _sender(entity: EntityRow) -> Sender:
    return Sender(Family.SERVICE_BUS, entity.address.namespace, entity.address.path)


def _show(
    request: HttpRequest, entity: EntityRow, form: SendForm, *, done: Act = Act(), warning: str | None = None, status: int = 200
) -> HttpResponse:
    context = {
        **about(request, entity),
        "form": form,
        "panel": message_templates.panel(request, _sender(entity)),
        "content_types": CONTENT_TYPES,
        "error": done.error,
        "warning": warning,
    }
    return show(request, "service_bus/send", context, fragment="service_bus/_send_form", status=status)


def warning_for(form: SendForm, entity: EntityRow) -> str | None:
    """A warning if the message will probably expire before it is received, or None. Without receivers, how long messages have
    waited says nothing: a person receives them, or nobody."""
    values = form.cleaned_data
    if values["time_to_live"] is None or values["scheduled"] or presenters.is_neglected(entity):
        return None
    return short_time_to_live_warning(values["time_to_live"], entity.oldest_active_age)


def sent(numbers: list[int | None]) -> str:
    """The result of sending in words. numbers: None for a duplicate that was dropped (SB-131)."""
    accepted = [n for n in numbers if n is not None]
    dropped = len(numbers) - len(accepted)
    if not accepted:
        return "Accepted and dropped as a duplicate: a message with this id was seen within the detection window."
    text = (
        f"Sent message {accepted[0]}."
        if len(accepted) == 1
        else f"Sent {len(accepted):,} messages, numbers {accepted[0]} to {accepted[-1]}."
    )
    return text + (f" Dropped {dropped:,} as duplicates." if dropped else "")


def _target(form: SendForm) -> str:
    message_id = form.cleaned_data["message_id"]
    return presenters.copies(form.cleaned_data["copies"]) + (f", id {message_id}" if message_id else "")


def _next_url(entity: EntityRow, form: SendForm, numbers: list[int | None]) -> str:
    """URL of the message's page if it will have one, which needs history if the message is not stored here; else of the list."""
    address = entity.address
    stays = entity.holds_messages and not entity.forward_to
    if len(numbers) == 1 and numbers[0] is not None and (stays or entity.history_level > HistoryLevel.OFF):
        return reverse("explorer:message", args=(address.namespace, address.path, numbers[0]))
    tab = "?tab=scheduled" if form.cleaned_data["scheduled"] else ""
    return reverse("explorer:entity", args=(address.namespace, address.path)) + tab


def _initial_from(request: HttpRequest, address: EntityAddress) -> dict:
    """Initial form values from an existing message: what its sender set, without what the broker added."""
    original = original_of(request, address)
    if original is None:
        return {}
    initial: dict[str, Any] = {name: original.properties.get(name, "") for name in _FIELDS}
    initial |= {"session_id": original.session_id, "time_to_live": original.time_to_live}
    initial["properties"] = [(name, kind, text_of(text) or "") for name, (kind, text) in original.application_properties.items()]
    initial["body"] = text_to_copy(request, address, original)
    return initial
