"""The routing topology of a virtual host, compiled for each version and cached by the process.

Each change of exchanges, bindings, queues or their effective settings raises the version. `cached` returns the cached topology
without a query: the statement that uses it compares the version, and the caller calls `mark_outdated` if it differs. Then only
the changes are read, and the new Topology shares the rest with the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from broker_core.common.types import EntityStatus
from broker_core.rabbitmq.rules.exchanges import BindingDef, ExchangeDef, Router
from broker_core.rabbitmq.rules.table import decode
from broker_core.runtime.caches import BoundedCache
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .vhosts import require_vhost

K = TypeVar("K")
V = TypeVar("V")


class QueueInfo(NamedTuple):
    """A queue as needed for publishing. effective: effective settings by key. owner_id: the connection of an exclusive queue.
    status: an EntityStatus, which says what is paused (RMQ-929)."""

    id: int
    effective: Mapping[str, Any]
    type: str
    owner_id: int | None
    history_level: int
    status: str = EntityStatus.ACTIVE

    @property
    def may_send(self) -> bool:
        return EntityStatus(self.status).may_send

    @property
    def may_receive(self) -> bool:
        return EntityStatus(self.status).may_receive

    @property
    def has_priorities(self) -> bool:
        """Never changes: policies cannot set it (RMQ-162)."""
        return self.effective.get("max_priority", 0) > 0

    @property
    def has_zero_ttl(self) -> bool:
        """Messages are delivered at once or expire (RMQ-016)."""
        return self.effective.get("message_ttl") == 0


class Topology(NamedTuple):
    """A virtual host's router, its queues by name, and its bindings by id. Immutable."""

    namespace_id: int
    vhost: str
    version: int
    router: Router
    queues: Mapping[str, QueueInfo]
    bindings: Mapping[int, BindingDef]


_compiled = BoundedCache(1_000)  # database and virtual host -> Topology
_outdated = BoundedCache(1_000)  # cached topologies of an old version


def cached(vhost: str) -> Steps[Topology]:
    """The cached Topology of a virtual host. Raises AmqpError (530) if the host does not exist."""
    key = _key(vhost)
    topology = _compiled.get(key)
    return topology if topology is not None and key not in _outdated else (yield from current(vhost))


def current(vhost: str) -> Steps[Topology]:
    """The current Topology of a virtual host. Raises AmqpError (530) if the host does not exist."""
    key = _key(vhost)
    known, topology = _compiled.get(key), None
    if known is not None:
        row = require_vhost(vhost, (yield call("topology_since", vhost=vhost, since=known.version)))
        topology = _updated(known, row)
    topology = topology or _loaded(require_vhost(vhost, (yield call("topology", vhost=vhost))))
    _outdated.pop(key, None)
    return _compiled.keep(key, topology)


def mark_outdated(vhost: str) -> None:
    """Read changes at the next access: the cached topology is not of the current version."""
    _outdated.keep(_key(vhost), True)


def forget(vhost: str) -> None:
    """Remove a deleted virtual host from the cache."""
    _compiled.pop(_key(vhost), None)


def _key(vhost: str):
    return connections.current_database(), vhost.lower()


def _loaded(row: Any) -> Topology:
    queues, exchanges, bindings = _content(row)
    router = Router(exchanges.values(), bindings.values(), queues.keys(), row.name)
    return Topology(row.id, row.name, row.version, router, queues, bindings)


def _updated(known: Topology, row: Any) -> Topology | None:
    """The Topology with later changes applied; None if the recorded changes are incomplete."""
    steps = [known.version, *row.versions]
    if row.id != known.namespace_id or [*row.previous, row.version] != steps:
        return None
    if not row.versions:
        return known
    queues, exchanges, bindings = _content(row)
    lost = [known.bindings[id] for id in row.changed_bindings if id in known.bindings]
    all_queues = _replaced(known.queues, row.changed_queues, queues)
    named = dict.fromkeys(row.changed_exchanges) | exchanges
    router = known.router.changed(named, lost, bindings.values(), all_queues.keys())
    return Topology(row.id, row.name, row.version, router, all_queues, _replaced(known.bindings, row.changed_bindings, bindings))


def _replaced(known: Mapping[K, V], changed: Iterable[K], present: dict[K, V]) -> dict[K, V]:
    """Replace the changed keys by their current values."""
    unchanged = dict(known)
    for key in changed:
        unchanged.pop(key, None)
    return unchanged | present


def _content(row: Any) -> tuple[dict[str, QueueInfo], dict[str, ExchangeDef], dict[int, BindingDef]]:
    """Queues, exchanges and bindings from a statement's row."""
    queues = {name: QueueInfo(*rest) for name, *rest in row.queues}
    exchanges = {fields[0]: _exchange(fields) for fields in row.exchanges}
    return queues, exchanges, {id: _binding(fields) for id, *fields in row.bindings}


def _exchange(fields: list) -> ExchangeDef:
    name, type, durable, auto_delete, internal, arguments, effective = fields
    return ExchangeDef(name, type, durable, auto_delete, internal, decode(arguments), effective.get("alternate_exchange"))


def _binding(fields: list) -> BindingDef:
    source, destination, destination_is_queue, routing_key, arguments = fields
    return BindingDef(source, destination, destination_is_queue, routing_key, decode(arguments))
