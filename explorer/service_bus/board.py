"""The lanes of a queue's or subscription's board."""

from __future__ import annotations

from broker_core.common.types import Actor, EntityKind, MessageState, SubQueue
from broker_core.reads import EntityRow, MessageRow, Tab
from broker_core.service_bus.rules.display_state import failures, is_locked
from explorer.frames.actors import ShownActor, shown_actor
from explorer.frames.values import BoardPages, Lane

_NO_REASON = "no reason given"


class ServiceBusBoard(BoardPages):
    """How the board shows queues and subscriptions."""

    boxes = "locked"

    def lanes(self, entity: EntityRow, actor: Actor) -> list[Lane]:
        """Those with messages of the main queue in the order in which a message passes them; then the dead letters."""
        by_session = entity.requires_session
        scheduled = [
            Lane(
                "scheduled", "scheduled", "scheduled", "scheduled", "enqueued when due", "No scheduled messages.", Tab.SCHEDULED,
                lambda e: e.counts.scheduled, lambda row: row.state == MessageState.SCHEDULED,
            )
        ] if entity.kind == EntityKind.QUEUE else []  # fmt: skip
        return [
            *scheduled,
            Lane(
                "active", "active", "active", "active", "in order of number", "No active messages.", Tab.UNLOCKED,
                lambda e: max(0, e.counts.active - e.counts.locked), lambda row: _is_active(row) and not _is_locked(row),
                by=_session if by_session else None,
            ),
            Lane(
                "locked", "locked", "locked", "locked", "until settled or timed out", "No locked messages.", Tab.LOCKED,
                lambda e: e.counts.locked, lambda row: _is_active(row) and _is_locked(row),
                by=_session if by_session else _holder, by_session=by_session,
            ),
            Lane(
                "deferred", "deferred", "deferred", "deferred", "received by number", "No deferred messages.", Tab.DEFERRED,
                lambda e: e.counts.deferred, lambda row: row.state == MessageState.DEFERRED,
            ),
            Lane(
                "dead-letter", "dead-lettered", "dead", "dead", "in its dead-letter queue", "No dead letters.", Tab.DEAD_LETTER,
                lambda e: e.counts.dead_letter, lambda row: row.subqueue == SubQueue.DEAD_LETTER, newest_first=True,
                by=lambda row: row.dead_letter_reason or _NO_REASON,
            ),
        ]  # fmt: skip

    def tries(self, row: MessageRow) -> tuple[int, str]:
        """Its failed deliveries; a lock that has ended is one (SB-090)."""
        failed = failures(row, row.read_at)
        of = f" of {row.max_delivery_count}" if row.subqueue == SubQueue.MAIN else ""
        return failed, f"failed {failed}{of}" if failed else ""


def _is_active(row: MessageRow) -> bool:
    return row.subqueue == SubQueue.MAIN and row.state == MessageState.ACTIVE


def _is_locked(row: MessageRow) -> bool:
    return is_locked(row, row.read_at)


def _holder(row: MessageRow) -> ShownActor | str:
    return shown_actor(row.locked_by) if row.locked_by else "unknown"


def _session(row: MessageRow) -> str:
    return f"session {row.session_id}" if row.session_id else "no session"
