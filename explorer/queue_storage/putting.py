"""Puts a message, or several copies of it, into a storage queue."""

from __future__ import annotations

from datetime import datetime

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from broker_core import queue_storage, reads
from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, Family, Right
from broker_core.reads import EntityRow
from explorer.frames import presenters
from explorer.frames.copying import original_of, text_to_copy
from explorer.frames.forms.placeholders import filler
from explorer.frames.shell import Act, about, act, address_of, show, wants_fragment
from explorer.pages import message_templates
from explorer.pages.message_templates import Sender

from .forms import PutForm


def put(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """The form. `?like=12` fills it from message 12 of the queue, `?template=3` from a template."""
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    sender = _sender(entity)
    if request.method != "POST":
        request.actor.require(Right.SEND, entity.address)
        initial = message_templates.initial(request, sender) or _initial_from(request, entity.address)
        return _show(request, entity, PutForm(initial=initial or None))
    form = PutForm(request.POST)
    answer = message_templates.saving(
        request, sender, form, lambda form, done: _show(request, entity, form, done=done, status=done.status)
    )
    if answer:
        return answer
    if not form.is_valid():
        return _show(request, entity, form, status=400)
    values = form.cleaned_data
    done = act(
        request, "put", entity.address,
        lambda: queue_storage.put_all(
            entity.address, _texts(values, entity.clock.now), visibility_timeout=values["visibilitytimeout"],
            time_to_live=values["messagettl"], actor=request.actor,
        ),
        target=presenters.copies(values["copies"]), says=put_text,
    )  # fmt: skip
    if done.error:
        return _show(request, entity, form, done=done, status=done.status)
    url = _next_url(entity.address, done.result)
    return HttpResponse(headers={"HX-Redirect": url}) if wants_fragment(request) else HttpResponseRedirect(url)


def _texts(values: dict, now: datetime) -> list[str]:
    return [filler(n, now, fills=values["fill"])(values["text"]) for n in range(1, values["copies"] + 1)]


def put_text(done: list[queue_storage.PutMessage]) -> str:
    first, last = done[0], done[-1]
    subject = (
        f"message {first.sequence_number}"
        if first is last
        else f"{len(done):,} messages, {first.sequence_number} to {last.sequence_number}"
    )
    delay = first.visible_at - first.inserted_at
    return f"Put {subject}{f', visible in {human(delay)}' if delay else ''}."


def _next_url(address: EntityAddress, done: list[queue_storage.PutMessage]) -> str:
    if len(done) == 1:
        return reverse("explorer:message", args=(address.namespace, address.path, done[0].sequence_number))
    tab = "?tab=delayed" if done[0].visible_at > done[0].inserted_at else ""
    return reverse("explorer:entity", args=(address.namespace, address.path)) + tab


def _initial_from(request: HttpRequest, address: EntityAddress) -> dict:
    original = original_of(request, address)
    if original is None:
        return {}
    initial = {"messagettl": original.time_to_live or "never", "visibilitytimeout": "0", "copies": 1}
    initial["text"] = text_to_copy(request, address, original)
    return initial


def _sender(entity: EntityRow) -> Sender:
    return Sender(Family.QUEUE_STORAGE, entity.address.namespace, entity.address.path, body="text")


def _show(request: HttpRequest, entity: EntityRow, form: PutForm, *, done: Act = Act(), status: int = 200) -> HttpResponse:
    if isinstance(done.error, InvalidArgument) and done.error.name in form.fields:
        form.add_error(done.error.name, done.error.problem)
    context = {
        **about(request, entity), "form": form,
        "panel": message_templates.panel(request, _sender(entity)),
        "error": done.error,
    }  # fmt: skip
    return show(request, "queue_storage/put", context, fragment="queue_storage/_put_form", status=status)
