"""The workbench of a list of failed messages, or of a group of them: what a filter finds, the open message, repairs, a try, and
operations on all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.timezone import now as real_now
from django.views.decorators.http import require_http_methods

from broker_core import operations as core
from broker_core import reads
from broker_core.common.errors import BrokerError, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.operations import NOT_IN_LIST, Kind, Operation, Selection, State
from broker_core.reads import EntityRow, Failure, MessageDetail, MessageRow, Page, Tab
from explorer import operations
from explorer.frames import filtering, token_field
from explorer.frames.family import FamilyOperations, pages_of
from explorer.frames.filtering import FilterField, group_url
from explorer.frames.presenters import SUBQUEUES, plural
from explorer.frames.shell import Act, about, act, cleaned, page, show, wants_fragment
from explorer.frames.split import is_for_pane
from explorer.frames.vocabulary import canonical
from explorer.live.page import Live, LiveRequest, live
from explorer.operations.presenters import Line, undo_report, undo_url
from explorer.operations.selecting import tab_of

from . import notes, repairs
from .fates import Fate, fate
from .forms import GroupQuery, PaceForm, RepairForm

_OLD_FILTER = "filter"  # the parameter of earlier addresses
FIELDS = ("body", "original", "patch", "find", "replace", "properties")  # of a repair
FOLLOWED = timedelta(minutes=30)  # how long an operation stays on the page after its end
SECONDS, SECONDS_OF_MANY, MANY = 1.0, 15.0, 5_000
OF_ALL = {"resubmit": Kind.RESUBMIT, "repair": Kind.REPAIR, "move": Kind.MOVE, "archive": Kind.ARCHIVE, "discard": Kind.DISCARD}
DONE_TO = {
    Kind.RESUBMIT: "resubmitted", Kind.REPAIR: "repaired and resubmitted", Kind.MOVE: "moved", Kind.ARCHIVE: "archived",
    Kind.DISCARD: "discarded",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """What a request is about. list: the name of the list for operations. field: its filter. open: the number of the open
    message. watched: the operation that was just started or changed."""

    request: HttpRequest
    entity: EntityRow
    address: EntityAddress
    list: str
    field: FilterField
    cursor: str | None
    open: int | None
    tried: int | None
    watched: int | None

    @property
    def actor(self) -> Actor:
        return self.request.actor

    @property
    def filter(self) -> str:
        """The text of the filter, by which notes and operations know the group."""
        return self.field.text

    @property
    def family(self) -> FamilyOperations:
        return pages_of(self.entity.family).operations

    @property
    def tab(self) -> Tab:
        return tab_of(self.family.lists[self.list])

    def url(self, **changes: Any) -> str:
        """This page, with some parameters changed."""
        values: dict[str, Any] = {"m": self.open, "tried": self.tried, "cursor": self.cursor, **changes}
        query = urlencode({name: value for name, value in values.items() if value})
        url = group_url(self.address, self.filter)
        return url if not query else f"{url}{'&' if '?' in url else '?'}{query}"

    def selection(self, numbers: Sequence[int] | None = None) -> Selection:
        return operations.selection(
            self.address, self.entity.family, self.list, numbers=numbers, filter="" if numbers else self.filter
        )


@live
@page
@require_http_methods(["GET", "POST"])
def group(request: HttpRequest, subqueue: str, namespace: str, path: str) -> HttpResponse:
    """GET shows the group; POST notes, previews, tries, or starts an operation."""
    if redirect := canonical(request, None, old_filter=_OLD_FILTER):
        return redirect
    bench = _bench(request, subqueue, namespace, path)
    if bench.field.problem:
        return _show_problem(bench)
    if request.method != "POST":
        return _show(bench)
    action = request.POST.get("action", "")
    if action in ("preview", "preview-all"):
        return _show(bench, repair=_repair_of(bench, previews=True, of_all=action == "preview-all"))
    done = _done(bench, action)
    if done.error:
        return _show(bench, done=done, repair=_repair_of(bench, of_all=action in ("repair", "try-repair")))
    return _redirect(request, done.result or bench.url())


def _bench(request: HttpRequest, subqueue: str, namespace: str, path: str) -> Bench:
    if subqueue not in SUBQUEUES:
        raise Http404
    entity = reads.entity(EntityAddress(namespace, path), actor=request.actor)
    address = EntityAddress(entity.address.namespace, entity.address.path, SUBQUEUES[subqueue])
    query = cleaned(GroupQuery(request.GET))
    posted = cleaned(GroupQuery(request.POST)) if request.POST.get("m") else query
    names = pages_of(entity.family).operations.lists
    whole = (
        name
        for name, place in names.items()
        if place.subqueue == address.subqueue and place.holds is None and place.locked is None
    )
    list_name = next(whole, None)
    if list_name is None:
        raise Http404
    field = _field(request, entity)
    return Bench(request, entity, address, list_name, field, query["cursor"] or None, posted["m"], query["tried"], query["op"])


def _field(request: HttpRequest, entity: EntityRow) -> FilterField:
    """The filter of the group. Other conditions are another group: its links keep nothing of what was done in this one."""
    query = QueryDict(mutable=True)
    query["q"] = token_field.text_of(request.GET, _OLD_FILTER)
    return filtering.field_in(query, entity.clock.now, request.actor)


def _show(bench: Bench, *, done: Act = Act(), repair: Mapping[str, Any] | None = None) -> HttpResponse:
    request, entity = bench.request, bench.entity
    rows = reads.list_messages(bench.address, bench.tab, filter=bench.field.filter, cursor=bench.cursor, actor=bench.actor)
    counted = operations.count(bench.selection(), actor=bench.actor)
    open_number = bench.open or (rows.rows[0].sequence_number if rows.rows else None)
    note = notes.of_groups([(bench.address, bench.filter)]).get((bench.address, bench.filter))
    recent = core.newest(entity_id=entity.id, limit=20)
    tried_repair = _tried_repair(bench, recent)
    listed = _with_failures(bench, rows.rows)
    common = _common(listed)
    context = {
        **about(request, entity),
        "section": "dead_letters",
        "bench": bench,
        **_filter_context(bench),
        "page": rows,
        "rows": listed,
        "common": common,
        "failed_in": _failed_in(bench, common.get("origin", "")) if common.get("reason") else None,
        "counted": counted,
        "note": note,
        "resubmits": bench.family.resubmits(bench.list, entity),
        "tried_fate": _fate(bench),
        "operations": [Line(operation) for operation in _operations(bench, recent)],
        "tried_repair": tried_repair,
        "focus": "" if isinstance(request, LiveRequest) else _focus(bench, repair or {}),
        "open_number": open_number,
        "neighbours": _neighbours(rows, open_number),
        "page_url": bench.url(),
        "error": done.error,
    }
    if not isinstance(request, LiveRequest):
        context |= _pane(bench, open_number, repair or {"form": _as_form(tried_repair)})
    seconds = SECONDS if counted.count <= MANY else SECONDS_OF_MANY
    live_part = Live(
        {f"explorer/dead_letters/{part}.html": seconds for part in ("_work", "_list", "_dock")},
        entities=[entity],
        refresh_seconds=seconds,
    )
    fragment = "dead_letters/_beside" if is_for_pane(request) else "dead_letters/_group"
    return show(request, "dead_letters/group", context, fragment=fragment, status=done.status, live=live_part)


def _filter_context(bench: Bench) -> dict[str, Any]:
    return {"filter": bench.field, "suggest_url": filtering.suggest_url(bench.address, str(bench.tab))}


def _show_problem(bench: Bench) -> HttpResponse:
    """The page without messages, with what is wrong with its filter."""
    context = {
        **about(bench.request, bench.entity), "section": "dead_letters", "bench": bench, **_filter_context(bench), "detail": None,
    }  # fmt: skip
    fragment = "dead_letters/_beside" if is_for_pane(bench.request) else "dead_letters/_group"
    return show(bench.request, "dead_letters/group", context, fragment=fragment, status=bench.field.status, live=Live({}))


def _focus(bench: Bench, repair: Mapping[str, Any]) -> str:
    """The part of the page that shows the result of what was just done: it gets the focus."""
    if repair:
        return "previews" if repair.get("previews") else ""
    return "operation" if bench.watched else "fate" if bench.tried else ""


def _fate(bench: Bench) -> Fate | None:
    if bench.tried is None:
        return None
    return fate(reads.timeline(bench.entity.id, bench.tried, actor=bench.actor), bench.entity.id, bench.tried)


def _operations(bench: Bench, recent: Sequence[Operation]) -> list[Operation]:
    """Of these operations those on this list that run, or ended a short time ago, without those on a single message."""
    return [
        operation for operation in recent
        if operation.kind in DONE_TO and operation.selection.address.subqueue == bench.address.subqueue
        and (operation.selection.numbers is None or len(operation.selection.numbers) > 1)
        and _is_recent(operation)
    ][:3]  # fmt: skip


def _is_recent(operation: Operation) -> bool:
    """Whether it runs, or it or its undo ended a short time ago."""
    if operation.is_open or operation.finished_at is None:
        return True
    followed_until = operation.kept_until if operation.state is State.UNDONE else None
    return real_now() < (followed_until or operation.finished_at + FOLLOWED)


def _with_failures(bench: Bench, rows: Sequence[MessageRow]) -> list[tuple[MessageRow, Failure | None]]:
    """The rows, each with why and where its message failed; None: it left the list meanwhile."""
    numbers = [row.sequence_number for row in rows]
    failures = reads.failures(bench.address, bench.entity.id, numbers, actor=bench.actor)
    return [(row, failures.get(row.sequence_number)) for row in rows]


def _common(listed: Sequence[tuple[MessageRow, Failure | None]]) -> dict[str, str]:
    """What all messages of the list have in common, which is shown once: reason, description and origin."""
    values = {
        "reason": {failure.reason if failure else "" for _, failure in listed},
        "description": {row.dead_letter_description or "" for row, _ in listed},
        "origin": {failure.origin if failure else "" for _, failure in listed},
    }
    return {name: next(iter(found)) for name, found in values.items() if len(found) == 1}


def _failed_in(bench: Bench, origin: str) -> EntityRow:
    """The queue in which the messages failed: this one, or the one that moved them here, if it still exists."""
    try:
        return reads.entity(EntityAddress(bench.address.namespace, origin), actor=bench.actor) if origin else bench.entity
    except BrokerError:
        return bench.entity


def _neighbours(rows: Page[MessageRow], number: int | None) -> tuple[int | None, int | None]:
    """The message before and the one after it in the list."""
    numbers = [row.sequence_number for row in rows.rows]
    if number not in numbers:
        return None, None
    at = numbers.index(number)
    return (numbers[at - 1] if at else None), (numbers[at + 1] if at + 1 < len(numbers) else None)


def _pane(bench: Bench, number: int | None, repair: Mapping[str, Any]) -> dict[str, Any]:
    """Context for the open message."""
    detail = reads.message(bench.address, number, actor=bench.actor) if number else None
    if detail is None:
        return {"detail": None}
    sees = Right.SEE_BODIES in bench.actor.rights
    body = _body(bench, detail) if sees else b""
    text = repairs.editable(body) if body is not None and sees else None
    [(row, failure)] = _with_failures(bench, [detail.row])
    return {
        "detail": detail,
        "row": row,
        "failure": failure,
        "text": text,
        "body_is_large": body is None,
        "form": {"body": text, "original": text, **dict.fromkeys(FIELDS[2:], ""), **repair.get("form", {})},
        "previews": repair.get("previews", ()),
        "previewed_all": repair.get("all", False),
        "checked": repair.get("checked"),
        "derived_patch": repair.get("derived", ""),
        "repair_error": repair.get("error"),
    }


def _body(bench: Bench, detail: MessageDetail) -> bytes | None:
    """The body; None: it is too large to be edited here."""
    if detail.body_size > repairs.MOST_CHARACTERS:
        return None
    body = reads.body(bench.address, detail.row.sequence_number, length=repairs.MOST_CHARACTERS, actor=bench.actor)
    return body.content if body else b""


def _repair_of(bench: Bench, *, previews: bool = False, of_all: bool) -> dict[str, Any]:
    """The repair as posted, and with `previews` what it would do to this message, or to three of the group."""
    form = RepairForm(bench.request.POST)
    if not any(name in bench.request.POST for name in ("body", "patch", "find")):
        return {}
    values = form.cleaned_data if form.is_valid() else {}
    context = {"form": {name: bench.request.POST.get(name, "") for name in FIELDS}}
    if not previews:
        return {**context, "all": of_all}
    try:
        if not values:
            raise InvalidArgument("body", "is too long to be repaired here")
        options = _options(values, of_all)
        checked = repairs.check_all(bench.selection(), options, bench.family.largest_body, bench.actor) if of_all else None
        previewed = checked.examples if checked else [bench.open] if bench.open else []
        changes = [_change(bench, number, options) for number in previewed]
    except InvalidArgument as problem:
        return {**context, "error": problem, "all": of_all}
    derived = "" if of_all else repairs.patch_between(values["original"].encode(), values["body"])
    return {**context, "previews": changes, "all": of_all, "derived": derived, "checked": checked}


def _options(values: Mapping[str, Any], of_all: bool) -> dict[str, Any]:
    """The options of a repair. Raises InvalidArgument if nothing is to be changed."""
    options: dict[str, Any] = {}
    if properties := repairs.parsed_properties(values["properties"]):
        options["properties"] = properties
    if of_all and values["find"]:
        if values["patch"].strip():
            raise InvalidArgument("find", "cannot be used together with a merge patch; clear one of them")
        options["replace"] = ["\n".join(_lines(values[name])) for name in ("find", "replace")]
    elif of_all and (values["patch"] or not properties):
        options["merge_patch"] = repairs.parsed_patch(values["patch"])
    elif not of_all and _lines(values["body"]) != _lines(values["original"]):
        options["body"] = "\n".join(_lines(values["body"]))
    if not options:
        raise InvalidArgument("body", "is unchanged. Edit it or the properties, or resubmit the message as it is")
    return options


def _is_edited(values: Mapping[str, Any]) -> bool:
    """Whether the form changes the open message."""
    return bool(values["properties"].strip()) or _lines(values["body"]) != _lines(values["original"])


def _lines(text: str) -> list[str]:
    """Browsers post line ends as CR LF."""
    return text.replace("\r\n", "\n").split("\n")


def _change(bench: Bench, number: int, options: Mapping[str, Any]) -> repairs.Change:
    body = reads.body(bench.address, number, actor=bench.actor)
    if body is None:
        return repairs.Change(number, problem="it is no longer in the list")
    if not body.is_complete:
        return repairs.Change(number, problem=f"its body has {body.total:,} bytes, too many for a preview")
    return repairs.change(number, body.content, options, _largest_body(bench, number, body.total))


def _largest_body(bench: Bench, number: int, body_size: int) -> int:
    """The size of a message's repaired body at most: its properties need room, too."""
    largest = bench.family.largest_body
    if largest is None:
        largest = core.entity_status(bench.address.namespace, bench.entity.id).largest
    detail = reads.message(bench.address, number, actor=bench.actor)
    return largest - max(0, detail.row.size - body_size) if detail else largest


