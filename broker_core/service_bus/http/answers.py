"""Responses of the REST API with a message."""

from __future__ import annotations

import re

from broker_core.service_bus.rules.amqp_messages import payload
from broker_core.service_bus.rules.values import StoredMessage
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.json_text import write_json

from . import broker_properties, custom_headers

_CONTROL = re.compile("[\x00-\x1f\x7f]")


def with_message(status: int, message: StoredMessage, *, headers: list[tuple[str, str]], undo=None) -> Answer:
    """A response with the content of the message's body, unchanged, and its properties in headers."""
    own = [(broker_properties.HEADER, write_json(broker_properties.write(message)))]
    if message.content_type is not None:
        own.append(("content-type", _CONTROL.sub("", message.content_type)))
    return Answer(
        status, [*headers, *own, *custom_headers.write(message.properties)], payload(message.body_kind, message.body), undo
    )
