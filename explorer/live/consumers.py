"""WebSocket consumers of the live feed: one socket per page, which names the page and receives frames.

Only signed-in users are served, and only pages of the same origin; this is checked here, since
`AllowedHostsOriginValidator` accepts every origin if ALLOWED_HOSTS is `*`, and Django checks the host of pages only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.http.request import split_domain_port, validate_host

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor
from explorer import sandbox_names
from explorer.people.roles import actor_for

from .feed import Feed, refused
from .page import View

log = logging.getLogger(__name__)
RIGHTS_BEATS = 10  # beats between two checks of the viewer's rights
CLOSE_AND_RETURN = 1012  # close code: the browser reconnects, with its current rights
MAX_PAGE_LENGTH = 4000
REQUESTS_AT_ONCE = 20  # of a socket, for a page or its state; after these, REQUESTS_PER_SECOND
REQUESTS_PER_SECOND = 5.0


class LiveConsumer(AsyncWebsocketConsumer):
    """Serves the page named in the query's `page`, or later in a message {"page": ...}; {} requests its whole state again.

    A message with a number, {"ask": 3}, is answered by {"asked": 3} before the state; what came earlier is older.
    """

    view: View | None = None
    group = ""
    actor: Actor  # set by `connect`
    version = 0
    beats = 0
    requests_left = float(REQUESTS_AT_ONCE)
    counted_at = 0.0  # monotonic time

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # without `disconnect` if the browser left before it was sent its state
            await self._leave()

    async def connect(self) -> None:
        user = self.scope.get("user")
        if user is None or not user.is_authenticated or not is_same_origin(self.scope):
            await self.close()
            return
        self.actor = await database_sync_to_async(actor_for)(user)
        [page] = parse_qs(self.scope["query_string"].decode()).get("page", ["/"])[:1]
        try:
            view = await self._view_of(page, user)
        except BrokerError as exc:
            log.info("A live connection was refused: %s", exc)
            await self.close()
            return
        await self.accept()
        await self._show(view)

    async def disconnect(self, code: int) -> None:
        await self._leave()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        request = _request(text_data)
        if request is None:
            return
        await self._wait_for_turn()
        page, number = request
        if number is not None:
            await self.send(json.dumps({"asked": number}))
        try:
            view = await self._view_of(page, self.scope["user"]) if page else self.view
        except BrokerError as exc:
            await self.send(refused(str(exc)))
            return
        if view is not None:  # a refused page has no state
            await self._show(view, anew=True)

    async def live_frame(self, event: dict) -> None:
        # Frames of the page before may still be queued, and older ones are contained in the state that the viewer got.
        if event["group"] != self.group or event["version"] <= self.version:
            return
        if event["version"] > self.version + 1 and self.view is not None:  # a slow browser's queue was full
            await self._show(self.view)
            return
        self.version = event["version"]
        await self.send(event["frame"])

    async def live_beat(self, event: dict) -> None:
        self.beats += 1
        if self.beats % RIGHTS_BEATS == 0 and not await database_sync_to_async(self._is_still_allowed)():
            await self.close(CLOSE_AND_RETURN)
            return
        await self.send(json.dumps({"beat": event["age"]}))

    async def _wait_for_turn(self) -> None:
        """Take one of the requests that the socket has left; wait if there is none. Its further messages wait meanwhile."""
        now = time.monotonic()
        grown = self.requests_left + (now - self.counted_at) * REQUESTS_PER_SECOND
        self.requests_left, self.counted_at = min(grown, REQUESTS_AT_ONCE) - 1, now
        if self.requests_left < 0:
            await asyncio.sleep(-self.requests_left / REQUESTS_PER_SECOND)

    async def _view_of(self, page: str, user: Any) -> View:
        """The page for this user, with the rights of the user in its namespace. Raises InvalidArgument."""
        view = View.of(page, self.actor, user)
        namespace = view.match.kwargs.get("namespace")
        if not sandbox_names.may_be_one(namespace):
            return view
        return replace(view, actor=await database_sync_to_async(actor_for)(user, namespace))

    async def _show(self, view: View, *, anew: bool = False) -> None:
        if view != self.view:
            await self._leave()
        self.view = view
        try:
            self.group, self.version, state = await Feed.of_running_loop().join(view, self.channel_name, anew=anew)
        except BrokerError as exc:  # no such queue, no right to it
            await self.send(refused(str(exc)))
            self.view, self.group = None, ""
            return
        if state:
            await self.send(state)

    async def _leave(self) -> None:
        group, self.group, self.view = self.group, "", None
        if group:
            await Feed.of_running_loop().leave(group, self.channel_name)

    def _is_still_allowed(self) -> bool:
        """Whether the user still has the same rights, and has neither signed out nor changed the password."""
        session = import_module(settings.SESSION_ENGINE).SessionStore(self.scope["session"].session_key)
        user = get_user(SimpleNamespace(session=session))
        return user.pk == self.scope["user"].pk and user.is_active and actor_for(user).rights == self.actor.rights


def is_same_origin(scope: dict) -> bool:
    """Whether the page that opens the socket is of this site: by the host of the request, which must be in ALLOWED_HOSTS, and by
    the scheme. Behind a proxy that ends TLS, `https` looks like `http`: CSRF_TRUSTED_ORIGINS has these origins, as for forms."""
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin", b"").decode("latin-1").lower(), headers.get(b"host", b"").decode("latin-1").lower()
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    if origin == f"{scheme}://{host}":
        return True
    return origin == f"https://{host}" and any(_names(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _names(origin: str, trusted: str) -> bool:
    """Whether a trusted origin, such as https://*.example.org, is this origin."""
    start, star, end = trusted.lower().partition("*")
    return (origin.startswith(start) and origin.endswith(end)) if star else origin == start


def _request(text: str | None) -> tuple[str, int | None] | None:
    """The page named in a message (empty: the current one), and the number of the request; None: not a valid message."""
    try:
        asked = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(asked, dict):
        return None
    page, number = asked.get("page", ""), asked.get("ask")
    is_valid = isinstance(page, str) and len(page) <= MAX_PAGE_LENGTH and (number is None or type(number) is int)
    return (page, number) if is_valid else None