def _done(bench: Bench, action: str) -> Act:
    """Carry out a posted action. The result is the address of the next page."""
    try:
        if action == "note":
            return _noted(bench)
        if action in ("pause", "resume", "stop", "undo"):
            return _controlled(bench, action)
        if action in ("try", "try-repair"):
            return _tried(bench, of_all=action == "try-repair")
        if action == "repair-tried":
            return _started(bench, Kind.REPAIR, _tried_repair(bench, core.newest(entity_id=bench.entity.id, limit=20)))
        if action in OF_ALL:
            return _started(bench, OF_ALL[action])
    except BrokerError as problem:
        return Act(error=problem)
    return Act(error=InvalidArgument("action", f"{action!r} is unknown"))


def _noted(bench: Bench) -> Act:
    text = bench.request.POST.get("note", "")
    done = act(
        bench.request, "note dead letters", bench.address, lambda: notes.write(bench.address, bench.filter, text, bench.actor),
        target=bench.filter, says=str,
    )  # fmt: skip
    return Act(error=done.error)


def _controlled(bench: Bench, action: str) -> Act:
    operation_id = bench.request.POST.get("operation", "")
    operation = (
        core.find(int(operation_id)) if operation_id.isascii() and operation_id.isdigit() and len(operation_id) <= 18 else None
    )
    if operation is None or operation.entity_id != bench.entity.id:
        return Act(error=InvalidArgument("operation", "is not an operation on these messages"))
    done = act(
        bench.request, f"{action} operation", bench.address,
        lambda: operations.change(operation, action, actor=bench.actor), target=f"operation {operation.id}",
        says=undo_report if action == "undo" else lambda operation: f"Operation {operation.id}: {Line(operation).state}.",
    )  # fmt: skip
    return Act(error=done.error, result=bench.url(op=operation.id))


