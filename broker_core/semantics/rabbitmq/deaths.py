"""What dead-lettering does to a message, and when it must not go on (RMQ-060 to RMQ-073, RMQ-912 to RMQ-914).

Decides headers, properties and routing keys of the message that is published to the dead-letter exchange. Refuses to know whether
that exchange is there, and which queues it leads to. Headers are decoded tables: see table.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from .messages import CC, carbon_copies
from .table import Typed, plain, typed

Headers = Mapping[str, Any]

X_DEATH = "x-death"
FIRST, LAST = "x-first-death-", "x-last-death-"


class Reason(StrEnum):
    """Why a message died (RMQ-060)."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAX_LENGTH = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


@dataclass(frozen=True, slots=True)
class Death:
    """An entry of x-death: how often a message died in a queue for a reason, and how it stood then first (RMQ-066 to RMQ-068)."""

    queue: str
    reason: str
    count: int
    time: datetime | int | None
    exchange: str
    routing_keys: tuple[str, ...]
    original_expiration: str | None = None


class Died(NamedTuple):
    """The message as it is published again. properties: without the expiration (RMQ-064)."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    routing_keys: tuple[str, ...]


def die(
    headers: Headers | None,
    properties: Mapping[str, Any],
    *,
    queue: str,
    reason: str,
    at: datetime,
    exchange: str,
    routing_keys: Sequence[str],
    dead_letter_routing_key: str | None = None,
) -> Died:
    """What is published to the dead-letter exchange when a message dies.

    properties:   by name; all but the expiration are kept (RMQ-065).
    at:           the instant of the death; x-death has whole seconds.
    exchange, routing_keys: those it was published with, its own key first; CC keys may be left out, they are in the headers.
    """
    before = dict(headers or {})
    deaths, is_fresh = _deaths(before)
    own_keys = tuple(dict.fromkeys([*routing_keys[:1], *carbon_copies(before)]))
    death = _entry(queue, reason, at, exchange, own_keys, properties.get("expiration"))
    after = {name: value for name, value in before.items() if name != X_DEATH}
    if is_fresh:
        after |= {f"{FIRST}reason": str(reason), f"{FIRST}queue": queue, f"{FIRST}exchange": exchange}
    after |= {f"{LAST}reason": str(reason), f"{LAST}queue": queue, f"{LAST}exchange": exchange}
    after[X_DEATH] = _with(deaths, death)
    kept = {name: value for name, value in properties.items() if name != "expiration"}
    if dead_letter_routing_key is None:
        return Died(after, kept, tuple(dict.fromkeys([*routing_keys, *own_keys])))
    after.pop(CC, None)
    return Died(after, kept, (dead_letter_routing_key,))


def is_cycle(headers: Headers, queue: str) -> bool:
    """Whether a dead letter with these headers (of `die`, this death among them) must not enter a queue: it died there before,
    and nobody rejected it since (RMQ-072, RMQ-073)."""
    for death in history(headers):
        if death.reason == Reason.REJECTED:
            return False
        if death.queue == queue:
            return True
    return False


def history(headers: Headers | None) -> list[Death]:
    """The deaths of a message, newest first; what is malformed in x-death is left out (RMQ-914)."""
    return [_read(entry) for entry in _deaths(headers or {})[0]]


def _deaths(headers: Headers) -> tuple[list[Mapping[str, Any]], bool]:
    """The well-formed entries of x-death, and whether there is no such header at all: only then is this the first death.

    Where it is garbage, x-first-death-* are not added (RMQ-071).
    """
    if X_DEATH not in headers:
        return [], True
    kind, value = typed(headers[X_DEATH])
    entries = [entry for entry_kind, entry in map(typed, value) if entry_kind == "table"] if kind == "array" else []
    return [entry for entry in entries if _is_well_formed(entry)], False


def _is_well_formed(entry: Mapping[str, Any]) -> bool:
    return all(isinstance(plain(entry.get(name)), str) for name in ("queue", "reason"))


def _entry(
    queue: str, reason: str, at: datetime, exchange: str, routing_keys: Sequence[str], expiration: str | None
) -> dict[str, Any]:
    death = {
        "count": Typed("long", 1),
        "reason": str(reason),
        "queue": queue,
        "time": at.replace(microsecond=0),
        "exchange": exchange,
        "routing-keys": list(routing_keys),
    }
    return death if expiration is None else {**death, "original-expiration": expiration}


def _with(deaths: Sequence[Mapping[str, Any]], death: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries with one more death: a new one in front, or the one of the same queue and reason, counted on (RMQ-067).

    Entries of the same queue and reason, as only clients make them, are taken together.
    """
    same, others = [], []
    for entry in deaths:
        (same if _key(entry) == _key(death) else others).append(dict(entry))
    if not same:
        return [dict(death), *others]
    count = sum(_count(entry) for entry in same) + 1
    return [{**same[0], "count": Typed("long", count)}, *others]


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return plain(entry["queue"]), plain(entry["reason"])


def _count(entry: Mapping[str, Any]) -> int:
    count = plain(entry.get("count", 1))
    return min(count, 2**62) if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1


def _read(entry: Mapping[str, Any]) -> Death:
    found = plain(entry)
    time, expiration = found.get("time"), found.get("original-expiration")
    keys = found.get("routing-keys")
    return Death(
        queue=found["queue"],
        reason=found["reason"],
        count=_count(entry),
        time=time if isinstance(time, datetime | int) and not isinstance(time, bool) else None,
        exchange=exchange if isinstance(exchange := found.get("exchange"), str) else "",
        routing_keys=tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else (),
        original_expiration=expiration if isinstance(expiration, str) else None,
    )
