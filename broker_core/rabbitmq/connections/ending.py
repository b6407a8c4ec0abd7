"""Ending a connection in the database: by its client, by another process, or with its virtual host."""

from __future__ import annotations

from broker_core.common.errors import ServerBusy
from broker_core.rabbitmq.messages import delivering
from broker_core.rabbitmq.messages.routing_transaction import TRIES
from broker_core.rabbitmq.topology.vhosts import LockedVhost
from broker_core.store.driver import Atomically, Steps
from broker_core.store.failures import TRANSIENT
from broker_core.store.statements import call

from . import consumers
from .state import ConnectionState


def close_because(connection: ConnectionState, why: Exception) -> Steps[None]:
    """Close an open connection; later uses raise `why`."""
    if not connection.is_lost:
        connection.end(why)
        yield from end(connection.id)


def end(connection_id: int) -> Steps:
    """End a connection in the database. Returns whether it existed."""
    for is_last in (*(False,) * (TRIES - 1), True):
        rows = yield call("vhost_of_connection", connection_id=connection_id)
        try:
            return bool(rows) and (yield Atomically(end_in_transaction(connection_id, rows[0].name)))
        except ServerBusy as busy:  # deadlock with another transaction
            if is_last or not isinstance(busy.__cause__, TRANSIENT):
                raise


def end_in_transaction(connection_id: int, vhost: str) -> Steps[bool]:
    """End a connection in the caller's transaction. Returns whether it existed.

    The virtual host is locked first, as by all changes to it; then the connection, so that nothing more is done in its name.
    """
    rows = yield call("lock_vhost", vhost=vhost)
    if not rows or not (yield call("lock_connection", connection_id=connection_id)):
        return False  # already ended, maybe with its virtual host
    host = LockedVhost(rows[0].id, rows[0].name)
    yield from delivering.release_owner(host.name, connection_id)
    owned = yield call("queues_of_connection", connection_id=connection_id)
    yield from consumers.delete_queues(host, owned)
    yield from consumers.remove_consumers(connection_id, None, host)
    yield call("delete_connection", connection_id=connection_id)
    return True
