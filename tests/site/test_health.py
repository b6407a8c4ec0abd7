"""The state of the parts at /healthz: what it says, and how often it is read."""

import asyncio
import threading
from datetime import timedelta

import httpx
import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from broker_core.common.errors import BrokerUnavailable
from broker_core.listener import status
from broker_core.listener.front_ends import known_ports
from broker_core.listener.status import Listening, OpenPort, RunningListener
from broker_core.models import SweepRun
from explorer.site import health

DOWN = {"database": {"state": "down"}} | {name: {"state": "unknown"} for name in ("listener", "worker", "beat")}


def test_health_names_each_part(db):
    now = timezone.now()
    SweepRun.objects.create(name="end_locks", started_at=now, finished_at=now)
    state = health.current_state()
    parts = state["parts"]
    assert state["state"] == "ok"
    assert {"web", "database", "worker", "beat", "java", "disk"} <= set(parts)
    assert parts["database"]["version"] == str(connection.pg_version // 10000) + "." + str(connection.pg_version % 10000)
    assert parts["worker"]["state"] == parts["beat"]["state"] == "ok"


def running(*problems):
    listening = Listening([OpenPort("Queue Storage", 10001)], problems, {"too many connections": 1})
    return RunningListener("a-process", timezone.now(), listening)


@pytest.mark.parametrize(
    ("listeners", "port", "state"),
    [
        ([running()], 10001, "ok"),
        ([running(), running("The key /secret/key.pem cannot be read.")], 10001, "some ports are not open"),
        ([], 10001, "not running"),
        ([], 0, "off"),
    ],
)
def test_health_names_the_ports_of_the_listeners_and_nothing_secret(db, monkeypatch, settings, listeners, port, state):
    for one in known_ports():
        setattr(settings, one.setting, port)
    monkeypatch.setattr(status, "listeners", lambda **_: listeners)
    part = health.current_state()["parts"]["listener"]
    assert part["state"] == state
    assert part.get("ports") == ({"Queue Storage": 10001} if listeners else None)
    assert "secret" not in str(part)


def test_health_reports_a_database_that_the_broker_cannot_use(db, monkeypatch):
    def away(**_):
        raise BrokerUnavailable("gone")

    monkeypatch.setattr(status, "listeners", away)
    assert health.current_state()["parts"]["listener"] == {"state": "unknown"}


@pytest.mark.parametrize(
    ("age", "state"), [(timedelta(seconds=30), "ok"), (timedelta(seconds=31), "late"), (None, "not seen yet")]
)
def test_a_part_is_late_after_its_time(age, state):
    now = timezone.now()
    assert health._state(None if age is None else now - age, now, timedelta(seconds=30))["state"] == state


def test_health_reports_an_unavailable_database(monkeypatch):
    def away():
        raise OperationalError("connection refused")

    monkeypatch.setattr(health, "_database", away)
    state = health.current_state()
    assert state["state"] == "down" and DOWN.items() <= state["parts"].items()


def test_the_health_check_returns_the_state(live_site):
    answer = httpx.get(f"{live_site}/healthz")
    assert answer.status_code == 200 and answer.json()["parts"]["web"] == {"state": "ok"}
    assert answer.headers["Cache-Control"] == "no-store"
    head = httpx.head(f"{live_site}/healthz")
    assert head.status_code == 200 and head.headers["Content-Length"] == answer.headers["Content-Length"]
    assert httpx.post(f"{live_site}/healthz").status_code in (403, 404)


@pytest.mark.asyncio
async def test_the_state_is_read_at_most_once_per_second(monkeypatch):
    """Regression: each request read it, and many of them starved the broker's API."""
    reads = []

    def read():
        reads.append(threading.get_ident())
        return {"state": "ok"}

    monkeypatch.setattr(health, "_read", read)
    own = health.Health()
    assert await asyncio.gather(*[own.state() for _ in range(50)]) == [{"state": "ok"}] * 50
    await own.state()
    assert len(reads) == 1
    own._began_at -= health.FRESH_SECONDS
    await asyncio.gather(*[own.state() for _ in range(50)])
    assert len(reads) == 2


@pytest.mark.asyncio
async def test_a_state_that_cannot_be_read_in_time_means_an_unresponsive_database(monkeypatch):
    goes_on = threading.Event()
    monkeypatch.setattr(health, "_read", lambda: goes_on.wait(30) and {"state": "ok"})
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 0.05)
    own = health.Health()
    try:
        states = await asyncio.gather(*[own.state() for _ in range(3)])
        assert [state["state"] for state in states] == ["down"] * 3
        assert states[0]["parts"]["database"] == {"state": "no response"}
    finally:
        goes_on.set()
    await asyncio.wrap_future(own._reading)
    assert await own.state() == {"state": "ok"}
