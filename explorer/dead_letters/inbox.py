"""The inbox: groups of the messages that failed, over all entities and families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.types import EntityAddress, Family
from broker_core.reads import DeadGroup, EntityFilter
from explorer import sandbox_names
from explorer.frames.forms.queries import families, filter_field
from explorer.frames.presenters import SUBQUEUE_SLUGS
from explorer.frames.shell import cleaned, page, show
from explorer.live.page import Live, live
from explorer.models import DeadLetterNote

from . import notes

SECONDS = 5.0  # the newest messages of all lists are grouped so often while somebody looks
SECONDS_OF_MANY = 20.0
MANY = 50_000
TREND = 20  # the height of a trend's picture


class InboxQuery(forms.Form):
    """q: part of the entity's address. why: part of a reason or description. all: also system entities and sandboxes."""

    q = forms.CharField(required=False, max_length=330, label="Entity", widget=filter_field())
    why = forms.CharField(required=False, max_length=200, label="Reason or description")
    family = forms.ChoiceField(required=False, choices=families, label="Family")
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


def group_url(address: EntityAddress, filter: str) -> str:
    """The workbench of the messages that a filter finds in a list of failed messages."""
    url = reverse("explorer:dead_letter_group", args=(SUBQUEUE_SLUGS[address.subqueue], address.namespace, address.path))
    return f"{url}?{urlencode({'filter': filter})}" if filter else url


@live
@page
@require_GET
def inbox(request: HttpRequest) -> HttpResponse:
    form = InboxQuery(request.GET)
    query = cleaned(form)
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=query["all"])
    dead_groups = reads.dead_groups(_filter(query, hidden), actor=request.actor)
    groups = [group for group in dead_groups.groups if _mentions(group, query["why"].strip().lower())]
    written = notes.of_groups((group.address, group.filter) for group in groups)
    filtered = any(query[name] for name in ("q", "why", "family"))
    context = {
        "section": "dead_letters",
        "own_count": None if filtered else dead_groups.total,
        "form": form,
        "query": query,
        "dead_groups": dead_groups,
        "lines": [_line(group, written.get((group.address, group.filter)), dead_groups.examined) for group in groups],
        "filtered": filtered,
        "most_groups": reads.MOST_GROUPS,
    }
    live_part = Live(
        {"explorer/dead_letters/_inbox.html": 0.0, "explorer/_nav_counts.html": 0.0},
        refresh_seconds=SECONDS_OF_MANY if dead_groups.scanned > MANY else SECONDS,
        personal=query["all"] and sandbox_names.hides_others(request.user, request.actor),
    )
    return show(request, "dead_letters/inbox", context, live=live_part)


def _filter(query: dict[str, Any], hidden: tuple[str, ...]) -> EntityFilter:
    return EntityFilter(
        family=Family(query["family"]) if query["family"] else None,
        part=query["q"].strip().lower().replace("/subscriptions/", "/"),
        include_hidden=True,
        include_system=query["all"],
        except_namespaces=hidden,
    )


def _mentions(group: DeadGroup, text: str) -> bool:
    return not text or any(text in part.lower() for part in (group.reason, group.description, group.origin))


def _line(group: DeadGroup, note: DeadLetterNote | None, examined: int) -> Line:
    heights = [1 + round((TREND - 1) * count / max(1, *group.recent)) for count in group.recent]
    bars = tuple((6 * place, TREND - height, height) for place, height in enumerate(heights))
    return Line(group, note, 100 * group.count / max(1, examined), bars)
