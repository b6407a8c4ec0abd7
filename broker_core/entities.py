"""Namespaces, queues and clocks: create, change, delete, get, list; what a setting is and where it comes from.

Each function is a use case (see store.driver). Changing needs the right MANAGE, reading BROWSE. They raise EntityNotFound,
EntityExists, InvalidArgument (with the setting, the value and what is allowed), NotAllowed and NotAuthorized.

The system namespace carries Vitrine's own work: only processes change its queues, and its clock is always the real one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE
from django.conf import settings as django_settings

from . import policies
from .semantics.durations import human
from .semantics.entity_settings import SETTINGS, changed_settings, check_namespace_name, check_path, queue_settings
from .semantics.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed
from .semantics.limits import RELAXED, STRICT, Limits
from .semantics.types import Actor, EntityAddress, EntityKind, EntityStatus, ExpiryMode, HistoryLevel, QueueSettings, Right, Tier
from .store.driver import Atomically, Steps, use_case
from .store.statements import call

LAST_YEAR_OF_A_CLOCK = 3000  # far from what a datetime can hold, so that adding a time-to-live to it always works


@dataclass(frozen=True, slots=True)
class Namespace:
    """A set of entities with one clock."""

    id: int
    name: str
    description: str
    is_system: bool
    tier: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as stored; created_at and updated_at are the database's time."""

    id: int
    address: EntityAddress
    settings: QueueSettings
    is_system: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Clock:
    """What a namespace's clock shows. rate: its seconds in a real second, 0 while paused. is_manual: it left real time once."""

    namespace: str
    now: datetime
    rate: float
    is_manual: bool


def limits() -> Limits:
    """The ranges in force: those of the service, or wider ones where the Django setting VITRINE_LIMITS is "relaxed".

    Outside Django (a Celery project that names its database by a DSN) there are no settings: those of the service.
    """
    in_django = django_settings.configured or bool(os.environ.get(ENVIRONMENT_VARIABLE))
    return RELAXED if in_django and getattr(django_settings, "VITRINE_LIMITS", "strict") == "relaxed" else STRICT


# Namespaces


@use_case
def create_namespace(name: str, description: str = "", *, is_system: bool = False, actor: Actor | None = None) -> Steps:
    """Create a namespace with its policy RootManageSharedAccessKey, which has all rights. Raises EntityExists."""
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, name)
    check_namespace_name(name)
    _check_description(description)

    def steps():
        rows = yield call("create_namespace", name=name, description=description, is_system=is_system, tier=Tier.STANDARD)
        if not rows:
            raise EntityExists(name)
        yield from policies.insert(rows[0].id, None, policies.ROOT_POLICY, send=True, listen=True, manage=True)
        return Namespace(**rows[0]._asdict())

    return (yield Atomically(steps()))


@use_case
def ensure_namespace(name: str, description: str = "", *, is_system: bool = False, actor: Actor | None = None) -> Steps:
    """The namespace of this name, created if it is not there; one that is there is left as it is."""
    try:
        return (yield from get_namespace.steps(name, actor=actor))
    except EntityNotFound:
        pass
    try:
        return (yield from create_namespace.steps(name, description, is_system=is_system, actor=actor))
    except EntityExists:  # another process was faster
        return (yield from get_namespace.steps(name, actor=actor))


@use_case
def get_namespace(name: str, *, actor: Actor | None = None) -> Steps:
    """One namespace; its name is compared without case."""
    (actor or Actor.local()).require(Right.BROWSE, name)
    rows = yield call("get_namespace", name=name)
    if not rows:
        raise EntityNotFound(name)
    return Namespace(**rows[0]._asdict())


@use_case
def list_namespaces(*, actor: Actor | None = None) -> Steps:
    """All namespaces by name."""
    (actor or Actor.local()).require(Right.BROWSE, "namespaces")
    rows = yield call("list_namespaces")
    return [Namespace(**row._asdict()) for row in rows]


@use_case
def update_namespace(name: str, *, description: str, actor: Actor | None = None) -> Steps:
    """Change a namespace's description; its name is part of every address and stays."""
    namespace = yield from _changeable_namespace(name, actor)
    _check_description(description)
    rows = yield call("update_namespace", namespace_id=namespace.id, description=description)
    return Namespace(**rows[0]._asdict())


