"""Copies the body of a message into a form that duplicates it, or shows a notice if the form cannot keep it unchanged."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest

from broker_core import reads
from broker_core.common.types import EntityAddress, Right

LARGEST_COPY = 64 * 1024  # bytes; a larger body is not copied


def text_to_copy(request: HttpRequest, address: EntityAddress, number: int, size: int) -> str:
    """The body for a text field; empty, with a notice, if the field would change its bytes."""
    text = as_typed(body_to_copy(request, address, number, size))
    if text is None:
        _warn(request, number, "it contains bytes or line endings that a form cannot keep")
    return text or ""


def body_to_copy(request: HttpRequest, address: EntityAddress, number: int, size: int) -> bytes:
    """The body; empty, with a notice, if it is too large. Empty without the right to see bodies."""
    if Right.SEE_BODIES not in request.actor.rights:
        return b""
    if size > LARGEST_COPY:
        _warn(request, number, f"it is larger than {LARGEST_COPY // 1024} KB")
        return b""
    body = reads.body(address, number, actor=request.actor)
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
