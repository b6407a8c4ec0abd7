"""Update and delete messages by pop receipt. Only the receipt has to be current; the lease may have ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EventKind, Right, SubQueue
from broker_core.queue_storage.rules.errors import MessageNotFound, PopReceiptMismatch, beyond_expiry
from broker_core.queue_storage.rules.messages import as_uuid, check_receipt, check_update, number_of, seconds
from broker_core.runtime import refusals
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.keeping import ending
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import as_list, authorize, queue_exists, run_on_queue
from .values import GotMessage, PutMessage, Updated


class Deleted(NamedTuple):
    """The ids of the removed messages, and of those not found under the given receipt."""

    deleted: tuple[str, ...]
    missing: tuple[str, ...]


@use_case
def update(
    address: EntityAddress,
    message_id: str | UUID,
    pop_receipt: UUID | str,
    *,
    visibility_timeout: timedelta | None,
    text: str | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Make a message invisible for visibility_timeout from now (0: visible at once), and replace its text if one is given (QS-045
    to QS-048).

    Returns the new receipt, which replaces the old one, and when the message becomes visible. Raises
    MissingRequiredQueryParameter, RequestBodyTooLarge, OutOfRangeQueryParameterValue (QS-054, QS-055); then QueueNotFound,
    MessageNotFound, PopReceiptMismatch in this order (QS-050); with strict_visibility InvalidQueryParameterValue (QS-903).
    """
    actor = authorize(actor, Right.LISTEN, address)
    visibility, body = check_update(pop_receipt, visibility_timeout, text)
    params = {"actor": str(actor), "holder": actor.holder_label, "visibility": visibility, "body": body}
    key = key_of([(message_id, pop_receipt)])

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_update", entity_id=queue.id, **key, **params)
        if rows:
            return Updated(rows[0].lock_token, rows[0].visible_at)
        message = yield from _find(queue, message_id)
        if message is None:
            return None
        if message.lock_token == as_uuid(pop_receipt) and message.expires_at is not None:
            raise beyond_expiry(seconds(visibility), message.expires_at)
        yield from _record_refusal(queue, message, actor, "update")
        _refuse(address, message_id, message)

    return (yield from run_on_queue(address, attempt))


@use_case
def delete(address: EntityAddress, message_id: str | UUID, pop_receipt: UUID | str, *, actor: Actor | None = None) -> Steps[None]:
    """Delete a message. Its lease may have ended, as long as it has not been received or updated since (QS-060, QS-063).

    Raises MissingRequiredQueryParameter; then QueueNotFound, MessageNotFound, PopReceiptMismatch (QS-061).
    """
    actor = authorize(actor, Right.LISTEN, address)
    check_receipt(pop_receipt)

    def attempt(queue: CachedEntity) -> Steps:
        if (yield from _deletions.call((queue.id, str(actor)), [(str(message_id), as_uuid(pop_receipt))])):
            return True
        message = yield from _find(queue, message_id)
        if message is None:
            return None
        yield from _record_refusal(queue, message, actor, "delete")
        _refuse(address, message_id, message)

    yield from run_on_queue(address, attempt)


@use_case
def delete_all(address: EntityAddress, messages: Iterable[Any], *, actor: Actor | None = None) -> Steps:
    """Delete messages (PutMessage, GotMessage or pairs of id and receipt) in one statement. The service has no such call.

    Returns Deleted, which also lists the messages not found under their receipts; duplicates are listed once. Raises
    InvalidArgument, QueueNotFound.
    """
    actor = authorize(actor, Right.LISTEN, address)
    pairs = _pairs(messages)

    def attempt(queue: CachedEntity) -> Steps:
        deleted = yield from _deletions.call((queue.id, str(actor)), pairs)
        if not deleted and not (yield from queue_exists(queue.id)):
            return None
        ids = list(dict.fromkeys(message_id for message_id, _ in pairs))
        return Deleted(tuple(i for i in ids if i in deleted), tuple(i for i in ids if i not in deleted))

    return (yield from run_on_queue(address, attempt))


def _pairs(messages: Iterable[Any]) -> list[tuple[str, Any]]:
    """The distinct pairs of id and receipt."""
    pairs: dict[tuple, None] = {}
    for message in as_list("messages", messages):
        match message:
            case PutMessage() | GotMessage():
                pairs[str(message.message_id), as_uuid(message.pop_receipt)] = None
            case (message_id, receipt):
                pairs[str(message_id), as_uuid(receipt)] = None
            case _:
                raise InvalidArgument("messages", f"{message!r} must be a PutMessage, a GotMessage or a pair of id and receipt")
    return list(pairs)


def _delete_together(key: tuple[int, str], groups: Sequence[list[tuple]]) -> Steps[list[set[str]]]:
    """Delete the messages of several calls, pairs of id and receipt. Returns the ids that each deleted; of calls with the same
    pair, the first did."""
    entity_id, actor = key
    callers: dict[tuple, int] = {}
    for place, pairs in enumerate(groups):
        for pair in pairs:
            callers.setdefault(pair, place)
    params = {"actor": actor, "kind": int(EventKind.COMPLETED), **key_of(list(callers))}
    deleted: list[set[str]] = [set() for _ in groups]
    for row in (yield (yield from ending("storage_delete", entity_id, **params))):
        deleted[callers[row.message_id, row.lock_token]].add(row.message_id)
    return deleted


_deletions: Gathering[list[tuple], set[str]] = Gathering(_delete_together)


def key_of(pairs: list) -> dict[str, list]:
    """The parameters by which statements find messages. Malformed ids and receipts match no message."""
    return {
        "numbers": [number_of(message_id) or 0 for message_id, _ in pairs],
        "message_ids": ["" if number_of(message_id) is None else str(message_id) for message_id, _ in pairs],
        "receipts": [as_uuid(receipt) for _, receipt in pairs],
    }


def _find(queue: CachedEntity, message_id: str | UUID) -> Steps:
    """A row, with a null sequence_number if there is no such message; None if the queue does not exist."""
    key = key_of([(message_id, None)])
    rows = yield call("storage_find", entity_id=queue.id, number=key["numbers"][0], message_id=key["message_ids"][0])
    return rows[0] if rows else None


def _record_refusal(queue: CachedEntity, message: Any, actor: Actor, what: str) -> Steps[None]:
    """Record that a receipt was out of date (QS-061), if there is the message."""
    if message.sequence_number is not None:
        yield from refusals.record(queue.id, SubQueue.MAIN, [message.sequence_number], actor=str(actor), what=what)


def _refuse(address: EntityAddress, message_id: str | UUID, message: Any) -> NoReturn:
    if message.sequence_number is None:
        raise MessageNotFound(str(address), str(message_id))
    raise PopReceiptMismatch(str(address), str(message_id))
