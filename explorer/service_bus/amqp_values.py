"""AMQP values as text for pages: plain where the type is plain, else with the name of the type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.durations import format_iso
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind
from broker_core.service_bus.rules.amqp.types import kind_of
from broker_core.service_bus.rules.amqp_messages import body_value, payload
from explorer.bodies.display import Readable

_KINDS = {BodyKind.VALUE: "AMQP value", BodyKind.SEQUENCE: "AMQP sequence", BodyKind.DATA_SECTIONS: "data sections"}


def as_text(value: Any) -> str:
    """A value in one line, without the type that `kind_of` names."""
    plain = value.value if isinstance(value, Typed) else value
    match plain:
        case None | bool() | int() | float():
            return json.dumps(plain)
        case bytes():
            return f"0x{plain.hex()}"
        case datetime():
            return plain.isoformat()
        case timedelta():
            return format_iso(plain)
        case Mapping() | list() | tuple():
            return json.dumps(_as_json(plain), ensure_ascii=False)
    return str(plain).replace("\x00", "␀")


def read_sections(kind: BodyKind, body: bytes) -> bytes | Readable:
    """The content of encoded sections that hold plain bytes or text, else their values as indented JSON."""
    content = payload(kind, body)
    if content != body:
        return content
    text = json.dumps(_as_json(body_value(kind, body)), indent=2, ensure_ascii=False)
    return Readable(_KINDS[kind], text, "Shown as JSON; types that JSON lacks are named.")


def _as_json(value: Any) -> Any:
    match value:
        case Typed(value=list() as items):
            return [_as_json(item) for item in items]
        case Typed():
            return f"{value.type} {as_text(value)}"
        case None | bool() | int() | float():
            return value
        case str():
            return value.replace("\x00", "␀")
        case Mapping():
            return {key if type(key) is str else as_text(key): _as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [_as_json(item) for item in value]
    return f"{kind_of(value)} {as_text(value)}"
