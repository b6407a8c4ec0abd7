"""The format of a lesson or scenario: a TOML file of steps. Everything is checked when the file is read. Pure.

    title = "Peek-lock"
    family = "service_bus"
    order = 1
    summary = "One sentence for the list."
    source = { title = "Message transfers, locks, and settlement", url = "https://..." }

    [[setup]]                       # what exists before the first step
    action = "create_queue"
    queue = "orders"

    [[step]]
    title = "Receive a message"
    say = "Text with [terms] of the glossary in brackets."
    other.rabbitmq = "One sentence in the words of another family."
    ask = { question = "...", choices = ["...", "..."], right = 1, because = "..." }
    do = { action = "receive", queue = "orders", label = "Receive one message" }
    expect = { event = "received", queue = "orders", number = 1 }
    show = "timeline"               # what to look at: board, timeline or clock
    look = { queue = "orders", number = 1 }

`do` and `expect` may be lists. `ask`: `right` counts from 1.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EventKind, Family

DURATIONS = frozenset(
    (
        "by",
        "for",
        "clock",
        "ttl",
        "in",
        "lock_duration",
        "default_message_time_to_live",
        "auto_delete_on_idle",
        "visibility",
        "duplicate_detection_history_time_window",
    )
)
SHOWN = ("board", "timeline", "clock")
EVENTS = {kind.name.lower().replace("_", " "): kind for kind in EventKind}
OF_EVENTS = ("queue", "number", "reason", "count", "by", "times", "session", "to")
COUNTED = ("sent", "received", "completed", "failed", "lost", "dead-lettered")  # of a load
TERM = re.compile(r"\[([^\]]+)\]")


class BadLesson(Exception):
    """A lesson file that cannot be played. Its text says in which file and step, and what to do."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a `do` can name. run: (stage, arguments) -> what happened, in words. label: of its button; {name}: an argument."""

    run: Callable[[Any, Mapping[str, Any]], str]
    label: str
    needs: Collection[str] = ()
    takes: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does to a receiver of a sandbox. text: in a sentence. change: of the arguments of what the receiver does;
    None: it does nothing."""

    text: str
    change: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Do:
    """One action. by: who performs it; empty: the person."""

    action: str
    arguments: Mapping[str, Any]
    by: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Expect:
    """What the broker must have done since the step began: an event with attributes (kind), or one of these:

    clock: the clock has advanced by so much. deleted: the entity has been deleted. policy: it exists. load: what a load has done
    (COUNTED), as often as the attribute "times" says.
    """

    kind: EventKind | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    clock: timedelta | None = None
    deleted: str = ""
    policy: str = ""
    load: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A prediction. right: the index of the choice that comes true. because: what to add to the broker's explanation."""

    question: str
    choices: tuple[str, ...]
    right: int
    because: str = ""

    def choice(self, number: str) -> int:
        """The index of the choice that a form sends. Raises InvalidArgument."""
        if number not in map(str, range(len(self.choices))):
            raise InvalidArgument("answer", "must be one of the choices; select one of them")
        return int(number)


@dataclass(frozen=True, slots=True)
class Look:
    """The message, or only the queue, that a step is about."""

    queue: str = ""
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """other: by family, the step in a sentence with its words."""

    title: str
    say: str
    do: tuple[Do, ...] = ()
    ask: Ask | None = None
    expect: tuple[Expect, ...] = ()
    show: str = ""
    look: Look = Look()
    other: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lesson:
    """slug: the name of its file. source: (title, URL) of the documentation that it teaches. load: the queue on which a load can
    be put; its sandbox has real time."""

    slug: str
    title: str
    family: Family
    steps: tuple[Step, ...]
    setup: tuple[Do, ...] = ()
    summary: str = ""
    source: tuple[str, str] = ("", "")
    order: int = 0
    load: str = ""


Actions = Callable[[Family], Mapping[str, Action]]


def load(path: Path, actions: Actions) -> Lesson:
    """Read a lesson's file. Raises BadLesson."""
    try:
        return read(path.read_text(encoding="utf-8"), path.stem, path.name, actions)
    except OSError as exc:
        raise BadLesson(f"{path}: cannot be read: {exc.strerror}. Check its name and permissions.") from exc
    except UnicodeDecodeError as exc:
        raise BadLesson(f"{path}: is not UTF-8. Save it as UTF-8.") from exc


