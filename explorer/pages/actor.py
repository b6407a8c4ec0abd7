"""The page of an actor: what it sends and receives, what it holds, its failures, its connections and its latest events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.models import SharedAccessPolicy, StorageAccount
from broker_core.reads import ActorActivity, ActorInEntity, EntityFilter, Event, EventFilter, LockFilter, Locks
from explorer import sandbox_names
from explorer.charts import changes
from explorer.charts.changes import Deploy
from explorer.frames import connections, questions, releasing
from explorer.frames.actors import BROKER, ActorKind, ShownActor, shown_actor
from explorer.frames.connections import ConnectionLine
from explorer.frames.family import installed
from explorer.frames.shell import Act, page, show, shown_or_acted_on
from explorer.frames.vocabulary import condition
from explorer.live.page import Live, LiveRequest, live
from explorer.models import AuditRecord

EVENTS = 25  # the latest ones
LOCKS = 50
MOST_NAMED = 20  # that a search offers
DEPLOYS, DEPLOYS_WITHIN = 5, timedelta(days=7)
SECONDS = 1.0  # between two drawings
REFRESH_SECONDS = 2.0

SENT = (EventKind.SENT, EventKind.SCHEDULED, EventKind.PUBLISHED)
RECEIVED = (EventKind.RECEIVED, EventKind.RECEIVED_AND_DELETED)
COMPLETED = (EventKind.COMPLETED, EventKind.RECEIVED_AND_DELETED)
ABANDONED = (EventKind.ABANDONED,)
DEAD = (EventKind.DEAD_LETTERED,)
LOST = (EventKind.LOCK_LOST, EventKind.SETTLE_REFUSED)


@dataclass(frozen=True, slots=True)
class Work:
    """What an actor did: in an entity, or in all. sends, receives: messages a second, recently."""

    sends: float
    receives: float
    sent: int
    received: int
    completed: int
    abandoned: int
    dead: int
    lost: int

    @property
    def failures(self) -> int:
        return self.abandoned + self.dead + self.lost


@dataclass(frozen=True, slots=True)
class WorkLine:
    """A line of the table: the work in an entity."""

    address: EntityAddress
    family: Family
    is_deleted: bool
    work: Work
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class ActorFacts:
    """What is known of an actor."""

    activity: ActorActivity
    locks: Locks
    events: tuple[Event, ...]
    connections: tuple[ConnectionLine, ...]

    @property
    def is_known(self) -> bool:
        return bool(self.activity.entities or self.locks.rows or self.events or self.connections)

    @property
    def namespaces(self) -> list[str]:
        """Those in which it acts."""
        addresses = [*(entity.address for entity in self.activity.entities), *(lock.address for lock in self.locks.rows)]
        return list(dict.fromkeys(address.namespace for address in addresses))


@live
@page
@require_http_methods(["GET", "POST"])
def actor(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """GET shows the actor; POST releases one of its locks."""
    if kind not in list(ActorKind):
        raise EntityNotFound(name, "actor")
    who = ShownActor(ActorKind(kind), name)
    canonical = shown_actor(who.stored)
    if canonical != who:
        if canonical.client or isinstance(request, LiveRequest):
            raise EntityNotFound(name, "actor")
        return HttpResponseRedirect(canonical.url)
    return shown_or_acted_on(request, lambda done=Act(): _show(request, who, done), lambda: releasing.release_posted(request))


def _show(request: HttpRequest, who: ShownActor, done: Act) -> HttpResponse:
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=True)
    facts = _facts(request, who, hidden)
    if not facts.is_known and not _exists(request, who):
        raise EntityNotFound(who.name, "actor")
    lines = [_line(entity, facts.activity.seconds) for entity in facts.activity.entities]
    families = {row.name: row.family for row in reads.namespaces(actor=request.actor)}
    context: dict[str, Any] = {
        "section": "",
        "who": who,
        "filters": {key: condition(key, who.stored) for key in ("by", "holder", "actor")},
        "facts": facts,
        "total": work_of(facts.activity.entities, facts.activity.seconds),
        "last_at": max(filter(None, (line.last_at for line in lines)), default=None),
        "lines": lines,
        "questions": questions_of(facts.activity.entities, who.stored),
        "deploys": deploys_of(facts.namespaces, facts.activity.read_at),
        "events": [(event, families.get(event.address.namespace) if event.address else None) for event in facts.events],
        "error": done.error,
    }
    personal = who.kind is ActorKind.USER or sandbox_names.hides_others(request.user, request.actor)
    parts = Live({"explorer/_actor.html": SECONDS}, refresh_seconds=REFRESH_SECONDS, personal=personal)
    return show(request, "actor", context, status=done.status, live=parts)


def named(text: str, request: HttpRequest) -> list[ShownActor]:
    """The actors with this text in their name that sent or received recently, and a user or key of exactly this name."""
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=True)
    flows = reads.flows(actor=request.actor).counts
    recent = {shown_actor(flow.actor) for namespace, flow in flows if flow.actor and namespace not in hidden}
    found = {actor for actor in recent if text.lower() in actor.name.lower()}
    users = get_user_model().objects.filter(username__iexact=text).values_list("username", flat=True)
    policies = SharedAccessPolicy.objects.filter(name__iexact=text).values_list("name", flat=True)
    accounts = StorageAccount.objects.filter(namespace__name__iexact=text).values_list("namespace__name", flat=True)
    found |= {ShownActor(ActorKind.USER, name) for name in users}
    found |= {ShownActor(ActorKind.KEY, name) for name in (*policies, *accounts)}
    return sorted(found, key=lambda actor: (actor.name.lower(), actor.kind))[:MOST_NAMED]


def _facts(request: HttpRequest, who: ShownActor, hidden: tuple[str, ...]) -> ActorFacts:
    entities = EntityFilter(include_hidden=True, include_system=True, except_namespaces=hidden)
    searched = EventFilter(actor=who.stored, except_namespaces=hidden)
    connected = connections.lines([pages.connections for pages in installed()], request.actor, of_actor=who.stored)
    return ActorFacts(
        reads.actor_activity(who.stored, except_namespaces=hidden, actor=request.actor),
        reads.locks(LockFilter(entities, actor=who.stored), limit=LOCKS, actor=request.actor),
        reads.events(searched, limit=EVENTS, max_scanned=reads.MOST_ACTOR_EVENTS, actor=request.actor).rows,
        tuple(line for line in connected if line.namespace not in hidden),
    )


def _exists(request: HttpRequest, who: ShownActor) -> bool:
    """Whether an actor without recent events exists: it has an account or a key, or something older is recorded of it."""
    if who == BROKER or isinstance(request, LiveRequest):
        return True
    if who.kind is ActorKind.USER and get_user_model().objects.filter(username=who.name).exists():
        return True
    if who.kind is ActorKind.KEY and _has_key(who.name):
        return True
    if AuditRecord.objects.filter(actor=who.stored).exists():
        return True
    return reads.actor_known(who.stored, actor=request.actor)


def _has_key(name: str) -> bool:
    """Whether a shared-access policy or a storage account has this name."""
    policies, accounts = SharedAccessPolicy.objects.filter(name=name), StorageAccount.objects.filter(namespace__name=name)
    return policies.exists() or accounts.exists()


def work_of(entities: Iterable[ActorInEntity], seconds: float) -> Work:
    """What was done in these entities together. seconds: what the recent counts cover."""
    entities = list(entities)

    def of(kinds: Collection[EventKind]) -> int:
        return sum(_sum(entity.counts, kinds) for entity in entities)

    def rate(kinds: Collection[EventKind]) -> float:
        return sum(_sum(entity.recent, kinds) for entity in entities) / seconds

    return Work(rate(SENT), rate(RECEIVED), *map(of, (SENT, RECEIVED, COMPLETED, ABANDONED, DEAD, LOST)))


def _sum(counts: Mapping[EventKind, int], kinds: Iterable[EventKind]) -> int:
    return sum(counts.get(kind, 0) for kind in kinds)


def _line(entity: ActorInEntity, seconds: float) -> WorkLine:
    return WorkLine(entity.address, entity.family, entity.is_deleted, work_of([entity], seconds), entity.last_at)


def questions_of(entities: Iterable[ActorInEntity], stored: str) -> list[tuple[str, str]]:
    """The questions about what an actor received, titles and addresses: about the entity, or about the namespace of most of its
    entities. stored: as receiver."""
    received = [entity for entity in entities if not entity.is_deleted and _sum(entity.counts, RECEIVED)]
    if not received:
        return []
    [(namespace, _)] = Counter(entity.address.namespace for entity in received).most_common(1)
    of = {"queue": received[0].entity_id} if len(received) == 1 else {"namespace": namespace}
    asked = {"who": {"receiver": stored}}
    if work_of(received, 1).lost:
        asked["locks"] = {}
    return [(questions.TITLES[slug], questions.question_url(slug, **of, **chosen)) for slug, chosen in asked.items()]


def deploys_of(namespaces: Iterable[str], end: datetime) -> list[tuple[Deploy, str]]:
    """The newest deploys in these namespaces, each with its namespace."""
    found = [(mark, name) for name in namespaces for mark in changes.deploys(name, end - DEPLOYS_WITHIN, end)]
    return sorted(found, key=lambda item: item[0].at, reverse=True)[:DEPLOYS]
