"""Previewing the effect of setting or deleting a policy; then applying the change, unless the preview is outdated.

A preview compares the effective settings of each queue and exchange, and determines which existing messages would expire,
exceed a limit, be dead-lettered or dropped. It reads at most SCAN_CAP messages, from the heads: beyond that its counts are
lower bounds and marked as such. Effects of dead letters in their destination queues are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from broker_core.common.durations import human
from broker_core.common.types import BROKER, Actor, EntityAddress, Right
from broker_core.rabbitmq.messages.dead_lettering import as_outgoing
from broker_core.rabbitmq.messages.placing import dead_letter_copy
from broker_core.rabbitmq.messages.routing_transaction import RoutingTransaction
from broker_core.rabbitmq.rules.exchanges import Router
from broker_core.rabbitmq.rules.policies import EffectiveArguments, ObjectType, Policy
from broker_core.rabbitmq.topology.compiled import QueueInfo, Topology
from broker_core.runtime.previews import Effect, Preview, make_if_unchanged, token_of
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from . import policies
from .messages import length_limits
from .rules import policies as rules
from .rules import table
from .topology import catalog, compiled, effective, vhosts

SCAN_CAP = 20_000
STAYS, EXPIRED, MAXLEN = "stays", "expired", "maxlen"


class PolicyEffect(StrEnum):
    """An effect on messages. A message that expires or is trimmed is also counted as dead-lettered or dropped."""

    EXPIRED = "expired"
    TRIMMED = "too many"
    DEAD_LETTERED = "dead-lettered"
    DROPPED = "dropped"
    SAVED = "saved"  # would have been removed without the change


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A changed key of the effective settings. before, after: None if not set. The sources are "argument", "policy P" ..."""

    key: str
    before: Any
    before_source: str | None
    after: Any
    after_source: str | None


