"""Resubmits all failed messages, or one group of them: the page that families with such a list share.

It shows the groups with their counts and asks for confirmation.
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

BATCH = 500  # messages per transaction


@dataclass(frozen=True, slots=True)
class Resubmission:
    """How failed messages of a family are resubmitted.

    address: the list. verb: the name of the action. noun: the name of the messages. list_query: the query that shows the list.
    resubmit: (numbers) -> the new numbers by the old ones.
    because, goes_to: of a group, the reason, and the queue that it is moved to; empty: it stays.
    says: (new numbers, requested numbers) -> the result in words.
    """

    address: EntityAddress
    verb: str
    noun: str
    list_query: str
    resubmit: Callable[[Sequence[int]], dict[int, int]]
    because: Callable[[DeadLetterGroup], str]
    goes_to: Callable[[DeadLetterGroup], str]
    says: Callable[[dict[int, int], Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the page: a group."""

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
        """The group as a query value."""
        return group_text(*self.key)


def resubmit_all(request: HttpRequest, entity: EntityRow, plan: Resubmission) -> HttpResponse:
    """GET asks about all messages or one group; POST resubmits those that were counted."""
    request.actor.require(Right.OPERATE, plan.address)
    given = cleaned(ResubmitForm(request.POST if request.method == "POST" else request.GET))
    lines, found = _lines(plan, given["group"], request.actor)
    if request.method != "POST":
        return _ask(request, entity, plan, given["group"], lines, found)
    up_to = given["up_to"]
    numbers = sorted(n for line in lines if line.goes_to for n in line.group.numbers if up_to is None or n <= up_to)
    done = act(
        request, plan.verb.lower(), plan.address, lambda: _in_batches(plan, numbers), target=_named(plan, given["group"], lines),
        says=lambda new: plan.says(new, numbers),
    )  # fmt: skip
    if done.error:
        return _ask(request, entity, plan, given["group"], *_lines(plan, given["group"], request.actor), done=done)
    main = plan.address.main
    return HttpResponseRedirect(reverse("explorer:entity", args=(main.namespace, main.path)) + plan.list_query)


def _lines(plan: Resubmission, only: Key | None, actor: Actor) -> tuple[list[Line], reads.Groups]:
    found = reads.groups(plan.address, actor=actor)
    lines = [Line(group, plan.because(group), plan.goes_to(group)) for group in found.groups]
    return [line for line in lines if only in (None, line.key)], found


def _in_batches(plan: Resubmission, numbers: Sequence[int]) -> dict[int, int]:
    """Resubmit in batches, each in its own transaction. If one fails, the earlier ones stay resubmitted."""
    new: dict[int, int] = {}
    for at in range(0, len(numbers), BATCH):
        new |= plan.resubmit(numbers[at : at + BATCH])
    return new


def _named(plan: Resubmission, only: Key | None, lines: Sequence[Line]) -> str:
    """A description of the messages for the page and the audit."""
    if only is None:
        return f"all {plan.noun}"
    origin, reason = only
    because = lines[0].because if lines else reason or "no reason given"
    return f"{plan.noun}{f' from {origin}' if origin else ''} with the reason: {because}"


def _ask(
    request: HttpRequest,
    entity: EntityRow,
    plan: Resubmission,
    only: Key | None,
    lines: Sequence[Line],
    found: reads.Groups,
    *,
    done: Act = Act(),
) -> HttpResponse:
    going = [line for line in lines if line.goes_to]
    context = {
        **about(request, entity),
        "plan": plan,
        "named": _named(plan, only, lines),
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
