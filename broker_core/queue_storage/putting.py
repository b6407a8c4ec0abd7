"""Put messages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage.rules.limits import DEFAULT_LIFE
from broker_core.queue_storage.rules.messages import check_put, encode_text
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import as_list, authorize, run_on_queue
from .values import put_message


@use_case
def put(
    address: EntityAddress,
    text: str,
    *,
    visibility_timeout: timedelta = timedelta(0),
    time_to_live: timedelta | None = DEFAULT_LIFE,
    actor: Actor | None = None,
) -> Steps:
    """Append a message and return it as a PutMessage (QS-001).

    visibility_timeout: how long the message stays invisible, up to 7 days. time_to_live: None: it never expires (QS-003).
    Raises InvalidXmlDocument (QS-912), RequestBodyTooLarge (QS-010), OutOfRangeQueryParameterValue (QS-007),
    InvalidQueryParameterValue (QS-005, QS-006), then QueueNotFound (QS-012).
    """
    return (yield from _put(address, [text], visibility_timeout, time_to_live, actor))[0]


@use_case
def put_all(
    address: EntityAddress,
    texts: Iterable[str],
    *,
    visibility_timeout: timedelta = timedelta(0),
    time_to_live: timedelta | None = DEFAULT_LIFE,
    actor: Actor | None = None,
) -> Steps:
    """Append messages in order, all or none, in one statement: a list of PutMessage. The service has no such call."""
    return (yield from _put(address, as_list("texts", texts), visibility_timeout, time_to_live, actor))


def _put(address: EntityAddress, texts: list[str], visibility: timedelta, life: timedelta | None, actor: Actor | None) -> Steps:
    actor = authorize(actor, Right.SEND, address)
    bodies = [encode_text(text) for text in texts]
    check_put(visibility, life)
    if not bodies:
        return []
    params = {"bodies": bodies, "bytes": sum(map(len, bodies)), "visibility": visibility, "time_to_live": life}

    def attempt(queue: CachedEntity) -> Steps:
        rows = yield call("storage_put", entity_id=queue.id, actor=str(actor), holder=actor.holder_label, **params)
        return rows or None

    return [put_message(row) for row in (yield from run_on_queue(address, attempt))]