@use_case
def delete_namespace(name: str, *, actor: Actor | None = None) -> Steps:
    """Delete a namespace that has no queue, neither a present one nor a deleted one whose history is still kept."""
    yield from _changeable_namespace(name, actor)

    def steps():
        rows = yield call("lock_namespace", name=name)
        if not rows:
            raise EntityNotFound(name)
        if rows[0].entities:
            raise NotAllowed(f"The namespace '{name}' has {rows[0].entities} queues. Delete them first.")
        if rows[0].deleted_entities:
            raise NotAllowed(
                f"The namespace '{name}' still keeps the history of {rows[0].deleted_entities} deleted queues. "
                "It can be deleted when the retention of events has passed."
            )
        yield call("delete_namespace", namespace_id=rows[0].id)

    yield Atomically(steps())


# Queues


@use_case
def create_queue(
    address: EntityAddress, settings: QueueSettings | None = None, *, actor: Actor | None = None, **changes: Any
) -> Steps:
    """Create a queue; what is not given takes the service's default (SB 1.3). Its numbers start at 1 (SB-241).

    settings, changes: the settings as a whole, single ones, or both; single ones win.
    Returns the Queue. Raises EntityExists where the path is taken, in whatever casing.
    """
    namespace = yield from _namespace_for_queues(address, actor)
    check_path(address.path)
    given = {**(_values(settings) if settings else _defaults(namespace.is_system)), **changes}
    stored = queue_settings(given, limits())
    rows = yield call(
        "create_entity",
        namespace_id=namespace.id,
        path=address.path,
        kind=EntityKind.QUEUE,
        topic_id=None,
        dead_lettering_on_filter_evaluation_exceptions=True,
        **_parameters(stored),
    )
    if not rows:
        raise EntityExists(str(address))
    return _queue(rows[0])


@use_case
def ensure_queue(
    address: EntityAddress, settings: QueueSettings | None = None, *, actor: Actor | None = None, **changes: Any
) -> Steps:
    """The queue of this address, created with these settings if it is not there; one that is there is left as it is."""
    try:
        return (yield from get_queue.steps(address, actor=actor))
    except EntityNotFound:
        pass
    try:
        return (yield from create_queue.steps(address, settings, actor=actor, **changes))
    except EntityExists:  # another process was faster
        return (yield from get_queue.steps(address, actor=actor))


@use_case
def update_queue(address: EntityAddress, *, actor: Actor | None = None, **changes: Any) -> Steps:
    """Change settings of a queue; the others stay. Locks are kept (SB-907), and last as long as they were given.

    A new default time-to-live holds at once for waiting messages without one of their own (SB-023, SB-921). Returns the Queue.
    """
    yield from _namespace_for_queues(address, actor)

    def steps():
        current = yield from _lock_queue(address)
        wanted = changed_settings(current.settings, changes, limits())
        rows = yield call(
            "update_entity", entity_id=current.id, dead_lettering_on_filter_evaluation_exceptions=True, **_parameters(wanted)
        )
        return _queue(rows[0])

    return (yield Atomically(steps()))


