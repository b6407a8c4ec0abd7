"""What a page shows at an instant, and the frame that tells a browser what changed since. Pure but for rendering.

A frame is JSON, and live.js applies it:
  version  grows with each frame of a page
  clock    {"now": ms, "rate": seconds a second, "manual": whether it ever left real time, "read": ms of real time}: what the
           page's deadlines are read by; one that was read no later than what the page knows is ignored
  order    ids of the list's rows from top to bottom; absent: no row comes, goes or moves
  next     the cursor of the list's next page, where there is one, with `order`
  rows     {id: html} of rows that are new or look different
  left     {id: word} of rows that are no longer in the list, and what became of them; empty: perhaps they moved off the page
  texts    {id: text} of elements whose text is another
  stamp    where it differs from the last one, the page fetches its content again: it is drawn for one person alone
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker_core.reads import ClockReading
from explorer.shared.presenters import epoch_ms

DRIFT_MS = 250  # a browser's idea of the clock may be off by this before it is told


@dataclass(frozen=True, slots=True)
class Element:
    """A piece of a page. looks: equal for two that look the same but for ages and countdowns, which the browser counts itself."""

    looks: Hashable
    render: Callable[[], str] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a page shows live. ordered: whether `rows` is a whole list, whose order and members the page follows."""

    clock: ClockReading | None = None
    rows: Mapping[str, Element] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    stamp: str | None = None
    ordered: bool = False
    next_cursor: str | None = None


def whole(picture: Picture, version: int) -> str:
    """The frame that brings any older page to this picture."""
    return _encoded(picture, version, picture.rows, picture.texts, order=picture.ordered, left={})


def difference(old: Picture, new: Picture, version: int, fates: Mapping[str, str]) -> str | None:
    """The frame from one picture to the next; None: they look the same. fates: what became of a row that left, by id."""
    rows = _changed(old.rows, new.rows)
    texts = {key: text for key, text in new.texts.items() if old.texts.get(key) != text}
    left = {key: fates.get(key, "" if new.ordered else "gone") for key in old.rows if key not in new.rows}
    stamped = old.stamp != new.stamp
    moved = new.ordered and list(old.rows) != list(new.rows)
    if not (rows or texts or left or moved or stamped or _clock_changed(old.clock, new.clock)):
        return None
    return _encoded(new, version, rows, texts, order=moved, left=left)


def refused(why: str) -> str:
    """What a page is told for which there is nothing to show: {"refused": why}."""
    return json.dumps({"refused": why})


def _changed(old: Mapping[str, Element], new: Mapping[str, Element]) -> dict[str, Element]:
    return {key: element for key, element in new.items() if old.get(key) != element}


def _clock_changed(old: ClockReading | None, new: ClockReading | None) -> bool:
    if old is None or new is None:
        return old is not new
    expected = old.now + (new.real_now - old.real_now) * old.rate
    return (old.rate, old.is_manual) != (new.rate, new.is_manual) or abs((new.now - expected).total_seconds()) * 1000 > DRIFT_MS


def _encoded(picture: Picture, version: int, rows: Mapping, texts: Mapping, *, order: bool, left: Mapping) -> str:
    frame: dict[str, Any] = {"version": version}
    if picture.clock:
        clock = picture.clock
        now, read = epoch_ms(clock.now), epoch_ms(clock.real_now)
        frame["clock"] = {"now": now, "rate": clock.rate, "manual": clock.is_manual, "read": read}
    if picture.stamp is not None:
        frame["stamp"] = picture.stamp
    if order:
        frame["order"] = list(picture.rows)
        if picture.next_cursor:
            frame["next"] = picture.next_cursor
    contents = {
        "rows": {key: element.render() for key, element in rows.items()},
        "texts": dict(texts),
        "left": dict(left),
    }
    return json.dumps(frame | {name: content for name, content in contents.items() if content})
