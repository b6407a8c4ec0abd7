"""What a sender gave beside the fields that the message page shows anyway, for its table of AMQP sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from broker_core.service_bus.rules.amqp.sections import AmqpSections, Section
from broker_core.service_bus.rules.amqp.types import kind_of

from .amqp_values import as_text

# Shown with the other properties; the ids are shown here, too, if they are no strings.
_SHOWN_ELSEWHERE = ("to", "subject", "reply-to", "content-type", "group-id", "reply-to-group-id")
_IDS = ("message-id", "correlation-id")


class AmqpField(NamedTuple):
    section: str
    name: str
    type: str
    value: str


def amqp_fields(encoded: bytes | None) -> list[AmqpField]:
    """The fields in these sections, in their order. encoded: as stored; None: there are none."""
    if not encoded:
        return []
    amqp = AmqpSections.stored(encoded)
    return [
        *_rows(Section.HEADER, amqp.header),
        *_rows(Section.DELIVERY_ANNOTATIONS, amqp.delivery_annotations),
        *_rows(Section.MESSAGE_ANNOTATIONS, amqp.message_annotations),
        *_rows(Section.PROPERTIES, {name: value for name, value in amqp.properties.items() if _is_own(name, value)}),
        *_rows(Section.FOOTER, amqp.footer),
    ]


def _is_own(name: str, value: Any) -> bool:
    return kind_of(value) != "string" if name in _IDS else name not in _SHOWN_ELSEWHERE


def _rows(section: Section, fields: Mapping[Any, Any]) -> Iterator[AmqpField]:
    for name, value in fields.items():
        yield AmqpField(section.words, as_text(name), kind_of(value), as_text(value))