@use_case
def delete_queue(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """Delete a queue with its dead-letter queue (SB-240). Its name is free at once; the sweep removes its messages."""
    yield from _namespace_for_queues(address, actor)

    def steps():
        current = yield from _lock_queue(address)
        yield call("delete_entity", entity_id=current.id)

    yield Atomically(steps())


@use_case
def get_queue(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """One queue; its address is compared without case. Looking is no activity (SB-196)."""
    (actor or Actor.local()).require(Right.BROWSE, address)
    rows = yield call("get_entity", namespace=address.namespace, path=address.path)
    if not rows:
        raise EntityNotFound(str(address))
    return _queue(rows[0])


@use_case
def list_queues(namespace: str | None = None, *, actor: Actor | None = None) -> Steps:
    """The queues of a namespace, or of all, by address."""
    (actor or Actor.local()).require(Right.BROWSE, namespace or "namespaces")
    rows = yield call("list_entities", namespace=namespace)
    return [_queue(row) for row in rows]


@use_case
def effective(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """Each setting of a queue as (value, source): "default" where it is what a new queue gets, else "entity"."""
    queue = yield from get_queue.steps(address, actor=actor)
    defaults = _defaults(queue.is_system)
    return {name: (value, "default" if value == defaults[name] else "entity") for name, value in _values(queue.settings).items()}


# Clocks (design D6)


@use_case
def get_clock(namespace: str, *, actor: Actor | None = None) -> Steps:
    """What the namespace's clock shows, and how fast it runs."""
    (actor or Actor.local()).require(Right.BROWSE, namespace)
    rows = yield call("get_clock", name=namespace)
    if not rows:
        raise EntityNotFound(namespace)
    return _clock(rows[0])


@use_case
def pause_clock(namespace: str, *, actor: Actor | None = None) -> Steps:
    """Stop the namespace's clock where it is; returns the Clock. Statements already running may still have read a little more."""
    return (yield from _set_clock(namespace, actor, step=timedelta(0), rate=0.0))


@use_case
def step_clock(namespace: str, step: timedelta, *, actor: Actor | None = None) -> Steps:
    """Move the namespace's clock forward by `step`, running or paused; returns the Clock. It never goes back."""
    longest = limits().clock_step
    if not isinstance(step, timedelta) or not timedelta(0) <= step <= longest:
        shown = human(step) if isinstance(step, timedelta) else repr(step)
        raise InvalidArgument("step", f"{shown} is out of range: a clock goes forward only, by at most {human(longest)}")
    return (yield from _set_clock(namespace, actor, step=step, rate=None))


@use_case
def resume_clock(namespace: str, rate: float = 1.0, *, actor: Actor | None = None) -> Steps:
    """Let the namespace's clock run on from where it is, `rate` times as fast as real time; returns the Clock."""
    fastest = limits().clock_rate
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not math.isfinite(rate) or not 0 < rate <= fastest:
        raise InvalidArgument("rate", f"{rate!r} is out of range: more than 0, and at most {fastest:,.0f}; to stop it, pause it")
    return (yield from _set_clock(namespace, actor, step=timedelta(0), rate=float(rate)))


def _set_clock(namespace: str, actor: Actor | None, *, step: timedelta, rate: float | None) -> Steps:
    found = yield from _changeable_namespace(namespace, actor)

    def steps():
        rows = yield call("set_clock", namespace_id=found.id, step=step, rate=rate)
        if rows[0].now.year >= LAST_YEAR_OF_A_CLOCK:
            raise InvalidArgument("step", f"the clock of '{namespace}' would pass the year {LAST_YEAR_OF_A_CLOCK}")
        return _clock(rows[0])

    return (yield Atomically(steps()))


# What they share


def _changeable_namespace(name: str, actor: Actor | None) -> Steps:
    (actor or Actor.local()).require(Right.MANAGE, name)
    namespace = yield from get_namespace.steps(name, actor=actor)
    if namespace.is_system:
        raise NotAllowed(
            f"The namespace '{name}' carries Vitrine's own work. It can be neither changed nor deleted, and keeps real time."
        )
    return namespace


def _namespace_for_queues(address: EntityAddress, actor: Actor | None) -> Steps:
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, address)
    if address.subqueue:
        raise InvalidArgument("address", f"'{address}' is a sub-queue: it comes and goes with its queue, whose settings it has")
    namespace = yield from get_namespace.steps(address.namespace, actor=actor)
    if namespace.is_system and actor.kind != "process":
        raise NotAllowed(f"The queues of '{namespace.name}' carry Vitrine's own work; only its processes change them.")
    return namespace


def _lock_queue(address: EntityAddress) -> Steps:
    rows = yield call("lock_entity", namespace=address.namespace, path=address.path)
    if not rows:
        raise EntityNotFound(str(address))
    return _queue(rows[0])


def _defaults(is_system: bool) -> dict[str, Any]:
    """What a new queue gets. The history of the system namespace is off: the sweeps would write about themselves (design D2)."""
    defaults = _values(QueueSettings())
    return {**defaults, "history_level": HistoryLevel.OFF} if is_system else defaults


def _values(settings: QueueSettings) -> dict[str, Any]:
    return asdict(settings)


def _parameters(settings: QueueSettings) -> Mapping[str, Any]:
    stored = {
        "status": str(settings.status),
        "expiry_mode": str(settings.expiry_mode),
        "history_level": int(settings.history_level),
    }
    return {**_values(settings), **stored}


def _queue(row: Any) -> Queue:
    values = {name: getattr(row, name) for name in SETTINGS}
    values |= {
        "status": EntityStatus(row.status),
        "expiry_mode": ExpiryMode(row.expiry_mode),
        "history_level": HistoryLevel(row.history_level),
    }
    address = EntityAddress(row.namespace, row.path)
    return Queue(row.id, address, QueueSettings(**values), row.is_system, row.created_at, row.updated_at)


def _clock(row: Any) -> Clock:
    return Clock(row.name, row.now, row.rate, row.is_manual)


def _check_description(description: str) -> None:
    if not isinstance(description, str) or len(description) > 250 or "\x00" in description:
        raise InvalidArgument("description", "must be a text of at most 250 characters, without NUL characters")
