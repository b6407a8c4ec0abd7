"""Check messages to be sent, and prepare them for storage.

The fate of stored messages is decided by the statements in service_bus/sql, for sets of messages. The same rules are written as
plain functions in tests/service_bus/specification.py, which the models there compare with the statements.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

from broker_core.common.arguments import is_storable, require_kind, require_storable
from broker_core.common.durations import FOREVER
from broker_core.common.errors import InvalidArgument, MessageTooLarge, NotAllowed
from broker_core.common.types import BodyKind, SubQueue

from . import amqp_messages
from .amqp import size as amqp_size
from .amqp.properties import encode_properties
from .amqp.sections import AmqpSections
from .limits import STRICT
from .values import JSON_PROPERTIES, Message

TTL_EXPIRED = "TTLExpiredException"
MAX_DELIVERY_COUNT_EXCEEDED = "MaxDeliveryCountExceeded"


def check_may_dead_letter(subqueue: SubQueue) -> None:
    """Raise NotAllowed in a dead-letter queue (SB-089)."""
    if subqueue is not SubQueue.MAIN:
        raise NotAllowed("A message in a dead-letter queue cannot be dead-lettered again. Complete or resubmit it.")


def check_dead_letter_texts(reason: str | None, description: str | None) -> None:
    """Raise InvalidArgument if one cannot be stored (SB-082)."""
    for name, text in (("reason", reason), ("description", description)):
        if text is not None and (not is_storable(text) or len(text) > STRICT.dead_letter_text):
            raise InvalidArgument(name, f"must have at most {STRICT.dead_letter_text} characters and no NUL")


# Sending


class Prepared(NamedTuple):  # created for each message sent; a tuple is the fastest
    """A checked message, ready to be stored. Its ids are text. The properties are JSON; None if empty.

    size: bytes of the whole message, encoded in AMQP (SB-007). encoded: sections that the other columns do not give back.
    """

    message: Message
    time_to_live: timedelta | None
    size: int
    properties: str | None
    application_properties: str | None
    encoded: bytes | None = None


_BYTES_OF_A_CHARACTER = 4  # at most, in UTF-8
_SHORT = ("message_id", "session_id", "partition_key", "via_partition_key", "reply_to_session_id")
# The texts of a message, as amqp_size has them, and those that AMQP has in annotations.
_TEXTS = (*amqp_size.TEXTS, "partition_key", "via_partition_key")
_LIMITED = tuple(
    (name, STRICT.message_id if name in _SHORT else sys.maxsize, name in JSON_PROPERTIES) for name in _TEXTS
)  # name, most characters, whether it is stored as JSON
_texts_of = attrgetter(*_TEXTS)  # one call for all; it runs for each message sent
_UNTYPED = frozenset({str, type(None)})  # classes of an id that needs no type beside its text
_NO_TEXTS = (None,) * len(_TEXTS)
_NEW_ID = "x" * 32  # of the length of the id that a message without one gets
_ONLY_A_NEW_ID = amqp_size.of_properties((_NEW_ID,))


def prepare(message: Message) -> Prepared:
    """Check a message and encode its properties for storage.

    Raises InvalidArgument with the property (SB-009), and MessageTooLarge for properties over their limits. The size limit of the
    message depends on the entity, and is checked by the statement that stores it.
    """
    if type(message) is not Message:
        require_kind("messages", message, Message)
    check_body(message.body)
    if type(message.properties) is not dict or type(message.body_kind) is not BodyKind:
        message = _with_kinds(message)
    if message.body_kind is not BodyKind.DATA:
        amqp_messages.check_body(message.body_kind, message.body)
    if message.amqp is not None:
        _check_amqp(message.amqp)
    texts = _texts_of(message)
    size, broker = amqp_size.of_data(len(message.body)) + _ONLY_A_NEW_ID, {}
    if texts != _NO_TEXTS:
        if message.message_id.__class__ not in _UNTYPED or message.correlation_id.__class__ not in _UNTYPED:
            message = amqp_messages.with_text_ids(message)
            texts = _texts_of(message)
        broker = _checked_texts(message, texts)
        size += amqp_size.of_properties(texts if texts[0] else (_NEW_ID, *texts[1:])) - _ONLY_A_NEW_ID
        if texts[-2:] != (None, None):
            size += amqp_size.of_annotations(*texts[-2:], is_scheduled=message.scheduled_enqueue_at is not None)
    if message.scheduled_enqueue_at is not None:
        require_kind("scheduled_enqueue_at", message.scheduled_enqueue_at, datetime)
        if message.scheduled_enqueue_at.tzinfo is None:
            raise InvalidArgument("scheduled_enqueue_at", "needs a time zone")
        if texts[-2:] == (None, None):
            size += amqp_size.of_annotations(is_scheduled=True)
    time_to_live = _time_to_live(message.time_to_live)
    if time_to_live is not None:
        size += amqp_size.of_header(time_to_live)
    application_json = None
    if message.properties:
        stored = encode_properties(message.properties)
        application_json = _as_json(stored)
        size += amqp_size.of_application_properties(stored)
    if message.amqp is not None or message.body_kind is not BodyKind.DATA:
        size = len(amqp_messages.encode_message(message if texts[0] else replace(message, message_id=_NEW_ID)))
    encoded = None if message.amqp is None else message.amqp.raw
    return Prepared(message, time_to_live, size, json.dumps(broker) if broker else None, application_json, encoded)


def check_body(body: Any) -> None:
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise InvalidArgument("body", f"must be bytes, not {type(body).__name__}; encode text first")


def properties_json(properties: Mapping[str, Any] | None) -> str | None:
    """Application properties as stored; None if there are none. Raises InvalidArgument and MessageTooLarge."""
    return _as_json(encode_properties(properties)) if properties else None


def _as_json(stored: Mapping[str, list]) -> str:
    """Encoded application properties as JSON, if they are within the limits."""
    for name, (_, content) in stored.items():
        text = content[0] if content.__class__ is list else content or ""
        if (len(name) + len(text)) * _BYTES_OF_A_CHARACTER > STRICT.one_property:
            _check_property_fits(name, text)
    encoded = json.dumps(stored)
    if len(encoded) > STRICT.all_properties:  # escapes are never shorter than UTF-8
        check_properties_fit(len(json.dumps(stored, ensure_ascii=False).encode()))
    return encoded


def check_properties_fit(size: int, sequence_number: int | None = None) -> None:
    """Raise MessageTooLarge if application properties exceed the limit. size: bytes of their JSON in UTF-8.

    sequence_number: of the stored message that they belong to.
    """
    if size > STRICT.all_properties:
        whose = "" if sequence_number is None else f" of message {sequence_number}"
        raise MessageTooLarge(f"set of application properties{whose}", size, STRICT.all_properties)


def _check_property_fits(name: str, text: str) -> None:
    size = len(name.encode()) + len(text.encode())
    if size > STRICT.one_property:
        raise MessageTooLarge(f"application property {name[:40]!r}", size, STRICT.one_property)


def _with_kinds(message: Message) -> Message:
    """Check fields that are nearly always of exactly the declared type. The kind of the body may be a plain number."""
    require_kind("properties", message.properties, Mapping)
    if message.body_kind not in tuple(BodyKind):
        raise InvalidArgument("body_kind", f"must be one of BodyKind, not {repr(message.body_kind)[:80]}")
    return replace(message, body_kind=BodyKind(message.body_kind))


def _check_amqp(amqp: Any) -> None:
    require_kind("amqp", amqp, AmqpSections)
    AmqpSections.parse(amqp.raw)


def _checked_texts(message: Message, texts: Sequence[Any]) -> dict[str, str]:
    """The texts that are stored as JSON."""
    broker = {}
    for (name, most, in_json), value in zip(_LIMITED, texts, strict=True):
        if value is None:
            continue
        if not isinstance(value, str):
            raise InvalidArgument(name, f"must be a string, not {type(value).__name__}")
        require_storable(name, value)
        if len(value) > most:
            raise InvalidArgument(name, f"has {len(value)} characters; at most {most} are allowed")
        if in_json:
            broker[name] = value
    if message.content_type is not None and not message.content_type.isascii():
        raise InvalidArgument("content_type", "must be ASCII")
    if message.session_id and message.partition_key and message.session_id != message.partition_key:
        raise InvalidArgument("partition_key", "must equal session_id where both are set (SB-009)")
    return broker


def _time_to_live(asked: timedelta | None) -> timedelta | None:
    """The time-to-live to store; None for unset, zero and the longest durations (SB-021, SB-039)."""
    if asked is None:
        return None
    require_kind("time_to_live", asked, timedelta)
    if asked >= FOREVER or asked == timedelta(0):
        return None
    if asked < timedelta(0):
        raise InvalidArgument("time_to_live", f"{asked} is negative; use a positive duration or none (SB-039)")
    return asked
