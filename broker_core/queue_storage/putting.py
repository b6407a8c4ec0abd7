"""Put messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import chain, islice

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage.rules.limits import DEFAULT_LIFE
from broker_core.queue_storage.rules.messages import check_put, encode_text
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.room import require_room
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import as_list, authorize, run_on_queue
from .values import PutMessage, put_message


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
    yield from require_room(address.namespace)
    return (yield from _puts.call((address, str(actor), actor.holder_label, visibility, life), bodies))


def _put_together(key: tuple, groups: Sequence[list[bytes]]) -> Steps[list[list[PutMessage]]]:
    """Append the messages of several calls; returns those of each."""
    address, actor, holder, visibility, life = key
    bodies = list(chain.from_iterable(groups))
    params = {"bodies": bodies, "bytes": sum(map(len, bodies)), "visibility": visibility, "time_to_live": life}

    def attempt(queue: CachedEntity) -> Steps:
        return (yield call("storage_put", entity_id=queue.id, actor=actor, holder=holder, **params)) or None

    put = iter([put_message(row) for row in (yield from run_on_queue(address, attempt))])
    return [list(islice(put, len(group))) for group in groups]


def _weight(bodies: Sequence[bytes]) -> int:
    return sum(1 + len(body) // _BODY_BYTES_LIKE_A_MESSAGE for body in bodies)


_BODY_BYTES_LIKE_A_MESSAGE = 8192  # large bodies fill a group sooner
_puts: Gathering[list[bytes], list[PutMessage]] = Gathering(_put_together, size_of=_weight)
