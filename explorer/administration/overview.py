"""The first page of Administration: whether all is well, in one sentence, and only what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.models import ArchiveSlice
from broker_core.runtime import room
from explorer import sandbox_names
from explorer.frames import background_tasks, presenters
from explorer.frames.background_tasks import Sweep
from explorer.frames.shell import page, show
from explorer.live.page import Live, live
from explorer.pages import navigation, ready
from explorer.time_bar.clocks import ClockView

from .network import Network, network

REFRESH_SECONDS = 2.0
LONG_SNAPSHOT = timedelta(minutes=10)  # vacuum and the archive wait for a transaction that has been open for so long
ARCHIVE = "archive_events"
KEYS = "explorer:access_keys"
TASKS, STORAGE = "explorer:background_tasks", "explorer:storage"


class Problem(NamedTuple):
    """Something that is not well. what: in a few words. why, and what to do: in sentences. url_name: of the page with details;
    empty: there is none."""

    what: str
    why: str
    url_name: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """What the page is made of. archived: whether any history was archived."""

    tasks: Sequence[Sweep]
    health: reads.Health
    archived: bool
    network: Network

    @property
    def late(self) -> list[Sweep]:
        return [task for task in self.tasks if task.lateness]

    @property
    def sentence(self) -> str:
        size = presenters.filesize(self.health.database_bytes)
        return f"{self._of_tasks} The database uses {size}; {self._of_archive}."

    @property
    def _of_tasks(self) -> str:
        if not self.tasks:
            return "There are no background tasks."
        off = sum(not task.enabled for task in self.tasks)
        late, turned_off = len(self.late), f" {off} {'is' if off == 1 else 'are'} off." if off else ""
        if late:
            return f"{presenters.plural(late, 'background task is', 'background tasks are')} late.{turned_off}"
        return f"All background tasks are on time.{turned_off}"

    @property
    def _of_archive(self) -> str:
        archiver = next((task for task in self.tasks if task.run_name == ARCHIVE), None)
        if archiver is None or not archiver.enabled:
            return "the history is not archived"
        if archiver.lateness:
            return "the archive is behind"
        return "the archive is up to date" if self.archived else "nothing has been archived yet"


@live
@page
@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    state, disk = _state(request), room.disk()
    namespaces = sandbox_names.without(row for row in reads.namespaces(actor=request.actor) if not row.is_system)
    clocks = [ClockView(row.name, row.family, row.is_system, row.clock, request.path) for row in namespaces]
    context = {
        "section": "administration", "tab": "overview", "state": state,
        "problems": [*problems(state, disk), *_open_keys(ready.open_to_others(namespaces))],
        "clocks": [clock for clock in clocks if clock.clock.is_paused or clock.is_otherwise],
    }  # fmt: skip
    return show(
        request,
        "administration/overview",
        context,
        live=Live({"explorer/administration/_overview.html": 0.0, navigation.COUNTS: 0.0}, refresh_seconds=REFRESH_SECONDS),
    )


def _state(request: HttpRequest) -> State:
    health = reads.health(actor=request.actor)
    tasks = background_tasks.sweeps(reads.last_sweep_runs(actor=request.actor), health.read_at)
    archived = ArchiveSlice.objects.filter(state=ArchiveSlice.DONE).aggregate(at=Max("done_at"))["at"]
    return State(tasks, health, archived is not None, network(request.actor))


def problems(state: State, disk: room.Disk | None) -> list[Problem]:
    """What is not well, the worst first."""
    found = []
    if disk and disk.missing:
        found.append(
            Problem(
                "The database's disk is nearly full: sends are refused",
                "Messages can still be received. Receive or purge messages, free some space, or lower VITRINE_DISK_RESERVE_MB.",
                STORAGE,
            )
        )
    if state.network.is_missing:
        found.append(
            Problem(
                "Network clients cannot connect: the listener is not running",
                "make up starts it, unless no port could be opened; its output says why. Elsewhere, run manage.py listen.",
            )
        )
    found += [Problem("Not all ports for network clients are open", problem) for problem in state.network.problems]
    found += [
        Problem(f"{task.name}: {task.lateness}", _reason(task) or "Check that the worker and beat are running.", TASKS)
        for task in state.late
    ]
    found += [
        Problem(f"{task.name}: something was refused", f"{task.did}.", TASKS)
        for task in state.tasks
        if task.is_refused and not task.lateness
    ]
    age = state.health.oldest_snapshot_age
    if age and age > LONG_SNAPSHOT:
        holder = state.health.oldest_snapshot_by
        why = f"It is held by {holder}. Cleaning up and archiving wait until it ends."
        found.append(Problem(f"A database transaction has been open for {presenters.age(age)}", why, STORAGE))
    return found


def _open_keys(names: Sequence[str]) -> list[Problem]:
    if not names:
        return []
    why = f"WELL_KNOWN_KEYS is “everywhere”: whoever reaches this site’s ports has all rights in {' and '.join(names)}. "
    return [Problem("Other machines may use published keys", why + "Replace their keys, or set it to “loopback”.", KEYS)]


def _reason(task: Sweep) -> str:
    return (task.last.error or "") if task.last else ""
