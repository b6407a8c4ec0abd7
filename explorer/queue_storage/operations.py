"""Operations on many messages of storage queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter

from broker_core import queue_storage
from broker_core.common.errors import InvalidArgument
from broker_core.export_format.messages import Sent
from broker_core.operations import NOT_IN_LIST, Batch, Outcome, Place, Skip
from broker_core.queue_storage.rules.limits import TEXT_BYTES
from broker_core.queue_storage.rules.messages import encode_text
from broker_core.reads import EntityRow
from broker_core.store.driver import Steps
from explorer.frames.family import FamilyOperations

from .lists import LISTS


class StorageOperations(FamilyOperations):
    """Operations on messages of storage queues."""

    lists = {message_list.slug: Place(holds=message_list.holds) for message_list in LISTS}
    releases = ("all", "leased", "delayed")
    hides_held = True
    largest_body = TEXT_BYTES

    def resubmit(self, batch: Batch) -> Steps:
        return (yield from queue_storage.move.steps(batch.operation.selection.address, batch.numbers, actor=batch.actor))

    def move(self, batch: Batch) -> Steps:
        operation = batch.operation
        return (
            yield from queue_storage.move.steps(
                operation.selection.address, batch.numbers, operation.options["to"], actor=batch.actor
            )
        )

    def resubmits(self, tab: str, entity: EntityRow) -> bool:
        return entity.waits_for_operator

    def release(self, batch: Batch) -> Steps:
        released = yield from queue_storage.release.steps(batch.operation.selection.address, batch.numbers, actor=batch.actor)
        remaining = set(batch.numbers) - set(released)
        return Outcome(len(released), dict.fromkeys(remaining, Skip(f"already visible, or {NOT_IN_LIST}")))

    def read_sent(self, sent: Sent) -> tuple[str, timedelta | None]:
        try:
            text = sent.body.decode()
        except UnicodeDecodeError:
            raise InvalidArgument("body_base64", "is not text: messages of storage queues are text") from None
        encode_text(text)
        return text, sent.time_to_live

    def send_records(self, batch: Batch, messages: Sequence[tuple[str, timedelta | None]]) -> Steps:
        """All with one time-to-live are put at once."""
        operation, places = batch.operation, []
        for life, some in groupby(messages, key=itemgetter(1)):
            texts = [text for text, _ in some]
            put = yield from queue_storage.put_all.steps(operation.address, texts, time_to_live=life, actor=batch.actor)
            places += [[(operation.entity_id, message.sequence_number)] for message in put]
        return places
