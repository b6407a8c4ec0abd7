"""The Queue Storage entry of the family registry."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from broker_core.common.family import FamilyDefinition
from broker_core.common.types import Actor, Family, Tier
from broker_core.namespaces import Namespace
from broker_core.queue_storage.rules.names import check_account_name, check_queue_name
from broker_core.store.driver import Steps

from . import tidying, transfer
from .queues import create_account, create_queue, delete_account, delete_queue
from .rules import display_state, explaining


def _life_ends_at(own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
    """A queue has no default time-to-live: a message's own expiry decides (QS-070)."""
    return own


def _create_account(name: str, description: str, tier: Tier, actor: Actor) -> Namespace:
    return create_account(name, description, actor=actor)


def _never_idle(row: Any) -> Steps[bool]:
    """A storage queue is never deleted for being idle."""
    yield from ()
    return False


QUEUE_STORAGE = FamilyDefinition(
    family=Family.QUEUE_STORAGE,
    title="Queue Storage",
    container_noun="storage account",
    check_namespace_name=check_account_name,
    display_state=display_state.display_state,
    next_change_at=display_state.next_change_at,
    why_not=explaining.why_not,
    life_ends_at=_life_ends_at,
    has_expired=tidying.is_due,
    expire=tidying.expire,
    delete_idle=_never_idle,
    create_namespace=_create_account,
    delete_namespace=delete_account,
    queue_noun="storage queue",
    check_queue_name=check_queue_name,
    create_queue=create_queue,
    delete_entity=delete_queue,
    admin="broker_core.queue_storage.admin",
    transfer=transfer,
    lock_column="visible_at",
)
