"""How a connection ends in the database, whoever ends it: its client, another process, or its virtual host's deletion."""

from __future__ import annotations

from broker_core.common.errors import ServerBusy
from broker_core.rabbitmq.messages import delivering
from broker_core.rabbitmq.messages.routing_transaction import TRIES
from broker_core.rabbitmq.topology.vhosts import HeldVhost
from broker_core.store.driver import Atomically, Steps
from broker_core.store.failures import TRANSIENT
from broker_core.store.statements import call

from . import consumers
from .state import ConnectionState


def close_because(connection: ConnectionState, why: Exception) -> Steps[None]:
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
