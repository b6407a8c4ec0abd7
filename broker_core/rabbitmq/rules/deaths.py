"""Dead-lettering: headers, properties and routing keys of a dead letter, and cycle detection (RMQ-060 to RMQ-073, RMQ-912 to
RMQ-914).

Also determines where a dead letter came from, for moving it back. Does not depend on whether the exchange exists or which
queues it routes to. Headers are decoded tables: see table.py.
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
MOVED = "moved"  # reason for messages moved by an operator
BEFORE_MOVE = "x-death-before-move"  # not part of RabbitMQ
FIRST, LAST = "x-first-death-", "x-last-death-"
ORIGIN_HEADERS = (X_DEATH, BEFORE_MOVE, f"{FIRST}queue")  # the headers that `origin` reads


def is_own(header: str) -> bool:
    """Whether the broker adds the header, when it dead-letters, moves or delivers a message."""
    return header.startswith((X_DEATH, FIRST, LAST, "x-delivery-count"))


class Reason(StrEnum):
    """Why a message died (RMQ-060)."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAX_LENGTH = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


@dataclass(frozen=True, slots=True)
class Death:
    """An entry of x-death: how often a message died in a queue for a reason, with its state at the first time (RMQ-066 to
    RMQ-068)."""

    queue: str
    reason: str
    count: int
    time: datetime | int | None
    exchange: str
    routing_keys: tuple[str, ...]
    original_expiration: str | None = None


class DeadLetter(NamedTuple):
    """The message as republished. properties: without the expiration (RMQ-064)."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    routing_keys: tuple[str, ...]


def dead_letter(
    headers: Headers | None,
    properties: Mapping[str, Any],
    *,
    queue: str,
    reason: str,
    at: datetime,
    exchange: str,
    routing_keys: Sequence[str],
    dead_letter_routing_key: str | None = None,
) -> DeadLetter:
    """The message published to the dead-letter exchange.

    properties:   by name; all but the expiration are kept (RMQ-065).
    at:           the time of death; x-death has whole seconds.
    exchange, routing_keys: as published, its own key first; keys of CC can be omitted, since they are in the headers.
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
    remaining = {name: value for name, value in properties.items() if name != "expiration"}
    if dead_letter_routing_key is None:
        return DeadLetter(after, remaining, tuple(dict.fromkeys([*routing_keys, *own_keys])))
    after.pop(CC, None)
    return DeadLetter(after, remaining, (dead_letter_routing_key,))


def is_cycle(headers: Headers, queue: str) -> bool:
    """Whether a dead letter with these headers (returned by `dead_letter`, including this death) must not enter a queue: it
    died there before and was not rejected since (RMQ-072, RMQ-073)."""
    for death in history(headers):
        if death.reason == Reason.REJECTED:
            return False
        if death.queue == queue:
            return True
    return False


def history(headers: Headers | None) -> list[Death]:
    """The deaths of a message, newest first; malformed entries of x-death are ignored (RMQ-914)."""
    return [_read(entry) for entry in _deaths(headers or {})[0]]


def origin(headers: Headers | None, *, first: bool = False) -> Death | None:
    """The death that determines where a message is moved back to: the last one, or the one in the queue of its first death
    (RMQ-390).

    For a message that was moved since, the deaths before the move apply. None: no recorded death.
    """
    headers = headers or {}
    deaths = history(headers) or [_read(entry) for entry in _deaths(headers, BEFORE_MOVE)[0]]
    if not deaths or not first:
        return deaths[0] if deaths else None
    queue = plain(headers.get(f"{FIRST}queue"))
    return next((death for death in reversed(deaths) if death.queue == queue), deaths[-1])


def archive_deaths(headers: Headers | None) -> dict[str, Any]:
    """The headers of a moved message: its deaths under another header, merged with those of earlier moves (RMQ-391).

    Deaths kept in x-death would count on: if the message passed the same queues again, it would be dropped as a cycle
    (RMQ-072), and consumers that count deaths would discard it.
    """
    after = dict(headers or {})
    deaths, _ = _deaths(after)
    if deaths:
        earlier, _ = _deaths(after, BEFORE_MOVE)
        for death in reversed(deaths):
            earlier = _with(earlier, death)
        del after[X_DEATH]
        after[BEFORE_MOVE] = earlier
    return after


def _deaths(headers: Headers, name: str = X_DEATH) -> tuple[list[Mapping[str, Any]], bool]:
    """The well-formed entries of x-death, or of a similar header, and whether the header is missing.

    Only if it is missing is a death the first: x-first-death-* headers are not added to a malformed one (RMQ-071).
    """
    if name not in headers:
        return [], True
    kind, value = typed(headers[name])
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


def _with(deaths: Sequence[Mapping[str, Any]], death: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries with a death added in front, or merged into the one of the same queue and reason (RMQ-067).

    Duplicate entries of the same queue and reason, which only clients create, are merged.
    """
    matching: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for entry in deaths:
        (matching if _key(entry) == _key(death) else others).append(dict(entry))
    if not matching:
        return [dict(death), *others]
    count = min(sum(_count(entry) for entry in matching) + _count(death), 2**62)
    return [{**matching[0], "count": Typed("long", count)}, *others]


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return plain(entry["queue"]), plain(entry["reason"])


def _count(entry: Mapping[str, Any]) -> int:
    count = plain(entry.get("count", 1))
    return min(count, 2**62) if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1


def _read(entry: Mapping[str, Any]) -> Death:
    fields = plain(entry)
    time, expiration = fields.get("time"), fields.get("original-expiration")
    keys = fields.get("routing-keys")
    return Death(
        queue=fields["queue"],
        reason=fields["reason"],
        count=_count(entry),
        time=time if isinstance(time, datetime | int) and not isinstance(time, bool) else None,
        exchange=exchange if isinstance(exchange := fields.get("exchange"), str) else "",
        routing_keys=tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else (),
        original_expiration=expiration if isinstance(expiration, str) else None,
    )
