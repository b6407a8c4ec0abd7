"""The sections of an AMQP 1.0 message: split and checked, read, and written (AMQP 1.0 part 3, "Message Format").

All functions are pure; what a sender gave is refused with InvalidArgument.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed

from .types import BadEncoding, MessageId, decode, decode_from, encode, encode_as, encode_list, encode_map, items_of, kind_of


class Section(IntEnum):
    """The sections, by their descriptors. A message has them in this order."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78

    @property
    def words(self) -> str:
        return ("amqp-" if self in (Section.SEQUENCE, Section.VALUE) else "") + self.name.lower().replace("_", "-")


BODY = (Section.DATA, Section.SEQUENCE, Section.VALUE)
_SYMBOLS = {
    "amqp:header:list": Section.HEADER,
    "amqp:delivery-annotations:map": Section.DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": Section.MESSAGE_ANNOTATIONS,
    "amqp:properties:list": Section.PROPERTIES,
    "amqp:application-properties:map": Section.APPLICATION_PROPERTIES,
    "amqp:data:binary": Section.DATA,
    "amqp:amqp-sequence:list": Section.SEQUENCE,
    "amqp:amqp-value:*": Section.VALUE,
    "amqp:footer:map": Section.FOOTER,
}
HEADS = {section: bytes((0x00, 0x53, section)) for section in Section}
_ID = ("string", "uuid", "ulong", "binary")
_HEADER = (
    ("durable", ("boolean",)),
    ("priority", ("ubyte",)),
    ("ttl", ("uint",)),
    ("first-acquirer", ("boolean",)),
    ("delivery-count", ("uint",)),
)
_PROPERTIES = (
    ("message-id", _ID),
    ("user-id", ("binary",)),
    ("to", ("string",)),
    ("subject", ("string",)),
    ("reply-to", ("string",)),
    ("correlation-id", _ID),
    ("content-type", ("symbol",)),
    ("content-encoding", ("symbol",)),
    ("absolute-expiry-time", ("timestamp",)),
    ("creation-time", ("timestamp",)),
    ("group-id", ("string",)),
    ("group-sequence", ("uint",)),
    ("reply-to-group-id", ("string",)),
)
_LISTS = {Section.HEADER: _HEADER, Section.PROPERTIES: _PROPERTIES}
PLACE = {name: place for fields in (_HEADER, _PROPERTIES) for place, (name, _) in enumerate(fields)}
_SIMPLE_ONLY = ("list", "map", "array")
_PYTHON = {"boolean": bool, "ubyte": int, "uint": int, "binary": bytes, "string": str, "symbol": str, "timestamp": datetime}


class Part(NamedTuple):
    """A section within bytes. at: where it begins; value_at: its value, after the descriptor; end."""

    section: Section
    at: int
    value_at: int
    end: int


