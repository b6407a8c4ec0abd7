"""Export and import of configuration: namespaces with their entities, rules, policies and topology, without messages."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from django import forms
from django.http import FileResponse, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from broker_core import reads
from broker_core.common.errors import BrokerError, PreviewOutdated
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.export_format.lines import lines_of
from broker_core.transfer.exporting import export
from broker_core.transfer.updating import (
    NAMESPACE,
    Change,
    ImportPreview,
    NamespaceImport,
    Result,
    apply_import,
    preview_import,
)
from explorer import audit, sandbox_names
from explorer.frames.family import pages_of
from explorer.frames.forms.text_file import TextFileForm
from explorer.frames.presenters import effects_text
from explorer.frames.shell import Act, BadQuery, act, page, show_form

LARGEST = 4 * 2**20
MOST_LISTED = 200  # objects of a namespace in the preview, for each result


class ImportForm(TextFileForm):
    """A file of an export, or its text, which the preview carries on. do: preview, or import."""

    largest = LARGEST
    too_large = "Import it with manage.py import_vitrine."

    file = forms.FileField(
        required=False, allow_empty_file=True, label="File", help_text="As exported here or by export_vitrine."
    )
    name = forms.CharField(
        required=False, max_length=50, label="Import as", help_text="A new name, for a file with one namespace."
    )


@dataclass(frozen=True, slots=True)
class Row:
    """An object of the preview. url: of the page of an entity that exists. settings: (name, before, after), in words."""

    change: Change
    url: str
    settings: tuple[tuple[str, str, str], ...]

    @property
    def effects(self) -> str:
        return effects_text(self.change.effects) if self.change.effects else ""


@dataclass(frozen=True, slots=True)
class Group:
    """The objects of a namespace with one result. more: those that are not listed."""

    result: Result
    rows: tuple[Row, ...]
    more: int

    @property
    def count(self) -> int:
        return len(self.rows) + self.more


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace of the preview."""

    namespace: NamespaceImport
    groups: tuple[Group, ...]


@page
@require_http_methods(["GET", "POST"])
def configuration(request: HttpRequest) -> HttpResponse:
    """GET: what can be exported, and the form. POST: a preview, or the import, which makes only what was previewed."""
    may_manage = Right.MANAGE in request.actor.rights
    context: dict[str, Any] = {
        "section": "entities",
        "namespaces": [
            row
            for row in sandbox_names.without_of_others(request.user, reads.namespaces(actor=request.actor))
            if not row.is_system
        ],
        "why_not": "" if may_manage else "Exporting and importing configuration requires the administrator role.",
    }
    if request.method != "POST":
        return show_form(request, "configuration", ImportForm(initial={"do": "preview"}), **context)
    form = ImportForm(request.POST, request.FILES)
    if not form.is_valid():
        return show_form(request, "configuration", form, **context)
    content, name = form.cleaned_data["content"], form.cleaned_data["name"] or None
    lines = list(lines_of(BytesIO(content.encode())))
    done = Act()
    if form.cleaned_data["do"] == "import":
        done = _apply(request, lines, name)
        if done.error is None:
            context["imported"] = [namespace.name for namespace in done.result.namespaces]
            return show_form(request, "configuration", ImportForm(initial={"do": "preview"}), **context)
        if not isinstance(done.error, PreviewOutdated):
            return show_form(request, "configuration", form, done=done, **context)
    try:
        preview = preview_import(lines, name=name, actor=request.actor)
    except BrokerError as exc:
        audit.refused(request.actor, "preview import", None, exc, target=name or "")
        form.add_error("file", str(exc))
        return show_form(request, "configuration", form, done=done, **context)
    namespace_views = [_namespace_view(namespace) for namespace in preview.namespaces]
    return show_form(
        request, "configuration", form, done=done, preview=preview, namespace_views=namespace_views, content=content, **context
    )


def _apply(request: HttpRequest, lines: Sequence[bytes], name: str | None) -> Act:
    """Import what was previewed. Each object of an existing namespace has its own entry in the audit, as if changed by hand."""
    token = request.POST.get("token", "")
    done = act(
        request, "import configuration", None, lambda: apply_import(lines, name=name, token=token, actor=request.actor),
        target=name or "", says=_result_text,
    )  # fmt: skip
    for namespace in done.result.namespaces if done.error is None else ():
        for row in (
            row
            for group in _namespace_view(namespace, len(namespace.changes)).groups
            for row in group.rows
            if not namespace.is_new
        ):
            if row.change.result in (Result.CREATED, Result.CHANGED):
                _audit(request.actor, namespace, row)
    return done


def _audit(actor: Actor, namespace: NamespaceImport, row: Row) -> None:
    item = row.change.item
    address = EntityAddress(namespace.name, item.path) if item.path else None
    of = f"{namespace.name}: " if address is None else ""
    object_name = f"{item.kind} {item.name}" if item.name else ""
    by_hand = pages_of(namespace.family).audited_as.get(item.kind)
    if row.change.result is Result.CREATED:
        audit.done(actor, by_hand or f"create {item.kind}", address, target=f"{of}{object_name}", detail="Created by an import.")
        return
    names = ", ".join(name for name, _, _ in row.settings)
    changed = ", ".join(f"{name} from {before} to {after}" for name, before, after in row.settings)
    detail = f"Changed {changed} by an import. {row.effects}".strip()
    action = (by_hand or f"change {item.kind}") if item.name else "change settings"
    audit.done(actor, action, address, target=f"{of}{object_name or names}", detail=detail)


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


def _namespace_view(namespace: NamespaceImport, most: int = MOST_LISTED) -> NamespaceView:
    """A namespace with its objects by result, those that change anything first."""
    groups = []
    for result in Result:
        changes = [change for change in namespace.changes if change.result is result]
        rows = tuple(_row(namespace, change) for change in changes[:most])
        if rows:
            groups.append(Group(result, rows, len(changes) - len(rows)))
    return NamespaceView(namespace, tuple(groups))


def _row(namespace: NamespaceImport, change: Change) -> Row:
    item, words = change.item, pages_of(namespace.family).setting_words
    is_there = item.path and not item.name and not namespace.is_new and change.result is not Result.CREATED
    url = reverse("explorer:entity", args=(namespace.name, item.path)) if is_there else ""
    settings = []
    for name, (before, after) in change.settings.items():
        if item.kind == NAMESPACE:
            settings.append((name.capitalize(), str(before) or "none", str(after) or "none"))
        else:
            label, old = words(item.kind, name, before)
            settings.append((label, old, words(item.kind, name, after)[1]))
    return Row(change, url, tuple(settings))


def _result_text(done: ImportPreview) -> str:
    created, changed = (
        sum(namespace.count(result) for namespace in done.namespaces) for result in (Result.CREATED, Result.CHANGED)
    )
    names = ", ".join(namespace.name for namespace in done.namespaces)
    if not created and not changed:
        return f"Imported {names}: nothing had to be changed."
    return f"Imported {names}: {created:,} created, {changed:,} changed."
