"""The families beside each other: one question, answered by the module of the family it is asked of (design D10).

Nothing is decided here. Whoever works on entities of any family (lists, pages, sweeps) asks here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from .queue_storage import explaining as storage_explaining
from .queue_storage import names as storage_names
from .queue_storage import standing as storage_standing
from .rabbitmq import explaining as rabbit_explaining
from .rabbitmq import names as rabbit_names
from .rabbitmq import standing as rabbit_standing
from .service_bus import entity_settings, explaining, standing
from .types import Family

TITLES = {Family.SERVICE_BUS: "Service Bus", Family.QUEUE_STORAGE: "Queue Storage", Family.RABBITMQ: "RabbitMQ"}
# What a set of entities is called.
SETS = {Family.SERVICE_BUS: "namespace", Family.QUEUE_STORAGE: "storage account", Family.RABBITMQ: "virtual host"}

_STANDINGS: dict[Family, ModuleType] = {
    Family.SERVICE_BUS: standing,
    Family.QUEUE_STORAGE: storage_standing,
    Family.RABBITMQ: rabbit_standing,
}
_EXPLAINERS: dict[Family, ModuleType] = {
    Family.SERVICE_BUS: explaining,
    Family.QUEUE_STORAGE: storage_explaining,
    Family.RABBITMQ: rabbit_explaining,
}


def check_namespace_name(family: Family, name: str) -> str:
    """The name of a namespace, an account or a virtual host, given back unchanged. Raises InvalidArgument."""
    match family:
        case Family.QUEUE_STORAGE:
            return storage_names.check_account_name(name)
        case Family.RABBITMQ:
            return rabbit_names.check_vhost_name(name)
    return entity_settings.check_namespace_name(name)


def standing_of(message: Any, now: datetime) -> Any:
    """What a person calls the message's state: a member of its family's Standing."""
    return _STANDINGS[message.family].standing(message, now)


def next_change_at(message: Any, now: datetime) -> datetime | None:
    """The instant at which the clock alone changes the standing; None: never."""
    return _STANDINGS[message.family].next_change_at(message, now)


def why_not(message: Any, now: datetime) -> str | None:
    """One sentence on why the message would not be handed out now; None where it would."""
    return _EXPLAINERS[message.family].why_not(message, now)


def life_ends_at(family: Family, own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
    """When a message of a main queue expires: by the instant stored with it, by its entity's default, or by the earlier one.

    Service Bus: the default counts where there is no own one (SB-021); Queue Storage has no default; RabbitMQ: whatever comes
    first (RMQ-008, RMQ-902).
    """
    by_default = None if default is None else enqueued_at + default
    if family is Family.RABBITMQ:
        return min((at for at in (own, by_default) if at is not None), default=None)
    return own if own is not None or family is Family.QUEUE_STORAGE else by_default
