"""The browsers' end of the live feed: one socket a page, which says what it shows and gets frames.

A consumer reads no message and knows no rule. Whom it serves is decided here, not by middleware alone: signed-in people, from
pages of this very site (`AllowedHostsOriginValidator` lets every origin in where ALLOWED_HOSTS is `*`).
"""

from __future__ import annotations

import json
import logging
from importlib import import_module
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor
from explorer.roles import actor_for

from .feed import Feed, refused
from .page import View

log = logging.getLogger(__name__)
RIGHTS_BEATS = 10  # between two looks at whether the viewer is still allowed
CLOSE_AND_RETURN = 1012  # the browser connects again, with the rights it has then
MAX_PAGE_LENGTH = 4000


class LiveConsumer(AsyncWebsocketConsumer):
    """Serves the page named in the address's `page`, or later in a message {"page": ...}; {} asks for its whole state again."""

    view: View | None = None
    group = ""
    actor: Actor  # from `connect` on; nothing is received before
    version = 0
    beats = 0

    async def connect(self) -> None:
        user = self.scope.get("user")
        if user is None or not user.is_authenticated or not is_same_origin(self.scope):
            await self.close()
            return
        self.actor = await database_sync_to_async(actor_for)(user)
        [page] = parse_qs(self.scope["query_string"].decode()).get("page", ["/"])[:1]
        try:
            view = View.of(page, self.actor, user)
        except BrokerError as exc:
            log.info("A live connection was refused: %s", exc)
            await self.close()
            return
        await self.accept()
        await self._show(view)

    async def disconnect(self, code: int) -> None:
        await self._leave()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        page = _page_asked_for(text_data)
        if page is None:
            return
        try:
            view = View.of(page, self.actor, self.scope["user"]) if page else self.view
        except BrokerError as exc:
            await self.send(refused(str(exc)))
            return
        if view is not None:  # a page that was refused has no state to be asked for
            await self._show(view)

    async def live_frame(self, event: dict) -> None:
        if event["version"] > self.version:  # those made before this viewer joined are in what it was told then
            self.version = event["version"]
            await self.send(event["frame"])

    async def live_beat(self, event: dict) -> None:
        self.beats += 1
        if self.beats % RIGHTS_BEATS == 0 and not await database_sync_to_async(self._is_still_allowed)():
            await self.close(CLOSE_AND_RETURN)
            return
        await self.send(json.dumps({"beat": event["age"]}))

    async def _show(self, view: View) -> None:
        if view != self.view:
            await self._leave()
        self.view = view
        try:
            self.group, self.version, state = await Feed.here().join(view, self.channel_name)
        except BrokerError as exc:  # no such queue, no right to it
            await self.send(refused(str(exc)))
            self.view, self.group = None, ""
            return
        if state:
            await self.send(state)

    async def _leave(self) -> None:
        group, self.group, self.view = self.group, "", None
        if group:
            await Feed.here().leave(group, self.channel_name)

    def _is_still_allowed(self) -> bool:
        """Whether the person still has these rights, and has neither signed out nor changed the password."""
        session = import_module(settings.SESSION_ENGINE).SessionStore(self.scope["session"].session_key)
        user = get_user(SimpleNamespace(session=session))
        return user.pk == self.scope["user"].pk and user.is_active and actor_for(user).rights == self.actor.rights


def is_same_origin(scope: dict) -> bool:
    """Whether the page that opens the socket came from the host that is asked."""
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    return bool(host) and urlsplit(origin).netloc.lower() == host.lower()


def _page_asked_for(text: str | None) -> str | None:
    """The page of a message, empty for the same again; None for what is no message of ours."""
    try:
        asked = json.loads(text or "")
    except ValueError:
        return None
    page = asked.get("page", "") if isinstance(asked, dict) else None
    return page if isinstance(page, str) and len(page) <= MAX_PAGE_LENGTH else None
