"""Limits the size of request bodies, before Django writes them to disk, which it does before it checks the sender.

An ASGI wrapper checks Content-Length first and then counts the bytes received. The error page is rendered by Django.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.core.handlers.asgi import ASGIRequest
from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve

from . import errors

DRAIN_SECONDS = 5.0  # a refused body is read and discarded for this long, so that the client can read the response
_LIMIT = "vitrine.body_limit"  # scope key: the limit that the request exceeds


def bounded_bodies(app):
    """Limit the bodies that `app` receives to `settings.MAX_FORM_BYTES`, or to the page's limit in `settings.BODY_LIMITS`."""

    async def wrapped(scope, receive, send) -> None:
        headers = dict(scope["headers"])
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            await app(scope, receive, send)
            return
        limit = await _limit(scope, headers)
        body = _Counted(receive, limit)
        if limit >= _declared(headers):
            await app(scope, body.receive, send)  # ends without a response if the body turns out to be too large
        else:
            body.is_too_large = True
        if body.is_too_large:
            drain = b"expect" not in headers  # a client with Expect: 100-continue has not sent the body
            await app({**scope, _LIMIT: limit}, _no_body(), _draining(send, receive) if drain else send)

    return wrapped


class RefuseLargeBodies:
    """Middleware: renders the error page for a body that `bounded_bodies` refused."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        limit = getattr(request, "scope", {}).get(_LIMIT)
        return self._get_response(request) if limit is None else errors.too_large(request, limit)


class _Counted:
    """A body that ends with a disconnect when it exceeds the limit."""

    def __init__(self, receive, limit: int):
        self._receive, self._left = receive, limit
        self.is_too_large = False

    async def receive(self) -> Mapping[str, Any]:
        event = await self._receive()
        self._left -= len(event.get("body", b""))
        self.is_too_large = self._left < 0
        return {"type": "http.disconnect"} if self.is_too_large else event


async def _limit(scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> int:
    """The limit for a request. A page's own limit applies to signed-in users; it is looked up only for large bodies."""
    if _declared(headers) <= settings.MAX_FORM_BYTES and b"transfer-encoding" not in headers:
        return settings.MAX_FORM_BYTES
    request = ASGIRequest(scope, BytesIO())
    with suppress(Resolver404, Error):
        own = settings.BODY_LIMITS.get(resolve(request.path_info).view_name)
        if own is not None and await database_sync_to_async(_is_signed_in)(request):
            return own
    return settings.MAX_FORM_BYTES


def _is_signed_in(request: HttpRequest) -> bool:
    sessions = import_module(settings.SESSION_ENGINE)
    return SESSION_KEY in sessions.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))


def _declared(headers: Mapping[bytes, bytes]) -> int:
    declared = headers.get(b"content-length", b"0")
    return int(declared) if declared.isdigit() else 0


def _no_body():
    """An ASGI receive that returns an empty body and then waits forever."""
    events = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Mapping[str, Any]:
        for event in events:
            return event
        return await asyncio.get_running_loop().create_future()

    return receive


def _draining(send, receive):
    """An ASGI send that sends the whole response, discards the request body for DRAIN_SECONDS, and then ends the response."""

    async def discard() -> None:
        while (event := await receive())["type"] == "http.request" and event.get("more_body"):
            pass

    async def draining(event) -> None:
        if event["type"] == "http.response.body" and not event.get("more_body"):
            await send({**event, "more_body": True})
            with suppress(TimeoutError):
                await asyncio.wait_for(discard(), DRAIN_SECONDS)
            event = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(event)

    return draining
