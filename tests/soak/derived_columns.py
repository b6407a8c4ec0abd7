"""Columns of lives and attempts that follow from others, row by row in plain Python; the oracle has the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.types import EventKind as Kind
from tests.analysis.jobs.oracle import BEGINNINGS

Row = dict[str, Any]
Place = tuple[int, int]  # entity and number

US = timedelta(microseconds=1)
EXPIRY = ("TTLExpiredException", "expired")
LIMITS = ("MaxDeliveryCountExceeded", "MaxDequeueCountExceeded", "delivery_limit")
OF_BROKER = (*EXPIRY, *LIMITS, "HeaderSizeExceeded", "Requeued", "maxlen", "moved")
OUT = (Kind.DEAD_LETTERED, Kind.MOVED, Kind.DROPPED)  # ends that have a reason
MOST_ORIGINS = 3
LONGEST = 120  # characters of a value


def life(row: Row) -> Row:
    """A life with all its columns but chosen_properties. row: what the oracle says."""
    expired = row["outcome"] == Kind.EXPIRED or (row["outcome"] in OUT and row["reason"] in EXPIRY)
    at_once = row["outcome"] == Kind.RECEIVED_AND_DELETED
    waiting = passed(row["enqueued_at"], row["first_received_at"] or (row["ended_at"] if at_once else None))
    by_receiver = row["outcome"] == Kind.COMPLETED or (row["outcome"] in OUT and row["reason"] not in OF_BROKER)
    there = [
        value for value in (passed(row["enqueued_at"], row["ended_at"]), row["time_to_live_in_force_us"]) if value is not None
    ]
    return row | {
        "result": int(Kind.EXPIRED) if expired else row["outcome"],
        "cause": None if expired else row["error"],
        "waiting_us": waiting,
        "never_received_us": min(there) if waiting is None and row["enqueued_at"] else None,
        "processing_us": passed(row["last_received_at"], row["ended_at"]) if by_receiver else None,
    }


def attempt(row: Row) -> Row:
    """A delivery with all its columns. row: what the oracle says."""
    outcome, reason, until = row["outcome"], row["reason"] if row["outcome"] in OUT else None, row["lock_ended_at"]
    rejected, at_limit = outcome in OUT and reason not in OF_BROKER, reason in LIMITS
    late = until is not None and row["ended_at"] >= until
    settled = outcome in (Kind.COMPLETED, Kind.ABANDONED, Kind.DEFERRED) or rejected
    by_holder = None in (row["ended_by"], row["received_by"]) or row["ended_by"] == row["received_by"]
    let_go = settled or (outcome == Kind.RELEASED and by_holder) or (at_limit and not late)
    lost = outcome == Kind.LOCK_LOST or (late and not let_go)
    lock = passed(row["received_at"], row["locked_until"])
    return row | {
        "held_us": passed(row["received_at"], row["ended_at"] if let_go or until is None else min(row["ended_at"], until)),
        "lock_us": lock or None,
        "let_go": let_go,
        "lost": lost,
        "well": outcome in (Kind.COMPLETED, Kind.RECEIVED_AND_DELETED),
        "rejected": rejected,
        "failed": outcome == Kind.ABANDONED or lost or at_limit,
    }


def passed(since: datetime | None, until: datetime | None) -> int | None:
    """Microseconds, never negative."""
    return None if since is None or until is None else max(0, (until - since) // US)


class Chosen:
    """The values of chosen properties by message. keys: by entity id."""

    def __init__(self, keys: Mapping[int, Sequence[str]]):
        self.keys, self.values = keys, dict[Place, dict[str, str] | None]()

    def add(self, events: Iterable[Row]) -> None:
        """The first events of messages, which an increment has."""
        begun = {(row["entity_id"], row["sequence_number"]): row for row in events if row["kind"] in BEGINNINGS}
        for place, row in begun.items():
            keys = self.keys.get(place[0])
            if keys and place not in self.values:
                self.values[place] = _values(_with_properties(row, begun), keys)

    def keep(self, events: Any) -> None:
        """Keep the values of these messages only, which have not ended."""
        there = set(zip(events["entity_id"].to_pylist(), events["sequence_number"].to_pylist(), strict=True))
        self.values = {place: values for place, values in self.values.items() if place in there}

    def of(self, row: Row) -> dict[str, str] | None:
        return self.values.get((row["entity_id"], row["sequence_number"]))


def _with_properties(row: Row, begun: Mapping[Place, Row]) -> Row:
    """The event, or the first one with properties among those that its message was made from."""
    for _ in range(MOST_ORIGINS):
        origin = begun.get((row["linked_entity_id"], row["linked_sequence_number"]))
        if row["application_properties"] or row["properties"] or origin is None:
            break
        row = origin
    return row


def _values(row: Row, keys: Sequence[str]) -> dict[str, str] | None:
    sent, own = json.loads(row["application_properties"] or "{}"), json.loads(row["properties"] or "{}")
    shown_values = {key: str(sent[key][1] if key in sent else own[key])[:LONGEST] for key in keys if key in sent or key in own}
    return shown_values or None
