"""Generated history in the event table, for the demo: its events are archived like any others.

Large histories are written straight to the archive by Spark (running/additions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from io import BytesIO
from math import ceil

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from broker_core.history import archive, retention
from broker_core.models import Entity
from broker_core.store.statements import SQL

from .jobs import generated
from .jobs.load import LOAD, Load, Truth

_COPIED = (
    *("recorded_at", "at", "entity_id", "subqueue", "sequence_number", "kind", "message_id", "delivery_count", "locked_until"),
    *("actor", "reason", "enqueued_at", "first_received_at", "last_received_at", "session_id", "size", "time_to_live"),
    *("application_properties", "details"),
)  # as in the statement history_copy_events


@dataclass(frozen=True, slots=True)
class Generated:
    """messages, events: how many. truths: of each queue."""

    messages: int
    events: int
    truths: tuple[Truth, ...]


def record(
    entities: Sequence[Entity], *, messages: int, days: float, until: datetime, load: Load | Sequence[Load] = LOAD,
    skew: float | None = None, seed: int = 0,
) -> Generated:  # fmt: skip
    """Write the history of about so many messages, over the days before `until`, and count it in the traffic of the queues, which
    are of one namespace.

    load: of all queues, or of each. skew: the share of the first queue; None: every queue has the same. Each block of events is a
    transaction. Real messages may arrive only afterwards, so that numbers follow time.
    """
    events, truths = generate(entities, messages=messages, days=days, until=until, load=load, skew=skew, seed=seed)
    retention.create_partitions(until.date(), days_before=ceil(days) + 1)
    with archive.connected() as connection:
        for table in _ahead(events.by_time()):
            with connection.transaction():
                _copy(connection, table)
                archive.run(connection, "history_count_generated")
    return Generated(events.messages, events.count, truths)


def generate(
    entities: Sequence[Entity], *, messages: int, days: float, until: datetime, load: Load | Sequence[Load], skew: float | None,
    seed: int, archived: bool = False,
) -> tuple[generated.Events, tuple[Truth, ...]]:  # fmt: skip
    """The events, with numbers from the queues' counters; and what was drawn for each queue."""
    loads = [load] * len(entities) if isinstance(load, Load) else load
    counts = [round(messages * share) for share in generated.shares(len(entities), skew)]
    queues = [queue_of(entity, reserve(entity, count)) for entity, count in zip(entities, counts, strict=True)]
    played = [
        generated.played(queue, place, count, days, until, own_load, seed)
        for place, (queue, count, own_load) in enumerate(zip(queues, counts, loads, strict=True))
    ]
    truths = tuple(entry.truth for entry in played)
    return generated.Events(queues, played, archived=archived), truths


def queue_of(entity: Entity, first_number: int) -> generated.Queue:
    return generated.Queue(entity.pk, entity.path, first_number, entity.requires_session)


def reserve(entity: Entity, count: int) -> int:
    """Take numbers from a queue's counter. Returns the first."""
    with archive.connected() as connection:
        first: int = archive.row(connection, "history_reserve_numbers", entity_id=entity.pk, count=count).first_number
    return first


def under_settings_of(load: Load, entity: Entity) -> Load:
    """The same load under a queue's lock duration, maximum delivery count, and expiry."""
    ttl = entity.default_message_time_to_live
    return replace(
        load, lock=entity.lock_duration.total_seconds(), max_deliveries=entity.max_delivery_count,
        time_to_live=None if ttl is None else ttl.total_seconds(),
        dead_letters_expired=entity.dead_lettering_on_message_expiration,
    )  # fmt: skip


def _ahead(items: Iterator) -> Iterator:
    """The items, each of which is made in a thread while the one before is used."""
    done = object()
    with ThreadPoolExecutor(1) as maker:
        upcoming = maker.submit(next, items, done)
        while (item := upcoming.result()) is not done:
            upcoming = maker.submit(next, items, done)
            yield item


def _copy(connection: psycopg.Connection, events: pa.Table) -> None:
    """Copy events to the event table, in this transaction."""
    lifetime = pc.binary_join_element_wise(pc.cast(events["time_to_live_us"], pa.string()), " microseconds", "")
    rows, text = events.append_column("time_to_live", lifetime).select(_COPIED), BytesIO()
    csv.write_csv(rows, text, csv.WriteOptions(include_header=False))
    with connection.cursor().copy(SQL["history_copy_events"]) as copy:
        copy.write(text.getbuffer())
