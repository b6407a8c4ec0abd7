"""The client's side of an ASGI request."""

import asyncio
from typing import TypeVar

from broker_core.wire.http.request import Request

R = TypeVar("R", bound=Request)


class Client:
    """Sends parts of a body, then nothing, until it hangs up."""

    def __init__(self, *parts: bytes, hangs_up: bool = False):
        self.events = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        if hangs_up:
            self.events.append({"type": "http.disconnect"})
        else:
            self.events.append({"type": "http.request", "body": b"", "more_body": False})
        self.left = asyncio.Event()

    async def receive(self):
        if self.events:
            return self.events.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    def request(self, query: bytes = b"", *, of: type[R] = Request, **headers: str) -> R:
        raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/x", "headers": raw, "query_string": query}
        return of(scope, self.receive)
