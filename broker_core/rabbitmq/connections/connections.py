"""Connections to a virtual host: opened in this process's epoch, closed, lost; and what ends with them (RMQ-123).

What a connection holds in the database names it by its id. Whoever ends it, itself or another process, does the same: its
unacknowledged messages go back to their places with redelivered set, its exclusive queues are deleted, its consumers are
forgotten, and the auto-delete queues that lived by them are deleted. All in one transaction, after which its id is nobody's: a
process that was taken for dead, and lives, finds nothing of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.rules import errors
from broker_core.store.driver import Blocking, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import complete_only, use_case

from . import ending, processes
from .channels import Channel
from .state import ConnectionState

MOST_CHANNELS = 2047
MOST_NAME = 255  # characters


class Connection(ConnectionState):
    """An open connection. Its methods, and those of its channels, are called from one thread at a time."""

    def channel(self, number: int | None = None) -> Channel:
        """Open a channel; without a number the lowest free one."""
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


def _close_unclaimed(connection: Connection, asked: Mapping[str, Any]) -> Steps[None]:
    """Of a connection that was opened for a caller who has gone. asked: the arguments of that call."""
    yield from close.steps(connection)


@use_case(on_cancel=_close_unclaimed)
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
        process = yield Blocking(processes.joined)  # taking an epoch blocks
        if process.is_fresh:
            process.is_fresh = False
            yield from recover_dead.steps()
        rows = yield call("open_connection", vhost=vhost, name=name, epoch=process.epoch)
        if not rows:
            raise errors.vhost_not_found(vhost)
        if rows[0].id is not None:
            return Connection(process, rows[0], name, actor)
        process.leave("its process was declared dead")


@use_case(on_cancel=complete_only)
def close(connection: Connection) -> Steps[None]:
    """Close a connection; closing one that is closed, or lost, does nothing."""
    yield from ending.close_because(connection, errors.connection_forced("the connection was closed"))


@use_case
def force_close(connection_id: int, reason: str = "Closed via management plugin", *, actor: Actor | None = None) -> Steps:
    """Close a connection of any process, whose client is told at its next use. Returns whether there was such a one."""
    (actor or Actor.local()).require(Right.OPERATE, f"connection {connection_id}")
    ended = yield from ending.end(connection_id)
    yield call("tell_connection", connection_id=connection_id, what=f"closed {reason}")
    return ended


@use_case
def recover_dead() -> Steps:
    """End the connections of processes that are dead: killed, so that their lock is free, or without a lease.

    What cannot be ended now is left to the next call. Returns how many connections were ended.
    """
    ended = 0
    for dead in (yield call("condemn_dead_processes")):
        for row in (yield call("connections_of", epoch=dead.epoch)):
            try:
                ended += yield from ending.end(row.id)
            except BrokerError as refusal:
                if not refusal.retryable:
                    raise
        yield call("forget_process", epoch=dead.epoch)
    return {"connections": ended} if ended else {}