def _tried(bench: Bench, *, of_all: bool) -> Act:
    """Resubmit the open message as the form shows it, and follow it. of_all: with the repair that is meant for all."""
    number = bench.open
    if number is None:
        raise InvalidArgument("m", "is missing: open a message first")
    values = _valid(RepairForm(bench.request.POST))
    options = _options(values, of_all) if of_all or _is_edited(values) else {}
    kind = Kind.REPAIR if options else Kind.RESUBMIT
    done = act(
        bench.request, f"{kind} one", bench.address,
        lambda: _one_started(bench, kind, number, options),
        target=f"message {number}", says=_result_text,
        undo=lambda operation: undo_url(operation, bench.url(tried=None, m=number)),
    )  # fmt: skip
    return done if done.error else Act(result=bench.url(tried=number, m=None))


def _one_started(bench: Bench, kind: Kind, number: int, options: Mapping[str, Any]) -> Operation:
    """The operation on one message. Raises NotAllowed with the reason if the message was not resubmitted."""
    operation = operations.start(kind, bench.selection([number]), actor=bench.actor, options=options)
    if not operation.done:
        reason = next(iter(operation.reasons), operation.message) or NOT_IN_LIST
        reason = reason.replace(NOT_IN_LIST, "no longer in the list")
        subject = "it is " if reason.startswith(("no longer", "locked", "held")) else ""
        raise NotAllowed(f"Message {number} was not resubmitted: {subject}{reason.rstrip('.')}.")
    return operation


