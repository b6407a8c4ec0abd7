"""The bindings of exchanges to queues.

kombu keeps bindings per process, so that a reply to `celery inspect` would find no queue. Here they are rows shared by all
processes. A binding ends with its queue.
"""

from __future__ import annotations

from broker_core.common.types import EntityAddress
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case


@use_case
def bind(address: EntityAddress, exchange: str, routing_key: str) -> Steps[None]:
    """Bind a queue to an exchange. Does nothing if the binding exists or the queue does not."""
    yield call("celery_bind", namespace=address.namespace, path=address.path, exchange=exchange, routing_key=routing_key)


@use_case
def unbind(address: EntityAddress, exchange: str, routing_key: str) -> Steps[None]:
    """Remove a binding, if it exists."""
    yield call("celery_unbind", namespace=address.namespace, path=address.path, exchange=exchange, routing_key=routing_key)


@use_case
def bound(namespace: str, exchange: str) -> Steps:
    """[(path, routing key)] of the queues bound to an exchange, oldest binding first."""
    rows = yield call("celery_bound", namespace=namespace, exchange=exchange)
    return [(row.path, row.routing_key) for row in rows]
