"""Connections to a virtual host: opened in this process's epoch, closed, lost; and what ends with them (RMQ-123, RMQ 1.3).

What a connection holds in the database names it by its id. Whoever ends it, itself or another process, does the same: its
unacknowledged messages go back to their places with redelivered set, its exclusive queues are deleted, its consumers are
forgotten, and the auto-delete queues that lived by them are deleted. All in one transaction, after which its id is nobody's: a
process that was taken for dead, and lives, finds nothing of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker_core.common.errors import BrokerError, InvalidArgument, ServerBusy
from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.messages import delivering
from broker_core.rabbitmq.messages.routing_transaction import TRIES
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.topology.vhosts import HeldVhost
from broker_core.store import aio
from broker_core.store.driver import Atomically, Steps, UseCase, use_case
from broker_core.store.failures import TRANSIENT
from broker_core.store.statements import call

from . import consumers, processes
from .processes import ConnectionLost

if TYPE_CHECKING:
    from .channels import Channel

MOST_CHANNELS = 2047
MOST_NAME = 255  # characters


class Connection:
    """An open connection. Its methods, and those of its channels, are called from one thread at a time.

    closed: why it is not open any more; None while it is.
    """

    def __init__(self, process: processes.Process, row: Any, name: str, actor: Actor):
        self.id: int = row.id
        self.vhost: str = row.name
        self.name, self.actor, self.opened_at = name, actor, row.opened_at
        self.channels: dict[int, Channel] = {}
        self.closed: Exception | None = None
        self._process = process
        process.owned[self.id] = self

    def require_open(self) -> None:
        """Raise what ended it."""
        if self.closed is None and (why := self._process.why_lost):
            self.lost(why)
        if self.closed is not None:
            raise self.closed.with_traceback(None)

    @property
    def is_lost(self) -> bool:
        return self.closed is not None or self._process.why_lost is not None

    def lost(self, why: str) -> Exception:
        """It was ended by others. Returns what says so."""
        return self.end(ConnectionLost(self.name, why))

    def end(self, because: Exception) -> Exception:
        """It is over here, with its channels; what the database has of it is somebody's to end, or ended already. Returns what
        ended it first."""
        self.closed = ended_by = self.closed or because
        for channel in list(self.channels.values()):
            channel.end(ended_by)
        self.channels.clear()
        self._process.owned.pop(self.id, None)
        return ended_by

    def hear(self, what: str) -> None:
        """What another process says: that it ended this connection, or that a message was held for too long."""
        kind, _, rest = what.partition(" ")
        if kind == "closed":
            self.end(errors.connection_forced(rest))
        elif kind == "overdue":
            for channel in list(self.channels.values()):
                channel.hear_overdue(rest)

    def channel(self, number: int | None = None) -> Channel:
        """Open a channel; without a number the lowest free one."""
        from .channels import Channel

        self.require_open()
        free = next((n for n in range(1, MOST_CHANNELS + 1) if n not in self.channels), None) if number is None else number
        if free is None or not 1 <= free <= MOST_CHANNELS:
            raise errors.AmqpError("NOT_ALLOWED", f"number of channels opened ({MOST_CHANNELS}) has reached the maximum allowed")
        if free in self.channels:
            raise errors.AmqpError("CHANNEL_ERROR", "second 'channel.open' seen")
        return self.channels.setdefault(free, Channel(self, free))

    def close(self) -> None:
        close(self)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Connect(UseCase):
    """As any use case; taking an epoch blocks, so it is not done in an event loop's thread. Where awaiting it is cancelled, the
    connection that was opened for nobody is closed."""

    async def aio(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.to_thread(processes.joined)
        return await aio.to_its_end(super().aio(*args, **kwargs), left_behind=close.aio)


class EndsWhatItBegan(UseCase):
    """A use case that comes to its end also where awaiting it is cancelled: what is over here is over in the database, too."""

    async def aio(self, *args: Any, **kwargs: Any) -> Any:
        return await aio.to_its_end(super().aio(*args, **kwargs))


@_Connect
def connect(vhost: str, name: str = "", *, actor: Actor | None = None) -> Steps[Connection]:
    """Open a connection to a virtual host. Raises AmqpError (530) where there is none of this name.

    name: as it is shown, and as the holder of messages; the actor's by default.
    The first connection of a process takes its epoch, and looks whether others are dead meanwhile.
    """
    actor = actor or Actor.local()
    actor.require(actor.rights & (Right.SEND | Right.LISTEN) or Right.LISTEN, vhost)
    name = name or actor.holder_label
    if not isinstance(name, str) or len(name) > MOST_NAME:
        raise InvalidArgument("name", f"{name!r} must be a string of at most {MOST_NAME} characters")
    while True:
        process = processes.joined()
        if process.is_fresh:
            process.is_fresh = False
            yield from recover_dead.steps()
        rows = yield call("open_connection", vhost=vhost, name=name, epoch=process.epoch)
        if not rows:
            raise errors.vhost_not_found(vhost)
        if rows[0].id is not None:
            return Connection(process, rows[0], name, actor)
        process.leave("its process was declared dead")


@EndsWhatItBegan
def close(connection: Connection) -> Steps[None]:
    """Close a connection; closing one that is closed, or lost, does nothing."""
    yield from close_because(connection, errors.connection_forced("the connection was closed"))


@use_case
def force_close(connection_id: int, reason: str = "Closed via management plugin", *, actor: Actor | None = None) -> Steps:
    """Close a connection of any process, whose client is told at its next use. Returns whether there was such a one."""
    (actor or Actor.local()).require(Right.OPERATE, f"connection {connection_id}")
    ended = yield from end(connection_id)
    yield call("tell_connection", connection_id=connection_id, what=f"closed {reason}")
    return ended


@use_case
def recover_dead() -> Steps:
    """End the connections of processes that are dead: killed, so that their lock is free, or without a lease (wire.md 4).

    What cannot be ended now is left to the next call. Returns how many connections were ended.
    """
    ended = 0
    for dead in (yield call("condemn_dead_processes")):
        for row in (yield call("connections_of", epoch=dead.epoch)):
            try:
                ended += yield from end(row.id)
            except BrokerError as refusal:
                if not refusal.retryable:
                    raise
        yield call("forget_process", epoch=dead.epoch)
    return {"connections": ended} if ended else {}


def close_because(connection: Connection, why: Exception) -> Steps[None]:
    """Close a connection that is open; whoever uses it afterwards is told why."""
    if not connection.is_lost:
        connection.end(why)
        yield from end(connection.id)


def end(connection_id: int) -> Steps:
    """End a connection in the database. Returns whether it was there."""
    for is_last in (*(False,) * (TRIES - 1), True):
        rows = yield call("vhost_of_connection", connection_id=connection_id)
        try:
            return bool(rows) and (yield Atomically(end_held(connection_id, rows[0].name)))
        except ServerBusy as busy:  # another transaction was met crosswise
            if is_last or not isinstance(busy.__cause__, TRANSIENT):
                raise


def end_held(connection_id: int, vhost: str) -> Steps[bool]:
    """End a connection in the caller's transaction. Returns whether it was there.

    The virtual host is held first, as by all who change it; then the connection, so that nothing more is done in its name.
    """
    rows = yield call("hold_vhost", vhost=vhost)
    if not rows or not (yield call("lock_connection", connection_id=connection_id)):
        return False  # it ended, maybe with its virtual host
    held = HeldVhost(rows[0].id, rows[0].name)
    yield from delivering.release_owner(held.name, connection_id)
    owned = yield call("queues_of_connection", connection_id=connection_id)
    yield from consumers.delete_queues(held, owned)
    yield from consumers.forget_all(connection_id, None, held)
    yield call("forget_connection", connection_id=connection_id)
    return True
