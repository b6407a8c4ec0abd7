"""Declaring and deleting exchanges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.rules import arguments as checks
from broker_core.rabbitmq.rules import errors, names, table
from broker_core.rabbitmq.rules.exchanges import ExchangeDef
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from . import effective
from .vhosts import LockedVhost, changing, delete_idle_exchanges, insert_exchanges, require_vhost, topology_changed


@use_case
def declare_exchange(
    vhost: str,
    name: str,
    type: str = "direct",
    *,
    passive: bool = False,
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: Mapping[str, Any] | None = None,
    actor: Actor | None = None,
) -> Steps[bool]:
    """Declare an exchange. Returns whether it was created; an existing one must be equivalent (RMQ-310, RMQ-311).

    passive: only check that it exists; other arguments are ignored (RMQ-309).
    """
    actor = actor or Actor.local()
    actor.require(Right.BROWSE if passive else Right.MANAGE, vhost)
    name = names.clean(name)
    if passive:
        checks.check_not_default_exchange(name)
        yield from _present(vhost, name)
        return False
    requested = ExchangeDef(name, str(type), durable, auto_delete, internal, dict(arguments or {}))
    row = yield from _find(vhost, name)
    checks.check_exchange(row.vhost, name, requested.type, requested.arguments, exists=row.id is not None)
    if row.id is None:
        if (yield from changing(vhost, actor, lambda host: _create(host, requested))):
            return True
        row = yield from _present(vhost, name)  # created concurrently
    checks.check_equivalent_exchange(row.vhost, as_definition(row), requested)
    return False


@use_case
def delete_exchange(vhost: str, name: str, if_unused: bool = False, *, actor: Actor | None = None) -> Steps[None]:
    """Delete an exchange with all its bindings (RMQ-308, RMQ-353); a missing one is not an error.

    if_unused: refuse if it has bindings as source. System exchanges cannot be deleted (RMQ-307).
    """
    checks.check_exchange_deletion(vhost, name)

    def change(host: LockedVhost) -> Steps:
        exchange = yield from _find(host.name, name)
        if exchange.id is None:
            return
        if if_unused and exchange.in_use:
            raise errors.exchange_in_use(host.name, name)
        lost = yield call("delete_exchange", id=exchange.id)
        exchanges, more = yield from delete_idle_exchanges({row.source_id for row in lost} - {exchange.id})
        yield from topology_changed(host.id, exchanges=[exchange.name, *exchanges], bindings=[*(row.id for row in lost), *more])

    yield from changing(vhost, actor, change)


def as_definition(row: Any) -> ExchangeDef:
    """The ExchangeDef of a row."""
    return ExchangeDef(
        row.name,
        row.type,
        row.durable,
        row.auto_delete,
        row.internal,
        table.decode(row.arguments),
        row.effective.get("alternate_exchange"),
    )


def _create(host: LockedVhost, exchange: ExchangeDef) -> Steps[bool]:
    policies = yield from effective.policies_of(host.id)
    effective_arguments = effective.of_exchange(exchange.name, exchange.arguments, policies)
    rows = yield insert_exchanges(host.id, [exchange], [json.dumps(effective_arguments.values)])
    if rows:
        yield from topology_changed(host.id, exchanges=[exchange.name])
    return bool(rows)


def _present(vhost: str, name: str) -> Steps:
    row = yield from _find(vhost, name)
    if row.id is None:
        raise errors.not_found_exchange(vhost, name)
    return row


def _find(vhost: str, name: str) -> Steps:
    return require_vhost(vhost, (yield call("find_exchange", vhost=vhost, name=name)))
