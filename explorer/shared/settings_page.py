"""The frames of the pages on which an entity's settings are changed, with a preview of the effect, and on which it is deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from broker_core.common.errors import BrokerError, PreviewOutdated
from broker_core.common.types import EntityAddress
from broker_core.reads import EntityRow
from broker_core.runtime.previews import Preview

from .forms.typed_name import TypedNameForm
from .presenters import effects_text, plural
from .shell import Act, act, show_form


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """What a family gives to the page that changes an entity's settings.

    template: of the page. names: of the settings, as the family's documentation writes them.
    stored:   the value of a setting now. in_words: (setting, value) -> text.
    preview:  (changes) -> what they would do. change: (changes, token of the preview shown or None) -> what they did.
    """

    template: str
    names: Mapping[str, str]
    stored: Callable[[str], Any]
    in_words: Callable[[str, Any], str]
    preview: Callable[[Mapping[str, Any]], Preview]
    change: Callable[[Mapping[str, Any], str | None], Preview]


def change_settings(
    request: HttpRequest, entity: EntityRow, form: Form, typed: Callable[[], Mapping[str, Any]], page: SettingsPage
) -> HttpResponse:
    """GET shows the form, POST with `preview` what the changes would do; another POST makes them. typed: the form's values."""
    address = entity.address
    context: dict[str, Any] = {"entity": entity, "address": address, "clock": entity.clock}
    if not form.is_valid():
        return show_form(request, page.template, form, **context)
    changes = {name: value for name, value in typed().items() if value != page.stored(name)}
    if "preview" in request.POST:
        return show_form(request, page.template, form, **context | _previewed(page, changes))
    done = act(
        request, "change settings", address, lambda: page.change(changes, request.POST.get("token") or None),
        target=", ".join(page.names[name] for name in changes), says=lambda told: changed(page, changes, told),
    )  # fmt: skip
    if done.error:
        anew = _previewed(page, changes) if isinstance(done.error, PreviewOutdated) else {}
        return show_form(request, page.template, form, **context | anew | {"done": anew.get("done", done)})
    return to_entity(address)


def _previewed(page: SettingsPage, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What the changes would do now, for the page; or why they are refused."""
    try:
        return {"previewed": page.preview(changes)}
    except BrokerError as exc:
        return {"done": Act(error=exc)}


def changed(page: SettingsPage, changes: Mapping[str, Any], told: Preview) -> str:
    """What was changed, from what to what, and what that does to messages: also what the audit keeps."""
    if not changes:
        return "Nothing was changed."
    parts = [
        f"{page.names[name]} from {page.in_words(name, page.stored(name))} to {page.in_words(name, value)}"
        for name, value in changes.items()
    ]
    return f"Changed {', '.join(parts)}. {effects_text(told.effects)}"


def delete_entity(
    request: HttpRequest, entity: EntityRow, *, typed: str, count: int, delete: Callable[[], Any], after: str
) -> HttpResponse:
    """GET asks for the name to be typed; POST deletes. typed: the name. count: messages deleted with it. after: the next page."""
    address = entity.address
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=typed)
    context: dict[str, Any] = {"address": address, "entity": entity, "clock": entity.clock, "count": count}
    if not form.is_valid():
        return show_form(request, "entity_delete", form, **context)
    done = act(
        request, f"delete {entity.kind}", address, delete,
        says=lambda _: f"Deleted the {entity.kind} {address} with {plural(count, 'message')}.",
    )  # fmt: skip
    return show_form(request, "entity_delete", form, done=done, **context) if done.error else HttpResponseRedirect(after)


def to_entity(address: EntityAddress) -> HttpResponse:
    return HttpResponseRedirect(reverse("explorer:entity", args=(address.namespace, address.path)))
