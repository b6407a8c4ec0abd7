"""Duplicate detection: the message ids that an entity has seen (SB-130 to SB-137). Recorded in the transaction of the send, so a
rollback also removes them."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.store.driver import Steps
from broker_core.store.statements import call


def claim_ids(entity_id: int, message_ids: Sequence[str | None]) -> Steps:
    """Record the ids as seen and return, for each message, whether it is new. A message without an id is always new (SB-134); of
    equal ids in a batch, the first is (SB-135)."""
    named = [message_id for message_id in message_ids if message_id]
    rows = (yield call("claim_ids", entity_id=entity_id, message_ids=named)) if named else []
    new = {row.message_id for row in rows}
    is_new = []
    for message_id in message_ids:
        is_new.append(not message_id or message_id in new)
        new.discard(message_id)
    return is_new


def record_ids(entity_id: int, message_ids: Sequence[str | None], numbers: Sequence[int | None], actor: str) -> Steps[None]:
    """Record the numbers of the stored messages, and an event for each duplicate (number None) on the message that was kept."""
    numbers_by_id = {
        message_id: number for message_id, number in zip(message_ids, numbers, strict=True) if message_id and number is not None
    }
    duplicates = [message_id for message_id, number in zip(message_ids, numbers, strict=True) if number is None]
    if numbers_by_id or duplicates:
        yield call(
            "record_ids",
            entity_id=entity_id,
            message_ids=list(numbers_by_id),
            numbers=list(numbers_by_id.values()),
            duplicates=duplicates,
            actor=actor,
        )
