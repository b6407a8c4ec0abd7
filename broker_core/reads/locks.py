"""Every lock of all families: locked messages, leases, unacknowledged deliveries, and locked sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from broker_core.common.actors import parsed, spellings
from broker_core.common.arguments import require_count
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Family, Right, SubQueue
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from .entity_lists import EntityFilter
from .shared import PAGE_ROWS, Capped, require

EXAMINED = 20_000  # locks of an entity that are examined
EXAMINED_AT_ONCE = 2_000  # locks, by the ledger, of the entities that one statement reads
MOST_HOLDERS = 20
MOST_COUNTED = 20_000  # locks, by the ledger, whose holders are counted


@dataclass(frozen=True, slots=True)
class LockFilter:
    """Conditions on locks. entities: whose. holder: a part of the holder's name (case-insensitive). actor: exactly this holder,
    as it is stored ("process:web-1"): of a key, the locks of all clients that use it, or of the one that is named
    ("http:shop@10.0.0.7"). A holder with a kind is meant so, too."""

    entities: EntityFilter = EntityFilter()
    holder: str = ""
    actor: str = ""

    @property
    def holders(self) -> dict[str, Any]:
        """The parameters of the fragment held_by."""
        exactly = self.actor or (self.holder if parsed(self.holder).kind else "")
        if parsed(exactly).client:
            return {"holder": None, "actors": [exactly], "prefixes": []}
        if exactly:
            actors, prefixes = spellings(exactly)
            return {"holder": None, "actors": actors, "prefixes": prefixes}
        return {"holder": self.holder or None, "actors": None, "prefixes": None}


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock on a message or, without a number, on a session.

    since: when the message was received or the session's lock began or was renewed. until: when it ends by itself; None: with its
    connection. renewals: since it was received; None: unknown, or its family has none. read_at: the namespace's clock, which is
    stepped or paused if clock_is_manual.
    """

    entity_id: int
    address: EntityAddress
    family: Family
    number: int | None
    session_id: str | None
    message_id: str | None
    holder: str | None
    since: datetime | None
    until: datetime | None
    renewals: int | None
    read_at: datetime
    clock_is_manual: bool

    @property
    def is_session(self) -> bool:
        return self.number is None

    @property
    def time_left(self) -> timedelta | None:
        return None if self.until is None else self.until - self.read_at

    @property
    def dom_id(self) -> str:
        """The id of its row in pages."""
        key = f"s-{self.session_id.encode().hex()}" if self.number is None and self.session_id is not None else f"m-{self.number}"
        return f"lock-{self.entity_id}-{key}"

    @property
    def cursor(self) -> str:
        return json.dumps([self.address.namespace, self.address.path, self.session_id if self.is_session else self.number])


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds locks: how many of messages, and of sessions."""

    name: str
    messages: int
    sessions: int

    @property
    def locks(self) -> int:
        return self.messages + self.sessions


@dataclass(frozen=True, slots=True)
class Locks:
    """A page of locks in the order of their entities' names.

    next_cursor: for the next page; None: this is the last one. matching: how many locks match the filter. holders: those of the
    locks that match, with the most first; at most MOST_HOLDERS.
    """

    rows: tuple[Lock, ...]
    next_cursor: str | None
    matching: Capped
    holders: tuple[Holder, ...]


def _joined(results: list[Locks]) -> Locks:
    """One page of those of several databases, which have different namespaces."""
    rows = sorted(chain.from_iterable(result.rows for result in results), key=lambda row: _order(row.address))[:PAGE_ROWS]
    is_more = any(result.next_cursor for result in results) or sum(len(result.rows) for result in results) > len(rows)
    holders = _largest(chain.from_iterable(result.holders for result in results))
    matching = Capped(sum(result.matching.value for result in results), any(result.matching.capped for result in results))
    return Locks(tuple(rows), rows[-1].cursor if is_more and rows else None, matching, holders)


@use_case(namespace=WHOLE_DATABASE, combine=_joined)
def locks(
    filter: LockFilter = LockFilter(), *, cursor: str | None = None, limit: int = PAGE_ROWS, actor: Actor | None = None
) -> Steps[Locks]:
    """A page of the locks that match, from the one after `cursor`. Raises InvalidArgument for an invalid cursor."""
    require(actor, Right.BROWSE, filter.entities.namespace or "all namespaces")
    require_count("limit", limit)
    after = _parsed(cursor)
    places = sorted((yield call("read_lock_places", **filter.entities.parameters())), key=_order_of_row)
    collected: list[Lock] = []
    for chunk in _chunks([row for row in places if after is None or _order_of_row(row) >= _order(after[0])]):
        begins = after is not None and _order_of_row(chunk[0]) == _order(after[0])
        key = after[1] if begins and after else None
        rows = yield call(
            "read_locks", entity_ids=[row.id for row in chunk], cap=EXAMINED, **filter.holders,
            after_number=key if isinstance(key, int) else None, after_session=key if isinstance(key, str) else None,
            max_count=limit + 1 - len(collected),
        )  # fmt: skip
        collected += map(_lock, rows)
        if len(collected) > limit:
            break
    matching, holders = yield from _holders(places, filter)
    page = tuple(collected[:limit])
    return Locks(page, page[-1].cursor if len(collected) > limit else None, matching, _largest(holders))


def _holders(places: Sequence[Any], filter: LockFilter) -> Steps[tuple[Capped, list[Holder]]]:
    """How many locks match, and who holds them; of the first MOST_COUNTED."""
    holders: list[Holder] = []
    counted = 0
    for chunk in _chunks(places):
        if counted >= MOST_COUNTED:
            return Capped(sum(entry.locks for entry in holders), capped=True), holders
        rows = yield call("read_lock_holders", entity_ids=[row.id for row in chunk], cap=EXAMINED, **filter.holders)
        holders += [Holder(row.holder or "", row.messages, row.sessions) for row in rows]
        counted += sum(row.locks for row in chunk)
    return Capped(sum(entry.locks for entry in holders)), holders


def _largest(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """The holders with the most locks, each once."""
    sums: dict[str, tuple[int, int]] = {}
    for holder in holders:
        name = str(parsed(holder.name))
        messages, sessions = sums.get(name, (0, 0))
        sums[name] = messages + holder.messages, sessions + holder.sessions
    joined = (Holder(name, *counts) for name, counts in sums.items() if name)
    return tuple(sorted(joined, key=lambda holder: (-holder.locks, holder.name))[:MOST_HOLDERS])


def _chunks(places: Sequence[Any]) -> Iterable[list[Any]]:
    """The entities in groups with about EXAMINED_AT_ONCE locks."""
    chunk: list[Any] = []
    lock_count = 0
    for row in places:
        chunk.append(row)
        lock_count += row.locks + 1
        if lock_count >= EXAMINED_AT_ONCE:
            yield chunk
            chunk, lock_count = [], 0
    if chunk:
        yield chunk


def _parsed(cursor: str | None) -> tuple[EntityAddress, int | str] | None:
    if cursor is None:
        return None
    try:
        namespace, path, key = json.loads(cursor)
        if isinstance(namespace, str) and isinstance(path, str) and isinstance(key, int | str) and not isinstance(key, bool):
            return EntityAddress(namespace, path), key
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidArgument("cursor", f"{cursor[:80]!r} is not a valid page cursor")


def _order(address: EntityAddress) -> tuple[str, str, str]:
    return address.namespace.lower(), address.path.lower(), address.path


def _order_of_row(row: Any) -> tuple[str, str, str]:
    return row.namespace_name.lower(), row.path.lower(), row.path


def _lock(row: Any) -> Lock:
    return Lock(
        entity_id=row.entity_id,
        address=EntityAddress(row.namespace_name, row.path, SubQueue(row.subqueue)),
        family=Family(row.family),
        number=row.number,
        session_id=row.session_id,
        message_id=row.message_id,
        holder=row.holder,
        since=row.since,
        until=row.until,
        renewals=row.renewals,
        read_at=row.now,
        clock_is_manual=row.is_manual,
    )