def _tried_repair(bench: Bench, recent: Sequence[Operation]) -> dict[str, Any]:
    """The options of the repair that was tried on one message, so that the rest can get it, too. A new body concerns only that
    message."""
    tried = (operation for operation in recent if operation.kind is Kind.REPAIR and operation.selection.numbers == (bench.tried,))
    operation = next(tried, None)
    return dict(operation.options) if operation and "body" not in operation.options else {}


def _as_form(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a repair of all messages, as its form shows them."""
    if not options:
        return {}
    return {
        "patch": json.dumps(options["merge_patch"], ensure_ascii=False) if "merge_patch" in options else "",
        **dict(zip(("find", "replace"), options.get("replace", ("", "")), strict=True)),
        "properties": "\n".join(f"{name}={value}" for name, value in options.get("properties", {}).items()),
    }


def _started(bench: Bench, kind: Kind, repair: Mapping[str, Any] | None = None) -> Act:
    """Start an operation on all messages of the group. repair: the options of a repair, if not those of the form."""
    values = _valid(PaceForm(bench.request.POST))
    options = dict(repair or {})
    if kind is Kind.REPAIR and not options:
        options = _options(_valid(RepairForm(bench.request.POST)), of_all=True)
    if kind is Kind.MOVE:
        if not values["to"]:
            raise InvalidArgument("to", "is required: the queue to which the messages are moved")
        options["to"] = bench.family.target(values["to"])
    done = act(
        bench.request, f"{kind} dead letters", bench.address,
        lambda: operations.start(
            kind, bench.selection(), actor=bench.actor, options=options, pace=values["pace"], up_to=values["up_to"]
        ),
        target=bench.filter or "all", says=_result_text, undo=lambda operation: undo_url(operation, bench.url(m=None)),
    )  # fmt: skip
    return Act(error=done.error, result=None if done.error else bench.url(m=None, op=done.result.id))


def _result_text(operation: Operation) -> str:
    if operation.is_open:
        return f"Operation {operation.id} started: {plural(operation.counted or 0, 'message')} to be {DONE_TO[operation.kind]}."
    text = f"{DONE_TO[operation.kind].capitalize()} {plural(operation.done, 'message')}."
    left = operation.skipped + operation.failed
    return f"{text} {plural(left, 'message')} left where they were." if left else text


def _valid(form: Any) -> dict[str, Any]:
    if form.is_valid():
        return form.cleaned_data
    name, errors = next(iter(form.errors.items()))
    raise InvalidArgument(name, " ".join(errors))


def _redirect(request: HttpRequest, url: str) -> HttpResponse:
    if wants_fragment(request):
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)
