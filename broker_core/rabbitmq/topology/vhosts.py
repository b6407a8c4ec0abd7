"""Creating, listing and locking virtual hosts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from broker_core import namespaces
from broker_core.common.errors import NotAllowed
from broker_core.common.types import Actor, Family, Right
from broker_core.namespaces.namespaces import of_family
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.errors import vhost_not_found
from broker_core.rabbitmq.rules.exchanges import PREDECLARED, ExchangeDef
from broker_core.rabbitmq.rules.names import DEFAULT_EXCHANGE
from broker_core.runtime.find_or_create import find_or_create
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import WHOLE_DATABASE, by_namespace, use_case

# The default exchange is not stored: it is bound to every queue by name.
STORED = [exchange for exchange in PREDECLARED if exchange.name != DEFAULT_EXCHANGE]
MOST_ITEMIZED = 500  # objects recorded per change; after a larger change the whole topology is read


@dataclass(frozen=True, slots=True)
class LockedVhost:
    """A virtual host locked against topology changes by others until the transaction ends."""

    id: int
    name: str


@use_case(namespace="name")
def create_vhost(name: str, description: str = "", *, actor: Actor | None = None) -> Steps:
    """Create a virtual host with its seven predeclared exchanges (RMQ-300). Returns the Namespace.

    Raises EntityExists if a namespace of any family has the name, ignoring case.
    """

    def steps() -> Steps:
        created = yield from namespaces.create_namespace.steps(name, Family.RABBITMQ, description, actor=actor)
        yield insert_exchanges(created.id, STORED, ["{}"] * len(STORED))
        return created

    return (yield Atomically(steps()))


@use_case(namespace="name")
def ensure_vhost(name: str, description: str = "", *, actor: Actor | None = None) -> Steps:
    """The virtual host of this name, created if it does not exist; an existing one is not changed."""

    def create() -> Steps:
        return create_vhost.steps(name, description, actor=actor)

    return (yield from find_or_create(lambda: get_vhost.steps(name, actor=actor), create))


@use_case(namespace="name")
def get_vhost(name: str, *, actor: Actor | None = None) -> Steps:
    """A virtual host as a Namespace. Raises EntityNotFound, and NotAllowed for a namespace of another family."""
    return (yield from of_family(name, Family.RABBITMQ, actor))


@use_case(namespace=WHOLE_DATABASE, combine=by_namespace)
def list_vhosts(*, actor: Actor | None = None) -> Steps:
    """All virtual hosts, as Namespaces, by name."""
    all_namespaces = yield from namespaces.list_namespaces.steps(actor=actor)
    return [namespace for namespace in all_namespaces if namespace.family is Family.RABBITMQ]


def changing(vhost: str, actor: Actor | None, change: Callable[[LockedVhost], Steps]) -> Steps:
    """Change a virtual host's topology in one transaction, serialised with other changes. Returns what `change` returns."""
    (actor or Actor.local()).require(Right.MANAGE, vhost)

    def steps() -> Steps:
        host = yield from lock_vhost(vhost)
        return (yield from change(host))

    return (yield Atomically(steps()))


def lock_vhost(name: str) -> Steps[LockedVhost]:
    """Lock a virtual host's row until the transaction ends. Raises AmqpError (530)."""
    row = require_vhost(name, (yield call("lock_vhost", vhost=name)))
    return LockedVhost(row.id, row.name)


def insert_exchanges(namespace_id: int, exchanges: Sequence[ExchangeDef], effective: Sequence[str]) -> Statement:
    """The statement that adds exchanges with their effective settings."""
    return call(
        "insert_exchanges",
        namespace_id=namespace_id,
        names=[exchange.name for exchange in exchanges],
        types=[str(exchange.type) for exchange in exchanges],
        durable=[exchange.durable for exchange in exchanges],
        auto_delete=[exchange.auto_delete for exchange in exchanges],
        internal=[exchange.internal for exchange in exchanges],
        arguments=[json.dumps(table.encode(exchange.arguments, "argument")) for exchange in exchanges],
        effective=list(effective),
    )


def require_vhost(name: str, rows: Sequence[Any]) -> Any:
    """The row that a statement found in a virtual host. Raises AmqpError (530), NotAllowed for a namespace of another family."""
    if not rows:
        raise vhost_not_found(name)
    _require_family(name, rows[0].family)
    return rows[0]


def topology_changed(
    namespace_id: int, *, queues: Sequence[int] = (), exchanges: Sequence[str] = (), bindings: Sequence[int] = ()
) -> Steps[None]:
    """Record a topology change in the transaction that makes it.

    queues, exchanges, bindings: everything that was added, removed or changed, by id or name. If all are empty, everything may
    have changed.
    """
    yield call(
        "topology_changed",
        namespace_id=namespace_id,
        queue_ids=list(queues),
        exchanges=list(exchanges),
        bindings=list(bindings),
        is_itemized=0 < len(queues) + len(exchanges) + len(bindings) <= MOST_ITEMIZED,
    )


def delete_idle_exchanges(ids: Collection[int]) -> Steps[tuple[list[str], list[int]]]:
    """Delete those of the exchanges that are auto-delete and have lost their last binding as source, recursively (RMQ-313).
    Returns their names, and the ids of the bindings to them."""
    names: list[str] = []
    bindings: list[int] = []
    while ids:
        (row,) = yield call("delete_idle_exchanges", ids=list(ids))
        names, bindings, ids = names + row.names, bindings + row.bindings, row.sources
    return names, bindings


def _require_family(name: str, family: str) -> None:
    if family != Family.RABBITMQ:
        raise NotAllowed(f"'{name}' is of the family {family}; it is not a virtual host.")
