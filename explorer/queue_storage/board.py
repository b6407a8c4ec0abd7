"""The lanes of a storage queue's board."""

from __future__ import annotations

from broker_core import queue_storage, reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress, HoldKind
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.reads import EXPIRED, EntityRow, MessageRow, Tab
from explorer.frames import figures
from explorer.frames.actors import shown_actor
from explorer.frames.values import BoardPages, Lane

from . import counts

_DELAYED = (DisplayState.DELAYED, DisplayState.RESCHEDULED)
_LEASED = (DisplayState.LEASED, DisplayState.EXTENDED)


class StorageBoard(BoardPages):
    """How the board shows storage queues."""

    boxes = "leased"

    def lanes(self, entity: EntityRow, actor: Actor) -> list[Lane]:
        """By the reason why a message is invisible, and the poison queue, if there is one."""
        main_lanes = [
            Lane(
                "delayed", "delayed", "scheduled", "scheduled", "visible later", "No delayed messages.", Tab.ACTIVE,
                counts.delayed, lambda row: row.display_state in _DELAYED, (int(HoldKind.PUT), int(HoldKind.UPDATE_BEFORE_GET)),
            ),
            Lane(
                "visible", "visible", "active", "active", "returned by a get", "No visible messages.", Tab.ACTIVE,
                lambda e: None if e.expired_pending.capped else figures.at_hand(e),
                lambda row: row.display_state is DisplayState.VISIBLE, (0,),
            ),
            Lane(
                "leased", "leased", "locked", "locked", "until the visibility timeout ends", "No leased messages.", Tab.ACTIVE,
                counts.leased, lambda row: row.display_state in _LEASED, (int(HoldKind.GET), int(HoldKind.UPDATE)),
                by=lambda row: shown_actor(row.locked_by) if row.locked_by else "a client",
            ),
            Lane(
                "expired", "expired", "expired", "expired", "no longer visible", "No expired messages.", Tab.ACTIVE,
                lambda e: e.expired_pending, lambda row: row.display_state is DisplayState.EXPIRED, (EXPIRED,),
            ),
        ]  # fmt: skip
        poison = queue_storage.get_queue(entity.address, actor=actor).poison
        return [*main_lanes, *([_poison(poison, actor)] if poison and _exists(poison, actor) else [])]

    def tries(self, row: MessageRow) -> tuple[int, str]:
        """How often it was returned by a get; of a leased one, also the end of the pop receipt that its receiver got."""
        notes = [f"dequeued {row.delivery_count}×"] if row.delivery_count else []
        if row.display_state in _LEASED and row.lock_token:
            notes.append(f"receipt …{row.lock_token.hex[-4:]}")
        return row.delivery_count, ", ".join(notes)


def _poison(address: EntityAddress, actor: Actor) -> Lane:
    return Lane(
        "poison", "poison", "dead", "dead", f"in {address.path}", "No poison messages.", Tab.ACTIVE,
        lambda _: reads.counts(address, actor=actor).active, lambda row: True, newest_first=True, place=address,
    )  # fmt: skip


def _exists(address: EntityAddress, actor: Actor) -> bool:
    try:
        reads.counts(address, actor=actor)
    except EntityNotFound:
        return False
    return True
