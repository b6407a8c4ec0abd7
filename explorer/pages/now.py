"""Now, the first page: the health of the broker in a sentence, its problems, the live map, and the last half hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress, Right, SubQueue
from broker_core.reads import EntityFilter, EntityRow
from explorer import sandbox_names
from explorer.charts import changes, sparklines, traffic
from explorer.demo.designed import designed_failures
from explorer.demo.menu import MENU, MENU_SECONDS
from explorer.frames import background_tasks, figures, presenters, questions
from explorer.frames.family import pages_of
from explorer.frames.filtering import group_url
from explorer.frames.forms.queries import NowQuery
from explorer.frames.recent import LARGE, CacheByKey, Recent
from explorer.frames.shell import cleaned, draws, page, show
from explorer.live.page import Live, live
from explorer.map import pages as live_map

from . import attention, navigation
from .attention import Item

SHOWN = 3  # problems in sight: with any number of entities, the map is in sight, too
FOLDED = 9  # that "more" shows below them
MOST = 100  # problems of the whole list
CANDIDATES = 20  # entities of each sort of candidates for the short list
MARKS = 3  # changes that are marked in the charts
HEALTH, CHARTS = "explorer/_now.html", "explorer/_now_charts.html"
HEALTH_SECONDS, CHARTS_SECONDS = 1.0, 5.0  # between two drawings
REFRESH_SECONDS = 2.0  # without an event of an entity that is listed

_late_tasks = Recent(background_tasks.tasks)
health: CacheByKey[tuple[reads.Candidates, reads.Tallies]] = CacheByKey()


@dataclass(frozen=True, slots=True)
class Action:
    """What a person can do about a problem."""

    word: str
    url: str
    icon: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A problem as a row of the list. question: the one about the history that fits it."""

    item: Item
    icon: str
    url: str
    action: Action
    trend: sparklines.Trend | None
    question: Action | None = None

    @property
    def text(self) -> str:
        """Why."""
        return self.item.by_design or self.item.text

    @property
    def name(self) -> str:
        """For screen readers, so that no two links of the list have the same name."""
        entity = self.item.entity
        return f"{entity.address.namespace}/{presenters.shown_path(entity.address)}" if entity else self.item.name

    @property
    def key(self) -> str:
        """Of its element, so that a live update finds it."""
        return f"{self.item.rule}-{self.item.entity.id if self.item.entity else self.item.name.replace(' ', '-')}"


@live
@page
@require_GET
def now(request: HttpRequest) -> HttpResponse:
    query = cleaned(NowQuery(request.GET))
    namespace, is_whole = _namespace(query["namespace"], request), query["list"] == "all"
    context: dict[str, Any] = {"section": "now", "namespace": namespace, "is_whole": is_whole}
    listed: Sequence[Item] = ()
    if draws(request, HEALTH):
        candidates, tallies, age = _read_health(request, namespace, MOST if is_whole else CANDIDATES)
        items = _problems(candidates, () if namespace else _late_tasks.get())
        designed = sum(bool(item.by_design) for item in items)
        listed, unread = items[: MOST if is_whole else SHOWN + FOLDED], max(candidates.entities - len(candidates.facts), 0)
        entries = [_entry(item, request) for item in listed]
        context |= {
            "sentence": attention.sentence(len(items) - designed, designed, at_least=bool(items and unread)),
            "entries": entries if is_whole else entries[:SHOWN],
            "folded": [] if is_whole else entries[SHOWN:],
            "others": len(items) - len(listed) + unread,
            "others_known": not unread,
            "totals": _totals(namespace, tallies),
            "new_minutes": attention.NEW_MINUTES,
            "counted": presenters.age_in_words(age) if age is not None else "",
        }
    if draws(request, CHARTS) and not is_whole:
        points = reads.namespace_traffic(namespace, small_charts_minutes(), actor=request.actor)
        marks = traffic.marked(changes.latest(points[0].at, namespace=namespace)[:MARKS]) if points else []
        context |= {"charts": sparklines.four(points, marks), "marks": marks}
        context["insights"] = f"{reverse('explorer:insights')}?{urlencode({'namespace': namespace or ''})}"
    fragments = {HEALTH: HEALTH_SECONDS, navigation.COUNTS: HEALTH_SECONDS, MENU: MENU_SECONDS}
    watched: list[EntityRow | reads.Name] = [item.entity for item in listed if item.entity]
    picture = None
    if not is_whole:
        context |= live_map.on_now(request, namespace)
        fragments |= {CHARTS: CHARTS_SECONDS} | live_map.FRAGMENTS
        if picture := context["map"]:
            watched += picture.spots.names
    live_parts = Live(
        fragments, entities=watched, refresh_seconds=REFRESH_SECONDS, least_seconds=live_map.FRAMES_SECONDS,
        ways=picture.ways if picture else None, personal=sandbox_names.may_be_one(namespace),
    )  # fmt: skip
    return show(request, "now", context, live=live_parts)


def _problems(candidates: reads.Candidates, tasks: Sequence[background_tasks.Task]) -> list[Item]:
    designed = designed_failures()

    def by_design(item: Item) -> str:
        if item.entity is None:
            return ""
        address, reasons = item.entity.address, item.reason.all if item.reason else ()
        return designed.why(address.namespace, address.path, item.rule, reasons)

    return attention.attention(candidates.facts, tasks, by_design=by_design)


