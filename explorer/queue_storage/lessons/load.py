"""How the programs of a load use a queue of Queue Storage (explorer/lessons/load/)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from broker_core import queue_storage, reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress
from broker_core.queue_storage.rules.errors import MessageNotFound, PopReceiptMismatch
from broker_core.queue_storage.rules.limits import MOST_MESSAGES
from explorer.lessons.load.programs import Words

VISIBILITY_TIMEOUT = timedelta(seconds=5)
_LATE = "they are invisible for {}: other receivers will get them, too"


class QueueStorageLoad:
    """See Client. A token is the id of a message and its pop receipt."""

    words = Words("failed", "receipts lost", "in the poison queue", _LATE)
    is_portable, fills_up, has_dead_letters = True, False, False

    def send(self, queue: EntityAddress, bodies: Sequence[bytes], actor: Actor) -> None:
        queue_storage.put_all(queue, [body.decode() for body in bodies], actor=actor)

    def receive(self, queue: EntityAddress, count: int, actor: Actor) -> list[str]:
        count = min(count, MOST_MESSAGES)
        messages = queue_storage.get(queue, count, visibility_timeout=VISIBILITY_TIMEOUT, actor=actor)
        return [f"{message.message_id} {message.pop_receipt}" for message in messages]

    def complete(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        with suppress(MessageNotFound, PopReceiptMismatch):
            queue_storage.delete(queue, *token.split(), actor=actor)
            return True
        return False

    def fail(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        with suppress(MessageNotFound, PopReceiptMismatch):
            queue_storage.update(queue, *token.split(), visibility_timeout=timedelta(0), actor=actor)
            return True
        return False

    def leave(self, queue: EntityAddress, tokens: Sequence[str], actor: Actor) -> None:
        for token in tokens:
            self.fail(queue, token, actor)

    def lock(self, queue: EntityAddress, actor: Actor) -> timedelta | None:
        return VISIBILITY_TIMEOUT

    def dead(self, queue: EntityAddress) -> int:
        poison = queue_storage.get_queue(queue).poison
        with suppress(EntityNotFound):
            return reads.counts(poison).total if poison else 0
        return 0  # it is created with the first message
