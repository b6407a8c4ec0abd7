"""Edits of waiting messages (RMQ-931)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.common.arguments import require_kind
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.rules import deaths, errors, messages, table
from broker_core.rabbitmq.topology import compiled
from broker_core.runtime import editing
from broker_core.runtime.editing import Content
from broker_core.store.driver import Steps
from broker_core.store.use_cases import use_case


@use_case
def edit(
    address: EntityAddress,
    sequence_number: int,
    *,
    body: bytes | None = None,
    headers: Mapping[str, Any] | None = None,
    version: str | None = None,
    reason: str | None = None,
    actor: Actor | None = None,
) -> Steps[str]:
    """Replace the body, all headers of the publisher, or both, of a ready message (RMQ-931). What is None stays; so do the
    headers that the broker added, and the message's number, position, priority and expiry. It is not routed again. Returns its
    new version.

    version: of the message as it was read (reads.message); an edit of one that has changed since is refused.
    Raises AmqpError: no such queue (404), a body over the limit or an invalid CC (406), a queue without room (406);
    InvalidArgument for headers that AMQP cannot encode; MessageHeld, MessageChanged, MessageNotFound; NotAllowed for an expired
    message; for a longer body NamespaceFull and StorageFull.
    """
    actor = editing.authorized(address, actor)
    if body is not None:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise InvalidArgument("body", f"must be bytes, not {type(body).__name__}")
        messages.check_body(body)
        body = bytes(body)
    stored = None if headers is None else _stored(headers)
    edit = editing.checked(sequence_number, body, None if stored is None else json.dumps(stored), version, reason, actor)
    queue = (yield from compiled.current(address.namespace)).queues.get(address.path)
    if queue is None:
        raise errors.not_found_queue(address.namespace, address.path)

    def content_of(row: Any) -> Steps[Content]:
        yield from ()
        size = row.size if body is None else len(body)
        return Content(size, None if stored is None else json.dumps(_own_headers(row) | stored))

    def full(most: int) -> errors.AmqpError:
        return errors.full_queue(address.namespace, address.path, most)

    return (yield from editing.apply(address, queue.id, "rabbit_edit", edit, hold="delivery", content_of=content_of, full=full))


def _own_headers(row: Any) -> dict[str, list]:
    """The headers of a stored message that the broker added."""
    return {name: value for name, value in (row.application_properties or {}).items() if deaths.is_own(name)}


def _stored(headers: Mapping[str, Any]) -> dict[str, list]:
    """The publisher's headers as stored, without BCC, as if they were published (RMQ-366)."""
    require_kind("headers", headers, Mapping)
    own = next((name for name in headers if isinstance(name, str) and deaths.is_own(name)), None)
    if own is not None:
        raise InvalidArgument("headers", f"{own} is written by the broker, and stays as it is; leave it out")
    return table.encode(messages.keys_of("", headers)[1])
