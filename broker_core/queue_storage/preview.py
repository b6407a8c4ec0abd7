"""Preview the effect of changed options on a storage queue's messages, and apply the change.

A preview evaluates each message under the current and the new options, as gets and sweeps would, in one snapshot. It reads at
most SCAN_CAP messages, lowest numbers first; beyond that its counts are lower bounds and marked as such. With the token of a
preview, `change_options` counts again in the transaction that makes the change, and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import partial
from typing import Any

from broker_core.common.durations import human
from broker_core.common.types import Actor, EntityAddress, HistoryLevel, Right
from broker_core.queue_storage.rules.options import Poison, QueueOptions, changed, poison_of
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.runtime.previews import SCAN_CAP, Effect, Preview, make_if_unchanged, token_of
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .queues import StorageQueue, checked_history_level, lock_queue, update_queue
from .shared import authorize


class OptionsEffect(StrEnum):
    """What happens to messages at the next get that meets them or at the next sweep, whichever comes first."""

    POISONED = "moved to the poison queue"
    POISONED_LATER = "moved to the poison queue once visible"
    REDIRECTED = "moved to another poison queue than before"
    REMOVED = "removed, expired"
    DELIVERED_AGAIN = "given out again"
    VISIBLE_LONGER = "shown longer, expired"


@use_case
def preview_options(
    address: EntityAddress, *, history_level: HistoryLevel | int | None = None, actor: Actor | None = None, **changes: Any
) -> Steps[Preview]:
    """What changing these options would do now; see update_queue, whose errors it raises. Changes nothing.

    The preview's before and after are the options with the history level.
    """
    authorize(actor, Right.MANAGE, address)
    return (yield Atomically(_preview(address, history_level, changes)))


@use_case
def change_options(
    address: EntityAddress,
    *,
    history_level: HistoryLevel | int | None = None,
    token: str | None = None,
    actor: Actor | None = None,
    **changes: Any,
) -> Steps[Preview]:
    """Change these options and return the effect as a Preview, counted in the transaction that makes the change.

    token: of a preview that must still hold; otherwise PreviewOutdated is raised and nothing is changed.
    """
    authorize(actor, Right.MANAGE, address)
    update = partial(update_queue.steps, address, history_level=history_level, actor=actor, **changes)
    return (yield from make_if_unchanged(_preview(address, history_level, changes), update, token))


def _preview(address: EntityAddress, history_level: HistoryLevel | int | None, changes: Mapping[str, Any]) -> Steps[Preview]:
    """The preview, with the queue's row locked, in the caller's transaction."""
    level = None if history_level is None else checked_history_level(history_level)
    queue: StorageQueue = yield from lock_queue(address)
    after = changed(queue.name, queue.options, changes)
    old, new = poison_of(queue.name, queue.options), poison_of(queue.name, after)
    rows = yield call(
        "storage_preview_options",
        entity_id=queue.id,
        scan_cap=SCAN_CAP,
        new_max_dequeue_count=new and new.max_dequeue_count,
        new_expiry_grace=after.expiry_grace,
        is_redirected=old is not None and new is not None and old.queue != new.queue,
    )
    capped = rows[0].scanned >= SCAN_CAP
    affected = [row for row in rows if row.after is not None]
    settings = queue.options, queue.history_level
    new_settings = after, queue.history_level if level is None else level
    target = new.queue if new else None
    return Preview(
        subject=queue.address,
        at=rows[0].now,
        token=token_of(settings, new_settings, [(row.before, row.after, row.n, row.checksum) for row in affected]),
        before=settings,
        after=new_settings,
        effects=tuple(_effects(queue.address, affected, target, capped)),
        notes=tuple(_notes(queue, after, level)),
        scanned=rows[0].scanned,
        capped=capped,
    )


def _effects(address: EntityAddress, rows: Sequence[Any], target: str | None, capped: bool) -> Iterable[Effect]:
    """One Effect for each OptionsEffect; several changes of fate can have the same effect."""
    for what in OptionsEffect:
        if matching := [row for row in rows if _effect_of(row.before, row.after) is what]:
            samples = sorted(number for row in matching for number in row.samples)[:5]
            to_poison = what in (OptionsEffect.POISONED, OptionsEffect.POISONED_LATER, OptionsEffect.REDIRECTED)
            yield Effect(what, address, sum(row.n for row in matching), tuple(samples), target if to_poison else None, capped)


def _effect_of(before: str, after: str) -> OptionsEffect:
    """The effect of a change from one fate to another."""
    match after:
        case "spent" | "spent once visible" if before == after:
            return OptionsEffect.REDIRECTED
        case "spent":
            return OptionsEffect.POISONED
        case "spent once visible":
            return OptionsEffect.POISONED_LATER
        case "removed":
            return OptionsEffect.REMOVED
        case "expired":
            return OptionsEffect.VISIBLE_LONGER
    return OptionsEffect.DELIVERED_AGAIN


def _poison_note(poison: Poison) -> str:
    times = "once" if poison.max_dequeue_count == 1 else f"{poison.max_dequeue_count:,} times"
    return f"Messages dequeued {times} are moved to '{poison.queue}' (QS-105)."


def _policy_notes(before: Sequence[AccessPolicy], after: Sequence[AccessPolicy]) -> Iterable[str]:
    """What becomes of signatures that refer to stored access policies."""
    now = {policy.id: policy for policy in after}
    for policy in before:
        if policy.id not in now:
            yield f"Signatures with the access policy '{policy.id}' are refused from now on (QS-095)."
        elif policy != now[policy.id]:
            yield f"Signatures with the access policy '{policy.id}' follow the changed policy at once (QS-095)."


def _notes(queue: StorageQueue, after: QueueOptions, level: HistoryLevel | None) -> Iterable[str]:
    before = queue.options
    changed = {field.name for field in fields(QueueOptions) if getattr(before, field.name) != getattr(after, field.name)}
    if not changed and level in (None, queue.history_level):
        yield "The settings are the same; nothing changes."
    if changed & {"max_dequeue_count", "poison_queue"}:
        poison = poison_of(queue.name, after)
        yield _poison_note(poison) if poison else "The number of dequeues is unlimited."
    if "access_policies" in changed:
        yield from _policy_notes(before.access_policies, after.access_policies)
    if "expiry_grace" in changed:
        yield f"Expired messages, which clients never receive, are shown for {human(after.expiry_grace)} (QS-923)."
    if "strict_visibility" in changed:
        refused = "are refused" if after.strict_visibility else "are accepted"
        yield f"Updates that hide a message until after it expires {refused} from now on; earlier updates are kept (QS-903)."
