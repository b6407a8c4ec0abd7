"""The live feed: polls for events of the watched pages several times per second, and sends the fragments that changed.

Each process has one feed, which reads each database in one thread with one connection, independent of the number of viewers. The
thread serves users in turn, and the sockets of each in turn (turns.py). A page is rendered once for all viewers with the same
rights. The in-memory channel layer suffices, since each web process has its own feed.

A frame is JSON, and live.js applies it:
  version    increases with each frame of a page
  clock      {"now": ms, "rate": clock seconds per second, "read": ms of real time}: the clock of the page's deadlines; ignored
             if the page has a later reading
  fragments  HTML of the parts that changed, to be morphed by the ids of their elements
  left       {row id: word} of messages that left their list, with the reason
  moved      {element id: number} of messages that took the way that an element of the live map stands for
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import psycopg
from channels.layers import get_channel_layer
from django.db import connections as django_connections

from broker_core.common.errors import BrokerError
from broker_core.common.types import EventKind
from broker_core.history.feed import Follower, NewEvents
from broker_core.reads import ClockReading, EntityRow, Name
from broker_core.store import connections
from broker_core.store.connections import Database

from .instants import epoch_ms
from .page import FILTERED_SECONDS, REFRESH_SECONDS, Live, View, changed_parts, rows_left, seconds_to_deadline
from .turns import FairThread, in_turn

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
BEAT_SECONDS = 1.0
TICK_SECONDS = 0.3  # for rendering pages, until those who join get their turn
SHARE = 0.5  # maximum share of a processor for rendering
SHARE_OF_A_PAGE = 0.25  # and for rendering one page
SEEN_SECONDS = 2 * FILTERED_SECONDS  # for which a list may lag behind the events of its messages
FEW_PAGES = 4  # up to so many pages are rendered every FEW_SECONDS at most, more every MANY_SECONDS
FEW_SECONDS, MANY_SECONDS = 0.15, 1.0
FRESH_SECONDS = 0.1  # between two renderings of a page for requests; those that come in between wait for the second one
SHORTEST_WAIT = 0.2  # seconds before a page is rendered for the end of a countdown
DRIFT_MS = 250  # difference of a browser's clock that is corrected
BACK_OFF_SECONDS = (0.2, 5.0)
RETRIED = (BrokerError, psycopg.Error, OSError)
Touched = dict[int, dict[int, EventKind]]  # the last event, by entity and sequence number


@dataclass(slots=True)
class Watched:
    """A watched page and its state as last sent. not_before, due, drawn_at, seen_since: monotonic time. touched: the events since
    the last rendering; seen and seen_before: those of the last SEEN_SECONDS and more; looked: the number of the last look at
    events for this page."""

    view: View
    group: str = ""
    viewers: dict[str, str] = field(default_factory=dict)  # by the channel of each, its user
    live: Live | None = None
    clock: ClockReading | None = None
    fragments: dict[str, str] = field(default_factory=dict)
    drawn_at: dict[str, float] = field(default_factory=dict)
    version: int = 0
    due: float = 0.0
    not_before: float = 0.0
    touched: Touched = field(default_factory=dict)
    seen: Touched = field(default_factory=dict)
    seen_before: Touched = field(default_factory=dict)
    seen_since: float = 0.0
    moved: Counter[str] = field(default_factory=Counter)
    looked: int = 0

    @property
    def rendered_at(self) -> float:
        """When the rendering of the oldest fragment began."""
        return min(self.drawn_at.values(), default=-math.inf)

    def note(self, news: Mapping[Database, NewEvents]) -> None:
        """Note the events of each database that concern the page."""
        if any(new_events.overflow or new_events.clocks_moved for new_events in news.values()):
            self.due, self.drawn_at = 0.0, {}
        if self.live is None:
            return
        if (now := time.monotonic()) > self.seen_since + SEEN_SECONDS:
            self.seen_before, self.seen, self.seen_since = self.seen, {}, now
        for entity in self.live.entities:
            happened = news[connections.database_of(entity.address.namespace)].latest.get(entity.id)
            if happened and (self.live.number is None or self.live.number in happened):
                for noted in (self.touched, self.seen):
                    noted.setdefault(entity.id, {}).update(happened)
        if self.live.ways:
            for database, new_events in news.items():
                for flow, messages in new_events.flows.items():
                    self.moved.update(dict.fromkeys(self.live.ways(database, flow), messages))

    def forget(self, why: BrokerError, seconds: float) -> str:
        """The frame for a page that no longer exists. If it exists again later, its whole state is sent."""
        self.fragments, self.drawn_at, self.clock, self.moved = {}, {}, None, Counter()
        self.touched, self.seen, self.seen_before = {}, {}, {}
        self.version, self.due = self.version + 1, time.monotonic() + seconds
        return refused(str(why))

    def draw(self, pages: int, *, all_fragments: bool = False, note_news: Callable[[], None] | None = None) -> str | None:
        """Render the fragments that are due. Returns a frame with those that changed, or None. pages: number of watched pages.
        note_news: notes the events that were committed in the meantime."""
        began, worked = time.monotonic(), time.thread_time()
        due_fragments = None if self.live is None or all_fragments else self._may_be_drawn(self.live, began)
        if self.live and due_fragments is not None and not due_fragments:
            self.touched, self.due = {}, self._later(self.live, began)
            self.not_before = max(self.not_before, began + self.live.least_seconds)
            return self._changed([], {})
        answer = self.view.draw(due_fragments)
        ended = time.monotonic()
        clock = self.clock
        self.touched, self.clock, self.live = {}, answer.clock, answer.live
        different: list[str] = []
        rows: dict[str, tuple[int, int]] = {}
        for name, html in answer.fragments.items():
            before = self.fragments.get(name, "")
            if parts := changed_parts(before, html):
                different += parts
                rows |= rows_left(before, html)
            self.fragments[name], self.drawn_at[name] = html, began
        left = self._reasons_left(answer.live, rows)
        if note_news and len(left) < len(rows):  # what removed the others may have happened after the last look
            note_news()
            left = self._reasons_left(answer.live, rows)
        self.not_before = ended + max(
            (time.thread_time() - worked) * (1 / SHARE_OF_A_PAGE - 1),
            FEW_SECONDS if pages <= FEW_PAGES else MANY_SECONDS,
            answer.live.least_seconds,
        )
        self.due = min(ended + answer.live.refresh_seconds, self._later(answer.live, began), self._countdown_end(ended))
        if differs_from_expected(clock, self.clock):
            self.version += 1
            return self._frame(different, left)
        return self._changed(different, left)

    def _reasons_left(self, live: Live, left: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        """By row, the word for the reason why the message left its list."""
        kinds = {row: self._last_event(entity, number) for row, (entity, number) in left.items()}
        return {row: word for row, kind in kinds.items() if live.word and kind is not None and (word := live.word(kind))}

    def _last_event(self, entity: int, number: int) -> EventKind | None:
        kinds = (seen.get(entity, {}).get(number) for seen in (self.seen, self.seen_before))
        return next((kind for kind in kinds if kind is not None), None)

    def whole(self) -> str:
        """The frame with the whole state."""
        return json.dumps(self._content(self.fragments.values(), {}))

    def _changed(self, different: list[str], left: dict[str, str]) -> str | None:
        """The frame with what changed, or None."""
        if not different and not self.moved:
            return None
        self.version += 1
        return self._frame(different, left)

    def _may_be_drawn(self, live: Live, now: float) -> set[str]:
        return {name for name, least in live.fragments.items() if now - self.drawn_at.get(name, -least) >= least}

    def _later(self, live: Live, began: float) -> float:
        """When the first of the skipped fragments may be rendered."""
        drawn = ((self.drawn_at.get(name, 0.0), least) for name, least in live.fragments.items())
        return min((at + least for at, least in drawn if at < began), default=math.inf)

    def _countdown_end(self, now: float) -> float:
        ahead = seconds_to_deadline(self.fragments.values(), self.clock) if self.clock else None
        return math.inf if ahead is None else now + max(ahead, SHORTEST_WAIT)

    def _frame(self, fragments: Iterable[str], left: dict[str, str]) -> str:
        frame = self._content(fragments, left)
        if self.moved:
            frame["moved"], self.moved = self.moved, Counter()
        return json.dumps(frame)

    def _content(self, fragments: Iterable[str], left: dict[str, str]) -> dict:
        frame: dict = {"version": self.version, "fragments": list(fragments), "left": left}
        if self.clock:
            now, read = epoch_ms(self.clock.now), epoch_ms(self.clock.real_now)
            frame["clock"] = {"now": now, "rate": self.clock.rate, "read": read}
        return frame


class Feed:
    """The feed of one event loop. It starts with the first viewer's `join` and ends with the last one's `leave`."""

    _of_loop: dict[asyncio.AbstractEventLoop, Feed] = {}

    def __init__(self) -> None:
        self.task: asyncio.Task | None = None
        self._pages: dict[str, Watched] = {}
        self._followers = {database: Follower() for database in connections.databases()}
        self._thread = FairThread("vitrine-feed")
        self._read_at = time.monotonic()
        self._looks = 0

    @classmethod
    def of_running_loop(cls) -> Feed:
        """The running loop's feed."""
        for loop in [loop for loop in cls._of_loop if loop.is_closed()]:
            cls._of_loop.pop(loop)._thread.shutdown()
        return cls._of_loop.setdefault(asyncio.get_running_loop(), cls())

    async def join(self, view: View, channel: str, *, anew: bool = False) -> tuple[str, int, str | None]:
        """Add a viewer. Returns the page's group, its version and the frame of its state. Without a frame, the database is
        unavailable, and the frame is sent to the group later.

        anew: the state is read from now on, as after an action of the viewer: the browser shows its outcome already, and an older
        state would take it back.

        Raises BrokerError if the page does not exist or the viewer may not see it.
        """
        since = time.monotonic() if anew else -math.inf
        page = self._of(view) or await self._first(view, channel)
        page.group = page.group or view.group(personal=page.live is None or page.live.personal)
        page = self._pages.setdefault(page.group, page)
        page.viewers[channel] = view.actor.holder_label
        await get_channel_layer().group_add(page.group, channel)
        if self.task is None:
            self._read_at = time.monotonic()
            self.task = asyncio.create_task(self._run())
        try:
            if anew:
                await asyncio.sleep(page.rendered_at + FRESH_SECONDS - since)
            version, frame, for_others = await self._in_thread_for(view, channel, self._present_state, page, since)
        except BaseException:
            await self.leave(page.group, channel)
            raise
        if for_others:
            await self._send(page.group, for_others, version)
        return page.group, version, frame

    async def leave(self, group: str, channel: str) -> None:
        """Remove a viewer, and the page if it was the last one."""
        await get_channel_layer().group_discard(group, channel)
        page = self._pages.get(group)
        if page is None:
            return
        page.viewers.pop(channel, None)
        if not page.viewers:
            del self._pages[group]
        if not self._pages and self.task is not None:
            task, self.task = self.task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self.task is None:
            await self._in_thread(self._close)

    async def _first(self, view: View, channel: str) -> Watched:
        """A page that was not watched before; not rendered yet if the database is unavailable."""
        page = Watched(view)
        try:
            await self._in_thread_for(view, channel, self._drawn, page)
        except BrokerError:
            await self._close_if_unused()
            raise
        return page

    def _of(self, view: View) -> Watched | None:
        groups = (view.group(personal=personal) for personal in (False, True))
        return next((self._pages[group] for group in groups if group in self._pages), None)

    async def _in_thread(self, work, *args):
        """Run the feed's own work, which has its turn like that of a user."""
        return await self._thread.run(None, None, work, *args)

    async def _in_thread_for(self, view: View, channel: str, work, *args):
        return await self._thread.run(view.actor.holder_label, channel, work, *args)

    async def _send(self, group: str, frame: str, version: int) -> None:
        await get_channel_layer().group_send(group, {"type": "live.frame", "group": group, "frame": frame, "version": version})

    async def _run(self) -> None:
        beats = asyncio.create_task(self._beat())
        pause = BACK_OFF_SECONDS[0]
        try:
            while True:
                try:
                    began = time.monotonic()
                    worked = await self._in_thread(self._tick, list(self._pages.values()), asyncio.get_running_loop())
                    self._read_at = began
                    pause = BACK_OFF_SECONDS[0]
                    await asyncio.sleep(max(POLL_SECONDS - (time.monotonic() - began), worked * (1 / SHARE - 1), 0.02))
                except RETRIED as exc:
                    log.warning("The live feed cannot read events; retrying in %.1f s: %s", pause, exc)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, BACK_OFF_SECONDS[1])
                except Exception:
                    log.exception("The live feed failed; retrying in %.1f s", BACK_OFF_SECONDS[1])
                    await asyncio.sleep(BACK_OFF_SECONDS[1])
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        """Tell every page that the connection is alive, and how old its state may be."""
        while True:
            age = time.monotonic() - self._read_at
            for group in list(self._pages):
                await get_channel_layer().group_send(group, {"type": "live.beat", "age": round(age, 1)})
            await asyncio.sleep(BEAT_SECONDS)

    # The methods below run in the feed's thread.

    def _drawn(self, page: Watched) -> str | None:
        """Render the whole page. Returns the frame for its other viewers."""
        try:
            for database, follower in self._followers.items():
                with connections.using(database):
                    follower.begin()
            page.looked = self._looks
            return page.draw(len(self._pages), all_fragments=True)
        except psycopg.OperationalError:
            return None
        except BrokerError as exc:
            if exc.retryable:
                return None
            raise

    def _present_state(self, page: Watched, since: float) -> tuple[int, str | None, str | None]:
        """The page's version, the frame for the new viewer, and the frame for the others if the page has changed. since: the
        monotonic time from which on the state has to be read."""
        # After its first rendering there may have been a look at events that was for other pages only.
        is_outdated = not page.fragments or page.looked < self._looks
        for_others = self._drawn(page) if page.rendered_at < since or is_outdated else None
        return page.version, page.whole() if page.fragments else None, for_others

    def _tick(self, pages: list[Watched], loop: asyncio.AbstractEventLoop) -> float:
        """Render the pages that are due and send their frames. Returns the processor time used, in seconds. Those for which there
        is no time are rendered in the next tick, so that new viewers need not wait for all of them."""
        began, ends = time.thread_time(), time.monotonic() + TICK_SECONDS
        self._note_news(pages)
        for page in in_turn(sorted(pages, key=lambda page: page.not_before), lambda page: list(page.viewers.values()) or [None]):
            now = time.monotonic()
            if now < page.not_before or not (page.touched or now >= page.due):
                continue
            try:
                frame = page.draw(len(pages), note_news=partial(self._note_news, pages))
            except BrokerError as exc:
                if exc.retryable:
                    raise
                frame = page.forget(exc, REFRESH_SECONDS)
            except RETRIED:
                raise
            except Exception:  # one page must not stop all others
                log.exception("The live feed failed to render %s; retrying in %.1f s", page.view.path, BACK_OFF_SECONDS[1])
                page.not_before = now + BACK_OFF_SECONDS[1]
                continue
            if frame:
                asyncio.run_coroutine_threadsafe(self._send(page.group, frame, page.version), loop)
            if time.monotonic() > ends:
                break
        return time.thread_time() - began

    def _note_news(self, pages: Iterable[Watched]) -> None:
        """Note the new events on the pages that they concern."""
        lives = [page.live for page in pages if page.live]
        news = self._news([entity for live in lives for entity in live.entities], any(live.ways for live in lives))
        self._looks += 1
        for page in pages:
            page.note(news)
            page.looked = self._looks

    def _news(self, entities: Iterable[EntityRow | Name], with_flows: bool = False) -> dict[Database, NewEvents]:
        """The new events of these entities, by database."""
        watched: dict[Database, set[int]] = {database: set() for database in self._followers}
        for entity in entities:
            watched[connections.database_of(entity.address.namespace)].add(entity.id)
        news = {}
        for database, ids in watched.items():
            with connections.using(database):
                news[database] = self._followers[database].read(ids, with_flows=with_flows)
        return news

    def _close(self) -> None:
        for follower in self._followers.values():
            follower.forget()
        connections.close_all_of_this_thread()
        django_connections.close_all()


def refused(why: str) -> str:
    """The frame for a page that cannot be shown: {"refused": why}."""
    return json.dumps({"refused": why})


def differs_from_expected(old: ClockReading | None, new: ClockReading | None) -> bool:
    """Whether a clock differs from what a browser computes from an older reading."""
    if old is None or new is None:
        return old is not new
    expected = old.now + (new.real_now - old.real_now) * old.rate
    return (old.rate, old.is_manual) != (new.rate, new.is_manual) or abs((new.now - expected).total_seconds()) * 1000 > DRIFT_MS
