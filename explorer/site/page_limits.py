"""Limits the pages in progress, so that the broker's API in the same process keeps its share of the processor.

Pages run in threads that share Python's interpreter lock with the event loop, which serves the API: each page in progress delays
every step of an API call. Pages beyond the limit wait for their turn; beyond PATIENCE_SECONDS, or if too many wait, the answer is
503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings

PATIENCE_SECONDS = 10.0
RETRY_AFTER_SECONDS = 2
_TEXT = b"Too many pages are being rendered. Nothing was changed; try again in a few seconds."
_REFUSAL = [
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", b"%d" % len(_TEXT)),
    (b"retry-after", b"%d" % RETRY_AFTER_SECONDS),
    (b"x-content-type-options", b"nosniff"),
    (b"hx-retarget", b"#notices"),
    (b"hx-reswap", b"innerHTML"),
]


@dataclass(frozen=True)
class Limit:
    """in_progress: pages rendered at once; waiting: pages that wait for their turn."""

    in_progress: int
    waiting: int


SIGNED_IN, ANONYMOUS = Limit(6, 200), Limit(1, 500)  # anonymous: without a session cookie


class TooManyPages(Exception):
    """No turn within PATIENCE_SECONDS, or too many pages are waiting already."""


class _Turns:
    """The turns of one kind of page in one event loop."""

    def __init__(self, limit: Limit):
        self._limit, self._waiting = limit, 0
        self._free = asyncio.Semaphore(limit.in_progress)

    async def take(self) -> None:
        """Wait for a turn. Raises TooManyPages."""
        if self._free.locked() and self._waiting >= self._limit.waiting:
            raise TooManyPages
        self._waiting += 1
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._free.acquire()
        except TimeoutError as exc:
            raise TooManyPages from exc
        finally:
            self._waiting -= 1

    def give_back(self) -> None:
        self._free.release()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Limit, _Turns]] = WeakKeyDictionary()


class _Page:
    """One request. Its turn begins when its body is complete, and ends when the response begins: neither a slow upload nor a slow
    download has one."""

    def __init__(self, turns: _Turns, receive, send):
        self._turns, self._receive, self._send = turns, receive, send
        self._has_turn = self._had_turn = False

    async def receive(self) -> Mapping[str, Any]:
        event = await self._receive()
        if event["type"] == "http.request" and not event.get("more_body") and not self._had_turn:
            await self._turns.take()
            self._has_turn = self._had_turn = True
        return event

    async def send(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self.end_turn()
        await self._send(event)

    def end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.give_back()


def limited_pages(app):
    """Let `app` render only so many pages at once: fewer for requests without a session cookie."""

    async def wrapped(scope, receive, send) -> None:
        page = _Page(_turns_of(SIGNED_IN if _has_session(scope) else ANONYMOUS), receive, send)
        try:
            await app(scope, page.receive, page.send)
        except TooManyPages:
            await send({"type": "http.response.start", "status": 503, "headers": _REFUSAL})
            await send({"type": "http.response.body", "body": _TEXT})
        finally:
            page.end_turn()

    return wrapped


def _turns_of(limit: Limit) -> _Turns:
    return _turns.setdefault(asyncio.get_running_loop(), {}).setdefault(limit, _Turns(limit))


def _has_session(scope: Mapping[str, Any]) -> bool:
    name = settings.SESSION_COOKIE_NAME.encode() + b"="
    return any(key == b"cookie" and name in value for key, value in scope["headers"])
