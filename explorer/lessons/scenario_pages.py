"""The saved scenarios of a person: import, start, download, delete."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Right
from explorer.frames.shell import act, notify_error, page

from . import saved_scenarios
from .pages import toml_file


class ImportForm(forms.Form):
    file = forms.FileField(max_length=200)


@page
@require_POST
def bring_in(request: HttpRequest) -> HttpResponse:
    """POST `file`: a scenario with a load, saved under its title."""
    request.actor.require(Right.BROWSE, "scenarios")
    form = ImportForm(request.POST, request.FILES)
    error: BrokerError | None = InvalidArgument("file", "is missing; choose a scenario file")
    if form.is_valid():
        file = form.cleaned_data["file"]

        def save() -> str:
            text = _text(file.read(saved_scenarios.LARGEST * 4 + 1))
            lesson, _ = saved_scenarios.read_load(text)
            return saved_scenarios.save(request.user, lesson.title[:80], text).name

        done = act(request, "save scenario", None, save, target=file.name[:80], says=lambda name: f"Imported {name}.")
        error = done.error
    if error:
        notify_error(request, error)
    return redirect("explorer:help")


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidArgument("file", "is not UTF-8; save it as UTF-8") from exc


@page
@require_POST
def start(request: HttpRequest, scenario_id: int) -> HttpResponse:
    saved = saved_scenarios.owned(request.user, scenario_id)
    done = act(request, "start scenario", None, lambda: saved_scenarios.start(request.user, saved), target=saved.name)
    if done.error:
        notify_error(request, done.error)
        return redirect("explorer:help")
    return HttpResponseRedirect(reverse("explorer:sandbox", args=(done.result.namespace,)))


@page
@require_POST
def delete(request: HttpRequest, scenario_id: int) -> HttpResponse:
    saved = saved_scenarios.owned(request.user, scenario_id)
    act(request, "delete scenario", None, saved.delete, target=saved.name, says=lambda _: f"Deleted {saved.name}.")
    return redirect("explorer:help")


@page
@require_GET
def export(request: HttpRequest, scenario_id: int) -> HttpResponse:
    saved = saved_scenarios.owned(request.user, scenario_id)
    return toml_file(saved.text, saved.name)
