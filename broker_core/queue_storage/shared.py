"""What the use cases of storage queues share: finding the queue behind an address, in the family's own words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker_core.common.arguments import require_kind
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.queue_storage.rules.errors import QueueNotFound
from broker_core.queue_storage.rules.names import check_queue_name
from broker_core.runtime.entity_cache import CachedEntity, on_entity
from broker_core.store.driver import Steps
from broker_core.store.statements import call

FAMILY = Family.QUEUE_STORAGE


def may(actor: Actor | None, right: Right, address: EntityAddress) -> Actor:
    """The actor, who has this right on what may be a queue's address. Raises NotAuthorized, InvalidArgument."""
    require_kind("address", address, EntityAddress)
    actor = actor or Actor.local()
    actor.require(right, address)
    if address.subqueue:
        raise InvalidArgument("address", f"'{address}': a storage queue has no sub-queues")
    check_queue_name(address.path)
    return actor


def listed(name: str, given: Iterable[Any]) -> list:
    """What is given as several. Raises InvalidArgument for what is not; a text would be taken for its characters."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidArgument(name, f"{type(given).__name__} must be a list")
    return list(given)


def on_queue(address: EntityAddress, attempt: Callable[[CachedEntity], Steps]) -> Steps:
    """What an attempt on the queue answers; it answers None if the queue is gone, and is tried once more where the queue was only
    remembered. Raises QueueNotFound."""
    try:
        _, answer, _ = yield from on_entity(address, lambda queue: _boxed(attempt(queue)), FAMILY)
    except EntityNotFound as exc:
        raise QueueNotFound(str(address)) from exc
    if answer is None:  # made anew at this very moment
        raise QueueNotFound(str(address))
    return answer[0]


def there(queue_id: int) -> Steps[bool]:
    """Whether a queue is still there: for an attempt that found nothing, which a queue that is gone has as well."""
    return bool((yield call("storage_bounds", entity_id=queue_id)))


def one_row(address: EntityAddress, name: str, **params: Any) -> Steps:
    """The only row of a statement that has none if the queue is gone. Raises QueueNotFound."""

    def attempt(queue: CachedEntity) -> Steps:
        return next(iter((yield call(name, entity_id=queue.id, **params))), None)

    return (yield from on_queue(address, attempt))


def _boxed(attempt: Steps) -> Steps:
    """An empty answer is one: only None says that the queue is gone."""
    answer = yield from attempt
    return None if answer is None else (answer,)
