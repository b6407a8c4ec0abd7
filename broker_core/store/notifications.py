"""The connection on which a process listens for wake-ups from other processes (docs/design.md D8)."""

from __future__ import annotations

import select
import socket
from contextlib import suppress

from . import connections
from .failures import translated

WAKE_CHANNEL = "vitrine_wake"  # the payload of a notification is an entity's id


class Notifications:
    """This thread's connection, listening. Raises BrokerError if the database ends it or cannot be reached."""

    def __init__(self) -> None:
        with translated():
            self._connection = connections.current()
            self._connection.execute(f"LISTEN {WAKE_CHANNEL}")

    def wait(self, seconds: float, woken: socket.socket) -> set[int]:
        """The entities of the notifications that have arrived; waits until there is one, `woken` is readable, or the time is
        up."""
        readable = select.poll()  # accepts any descriptor; select() only those below 1,024
        with translated():
            readable.register(self._connection.pgconn.socket, select.POLLIN)
            readable.register(woken, select.POLLIN)
            # some may have come with a statement's result
            entity_ids = {int(notification.payload) for notification in self._connection.notifies(timeout=0)}
            if not entity_ids and readable.poll(max(0.0, seconds * 1000)):
                entity_ids = {int(notification.payload) for notification in self._connection.notifies(timeout=0)}
        with suppress(BlockingIOError):
            woken.recv(4096)
        return entity_ids
