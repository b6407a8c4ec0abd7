"""The inbox: groups of the messages that failed, over all entities and families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.reads import DeadGroup
from explorer import sandbox_names
from explorer.frames import entity_conditions, view_menu
from explorer.frames.filtering import group_url
from explorer.frames.shell import cleaned, page, show, targets
from explorer.frames.view_menu import ViewMenu
from explorer.frames.vocabularies import DEAD_LETTERS
from explorer.frames.vocabulary import TermsField, canonical, field_of
from explorer.live.page import Live, live
from explorer.models import DeadLetterNote

from . import notes

SECONDS = 5.0  # the newest messages of all lists are grouped so often while somebody looks
SECONDS_OF_MANY = 20.0
MANY = 50_000
TREND = 20  # the height of a trend's picture


class InboxQuery(forms.Form):
    """all: also system entities and sandboxes."""

    all = forms.BooleanField(required=False)


@dataclass(frozen=True, slots=True)
class Line:
    """A group in the inbox. share: of all examined, in percent. bars: of its trend in twelfths of an hour, (x, y, height) in a
    picture 20 high; a period without failures is a line."""

    group: DeadGroup
    note: DeadLetterNote | None
    share: float
    bars: tuple[tuple[int, int, int], ...]

    @property
    def url(self) -> str:
        return group_url(self.group.address, self.group.filter)

    @property
    def recent(self) -> int:
        """How many failed in the last five minutes."""
        return self.group.recent[-1]

    @property
    def recent_hour(self) -> int:
        return sum(self.group.recent)

    @property
    def percent(self) -> str:
        return f"{self.share:.0f} %" if self.share >= 1 else "<1 %"

    @property
    def bar(self) -> int:
        """The length of the share's bar, of 100."""
        return max(1, round(self.share))

    @property
    def dom_id(self) -> str:
        return f"g-{self.group.entity_id}-{int(self.group.address.subqueue)}-{self.group.newest}"


@live
@page
@require_GET
def inbox(request: HttpRequest) -> HttpResponse:
    if redirect := canonical(request, DEAD_LETTERS):
        return redirect
    query, field = cleaned(InboxQuery(request.GET)), field_of(request, DEAD_LETTERS)
    context = {
        "section": "dead_letters",
        "filter": field,
        "view": ViewMenu("dead-letter-list", hidden=view_menu.hidden(request.GET, is_shown=query["all"])),
    }
    live_part = Live({})
    if not field.problem:
        groups, live_part = _groups(request, field, include_system=query["all"])
        context |= groups
    fragment = "_inbox" if targets(request, "inbox") else "_groups"
    return show(request, "dead_letters/inbox", context, fragment=f"dead_letters/{fragment}", status=field.status, live=live_part)


def _groups(request: HttpRequest, field: TermsField, *, include_system: bool) -> tuple[dict[str, Any], Live]:
    """The context of the groups, and their live parts."""
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=include_system)
    entities = entity_conditions.filter_of(
        field.terms, include_hidden=True, include_system=include_system, except_namespaces=hidden
    )
    dead_groups = reads.dead_groups(entities, actor=request.actor)
    groups = [group for group in dead_groups.groups if _mentions(group, (field.terms.get("reason") or "").lower())]
    written = notes.of_groups((group.address, group.filter) for group in groups)
    context = {
        "own_count": None if field else dead_groups.total,
        "dead_groups": dead_groups,
        "lines": [_line(group, written.get((group.address, group.filter)), dead_groups.examined) for group in groups],
        "most_groups": reads.MOST_GROUPS,
    }
    live_part = Live(
        {"explorer/dead_letters/_inbox.html": 0.0, "explorer/_nav_counts.html": 0.0},
        refresh_seconds=SECONDS_OF_MANY if dead_groups.scanned > MANY else SECONDS,
        personal=include_system and sandbox_names.hides_others(request.user, request.actor),
    )
    return context, live_part


def _mentions(group: DeadGroup, text: str) -> bool:
    return not text or any(text in part.lower() for part in (group.reason, group.description, group.origin))


def _line(group: DeadGroup, note: DeadLetterNote | None, examined: int) -> Line:
    heights = [1 + round((TREND - 1) * count / max(1, *group.recent)) for count in group.recent]
    bars = tuple((6 * place, TREND - height, height) for place, height in enumerate(heights))
    return Line(group, note, 100 * group.count / max(1, examined), bars)
