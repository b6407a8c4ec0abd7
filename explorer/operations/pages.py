"""Pages of operations: the list, one operation, and the page that asks before it starts one."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from broker_core import operations as core
from broker_core import reads
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EntityKind, Right
from broker_core.operations import Kind, State
from explorer import audit, sandbox_names
from explorer.frames import shell, view_menu
from explorer.frames.actions import selected_numbers
from explorer.frames.presenters import numbered
from explorer.frames.view_menu import ViewMenu
from explorer.frames.vocabularies import OPERATIONS
from explorer.frames.vocabulary import Terms, canonical, field_of
from explorer.live.page import Live, live

from . import control, presenters
from .finding import find_operation
from .forms import FORMS, ListQuery, PaceForm, StartForm
from .presenters import VERBS, Line
from .selecting import Counted, count, selection
from .starting import rights_for, start
from .transfer import messages_export

SHOWN = 50
LIVE_SECONDS = 1.0
LIST, ONE = "explorer/operations/_operations.html", "explorer/operations/_operation.html"
MOST_TARGETS = 300


@live
@shell.page
@require_GET
def operations(request: HttpRequest) -> HttpResponse:
    """The operations that run, and those that ran, newest first."""
    request.actor.require(Right.BROWSE, "the operations")
    if redirect := canonical(request, OPERATIONS):
        return redirect
    query, field = shell.cleaned(ListQuery(request.GET)), field_of(request, OPERATIONS)
    hidden = view_menu.hidden(request.GET, is_shown=query["all"], what="operations of sandboxes")
    context = {"section": "operations", "filter": field, "view": ViewMenu("operation-list", hidden=hidden)}
    drawn = Live({})
    if not field.problem:
        lists = _lists(request, field.terms, query["before"], with_sandboxes=query["all"])
        context |= lists
        personal = query["all"] and sandbox_names.hides_others(request.user, request.actor)
        drawn = Live({LIST: 0.0}, refresh_seconds=LIVE_SECONDS if lists["running"] else 5.0, personal=personal)
    return shell.show(request, "operations/operations", context, fragment="operations/_list", status=field.status, live=drawn)


def _lists(request: HttpRequest, terms: Terms, below: int | None, *, with_sandboxes: bool) -> dict[str, Any]:
    """The context of the two lists: what runs, on the first page, and what ran."""
    kind, state = terms.get("kind"), terms.get("state")
    chosen = {
        "kind": Kind(kind) if kind else None,
        "state": State(state) if state else None,
        "by": terms.get("by") or "",
        "namespace": terms.get("namespace"),
        "parts": terms.words,
        "undoable": terms.get("is") == "undoable",
        "except_namespaces": sandbox_names.hidden_sandboxes(request.user, request.actor, own=with_sandboxes),
    }
    newest = core.newest(below=below, limit=SHOWN + 1, **chosen)
    running = [] if below or chosen["undoable"] else core.newest(open_only=True, **chosen)
    past = [operation for operation in newest[:SHOWN] if not operation.is_open]
    return {
        "running": [Line(operation) for operation in running],
        "past": [Line(operation) for operation in past],
        "more": newest[SHOWN - 1].id if len(newest) > SHOWN else None,
        "is_later_page": below is not None,
    }


@live
@shell.page
@require_GET
def operation(request: HttpRequest, operation_id: int) -> HttpResponse:
    """An operation: its progress, then its report."""
    operation = find_operation(request, operation_id)
    context = {
        "section": "operations",
        "line": Line(operation),
        "operation": operation,
        "form": PaceForm(initial={"pace": operation.pace}),
    }
    personal = sandbox_names.may_be_one(operation.address.namespace)
    drawn = Live({ONE: 0.0}, refresh_seconds=LIVE_SECONDS if operation.is_open else 5.0, personal=personal)
    return shell.show(request, "operations/operation", context, live=drawn)


@shell.page
@require_POST
def operation_change(request: HttpRequest, operation_id: int) -> HttpResponse:
    """Pause, resume, stop or undo an operation, or change its pace."""
    operation = find_operation(request, operation_id)
    action = request.POST.get("action") or request.GET.get("action", "")
    if action == "pace":
        form = PaceForm(request.POST)
        if not form.is_valid():
            messages.add_message(request, messages.ERROR, f"Pace: {' '.join(form.errors['pace'])}", extra_tags="problem")
            return redirect("explorer:operation", operation.id)
        call = lambda: control.set_pace(operation, form.cleaned_data["pace"], actor=request.actor)  # noqa: E731
    elif action in ("pause", "resume", "stop", "undo"):
        call = lambda: control.change(operation, action, actor=request.actor)  # noqa: E731
    else:
        raise Http404(f"{action!r} is no action")
    says = presenters.undo_report if action == "undo" else lambda operation: f"Operation {operation.id}: {Line(operation).state}."
    done = shell.act(
        request, f"{action} operation", operation.selection.address, call, target=f"operation {operation.id}", says=says
    )
    if done.error:
        shell.notify_error(request, done.error)
    return HttpResponseRedirect(
        presenters.local(request.GET.get("next", "")) or reverse("explorer:operation", args=(operation.id,))
    )


@shell.page
@require_http_methods(["GET", "POST"])
def operation_new(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """Start an operation on the messages of a list. It asks first for what the kind needs, and if it concerns many messages. A
    small export is a download."""
    if request.method == "GET" and request.GET.get("kind") == "export" and (file := messages_export(request, namespace, path)):
        return file
    form = StartForm(request.POST if request.method == "POST" else request.GET)
    values = shell.cleaned(form)
    kind = Kind(values["kind"])
    entity = reads.entity(EntityAddress(namespace, path), actor=request.actor)
    try:
        request.actor.require(rights_for(kind), entity.address)
    except NotAuthorized as refused:
        if request.method == "POST":
            audit.refused(request.actor, str(kind), entity.address, refused)
        raise
    numbers = None if values["all"] or request.method != "POST" else selected_numbers(request.POST.getlist("numbers"))
    chosen = selection(entity.address, entity.family, values["tab"], numbers=numbers, filter=values["filter"])
    counted = count(chosen, actor=request.actor, up_to=values["up_to"])
    asked = FORMS.get(kind, PaceForm)
    details = asked(request.POST) if values["confirmed"] else asked()
    many = counted.count > presenters.MOST_AT_ONCE or not counted.is_exact
    asks = request.method != "POST" or kind in FORMS or many
    if (details.is_bound and not details.is_valid()) or (asks and not values["confirmed"]):
        return _ask(request, entity, kind, counted, details, values)
    options = details.options() if details.is_bound else {}
    pace = details.cleaned_data["pace"] if details.is_bound else None
    done = shell.act(
        request, str(kind), counted.selection.address,
        lambda: start(kind, chosen, actor=request.actor, options=options, pace=pace, up_to=counted.selection.up_to),
        target=_target(counted), says=presenters.report, undo=lambda operation: presenters.undo_url(operation, values["next"]),
    )  # fmt: skip
    in_list = shell.wants_fragment(request)  # htmx: the answer takes the list's place
    if done.error and in_list:
        shell.notify_error(request, done.error)
        return HttpResponseRedirect(presenters.local(values["next"]) or reverse("explorer:entity", args=(namespace, path)))
    if done.error:
        return _ask(request, entity, kind, counted, details, values, error=done.error)
    if done.result.is_open or kind is Kind.EXPORT:  # it has a page of its own, with its progress, or its file
        url = presenters.page_of(done.result)
        return HttpResponse(headers={"HX-Redirect": url}) if in_list else HttpResponseRedirect(url)
    return HttpResponseRedirect(presenters.local(values["next"]) or presenters.list_url(done.result))


def _ask(
    request: HttpRequest, entity: reads.EntityRow, kind: Kind, counted: Counted, details: PaceForm, values: dict, error=None
) -> HttpResponse:
    """The page that names the messages, their exact number and what becomes of them."""
    if isinstance(error, InvalidArgument) and error.name in details.fields and details.is_bound:
        details.add_error(error.name, error.problem)
    context = {
        **shell.about(request, entity),
        "kind": kind,
        "verb": VERBS[kind],
        "counted": counted,
        "title": presenters.title_of(kind, counted.selection, counted.text),
        "details": details,
        "values": values,
        "numbers": counted.selection.numbers or (),
        "targets": _targets(entity, request.actor) if kind is Kind.MOVE else (),
        "error": error,
    }
    status = shell.status_of(error) if error else 400 if details.is_bound else 200
    return shell.show(request, "operations/start", context, fragment="operations/start", status=status)


def _targets(entity: reads.EntityRow, actor: Actor) -> list[str]:
    kinds, address = (EntityKind.QUEUE, EntityKind.TOPIC), entity.address
    names = reads.names(namespace=address.namespace, kinds=kinds, limit=MOST_TARGETS, actor=actor).matches
    return [name.address.path for name in names if name.address.path != address.path]


def _target(counted: Counted) -> str:
    chosen = counted.selection
    if chosen.numbers is not None:
        return numbered(chosen.numbers)
    return f"{counted.text} that match {chosen.filter}" if chosen.filter else f"all {counted.text}"