@dataclass(frozen=True, slots=True)
class QueueChange:
    """A queue whose effective settings would change.

    policy, operator_policy: names before and after. keys: those whose value or source changes. messages: ready ones.
    effects:  on existing messages.
    """

    address: EntityAddress
    policy: tuple[str | None, str | None]
    operator_policy: tuple[str | None, str | None]
    keys: tuple[KeyChange, ...]
    messages: int = 0
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangeChange:
    """An exchange whose effective settings would change."""

    name: str
    policy: tuple[str | None, str | None]
    operator_policy: tuple[str | None, str | None]
    keys: tuple[KeyChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPreview(Preview):
    """The effect of setting or deleting a policy. before: None if there is no policy of this name. after: None if it is
    deleted.

    governed: how many (queues, exchanges) it would apply to.
    """

    vhost: str
    name: str
    is_operator: bool
    queues: tuple[QueueChange, ...]
    exchanges: tuple[ExchangeChange, ...]
    governed: tuple[int, int] = (0, 0)

    @property
    def namespace(self) -> str:
        return self.vhost

    @property
    def lives(self) -> int:
        """Ready messages whose expiry would be computed from another TTL (RMQ-902)."""
        return sum(queue.messages for queue in self.queues if any(key.key == "message_ttl" for key in queue.keys))


@use_case
def preview_policy(vhost: str, policy: Policy, *, actor: Actor | None = None) -> Steps[PolicyPreview]:
    """The effect of setting this policy, or operator policy, now. Changes nothing.

    Needs MANAGE. Raises InvalidPolicy; EntityNotFound for the virtual host.
    """
    rules.check(policy)
    _allowed(vhost, actor)
    return (yield Atomically(_preview(vhost, policy.name, policy.is_operator, policy, actor)))


@use_case
def preview_delete_policy(vhost: str, name: str, operator: bool = False, *, actor: Actor | None = None) -> Steps[PolicyPreview]:
    """The effect of deleting a policy now."""
    _allowed(vhost, actor)
    return (yield Atomically(_preview(vhost, name, operator, None, actor)))


@use_case
def change_policy(
    vhost: str, name: str, operator: bool, policy: Policy | None, *, token: str | None = None, actor: Actor | None = None
) -> Steps[PolicyPreview]:
    """Set a policy of this name, or delete it (None). Returns the PolicyPreview computed in the same transaction. Raises as
    set_policy does.

    token: of a preview; raises PreviewOutdated, and changes nothing, if the effect has changed since.
    """
    if policy is not None:
        rules.check(policy)
    _allowed(vhost, actor)

    def counted() -> Steps[PolicyPreview]:
        yield from vhosts.lock_vhost(vhost)
        return (yield from _preview(vhost, name, operator, policy, actor))

    if policy is None:
        make = partial(policies.delete_policy.steps, vhost, name, operator, actor=actor)
    else:
        make = partial(policies.set_policy.steps, vhost, policy, actor=actor)
    return (yield from make_if_unchanged(counted(), make, token))


def _allowed(vhost: str, actor: Actor | None) -> None:
    (actor or Actor.local()).require(Right.MANAGE, vhost)


# Comparing effective settings


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue that changes: its row, and its effective settings before and after."""

    row: Any
    before: EffectiveArguments
    after: EffectiveArguments


def _preview(vhost: str, name: str, is_operator: bool, requested: Policy | None, actor: Actor | None) -> Steps[PolicyPreview]:
    """Compute a preview in the caller's transaction."""
    host = yield from vhosts.get_vhost.steps(vhost, actor=actor)
    existing = yield from effective.policies_of(host.id)
    before = next((p for p in existing if (p.name, p.is_operator) == (name, is_operator)), None)
    policies_after = [p for p in existing if p is not before] + ([requested] if requested else [])
    rows = yield call("queues_of", namespace_id=host.id)
    compared = [_queue(row, existing, policies_after) for row in rows]
    changing = [q for q in compared if _differs(q.before, q.after)]
    exchanges, alternates, effective_values = yield from _exchanges(host.id, existing, policies_after)
    policy_key = "operator_policy" if is_operator else "policy"
    fates = yield from _fates(host.name, changing, alternates, actor)
    queues = tuple(_queue_change(host.name, queue, fates.get(queue.row.id)) for queue in changing)
    clock = yield call("rabbit_now", namespace_id=host.id)
    return PolicyPreview(
        subject=f"{'operator ' if is_operator else ''}policy {name} of {host.name}",
        effects=tuple(effect for queue in queues for effect in queue.effects),
        vhost=host.name,
        name=name,
        is_operator=is_operator,
        at=clock[0].now,
        before=before,
        after=requested,
        queues=queues,
        exchanges=exchanges,
        token=_token(before, queues, exchanges, fates),
        governed=(
            sum(q.after.values.get(policy_key) == name for q in compared),
            sum(values.get(policy_key) == name for values in effective_values),
        ),
        notes=tuple(_notes(before, requested, changing, exchanges, policies_after)),
        scanned=sum(fate.seen for fate in fates.values()),
        capped=any(fate.is_partial for fate in fates.values()),
    )


def _queue(row: Any, existing: Sequence[Policy], policies_after: Sequence[Policy]) -> _Queue:
    return _Queue(row, *(effective.of_queue(row.name, row.options, policies) for policies in (existing, policies_after)))


def _differs(before: EffectiveArguments, after: EffectiveArguments) -> bool:
    return before.values != after.values or before.sources != after.sources


def _exchanges(namespace_id: int, existing: Sequence[Policy], policies_after: Sequence[Policy]) -> Steps:
    """The exchanges that change, the alternate exchange of each exchange after the change, and the effective settings of all."""
    changes, alternates, effective_values = [], {}, []
    for row in (yield call("exchanges_of", namespace_id=namespace_id)):
        arguments = table.decode(row.arguments)
        before, after = (effective.of_exchange(row.name, arguments, policies) for policies in (existing, policies_after))
        alternates[row.name] = after.values.get("alternate_exchange")
        effective_values.append(after.values)
        if _differs(before, after):
            changes.append(ExchangeChange(row.name, *_names(before, after), _keys(before, after)))
    return tuple(changes), alternates, effective_values


def _names(before: EffectiveArguments, after: EffectiveArguments) -> tuple[tuple, tuple]:
    policy, operator = ((before.values.get(key), after.values.get(key)) for key in ("policy", "operator_policy"))
    return policy, operator


def _keys(before: EffectiveArguments, after: EffectiveArguments) -> tuple[KeyChange, ...]:
    def value_and_source(arguments: EffectiveArguments, key: str) -> tuple:
        return arguments.values.get(key), arguments.sources.get(key)

    keys = sorted(before.sources.keys() | after.sources.keys())
    return tuple(
        KeyChange(key, *value_and_source(before, key), *value_and_source(after, key))
        for key in keys
        if value_and_source(before, key) != value_and_source(after, key)
    )


def _queue_change(vhost: str, queue: _Queue, fates: _Fates | None) -> QueueChange:
    address = EntityAddress(vhost, queue.row.name)
    effects = tuple(fates.effects(address)) if fates else ()
    ready = fates.ready if fates else 0
    return QueueChange(address, *_names(queue.before, queue.after), _keys(queue.before, queue.after), ready, effects)


# Effects on messages


@dataclass(slots=True)
class _Fates:
    """The effects on a queue's messages. groups: sequence numbers by effect and reason."""

    ready: int
    seen: int
    groups: dict[tuple[PolicyEffect, str | None], list[int]] = field(default_factory=dict)

    @property
    def is_partial(self) -> bool:
        return self.seen < self.ready

    def add(self, number: int, before: tuple, after: tuple) -> None:
        """before, after: (how it is removed, its effect, reason)."""
        if before == after:
            return
        if after[0] == STAYS:
            self._add(PolicyEffect.SAVED, None, number)
            return
        if after[0] != before[0]:
            self._add(PolicyEffect.EXPIRED if after[0] == EXPIRED else PolicyEffect.TRIMMED, None, number)
        self._add(after[1], after[2], number)

    def _add(self, what: PolicyEffect, why: str | None, number: int) -> None:
        self.groups.setdefault((what, why), []).append(number)

    def effects(self, address: EntityAddress) -> Iterable[Effect]:
        order = list(PolicyEffect)
        for what, why in sorted(self.groups, key=lambda group: (order.index(group[0]), group[1] or "")):
            numbers = self.groups[what, why]
            yield Effect(what, address, len(numbers), tuple(sorted(numbers)[:5]), why, self.is_partial)


def _fates(vhost: str, queues: Sequence[_Queue], alternates: Mapping[str, str | None], actor: Actor | None) -> Steps:
    """The effects by queue id, for queues with messages."""
    if not queues:
        return {}
    infos = {queue.row.id: (_info(queue.row, queue.before), _info(queue.row, queue.after)) for queue in queues}
    now_routed = _Route((yield from compiled.current(vhost)))
    then_routed = _Route((yield from _topology_after(now_routed.topology, queues, infos, alternates, actor)))
    names = {queue.row.id: queue.row.name for queue in queues}
    fates_by_entity: dict[int, _Fates] = {}
    for row in (yield call("rabbit_preview", scan_cap=SCAN_CAP, ids=list(infos), **_settings(queues, infos))):
        fates = fates_by_entity.setdefault(row.entity_id, _Fates(row.ready, row.seen))
        if row.sequence_number is not None:
            before, after = infos[row.entity_id]
            old_fate = yield from now_routed.fate(names[row.entity_id], before, row, row.before)
            fates.add(row.sequence_number, old_fate, (yield from then_routed.fate(names[row.entity_id], after, row, row.after)))
    return fates_by_entity


def _info(row: Any, arguments: EffectiveArguments) -> QueueInfo:
    return QueueInfo(row.id, arguments.values, row.options["type"], row.owner_id, 0)


def _settings(queues: Sequence[_Queue], infos: Mapping[int, tuple[QueueInfo, QueueInfo]]) -> dict[str, list]:
    """The settings compared by the statement, for each queue."""
    settings: dict[str, list] = {}
    for queue in queues:
        for side, arguments, info in zip(("old", "new"), (queue.before, queue.after), infos[queue.row.id], strict=True):
            ttl = effective.queue_columns(queue.row.options, arguments)["default_message_time_to_live"]
            settings.setdefault(f"{side}_ttls", []).append(ttl)
            settings.setdefault(f"{side}_drops", []).append(length_limits.drops_head(info))
            settings.setdefault(f"{side}_lengths", []).append(info.effective.get("max_length"))
            settings.setdefault(f"{side}_bytes", []).append(info.effective.get("max_length_bytes"))
    return settings


def _topology_after(
    now: Topology,
    queues: Sequence[_Queue],
    infos: Mapping[int, tuple[QueueInfo, QueueInfo]],
    alternates: Mapping[str, str | None],
    actor: Actor | None,
) -> Steps:
    """The topology after the change, by which dead letters would be routed."""
    changed = {queue.row.name: infos[queue.row.id][1] for queue in queues}
    stored = yield from catalog.list_exchanges.steps(now.vhost, actor=actor)
    exchanges = [exchange.definition(alternates.get(exchange.name)) for exchange in stored]
    bindings = [bound.definition for bound in (yield from catalog.list_bindings.steps(now.vhost, actor=actor))]
    queues_after = {**now.queues, **{name: info for name, info in changed.items() if name in now.queues}}
    return now._replace(router=Router(exchanges, bindings, queues_after.keys(), now.vhost), queues=queues_after)


class _Route:
    """Routes removed messages by one topology, and tracks the capacity of queues that reject publishes, without locking."""

    def __init__(self, topology: Topology):
        self.topology = topology
        self._transaction = RoutingTransaction(topology, BROKER)
        self._capacity = length_limits.Capacity()

    def fate(self, name: str, queue: QueueInfo, row: Any, how: str) -> Steps:
        """How a message is removed, the effect on it, and the reason."""
        if how == STAYS:
            return STAYS, None, None
        if "dead_letter_exchange" not in queue.effective:
            return how, PolicyEffect.DROPPED, f"{how}: no dead-letter exchange"
        dead = dead_letter_copy(self._transaction, name, queue, as_outgoing(row), how, row.now)
        if dead.letter is None:
            return how, PolicyEffect.DROPPED, f"{how}: {dead.why}"
        targets = [self.topology.queues[target] for target in dead.queues if target in self.topology.queues]
        yield from self._capacity.load(targets, lock=False)  # an estimate without locks
        admitted = [self._capacity.admit(target, row.size) for target in targets]
        if not any(admitted):
            return how, PolicyEffect.DROPPED, f"{how}: the destination queues are full"
        return how, PolicyEffect.DEAD_LETTERED, f"{how}: to '{queue.effective['dead_letter_exchange']}'"


# Notes


def _notes(
    before: Policy | None,
    after: Policy | None,
    queues: Sequence[_Queue],
    exchanges: Sequence[Any],
    policies_after: Sequence[Policy],
) -> Iterable[str]:
    if before is None and after is None:
        yield "No policy has this name."
    if not queues and not exchanges:
        yield "Effective settings do not change."
    yield from _notes_on_lives(queues)
    if rivals := sum(_has_rival(queue.row, policies_after) for queue in queues):
        yield f"Another policy of the same priority applies to {_count(rivals, 'queue')}; the lower name wins (RMQ-917)."
    if any(queue.after.values.get("dead_letter_exchange") is not None for queue in queues):
        yield "Effects of dead letters in their destination queues are not counted."


def _notes_on_lives(queues: Sequence[_Queue]) -> Iterable[str]:
    def changed(key: str) -> list[_Queue]:
        return [queue for queue in queues if queue.before.values.get(key) != queue.after.values.get(key)]

    lives = changed("message_ttl")
    unchanged = [queue for queue in lives if not queue.row.options["retroactive_ttl"]]
    if unchanged:
        yield f"Existing messages in {_count(len(unchanged), 'queue')} keep their expiry: retroactive_ttl is off (RMQ-902)."
    if any(_longer(queue.before, queue.after) for queue in lives):
        yield "Existing messages keep the expiry given on arrival if it is earlier (RMQ-903)."
    ending: dict[int, int] = {}
    for queue in changed("expires"):
        if (life := queue.after.values.get("expires")) is not None:
            ending[life] = ending.get(life, 0) + 1
    for life, count in sorted(ending.items()):
        yield (
            f"{_count(count, 'queue')} would be deleted with all messages when unused for "
            f"{human(timedelta(milliseconds=life))}, starting at the change (RMQ-040, RMQ-048)."
        )


def _longer(before: EffectiveArguments, after: EffectiveArguments) -> bool:
    old, new = before.values.get("message_ttl"), after.values.get("message_ttl")
    return old is not None and (new is None or new > old)


def _has_rival(row: Any, policies_after: Sequence[Policy]) -> bool:
    for is_operator in (False, True):
        candidates = [policy for policy in policies_after if policy.is_operator is is_operator]
        ranked = rules.ranking(candidates, row.name, ObjectType.QUEUE, row.options["type"])
        if len(ranked) > 1 and ranked[0].priority == ranked[1].priority:
            return True
    return False


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _token(before: Policy | None, queues: Sequence[QueueChange], exchanges: Sequence[Any], fates: Mapping[int, _Fates]) -> str:
    facts = [(entity_id, sorted(entity_fates.groups.items(), key=str)) for entity_id, entity_fates in sorted(fates.items())]
    changes = [(str(queue.address), queue.policy, queue.operator_policy, queue.keys) for queue in queues]
    return token_of(before, changes, exchanges, facts)
