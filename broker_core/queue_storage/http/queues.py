"""The operations on queues: their metadata and stored access policies."""

from __future__ import annotations

from broker_core import queue_storage
from broker_core.common.types import Actor
from broker_core.queue_storage.queues import set_access_policies
from broker_core.queue_storage.rules.errors import InvalidMetadata
from broker_core.wire.http.answer import Answer

from . import answers, documents
from .messages import address_of
from .request import Request

MOST_BODY_BYTES = 64 * 1024
_METADATA = "x-ms-meta-"
_COUNT = "x-ms-approximate-messages-count"


async def create(request: Request, actor: Actor) -> Answer:
    """QS-085: 201 for a new queue, 204 for one with the same metadata."""
    queue = await queue_storage.create_queue.aio(address_of(request), metadata=metadata_of(request), actor=actor)
    return answers.answer(request, 201 if queue.created else 204)


async def delete(request: Request, actor: Actor) -> Answer:
    """QS-087."""
    await queue_storage.delete_queue.aio(address_of(request), actor=actor)
    return answers.answer(request, 204)


async def get_metadata(request: Request, actor: Actor) -> Answer:
    """QS-090."""
    queue = await queue_storage.get_queue.aio(address_of(request), actor=actor)
    count = await queue_storage.approximate_count.aio(address_of(request), actor=actor)
    metadata = {f"{_METADATA}{name}": value for name, value in queue.metadata.items()}
    return answers.answer(request, 200, headers={_COUNT: str(count), **metadata})


async def set_metadata(request: Request, actor: Actor) -> Answer:
    """QS-089."""
    await queue_storage.set_metadata.aio(address_of(request), metadata_of(request), actor=actor)
    return answers.answer(request, 204)


async def get_acl(request: Request, actor: Actor) -> Answer:
    """The stored access policies (QS-095)."""
    queue = await queue_storage.get_queue.aio(address_of(request), actor=actor)
    return answers.answer(request, 200, documents.write_policies(queue.access_policies))


async def set_acl(request: Request, actor: Actor) -> Answer:
    """QS-095. Without a body, all policies are removed."""
    body = await request.body(MOST_BODY_BYTES)
    policies = documents.read_policies(body) if body else []
    await set_access_policies.aio(address_of(request), policies, actor=actor)
    return answers.answer(request, 204)


def metadata_of(request: Request) -> dict[str, str]:
    """The x-ms-meta headers. That of the SDK for Python without a name is no metadata (QS, section 4.3)."""
    metadata: dict[str, str] = {}
    for header, value in request.headers:
        if header.startswith(_METADATA):
            name = header.removeprefix(_METADATA)
            if name in metadata:
                raise InvalidMetadata(f"{name!r} is given twice; names are case-insensitive")
            metadata[name] = value
    return metadata
