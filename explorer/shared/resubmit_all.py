"""Bringing back all messages that failed, or one group of them: the frame that families with such a list share.

The page names the groups with what each holds, and asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from broker_core import reads
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.reads import DeadLetterGroup, EntityRow
from explorer.shared.forms.groups import Key, ResubmitForm, group_text

from .shell import Act, about, act, cleaned, show

BATCH = 500  # messages that one transaction brings back


@dataclass(frozen=True, slots=True)
class Way:
    """How messages of a family go back.

    address: the list. verb: what it is called. noun: what they are. list_query: shows the list.
    back:    brings back those of some numbers, and returns their new ones by the old.
    because, goes_to: of a group, why it is there, and the queue that it goes to; empty: to none.
    says: the result in words, of the new numbers and those that were asked for.
    """

    address: EntityAddress
    verb: str
    noun: str
    list_query: str
    back: Callable[[Sequence[int]], dict[int, int]]
    because: Callable[[DeadLetterGroup], str]
    goes_to: Callable[[DeadLetterGroup], str]
    says: Callable[[dict[int, int], Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the page."""

    group: DeadLetterGroup
    because: str
    goes_to: str

    @property
    def count(self) -> int:
        return len(self.group.numbers)

    @property
    def key(self) -> Key:
        return self.group.origin, self.group.reason

    @property
    def alone(self) -> str:
        """Its group, as an address carries it."""
        return group_text(*self.key)


def resubmit_all(request: HttpRequest, entity: EntityRow, way: Way) -> HttpResponse:
    """GET asks, about all or one group; POST brings back what was counted."""
    request.actor.require(Right.OPERATE, way.address)
    given = cleaned(ResubmitForm(request.POST if request.method == "POST" else request.GET))
    lines, found = _lines(way, given["group"], request.actor)
    if request.method != "POST":
        return _ask(request, entity, way, given["group"], lines, found)
    up_to = given["up_to"]
    numbers = sorted(n for line in lines if line.goes_to for n in line.group.numbers if up_to is None or n <= up_to)
    done = act(
        request, way.verb.lower(), way.address, lambda: _in_batches(way, numbers), target=_named(way, given["group"], lines),
        says=lambda new: way.says(new, numbers),
    )  # fmt: skip
    if done.error:
        return _ask(request, entity, way, given["group"], *_lines(way, given["group"], request.actor), done=done)
    main = way.address.main
    return HttpResponseRedirect(reverse("explorer:entity", args=(main.namespace, main.path)) + way.list_query)


def _lines(way: Way, only: Key | None, actor: Actor) -> tuple[list[Line], reads.Groups]:
    found = reads.groups(way.address, actor=actor)
    lines = [Line(group, way.because(group), way.goes_to(group)) for group in found.groups]
    return [line for line in lines if only in (None, line.key)], found


def _in_batches(way: Way, numbers: Sequence[int]) -> dict[int, int]:
    """Each batch is a transaction; where one is refused, those before it are back."""
    new: dict[int, int] = {}
    for at in range(0, len(numbers), BATCH):
        new |= way.back(numbers[at : at + BATCH])
    return new


def _named(way: Way, only: Key | None, lines: Sequence[Line]) -> str:
    """What goes back, as the page and the record of the act name it."""
    if only is None:
        return f"all {way.noun}"
    origin, reason = only
    because = lines[0].because if lines else reason or "no reason given"
    return f"{way.noun}{f' from {origin}' if origin else ''} with the reason: {because}"


def _ask(
    request: HttpRequest,
    entity: EntityRow,
    way: Way,
    only: Key | None,
    lines: Sequence[Line],
    found: reads.Groups,
    *,
    done: Act = Act(),
) -> HttpResponse:
    going = [line for line in lines if line.goes_to]
    context = {
        **about(request, entity),
        "way": way,
        "named": _named(way, only, lines),
        "lines": lines,
        "is_one": only is not None,
        "group": group_text(*only) if only else "",
        "count": sum(line.count for line in going),
        "held": sum(line.group.held for line in lines),
        "up_to": max((line.group.numbers[-1] for line in going if line.count), default=0),
        "found": found,
        "with_origin": any(line.group.origin for line in lines),
        "error": done.error,
    }
    return show(request, "resubmit_all", context, fragment="resubmit_all", status=done.status)
