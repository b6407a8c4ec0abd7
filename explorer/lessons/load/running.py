"""Starts, changes, runs and stops the load of a sandbox. There is one of a sandbox at a time; it ends with it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from random import Random
from typing import Any

from celery import current_app
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import KombuError

from broker_core import reads
from broker_core.common.errors import BrokerError, EntityNotFound, NotAllowed
from broker_core.common.types import EntityAddress
from broker_core.store import connections
from explorer.frames.family import pages_of
from explorer.models import Load, Sandbox

from .programs import Client, Programs
from .settings import DURATION, MOST_MESSAGES, MOST_RUNNING, MOST_WAITING, LoadSettings

SLICE_SECONDS = 10.0  # of one task
CHECK_SECONDS = 0.5  # between two looks at the settings
LEASE = timedelta(seconds=15)  # for which a load belongs to the worker that runs it, from each look on
LONGEST_SLEEP = 0.1
AFTER_REFUSAL = 1.0  # seconds
STOPPED, OVER, NO_QUEUE = "Stopped", "Ended after 10 minutes", "Ended: its queue was deleted"
SENT_ALL = f"Ended after {MOST_MESSAGES:,} messages"
TASK = "explorer.run_load"  # the Celery task
DEAD = "dead-lettered"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """A load as it is now. end: why it is over; empty: it runs. is_waiting: no worker runs it at the moment. note: what keeps it
    from working as set."""

    settings: LoadSettings
    started_at: datetime
    until: datetime
    count: Mapping[str, int]
    end: str
    is_waiting: bool
    note: str

    @property
    def is_running(self) -> bool:
        return not self.end


def of(sandbox: Sandbox) -> Load | None:
    """The newest load of a sandbox."""
    return Load.objects.filter(sandbox=sandbox).first()


def progress(sandbox: Sandbox) -> Progress | None:
    """None: no load was started in it."""
    load = of(sandbox)
    if load is None:
        return None
    now = timezone.now()
    end = load.end or (OVER if now >= load.until else "")
    is_waiting = not end and load.leased_until < now
    return Progress(
        LoadSettings.read(load.settings), load.started_at, load.until, load.state.get("count", {}), end, is_waiting, load.note
    )


def start(sandbox: Sandbox, queue: str, settings: LoadSettings) -> Load:
    """Start a load, or change the one that runs. Raises NotAllowed, if too many run on this site."""
    now = timezone.now()
    with transaction.atomic():
        running = Load.objects.select_for_update().filter(end="", until__gt=now)
        if any(load.sandbox_id == sandbox.pk for load in running):
            load = change(sandbox, settings)
            if load.leased_until < now - LEASE:  # its worker has died
                transaction.on_commit(lambda: submit(load))
            return load
        if len(running) >= MOST_RUNNING:
            raise NotAllowed(f"{MOST_RUNNING} loads run on this site, the maximum. Wait until one has ended.")
        values = {
            "queue": queue, "settings": settings.as_values, "state": {}, "started_at": now, "until": now + DURATION, "end": "",
            "note": "", "leased_until": now, "lease": "",
        }  # fmt: skip
        load, _ = Load.objects.update_or_create(sandbox=sandbox, defaults=values)
    transaction.on_commit(lambda: submit(load))
    return load


def change(sandbox: Sandbox, settings: LoadSettings) -> Load:
    """Change the settings of the load that runs. Raises NotAllowed, if none does."""
    load = _running(sandbox)
    load.settings = settings.as_values
    load.save(update_fields=["settings"])
    return load


def stop(sandbox: Sandbox) -> None:
    """Stop the load that runs: its receivers release what they hold. Raises NotAllowed, if none runs."""
    load = _running(sandbox)
    load.end = STOPPED
    load.save(update_fields=["end"])


def _running(sandbox: Sandbox) -> Load:
    load = of(sandbox)
    if load is None or load.end or load.until <= timezone.now():
        raise NotAllowed("No load runs in this sandbox. Start one first.")
    return load


def request_slice(load_id: int) -> None:
    """Request a slice of a load from Celery."""
    current_app.send_task(TASK, (load_id,))


def submit(load: Load) -> None:
    """Hand a load to a worker."""
    try:
        request_slice(load.pk)
    except (KombuError, OSError, BrokerError) as problem:
        _log.warning("load %s was not handed to a worker: %s", load.pk, problem)
        Load.objects.filter(pk=load.pk).update(end="Not started: no worker could be reached. Try again")


def run(load_id: int, *, seconds: float = SLICE_SECONDS, dice: Random | None = None) -> bool:
    """Run a load for a while. Returns whether another slice must be requested. Nothing happens if another worker runs it."""
    lease, now = secrets.token_hex(8), timezone.now()
    mine = Load.objects.filter(pk=load_id, leased_until__lte=now)
    if not mine.update(lease=lease, leased_until=now + LEASE):
        return False
    load = Load.objects.select_related("sandbox").filter(pk=load_id).first()
    if load is None:
        return False
    with connections.of(load.sandbox.namespace):
        return _Slice(load, dice or Random()).run(seconds)


def play(address: EntityAddress, family: str, settings: LoadSettings, seconds: float) -> dict[str, int]:
    """Put a load on a queue, here and now, for at most so long. Returns what its programs did, by word."""
    programs = Programs(address, client_of(family), settings, {}, Random())
    began = now = time.monotonic()
    programs.change(settings, began)
    while (now := time.monotonic()) - began < seconds:
        programs.may_send = programs.count["sent"] - programs.count["completed"] < MOST_WAITING
        time.sleep(max(0.0, min(programs.tick(now) - time.monotonic(), LONGEST_SLEEP)))
    programs.end_all()
    return dict(programs.count) | {DEAD: programs.client.dead(address)}


def count(namespace: str) -> Mapping[str, int]:
    """What the programs of the newest load in a sandbox did, by word."""
    load = Load.objects.filter(sandbox__namespace=namespace).first()
    counted: Mapping[str, int] = load.state.get("count", {}) if load else {}
    return counted


def client_of(family: str) -> Client:
    """How programs of a load use queues of this family."""
    client: Client = import_module(pages_of(family).lessons).LoadClient()
    return client


class _Slice:
    """A slice of a load. It looks at the row twice a second, which has the settings, and whether the load was stopped."""

    def __init__(self, load: Load, dice: Random):
        self.load = load
        self.address = EntityAddress(load.sandbox.namespace, load.queue)
        settings = LoadSettings.read(load.settings)
        client = client_of(load.sandbox.family)
        self.programs = Programs(self.address, client, settings, load.state.get("count", {}), dice)

    def run(self, seconds: float) -> bool:
        try:
            return self._run(seconds)
        finally:
            self._end_what_cannot_be_handed_over()

    def _end_what_cannot_be_handed_over(self) -> None:
        if not self.programs.client.is_portable:
            self.programs.end_all()

    def _run(self, seconds: float) -> bool:
        began = time.monotonic()
        self.programs.restore(self.load.state.get("held", {}), began)
        next_look = began
        while True:
            now = time.monotonic()
            if now >= next_look:
                next_look = now + CHECK_SECONDS
                if not self._look(now):
                    return False
                if now - began >= seconds:
                    return self._hand_over()
            time.sleep(max(0.0, min(self._act(now) - time.monotonic(), LONGEST_SLEEP)))

    def _act(self, now: float) -> float:
        """Let the programs act. Returns when they are due again."""
        try:
            due = self.programs.tick(now)
        except BrokerError as refusal:
            self.load.note = str(refusal)[:300]
            return now + AFTER_REFUSAL
        return due

    def _look(self, now: float) -> bool:
        """Follow the row, and write to it what was done. Returns whether the load continues."""
        row = Load.objects.filter(pk=self.load.pk, lease=self.load.lease).first()
        if row is None:  # its sandbox was removed, or another worker took over
            return False
        end = row.end or (OVER if timezone.now() >= row.until else "")
        try:
            counts = reads.counts(self.address)
        except EntityNotFound:
            end, counts = NO_QUEUE, None
        waiting = counts.total - counts.dead_letter if counts else 0
        self.programs.count[DEAD] = self.programs.client.dead(self.address) if counts else 0
        if not end and self.programs.count["sent"] >= MOST_MESSAGES and not waiting:
            end = SENT_ALL
        self.programs.may_send = waiting < MOST_WAITING
        note = "" if self.programs.may_send else f"{MOST_WAITING:,} messages wait, the maximum: the senders pause."
        self.load.note, note = "", self.load.note or note
        if end:
            self.programs.end_all()
        else:
            self.programs.change(LoadSettings.read(row.settings), now)
        self._write(end=end, note=note, leased_until=timezone.now() + (timedelta(0) if end else LEASE))
        return not end

    def _hand_over(self) -> bool:
        self._end_what_cannot_be_handed_over()
        self._write(leased_until=timezone.now())
        return True

    def _write(self, **values: Any) -> None:
        mine = Load.objects.filter(pk=self.load.pk, lease=self.load.lease)
        if not values.get("end"):
            values.pop("end", None)  # it may have been stopped since it was read
        mine.update(state=self.programs.as_values(), **values)
