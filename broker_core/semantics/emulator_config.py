"""Reads the official emulator's Config.json (SB 9.3) into what is to be created, and into what is wrong with it.

Tolerant where that loses nothing: comments, trailing commas, keys in any casing, more than one namespace, the service's ranges in
place of the emulator's narrower ones. Everything else is a Problem with its JSON path; all of them are found in one reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .durations import parse_iso
from .entity_settings import MAY_BE_NEVER, check_namespace_name, check_path, check_setting
from .errors import InvalidArgument
from .limits import STRICT, Limits

EMULATOR_DEFAULTS = {"default_message_time_to_live": timedelta(hours=1), "max_delivery_count": 3}

_DURATIONS = ("LockDuration", "DefaultMessageTimeToLive", "AutoDeleteOnIdle")
_SETTINGS = {
    "LockDuration": "lock_duration",
    "MaxDeliveryCount": "max_delivery_count",
    "DefaultMessageTimeToLive": "default_message_time_to_live",
    "DeadLetteringOnMessageExpiration": "dead_lettering_on_message_expiration",
    "AutoDeleteOnIdle": "auto_delete_on_idle",
    "MaxSizeInMegabytes": "max_size_in_megabytes",
    "MaxMessageSizeInKilobytes": "max_message_size_in_kilobytes",
    "Status": "status",
    "UserMetadata": "user_metadata",
}
_UNSUPPORTED = {
    "RequiresSession": bool,
    "RequiresDuplicateDetection": bool,
    "EnablePartitioning": bool,
    "ForwardTo": str,
    "ForwardDeadLetteredMessagesTo": str,
}
_WINDOW = "DuplicateDetectionHistoryTimeWindow"  # means nothing without RequiresDuplicateDetection (SB 1.3)
_WITHOUT_EFFECT = ("EnableBatchedOperations",)
_PROPERTIES = (*_SETTINGS, *_UNSUPPORTED, _WINDOW, *_WITHOUT_EFFECT)

# Strings first, so that what looks like a comment or a trailing comma inside one is left alone.
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that keeps the file from being imported. unsupported: it is right, but Vitrine cannot do it yet."""

    path: str
    text: str
    unsupported: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue and all its settings that differ from the service's defaults or were given."""

    path: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    name: str
    queues: list[QueuePlan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a file asks for. problems: in the order of the file; a value with a problem is left out of `namespaces`."""

    namespaces: list[NamespacePlan] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def rejected(self) -> list[Problem]:
        return [p for p in self.problems if not p.unsupported]

    @property
    def unsupported(self) -> list[Problem]:
        return [p for p in self.problems if p.unsupported]


def read(text: str, *, emulator_defaults: bool = False, limits: Limits = STRICT) -> Plan:
    """The plan a configuration file describes. Raises nothing for a bad file: see Plan.problems."""
    try:
        document = loads(text)
    except ValueError as exc:
        return Plan(problems=[Problem("(file)", str(exc))])
    return _Reader(EMULATOR_DEFAULTS if emulator_defaults else {}, limits).plan(document)


def loads(text: str) -> Any:
    """JSON with comments and trailing commas. Raises ValueError that names line and column as they are in the text."""
    text = _COMMENT.sub(_blank, text.removeprefix("\ufeff"))
    text = _TRAILING_COMMA.sub(_blank, text)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as exc:
        raise ValueError(f"is no JSON: {exc.msg} in line {exc.lineno}, column {exc.colno}") from exc
    except RecursionError as exc:
        raise ValueError("is nested too deeply") from exc


def _blank(found: re.Match) -> str:
    return found[1] or re.sub(r"[^\n]", " ", found[0])


def _no_constant(name: str) -> Any:
    raise ValueError(f"is no JSON: {name} is no number that JSON has")


class _Object(dict):
    """A JSON object that remembers which of its keys were given twice."""

    twice: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    names = [name.lower() for name, _ in pairs]
    found.twice = tuple(name for i, (name, _) in enumerate(pairs) if name.lower() in names[:i])
    return found


class _Reader:
    """One reading of one document, collecting problems on the way."""

    def __init__(self, defaults: dict[str, Any], limits: Limits):
        self.defaults, self.limits = defaults, limits
        self.problems: list[Problem] = []

    def plan(self, document: Any) -> Plan:
        root = self._members(document, "(file)", ("UserConfig",))
        user = None if root is None else self._members(root.get("UserConfig"), "UserConfig", ("Namespaces", "Logging"))
        path = "UserConfig.Namespaces"
        namespaces = [self._namespace(item, where) for item, where in self._items(user.get("Namespaces"), path)] if user else []
        if user is not None and not namespaces and not self.problems:
            self._reject(path, "must be a list with at least one namespace")
        self._no_name_twice([n.name for n in namespaces], path)
        return Plan([n for n in namespaces if n.name], self.problems)

    def _namespace(self, item: Any, path: str) -> NamespacePlan:
        members = self._members(item, path, ("Name", "Queues", "Topics"))
        if members is None:
            return NamespacePlan("")
        name = self._name(members, path, check_namespace_name)
        queues = [self._queue(queue, where) for queue, where in self._items(members.get("Queues"), f"{path}.Queues")]
        self._no_name_twice([q.path for q in queues], f"{path}.Queues")
        for _, where in self._items(members.get("Topics"), f"{path}.Topics"):
            self._unsupported(where, "topics are not supported yet")
        return NamespacePlan(name, [q for q in queues if q.path])

    def _queue(self, item: Any, path: str) -> QueuePlan:
        members = self._members(item, path, ("Name", "Properties"))
        if members is None:
            return QueuePlan("", {})
        name = self._name(members, path, check_path)
        given = self._members(members.get("Properties", _Object()), f"{path}.Properties", _PROPERTIES) or {}
        settings = dict(self.defaults)
        for key, value in given.items():
            self._property(settings, given, key, value, f"{path}.Properties.{key}")
        return QueuePlan(name, settings)

    def _property(self, settings: dict[str, Any], given: dict[str, Any], key: str, value: Any, path: str) -> None:
        if key in _SETTINGS:
            self._setting(settings, key, value, path)
        elif key in _UNSUPPORTED:
            self._must_be_absent(key, value, path)
        elif key == _WINDOW:
            self._window(given, value, path)
        elif not isinstance(value, bool):
            self._reject(path, f"{_shown(value)} must be true or false")

    def _setting(self, settings: dict[str, Any], key: str, value: Any, path: str) -> None:
        name = _SETTINGS[key]
        try:
            value = self._duration(name, value) if key in _DURATIONS else value
            settings[name] = check_setting(name, value, self.limits)
        except InvalidArgument as exc:
            self._reject(path, exc.problem)

    def _duration(self, name: str, value: Any) -> timedelta | None:
        if not isinstance(value, str):
            raise InvalidArgument(name, f"{_shown(value)} must be a text with an ISO 8601 duration such as PT1M30S")
        found = parse_iso(value, name)
        return timedelta.max if found is None and name not in MAY_BE_NEVER else found

    def _must_be_absent(self, key: str, value: Any, path: str) -> None:
        kind = _UNSUPPORTED[key]
        if value is not None and not isinstance(value, kind):
            self._reject(path, f"{_shown(value)} must be {'true or false' if kind is bool else 'a text'}")
        elif value:
            self._unsupported(path, f"{json.dumps(value)} is not supported yet")

    def _window(self, given: dict[str, Any], value: Any, path: str) -> None:
        if given.get("RequiresDuplicateDetection") is True:
            return self._unsupported(path, "duplicate detection is not supported yet")
        try:
            self._duration(_WINDOW, value)
        except InvalidArgument as exc:
            self._reject(path, exc.problem)

    def _name(self, members: dict[str, Any], path: str, check: Callable[[str, Limits], str]) -> str:
        if "Name" not in members:
            self._reject(f"{path}.Name", "is missing")
            return ""
        try:
            return check(members["Name"], self.limits)
        except InvalidArgument as exc:
            self._reject(f"{path}.Name", exc.problem)
            return ""

    def _members(self, value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any] | None:
        """An object's members under the known spelling of their keys; None if it is no object. Unknown keys are rejected."""
        if not isinstance(value, _Object):
            self._reject(path, "is missing" if value is None else f"{_shown(value)} must be an object {{...}}")
            return None
        spelling = {name.lower(): name for name in known}
        prefix = "" if path == "(file)" else f"{path}."
        for name in value.twice:
            self._reject(prefix + name, "is given twice")
        for name in value:
            if name.lower() not in spelling and not name.startswith("$"):
                self._reject(prefix + name, f"is not known here; known are {', '.join(known)}")
        return {spelling[name.lower()]: member for name, member in value.items() if name.lower() in spelling}

    def _items(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        if value is None:
            return
        if not isinstance(value, list):
            return self._reject(path, f"{_shown(value)} must be a list [...]")
        for index, item in enumerate(value):
            yield item, f"{path}[{index}]"

    def _no_name_twice(self, names: list[str], path: str) -> None:
        lowered = [name.lower() for name in names]
        for index, name in enumerate(lowered):
            if name and name in lowered[:index]:
                self._reject(f"{path}[{index}].Name", f"{names[index]!r} is there already; names are compared without case")

    def _reject(self, path: str, text: str) -> None:
        self.problems.append(Problem(path, text))

    def _unsupported(self, path: str, text: str) -> None:
        self.problems.append(Problem(path, text, unsupported=True))


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
