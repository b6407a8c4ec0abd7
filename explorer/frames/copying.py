"""Copies the body of a message into a form that duplicates it, or shows a notice if the form cannot keep it unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest

from broker_core import reads
from broker_core.common.types import EntityAddress, Right
from broker_core.reads import KeptMessage

LARGEST_COPY = 64 * 1024  # bytes; a larger body is not copied


@dataclass(frozen=True, slots=True)
class Original:
    """The message that a form duplicates, present or gone. body_size: None, if its body is gone with it. kept: it is gone, but
    kept for a while."""

    number: int
    message_id: str | None
    session_id: str | None
    time_to_live: timedelta | None
    properties: Mapping[str, Any]
    application_properties: Mapping[str, tuple[str, str | None]]
    body_size: int | None
    kept: KeptMessage | None = None


def original_of(request: HttpRequest, address: EntityAddress) -> Original | None:
    """The message that the query's `like` names. Of one that is gone the properties are left, in its history; a notice says so.

    None: the query names none, or nothing is known of it, which a notice says.
    """
    text = request.GET.get("like", "")
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    if number is not None and (detail := reads.message(address, number, actor=request.actor)) is not None:
        row = detail.row
        return Original(
            number, row.message_id, row.session_id, detail.time_to_live, detail.broker_properties, detail.application_properties,
            detail.body_size,
        )  # fmt: skip
    first = _first_event(request, address, number)
    if first is None:
        messages.warning(request, f"The form is empty: nothing is known of message {text[:20]} of {address}.")
        return None
    kept = reads.kept_message(first.entity_id, first.sequence_number, actor=request.actor)
    if kept is not None:
        return Original(
            first.sequence_number, first.message_id, first.session_id, first.time_to_live, kept.broker_properties,
            kept.application_properties, kept.body_size, kept,
        )  # fmt: skip
    notice = f"Message {number} is gone, and its body with it. The form has its properties, from its history; add a body."
    messages.warning(request, notice)
    return Original(
        first.sequence_number, first.message_id, first.session_id, first.time_to_live, first.properties,
        first.application_properties, None,
    )  # fmt: skip


def _first_event(request: HttpRequest, address: EntityAddress, number: int | None) -> reads.Event | None:
    """The event with a message's properties."""
    if number is None:
        return None
    entity_id = reads.entity(address, actor=request.actor).id
    events = reads.timeline(entity_id, number, actor=request.actor)
    return next((event for event in events if (event.entity_id, event.sequence_number) == (entity_id, number)), None)


def text_to_copy(request: HttpRequest, address: EntityAddress, original: Original) -> str:
    """The body for a text field; empty, with a notice, if the field would change its bytes."""
    text = as_typed(body_to_copy(request, address, original))
    if text is None:
        _warn(request, original.number, "it contains bytes or line endings that a form cannot keep")
    return text or ""


def body_to_copy(request: HttpRequest, address: EntityAddress, original: Original) -> bytes:
    """The body; empty, with a notice, if it is too large. Empty without the right to see bodies, and if it is gone."""
    if Right.SEE_BODIES not in request.actor.rights or original.body_size is None:
        return b""
    if original.body_size > LARGEST_COPY:
        _warn(request, original.number, f"it is larger than {LARGEST_COPY // 1024} KB")
        return b""
    if original.kept is not None:
        body = reads.kept_body(original.kept, actor=request.actor)
    else:
        body = reads.body(address, original.number, actor=request.actor)
    return body.content if body else b""


def as_typed(content: bytes) -> str | None:
    """The text that a form submits as exactly these bytes, or None.

    Browsers change line endings, and text fields cannot contain a NUL.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\r" in text or "\x00" in text else text


def _warn(request: HttpRequest, number: int, why: str) -> None:
    messages.warning(
        request, f"The body of message {number} was not copied into the form: {why}. You can download it from the message page."
    )
