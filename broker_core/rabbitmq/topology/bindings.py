"""Bindings from an exchange to a queue or to another exchange."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_core.common.arguments import require_kind
from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.rules import arguments as checks
from broker_core.rabbitmq.rules import errors, names, table
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .vhosts import HeldVhost, changing, delete_idle_exchanges, require_vhost, topology_changed


class _Wanted(NamedTuple):
    """A requested binding; either queue or exchange is its destination."""

    source: str
    queue: str | None
    exchange: str | None
    routing_key: str
    arguments: dict[str, Any]
    owner_id: int | None = None

    @property
    def stored_arguments(self) -> str:
        """With sorted keys, since arguments are part of a binding's identity."""
        return json.dumps(table.encode(self.arguments, "argument"), sort_keys=True)

    @property
    def identity(self) -> dict[str, Any]:
        hashed = hashlib.md5(self.stored_arguments.encode(), usedforsecurity=False).hexdigest() if self.arguments else ""
        return {"routing_key": self.routing_key, "arguments_hash": hashed}


@use_case
def bind_queue(
    vhost: str,
    queue: str,
    exchange: str,
    routing_key: str = "",
    arguments: Mapping[str, Any] | None = None,
    *,
    owner_id: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Bind a queue to an exchange. Returns whether the binding is new; repeating it changes nothing (RMQ-350).

    owner_id: the connection that binds; only it may bind its exclusive queues.
    """
    wanted = _wanted(exchange, queue, None, routing_key, arguments, owner_id)
    return (yield from _bind(vhost, wanted, actor))


@use_case
def unbind_queue(
    vhost: str,
    queue: str,
    exchange: str,
    routing_key: str = "",
    arguments: Mapping[str, Any] | None = None,
    *,
    owner_id: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Remove a binding of a queue; a missing one is not an error (RMQ-354). Returns whether it existed."""
    wanted = _wanted(exchange, queue, None, routing_key, arguments, owner_id)
    return (yield from _unbind(vhost, wanted, actor))


@use_case
def bind_exchange(
    vhost: str,
    destination: str,
    source: str,
    routing_key: str = "",
    arguments: Mapping[str, Any] | None = None,
    *,
    actor: Actor | None = None,
) -> Steps:
    """Bind an exchange to another, which then routes messages to it (RMQ-314). Returns whether the binding is new."""
    return (yield from _bind(vhost, _wanted(source, None, destination, routing_key, arguments), actor))


@use_case
def unbind_exchange(
    vhost: str,
    destination: str,
    source: str,
    routing_key: str = "",
    arguments: Mapping[str, Any] | None = None,
    *,
    actor: Actor | None = None,
) -> Steps:
    """Remove a binding between exchanges; a missing one is not an error (RMQ-354). Returns whether it existed."""
    return (yield from _unbind(vhost, _wanted(source, None, destination, routing_key, arguments), actor))


def _wanted(source, queue, exchange, routing_key, arguments, owner_id=None) -> _Wanted:
    for name in (source, exchange):
        if name is not None:
            checks.check_not_default_exchange(name)
    for what, name in (("exchange", source), ("queue", exchange if queue is None else queue)):
        require_kind(what, name, str)
    names.clean(routing_key, "routing_key")  # only checks that it is a short string; line ends are kept
    return _Wanted(source, queue, exchange, routing_key, dict(arguments or {}), owner_id)


def _bind(vhost: str, wanted: _Wanted, actor: Actor | None) -> Steps:
    (actor or Actor.local()).require(Right.MANAGE, vhost)
    found = yield from _ends(vhost, wanted)
    _require_ends(vhost, wanted, found)
    if found.binding_id is not None:
        return False

    def change(held: HeldVhost) -> Steps:
        found = yield from _ends(held.name, wanted)
        _require_ends(held.name, wanted, found)
        ends = {"source_id": found.source_id, "queue_id": found.queue_id, "exchange_id": found.exchange_id}
        rows = yield call("insert_binding", **ends, **wanted.identity, arguments=wanted.stored_arguments)
        if rows:
            yield from topology_changed(held.id, bindings=[rows[0].id])
        return bool(rows)

    return (yield from changing(vhost, actor, change))


def _unbind(vhost: str, wanted: _Wanted, actor: Actor | None) -> Steps:
    def change(held: HeldVhost) -> Steps:
        found = yield from _ends(held.name, wanted)
        if found.binding_id is None:
            return False
        _require_access(held.name, wanted, found)
        yield call("delete_binding", id=found.binding_id)
        exchanges, more = yield from delete_idle_exchanges([found.source_id])
        yield from topology_changed(held.id, exchanges=exchanges, bindings=[found.binding_id, *more])
        return True

    return (yield from changing(vhost, actor, change))


def _ends(vhost: str, wanted: _Wanted) -> Steps:
    ends = {"source": wanted.source, "queue": wanted.queue, "exchange": wanted.exchange}
    return require_vhost(vhost, (yield call("find_binding_ends", vhost=vhost, **ends, **wanted.identity)))


def _require_ends(vhost: str, wanted: _Wanted, found: Any) -> None:
    """Check that both ends exist, the source first (RMQ-309, RMQ-325), and accept the binding (RMQ-352)."""
    if found.source_id is None:
        raise errors.not_found_exchange(vhost, wanted.source)
    if wanted.queue is not None and found.queue_id is None:
        raise errors.not_found_queue(vhost, wanted.queue)
    if wanted.exchange is not None and found.exchange_id is None:
        raise errors.not_found_exchange(vhost, wanted.exchange)
    _require_access(vhost, wanted, found)
    checks.check_binding_arguments(found.type, wanted.arguments)


def _require_access(vhost: str, wanted: _Wanted, found: Any) -> None:
    if wanted.queue is not None and found.owner_id not in (None, wanted.owner_id):
        raise errors.locked_queue(vhost, wanted.queue)
