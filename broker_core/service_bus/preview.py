"""Preview changes in a Service Bus namespace, and make them only if the preview still holds.

A preview counts, in one snapshot, what receives and sweeps would do with the existing messages under the new settings. It reads
at most SCAN_CAP messages; beyond that its counts are lower bounds and marked as such. With the token of a preview, `change`
counts again in the transaction that makes the change, and compares. The messages themselves are changed later, by the next
receive or sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, Right, SubQueue
from broker_core.namespaces.namespaces import namespace_to_configure
from broker_core.runtime.previews import SCAN_CAP, Effect, Preview, make_if_unchanged, token_of
from broker_core.service_bus.entities.forwarding import notes_on_forwards
from broker_core.service_bus.entities.kinds import Entity, as_parameters
from broker_core.service_bus.entities.lifecycle import settings_after
from broker_core.service_bus.entities.rows import lock_entity
from broker_core.service_bus.rules.entity_settings import KEPT, Settings, changed_forwards, resolved, values_of
from broker_core.service_bus.rules.messages import MAX_DELIVERY_COUNT_EXCEEDED, TTL_EXPIRED
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from . import entities


class SettingsEffect(StrEnum):
    """What happens to messages. An expired message is also counted as dead-lettered or dropped."""

    EXPIRED = "expired"
    DEAD_LETTERED = "dead-lettered"
    DROPPED = "dropped"
    UNLOCKED = "unlocked"
    FORWARDED = "forwarded"
    UNDELIVERABLE = "undeliverable"
    DELIVERABLE = "deliverable"
    DELETED = "deleted"


@use_case
def preview(address: EntityAddress, *, actor: Actor | None = None, **changes: Any) -> Steps[Preview]:
    """What changing these settings of a queue, topic or subscription would do now. Changes nothing.

    Requires MANAGE and raises the same errors as the change itself. Raises EntityNotFound.
    """
    actor = _allowed(address, actor)
    return (yield Atomically(_change(address, changes, actor)))


@use_case
def change(address: EntityAddress, *, token: str | None = None, actor: Actor | None = None, **changes: Any) -> Steps[Preview]:
    """Change these settings and return the effect as a Preview, counted in the transaction that makes the change.

    token: of a preview that must still hold; otherwise PreviewOutdated is raised and nothing is changed.
    """
    actor = _allowed(address, actor)
    update = partial(entities.update_entity.steps, address, actor=actor, **changes)
    return (yield from make_if_unchanged(_change(address, changes, actor), update, token))


@use_case
def preview_delete(address: EntityAddress, *, actor: Actor | None = None) -> Steps[Preview]:
    """The number of messages deleted with the entity and a topic's subscriptions; exact. Requires MANAGE."""
    _allowed(address, actor)
    return (yield Atomically(_delete(address)))


def _allowed(address: EntityAddress, actor: Actor | None) -> Actor:
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, address)
    if address.subqueue:
        raise InvalidArgument("address", f"'{address}' is a sub-queue; it is created, deleted and configured with its entity")
    return actor


# Changes of settings


def _change(address: EntityAddress, changes: Mapping[str, Any], actor: Actor) -> Steps[Preview]:
    """The preview of a change, with the entity's row locked, in the caller's transaction."""
    namespace = yield from namespace_to_configure(address, actor, Family.SERVICE_BUS)
    current = yield from lock_entity(address, None)
    after = yield from settings_after(current, changes, namespace)
    new, effective = as_parameters(after), resolved(after, namespace.behaviour)
    rows = yield call(
        "preview_change",
        entity_id=current.id,
        scan_cap=SCAN_CAP,
        new_time_to_live=new["default_message_time_to_live"],
        new_status=new["status"],
        new_max_delivery_count=new["max_delivery_count"],
        new_dead_lettering=new["dead_lettering_on_message_expiration"],
        new_drops_locks=after != current.settings and bool(effective.get("drops_locks_on_change")),
        new_forward_to=new["forward_to"],
        new_forward_dead_lettered_to=new["forward_dead_lettered_messages_to"],
        new_expires_whole_sessions=new["expires_whole_sessions"],
    )
    forwards = yield from notes_on_forwards(current.id, after, changed_forwards(current.settings, after))
    affected = [row for row in rows if row.path is not None]
    capped = rows[0].scanned >= SCAN_CAP
    facts = [(row.path, row.subqueue, row.before, row.after, row.n, row.checksum) for row in affected]
    return Preview(
        subject=current.address,
        at=rows[0].now,
        token=token_of(_as_facts(current.settings), _as_facts(after), facts),
        effects=tuple(effect for row in affected for effect in _effects(current.address.namespace, row, capped)),
        before=current.settings,
        after=after,
        notes=(*_notes(current, after, effective), *forwards),
        scanned=rows[0].scanned,
        capped=capped,
    )


