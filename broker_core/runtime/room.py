"""Whether there is room for more messages: in a namespace with a maximum size, and on the disk.

A process checks every few seconds, not with each send, so both limits are passed by what is sent in the meantime. Receiving and
settling go on. Vitrine's own namespace accepts sends as long as there is any space: its tasks free some. What only replaces
messages of a namespace, such as a move to another queue, needs no room in it; docs/entities.md lists what does.

The free space is known only if the database's server is the one that Vitrine runs on this machine: VITRINE_DISK_FOLDER is its
data folder, and VITRINE_DISK_RESERVE_MB what has to stay free, as RabbitMQ's disk_free_limit; 0: not checked.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from typing import NamedTuple

from django.conf import ENVIRONMENT_VARIABLE, settings

from broker_core.common.errors import NamespaceFull, StorageFull
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .caches import BoundedCache

CHECK_SECONDS = 5.0


class Room(NamedTuple):
    """The last check of a database. checked_at: by time.monotonic. full: the sizes in bytes of the namespaces that are full, by
    name in lower case. own: the namespaces that the reserve is for. missing: how many bytes of the reserve are missing on the
    disk."""

    checked_at: float
    full: Mapping[str, int] = {}
    own: frozenset[str] = frozenset()
    missing: int = 0


_rooms = BoundedCache(1_000)  # database -> Room


def require_room(namespace: str) -> Steps[None]:
    """Raise NamespaceFull if the namespace has reached its maximum size, StorageFull if the reserve of the disk is touched."""
    room, name = (yield from _look()), namespace.lower()
    if name in room.full:
        raise NamespaceFull(namespace, room.full[name])
    _require_reserve(room, name)


def require_reserve(namespace: str) -> Steps[None]:
    """Raise StorageFull if the reserve of the disk is touched: for what needs space, but adds nothing to the namespace's size."""
    _require_reserve((yield from _look()), namespace.lower())


def _look() -> Steps[Room]:
    """The last check of the current database, which is at most CHECK_SECONDS old."""
    database, now = connections.current_database(), time.monotonic()
    room: Room = _rooms.get(database, Room(-CHECK_SECONDS))
    if now >= room.checked_at + CHECK_SECONDS:
        _rooms.keep(database, room._replace(checked_at=now))  # other calls use the last check meanwhile
        rows = yield call("namespaces_by_room")
        full = {row.name: row.quota for row in rows if row.is_full}
        own = frozenset(row.name for row in rows if row.is_system)
        room = _rooms.keep(database, Room(now, full, own, _missing()))
    return room


def _require_reserve(room: Room, name: str) -> None:
    if room.missing and name not in room.own:
        raise StorageFull(
            f"The database's disk is nearly full: sends are refused until {room.missing / 2**20:,.0f} MB more are free; "
            "receiving goes on. Nothing was stored. Receive or purge messages, free some space, or lower VITRINE_DISK_RESERVE_MB."
        )


def forget_rooms() -> None:
    """Discard what is known about the space, so that the next send reads the sizes again."""
    _rooms.clear()


class Disk(NamedTuple):
    """The disk of the default database. free: bytes. reserve: how many of them sends may not use."""

    free: int
    reserve: int

    @property
    def missing(self) -> int:
        """How many bytes of the reserve are missing."""
        return max(self.reserve - self.free, 0)


def disk() -> Disk | None:
    """The disk of the default database; None: unknown here, or not to be checked."""
    if not (settings.configured or os.environ.get(ENVIRONMENT_VARIABLE)):
        return None
    folder, reserve = getattr(settings, "VITRINE_DISK_FOLDER", None), getattr(settings, "VITRINE_DISK_RESERVE_MB", 0)
    if not folder or not reserve:
        return None
    try:
        return Disk(shutil.disk_usage(folder).free, reserve * 2**20)
    except OSError:  # another user's folder, or none
        return None


def _missing() -> int:
    space = disk() if connections.current_database().alias == "default" else None
    return space.missing if space else 0
