"""Shared by the use cases of storage queues: authorization, and running statements on the queue of an address."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker_core.common.arguments import require_kind
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, Right
from broker_core.queue_storage.rules.errors import QueueDisabled, QueueNotFound
from broker_core.queue_storage.rules.names import check_queue_name
from broker_core.runtime.entity_cache import CachedEntity, on_entity
from broker_core.store.driver import Steps
from broker_core.store.statements import call

FAMILY = Family.QUEUE_STORAGE


def authorize(actor: Actor | None, right: Right, address: EntityAddress) -> Actor:
    """Check the address and that the actor has this right on it; return the actor. Raises NotAuthorized, InvalidArgument."""
    require_kind("address", address, EntityAddress)
    actor = actor or Actor.local()
    actor.require(right, address)
    if address.subqueue:
        raise InvalidArgument("address", f"'{address}': a storage queue has no sub-queues")
    check_queue_name(address.path)
    return actor


def as_list(name: str, values: Iterable[Any]) -> list:
    """Return an iterable as a list. Raises InvalidArgument for anything else, and for a string."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgument(name, f"{type(values).__name__} must be a list")
    return list(values)


def run_on_queue(address: EntityAddress, attempt: Callable[[CachedEntity], Steps]) -> Steps:
    """Return the result of `attempt` on the queue. It returns None if the queue does not exist; it is then run once more if the
    queue came from the cache. Raises QueueNotFound."""
    try:
        _, answer, status = yield from on_entity(address, lambda queue: _wrap_result(attempt(queue)), FAMILY)
    except EntityNotFound as exc:
        raise QueueNotFound(str(address)) from exc
    if answer is None and status is not None and not EntityStatus(status.status).may_send:
        raise QueueDisabled(str(address), status.status, "puts")  # only puts find nothing in a paused queue
    if answer is None:  # deleted again, just after it was looked up
        raise QueueNotFound(str(address))
    return answer[0]


def queue_exists(queue_id: int) -> Steps[bool]:
    """Whether a queue exists: asked when a statement returned no rows, which may have either reason."""
    return bool((yield call("storage_bounds", entity_id=queue_id)))


def one_row(address: EntityAddress, name: str, **params: Any) -> Steps:
    """The only row of a statement that returns none if the queue does not exist. Raises QueueNotFound."""

    def attempt(queue: CachedEntity) -> Steps:
        return next(iter((yield call(name, entity_id=queue.id, **params))), None)

    return (yield from run_on_queue(address, attempt))


def _wrap_result(attempt: Steps) -> Steps:
    """Put a result in a tuple, so that an empty one is not taken for None."""
    answer = yield from attempt
    return None if answer is None else (answer,)
