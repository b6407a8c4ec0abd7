"""Connections to a virtual host: opened in this process's epoch, closed or lost, and what ends with them (RMQ-123).

Messages and queues in the database refer to a connection by its id. Ending a connection, by its client or by another process,
is one transaction: its unacknowledged messages are requeued with redelivered set, its exclusive queues are deleted, its
consumers are removed, and auto-delete queues without consumers are deleted. After that its id is unused: a process that was
declared dead by mistake holds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.family import Sweep
from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.rules import errors
from broker_core.runtime import processes
from broker_core.store.driver import Blocking, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, complete_only, use_case

from . import channels, ending, forgotten
from .channels import Channel
from .state import ConnectionState

MOST_CHANNELS = 2047
MOST_NAME = 255  # characters
processes.at_renewal(forgotten.release_forgotten)


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
    """Close a connection whose caller was cancelled. asked: the arguments of that call."""
    yield from close.steps(connection)


@use_case(on_cancel=_close_unclaimed)
def connect(vhost: str, name: str = "", *, actor: Actor | None = None) -> Steps[Connection]:
    """Open a connection to a virtual host. Raises AmqpError (530) if it does not exist.

    name: shown to users; the actor's by default. The holder of messages is the actor.
    The first connection of a process acquires its epoch and recovers dead processes.
    """
    actor = actor or Actor.local()
    actor.require(actor.rights & (Right.SEND | Right.LISTEN) or Right.LISTEN, vhost)
    name = name or actor.name
    if not isinstance(name, str) or len(name) > MOST_NAME:
        raise InvalidArgument("name", f"{name!r} must be a string of at most {MOST_NAME} characters")
    while True:
        process = yield Blocking(processes.join)  # acquiring an epoch blocks
        if process.is_fresh:
            process.is_fresh = False
            yield from recover_dead.steps()
        rows = yield call("open_connection", vhost=vhost, name=name, actor=str(actor)[:MOST_NAME], epoch=process.epoch)
        if not rows:
            raise errors.vhost_not_found(vhost)
        if rows[0].id is not None:
            return Connection(process, rows[0], name, actor)
        process.leave("its process was declared dead")


@use_case(on_cancel=complete_only)
def close(connection: Connection) -> Steps[None]:
    """Close a connection; has no effect if it is closed or lost."""
    yield from ending.close_because(connection, errors.connection_forced("the connection was closed"))


@use_case(namespace=WHOLE_DATABASE)
def force_close(connection_id: int, reason: str = "Closed via management plugin", *, actor: Actor | None = None) -> Steps:
    """Close a connection of any process; its client gets the reason at its next use. Returns whether the connection existed."""
    (actor or Actor.local()).require(Right.OPERATE, f"connection {connection_id}")
    ended = yield from ending.end(connection_id)
    yield call("notify_connection", connection_id=connection_id, notice=f"closed {reason}")
    return ended


@use_case(namespace=WHOLE_DATABASE)
def recover_dead() -> Steps:
    """End the connections of dead processes: killed, so that their lock is free, or with an expired lease.

    Connections that cannot be ended now are left to the next call. Returns how many were ended.
    """
    ended = 0
    for dead in (yield call("mark_dead_processes")):
        for row in (yield call("connections_of", epoch=dead.epoch)):
            try:
                ended += yield from ending.end(row.id)
            except BrokerError as refusal:
                if not refusal.retryable:
                    raise
        yield call("delete_process", epoch=dead.epoch)
    return {"connections": ended} if ended else {}


@use_case(namespace=WHOLE_DATABASE)
def end_connections() -> Steps:
    """Release the messages and queues of dead processes (RMQ-123); close channels whose delivery timed out (RMQ-126)."""
    ended = yield from recover_dead.steps()
    overdue = yield from channels.end_overdue.steps()
    return ended | overdue


SWEEPS = (
    Sweep(
        end_connections,
        "Dead connections",
        5,
        "Requeues messages and deletes exclusive queues of dead connections; ends overdue deliveries.",
    ),
)