class AmqpSections:
    """What a sender gave beside the message's other fields: durable and priority, annotations, user id, times, footer ...

    raw: encoded sections, in their order. Of the body there is at most the beginning of a data section, without its content.
    """

    __slots__ = ("__dict__", "raw")

    def __init__(
        self,
        *,
        durable: bool | None = None,
        priority: int | None = None,
        delivery_annotations: Mapping[str, Any] | None = None,
        message_annotations: Mapping[str, Any] | None = None,
        user_id: bytes | None = None,
        content_encoding: str | None = None,
        absolute_expiry_time: datetime | None = None,
        creation_time: datetime | None = None,
        group_sequence: int | None = None,
        footer: Mapping[str, Any] | None = None,
    ):
        """Raises InvalidArgument with the name of a field that AMQP cannot encode."""
        header = {"durable": durable, "priority": priority}
        properties = {
            "user-id": user_id,
            "content-encoding": content_encoding,
            "absolute-expiry-time": absolute_expiry_time,
            "creation-time": creation_time,
            "group-sequence": group_sequence,
        }
        self.raw = b"".join(
            (
                _new_list(Section.HEADER, header),
                _new_annotations(Section.DELIVERY_ANNOTATIONS, delivery_annotations),
                _new_annotations(Section.MESSAGE_ANNOTATIONS, message_annotations),
                _new_list(Section.PROPERTIES, properties),
                _new_annotations(Section.FOOTER, footer),
            )
        )

    @classmethod
    def parse(cls, raw: bytes) -> AmqpSections:
        """Encoded sections. Raises InvalidArgument if they are no valid AMQP."""
        try:
            for part in split(raw, cut=True):
                _check_section(part, raw)
        except BadEncoding as exc:
            raise InvalidArgument("amqp", f"is no valid AMQP: {exc}") from exc
        return cls.stored(raw)

    @classmethod
    def stored(cls, raw: bytes) -> AmqpSections:
        """Sections as stored, which were checked when they were sent."""
        sections = object.__new__(cls)
        sections.raw = raw
        return sections

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AmqpSections) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"AmqpSections.parse({self.raw!r})"

    def __reduce__(self) -> tuple:
        return AmqpSections.stored, (self.raw,)

    @cached_property
    def parts(self) -> dict[Section, bytes]:
        """The encoded sections; of a data section, what comes before its content."""
        return {part.section: self.raw[part.at : part.end] for part in split(self.raw, cut=True)}

    @cached_property
    def header(self) -> dict[str, Any]:
        """The fields of the header that are set, by AMQP's names: durable, priority, ttl ..."""
        return self._fields(Section.HEADER)

    @cached_property
    def properties(self) -> dict[str, Any]:
        """The fields of the properties that are set, by AMQP's names: message-id, user-id, creation-time ..."""
        return self._fields(Section.PROPERTIES)

    @cached_property
    def delivery_annotations(self) -> Mapping[str, Any]:
        return self._map(Section.DELIVERY_ANNOTATIONS)

    @cached_property
    def message_annotations(self) -> Mapping[str, Any]:
        return self._map(Section.MESSAGE_ANNOTATIONS)

    @cached_property
    def footer(self) -> Mapping[str, Any]:
        return self._map(Section.FOOTER)

    @property
    def durable(self) -> bool | None:
        return self.header.get("durable")

    @property
    def priority(self) -> int | None:
        return self.header.get("priority")

    @property
    def user_id(self) -> bytes | None:
        return self.properties.get("user-id")

    @property
    def content_encoding(self) -> str | None:
        return self.properties.get("content-encoding")

    @property
    def absolute_expiry_time(self) -> datetime | None:
        return self.properties.get("absolute-expiry-time")

    @property
    def creation_time(self) -> datetime | None:
        return self.properties.get("creation-time")

    @property
    def group_sequence(self) -> int | None:
        return self.properties.get("group-sequence")

    def typed_id(self, name: str, text: str | None) -> MessageId | None:
        """An id as it was sent, if it still is the one with this text. name: message-id or correlation-id."""
        typed = self.properties.get(name)
        return typed if typed is not None and text_of_id(typed) == text else text

    def _fields(self, section: Section) -> dict[str, Any]:
        raw = self.parts.get(section)
        if raw is None:
            return {}
        values = list_items(raw)
        named = zip(_LISTS[section], values, strict=False)
        return {name: decode(value) for (name, _), value in named if value != b"\x40"}

    def _map(self, section: Section) -> Mapping[str, Any]:
        raw = self.parts.get(section)
        return {} if raw is None else decode_from(raw, value_at(raw, 0))[0]


# Ids


