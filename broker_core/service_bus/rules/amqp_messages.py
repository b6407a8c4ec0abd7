"""Messages as AMQP 1.0 encodes them, and how a stored message keeps what its sender encoded.

A stored message has its values in columns and JSON, for rules, search and pages, and its `encoded` sections beside them: those
whose bytes the values alone would not give back (docs/messages.md). The values count: where a value was changed since the
message was sent, by an action or with a settlement, it is encoded again, and everything around it stays as it was sent. So no
statement has to know the sections. All functions are pure; what a sender gave is refused with InvalidArgument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from broker_core.common.durations import FOREVER
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind
from broker_core.service_bus.rules.values import Message

from .amqp.properties import decode_property, encode_properties, encode_property
from .amqp.sections import (
    BODY,
    HEADS,
    PLACE,
    AmqpSections,
    Section,
    checked,
    encoded_id,
    joined,
    list_items,
    list_with,
    map_items,
    properties_with,
    split,
    text_of_id,
    value_at,
)
from .amqp.types import decode, decode_from, encode, encode_as, encode_map, kind_of

_BODY_KINDS = {Section.SEQUENCE: BodyKind.SEQUENCE, Section.VALUE: BodyKind.VALUE}
_KNOWN = {
    "message-id": "message_id",
    "to": "to",
    "subject": "subject",
    "reply-to": "reply_to",
    "correlation-id": "correlation_id",
    "content-type": "content_type",
    "group-id": "session_id",
    "reply-to-group-id": "reply_to_session_id",
}
_KNOWN_PLACES = {PLACE[name]: field for name, field in _KNOWN.items()}
_CONTENT_TYPE = PLACE["content-type"]
SCHEDULED, PARTITION_KEY = "x-opt-scheduled-enqueue-time", "x-opt-partition-key"
VIA_PARTITION_KEY = "x-opt-via-partition-key"
_LARGEST_UINT = 2**32 - 1


# Reading what a front end was given


def read_message(encoded: bytes) -> Message:
    """The message whose sections these are. Raises InvalidArgument if they are no valid AMQP.

    Sections that the message's values give back byte by byte are not kept in `amqp`.
    """
    parts = checked(encoded)
    raw_sections = {part.section: encoded[part.at : part.end] for part in parts if part.section not in BODY}
    fields = _fields_of(AmqpSections.stored(b"".join(raw_sections[section] for section in sorted(raw_sections))))
    body = [part for part in parts if part.section in BODY]
    if len(body) == 1 and body[0].section is Section.DATA:
        payload = decode_from(encoded, body[0].value_at)[0]
        if encoded[body[0].at : body[0].end] != _data(payload):
            raw_sections[Section.DATA] = encoded[body[0].at : body[0].end - len(payload)]
        message = Message(payload, **fields)
    else:
        content = encoded[body[0].at : body[-1].end] if body else b""
        kind = _BODY_KINDS[body[0].section] if body and body[0].section in _BODY_KINDS else BodyKind.DATA_SECTIONS
        message = Message(content, body_kind=kind, **fields)
    plain = _sections(_values_of(with_text_ids(replace(message, amqp=None))))
    remaining = {section: raw for section, raw in raw_sections.items() if raw != plain.get(section)}
    if Section.PROPERTIES in remaining and Section.HEADER in raw_sections:  # the properties alone may imply another time-to-live
        remaining[Section.HEADER] = raw_sections[Section.HEADER]
    return replace(message, amqp=AmqpSections.stored(joined(remaining)) if remaining else None)


def _application_properties(section: bytes | None) -> dict[str, Any]:
    return {decode(name): decode(value) for name, value in map_items(section)} if section is not None else {}


def _fields_of(amqp: AmqpSections) -> dict[str, Any]:
    """The fields of Message in these sections."""
    properties = amqp.properties
    fields: dict[str, Any] = {field: _plain_text(properties[name]) for name, field in _KNOWN.items() if name in properties}
    notes = amqp.message_annotations if isinstance(amqp.message_annotations, dict) else {}
    expected: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
        (PARTITION_KEY, "partition_key", lambda value: type(value) is str),
        (VIA_PARTITION_KEY, "via_partition_key", lambda value: type(value) is str),
        (SCHEDULED, "scheduled_enqueue_at", lambda value: isinstance(value, datetime)),
    )
    for name, field, is_expected in expected:
        if notes.get(name) is not None:
            if not is_expected(notes[name]):
                raise InvalidArgument(name, f"{notes[name]!r:.80} is of another type than the broker knows this annotation in")
            fields[field] = notes[name]
    if (time_to_live := _time_to_live(amqp)) is not None:
        fields["time_to_live"] = time_to_live
    return fields | {"properties": _application_properties(amqp.parts.get(Section.APPLICATION_PROPERTIES))}


def _plain_text(value: Any) -> Any:
    """A text without its type, an id as it is."""
    return value.value if isinstance(value, Typed) and isinstance(value, str | int) else value


def _time_to_live(amqp: AmqpSections | None) -> timedelta | None:
    """The time-to-live of a header, or, without one, that from the creation to the absolute expiry: a client with a longer one
    than fits into the header gives it so. Zero is none (SB-021)."""
    if amqp is None:
        return None
    if "ttl" in amqp.header:
        return timedelta(milliseconds=int(amqp.header["ttl"])) or None
    begin, end = amqp.creation_time, amqp.absolute_expiry_time
    if isinstance(begin, datetime) and isinstance(end, datetime) and timedelta(0) < end - begin < FOREVER:
        return end - begin
    return None


# Bodies and ids


def check_body(kind: BodyKind, body: bytes) -> None:
    """Raises InvalidArgument unless the body holds the sections of its kind. A body of the kind DATA is any bytes."""
    if kind is BodyKind.DATA:
        return
    parts = checked(bytes(body), "body")
    section = {BodyKind.SEQUENCE: Section.SEQUENCE, BodyKind.VALUE: Section.VALUE, BodyKind.DATA_SECTIONS: Section.DATA}[kind]
    if any(part.section is not section for part in parts) or (kind is not BodyKind.DATA_SECTIONS and not parts):
        raise InvalidArgument("body", f"must hold encoded {section.words} sections, as its kind is {kind.name}")
    if kind is BodyKind.DATA_SECTIONS and len(parts) == 1:
        raise InvalidArgument("body", "a single data section is the content of a body of the kind DATA")


def body_value(kind: BodyKind, body: bytes) -> Any:
    """The body as a Python value: bytes; a list for each sequence; the value; a list of bytes for several data sections."""
    if kind is BodyKind.DATA:
        return body
    values = [decode_from(body, part.value_at)[0] for part in split(body)]
    return values[0] if kind is BodyKind.VALUE else values


def payload(kind: BodyKind, body: bytes) -> bytes:
    """The content of a body for those who know no AMQP: of data sections, a string or binary, without its encoding."""
    if kind is BodyKind.DATA_SECTIONS:
        return b"".join(body_value(kind, body))
    if kind is BodyKind.VALUE and kind_of(value := body_value(kind, body)) in ("string", "binary"):
        return value if isinstance(value, bytes) else value.encode()
    return body


def encode_body(kind: BodyKind, value: Any) -> bytes:
    """The body of a message from its Python value, the inverse of body_value. Raises InvalidArgument."""
    try:
        if kind is BodyKind.DATA:
            return bytes(value)
        if kind is BodyKind.DATA_SECTIONS:
            return b"".join(_data(bytes(content)) for content in value)
        if kind is BodyKind.VALUE:
            return HEADS[Section.VALUE] + encode(value)
        return b"".join(HEADS[Section.SEQUENCE] + encode_as("list", items) for items in value)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as exc:
        raise InvalidArgument("body", f"{value!r:.80} cannot be encoded: {exc}") from exc


def with_text_ids(message: Message) -> Message:
    """The message with its ids as text, and their types in its sections. Raises InvalidArgument for an id of another type."""
    typed = {
        name: value
        for name in ("message_id", "correlation_id")
        if (value := getattr(message, name)) is not None and type(value) is not str
    }
    if not typed:
        return message
    new = {PLACE[name.replace("_", "-")]: encoded_id(name, value) for name, value in typed.items()}
    parts = dict(message.amqp.parts) if message.amqp is not None else {}
    parts[Section.PROPERTIES] = properties_with(parts.get(Section.PROPERTIES), new)
    texts: dict[str, Any] = {name: text_of_id(value) for name, value in typed.items()}
    return replace(message, amqp=AmqpSections.stored(joined(parts)), **texts)


# Writing what is stored


class Values(NamedTuple):
    """The values of a message that the broker knows. texts: by the place of their field in the properties section.

    stored: application properties as stored.
    """

    texts: Mapping[int, str]
    stored: Mapping[str, list]
    time_to_live: timedelta | None
    scheduled_at: datetime | None
    partition_key: str | None
    via_partition_key: str | None
    body_kind: BodyKind
    body: bytes
    amqp: AmqpSections | None


def encode_message(message: Any) -> bytes:
    """The whole message as it was sent, with its changed values: a Message or StoredMessage.

    Where nothing was changed, this is byte for byte what `read_message` was given.
    """
    return joined(sections(message))


def sections(message: Any) -> dict[Section, bytes]:
    """The encoded sections of a message, in order; all data or sequence sections of a body together."""
    return _sections(_values_of(with_text_ids(message)) if isinstance(message, Message) else _values_of_stored(message))


def _values_of(message: Message) -> Values:
    texts = {place: text for place, name in _KNOWN_PLACES.items() if (text := getattr(message, name)) is not None}
    return Values(
        texts, encode_properties(message.properties), message.time_to_live, message.scheduled_enqueue_at,
        message.partition_key, message.via_partition_key, message.body_kind, bytes(message.body), message.amqp,
    )  # fmt: skip


def _values_of_stored(message: Any) -> Values:
    broker = message.broker_properties
    message_id = None if message.message_id is None else text_of_id(message.message_id)
    known = {**broker, "message_id": message_id, "session_id": message.session_id}
    texts = {place: text for place, name in _KNOWN_PLACES.items() if (text := known.get(name)) is not None}
    return Values(
        texts, message.stored_properties, message.time_to_live, message.scheduled_enqueue_at, broker.get("partition_key"),
        broker.get("via_partition_key"), message.body_kind, message.body, message.amqp,
    )  # fmt: skip


def _sections(values: Values) -> dict[Section, bytes]:
    sent: Mapping[Section, bytes] = values.amqp.parts if values.amqp is not None else {}
    sections = {
        Section.HEADER: _header(sent.get(Section.HEADER), values),
        Section.DELIVERY_ANNOTATIONS: sent.get(Section.DELIVERY_ANNOTATIONS, b""),
        Section.MESSAGE_ANNOTATIONS: _annotations(sent.get(Section.MESSAGE_ANNOTATIONS), values),
        Section.PROPERTIES: _properties(sent.get(Section.PROPERTIES), values.texts),
        Section.APPLICATION_PROPERTIES: _application(sent.get(Section.APPLICATION_PROPERTIES), values.stored),
        **_body(sent.get(Section.DATA), values),
        Section.FOOTER: sent.get(Section.FOOTER, b""),
    }
    return {section: raw for section, raw in sections.items() if raw}


def _header(sent: bytes | None, values: Values) -> bytes:
    """The header; its time-to-live is the present one."""
    life = values.time_to_live
    if _time_to_live(values.amqp) == life:
        return sent or b""
    if life is None:
        return HEADS[Section.HEADER] + list_with(sent, {PLACE["ttl"]: None}) if sent is not None else b""
    milliseconds = min(life // timedelta(milliseconds=1), _LARGEST_UINT)
    return HEADS[Section.HEADER] + list_with(sent, {PLACE["ttl"]: encode_as("uint", milliseconds)})


def _properties(sent: bytes | None, texts: Mapping[int, str]) -> bytes:
    if sent is None and not texts:
        return b""
    items = list_items(sent) if sent is not None else []
    changed: dict[int, bytes | None] = {}
    for place in _KNOWN_PLACES:
        item = items[place] if place < len(items) else b"\x40"
        text = texts.get(place)
        if (None if item == b"\x40" else text_of_id(decode(item))) != text:
            changed[place] = None if text is None else encode_as("symbol" if place == _CONTENT_TYPE else "string", text)
    return properties_with(sent, changed) if changed else sent or b""


def _application(sent: bytes | None, stored: Mapping[str, list]) -> bytes:
    if sent is None and not stored:
        return b""
    remaining = {name: stored[name] for name in sorted(stored, key=_json_order)}
    items: list[bytes] = []
    sent_items = map_items(sent) if sent is not None else []
    changed = sent is None
    for name, value in sent_items:
        stored_pair = remaining.pop(decode(name), None)
        if stored_pair is not None and encode_property("", decode(value)) == stored_pair:
            items += name, value
            continue
        changed = True
        if stored_pair is not None:
            items += name, encode(decode_property(*stored_pair))
    for text, pair in remaining.items():
        changed = True
        items += encode_as("string", text), encode(decode_property(*pair))
    return HEADS[Section.APPLICATION_PROPERTIES] + encode_map(items) if changed else sent or b""


def _annotations(sent: bytes | None, values: Values) -> bytes:
    """The message annotations; those that the broker knows have their present values."""
    remaining = {SCHEDULED: values.scheduled_at, PARTITION_KEY: values.partition_key, VIA_PARTITION_KEY: values.via_partition_key}
    if sent is None and all(value is None for value in remaining.values()):
        return b""
    items: list[bytes] = []
    sent_items = map_items(sent) if sent is not None else []
    changed = sent is None
    for name, value in sent_items:
        key = decode(name)
        if not isinstance(key, str) or key not in remaining:
            items += name, value
            continue
        present = remaining.pop(key)
        if present is not None and _as_milliseconds(present) == _as_milliseconds(decode(value)):
            items += name, value
            continue
        changed = True
        if present is not None:
            items += name, encode(present)
    for key, present in remaining.items():
        if present is not None:
            changed = True
            items += encode_as("symbol", key), encode(present)
    return HEADS[Section.MESSAGE_ANNOTATIONS] + encode_map(items) if changed else sent or b""


def _as_milliseconds(value: Any) -> Any:
    return encode(value) if isinstance(value, datetime) else value


def _body(head: bytes | None, values: Values) -> dict[Section, bytes]:
    if values.body_kind is not BodyKind.DATA:
        section = {BodyKind.SEQUENCE: Section.SEQUENCE, BodyKind.VALUE: Section.VALUE}.get(values.body_kind, Section.DATA)
        return {section: values.body}
    if head is not None and _length_in(head) == len(values.body):
        return {Section.DATA: head + values.body}
    return {Section.DATA: _data(values.body)}


def _data(payload: bytes) -> bytes:
    return HEADS[Section.DATA] + encode_as("binary", payload)


def _length_in(head: bytes) -> int:
    """The length that the beginning of a data section states."""
    at = value_at(head, 0)
    return int.from_bytes(head[at + 1 :])


def _json_order(name: str) -> tuple[int, bytes]:
    """The order of names in PostgreSQL's JSON."""
    encoded = name.encode()
    return len(encoded), encoded
