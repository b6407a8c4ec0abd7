"""Moves messages of a queue: dead letters back to where they died, or any messages to a chosen target, after a preview."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_http_methods

from broker_core import rabbitmq, reads
from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.operations import Kind, Operation
from broker_core.rabbitmq.messages.moving import Back, DeadLetterOrigin, Left, MoveGroup, MovePreview, Target, ToQueue
from broker_core.reads import EntityRow, MessageFilter, Tab
from explorer import operations
from explorer.frames.actions import selected_numbers
from explorer.frames.filtering import filter_of
from explorer.frames.presenters import numbered
from explorer.frames.shell import Act, BadQuery, act, cleaned, page, wants_fragment
from explorer.operations.presenters import page_of, report, undo_url
from explorer.rabbitmq.forms.move import BACK, MoveForm, group_text, in_words
from explorer.rabbitmq.forms.topology import QueueQuery

from .exchanges import MOST_OFFERED
from .operations import target_json
from .presenters import REASONS
from .queues import queue_crumb
from .shared import draw, link, queue_link, vhost_of

MOST_MATCHING = 10_000  # messages of one move that a filter selects
SEARCH_SECONDS = 10
MOVABLE = {"messages": None, "ready": (0,)}  # lists whose messages can be moved: values of reads.MessageFilter.holds


@dataclass(frozen=True, slots=True)
class Which:
    """The messages to move. numbers None: all ready ones. selected: whether they were selected one by one.

    words: a description with the group. is_whole: False if the filter may match more. of: the only group to move.
    """

    numbers: tuple[int, ...] | None
    selected: bool
    words: str
    is_whole: bool = True
    of: DeadLetterOrigin | None = None

    @property
    def group(self) -> str:
        """The group as a form value; empty: all."""
        return group_text(self.of) if self.of else ""

    @property
    def in_group(self) -> str:
        return origin_words(self.of) if self.of else ""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A row of the preview. is_offered: whether this row links to its group alone: the first of several groups' rows."""

    group: MoveGroup
    is_offered: bool

    @property
    def because(self) -> str:
        return _reason_text(self.group.origin)

    @property
    def alone(self) -> str:
        """The group as a form value."""
        return group_text(self.group.origin)

    @property
    def words(self) -> str:
        return origin_words(self.group.origin)