def text_of_id(value: MessageId) -> str:
    """The text of a message id or correlation id, for rules, duplicate detection and search: of binary, base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def encoded_id(name: str, value: Any) -> bytes:
    if isinstance(value, Typed):
        kind, value = value.type, value.value
    elif isinstance(value, bool) or not isinstance(value, int | UUID | bytes):
        raise InvalidArgument(name, f"must be a string, a UUID, an integer or bytes, not {repr(value)[:80]}")
    else:
        kind = "ulong" if isinstance(value, int) else "uuid" if isinstance(value, UUID) else "binary"
    if kind not in _ID:
        raise InvalidArgument(name, f"must be a {', '.join(_ID[:-1])} or {_ID[-1]}, not a {kind}")
    try:
        return encode_as(kind, value)
    except (TypeError, ValueError) as exc:
        raise InvalidArgument(name, f"{value!r} is no {kind}: {exc}") from exc


# Lists and maps, item by item


def list_items(section: bytes) -> list[bytes]:
    return [section[begin:end] for begin, end in items_of(section, value_at(section, 0)).items]


def map_items(section: bytes) -> list[tuple[bytes, bytes]]:
    items = list_items(section)
    return list(zip(items[::2], items[1::2], strict=True))


def list_with(section: bytes | None, changed: Mapping[int, bytes | None]) -> bytes:
    items = list_items(section) if section is not None else []
    items += [b"\x40"] * (max(changed, default=-1) + 1 - len(items))
    for place, value in changed.items():
        items[place] = b"\x40" if value is None else value
    while items and items[-1] == b"\x40":
        items.pop()
    return encode_list(items)


def properties_with(section: bytes | None, changed: Mapping[int, bytes | None]) -> bytes:
    """A properties section with other fields, given in their shortest encoding. What has its value already stays as it is."""
    items = list_items(section) if section is not None else []
    present = {place: encode(decode(items[place])) if place < len(items) else b"\x40" for place in changed}
    left = {place: new for place, new in changed.items() if present[place] != (new or b"\x40")}
    return section if section is not None and not left else HEADS[Section.PROPERTIES] + list_with(section, left)


def joined(parts: Mapping[Section, bytes]) -> bytes:
    return b"".join(parts[section] for section in sorted(parts))


def _new_list(section: Section, values: Mapping[str, Any]) -> bytes:
    items = {}
    for name, value in values.items():
        if value is None:
            continue
        kinds = dict(_LISTS[section])[name]
        try:
            items[PLACE[name]] = _as(kinds[0], value)
        except (TypeError, ValueError, AttributeError, ArithmeticError) as exc:
            raise InvalidArgument(name.replace("-", "_"), f"{value!r:.80} is no {kinds[0]}") from exc
    return HEADS[section] + list_with(None, items) if items else b""


def _as(kind: str, value: Any) -> bytes:
    if not isinstance(value, _PYTHON[kind]) or (_PYTHON[kind] is int and isinstance(value, bool)):
        raise TypeError(kind)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("a timestamp needs a time zone")
    return encode_as(kind, value)


def _new_annotations(section: Section, values: Mapping[str, Any] | None) -> bytes:
    if values is None:
        return b""
    items: list[bytes] = []
    for name, value in values.items():
        try:
            items += encode_as("symbol", name), encode(value)
        except (InvalidArgument, TypeError, ValueError, AttributeError, ArithmeticError) as exc:
            raise InvalidArgument(f"{section.words.replace('-', '_')}[{name!r}]", f"{value!r:.80} cannot be encoded") from exc
    return HEADS[section] + encode_map(items)


# Splitting and checking


def value_at(data: bytes, at: int) -> int:
    """Where the value of the section that begins at a byte does."""
    if data[at : at + 1] != b"\x00":
        raise BadEncoding(f"no section begins at byte {at}")
    return decode_from(data, at + 1)[1]


def split(data: bytes, *, cut: bool = False) -> list[Part]:
    """The sections within bytes. cut: a data section has lost its content. Raises BadEncoding."""
    parts, at = [], 0
    while at < len(data):
        begin = value_at(data, at)
        section = _section(decode_from(data, at + 1)[0], at)
        if cut and section is Section.DATA:
            end = begin + {0xA0: 2, 0xB0: 5}.get(data[begin] if begin < len(data) else 0, len(data) + 1)
            if end > len(data):
                raise BadEncoding(f"the data section at byte {at} has no length")
        else:
            end = decode_from(data, begin)[1]
        parts.append(Part(section, at, begin, end))
        at = end
    _check_order(parts)
    return parts


def _section(descriptor: Any, at: int) -> Section:
    known = None
    if kind_of(descriptor) == "ulong":
        known = next((section for section in Section if section == int(descriptor)), None)
    elif kind_of(descriptor) == "symbol":
        known = _SYMBOLS.get(str(descriptor))
    if known is None:
        raise BadEncoding(f"{descriptor!r} at byte {at} describes no section of a message")
    return known


def _check_order(parts: Sequence[Part]) -> None:
    for before, part in zip(parts, parts[1:], strict=False):
        repeats = part.section in (Section.DATA, Section.SEQUENCE) and before.section is part.section
        if part.section < before.section or (part.section is before.section and not repeats):
            raise BadEncoding(f"the {part.section.words} section at byte {part.at} comes after that of {before.section.words}")
        if part.section in BODY and before.section in BODY and not repeats:
            raise BadEncoding(f"the body has {before.section.words} and {part.section.words} sections")


def checked(encoded: bytes, name: str = "message") -> list[Part]:
    """The sections of a message. Raises InvalidArgument."""
    try:
        parts = split(encoded)
        for part in parts:
            _check_section(part, encoded)
    except BadEncoding as exc:
        raise InvalidArgument(name, f"is no valid AMQP: {exc}") from exc
    return parts


def _check_section(part: Part, data: bytes) -> None:
    if part.section in _LISTS:
        _check_list(part, data)
    elif part.section is Section.APPLICATION_PROPERTIES:
        _check_map(part, data, ("string",))
        for name, value in map_items(data[part.at : part.end]):
            if kind_of(decode(value)) in _SIMPLE_ONLY:
                raise BadEncoding(f"the application property {decode(name)!r} is a {kind_of(decode(value))}, not a simple value")
    elif part.section in (Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS, Section.FOOTER):
        _check_map(part, data, ("symbol", "ulong"))
    elif part.section is Section.DATA and part.end > part.value_at and data[part.value_at] not in (0xA0, 0xB0):
        raise BadEncoding(f"the data section at byte {part.at} must hold binary")
    elif part.section is Section.SEQUENCE and kind_of(decode_from(data, part.value_at)[0]) != "list":
        raise BadEncoding(f"the amqp-sequence section at byte {part.at} must hold a list")


def _check_list(part: Part, data: bytes) -> None:
    fields, listed = _LISTS[part.section], items_of(data, part.value_at)
    if listed.kind != "list":
        raise BadEncoding(f"the {part.section.words} section at byte {part.at} must hold a list")
    if len(listed.items) > len(fields):
        raise BadEncoding(f"the {part.section.words} section has {len(listed.items)} fields; at most {len(fields)} are known")
    for (name, kinds), (begin, end) in zip(fields, listed.items, strict=False):
        kind = kind_of(decode(data[begin:end]))
        if kind != "null" and kind not in kinds:
            raise BadEncoding(f"{name} in the {part.section.words} section must be a {' or '.join(kinds)}, not a {kind}")


def _check_map(part: Part, data: bytes, kinds: Iterable[str]) -> None:
    items = items_of(data, part.value_at)
    if items.kind != "map":
        raise BadEncoding(f"the {part.section.words} section at byte {part.at} must hold a map")
    keys = [decode(data[begin:end]) for begin, end in items.items[::2]]
    for key in keys:
        if kind_of(key) not in kinds:
            raise BadEncoding(f"a key of the {part.section.words} section must be a {' or '.join(kinds)}, not a {kind_of(key)}")
    if len(set(keys)) < len(keys):
        raise BadEncoding(f"the {part.section.words} section has a key twice")
