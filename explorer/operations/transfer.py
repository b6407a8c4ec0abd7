"""Export of a list's messages as JSON Lines or CSV, of many as an operation, and import of a file of JSON Lines into an entity,
as an operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import operations as core
from broker_core import reads
from broker_core.common.types import EntityAddress, Right
from broker_core.operations import Kind
from explorer import audit
from explorer.frames import shell
from explorer.frames.download import download
from explorer.frames.family import pages_of
from explorer.frames.forms.text_file import TextFileForm
from explorer.frames.presenters import plural

from . import presenters
from .finding import find_operation
from .message_files import MOST_MESSAGES, csv_lines, framed, lines_of, parsed
from .runner import BATCH
from .selecting import count, selection
from .starting import DIRECT, rights_for, start_import

FORMATS = ("jsonl", "csv")

LARGEST = 16 * 2**20
LARGEST_KEPT = 3 * 2**19  # by a preview, which carries the file in its form, within Django's limit for the fields of one


class ExportQuery(forms.Form):
    """tab: the list. filter: as in its filter field. format: empty: JSON Lines."""

    tab = forms.CharField(required=False, max_length=40)
    filter = forms.CharField(required=False, max_length=2_000, strip=False)
    format = forms.ChoiceField(required=False, choices=[(name, name) for name in FORMATS])


class ImportForm(TextFileForm):
    """A file of an export, or its text and name, which the preview carries on. do: preview, or import."""

    largest = LARGEST
    too_large = "Divide it by lines."

    file = forms.FileField(required=False, allow_empty_file=True, label="File", help_text="JSON Lines, as exported from a list.")
    name = forms.CharField(required=False, max_length=1_000, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        upload = cleaned.get("file")
        return cleaned | {"name": (upload.name if upload else cleaned.get("name", ""))[:200]}


def messages_export(request: HttpRequest, namespace: str, path: str) -> HttpResponse | None:
    """Download the messages of a list that match a filter. None: there are many; an operation writes them to a file."""
    actor = request.actor
    values = shell.cleaned(ExportQuery(request.GET))
    entity = reads.entity(EntityAddress(namespace, path), actor=actor)
    actor.require(Right.BROWSE | Right.SEE_BODIES, entity.address)
    chosen = selection(entity.address, entity.family, values["tab"], filter=values["filter"])
    counted = count(chosen, actor=actor)
    if Right.OPERATE in actor.rights and (counted.count > DIRECT or not counted.is_exact):
        return None
    target = f"{counted.text} that match {chosen.filter}" if chosen.filter else f"all {counted.text}"
    audit.done(actor, "export messages", counted.selection.address, target=target)
    return _download(request, lines_of(counted.selection, entity.family, actor), entity.address, values["format"])


@shell.page
@require_GET
def operation_file(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Download the file that an export wrote."""
    operation = find_operation(request, operation_id)
    if operation.kind is not Kind.EXPORT:
        raise Http404(f"There is no export {operation_id}.")
    request.actor.require(rights_for(Kind.EXPORT), operation.address)
    if not operation.has_file:
        raise Http404(f"Operation {operation_id} has no file: it is {operation.state}, or the file is older than a day.")
    audit.done(request.actor, "download export", operation.selection.address, target=f"operation {operation_id}")
    parts = core.exported_lines(operation, actor=request.actor)
    return _download(request, parts, operation.address, shell.cleaned(ExportQuery(request.GET))["format"])


def _download(request: HttpRequest, messages: Iterator[str], address: EntityAddress, file_format: str) -> HttpResponse:
    """messages: their lines."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in address.path)
    if file_format == "csv":
        return download(request, csv_lines(messages), "text/csv; charset=utf-8", f"{name}.csv")
    return download(request, framed(messages, address, request.actor), "application/jsonl", f"{name}.jsonl")


@shell.page
@require_http_methods(["GET", "POST"])
def messages_import(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET: the form. POST: a preview with the errors by line, or the start of the import, if no line has an error."""
    entity = reads.entity(EntityAddress(namespace, path), actor=request.actor)
    family = pages_of(entity.family).operations
    context = {
        **shell.about(request, entity),
        "batch": BATCH,
        "most": MOST_MESSAGES,
    }
    request.actor.require(Right.SEND, entity.address)
    if request.method != "POST":
        return shell.show_form(request, "operations/import", ImportForm(initial={"do": "preview"}), **context)
    form = ImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return shell.show_form(request, "operations/import", form, **context)
    content, name = form.cleaned_data["content"], form.cleaned_data["name"]
    parsed_file = parsed(content, family)
    if parsed_file.errors or form.cleaned_data["do"] == "preview":
        form_content = content if len(content.encode()) <= LARGEST_KEPT else ""
        return shell.show_form(
            request, "operations/import", form, parsed=parsed_file, content=form_content, file_name=name, **context
        )
    back = reverse("explorer:entity", args=(entity.address.namespace, entity.address.path))
    done = shell.act(
        request, "import messages", entity.address,
        lambda: start_import(entity, parsed_file.lines, file=name or "a file", actor=request.actor),
        target=plural(len(parsed_file.lines), "message"), says=presenters.report,
        undo=lambda operation: presenters.undo_url(operation, back),
    )  # fmt: skip
    if done.error:
        return shell.show_form(request, "operations/import", form, done=done, **context)
    return HttpResponseRedirect(presenters.page_of(done.result) if done.result.is_open or done.result.reasons else back)
