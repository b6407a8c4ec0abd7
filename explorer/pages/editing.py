"""Edit a message that waits: its body, and the properties of its sender."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.arguments import MAX_REASON
from broker_core.common.errors import MessageChanged, MessageNotFound, MessageTooLarge
from broker_core.common.types import EntityAddress, Right
from broker_core.reads import EntityRow, MessageDetail
from explorer.bodies.display import pretty_json
from explorer.frames import split
from explorer.frames.copying import LARGEST_COPY, as_typed
from explorer.frames.family import EditPages, FormRows, MessageEdit, pages_of
from explorer.frames.forms.fields import with_unix_newlines
from explorer.frames.shell import Act, about, act, address_of, page, refusal, show_form

RIGHTS = Right.OPERATE | Right.SEE_BODIES
INVALID = "Not saved. Fix the errors below."
UNCHANGED = "Nothing is changed yet. Change the message, or cancel."


class EditForm(forms.Form):
    """What an operator changes. version: of the message that was opened."""

    body = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 12, "class": "mono", "spellcheck": "false", "aria-labelledby": "body-title"}),
    )
    reason = forms.CharField(required=False, max_length=MAX_REASON, help_text="Optional. It is shown in the message's timeline.")
    version = forms.CharField(widget=forms.HiddenInput)


@dataclass(frozen=True, slots=True)
class Editable:
    """A message as its form shows it. text: None: its body cannot be edited here, which why_not says. rows: of its properties;
    None: it has none. stored: the same, as they are stored. fixed: properties that a form cannot keep as they are; they stay.
    was_json: whether its body is JSON."""

    text: str | None
    why_not: str
    rows: FormRows | None
    stored: Sequence[tuple[str, str, str]]
    fixed: Mapping[str, Any]
    was_json: bool

    def properties(self) -> dict[str, Any] | None:
        """The properties as entered; None: unchanged."""
        if self.rows is None or self.rows.entered == self.stored:
            return None
        return {**self.fixed, **self.rows.values()}


@page
@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, namespace: str, path: str, sequence_number: int) -> HttpResponse:
    """The form. POST saves it; a body that was JSON and is none any more is saved only with `anyway`."""
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    request.actor.require(RIGHTS, entity.address)
    detail = reads.message(entity.address, sequence_number, actor=request.actor)
    if detail is None:
        raise MessageNotFound(str(entity.address), [sequence_number], "message")
    edits = pages_of(entity.family).edits
    if request.method == "POST":
        return _save(request, entity, detail, edits)
    if why_not := edits.why_not(detail.row):
        return refusal(request, 409, f"Message {sequence_number} cannot be edited. {why_not}")
    content = _editable(request, entity, detail, edits)
    return _show(request, entity, detail, EditForm(initial={"body": content.text, "version": detail.version}), content)


def _save(request: HttpRequest, entity: EntityRow, detail: MessageDetail, edits: EditPages) -> HttpResponse:
    form, content = EditForm(request.POST), _editable(request, entity, detail, edits, request.POST)
    properties = content.properties()
    if content.rows and content.rows.errors:
        form.add_error(None, INVALID)
    if not form.is_valid():
        return _show(request, entity, detail, form, content)
    text = with_unix_newlines(form.cleaned_data["body"])
    body = None if content.text is None or text == content.text else text
    if body is None and properties is None:
        form.add_error(None, UNCHANGED)
        return _show(request, entity, detail, form, content)
    if body is not None and content.was_json and "anyway" not in request.POST and (problem := _json_problem(body)):
        return _show(request, entity, detail, form, content, warning=problem)
    reason = " ".join(form.cleaned_data["reason"].split())
    change = MessageEdit(body, properties, form.cleaned_data["version"], reason or None)
    address, number = entity.address, detail.row.sequence_number
    done = act(
        request, "edit", address, lambda: edits.edit(address, number, change, request.actor),
        target=f"message {number}", says=lambda _: f"Edited {_changed(entity, change)} of message {number}.",
    )  # fmt: skip
    if done.error:
        return _show(request, entity, detail, form, content, done=done)
    return HttpResponseRedirect(_list_or_message(request, address, number))


def _changed(entity: EntityRow, change: MessageEdit) -> str:
    texts = pages_of(entity.family).texts
    parts = ((texts.body, change.body), (texts.application_properties, change.properties))
    return " and ".join(f"the {name.lower()}" for name, value in parts if value is not None)


def _list_or_message(request: HttpRequest, address: EntityAddress, number: int) -> str:
    return split.list_to_return_to(request) or reverse("explorer:message", args=(address.namespace, address.path, number))


def _editable(
    request: HttpRequest, entity: EntityRow, detail: MessageDetail, edits: EditPages, data: QueryDict | None = None
) -> Editable:
    stored = detail.application_properties
    fixed = {name: value for name, value in stored.items() if "\n" in str(value[1]) or "\r" in str(value[1])}
    shown = {name: value for name, value in stored.items() if name not in fixed}
    before, kept = edits.rows(None, shown), edits.rows(None, fixed)
    text, why_not = _text(request, entity.address, detail)
    return Editable(
        text and (pretty_json(text) or text), why_not, edits.rows(data, shown), before.entered if before else (),
        kept.values() if kept else {}, bool(text) and not _json_problem(text or ""),
    )  # fmt: skip


def _text(request: HttpRequest, address: EntityAddress, detail: MessageDetail) -> tuple[str | None, str]:
    """The body as text, or why it cannot be edited in a form."""
    if detail.body_size > LARGEST_COPY:
        return None, f"is larger than {LARGEST_COPY // 1024} KB"
    if detail.body_kind:
        return None, "has AMQP types, which a form cannot keep"
    body = reads.body(address, detail.row.sequence_number, actor=request.actor)
    text = as_typed(body.content) if body else None
    return text, "" if text is not None else "is binary, or has line endings that a form cannot keep"


def _json_problem(text: str) -> str:
    """Why a text is no JSON, and where; empty: it is."""
    try:
        json.loads(text)
    except json.JSONDecodeError as problem:
        return f"{problem.msg} at line {problem.lineno}, column {problem.colno}"
    except RecursionError:
        return "it is nested too deeply"
    return ""


def _show(
    request: HttpRequest,
    entity: EntityRow,
    detail: MessageDetail,
    form: EditForm,
    content: Editable,
    *,
    done: Act = Act(),
    warning: str = "",
) -> HttpResponse:
    error = done.error
    if isinstance(error, MessageTooLarge) and error.what == "message":
        form.add_error("body", str(error))
        done = Act()
    number = detail.row.sequence_number
    response = show_form(
        request, "message_edit", form, done=done, fields={"text": "body"}, **about(request, entity), number=number,
        crumb=f"edit message {number}", content=content, warning=warning, texts=pages_of(entity.family).texts,
        cancel_url=_list_or_message(request, entity.address, number), has_changed=isinstance(error, MessageChanged),
    )  # fmt: skip
    response.status_code = 422 if warning else response.status_code
    return response