def _read_health(
    request: HttpRequest, namespace: str | None, most: int
) -> tuple[reads.Candidates, reads.Tallies, timedelta | None]:
    """What may need a person, the sums of all entities, and their age if they were kept."""
    actor = request.actor

    def read() -> tuple[reads.Candidates, reads.Tallies]:
        hidden = sandbox_names.may_be_one(namespace)
        entity_filter, limits = EntityFilter(namespace=namespace, include_hidden=hidden), attention.THRESHOLDS
        candidates = reads.attention(
            entity_filter, many_dead=limits.many_dead, new_minutes=attention.NEW_MINUTES, older_than=limits.old_at_least,
            fuller_than=limits.quota_share, most=most, actor=actor,
        )  # fmt: skip
        return candidates, reads.tallies(entity_filter, actor=actor)

    if navigation.counts(request).get("entities", 0) <= LARGE:
        return *read(), None
    (candidates, tallies), age = health.get((namespace, most), read)
    return candidates, tallies, age


def small_charts_minutes() -> int:
    return reads.RECENT_MINUTES + 1  # the first one may have begun before


def _namespace(name: str, request: HttpRequest) -> str | None:
    if not name:
        return None
    exact_name = next((row.name for row in reads.namespaces(actor=request.actor) if row.name.lower() == name.lower()), None)
    if exact_name is None:
        raise EntityNotFound(name, "namespace")
    return exact_name


_MAIN = {  # by rule: the word and the icon of its action, and of its row
    "dead": ("Review", "forward", "dead"),
    "poison": ("Review", "forward", "dead"),
    "receivers": ("Receive", "down", "warning"),
    "old": ("Open queue", "forward", "warning"),
    "disabled": ("Open settings", "gear", "warning"),
    "quota": ("Open queue", "forward", "warning"),
    "task": ("Open tasks", "system", "warning"),
}
_QUESTIONS = {"dead": "lost", "poison": "lost", "receivers": "who", "old": "slow", "quota": "slow"}
_PAGES = {"receivers": "receiver", "disabled": "entity_settings"}  # instead of the entity's page, if the family has it
_RIGHTS = {"receivers": Right.LISTEN, "disabled": Right.MANAGE}


def _entry(item: Item, request: HttpRequest) -> Entry:
    word, icon, mark = _MAIN[item.rule]
    entity, url = item.entity, reverse("explorer:background_tasks")
    target = url
    if entity is not None:
        pages, args = pages_of(entity.family), (entity.address.namespace, entity.address.path)
        url = target = reverse("explorer:entity", args=args)
        if item.rule in ("dead", "poison"):
            target = _group_url(entity, item)
        own_page, right = _PAGES.get(item.rule), _RIGHTS.get(item.rule, Right.BROWSE)
        if own_page and own_page in pages.views and right in request.actor.rights:
            target = reverse(f"explorer:{own_page}", args=("main", *args) if own_page == "receiver" else args)
        elif own_page:
            word, icon = "Open queue", "forward"
    trend = sparklines.trend(item.trend, "Dead letters" if item.rule == "dead" else "Messages")
    return Entry(item, mark, url, Action(word, target, icon), trend, _question(item))


def _question(item: Item) -> Action | None:
    """The question that a problem of an entity raises, with its reason, and of the time since it began, if that is known."""
    slug = _QUESTIONS.get(item.rule)
    if slug is None or item.entity is None or item.entity.kind not in questions.ANALYSED:
        return None
    chosen = {"reason": item.reason.reason if item.reason else "", **questions.range_since(item.since, item.entity.clock.now)}
    return Action(questions.TITLES[slug], questions.question_about(item.entity, slug, **chosen), "chart")


def _group_url(entity: EntityRow, item: Item) -> str:
    """The dead letters with the reason that the row names, or all of the entity's."""
    subqueue = SubQueue.MAIN
    if item.rule == "dead":
        subqueue = SubQueue.DEAD_LETTER if entity.counts.dead_letter else SubQueue.TRANSFER_DEAD_LETTER
    address = EntityAddress(entity.address.namespace, entity.address.path, subqueue)
    return group_url(address, reads.exactly("reason", item.reason.reason) if item.reason else "")


@dataclass(frozen=True, slots=True)
class Total:
    """A number beside the sentence. after: the words behind it."""

    name: str
    text: str
    after: str
    url: str


def _totals(namespace: str | None, tallies: reads.Tallies) -> list[Total]:
    counted = {figure.name: count for figure, count in figures.sums(figures.SEVERAL, tallies.rows)}
    entities = reverse("explorer:namespace", args=[namespace]) if namespace else reverse("explorer:entities")
    sent = sum(row.sent_rate for row in tallies.rows if row.holds_messages)
    completed = sum(row.completed_rate for row in tallies.rows)
    failed = reverse("explorer:dead_letters") + (f"?{urlencode({'q': f'{namespace}/'})}" if namespace else "")
    dead = counted["dead"]
    return [
        Total("sent", f"{presenters.per_minute(sent)}/min", "in", f"{entities}?sort=-sent"),
        Total("completed", f"{presenters.per_minute(completed)}/min", "out", f"{entities}?sort=-completed"),
        Total("available", f"{counted['available']:,}", "available", f"{entities}?sort=-available"),
        Total("held", f"{counted['held']:,}", "locked", f"{entities}?sort=-held"),
        Total("dead", f"{dead:,}", "dead letter" if dead == 1 else "dead letters", failed),
    ]
