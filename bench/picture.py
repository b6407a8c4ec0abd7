"""The picture: a board at 2,000 events a second in the browser, and what its page costs the broker; frames of a map of 1,000
entities; the past of a queue with a million events. The server time of the map is a row of `overview`.

The traffic comes from a process of its own at a fixed rate. What the board costs is the difference that an open page makes in the
processor time of PostgreSQL, in turns, as a part of all processors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import median
from uuid import uuid4

import psutil
from django.contrib.auth import get_user_model

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress, Family
from broker_core.models import Entity
from broker_core.reads.shared import entity_id_of
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.store.driver import run as run_steps
from explorer.analysis import generation

from . import live, measuring, overview

EVENTS_PER_SECOND = 2_000
FRAMES_PER_SECOND, COST_PERCENT, TRAVEL_SECONDS = 30, 3.0, 1.0
MAP_ENTITIES, MAP_FRAMES = 1_000, 2.0
BATCH = 25  # messages of a send, a receive and a settlement
TURNS, TURN_SECONDS = 3, 8.0
INSTANTS = 7
HOURS = 12
EVENTS_OF_A_MESSAGE = 3.2  # of generated history, about

_FRAMES = """(seconds) => new Promise((done) => {
    const times = [];
    const step = (now) => {
        times.push(now);
        if (now - times[0] < seconds * 1000) requestAnimationFrame(step); else done(times);
    };
    requestAnimationFrame(step);
})"""


def run(report) -> None:
    measuring.make_bare_tables()
    user = get_user_model().objects.create_superuser(f"bench-{uuid4().hex[:8]}")
    try:
        with live.site() as (url, _):
            _board(report, url, user)
            _map(report, url, user)
    finally:
        user.delete()
    _past(report)


def _board(report, url: str, user) -> None:
    queue = EntityAddress(f"bench-{uuid4().hex[:8]}", "board")
    namespaces.create_namespace(queue.namespace, Family.SERVICE_BUS)
    entities.create_queue(queue)
    service_bus.send(queue, [Message(b"x")] * 200)
    frames, longest, rates, costs, shares = [], [], [], [], []
    try:
        with _traffic(queue):
            time.sleep(2)
            for _ in range(TURNS):
                without = _processor_time(queue, rates)
                with live.open_page(url, f"/entities/{queue}?view=board", user) as page:
                    time.sleep(1)
                    times = page.evaluate(_FRAMES, TURN_SECONDS / 2)
                    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
                    frames.append(1000 * len(gaps) / sum(gaps))
                    longest.append(max(gaps))
                    more = _processor_time(queue, rates) - without
                    costs.append(100 * more * EVENTS_PER_SECOND / (psutil.cpu_count() or 1))
                    shares.append(100 * more / without)
    finally:
        with suppress(EntityNotFound):
            entities.delete_queue(queue)
    report.line("events per second of the queue on the board", f"{median(rates):,.0f}", f"{EVENTS_PER_SECOND:,} wanted")
    report.row("board: frames per second in the browser", median(frames), "/s", FRAMES_PER_SECOND)
    report.line("board: longest time between two frames", f"{max(longest):.0f} ms")
    report.row("board: processor time of PostgreSQL for it, of all processors", median(costs), "%", COST_PERCENT, at_most=True)
    report.line("board: the same, of what the traffic takes", f"{median(shares):.0f} %")


def _processor_time(queue: EntityAddress, rates: list[float]) -> float:
    """Seconds of PostgreSQL's processor time for each event of the traffic."""
    server = psutil.Process(connections.current().info.backend_pid).parent()
    assert server is not None
    before, seen, began = _used(server), _events(queue), time.monotonic()
    time.sleep(TURN_SECONDS)
    used, events = _used(server) - before, _events(queue) - seen
    rates.append(events / (time.monotonic() - began))
    return used / events


def _used(server: psutil.Process) -> float:
    own = server.cpu_times()
    used = own.user + own.system + own.children_user + own.children_system  # of backends that have ended
    for child in server.children():
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            used += times.user + times.system
    return used


def _events(queue: EntityAddress) -> int:
    [[count]] = connections.current().execute(
        "SELECT count(*) FROM vitrine_message_event WHERE entity_id = %s", [run_steps(entity_id_of(queue))]
    )
    return count


@contextmanager
def _traffic(queue: EntityAddress) -> Iterator[None]:
    """Messages that are sent, received and completed, so that EVENTS_PER_SECOND are recorded."""
    connections.close_all_of_this_thread()
    process = measuring.fork.Process(target=_keep_busy, args=(queue,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _keep_busy(queue: EntityAddress) -> None:
    due = time.monotonic()
    while True:
        service_bus.send(queue, [Message(b"x")] * BATCH)
        messages = service_bus.receive(queue, BATCH)
        service_bus.complete(queue, [message.lock_token for message in messages])
        due += 3 * BATCH / EVENTS_PER_SECOND
        time.sleep(max(0.0, due - time.monotonic()))


def _map(report, url: str, user) -> None:
    namespace = f"bench-{uuid4().hex[:8]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    try:
        overview.fill(namespace, MAP_ENTITIES, measuring.scale.listed // 10)
        queues = [EntityAddress(namespace, f"queue-{number:06}") for number in range(1, MAP_ENTITIES, 50)]
        with live.traffic(queues):
            frames = asyncio.run(_frames(url, f"/map/?namespace={namespace}", live.cookie_of(user)))
        report.row(f"map of {MAP_ENTITIES:,} entities: frames a second", frames, "/s", MAP_FRAMES, at_most=True)
    finally:
        overview.remove(namespace)


async def _frames(url: str, page: str, cookie: str) -> float:
    """Frames per second that the feed sends to a page."""
    async with live.viewer(url, page, cookie) as socket:
        count, began = 0, 0.0
        with suppress(TimeoutError):
            async with asyncio.timeout(live.SETTLE_SECONDS + TURN_SECONDS):
                began = time.monotonic() + live.SETTLE_SECONDS
                async for frame in socket:
                    count += time.monotonic() > began and "fragments" in frame
        return count / TURN_SECONDS


def _past(report) -> None:
    queue = EntityAddress(f"bench-{uuid4().hex[:8]}", "past")
    namespaces.create_namespace(queue.namespace, Family.SERVICE_BUS)
    entities.create_queue(queue)
    now, messages = datetime.now(UTC), int(measuring.scale.listed / EVENTS_OF_A_MESSAGE / HOURS)
    ends = [now - timedelta(hours=hours) for hours in range(HOURS - 1, -1, -1)]
    entity = Entity.objects.get(namespace__name=queue.namespace, path=queue.path)
    events = sum(
        generation.record([entity], messages=messages, days=1 / 24, until=end, seed=place).events
        for place, end in enumerate(ends)
    )
    connections.current().execute("ANALYZE vitrine_message_event")
    took, dice = [], Random(7)
    for _ in range(INSTANTS):
        at = now - timedelta(hours=dice.uniform(0, HOURS))
        began = time.perf_counter()
        reads.past(queue, at)
        took.append(time.perf_counter() - began)
    report.row(f"the past of a queue with {events:,} events, the slowest instant", max(took), "s", TRAVEL_SECONDS, at_most=True)
    report.line("the past of the same queue, in the middle", f"{median(took):.2g} s")
