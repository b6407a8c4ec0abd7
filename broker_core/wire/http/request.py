"""One HTTP request of an ASGI server: its parts as text, its body up to a limit, and whether the client is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from django.utils.functional import cached_property  # without the lock of functools: a request belongs to one task

from broker_core.wire.clients import MOST_TEXT

from .errors import BodyTooLarge, ConnectionClosed

if TYPE_CHECKING:
    from .clients import HttpClient

_DRAINED = 8  # times the limit of a body: so much of a larger one is read at most
TURNS_TO_NOTICE = 4  # event loop iterations until a disconnect that can be read is delivered; measured: 3


class ClientGone(Exception):
    """The client closed its connection; no response can be sent."""


class Request:
    """scope, receive: of the ASGI application. Header names are case-insensitive. client: whose request it is, once that is known
    (wire/http/clients.py). length: how many bytes of the body were read."""

    def __init__(self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[Mapping[str, Any]]]):
        self._scope, self._receive = scope, receive
        self._disconnected: asyncio.Task | None = None
        self._has_more = True  # of the body
        self.client: HttpClient | None = None
        self.length = 0
        self._work: asyncio.Task | None = None
        self._closed_because: str | None = None

    @property
    def method(self) -> str:
        return self._scope["method"].upper()

    @property
    def path(self) -> str:
        return self._scope["path"]

    @property
    def raw_path(self) -> str:
        """As it was sent, percent-encoded, without the query."""
        return self._scope["raw_path"].partition(b"?")[0].decode("latin-1")

    @cached_property
    def headers(self) -> list[tuple[str, str]]:
        return [(name.decode("latin-1"), _text(value)) for name, value in self._scope["headers"]]

    @cached_property
    def _first_headers(self) -> dict[str, str]:
        """The first header of each name."""
        return {name.lower(): text for name, text in reversed(self.headers)}

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return self._first_headers.get(name.lower())

    @property
    def host(self) -> str:
        """The host that the client used, with its port."""
        host, port = self._scope.get("server") or ("localhost", None)
        return self.header("host") or (f"{host}:{port}" if port else host)

    @property
    def client_ip(self) -> str:
        return (self._scope.get("client") or ("unknown",))[0]

    @property
    def agent(self) -> bytes:
        """The beginning of the User-Agent; empty: none was sent. ASGI servers write the names of headers in lower case."""
        return next((value for name, value in self._scope["headers"] if name == b"user-agent"), b"")[:MOST_TEXT]

    @property
    def port(self) -> int:
        """The server's; 0: unknown."""
        return (self._scope.get("server") or ("", 0))[1] or 0

    @property
    def is_tls(self) -> bool:
        return self._scope.get("scheme") == "https"

    @property
    def connection(self) -> Any:
        """The server's object for the connection; None: it has none (wire/http/clients.py)."""
        return self._scope.get("vitrine.connection")

    def query(self, name: str) -> str | None:
        """The last query parameter of this name."""
        return parse_qs(self._scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True).get(name, [None])[-1]

    def url(self, path: str) -> str:
        return f"{self._scope.get('scheme', 'http')}://{self.host}{path}"

    async def body(self, most: int) -> bytes:
        """The whole body, of at most so many bytes. Raises BodyTooLarge, without keeping more than these in memory, and
        ClientGone."""
        declared = self.header("content-length") or "0"
        if declared.isdecimal() and int(declared) > most:
            raise await self._too_large(0, most)
        parts, size = [], 0
        async for part in self._parts():
            parts.append(part)
            size += len(part)
            if size > most:
                parts.clear()
                raise await self._too_large(size, most)
        return b"".join(parts)

    async def while_connected(self, work: Coroutine[Any, Any, Any], *, ended: asyncio.Future[Any] | None = None) -> Any:
        """The result of `work`. If the client disconnects first, it is cancelled and ClientGone is raised; if an operator closes
        its connections, ConnectionClosed. ended: another reason to cancel it, which gets the exception to raise."""
        disconnected = self._watch_connection()
        self._work = task = asyncio.create_task(work)
        reasons = [disconnected] if ended is None else [disconnected, ended]
        if self.client is not None:
            self.client.begin_waiting(self)
        try:
            await asyncio.wait([task, *reasons], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self.client is not None:
                self.client.end_waiting(self)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            if self._closed_because is not None:
                raise ConnectionClosed(self._closed_because)
            raise ended.result() if ended is not None and ended.done() else ClientGone
        return task.result()

    def close_because(self, reason: str) -> None:
        """End the work of while_connected: an operator closes the client's connections."""
        self._closed_because = reason
        if self._work is not None:
            self._work.cancel()

    async def require_connected(self) -> None:
        """Raise ClientGone if the client has closed its connection, as far as the server can read that now. Call it when the
        body, if any, was read."""
        self._watch_connection()
        for _ in range(TURNS_TO_NOTICE):
            await asyncio.sleep(0)
        if self.client_is_gone:
            raise ClientGone

    @property
    def client_is_gone(self) -> bool:
        """Whether a disconnect was seen during or after while_connected."""
        return self._disconnected is not None and self._disconnected.done()

    def close(self) -> None:
        if self._disconnected is not None:
            self._disconnected.cancel()

    def _watch_connection(self) -> asyncio.Task:
        if self._disconnected is None:
            self._disconnected = asyncio.create_task(self._wait_until_disconnected())
        return self._disconnected

    async def _wait_until_disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _parts(self):
        while self._has_more:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise ClientGone
            self._has_more, part = event.get("more_body", False), event.get("body", b"")
            self.length += len(part)
            yield part

    async def _too_large(self, size: int, most: int) -> BodyTooLarge:
        """Read and discard more of the body, up to a limit, so that a client that is still writing can read the response. The
        server discards what follows."""
        is_awaited = self.header("expect") is not None
        if not is_awaited:
            async for part in self._parts():
                size += len(part)
                if size > _DRAINED * most:
                    break
        return BodyTooLarge(most, is_awaited=is_awaited)


def _text(value: bytes) -> str:
    """A header value, decoded as UTF-8 if valid, otherwise as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
