"""Faults on demand: an operator kills, slows or fails a program of the demo, cuts its connection, or stops a background task.

Each fault ends by itself. The runner applies those of programs (runner.py). Those of background tasks take effect at once, and
the runner undoes them when they are over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.db import Error, connection, transaction
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, PeriodicTasks

from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.types import Actor, Right
from broker_core.store import connections
from explorer.models import Fault, FaultKind

LASTS = {
    FaultKind.KILLED: timedelta(minutes=1),
    FaultKind.SLOW: timedelta(minutes=2),
    FaultKind.FAILING: timedelta(minutes=1),
    FaultKind.DISCONNECTED: timedelta(seconds=5),
    FaultKind.STOPPED: timedelta(minutes=1),
}
PROGRAM_KINDS = (FaultKind.FAILING, FaultKind.SLOW, FaultKind.KILLED, FaultKind.DISCONNECTED)
DATABASE = ""  # the target: all connections of the demo to the database
SLOWER = 6  # times


def start(kind: FaultKind, target: str, actor: Actor) -> Fault:
    """Start a fault, in place of one that runs on the same target.

    Raises NotAuthorized without Right.OPERATE, and NotAllowed for a background task that is not enabled.
    """
    actor.require(Right.OPERATE, "the demo")
    with transaction.atomic():
        if kind is FaultKind.STOPPED:
            _stop_task(target)
        now = timezone.now()
        values = {"kind": kind, "started_at": now, "until": now + LASTS[kind], "started_by": str(actor)}
        return Fault.objects.update_or_create(target=target, defaults=values)[0]


def end(target: str, actor: Actor) -> None:
    """End a fault before its time. Nothing happens if it is over."""
    actor.require(Right.OPERATE, "the demo")
    with transaction.atomic():
        _undo(list(Fault.objects.select_for_update().filter(target=target)))


def end_all(actor: Actor) -> None:
    """End all faults before their time."""
    actor.require(Right.OPERATE, "the demo")
    with transaction.atomic():
        _undo(list(Fault.objects.select_for_update()))


def undo_ended() -> None:
    """Undo what faults that are over have left."""
    with transaction.atomic():
        _undo(list(Fault.objects.select_for_update(skip_locked=True).filter(until__lte=timezone.now())))


def running() -> list[Fault]:
    """The faults that run, those that end first before the others."""
    return list(Fault.objects.filter(until__gt=timezone.now()).order_by("until", "target"))


def check(kind: str, target: str, programs: Mapping[str, object]) -> FaultKind:
    """The kind. Raises InvalidArgument for one that does not exist, or that the target cannot have."""
    if kind not in list(FaultKind):
        raise InvalidArgument("kind", f"must be one of {', '.join(FaultKind)}")
    fault_kind = FaultKind(kind)
    if fault_kind is FaultKind.STOPPED:
        return fault_kind
    if target == DATABASE and fault_kind is not FaultKind.DISCONNECTED:
        raise InvalidArgument("kind", "of the database connections must be disconnected")
    if target != DATABASE and target not in programs:
        raise InvalidArgument("target", f"'{target[:80]}' is not a program of the demo")
    return fault_kind


def _stop_task(name: str) -> None:
    task = PeriodicTask.objects.select_for_update().filter(name=name).first()
    if task is None:
        raise InvalidArgument("target", f"'{name[:80]}' is not a background task")
    if not task.enabled and not Fault.objects.filter(target=name).exists():
        raise NotAllowed(f"The background task '{name}' is not enabled, so it cannot be stopped.")
    _set_enabled([name], False)


def _undo(faults: list[Fault]) -> None:
    _set_enabled([fault.target for fault in faults if fault.kind == FaultKind.STOPPED], True)
    Fault.objects.filter(pk__in=[fault.pk for fault in faults]).delete()


def _set_enabled(names: list[str], enabled: bool) -> None:
    if names:
        PeriodicTask.objects.filter(name__in=names).update(enabled=enabled, date_changed=timezone.now())
        PeriodicTasks.update_changed()  # an update of rows does not tell Celery beat


class RunningFaults:
    """The faults of programs by target, for the runner; those that are over are undone.

    While the database is away, they are the last known ones.
    """

    def __init__(self) -> None:
        self._last: dict[str, Fault] = {}

    def __call__(self) -> Mapping[str, Fault]:
        try:
            undo_ended()
            self._last = {fault.target: fault for fault in running() if fault.kind != FaultKind.STOPPED}
        except Error:
            connection.close()
        return self._last


def cut_database_connections() -> None:
    """Close the connections of this thread, in which all programs run; the next statement opens new ones."""
    connections.close_all_of_this_thread()
