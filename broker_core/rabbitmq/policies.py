"""Setting, deleting and listing policies and operator policies; changes take effect at once (docs/rules.md#rabbitmq-policies)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, EntityAddress
from broker_core.namespaces.protection import record_revisions
from broker_core.rabbitmq.messages import tidying
from broker_core.rabbitmq.rules import policies as rules
from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .topology import compiled, effective
from .topology.queues import find_queue
from .topology.vhosts import LockedVhost, changing, get_vhost, topology_changed


class PolicyChange(NamedTuple):
    """The result of setting or deleting a policy. created: it did not exist before. deleted: it existed before. queues,
    exchanges: ids of the objects whose effective settings changed."""

    created: bool = False
    deleted: bool = False
    queues: tuple[int, ...] = ()
    exchanges: tuple[int, ...] = ()


@use_case
def set_policy(vhost: str, policy: Policy, *, actor: Actor | None = None) -> Steps:
    """Create or replace a policy and apply it to existing objects (RMQ-207). Returns PolicyChange.

    Lower length limits take effect at once (RMQ-097); message TTLs as described in RMQ-902; queue expiry starts now (RMQ-048).
    Raises InvalidPolicy.
    """
    rules.check(policy)

    def change(host: LockedVhost) -> Steps:
        (row,) = yield call(
            "put_policy",
            namespace_id=host.id,
            name=policy.name,
            is_operator=policy.is_operator,
            pattern=policy.pattern,
            apply_to=policy.apply_to,
            priority=policy.priority,
            definition=json.dumps(policy.definition),
        )
        return PolicyChange(row.created, False, *(yield from apply_policies(host, actor)))

    return (yield from changing(vhost, actor, change))


@use_case
def delete_policy(vhost: str, name: str, operator: bool = False, *, actor: Actor | None = None) -> Steps:
    """Delete a policy or operator policy. Returns PolicyChange; a missing policy is not an error."""

    def change(host: LockedVhost) -> Steps:
        if not (yield call("delete_rabbitmq_policy", namespace_id=host.id, is_operator=operator, name=name)):
            return PolicyChange()
        return PolicyChange(False, True, *(yield from apply_policies(host, actor)))

    return (yield from changing(vhost, actor, change))


@use_case
def list_policies(vhost: str, operator: bool | None = None, *, actor: Actor | None = None) -> Steps:
    """The policies of a virtual host by priority, then name (RMQ-917). operator: False for policies only, True for operator
    policies only."""
    host = yield from get_vhost.steps(vhost, actor=actor)
    policies = yield from effective.policies_of(host.id)
    return [policy for policy in policies if operator in (None, policy.is_operator)]


@use_case
def set_queue_option(
    address: EntityAddress,
    *,
    retroactive_ttl: bool | None = None,
    exact_expiry: bool | None = None,
    actor: Actor | None = None,
) -> Steps[None]:
    """Change how a queue expires its messages; None leaves an option unchanged. Not part of RabbitMQ's declarations.

    retroactive_ttl: whether a later message TTL also applies to existing messages (RMQ-902).
    exact_expiry:    whether messages are removed when they expire instead of at the head (RMQ-901).
    Raises AmqpError (404).
    """
    requested = {"retroactive_ttl": retroactive_ttl, "exact_expiry": exact_expiry}
    for name, value in requested.items():
        if value is not None and not isinstance(value, bool):
            raise InvalidArgument(name, f"{value!r} must be True or False")

    def change(host: LockedVhost) -> Steps:
        row = yield from find_queue(host.name, address.path)
        options = row.options | {name: value for name, value in requested.items() if value is not None}
        if options != row.options:
            effective_arguments = effective.of_queue(row.name, options, (yield from effective.policies_of(host.id)))
            yield from _write_queues(host.id, [(row.id, effective.queue_columns(options, effective_arguments))])
            yield from record_revisions([row.id], actor or Actor.local())
            yield from topology_changed(host.id, queues=[row.id])
            yield AfterCommit(_tidy(host.name, [row.id]))

    yield from changing(address.namespace, actor, change)


def apply_policies(host: LockedVhost, actor: Actor | None = None) -> Steps:
    """Recompute the effective settings of all queues and exchanges of a virtual host, and write those that changed in one
    statement each. Returns the ids of both. actor: who changed the policies."""
    policies = yield from effective.policies_of(host.id)
    queues = yield from _apply_to_queues(host, policies)
    exchanges = yield from _apply_to_exchanges(host, policies)
    if queues or exchanges:
        yield from topology_changed(host.id, queues=queues, exchanges=list(exchanges.values()))
    if queues:
        yield from record_revisions(queues, actor or Actor.local())
        yield AfterCommit(_tidy(host.name, queues))
    return queues, tuple(exchanges)


def _tidy(vhost: str, queues: Sequence[int]) -> Steps[None]:
    """Tidy queues after a change that is already effective: a busy queue is left to its publishers and the sweeps."""
    try:
        yield from compiled.current(vhost)  # the cached topology precedes the change
        yield from tidying.after_policy(queues)
    except BrokerError as refusal:
        if not refusal.retryable:
            raise


def _apply_to_queues(host: LockedVhost, policies: list[Policy]) -> Steps:
    changed = []
    for row in (yield call("queues_of", namespace_id=host.id)):
        columns = effective.queue_columns(row.options, effective.of_queue(row.name, row.options, policies))
        if any(columns[name] != getattr(row, name) for name in effective.COLUMNS):
            changed.append((row.id, columns))
    yield from _write_queues(host.id, changed)
    return tuple(entity_id for entity_id, _ in changed)


def _write_queues(namespace_id: int, changed: Sequence[tuple[int, Mapping[str, Any]]]) -> Steps[None]:
    """Write the effective settings of queues (ids with columns) in one statement."""
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


def _apply_to_exchanges(host: LockedVhost, policies: list[Policy]) -> Steps[dict[int, str]]:
    """Names of the changed exchanges by id."""
    names, changed = {}, []
    for row in (yield call("exchanges_of", namespace_id=host.id)):
        values = effective.of_exchange(row.name, table.decode(row.arguments), policies).values
        if values != row.effective:
            names[row.id] = row.name
            changed.append(json.dumps(values))
    if changed:
        yield call("set_exchange_effects", ids=list(names), effective=changed)
    return names
