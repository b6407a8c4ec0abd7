"""History: generating the demo's history, archiving a million events; then the jobs of the pipeline (rolled_up)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from uuid import uuid4

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.history import archive, manifest
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis import generation

from . import rolled_up

DEMO_MESSAGES, DEMO_SECONDS = 50_000, 3
MESSAGES = 300_000  # some 970,000 events
HOURS = 12


def run(report) -> None:
    """Seconds and events per second; the archive against a binary COPY of the same rows that is discarded."""
    queue = _queue()
    took, events = _timed(lambda: _generate(queue, DEMO_MESSAGES))
    report.row(f"generate history of {DEMO_MESSAGES:,} messages ({events:,} events)", took, "s", DEMO_SECONDS, at_most=True)

    _generate(queue, MESSAGES - DEMO_MESSAGES)
    copying, _ = _timed(_copy_and_discard)
    before = manifest.state()
    archiving, archived = _timed(lambda: archive.archive_events(wait_seconds=60))
    report.line(f"archive {archived.events:,} events in {archived.slices} slices", f"{archived.events / archiving:,.0f}/s")
    report.row("archive against a binary COPY thrown away", copying / archiving, "times")
    report.line(
        "bytes an event in the archive",
        f"{(manifest.state().bytes - before.bytes) / max(archived.events, 1):.1f}",
    )

    rolled_up.run(report)


def _queue() -> EntityAddress:
    address = EntityAddress(f"bench-{uuid4().hex[:8]}", "orders")
    namespaces.ensure_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    return address


def _generate(queue: EntityAddress, messages: int) -> int:
    """Write the history of so many messages to the event table. Returns the number of events."""
    entity = Entity.objects.get(namespace__name=queue.namespace, path=queue.path)
    until = datetime.now(UTC).replace(microsecond=0)
    return generation.record([entity], messages=messages, days=HOURS / 24, until=until).events


def _copy_and_discard() -> None:
    """The upper bound for server and client: copy the columns in binary format and discard them."""
    with (
        archive.connected() as connection,
        connection.cursor().copy("COPY (SELECT * FROM vitrine_message_event) TO STDOUT (FORMAT binary)") as copy,
    ):
        for _ in copy:
            pass


def _timed(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
