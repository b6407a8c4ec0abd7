"""The operations on queues: their metadata and stored access policies."""

from __future__ import annotations

from broker_core import queue_storage
from broker_core.common.types import Actor
from broker_core.queue_storage.queues import set_access_policies
from broker_core.queue_storage.rules.errors import InvalidMetadata
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.wire import xml
from broker_core.wire.http.answer import Answer
from broker_core.wire.xml import Element, element

from . import answers
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
    return answers.answer(request, 200, element("SignedIdentifiers", map(_identifier, queue.access_policies)))


async def set_acl(request: Request, actor: Actor) -> Answer:
    """QS-095. Without a body, all policies are removed."""
    body = await request.body(MOST_BODY_BYTES)
    policies = [_policy(child) for child in xml.read(body).children] if body else []
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


def _identifier(policy: AccessPolicy) -> str:
    parts = [("Start", policy.start), ("Expiry", policy.expiry), ("Permission", policy.permission)]
    given = [element(name, value) for name, value in parts if value is not None]
    return element("SignedIdentifier", [element("Id", policy.id), *([element("AccessPolicy", given)] if given else [])])


def _policy(identifier: Element) -> AccessPolicy:
    if identifier.name != "SignedIdentifier":
        identifier.refuse(f"{identifier.name[:80]} must be SignedIdentifier")
    given_id, policy = identifier.find("Id"), identifier.find("AccessPolicy")
    if given_id is None:
        identifier.refuse("it has no element Id")
    start, expiry, permission = ((policy.find(name) if policy else None) for name in ("Start", "Expiry", "Permission"))
    return AccessPolicy(given_id.text, *((part.text or None) if part else None for part in (start, expiry, permission)))
