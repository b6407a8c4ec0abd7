"""Export and import of configuration: namespaces with their entities, rules, policies and topology, without messages."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from django import forms
from django.http import FileResponse, HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods, require_POST

from broker_core import reads
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Right
from broker_core.transfer.exporting import export
from broker_core.transfer.importing import check_import, import_
from broker_core.transfer.lines import lines_of, read_lines
from explorer import audit

from .shell import BadQuery, act, page, show_form

LARGEST = 4 * 2**20
MOST_LISTED = 200  # entities of a namespace in the preview


class ImportForm(forms.Form):
    """A file of an export, or its text, which the preview carries on. do: preview, or import."""

    file = forms.FileField(
        required=False, allow_empty_file=True, label="File", help_text="As exported here or by export_vitrine."
    )
    text = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    name = forms.CharField(
        required=False, max_length=50, label="Import as", help_text="A new name, for a file with one namespace."
    )
    do = forms.ChoiceField(choices=[("preview", "preview"), ("import", "import")])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        upload = cleaned.get("file")
        content = upload.read(LARGEST + 1) if upload else cleaned.get("text", "").encode()
        if not content:
            self.add_error("file", "Choose a file.")
        elif len(content) > LARGEST:
            self.add_error("file", f"The file is larger than {LARGEST // 2**20} MB. Import it with manage.py import_vitrine.")
        else:
            try:
                cleaned["content"] = content.decode()
            except UnicodeDecodeError:
                self.add_error("file", "The file is not text in UTF-8.")
        return cleaned


@dataclass(slots=True)
class Described:
    """A namespace of a file: its entities, in order, and the numbers of other objects by word."""

    name: str
    family: str
    entities: list[tuple[str, str]] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    @property
    def listed(self) -> list[tuple[str, str]]:
        return self.entities[:MOST_LISTED]

    @property
    def other_objects(self) -> list[tuple[str, int]]:
        return sorted(self.others.items())

    @property
    def more(self) -> int:
        return max(0, len(self.entities) - MOST_LISTED)


@page
@require_http_methods(["GET", "POST"])
def configuration(request: HttpRequest) -> HttpResponse:
    """GET: what can be exported, and the form. POST: a preview, or the import itself, which is checked again as a whole."""
    may_manage = Right.MANAGE in request.actor.rights
    context: dict[str, Any] = {
        "section": "entities",
        "namespaces": [n for n in reads.namespaces(actor=request.actor) if not n.is_system],
        "why_not": "" if may_manage else "Exporting and importing configuration requires the administrator role.",
    }
    if request.method != "POST":
        return show_form(request, "configuration", ImportForm(initial={"do": "preview"}), **context)
    form = ImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return show_form(request, "configuration", form, **context)
    content, name = form.cleaned_data["content"], form.cleaned_data["name"] or None
    lines = list(lines_of(BytesIO(content.encode())))
    if form.cleaned_data["do"] == "import":
        done = act(
            request, "import configuration", None, lambda: import_(lines, name=name, actor=request.actor),
            target=name or "", says=_said,
        )  # fmt: skip
        if done.error is None:
            context["imported"] = done.result["namespaces"]
            return show_form(request, "configuration", ImportForm(initial={"do": "preview"}), **context)
        return show_form(request, "configuration", form, done=done, **context)
    try:
        checked = check_import(lines, name=name, actor=request.actor)
    except BrokerError as exc:
        audit.refused(request.actor, "preview import", None, exc, target=name or "")
        form.add_error("file", str(exc))
        return show_form(request, "configuration", form, **context)
    return show_form(
        request, "configuration", form, checked=checked, described=described(lines, name), content=content, **context
    )


@page
@require_POST
def export_configuration(request: HttpRequest) -> HttpResponse:
    """Download the chosen namespaces as JSON Lines, without messages and keys."""
    names = request.POST.getlist("namespace")
    if not names:
        raise BadQuery([("namespace", "choose at least one namespace.")])
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the response closes it
    totals = export(names, lambda text: file.write(text.encode()), with_messages=False, actor=request.actor)
    audit.done(request.actor, "export configuration", target=", ".join(names), detail=f"{totals['entities']:,} entities")
    file.seek(0)
    title = names[0] if len(names) == 1 and names[0].isascii() and names[0].isalnum() else "configuration"
    return FileResponse(file, as_attachment=True, filename=f"vitrine-{title}.jsonl", content_type="application/jsonl")


def described(lines: Iterable[bytes], name: str | None) -> list[Described]:
    """What a file would create."""
    found: list[Described] = []
    for line in read_lines(lines):
        if line.kind == "namespace":
            found.append(Described(name or line.content.text("name"), line.content.text("family")))
        elif found and line.kind == "entity":
            found[-1].entities.append((line.content.text("kind"), line.content.text("path")))
        elif found and line.kind not in ("entity_end", "end"):
            found[-1].others[line.kind.replace("_", " ")] += 1
    if not found:
        raise InvalidArgument("file", "has no namespace")
    return found


def _said(done: dict[str, Any]) -> str:
    count = done["entities"]
    return f"Imported {', '.join(done['namespaces'])}: {count:,} {'entity' if count == 1 else 'entities'}."