_EXPIRES = (TTL_EXPIRED, "dropped")
_LEAVES = (*_EXPIRES, MAX_DELIVERY_COUNT_EXCEEDED)


def _effects(namespace: str, row: Any, capped: bool) -> Iterable[Effect]:
    """The effects of a change from one fate to another."""
    address = EntityAddress(namespace, row.path, SubQueue(row.subqueue))

    def effect(what: SettingsEffect, reason: str | None = None) -> Effect:
        return Effect(what, address, row.n, tuple(row.samples), reason, capped)

    if row.before == "locked":
        yield effect(SettingsEffect.UNLOCKED)
    if row.after in _EXPIRES and row.before not in _EXPIRES:
        yield effect(SettingsEffect.EXPIRED)
    if row.after in (TTL_EXPIRED, MAX_DELIVERY_COUNT_EXCEEDED):
        yield effect(SettingsEffect.DEAD_LETTERED, row.after)
    elif row.after in ("dropped", "forwarded"):
        yield effect(SettingsEffect(row.after))
    elif row.after == "deliverable" and row.before != "locked":
        yield effect(SettingsEffect.DELIVERABLE)
    elif row.after == "undeliverable" and row.before not in _LEAVES:
        yield effect(SettingsEffect.UNDELIVERABLE)


def _notes(current: Entity, after: Settings, effective: Mapping[str, Any]) -> Iterable[str]:
    before, requested = values_of(current.settings), values_of(after)
    changed = {name for name in requested if requested[name] != before[name]}
    if not changed:
        yield "The settings are the same; nothing changes."
    if "lock_duration" in changed:
        yield "Existing locks keep their duration; new and renewed locks use the new one (SB-907)."
    if "status" in changed:
        status = requested["status"]
        sends, receives = (("accepted" if may else "refused") for may in (status.may_send, status.may_receive))
        if current.kind is EntityKind.TOPIC:
            yield f"Sends are {sends}; subscriptions still deliver their messages (SB-235)."
        else:
            yield f"Sends are {sends}, receives and settlements {receives}."
    if "default_message_time_to_live" in changed:
        yield "The default applies only to messages that have no time-to-live (SB-023, SB-921)."
    if "expiry_mode" in changed:
        yield f"Expired messages, which are never delivered, are removed in the mode {effective['expiry_mode']} (SB-902)."
    if KEPT in changed:
        yield "Properties that are kept for clients have no effect on messages (SB-940)."
    if "peek_shows_default_expiry" in changed:
        every = effective["peek_shows_default_expiry"]
        which = "of every message that expires" if every else "only of a message with a time-to-live of its own"
        yield f"A peek returns the expiry {which} (SB-903)."


# Deletion


def _delete(address: EntityAddress) -> Steps[Preview]:
    current = yield from lock_entity(address, None)
    rows = yield call("preview_delete", entity_id=current.id)
    affected = [row for row in rows if row.path is not None]
    namespace = current.address.namespace
    notes = []
    if rows[0].entities > 1:
        notes.append(f"The topic's subscriptions are deleted with it: {rows[0].entities - 1:,}.")
    if locked := sum(row.locked for row in affected):
        notes.append(f"{locked:,} of the messages are locked; their receivers lose the lock (SB-076).")
    return Preview(
        subject=current.address,
        at=rows[0].now,
        token=token_of(_as_facts(current.settings), [(row.path, row.subqueue, row.n) for row in affected]),
        effects=tuple(
            Effect(SettingsEffect.DELETED, EntityAddress(namespace, row.path, SubQueue(row.subqueue)), row.n) for row in affected
        ),
        before=current.settings,
        notes=tuple(notes),
    )


def _as_facts(settings: Settings) -> list[tuple[str, str]]:
    """Settings as the facts that a token is computed from."""
    return sorted((name, str(value)) for name, value in values_of(settings).items())
