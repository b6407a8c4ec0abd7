"""Settle messages, and renew their locks.

Each call takes one lock token or a list of them. Given one, it raises LockLost (in a session SessionLockLost) if the lock was
lost; given a list, it settles the messages that are still locked and reports the others as lost (SettleReport). Nothing is
changed for a lost lock (SB-071).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any
from uuid import UUID

from broker_core.common.errors import NotAllowed
from broker_core.common.lock_tokens import SettleReport, Tokens, is_one_token, sequence_number_of, settle_report, unique_tokens
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.runtime import refusals
from broker_core.runtime.entity_cache import forget
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.waiting import wake
from broker_core.service_bus.rules import messages as service_bus
from broker_core.service_bus.rules import sessions
from broker_core.service_bus.rules.values import LockedMessage
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .forwarding import forward_on
from .renewal import renewer
from .shared import cached_entity, require_properties_fit, require_receivable, run_on_entity

_MAKES_AVAILABLE = frozenset(("abandon", "release", "dead_letter"))  # dead letters are available in their own list


@use_case
def complete(address: EntityAddress, tokens: Tokens, *, actor: Actor | None = None) -> Steps[SettleReport]:
    """Delete the messages that these tokens hold (SB-080)."""
    return (yield from _settle("complete", address, tokens, actor))


@use_case
def abandon(
    address: EntityAddress, tokens: Tokens, properties: Mapping[str, Any] | None = None, *, actor: Actor | None = None
) -> Steps[SettleReport]:
    """Release the messages as failed deliveries, which may dead-letter or expire them (SB-081, SB-027, SB-091).

    properties: application properties to set or overwrite. A message whose properties become too large is dead-lettered
    (HeaderSizeExceeded); in a dead-letter queue MessageTooLarge is raised, and nothing is changed.
    """
    patch = service_bus.properties_json(properties)
    added = patch if address.subqueue else None
    return (yield from _settle("abandon", address, tokens, actor, added, properties=patch, expires_deferred=False))


@use_case
def release(address: EntityAddress, tokens: Tokens, *, actor: Actor | None = None) -> Steps[SettleReport]:
    """Release the messages as if they had not been delivered (SB-090, SB-926)."""
    return (yield from _settle("release", address, tokens, actor))


def release_unclaimed(messages: Iterable[LockedMessage], asked: Mapping[str, Any]) -> Steps[None]:
    """Release the messages that a cancelled call received. asked: the arguments of that call."""
    tokens: dict[EntityAddress, list[UUID]] = {}
    for message in messages:
        tokens.setdefault(message.address, []).append(message.lock_token)
    for address, lock_tokens in tokens.items():
        yield from release.steps(address, lock_tokens, actor=asked.get("actor"))


@use_case
def defer(
    address: EntityAddress, tokens: Tokens, properties: Mapping[str, Any] | None = None, *, actor: Actor | None = None
) -> Steps[SettleReport]:
    """Defer the messages, to be received by number (SB-083). Raises MessageTooLarge for too large properties."""
    patch = service_bus.properties_json(properties)
    return (yield from _settle("defer", address, tokens, actor, patch, properties=patch))


@use_case
def dead_letter(
    address: EntityAddress,
    tokens: Tokens,
    reason: str | None = None,
    description: str | None = None,
    properties: Mapping[str, Any] | None = None,
    *,
    actor: Actor | None = None,
) -> Steps[SettleReport]:
    """Move the messages to the dead-letter queue (SB-082).

    Raises NotAllowed in a dead-letter queue (SB-089), and MessageTooLarge for too large properties.
    """
    service_bus.check_may_dead_letter(address.subqueue)
    service_bus.check_dead_letter_texts(reason, description)
    patch = service_bus.properties_json(properties)
    texts = {"reason": reason, "description": description}
    return (yield from _settle("dead_letter", address, tokens, actor, patch, properties=patch, **texts))


@use_case
def renew(address: EntityAddress, tokens: Tokens, *, actor: Actor | None = None) -> Steps[SettleReport]:
    """Extend the locks to lock_duration from now, any number of times (SB-064). The report's `locked_until` is the new end.

    Raises NotAllowed for messages of a session: they are renewed with it (SB-065).
    """
    try:
        sessions.check_renewed_alone(address, (yield from cached_entity(address)).requires_session)
    except NotAllowed:
        forget(address)  # the cached entity may have been deleted
        sessions.check_renewed_alone(address, (yield from cached_entity(address)).requires_session)
    return (yield from _settle("renew", address, tokens, actor))


def _settle(
    name: str, address: EntityAddress, lock_tokens: Tokens, actor: Actor | None, added: str | None = None, **params: Any
) -> Steps[SettleReport]:
    """added: application properties that must fit together with those that the messages have."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    tokens = unique_tokens(lock_tokens)
    if not tokens:
        return SettleReport((), ())
    report = yield from _settlements.call((name, address, str(actor), added, *params.items()), tokens)
    return report.require_all() if is_one_token(lock_tokens) else report


