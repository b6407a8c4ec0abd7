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

from .vhosts import LockedVhost, changing, delete_idle_exchanges, require_vhost, topology_changed


class _BindingRequest(NamedTuple):
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
    request = _request(exchange, queue, None, routing_key, arguments, owner_id)
    return (yield from _bind(vhost, request, actor))


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
    request = _request(exchange, queue, None, routing_key, arguments, owner_id)
    return (yield from _unbind(vhost, request, actor))


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
    return (yield from _bind(vhost, _request(source, None, destination, routing_key, arguments), actor))


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
    return (yield from _unbind(vhost, _request(source, None, destination, routing_key, arguments), actor))


def _request(source, queue, exchange, routing_key, arguments, owner_id=None) -> _BindingRequest:
    for name in (source, exchange):
        if name is not None:
            checks.check_not_default_exchange(name)
    for what, name in (("exchange", source), ("queue", exchange if queue is None else queue)):
        require_kind(what, name, str)
    names.clean(routing_key, "routing_key")  # only checks that it is a short string; line ends are kept
    return _BindingRequest(source, queue, exchange, routing_key, dict(arguments or {}), owner_id)


def _bind(vhost: str, request: _BindingRequest, actor: Actor | None) -> Steps:
    (actor or Actor.local()).require(Right.MANAGE, vhost)
    row = yield from _ends(vhost, request)
    _require_ends(vhost, request, row)
    if row.binding_id is not None:
        return False

    def change(host: LockedVhost) -> Steps:
        row = yield from _ends(host.name, request)
        _require_ends(host.name, request, row)
        ends = {"source_id": row.source_id, "queue_id": row.queue_id, "exchange_id": row.exchange_id}
        rows = yield call("insert_binding", **ends, **request.identity, arguments=request.stored_arguments)
        if rows:
            yield from topology_changed(host.id, bindings=[rows[0].id])
        return bool(rows)

    return (yield from changing(vhost, actor, change))


def _unbind(vhost: str, request: _BindingRequest, actor: Actor | None) -> Steps:
    def change(host: LockedVhost) -> Steps:
        row = yield from _ends(host.name, request)
        if row.binding_id is None:
            return False
        _require_access(host.name, request, row)
        yield call("delete_binding", id=row.binding_id)
        exchanges, more = yield from delete_idle_exchanges([row.source_id])
        yield from topology_changed(host.id, exchanges=exchanges, bindings=[row.binding_id, *more])
        return True

    return (yield from changing(vhost, actor, change))


def _ends(vhost: str, request: _BindingRequest) -> Steps:
    ends = {"source": request.source, "queue": request.queue, "exchange": request.exchange}
    return require_vhost(vhost, (yield call("find_binding_ends", vhost=vhost, **ends, **request.identity)))


def _require_ends(vhost: str, request: _BindingRequest, row: Any) -> None:
    """Check that both ends exist, the source first (RMQ-309, RMQ-325), and accept the binding (RMQ-352)."""
    if row.source_id is None:
        raise errors.not_found_exchange(vhost, request.source)
    if request.queue is not None and row.queue_id is None:
        raise errors.not_found_queue(vhost, request.queue)
    if request.exchange is not None and row.exchange_id is None:
        raise errors.not_found_exchange(vhost, request.exchange)
    _require_access(vhost, request, row)
    checks.check_binding_arguments(row.type, request.arguments)


def _require_access(vhost: str, request: _BindingRequest, row: Any) -> None:
    if request.queue is not None and row.owner_id not in (None, request.owner_id):
        raise errors.locked_queue(vhost, request.queue)
