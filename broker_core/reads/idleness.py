"""When an entity of Service Bus is deleted for being idle, and what its last use was (SB-190 to SB-195, SB-918)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker_core.common.types import Actor, EntityAddress, Right, UseKind
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import entity_id_of, require


class KeptBy(StrEnum):
    """Why an entity is not deleted, however long ago its last use was; as in the fragment `kept_from_idleness`."""

    FORWARDS = "forwards"  # SB-193
    WAITING = "waiting"  # a receiver waits (SB-195)
    SCHEDULED = "scheduled"  # it has scheduled messages (SB-918)
    SUBSCRIPTION_FORWARDS = "subscription forwards"
    SUBSCRIPTION_WAITING = "subscription waiting"


@dataclass(frozen=True, slots=True)
class Idleness:
    """The idleness of an entity at `read_at` of its clock.

    after:     its auto_delete_on_idle.
    at:        when it is deleted if it is not used, within some seconds; None: it is kept from being idle by `kept_by`.
    used_at:   its last use, to within 20 s. used: what that was; None: unknown, as after an import. used_address: the entity
               that was used: a topic is used with its subscriptions (SB-191).
    """

    read_at: datetime
    after: timedelta
    at: datetime | None
    kept_by: KeptBy | None
    used_at: datetime
    used: UseKind | None
    used_address: EntityAddress


@use_case
def idleness(address: EntityAddress, *, actor: Actor | None = None) -> Steps[Idleness | None]:
    """When an entity is deleted for being idle; None: never, by its settings or since its family has no such deletion. Raises
    EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    for row in (yield call("idleness", entity_id=entity_id)):
        kept_by = KeptBy(row.kept_by) if row.kept_by else None
        used = None if row.last_use is None else UseKind(row.last_use)
        used_address = EntityAddress(address.namespace, row.used_path)
        return Idleness(row.now, row.after, None if kept_by else row.at, kept_by, row.used_at, used, used_address)
    return None
