"""One reader a process: looks for news of what its viewers watch, some times a second, and sends each page what changed.

The database is asked in one thread with a connection of its own, however many viewers there are. A page that several look at with
the same rights is read and rendered once. The in-memory channel layer suffices, since each web process has its own feed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
from channels.layers import get_channel_layer

from broker_core.common.errors import BrokerError
from broker_core.common.types import EventKind
from broker_core.history.feed import Follower, News
from broker_core.store import connections

from .frames import Picture, difference, refused, whole
from .watches import Watch

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
BEAT_SECONDS = 1.0
REFRESH_SECONDS = 5.0  # without any news: rates fall, instants pass
SHARE = 0.25  # of the time, at most, goes into reading one page again and again
BACK_OFF_SECONDS = (0.2, 5.0)
TOO_SLOW = (BrokerError, psycopg.Error, OSError)


@dataclass(slots=True)
class Watched:
    """A page that somebody looks at, as last told to all of them. not_before and due: on the monotonic clock."""

    watch: Watch
    viewers: set[str] = field(default_factory=set)
    picture: Picture | None = None
    version: int = 0
    due: float = 0.0
    not_before: float = 0.0
    touched: dict[int, dict[int, EventKind]] = field(default_factory=dict)


class Feed:
    """The reader of one event loop. `join` starts it with the first viewer; it ends with the last one's `leave`."""

    _of_loop: dict[asyncio.AbstractEventLoop, Feed] = {}

    def __init__(self) -> None:
        self.task: asyncio.Task | None = None
        self._pages: dict[str, Watched] = {}
        self._follower = Follower()
        self._thread = ThreadPoolExecutor(1, "vitrine-feed")
        self._read_at = time.monotonic()

    @classmethod
    def here(cls) -> Feed:
        """The running loop's feed."""
        for loop in [loop for loop in cls._of_loop if loop.is_closed()]:
            cls._of_loop.pop(loop)._thread.shutdown(wait=False)
        return cls._of_loop.setdefault(asyncio.get_running_loop(), cls())

    async def join(self, watch: Watch, channel: str) -> tuple[int, str] | None:
        """Add a viewer. Returns the page's version and the frame of its present state; None: the database does not answer now,
        and the frame comes by the group as soon as it does.

        Raises BrokerError where there is no such page, or the viewer lacks the right to it.
        """
        await get_channel_layer().group_add(watch.group, channel)
        page = self._pages.setdefault(watch.group, Watched(watch))
        page.viewers.add(channel)
        if self.task is None:
            self._read_at = time.monotonic()
            self.task = asyncio.create_task(self._run())
        return await self._in_thread(self._present_state, page)

    async def leave(self, watch: Watch, channel: str) -> None:
        """Take a viewer away; what nobody looks at any more is forgotten."""
        await get_channel_layer().group_discard(watch.group, channel)
        page = self._pages.get(watch.group)
        if page is None:
            return
        page.viewers.discard(channel)
        if not page.viewers:
            del self._pages[watch.group]
        if not self._pages and self.task is not None:
            task, self.task = self.task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if self.task is None:
                await self._in_thread(self._close)

    async def _in_thread(self, work, *args):
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def _run(self) -> None:
        beats = asyncio.create_task(self._beat())
        pause = BACK_OFF_SECONDS[0]
        try:
            while True:
                try:
                    began = time.monotonic()
                    for group, frame, version in await self._in_thread(self._tick, list(self._pages.values())):
                        await get_channel_layer().group_send(group, {"type": "live.frame", "frame": frame, "version": version})
                    self._read_at = began
                    pause = BACK_OFF_SECONDS[0]
                    await asyncio.sleep(max(POLL_SECONDS - (time.monotonic() - began), 0.02))
                except TOO_SLOW as exc:
                    log.warning("The live feed cannot read events; retrying in %.1f s: %s", pause, exc)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, BACK_OFF_SECONDS[1])
                except Exception:  # one page must not silence all others for good
                    log.exception("The live feed failed; retrying in %.1f s", BACK_OFF_SECONDS[1])
                    await asyncio.sleep(BACK_OFF_SECONDS[1])
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        """Tell every page that the connection lives, and how old its state may be."""
        while True:
            age = time.monotonic() - self._read_at
            for group in list(self._pages):
                await get_channel_layer().group_send(group, {"type": "live.beat", "age": round(age, 1)})
            await asyncio.sleep(BEAT_SECONDS)

    # What follows runs in the feed's thread.

    def _present_state(self, page: Watched) -> tuple[int, str] | None:
        picture = page.picture
        if picture is None:
            try:
                self._follower.begin()
                picture = self._read(page, None)
            except psycopg.OperationalError:
                return None
            except BrokerError as exc:
                if exc.retryable:
                    return None
                raise
        return page.version, whole(picture, page.version)

    def _tick(self, pages: list[Watched]) -> Iterable[tuple[str, str, int]]:
        news = self._follower.look({entity for page in pages for entity in page.watch.entity_ids})
        told = []
        for page in pages:
            self._note(page, news)
            now = time.monotonic()
            if now < page.not_before or not (page.touched or now >= page.due):
                continue
            frame = self._told_again(page)
            if frame:
                told.append((page.watch.group, frame, page.version))
        return told

    def _note(self, page: Watched, news: News) -> None:
        if news.overflow or news.clocks_moved:
            page.due = 0.0
        for entity_id in page.watch.entity_ids & news.latest.keys():
            page.touched.setdefault(entity_id, {}).update(news.latest[entity_id])

    def _told_again(self, page: Watched) -> str | None:
        old, touched = page.picture, page.touched
        everything = old is None or time.monotonic() >= page.due
        if not everything and not page.watch.concerns(touched):
            page.touched = {}
            return None
        try:
            new = self._read(page, None if everything else touched)
        except BrokerError as exc:
            if exc.retryable:
                raise
            page.picture, page.version, page.due = None, page.version + 1, time.monotonic() + REFRESH_SECONDS
            return refused(str(exc))  # the queue was deleted, say; should it come back, the whole page is told
        if old is None:
            return whole(new, page.version)
        return difference(old, new, page.version, page.watch.fates(touched))

    def _read(self, page: Watched, touched: dict | None) -> Picture:
        began = time.monotonic()
        picture = page.watch.look(page.picture, touched)
        page.picture, page.version, page.touched = picture, page.version + 1, {}
        ended = time.monotonic()
        page.not_before = ended + max((ended - began) * (1 / SHARE - 1), page.watch.least_seconds)
        if touched is None:
            page.due = ended + page.watch.refresh_seconds(REFRESH_SECONDS)
        return picture

    def _close(self) -> None:
        self._follower.forget()
        connections.close_all_of_this_thread()
