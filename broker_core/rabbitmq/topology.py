"""What a virtual host's messages are routed by, compiled once for each version of it and kept by the process.

A version is raised by whatever changes exchanges, bindings, queues or what is in force for them. `of` gives what this process
last saw, without asking: whoever acts on it compares the version in the statement that acts, and calls `forget` where it differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_core.broker.shared import Memory
from broker_core.semantics.rabbitmq.exchanges import BindingDef, ExchangeDef, Router
from broker_core.semantics.rabbitmq.table import decode
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .vhosts import require_vhost


class QueueInfo(NamedTuple):
    """A queue as publishing needs it. effective: what is in force, by key. owner_id: the connection of an exclusive one."""

    id: int
    effective: Mapping[str, Any]
    type: str
    owner_id: int | None
    history_level: int


class Topology(NamedTuple):
    """A virtual host's exchanges and bindings as a router, and its queues by name."""

    namespace_id: int
    vhost: str
    version: int
    router: Router
    queues: Mapping[str, QueueInfo]


_compiled = Memory(1_000)  # database and virtual host -> Topology


def of(vhost: str) -> Steps:
    """The Topology of a virtual host, as this process remembers it. Raises AmqpError (530) where there is none."""
    found = _compiled.get(_key(vhost))
    return found if found is not None else (yield from _compile(vhost))


def current(vhost: str) -> Steps:
    """The Topology of a virtual host as it is now."""
    row = require_vhost(vhost, (yield call("topology_version", vhost=vhost)))
    found = _compiled.get(_key(vhost))
    if found is not None and (found.namespace_id, found.version) == (row.id, row.topology_version):
        return found
    return (yield from _compile(vhost))


def forget(vhost: str) -> None:
    """Read it again next time: it was not of the version that there is."""
    _compiled.pop(_key(vhost), None)


def _key(vhost: str):
    return connections.current_database(), vhost.lower()


def _compile(vhost: str) -> Steps:
    row = require_vhost(vhost, (yield call("topology", vhost=vhost)))
    queues = {name: QueueInfo(*rest) for name, *rest in row.queues}
    router = Router(map(_exchange, row.exchanges), map(_binding, row.bindings), queues.keys(), row.name)
    return _compiled.keep(_key(vhost), Topology(row.id, row.name, row.version, router, queues))


def _exchange(fields: list) -> ExchangeDef:
    name, type, durable, auto_delete, internal, arguments, effective = fields
    return ExchangeDef(name, type, durable, auto_delete, internal, decode(arguments), effective.get("alternate_exchange"))


def _binding(fields: list) -> BindingDef:
    source, destination, destination_is_queue, routing_key, arguments = fields
    return BindingDef(source, destination, destination_is_queue, routing_key, decode(arguments))
