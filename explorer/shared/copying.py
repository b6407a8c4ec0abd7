"""The body of a message in a form that sends one like it: exactly as it is, or not at all and with a notice."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest

from broker_core import reads
from broker_core.common.types import EntityAddress, Right

LARGEST_COPY = 64 * 1024  # a longer body is not put into a form


def text_to_copy(request: HttpRequest, address: EntityAddress, number: int, size: int) -> str:
    """What is put into the form's text; empty, with a notice, where the form would send other bytes than these."""
    text = as_typed(body_to_copy(request, address, number, size))
    if text is None:
        _tell(request, number, "it contains bytes or line endings that a form cannot keep")
    return text or ""


def body_to_copy(request: HttpRequest, address: EntityAddress, number: int, size: int) -> bytes:
    """The body; empty, with a notice, where it is too long for a form. Empty for who may not see bodies."""
    if Right.SEE_BODIES not in request.actor.rights:
        return b""
    if size > LARGEST_COPY:
        _tell(request, number, f"it is larger than {LARGEST_COPY // 1024} KB")
        return b""
    body = reads.body(address, number, actor=request.actor)
    return body.content if body else b""


def as_typed(content: bytes) -> str | None:
    """The text that a form sends back as exactly these bytes; None: there is none.

    Browsers write line ends anew, and no text field takes a NUL.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\r" in text or "\x00" in text else text


def _tell(request: HttpRequest, number: int, why: str) -> None:
    messages.warning(
        request, f"The body of message {number} was not copied into the form: {why}. You can download it from the message page."
    )
