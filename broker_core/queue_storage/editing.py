"""Edits of waiting messages (QS-927)."""

from __future__ import annotations

from typing import Any

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage.rules.messages import encode_text
from broker_core.runtime import editing
from broker_core.runtime.editing import Content
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.store.driver import Steps
from broker_core.store.use_cases import use_case

from .shared import authorize, run_on_queue


@use_case
def edit(
    address: EntityAddress,
    sequence_number: int,
    *,
    text: str,
    version: str | None = None,
    reason: str | None = None,
    actor: Actor | None = None,
) -> Steps[str]:
    """Replace the text of a message that is not leased, visible or delayed (QS-927). It gets a new pop receipt; its number,
    position, times and dequeue count stay. Returns its new version.

    version: of the message as it was read (reads.message); an edit of one that has changed since is refused.
    Raises InvalidXmlDocument (QS-912), RequestBodyTooLarge (QS-010), QueueNotFound; MessageHeld, MessageChanged, and
    MessageNotFound of common.errors; NotAllowed for an expired message; for a longer text NamespaceFull and StorageFull.
    """
    actor = authorize(actor, Right.OPERATE | Right.SEE_BODIES, address)
    body = encode_text(text)
    edit = editing.checked(sequence_number, body, None, version, reason, actor)

    def content_of(_: Any) -> Steps[Content]:
        yield from ()
        return Content(len(body))

    def attempt(queue: CachedEntity) -> Steps[str]:
        return (yield from editing.apply(address, queue.id, "storage_edit", edit, hold="lease", content_of=content_of))

    return (yield from run_on_queue(address, attempt))
