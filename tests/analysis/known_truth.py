"""Histories drawn from a known truth, as attempts of the archive, and how often the bands of the estimates cover it."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count

import pyarrow as pa

from broker_core.common.types import EventKind
from broker_core.history import schema
from explorer.analysis.jobs.measures import bin_of, lower_bound
from explorer.analysis.reports import deliveries as limit_report
from explorer.analysis.reports import held
from explorer.analysis.reports import lock as lock_report
from explorer.analysis.survival import Curve, Estimate

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = 1_000_000
US = timedelta(microseconds=1)
LOCKS = (15, 30, 60)  # seconds, of deliveries; what is lost is censored there
MEAN_WORK = 20  # seconds
CRASHES = 0.03  # share of deliveries of which nothing is heard again
SUCCESS = (0.6, 0.5, 0.4, 0.3, 0.2)  # of the n-th delivery
MEAN_WAIT = 10


def table(rows: list[dict]) -> pa.Table:
    """Judged attempts; by default each is the first of its message, completed after 1 s under a lock of 60 s."""
    numbers = count(1)
    default = {
        "entity_id": 1, "subqueue": 0, "attempt": 1, "outcome": int(EventKind.COMPLETED), "received_at": NOON, "renewals": 0,
        "received_by": "client:a", "ended_by": "client:a", "xid": 1, "generated": False,
    }  # fmt: skip
    made = []
    for given in rows:
        row = default | {"sequence_number": next(numbers)} | given
        seconds, lock = row.pop("held", 1), row.pop("lock", 60)
        row.setdefault("ended_at", row["received_at"] + timedelta(seconds=seconds))
        if lock is not None:
            until = row["received_at"] + timedelta(seconds=lock)
            row.setdefault("locked_until", until)
            row.setdefault("lock_ended_at", until)
        made.append(row)
    return held.judged(pa.Table.from_pylist(made, schema.ATTEMPT))


def deliveries(seed: int, many: int = 400) -> pa.Table:
    """Work is exponential, some consumers crash; a lock that ended is noticed some seconds later, by the next delivery."""
    draw, rows = random.Random(seed), []
    for number in range(many):
        work = math.inf if draw.random() < CRASHES else draw.expovariate(1 / MEAN_WORK)
        lock = draw.choice(LOCKS)
        at = NOON + timedelta(seconds=number)
        row = {"sequence_number": number, "received_at": at, "lock": lock, "held": work}
        if work >= lock:
            row |= {"held": lock + draw.random() * 5, "outcome": int(EventKind.LOCK_LOST), "ended_by": "process:broker"}
        rows.append(row)
    return table(rows)


def lock_truth(seconds: float) -> float:
    """The share of deliveries that need longer."""
    return CRASHES + (1 - CRASHES) * math.exp(-seconds / MEAN_WORK)


def failing(seed: int, many: int = 400) -> pa.Table:
    """Messages that fail with known shares, under different limits; some expire between deliveries."""
    draw, rows = random.Random(seed), []
    for number in range(many):
        limit = draw.choice((2, 3, 5))
        for attempt, success in enumerate(SUCCESS[:limit], 1):
            at = NOON + timedelta(seconds=number + 100 * attempt)
            ends_well = draw.random() < success
            outcome = EventKind.COMPLETED if ends_well else draw.choice((EventKind.ABANDONED, EventKind.LOCK_LOST))
            rows.append({"sequence_number": number, "attempt": attempt, "received_at": at, "outcome": int(outcome)})
            if ends_well or draw.random() < 0.1:
                break
    return table(rows)


def deliveries_truth(deliveries: int) -> float:
    """The share of messages that is not processed within so many deliveries."""
    return math.prod(1 - success for success in SUCCESS[:deliveries])


def waits(seed: int, many: int = 400) -> Curve:
    """Waiting is exponential, and so are the times-to-live."""
    draw = random.Random(seed)
    drawn = [(draw.expovariate(1 / MEAN_WAIT) * SECOND, draw.expovariate(1 / 15) * SECOND) for _ in range(many)]
    received = Counter(bin_of(int(wait)) for wait, limit in drawn if wait < limit)
    return Curve(received, Counter(bin_of(int(limit)) for wait, limit in drawn if wait >= limit))


def wait_truth(seconds: float) -> float:
    return math.exp(-seconds / MEAN_WAIT)


def at_end_of_bin(seconds: float) -> timedelta:
    """The end of the bin with this time: estimates count a bin only if all of it is below."""
    return timedelta(microseconds=lower_bound(bin_of(round(seconds * SECOND)) + 1))


def coverage(seeds: int = 100) -> dict[str, float]:
    """In how many of 100 histories the 95 % band has the truth, on the average over some settings, by analysis."""
    shares: dict[str, list[bool]] = {"time-to-live": [], "lock": [], "deliveries": []}
    for seed in range(seeds):
        curve, locks, attempts_ = waits(seed), lock_report.of_deliveries(deliveries(seed)), failing(seed)
        limits = limit_report.of_deliveries(attempts_)
        for x in map(at_end_of_bin, (3, 10, 20)):
            shares["time-to-live"].append(_has(curve.at(x // US), wait_truth(x.total_seconds())))
        for x in map(at_end_of_bin, (5, 14, 40)):
            shares["lock"].append(_has(lock_report.answer(locks, x).lost, lock_truth(x.total_seconds())))
        for n in (1, 2, 4):
            shares["deliveries"].append(_has(limit_report.answer(limits, n).dead, deliveries_truth(n)))
    return {name: 100 * sum(found) / len(found) for name, found in shares.items()}


def _has(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high
