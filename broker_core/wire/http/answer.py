"""One response of an ASGI server: status, headers and body, and how it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .request import ClientGone, Request


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. undo: called if the client disconnects before it has received the whole response."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    undo: Callable[[], Awaitable[None]] | None = None

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        length = [] if self.status == 204 else [("content-length", str(len(self.body)))]
        return [(name.encode("latin-1"), text.encode()) for name, text in [*self.headers, *length]]


async def write(answer: Answer, request: Request, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
    """Send a response. One that can be undone gets its end when the client is seen to be connected: a client that has all of it
    may close the connection at once."""
    start = {"type": "http.response.start", "status": answer.status, "headers": answer.raw_headers()}
    if answer.undo is None:
        await send(start)
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})
        return
    first, last = answer.body[:-1], answer.body[-1:]
    if last:
        await send(start)
        await send({"type": "http.response.body", "body": first, "more_body": True})
    try:
        await request.require_connected()
    except ClientGone:
        await answer.undo()
        return
    if not last:
        await send(start)
    await send({"type": "http.response.body", "body": last, "more_body": False})
