"""Policies and operator policies: set, deleted, listed; what they change is brought into force at once (RMQ section 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.messages import tidying
from broker_core.rabbitmq.rules import policies as rules
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from . import compiled, effective
from .queues import find_queue
from .vhosts import HeldVhost, changing, get_vhost, topology_changed


class PolicyChange(NamedTuple):
    """What setting or deleting a policy did. created: it was not there before. deleted: it was there, and is not now. queues,
    exchanges: the ids of those for which something else is in force now."""

    created: bool = False
    deleted: bool = False
    queues: tuple[int, ...] = ()
    exchanges: tuple[int, ...] = ()


@use_case
def set_policy(vhost: str, policy: Policy, *, actor: Actor | None = None) -> Steps:
    """Put a policy in the place of the one of its name, and into force for what is there already (RMQ-207). Returns PolicyChange.

    A length limit that it lowers trims at once (RMQ-097); a time-to-live holds as RMQ-902 says; a queue's life counts from now
    (RMQ-048). Raises InvalidPolicy.
    """
    rules.check(policy)

    def change(held: HeldVhost) -> Steps:
        (row,) = yield call(
            "put_policy",
            namespace_id=held.id,
            name=policy.name,
            is_operator=policy.is_operator,
            pattern=policy.pattern,
            apply_to=policy.apply_to,
            priority=policy.priority,
            definition=json.dumps(policy.definition),
        )
        return PolicyChange(row.created, False, *(yield from bring_into_force(held)))

    return (yield from changing(vhost, actor, change))


@use_case
def delete_policy(vhost: str, name: str, operator: bool = False, *, actor: Actor | None = None) -> Steps:
    """Delete a policy, or an operator policy. Returns PolicyChange; one that is not there is no error."""

    def change(held: HeldVhost) -> Steps:
        if not (yield call("delete_rabbitmq_policy", namespace_id=held.id, is_operator=operator, name=name)):
            return PolicyChange()
        return PolicyChange(False, True, *(yield from bring_into_force(held)))

    return (yield from changing(vhost, actor, change))


@use_case
def list_policies(vhost: str, operator: bool | None = None, *, actor: Actor | None = None) -> Steps:
    """The policies of a virtual host, those that come first before: by priority, then by name (RMQ-917). operator: False for
    policies alone, True for operator policies alone."""
    found = yield from get_vhost.steps(vhost, actor=actor)
    policies = yield from effective.policies_of(found.id)
    return [policy for policy in policies if operator in (None, policy.is_operator)]


@use_case
def set_queue_option(
    address: EntityAddress,
    *,
    retroactive_ttl: bool | None = None,
    exact_expiry: bool | None = None,
    actor: Actor | None = None,
) -> Steps[None]:
    """Change how a queue treats the lives of its messages; what is None stays. Not part of RabbitMQ's declarations.

    retroactive_ttl: whether a time-to-live that comes later holds for the messages that are there (RMQ-902).
    exact_expiry:    whether a message goes at its own instant, or once it is at the head (RMQ-901).
    Raises AmqpError (404).
    """
    given = {"retroactive_ttl": retroactive_ttl, "exact_expiry": exact_expiry}
    for name, value in given.items():
        if value is not None and not isinstance(value, bool):
            raise InvalidArgument(name, f"{value!r} must be True or False")

    def change(held: HeldVhost) -> Steps:
        row = yield from find_queue(held.name, address.path)
        options = row.options | {name: value for name, value in given.items() if value is not None}
        if options != row.options:
            found = effective.of_queue(row.name, options, (yield from effective.policies_of(held.id)))
            yield from _write_queues(held.id, [(row.id, effective.queue_columns(options, found))])
            yield from topology_changed(held.id, queues=[row.id])
            yield AfterCommit(_tidy(held.name, [row.id]))

    yield from changing(address.namespace, actor, change)


def bring_into_force(held: HeldVhost) -> Steps:
    """Compute what is in force for all that the virtual host has, and write what differs: one statement for all queues, one for
    all exchanges. Returns the ids of both."""
    policies = yield from effective.policies_of(held.id)
    queues = yield from _bring_queues(held, policies)
    exchanges = yield from _bring_exchanges(held, policies)
    if queues or exchanges:
        yield from topology_changed(held.id, queues=queues, exchanges=list(exchanges.values()))
    if queues:
        yield AfterCommit(_tidy(held.name, queues))
    return queues, tuple(exchanges)


def _tidy(vhost: str, queues: Sequence[int]) -> Steps[None]:
    """What is in force now is so already: a queue that is too busy to be tidied is left to its publishers and the sweeps."""
    try:
        yield from compiled.current(vhost)  # what this process remembers is of before the change
        yield from tidying.after_policy(queues)
    except BrokerError as refusal:
        if not refusal.retryable:
            raise


def _bring_queues(held: HeldVhost, policies: list[Policy]) -> Steps:
    changed = []
    for row in (yield call("queues_of", namespace_id=held.id)):
        columns = effective.queue_columns(row.options, effective.of_queue(row.name, row.options, policies))
        if any(columns[name] != getattr(row, name) for name in effective.COLUMNS):
            changed.append((row.id, columns))
    yield from _write_queues(held.id, changed)
    return tuple(entity_id for entity_id, _ in changed)


def _write_queues(namespace_id: int, changed: Sequence[tuple[int, Mapping[str, Any]]]) -> Steps[None]:
    """Write what is in force for queues, ids with columns, in one statement."""
    if changed:
        yield call(
            "set_queue_effects",
            namespace_id=namespace_id,
            ids=[entity_id for entity_id, _ in changed],
            options=[json.dumps(columns["options"]) for _, columns in changed],
            effective=[json.dumps(columns["effective"]) for _, columns in changed],
            times_to_live=[columns["default_message_time_to_live"] for _, columns in changed],
            idle=[columns["auto_delete_on_idle"] for _, columns in changed],
            expiry_modes=[columns["expiry_mode"] for _, columns in changed],
        )


def _bring_exchanges(held: HeldVhost, policies: list[Policy]) -> Steps[dict[int, str]]:
    """The names of those that changed, by id."""
    names, changed = {}, []
    for row in (yield call("exchanges_of", namespace_id=held.id)):
        found = effective.of_exchange(row.name, table.decode(row.arguments), policies).values
        if found != row.effective:
            names[row.id] = row.name
            changed.append(json.dumps(found))
    if changed:
        yield call("set_exchange_effects", ids=list(names), effective=changed)
    return names
