"""What a virtual host's messages are routed by, compiled for each version of it and kept by the process.

A version is raised by whatever changes exchanges, bindings, queues or what is in force for them. `of` gives what this process
last saw, without asking: whoever acts on it compares the version in the statement that acts, and calls `look_again` where it
differs. Then only what changed is read, and the new Topology shares the rest with the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from broker_core.rabbitmq.rules.exchanges import BindingDef, ExchangeDef, Router
from broker_core.rabbitmq.rules.table import decode
from broker_core.runtime.entity_cache import BoundedCache
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .vhosts import require_vhost

K = TypeVar("K")
V = TypeVar("V")


class QueueInfo(NamedTuple):
    """A queue as publishing needs it. effective: what is in force, by key. owner_id: the connection of an exclusive one."""

    id: int
    effective: Mapping[str, Any]
    type: str
    owner_id: int | None
    history_level: int

    @property
    def has_priorities(self) -> bool:
        """Never changes: there is no policy for it (RMQ-162)."""
        return self.effective.get("max_priority", 0) > 0

    @property
    def lets_nothing_wait(self) -> bool:
        """What it gets is a consumer's at once, or has expired (RMQ-016)."""
        return self.effective.get("message_ttl") == 0


class Topology(NamedTuple):
    """A virtual host's exchanges and bindings as a router, its queues by name, and its bindings by id. It never changes."""

    namespace_id: int
    vhost: str
    version: int
    router: Router
    queues: Mapping[str, QueueInfo]
    bindings: Mapping[int, BindingDef]


_compiled = BoundedCache(1_000)  # database and virtual host -> Topology
_outdated = BoundedCache(1_000)  # those of them that are of a former version


def of(vhost: str) -> Steps[Topology]:
    """The Topology of a virtual host, as this process remembers it. Raises AmqpError (530) where there is none."""
    key = _key(vhost)
    found = _compiled.get(key)
    return found if found is not None and key not in _outdated else (yield from current(vhost))


def current(vhost: str) -> Steps[Topology]:
    """The Topology of a virtual host as it is now. Raises AmqpError (530) where there is none."""
    key = _key(vhost)
    held, found = _compiled.get(key), None
    if held is not None:
        row = require_vhost(vhost, (yield call("topology_since", vhost=vhost, since=held.version)))
        found = _later(held, row)
    found = found or _whole(require_vhost(vhost, (yield call("topology", vhost=vhost))))
    _outdated.pop(key, None)
    return _compiled.keep(key, found)


def look_again(vhost: str) -> None:
    """Look next time for what changed: what is remembered was not of the version that there is."""
    _outdated.keep(_key(vhost), True)


def forget(vhost: str) -> None:
    """There is no such virtual host any more."""
    _compiled.pop(_key(vhost), None)


def _key(vhost: str):
    return connections.current_database(), vhost.lower()


def _whole(row: Any) -> Topology:
    queues, exchanges, bindings = _content(row)
    router = Router(exchanges.values(), bindings.values(), queues.keys(), row.name)
    return Topology(row.id, row.name, row.version, router, queues, bindings)


def _later(held: Topology, row: Any) -> Topology | None:
    """The Topology with what changed after it; None where not all of that is told."""
    steps = [held.version, *row.versions]
    if row.id != held.namespace_id or [*row.previous, row.version] != steps:
        return None
    if not row.versions:
        return held
    queues, exchanges, bindings = _content(row)
    lost = [held.bindings[id] for id in row.changed_bindings if id in held.bindings]
    all_queues = _with(held.queues, row.changed_queues, queues)
    named = dict.fromkeys(row.changed_exchanges) | exchanges
    router = held.router.changed(named, lost, bindings.values(), all_queues.keys())
    return Topology(row.id, row.name, row.version, router, all_queues, _with(held.bindings, row.changed_bindings, bindings))


def _with(held: Mapping[K, V], changed: Iterable[K], there: dict[K, V]) -> dict[K, V]:
    """Without what changed, but for that of it which is there."""
    kept = dict(held)
    for key in changed:
        kept.pop(key, None)
    return kept | there


def _content(row: Any) -> tuple[dict[str, QueueInfo], dict[str, ExchangeDef], dict[int, BindingDef]]:
    """Queues, exchanges and bindings as a statement gave them."""
    queues = {name: QueueInfo(*rest) for name, *rest in row.queues}
    exchanges = {fields[0]: _exchange(fields) for fields in row.exchanges}
    return queues, exchanges, {id: _binding(fields) for id, *fields in row.bindings}


def _exchange(fields: list) -> ExchangeDef:
    name, type, durable, auto_delete, internal, arguments, effective = fields
    return ExchangeDef(name, type, durable, auto_delete, internal, decode(arguments), effective.get("alternate_exchange"))


def _binding(fields: list) -> BindingDef:
    source, destination, destination_is_queue, routing_key, arguments = fields
    return BindingDef(source, destination, destination_is_queue, routing_key, decode(arguments))
