"""Shared pages that change an entity's settings, with a preview of the effect, and that delete an entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.forms import Field, Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from broker_core import operations
from broker_core.common.errors import BrokerError, InvalidArgument, PreviewOutdated
from broker_core.common.types import EntityAddress
from broker_core.reads import EntityRow
from broker_core.runtime.previews import Preview

from .forms.typed_name import TypedNameForm
from .presenters import effects_text, plural
from .shell import Act, act, show_form


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """What a family provides for the page that changes an entity's settings.

    template: of the page. names: of the settings, from the family's documentation.
    stored:   (setting) -> its current value. in_words: (setting, value) -> text.
    preview:  (changes) -> their effect. change: (changes, token of the shown preview or None) -> their effect.
    """

    template: str
    names: Mapping[str, str]
    stored: Callable[[str], Any]
    in_words: Callable[[str, Any], str]
    preview: Callable[[Mapping[str, Any]], Preview]
    change: Callable[[Mapping[str, Any], str | None], Preview]


def change_settings(
    request: HttpRequest,
    entity: EntityRow,
    form: Form,
    typed: Callable[[], Mapping[str, Any]],
    page: SettingsPage,
    restored: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """GET shows the form, POST with `preview` the effect of the changes; another POST saves them. typed: the form's values.

    restored: earlier values, which the form already shows: GET then shows the effect of restoring them.
    """
    address = entity.address
    context: dict[str, Any] = {"entity": entity, "address": address, "clock": entity.clock}
    if restored is not None and not form.is_bound:
        return show_form(request, page.template, form, **context | _previewed(page, _changes(page, restored)))
    if not form.is_valid():
        return show_form(request, page.template, form, **context)
    changes = _changes(page, typed())
    if "preview" in request.POST:
        return show_form(request, page.template, form, **context | _previewed(page, changes))
    done = act(
        request, "change settings", address, lambda: page.change(changes, request.POST.get("token") or None),
        target=", ".join(page.names[name] for name in changes), says=lambda effect: changed(page, changes, effect),
    )  # fmt: skip
    if done.error:
        anew = _previewed(page, changes) if isinstance(done.error, PreviewOutdated) else {}
        return show_form(request, page.template, form, **context | anew | {"done": anew.get("done", done)})
    return to_entity(address)


def proposed(request: HttpRequest, fields: Mapping[str, Field]) -> dict[str, Any] | None:
    """The values of settings in the query, as analyses propose them; None: there are none. They are shown like restored ones.
    Raises InvalidArgument."""
    values = {}
    for name in fields.keys() & request.GET.keys():
        try:
            values[name] = fields[name].clean(request.GET[name])
        except ValidationError as exc:
            raise InvalidArgument(name, " ".join(exc.messages)) from exc
    return values or None


def _changes(page: SettingsPage, new_values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in new_values.items() if value != page.stored(name)}


def _previewed(page: SettingsPage, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Context with the effect of the changes, or the error if they are refused."""
    try:
        return {"previewed": page.preview(changes)}
    except BrokerError as exc:
        return {"done": Act(error=exc)}


def changed(page: SettingsPage, changes: Mapping[str, Any], effect: Preview) -> str:
    """What was changed, and the effect on messages, in words for the notice and the audit."""
    if not changes:
        return "Nothing was changed."
    parts = [
        f"{page.names[name]} from {page.in_words(name, page.stored(name))} to {page.in_words(name, value)}"
        for name, value in changes.items()
    ]
    return f"Changed {', '.join(parts)}. {effects_text(effect.effects)}"


def delete_entity(
    request: HttpRequest, entity: EntityRow, *, typed: str, count: int, delete: Callable[[int], Any], after: str
) -> HttpResponse:
    """GET asks the user to type the name; POST deletes. typed: the name. count: messages deleted with it. delete: gets the number
    of the operation under which it can be restored. after: next URL."""
    address = entity.address
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=typed)
    undoable = operations.newest(entity_id=entity.id, undoable=True)
    context: dict[str, Any] = {"address": address, "entity": entity, "clock": entity.clock, "count": count, "undoable": undoable}
    if not form.is_valid():
        return show_form(request, "entity_delete", form, **context)
    operation_id = operations.new_number()
    done = act(
        request, f"delete {entity.kind}", address, lambda: delete(operation_id),
        says=lambda _: f"Deleted the {entity.kind} {address} with {plural(count, 'message')}.",
        undo=lambda _: restore_url(operation_id, address),
    )  # fmt: skip
    return show_form(request, "entity_delete", form, done=done, **context) if done.error else HttpResponseRedirect(after)


def restore_url(operation_id: int, address: EntityAddress) -> str:
    """Where the Undo button of a deletion posts to."""
    query = urlencode({"action": "undo", "next": reverse("explorer:entity", args=(address.namespace, address.path))})
    return f"{reverse('explorer:operation_change', args=(operation_id,))}?{query}"


def to_entity(address: EntityAddress) -> HttpResponse:
    return HttpResponseRedirect(reverse("explorer:entity", args=(address.namespace, address.path)))
