"""Which queues get what is published to an exchange.

kombu keeps bindings in each process, so that a reply to `celery inspect` would find no queue: here they are rows that all
processes share. A binding ends with its queue.
"""

from __future__ import annotations

from broker_core.common.types import EntityAddress
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case


@use_case
def bind(address: EntityAddress, exchange: str, routing_key: str) -> Steps[None]:
    """Send a copy of what is published to `exchange` to this queue. Twice is as good as once; for no queue it does nothing."""
    yield call("celery_bind", namespace=address.namespace, path=address.path, exchange=exchange, routing_key=routing_key)


@use_case
def unbind(address: EntityAddress, exchange: str, routing_key: str) -> Steps[None]:
    """The inverse of bind; nothing happens where there was no binding."""
    yield call("celery_unbind", namespace=address.namespace, path=address.path, exchange=exchange, routing_key=routing_key)


@use_case
def bound(namespace: str, exchange: str) -> Steps:
    """[(path, routing key)] of the queues bound to an exchange, oldest binding first."""
    rows = yield call("celery_bound", namespace=namespace, exchange=exchange)
    return [(row.path, row.routing_key) for row in rows]
