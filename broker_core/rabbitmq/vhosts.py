"""Virtual hosts: created with their exchanges, deleted, listed; and held while what is in them changes (RMQ 1.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker_core import entities
from broker_core.semantics.errors import EntityExists, EntityNotFound, NotAllowed
from broker_core.semantics.types import Actor, Family, Right
from broker_core.store.driver import Atomically, Steps, use_case
from broker_core.store.statements import call

# The default exchange is no row: its bindings are the queues' names.
SYSTEM_EXCHANGES = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.rabbitmq.trace": "topic",
}
TRACE = "amq.rabbitmq.trace"


@dataclass(frozen=True, slots=True)
class HeldVhost:
    """A virtual host whose topology nobody else changes before the transaction ends."""

    id: int
    name: str


@use_case
def create_vhost(name: str, description: str = "", *, actor: Actor | None = None) -> Steps:
    """Create a virtual host with its seven exchanges, the default one among them (RMQ 1.1). Returns the Namespace.

    Raises EntityExists where a namespace of any family has the name, in whatever casing.
    """

    def steps():
        created = yield from entities.create_namespace.steps(name, description, family=Family.RABBITMQ, actor=actor)
        count = len(SYSTEM_EXCHANGES)
        yield call(
            "insert_exchanges",
            namespace_id=created.id,
            names=list(SYSTEM_EXCHANGES),
            types=list(SYSTEM_EXCHANGES.values()),
            durable=[True] * count,
            auto_delete=[False] * count,
            internal=[name == TRACE for name in SYSTEM_EXCHANGES],
            arguments=["{}"] * count,
            effective=["{}"] * count,
        )
        return created

    return (yield Atomically(steps()))


@use_case
def ensure_vhost(name: str, description: str = "", *, actor: Actor | None = None) -> Steps:
    """The virtual host of this name, created if it is not there; one that is there is left as it is."""
    try:
        return (yield from get_vhost.steps(name, actor=actor))
    except EntityNotFound:
        pass
    try:
        return (yield from create_vhost.steps(name, description, actor=actor))
    except EntityExists:  # another process was faster
        return (yield from get_vhost.steps(name, actor=actor))


@use_case
def get_vhost(name: str, *, actor: Actor | None = None) -> Steps:
    """A virtual host as a Namespace. Raises EntityNotFound, and NotAllowed for a namespace of another family."""
    found = yield from entities.get_namespace.steps(name, actor=actor)
    _require_family(found.name, found.family)
    return found


@use_case
def list_vhosts(*, actor: Actor | None = None) -> Steps:
    """All virtual hosts, as Namespaces, by name."""
    found = yield from entities.list_namespaces.steps(actor=actor)
    return [namespace for namespace in found if namespace.family is Family.RABBITMQ]


def changing(vhost: str, actor: Actor | None, change: Callable[[HeldVhost], Steps]) -> Steps:
    """Change a virtual host's topology in one transaction, after every other change of it. Returns what `change` returns."""
    (actor or Actor.local()).require(Right.MANAGE, vhost)

    def steps():
        held = yield from hold_vhost(vhost)
        return (yield from change(held))

    return (yield Atomically(steps()))


def hold_vhost(name: str) -> Steps:
    """Hold a virtual host's row to the end of the transaction. Raises AmqpError (530)."""
    rows = yield call("hold_vhost", vhost=name)
    if not rows:
        raise EntityNotFound(name)
    _require_family(name, rows[0].family)
    return HeldVhost(rows[0].id, rows[0].name)


def topology_changed(namespace_id: int) -> Steps:
    """In the same transaction as the change, so that whoever sees the one sees the other."""
    yield call("topology_changed", namespace_id=namespace_id)


def _require_family(name: str, family: str) -> None:
    if family != Family.RABBITMQ:
        raise NotAllowed(f"'{name}' is of the family {family}: it is no virtual host.")
