"""GET /healthz: the state of each part, for people, load balancers and compose.

It is an ASGI application beside Django's, and its state is read at most once a second, by one thread, however many ask: anybody
may ask, and the broker's API is served by the same process.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error, connection
from django.db.models import Max
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from broker_core.common.errors import BrokerError
from broker_core.models import SweepRun
from explorer.administration.network import network
from explorer.analysis.running import java

WORKER_LATE = timedelta(seconds=30)  # the most frequent sweeps run every few seconds
BEAT_LATE = timedelta(minutes=10)  # beat stores its times every few minutes
FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 3.0
LITTLE_DISK = 500 * 1024 * 1024  # bytes


class Health:
    """The state of the parts, as last read. Belongs to the process; any event loop may ask."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "vitrine-health")
        self._reading: Future[dict] | None = None
        self._began_at = 0.0

    async def state(self) -> dict:
        """The state, at most FRESH_SECONDS old when it is requested. If it cannot be read within PATIENCE_SECONDS, the database
        does not respond."""
        now = time.monotonic()
        if self._reading is None or (self._reading.done() and now - self._began_at >= FRESH_SECONDS):
            self._reading, self._began_at = self._thread.submit(_read), now
        reading, patience = self._reading, self._began_at + PATIENCE_SECONDS - now
        if not reading.done():
            await asyncio.wait([asyncio.wrap_future(reading)], timeout=max(patience, 0.0))
        return reading.result() if reading.done() else state_without("no response")


_health = Health()


def is_mounted(scope: Mapping[str, Any]) -> bool:
    return scope["path"] == f"{settings.PATH_PREFIX}/healthz" and scope["method"] in ("GET", "HEAD")


async def application(scope, receive, send) -> None:
    """200 with each part's state; 503 if the database is unavailable. Public, so it contains no paths and no secrets."""
    state = await _health.state()
    body = json.dumps(state, cls=DjangoJSONEncoder).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200 if state["state"] == "ok" else 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _read() -> dict:
    try:
        return current_state()
    finally:
        connection.close()


def current_state() -> dict:
    """The state of all parts, read now."""
    try:
        return _state_of_all("ok", {"database": _database(), "listener": _listener(), **_sweeps(timezone.now())})
    except (Error, BrokerError):
        return state_without("down")


def state_without(database: str) -> dict:
    """The state while the database is unavailable. database: its own state."""
    unknown = {name: {"state": "unknown"} for name in ("listener", "worker", "beat")}
    return _state_of_all("down", {"database": {"state": database}, **unknown})


def _state_of_all(state: str, of_database: dict) -> dict:
    return {"state": state, "parts": {"web": {"state": "ok"}, **of_database, "java": _java(), "disk": _disk()}}


def _database() -> dict:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version')")
        [version] = cursor.fetchone()
    return {"state": "ok", "version": version.split()[0]}


def _listener() -> dict:
    """The state of what serves network clients. Why a port is not open is not for everybody: it may name a file."""
    listeners = network()
    if not listeners.running:
        return {"state": "not running" if listeners.is_on else "off"}
    return {
        "state": "some ports are not open" if listeners.problems else "ok",
        "since": listeners.since,
        "ports": {port.title: port.number for port in listeners.ports},
    }


def _sweeps(now: datetime) -> dict:
    """The worker's state from the newest sweep; that of beat also from it, or from beat's own last run."""
    newest = SweepRun.objects.order_by("-pk").values_list("started_at", flat=True).first()
    last_sent = PeriodicTask.objects.aggregate(at=Max("last_run_at"))["at"]
    worker = _state(newest, now, WORKER_LATE)
    beat = worker if worker["state"] == "ok" else _state(last_sent, now, BEAT_LATE)
    return {"worker": worker, "beat": {**beat, "last_at": last_sent}}


def _state(last_at: datetime | None, now: datetime, late_after: timedelta) -> dict:
    if last_at is None:
        return {"state": "not seen yet", "last_at": None}
    return {"state": "ok" if now - last_at <= late_after else "late", "last_at": last_at}


def _java() -> dict:
    try:
        return {"state": "ok", "version": java.version(java.locate())}
    except java.JavaNotFound:
        return {"state": "not found", "effect": "analyses cannot run; everything else works"}


def _disk() -> dict:
    free = shutil.disk_usage(settings.VITRINE_DATA if settings.VITRINE_DATA.exists() else settings.BASE_DIR).free
    return {"state": "ok" if free > LITTLE_DISK else "nearly full", "free_bytes": free}
