"""The operations on an account's queue service: the list of its queues, its properties, and its state."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

from broker_core.common.types import Actor
from broker_core.queue_storage import accounts
from broker_core.queue_storage.queues import ListedQueue, list_queue_page
from broker_core.queue_storage.rules.errors import (
    AuthenticationFailed,
    InvalidMarker,
    InvalidQueryParameterValue,
    StorageRefusal,
)
from broker_core.queue_storage.rules.names import check_queue_name
from broker_core.wire.http.answer import Answer
from broker_core.wire.xml import element

from . import answers, documents, parameters
from .authorization import forget
from .request import Request

MOST_BODY_BYTES = 64 * 1024
_WITH_METADATA = "metadata"


async def list_queues(request: Request, actor: Actor) -> Answer:
    """QS-091; the marker is the last name of the page before."""
    prefix, marker = request.parameter("prefix") or "", request.parameter("marker") or ""
    limit = parameters.whole(request, parameters.MAX_RESULTS, 1, parameters.MOST_RESULTS)
    if "\x00" in prefix:
        raise InvalidQueryParameterValue("prefix", prefix[:80], "contains a NUL character")
    include = request.parameter("include") or ""
    if include not in ("", _WITH_METADATA):
        raise InvalidQueryParameterValue("include", include[:80], f"must be {_WITH_METADATA}")
    after = _read_marker(marker)
    wanted, with_metadata = (request.target.account, prefix, after, limit or parameters.MOST_RESULTS), include == _WITH_METADATA
    page = await list_queue_page.aio(*wanted, with_metadata=with_metadata, actor=actor)
    queues = [_queue(queue, with_metadata=with_metadata) for queue in page.queues]
    root = [
        element("Prefix", prefix),
        *([element("Marker", marker)] if marker else []),
        element("MaxResults", str(limit or parameters.MOST_RESULTS)),
        element("Queues", queues),
        element("NextMarker", _marker(page.queues[-1].name) if page.more else ""),
    ]
    return answers.answer(request, 200, element("EnumerationResults", root, ServiceEndpoint=_endpoint(request)))


async def get_properties(request: Request, actor: Actor) -> Answer:
    properties = await accounts.get_service_properties.aio(request.target.account, actor=actor)
    return answers.answer(request, 200, documents.write_properties(properties))


async def set_properties(request: Request, actor: Actor) -> Answer:
    """Replaces the parts that are in the body, and keeps the others."""
    given = documents.read_properties(await request.body(MOST_BODY_BYTES))
    await accounts.set_service_properties.aio(request.target.account, **given, actor=actor)
    forget(request.target.account)
    return answers.answer(request, 202)


async def get_stats(request: Request, actor: Actor) -> Answer:
    """Of the secondary endpoint. Both are the same database, so it is never behind."""
    if not request.target.is_secondary:
        raise InvalidQueryParameterValue("comp", "stats", "is served by the secondary endpoint only (<account>-secondary)")
    state = [element("Status", "live"), element("LastSyncTime", answers.date(datetime.now(UTC)))]
    return answers.answer(request, 200, element("StorageServiceStats", [element("GeoReplication", state)]))


async def get_delegation_key(request: Request, actor: Actor) -> Answer:
    """Raises AuthenticationFailed: delegation keys are given to users of Entra ID."""
    raise AuthenticationFailed("There are no user delegation keys here, as there is no Entra ID. Sign with an account key")


def _endpoint(request: Request) -> str:
    return request.url(f"/{request.target.account}/" if request.target.is_path_style else "/")


def _marker(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


def _read_marker(marker: str) -> str:
    """The name after which the page begins; empty: the first page. Raises InvalidMarker."""
    try:
        return marker and check_queue_name(base64.b64decode(marker, validate=True).decode("ascii"))
    except (ValueError, StorageRefusal):
        raise InvalidMarker(marker) from None


def _queue(queue: ListedQueue, *, with_metadata: bool) -> str:
    metadata = [element("Metadata", [element(*pair) for pair in queue.metadata.items()])] if with_metadata else []
    return element("Queue", [element("Name", queue.name), *metadata])
