"""Sessions of an entity: their messages, locks and state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from broker_core.common.arguments import require_count
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import PAGE_ROWS, Capped, Page, entity_id_of

SESSION_MESSAGES_CAP = 1_000
STATE_BYTES = 200  # shown of a session's state


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session, which has messages, state or a lock (SB-111).

    messages:     active ones, including locked ones. locked_until, locked_by, lock_token: None if not locked at `read_at`.
    state_size:   bytes; None: no state. state: its first bytes; None also without the right to see bodies.
    """

    session_id: str
    messages: Capped
    locked_until: datetime | None
    locked_by: str | None
    lock_token: UUID | None
    state_size: int | None
    state: bytes | None
    state_updated_at: datetime | None
    read_at: datetime


@use_case
def sessions(
    address: EntityAddress,
    *,
    part: str | None = None,
    holder: str | None = None,
    cursor: str | None = None,
    limit: int = PAGE_ROWS,
    actor: Actor | None = None,
) -> Steps[Page[SessionRow]]:
    """Sessions of an entity by id, from the one after `cursor`. Pages go forward only.

    part: only sessions whose id contains it. holder: only sessions locked by this holder. Raises EntityNotFound.
    """
    actor = actor or Actor.local()
    actor.require(Right.BROWSE, address)
    require_count("limit", limit)
    entity_id = yield from entity_id_of(address)
    rows = yield call(
        "read_sessions", entity_id=entity_id, after=cursor, part=part or None, holder=holder, max_count=limit + 1,
        message_cap=SESSION_MESSAGES_CAP, state_bytes=STATE_BYTES,
    )  # fmt: skip
    may_see = Right.SEE_BODIES in actor.rights
    session_rows = tuple(_session(row, may_see) for row in rows[:limit])
    return Page(session_rows, session_rows[-1].session_id if len(rows) > limit else None, None, len(rows), False, None)


def _session(row: Any, may_see_state: bool) -> SessionRow:
    return SessionRow(
        session_id=row.session_id,
        messages=Capped(min(row.messages, SESSION_MESSAGES_CAP), row.messages > SESSION_MESSAGES_CAP),
        locked_until=row.locked_until,
        locked_by=row.locked_by,
        lock_token=row.lock_token,
        state_size=row.state_size,
        state=bytes(row.state) if may_see_state and row.state is not None else None,
        state_updated_at=row.state_updated_at,
        read_at=row.now,
    )