def _settle_together(key: tuple, groups: Sequence[list[UUID]]) -> Steps[list[SettleReport]]:
    """Settle the messages of several calls; returns the report of each."""
    name, address, actor, added, *params = key
    tokens = groups[0] if len(groups) == 1 else list(dict.fromkeys(chain.from_iterable(groups)))
    numbers = [sequence_number_of(token) for token in tokens]
    if added is not None:
        yield from require_properties_fit(address, numbers, added)
    statement = "complete_one" if name == "complete" and len(tokens) == 1 else name
    settling = {"actor": actor, "numbers": numbers, "tokens": tokens, **dict(params)}
    entity_id, rows, status = yield from run_on_entity(address, statement, **settling)
    if name != "renew" and renewer.has_locks:
        yield AfterCommit(stop_renewing(tokens))
    if status:
        require_receivable(address, status)
    elif name in _MAKES_AVAILABLE:
        yield from wake([entity_id], getattr(rows[0], "waiting", False))
    if rows and getattr(rows[0], "forwards", False):
        yield AfterCommit(forward_on([entity_id]))
    report = settle_report(tokens, rows)
    if report.lost:
        lost = [sequence_number_of(token) for token in report.lost]
        yield from refusals.record(entity_id, address.subqueue, lost, actor=actor, what=name.replace("_", "-"))
        report = yield from _with_sessions(address, entity_id, report)
    return [report] if len(groups) == 1 else _shares(report, groups, several=name == "renew")


def _shares(report: SettleReport, groups: Sequence[list[UUID]], *, several: bool) -> list[SettleReport]:
    """Each caller's part of a report. A token given by several callers was settled by the first of them (SB-071).

    several: it counts for all of them, as a renewal does.
    """
    settled, shares = dict(report.settled), []
    for tokens in groups:
        share = tuple((token, settled[token]) for token in tokens if token in settled)
        lost = tuple(token for token in tokens if token not in settled)
        if not several:
            for token, _ in share:
                del settled[token]
        sessions_lost = tuple(session for session in report.lost_sessions if session[0] in lost)
        until = (report.locked_until, report.lock_duration) if share else (None, None)
        shares.append(SettleReport(share, lost, *until, lost_sessions=sessions_lost))
    return shares


_settlements: Gathering[list[UUID], SettleReport] = Gathering(_settle_together)


def _with_sessions(address: EntityAddress, entity_id: int, report: SettleReport) -> Steps:
    """Add the lost sessions to the report: those of existing messages in unlocked sessions (SB-117)."""
    if address.subqueue or not (yield from cached_entity(address)).requires_session:
        return report
    numbers = [sequence_number_of(token) for token in report.lost]
    unlocked = {
        row.sequence_number: row.session_id for row in (yield call("unlocked_sessions", entity_id=entity_id, numbers=numbers))
    }
    lost = [(token, session) for token in report.lost if (session := unlocked.get(sequence_number_of(token))) is not None]
    return replace(report, lost_sessions=tuple((token, str(address), session) for token, session in lost))


def stop_renewing(tokens: Sequence[UUID]) -> Steps[None]:
    """Run after the commit, since a rollback leaves the locks and their renewal unchanged (SB-163)."""
    renewer.drop(tokens)
    yield from ()