@page
@require_http_methods(["GET", "POST"])
def move(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET, or POST with numbers, previews the move and asks; POST with the target confirmed moves."""
    host = vhost_of(namespace, request.actor)
    queue = reads.entity(EntityAddress(host.name, path), actor=request.actor)
    request.actor.require(Right.OPERATE, queue.address)
    data = request.POST if request.method == "POST" else request.GET
    form = MoveForm({"to": BACK, **data.dict()})
    which = _which(request, queue, cleaned(form)["group"])
    target = form.target()
    if request.method == "POST" and target is not None and form.cleaned_data["confirmed"] == in_words(target):
        back_to = queue_link(host.name, queue.address.path) + _list_query(request)
        done = act(
            request, "move", queue.address, lambda: _start(queue, which, target, form.cleaned_data["up_to"], request.actor),
            target=f"{_named(which)} {in_words(target, len(which.numbers or ()))}", says=report,
            undo=lambda operation: undo_url(operation, back_to),
        )  # fmt: skip
        if not done.error:
            return HttpResponseRedirect(page_of(done.result) if done.result.is_open else back_to)
    else:
        done = Act()
    return _ask(request, host, queue, which, form, target, done)


def _start(queue: EntityRow, which: Which, target: Target, up_to: int | None, actor: Actor) -> Operation:
    chosen = operations.selection(queue.address, queue.family, "ready", numbers=which.numbers)
    options = {"to": target_json(target), "group": which.group}
    return operations.start(Kind.MOVE, chosen, options=options, up_to=up_to, actor=actor)


def move_back(address: EntityAddress, number: int, actor: Actor) -> Operation:
    """Move one message to where it died last."""
    chosen = operations.selection(address, Family.RABBITMQ, "messages", numbers=[number])
    return operations.start(Kind.MOVE, chosen, options={"to": target_json(Back())}, actor=actor)


def _ask(
    request: HttpRequest,
    host: reads.NamespaceRow,
    queue: EntityRow,
    which: Which,
    form: MoveForm,
    target: Target | None,
    done: Act,
) -> HttpResponse:
    preview, done = _preview(request, queue.address, which, target, done)
    name, groups = queue.address.path, _group_lines(preview.groups) if preview else []
    context = {
        "queue": queue,
        "which": which,
        "action": link_to(request, queue.address),
        "in_dialog": wants_fragment(request) or "in_dialog" in request.POST,
        "form": form,
        "target": in_words(target) if target else "",
        "goes": in_words(target, preview.count if preview else 0) if target else "",
        "preview": preview,
        "spread": preview is not None and not isinstance(target, ToQueue),
        "groups": groups,
        "by_group": any(line.is_offered for line in groups),
        "left": _by_count(preview.left) if preview else [],
        "queues": [row.name for row in rabbitmq.list_queues(host.name, actor=request.actor) if row.name != name][:MOST_OFFERED],
        "exchanges": [row.name for row in rabbitmq.list_exchanges(host.name, actor=request.actor) if row.name][:MOST_OFFERED],
    }
    return draw(
        request, "move", host, context,
        parent=queue_crumb(queue), page_title="move", place="queues", fragment="_move_dialog", done=done,
    )  # fmt: skip


def _preview(
    request: HttpRequest, address: EntityAddress, which: Which, target: Target | None, done: Act
) -> tuple[MovePreview | None, Act]:
    """The preview of the move: None without a target, or with the error in `Act` if the move is refused."""
    if target is None or done.error:
        return None, done
    try:
        return rabbitmq.preview_move(address, target, which.numbers, of=which.of, actor=request.actor), done
    except BrokerError as refusal:
        return None, Act(error=refusal)


def _group_lines(groups: Sequence[MoveGroup]) -> list[GroupLine]:
    """The rows of the preview. A single group gets no link of its own."""
    origins = [group.origin for group in groups]
    many = len(set(origins)) > 1
    return [GroupLine(group, many and group.origin not in origins[:at]) for at, group in enumerate(groups)]


def _reason_text(of: DeadLetterOrigin) -> str:
    return REASONS.get(of.reason or "", of.reason or "")


def origin_words(of: DeadLetterOrigin) -> str:
    """A description of a group."""
    if of.queue is None:
        return "without a recorded death"
    return f"those that {'first ' if of.first else ''}died in {of.queue}: {_reason_text(of)}"


def _which(request: HttpRequest, queue: EntityRow, of: DeadLetterOrigin | None) -> Which:
    """The messages to move, narrowed to one group if given."""
    which = _requested(request, queue)
    return replace(which, of=of, words=f"{which.words}, only {origin_words(of)}") if of else which


def _requested(request: HttpRequest, queue: EntityRow) -> Which:
    """The selected messages, else those that the list's filter matches, else all ready ones."""
    texts = request.POST.getlist("numbers") or request.GET.getlist("numbers")
    if texts or "selected" in request.POST:
        numbers = tuple(selected_numbers(texts))
        return Which(numbers, True, f"message {numbers[0]}" if len(numbers) == 1 else f"the {len(numbers):,} selected messages")
    values = cleaned(QueueQuery(request.GET))
    tab = values["tab"] or "messages"
    if tab not in MOVABLE:
        raise BadQuery([("tab", f"Messages of the tab {tab} cannot be moved.")])
    narrowed = filter_of(request, queue.clock.now)
    if narrowed.problem:
        raise BadQuery([("q", narrowed.problem.text)])
    if not narrowed:
        return Which(None, False, "all ready messages")
    matched, is_whole = matching(queue.address, narrowed.selecting(MOVABLE[tab]).filter, request.actor)
    phrase = "1 message that matches" if len(matched) == 1 else f"{len(matched):,} messages that match"
    words = f"{'' if is_whole else 'the first '}{phrase} the filter"
    return Which(tuple(matched), False, words, is_whole)


def link_to(request: HttpRequest, address: EntityAddress, **changes: str) -> str:
    """URL of the move page for the list that this request shows, with its query."""
    return link("move", address.namespace, address.path) + _list_query(request, **changes)


def _list_query(request: HttpRequest, **changes: str) -> str:
    """The query string of the same list."""
    query = request.GET.copy()
    for name in ("to", "group", "numbers"):
        query.pop(name, None)
    query.update(changes)
    return f"?{query.urlencode()}" if query else ""


def matching(address: EntityAddress, narrowed: MessageFilter, actor: Actor) -> tuple[list[int], bool]:
    """The numbers of the messages that match a filter, oldest first, and whether these are all."""
    numbers: list[int] = []
    cursor, deadline = None, time.monotonic() + SEARCH_SECONDS
    while True:
        listing = reads.list_messages(
            address, Tab.ACTIVE, filter=narrowed, cursor=cursor, limit=1_000, newest_first=False, actor=actor
        )  # fmt: skip
        numbers += [row.sequence_number for row in listing.rows]
        cursor = listing.next_cursor
        if cursor is None:
            return numbers[:MOST_MATCHING], len(numbers) <= MOST_MATCHING
        if len(numbers) >= MOST_MATCHING or time.monotonic() > deadline:
            return numbers[:MOST_MATCHING], False


def _named(which: Which) -> str:
    numbers = which.numbers if which.selected else None
    if not numbers or len(numbers) == 1:
        return which.words
    return numbered(numbers) + (f", only {origin_words(which.of)}" if which.of else "")


def _by_count(left: Mapping[Left, int]) -> Sequence[tuple[Left, int]]:
    return sorted(left.items(), key=lambda pair: -pair[1])
