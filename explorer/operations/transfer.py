"""Export of a list's messages as JSON Lines, and import of such a file into an entity."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.types import EntityAddress, Right
from explorer import audit
from explorer.shared import shell
from explorer.shared.family import pages_of
from explorer.shared.message import one_by_one
from explorer.shared.presenters import plural

from .message_files import lines_of, parsed
from .selecting import count, selection

LARGEST = 3 * 2**19  # so that the preview can send it again within a form's limit


class ExportQuery(forms.Form):
    """tab: the list. filter: as in its filter field."""

    tab = forms.CharField(required=False, max_length=40)
    filter = forms.CharField(required=False, max_length=2_000, strip=False)


class ImportForm(forms.Form):
    """A file of an export, or its text, which the preview carries on. do: preview, or import."""

    file = forms.FileField(required=False, allow_empty_file=True, label="File", help_text="JSON Lines, as exported from a list.")
    text = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    do = forms.ChoiceField(choices=[("preview", "preview"), ("import", "import")])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        upload = cleaned.get("file")
        content = upload.read(LARGEST + 1) if upload else cleaned.get("text", "").encode()
        if not content:
            self.add_error("file", "Choose a file.")
        elif len(content) > LARGEST:
            self.add_error("file", f"The file is larger than {LARGEST / 2**20} MB. Divide it by lines.")
        else:
            try:
                cleaned["content"] = content.decode()
            except UnicodeDecodeError:
                self.add_error("file", "The file is not text in UTF-8.")
        return cleaned


def messages_export(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """Download the messages of a list that match a filter."""
    actor = request.actor
    values = shell.cleaned(ExportQuery(request.GET))
    entity = reads.entity(EntityAddress(namespace, path), actor=actor)
    actor.require(Right.BROWSE | Right.SEE_BODIES, entity.address)
    chosen = selection(entity.address, entity.family, values["tab"], filter=values["filter"])
    counted = count(chosen, actor=actor)
    target = f"{counted.text} that match {chosen.filter}" if chosen.filter else f"all {counted.text}"
    audit.done(actor, "export messages", counted.selection.address, target=target)
    lines: Any = lines_of(counted.selection, actor)
    if isinstance(request, ASGIRequest):  # otherwise Django collects the whole file before it sends the first byte
        lines = one_by_one(lines)
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in entity.address.path)
    return StreamingHttpResponse(
        lines,
        content_type="application/jsonl",
        headers={"Content-Disposition": f'attachment; filename="{name}.jsonl"', "X-Content-Type-Options": "nosniff"},
    )


@shell.page
@require_http_methods(["GET", "POST"])
def messages_import(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET: the form. POST: a preview with the errors by line, or the import itself: all messages of the file, or none."""
    entity = reads.entity(EntityAddress(namespace, path), actor=request.actor)
    family = pages_of(entity.family).operations
    context = {
        **shell.about(request, entity),
        "why_not": "" if Right.SEND in request.actor.rights else "Importing messages requires the operator role.",
    }
    if request.method != "POST":
        return shell.show_form(request, "operations/import", ImportForm(initial={"do": "preview"}), **context)
    request.actor.require(Right.SEND, entity.address)
    form = ImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return shell.show_form(request, "operations/import", form, **context)
    found = parsed(form.cleaned_data["content"], family)
    if found.errors or form.cleaned_data["do"] == "preview":
        content = form.cleaned_data["content"]
        return shell.show_form(request, "operations/import", form, found=found, content=content, **context)
    done = shell.act(
        request, "import messages", entity.address, lambda: family.send_records(entity.address, found.messages, request.actor),
        target=plural(len(found.messages), "message"), says=lambda number: f"Imported {plural(number, 'message')}.",
    )  # fmt: skip
    if done.error:
        return shell.show_form(request, "operations/import", form, done=done, **context)
    return HttpResponseRedirect(reverse("explorer:entity", args=(entity.address.namespace, entity.address.path)))