def read(text: str, slug: str, name: str, actions: Actions) -> Lesson:
    """name: of the file, for errors. actions: (family) -> what its `do` can name, by name. Raises BadLesson."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise BadLesson(f"{name}: is not TOML: {exc}. Correct the line that it names.") from exc
    return _Reader(name, slug, content, actions).lesson()


def as_table(do: Do) -> dict[str, Any]:
    """An action as it is written in a file."""
    table = {"action": do.action} | ({"as": do.by} if do.by else {})
    return table | {key: seconds(value) if isinstance(value, timedelta) else value for key, value in do.arguments.items()}


def as_value(value: Any) -> Any:
    """A setting as it is written in a file."""
    return seconds(value) if isinstance(value, timedelta) else str(value) if isinstance(value, StrEnum) else value


def seconds(duration: timedelta) -> str:
    """A duration as it is written in a file, to the microsecond."""
    return f"{duration.total_seconds():.6f}".rstrip("0").rstrip(".") + " s"


class _Reader:
    """Reads one file. where: the part that is being read, for errors."""

    def __init__(self, name: str, slug: str, content: Mapping[str, Any], actions: Actions):
        self.name, self.slug, self.content, self.where = name, slug, content, ""
        self._actions_of = actions
        self.actions: Mapping[str, Action] = {}

    def lesson(self) -> Lesson:
        content = self.content
        self._known(content, ("title", "family", "order", "summary", "source", "load", "setup", "step"))
        title = self._text(content, "title")
        try:
            family = Family(self._text(content, "family"))
            self.actions = self._actions_of(family)
        except (ValueError, InvalidArgument) as exc:
            raise self._bad("family", f"must be an installed family: {', '.join(Family)}") from exc
        source = content.get("source", {})
        setup = tuple(self._each("setup", self._do))
        steps = tuple(self._each("step", self._step))
        if not steps:
            raise self._bad("step", "is missing; add at least one [[step]]")
        load = str(content.get("load", ""))
        if not load and any(do.action == "load" for step in steps for do in step.do):
            raise self._bad("load", "is missing; name the queue of the load, whose clock then shows real time")
        return Lesson(
            self.slug, title, family, steps, setup, str(content.get("summary", "")),
            (str(source.get("title", "")), str(source.get("url", ""))), int(content.get("order", 0)),
            load,
        )  # fmt: skip

    def _each(self, part: str, read_one: Callable[[Mapping[str, Any]], Any]) -> Any:
        tables = self.content.get(part, [])
        if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
            raise self._bad(part, f"must be written as [[{part}]]")
        for i, table in enumerate(tables, 1):
            self.where = f"{part} {i}"
            yield read_one(table)
        self.where = ""

    def _step(self, table: Mapping[str, Any]) -> Step:
        self._known(table, ("title", "say", "do", "ask", "expect", "show", "look", "other"))
        show = table.get("show", "")
        if show and show not in SHOWN:
            raise self._bad("show", f"{show!r} must be one of {', '.join(SHOWN)}")
        other = table.get("other", {})
        for family in other:
            if family not in list(Family):
                raise self._bad(f"other.{family}", f"must be one of {', '.join(Family)}")
        return Step(
            self._text(table, "title"), self._text(table, "say").strip(), tuple(map(self._do, self._list(table, "do"))),
            self._ask(table["ask"]) if "ask" in table else None, tuple(map(self._expect, self._list(table, "expect"))),
            show, self._look(table.get("look", {})), {name: str(text).strip() for name, text in other.items()},
        )  # fmt: skip

    def _do(self, table: Mapping[str, Any]) -> Do:
        name = self._text(table, "action")
        action = self.actions.get(name)
        if action is None:
            raise self._bad("action", f"{name!r} is unknown; use one of {', '.join(sorted(self.actions))}")
        self._known(table, ("action", "as", "label", *action.needs, *action.takes), f"action {name}")
        if missing := [need for need in action.needs if need not in table]:
            raise self._bad(f"action {name}", f"needs {', '.join(missing)}")
        rest = {key: self._value(key, value) for key, value in table.items() if key not in ("action", "as", "label")}
        return Do(name, rest, str(table.get("as", "")), str(table.get("label", "")))

    def _expect(self, table: Mapping[str, Any]) -> Expect:
        if "event" in table:
            self._known(table, ("event", *OF_EVENTS), "expect")
            name = str(table["event"]).replace("_", " ")
            if name not in EVENTS:
                raise self._bad("expect", f"event {name!r} is unknown; use one of {', '.join(EVENTS)}")
            return Expect(EVENTS[name], {key: value for key, value in table.items() if key != "event"})
        self._known(table, ("clock", "deleted", "policy", "load", "times"), "expect")
        if table.get("load", COUNTED[0]) not in COUNTED:
            raise self._bad("expect", f"load {table['load']!r} must be one of {', '.join(COUNTED)}")
        if "load" in table:
            return Expect(None, {"times": table.get("times", 1)}, load=str(table["load"]))
        if len(table) != 1:
            raise self._bad("expect", "must name an event, or one of clock, deleted, policy and load")
        clock = self._value("clock", table["clock"]) if "clock" in table else None
        return Expect(clock=clock, deleted=str(table.get("deleted", "")), policy=str(table.get("policy", "")))

    def _ask(self, table: Mapping[str, Any]) -> Ask:
        self._known(table, ("question", "choices", "right", "because"), "ask")
        choices, right = table.get("choices"), table.get("right")
        if not isinstance(choices, list) or len(choices) < 2:
            raise self._bad("ask", "needs at least two choices")
        if type(right) is not int or not 1 <= right <= len(choices):
            raise self._bad("ask", f"right must be the number of a choice, 1 to {len(choices)}")
        return Ask(self._text(table, "question"), tuple(map(str, choices)), right - 1, str(table.get("because", "")))

    def _look(self, table: Mapping[str, Any]) -> Look:
        self._known(table, ("queue", "number"), "look")
        return Look(str(table.get("queue", "")), table.get("number"))

    def _value(self, key: str, value: Any) -> Any:
        if key not in DURATIONS or not isinstance(value, str):
            return value
        try:
            return parse_human_or_iso(value, key)
        except InvalidArgument as exc:
            raise self._bad(key, f"{value!r} must be a duration such as '90 s' or '2 h'") from exc

    def _list(self, table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        items = table.get(key, [])
        items = [items] if isinstance(items, dict) else items
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise self._bad(key, "must be a table or a list of tables")
        return items

    def _text(self, table: Mapping[str, Any], key: str) -> str:
        text = table.get(key)
        if not isinstance(text, str) or not text.strip():
            raise self._bad(key, "is missing; give it a text")
        return text

    def _known(self, table: Mapping[str, Any], keys: Sequence[str], what: str = "") -> None:
        if unknown := [key for key in table if key not in keys]:
            raise self._bad(what or unknown[0], f"{', '.join(unknown)} is unknown; use {', '.join(keys)}")

    def _bad(self, what: str, problem: str) -> BadLesson:
        where = f"{self.where}, " if self.where else ""
        return BadLesson(f"{self.name}: {where}{what}: {problem}.")
