"""Effective settings of queues and exchanges, from their arguments and the policies that apply (RMQ-200 to RMQ-211)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker_core.common.types import Actor, EntityAddress, ExpiryMode
from broker_core.rabbitmq.rules import policies as rules
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.policies import EffectiveArguments, ObjectType, Policy
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .catalog import get_exchange, get_queue
from .vhosts import get_vhost

COLUMNS = ("effective", "default_message_time_to_live", "auto_delete_on_idle", "expiry_mode")


@use_case
def effective(address: EntityAddress, *, actor: Actor | None = None) -> Steps[EffectiveArguments]:
    """The effective settings of a queue, with the source of each value and the overridden values (RMQ-904).

    Raises AmqpError (404).
    """
    queue = yield from get_queue.steps(address, actor=actor)
    return of_queue(queue.name, queue.options, (yield from _policies_in(address.namespace, actor)))


@use_case
def effective_of_exchange(vhost: str, name: str, *, actor: Actor | None = None) -> Steps[EffectiveArguments]:
    """The effective settings of an exchange."""
    exchange = yield from get_exchange.steps(vhost, name, actor=actor)
    return of_exchange(name, exchange.arguments, (yield from _policies_in(vhost, actor)))


def policies_of(namespace_id: int) -> Steps[list[Policy]]:
    """All policies of a virtual host, including operator policies."""
    rows = yield call("policies_of", namespace_id=namespace_id)
    return [Policy(row.name, row.pattern, row.definition, row.apply_to, _number(row.priority), row.is_operator) for row in rows]


def of_queue(name: str, options: Mapping[str, Any], policies: Sequence[Policy]) -> EffectiveArguments:
    """The effective settings of a queue with these stored options."""
    user, operator = rules.select(policies, name, ObjectType.QUEUE, options["type"])
    return rules.effective_queue(table.decode(options["arguments"]), user, operator, queue_type=options["type"])


def of_exchange(name: str, arguments: Mapping[str, Any], policies: Sequence[Policy]) -> EffectiveArguments:
    """The effective settings of an exchange with these decoded arguments. The default exchange has none (RMQ-316)."""
    if not name:
        return EffectiveArguments()
    return rules.effective_exchange(arguments, *rules.select(policies, name, ObjectType.EXCHANGE))


def queue_columns(options: Mapping[str, Any], effective: EffectiveArguments) -> dict[str, Any]:
    """The columns of a queue's row that depend on its effective settings; the shared columns are used by reads and expiry.

    A retroactive message TTL is stored in the queue's own column (RMQ-902): otherwise a message keeps the expiry it was stored
    with.
    """
    return {
        "options": options,
        "effective": effective.values,
        "default_message_time_to_live": _duration(effective.values.get("message_ttl")) if options["retroactive_ttl"] else None,
        "auto_delete_on_idle": _duration(effective.values.get("expires")),
        "expiry_mode": str(ExpiryMode.EAGER if options["exact_expiry"] else ExpiryMode.AT_HEAD),
    }


def _policies_in(vhost: str, actor: Actor | None) -> Steps[list[Policy]]:
    host = yield from get_vhost.steps(vhost, actor=actor)
    return (yield from policies_of(host.id))


def _duration(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _number(priority: float) -> int | float:
    """A whole priority as int."""
    return int(priority) if priority.is_integer() else priority
