"""Read the official emulator's Config.json into a plan of entities and a list of problems.

Accepts comments, trailing commas, keys in any casing, several namespaces, and the service's ranges, which are wider than the
emulator's. Anything else that is wrong is a Problem with its JSON path; all problems are found in one pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from broker_core.common.durations import parse_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Behaviour, EntityKind

from .entity_settings import (
    DURATIONS,
    FIXED,
    KEPT,
    MAY_BE_NEVER,
    SERVICE_NAMES,
    SERVICE_SETTINGS,
    SETTINGS_OF,
    check_namespace_name,
    check_path,
    check_setting,
    check_subscription_name,
)
from .filters import ELEMENTS, Action, CorrelationFilter, Filter, Rule, check_rule_name, compile_action, compile_filter
from .kept_properties import KEPT_OF, check_kept
from .limits import STRICT, Limits

EMULATOR_DEFAULTS = {
    "default_message_time_to_live": timedelta(hours=1),
    "max_delivery_count": 3,
    "duplicate_detection_history_time_window": timedelta(seconds=20),
}

_WINDOW = "DuplicateDetectionHistoryTimeWindow"  # ignored without RequiresDuplicateDetection
_FILTERS = {"correlation": "CorrelationFilter", "sql": "SqlFilter"}

# Strings are matched first, so that comments and trailing commas inside them are not removed.
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that prevents the import."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class RulePlan:
    """A rule. where (also below): its path in the file."""

    rule: Rule
    where: str = ""


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue, with the settings that were given or differ from the service's defaults."""

    path: str
    settings: dict[str, Any]
    where: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    """A subscription and its settings, as in QueuePlan. rules: the complete list; empty: existing rules are kept."""

    name: str
    settings: dict[str, Any]
    where: str = ""
    rules: list[RulePlan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic and its settings, as in QueuePlan."""

    path: str
    settings: dict[str, Any]
    where: str = ""
    subscriptions: list[SubscriptionPlan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """A namespace. behaviour: None: not given, so that of an existing namespace is kept; unknown to the emulator."""

    name: str
    queues: list[QueuePlan] = field(default_factory=list)
    topics: list[TopicPlan] = field(default_factory=list)
    where: str = ""
    behaviour: Behaviour | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The contents of a file. problems: in the order of the file; values with problems are left out of `namespaces`."""

    namespaces: list[NamespacePlan] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def namespace(self) -> str | None:
        """The first namespace. A plan is applied in one transaction, so its namespaces are in one database."""
        return self.namespaces[0].name if self.namespaces else None


def read(text: str, *, emulator_defaults: bool = False, limits: Limits = STRICT) -> Plan:
    """The plan described by a configuration file. Problems of the file are not raised, but listed in Plan.problems."""
    try:
        document = loads(text)
    except ValueError as exc:
        return Plan(problems=[Problem("(file)", str(exc))])
    return _Reader(EMULATOR_DEFAULTS if emulator_defaults else {}, limits).plan(document)


def loads(text: str) -> Any:
    """Parse JSON with comments and trailing commas. Raises ValueError with line and column in the original text."""
    text = _COMMENT.sub(_blank, text.removeprefix("\ufeff"))
    text = _TRAILING_COMMA.sub(_blank, text)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as exc:
        raise ValueError(f"is not valid JSON: {exc.msg} in line {exc.lineno}, column {exc.colno}") from exc
    except RecursionError as exc:
        raise ValueError("is nested too deeply") from exc


def _blank(match: re.Match) -> str:
    return match[1] or re.sub(r"[^\n]", " ", match[0])


def _no_constant(name: str) -> Any:
    raise ValueError(f"is not valid JSON: {name} is not a valid JSON number")


class _Object(dict):
    """A JSON object that records duplicate keys in `twice`."""

    twice: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object(pairs)
    names = [name.lower() for name, _ in pairs]
    result.twice = tuple(name for i, (name, _) in enumerate(pairs) if name.lower() in names[:i])
    return result


class _Reader:
    """Reads one document and collects its problems."""

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
        self._reject_duplicate_names([n.name for n in namespaces], path)
        return Plan([n for n in namespaces if n.name], self.problems)

    def _namespace(self, item: Any, path: str) -> NamespacePlan:
        members = self._members(item, path, ("Name", "Queues", "Topics", "Behaviour"))
        if members is None:
            return NamespacePlan("")
        name = self._name(members, path, check_namespace_name)
        queues = self._each(members, path, "Queues", self._queue)
        topics = self._each(members, path, "Topics", self._topic)
        self._reject_duplicate_names([q.path for q in queues], f"{path}.Queues")
        self._reject_duplicate_names([t.path for t in topics], f"{path}.Topics", [q.path for q in queues])
        behaviour = self._behaviour(members.get("Behaviour"), f"{path}.Behaviour")
        return NamespacePlan(name, [q for q in queues if q.path], [t for t in topics if t.path], path, behaviour)

    def _behaviour(self, value: Any, path: str) -> Behaviour | None:
        if value is None:
            return None
        try:
            return Behaviour(value.lower())
        except (ValueError, AttributeError):
            self._reject(path, f"{_formatted(value)} must be one of {', '.join(Behaviour)}")
            return None

    def _queue(self, item: Any, path: str) -> QueuePlan:
        members = self._members(item, path, ("Name", "Properties"))
        if members is None:
            return QueuePlan("", {})
        return QueuePlan(self._name(members, path, check_path), self._settings(EntityKind.QUEUE, members, path), path)

    def _topic(self, item: Any, path: str) -> TopicPlan:
        members = self._members(item, path, ("Name", "Properties", "Subscriptions"))
        if members is None:
            return TopicPlan("", {})
        name, settings = self._name(members, path, check_path), self._settings(EntityKind.TOPIC, members, path)
        subscriptions = self._each(members, path, "Subscriptions", self._subscription)
        self._reject_duplicate_names([s.name for s in subscriptions], f"{path}.Subscriptions")
        return TopicPlan(name, settings, path, [s for s in subscriptions if s.name])

    def _subscription(self, item: Any, path: str) -> SubscriptionPlan:
        members = self._members(item, path, ("Name", "Properties", "Rules"))
        if members is None:
            return SubscriptionPlan("", {})
        name = self._name(members, path, check_subscription_name)
        settings = self._settings(EntityKind.SUBSCRIPTION, members, path)
        rules = self._each(members, path, "Rules", self._rule)
        self._reject_duplicate_names([plan.rule.name if plan else "" for plan in rules], f"{path}.Rules")
        return SubscriptionPlan(name, settings, path, [plan for plan in rules if plan])

    # Rules

    def _rule(self, item: Any, path: str) -> RulePlan | None:
        members = self._members(item, path, ("Name", "Properties"))
        if members is None:
            return None
        name = self._name(members, path, _checked_rule_name)
        path = f"{path}.Properties"
        properties = self._members(members.get("Properties"), path, ("FilterType", *_FILTERS.values(), "Action"))
        if properties is None:
            return None
        rule_filter, action = self._filter(properties, path), self._action(properties, f"{path}.Action")
        return RulePlan(Rule(name, rule_filter, action), path.removesuffix(".Properties")) if name and rule_filter else None

    def _filter(self, properties: dict[str, Any], path: str) -> Filter | None:
        kind = str(properties.get("FilterType", "")).lower()
        if kind not in _FILTERS:
            self._reject(f"{path}.FilterType", f"{_formatted(properties.get('FilterType'))} must be Correlation or Sql")
            return None
        for other, key in _FILTERS.items():
            if other != kind and properties.get(key) is not None:
                self._reject(f"{path}.{key}", f"has no meaning where FilterType is {properties['FilterType']}")
        read = self._correlation if kind == "correlation" else self._sql
        return read(properties.get(_FILTERS[kind]), f"{path}.{_FILTERS[kind]}")

    def _correlation(self, value: Any, path: str) -> CorrelationFilter | None:
        members = self._members(value, path, (*ELEMENTS, "Properties"))
        if members is None:
            return None
        properties = members.get("Properties", _Object())
        if not isinstance(properties, _Object):
            self._reject(f"{path}.Properties", f"{_formatted(properties)} must be an object {{...}}")
            return None
        for name in properties.twice:
            self._reject(f"{path}.Properties.{name}", "is given twice")
            return None
        for name, expected in properties.items():
            if not isinstance(expected, (str, int, float)):
                self._reject(f"{path}.Properties.{name}", f"{_formatted(expected)} must be a string, a number, true or false")
                return None
        texts = {ELEMENTS[key]: text for key, text in members.items() if key in ELEMENTS}
        return self._try_make(path, lambda: CorrelationFilter(**texts, properties=dict(properties)))

    def _sql(self, value: Any, path: str) -> Filter | None:
        members = self._members(value, path, ("SqlExpression",))
        where = f"{path}.SqlExpression"
        text: Any = members and members.get("SqlExpression")
        return None if members is None else self._try_make(where, lambda: compile_filter(text))

    def _action(self, properties: dict[str, Any], path: str) -> Action | None:
        members = None if properties.get("Action") is None else self._members(properties["Action"], path, ("SqlExpression",))
        text = members.get("SqlExpression") if members else None
        return None if text in (None, "") else self._try_make(f"{path}.SqlExpression", lambda: compile_action(text))

    # Settings

    def _settings(self, kind: EntityKind, members: dict[str, Any], path: str) -> dict[str, Any]:
        path, known = f"{path}.Properties", (*SERVICE_SETTINGS[kind], *KEPT_OF[kind])
        properties = self._members(members.get("Properties", _Object()), path, known) or {}
        detects = properties.get("RequiresDuplicateDetection") is True
        settings = {n: v for n, v in self.defaults.items() if n in SETTINGS_OF[kind] and (detects or SERVICE_NAMES[n] != _WINDOW)}
        for key, value in properties.items():
            if key == _WINDOW and not detects:
                self._try_make(f"{path}.{key}", partial(self._duration, _WINDOW, value))
            else:
                self._property(kind, settings, key, value, f"{path}.{key}")
        return settings

    def _property(self, kind: EntityKind, settings: dict[str, Any], key: str, value: Any, path: str) -> None:
        name = SERVICE_SETTINGS[kind].get(key)
        if value is None and (name is None or name in FIXED):
            return  # treated as missing
        if name:
            self._setting(kind, settings, name, value, path)
        elif self._try_make(path, partial(check_kept, kind, {key: value})) is not None:
            settings[KEPT] = {**settings.get(KEPT, {}), key: value}

    def _setting(self, kind: EntityKind, settings: dict[str, Any], name: str, value: Any, path: str) -> None:
        try:
            value = self._duration(name, value) if name in DURATIONS else value
            settings[name] = check_setting(name, value, self.limits, kind)
        except InvalidArgument as exc:
            self._reject(path, exc.problem)

    def _duration(self, name: str, value: Any) -> timedelta | None:
        if not isinstance(value, str):
            raise InvalidArgument(name, f"{_formatted(value)} must be an ISO 8601 duration such as PT1M30S")
        duration = parse_iso(value, name)
        return timedelta.max if duration is None and name not in MAY_BE_NEVER else duration

    # Shared

    def _try_make(self, path: str, make: Callable[[], Any]) -> Any:
        """The result of `make`; if it raises InvalidArgument, None and a problem at this path."""
        try:
            return make()
        except InvalidArgument as exc:
            self._reject(path, exc.problem)
            return None

    def _name(self, members: dict[str, Any], path: str, check: Callable[[str], str]) -> str:
        if "Name" not in members:
            self._reject(f"{path}.Name", "is missing")
            return ""
        return self._try_make(f"{path}.Name", lambda: check(members["Name"])) or ""

    def _each(self, members: dict[str, Any], path: str, key: str, read: Callable[[Any, str], Any]) -> list:
        return [read(item, where) for item, where in self._items(members.get(key), f"{path}.{key}")]

    def _members(self, value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any] | None:
        """An object's members under the known spelling of their keys; None if it is not an object. Unknown keys are rejected."""
        if not isinstance(value, _Object):
            self._reject(path, "is missing" if value is None else f"{_formatted(value)} must be an object {{...}}")
            return None
        spelling = {name.lower(): name for name in known}
        prefix = "" if path == "(file)" else f"{path}."
        for name in value.twice:
            self._reject(prefix + name, "is given twice")
        for name in value:
            if name.lower() not in spelling and not name.startswith("$"):
                self._reject(prefix + name, f"is unknown; valid names are {', '.join(known)}")
        return {spelling[name.lower()]: member for name, member in value.items() if name.lower() in spelling}

    def _items(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        if value is None:
            return
        if not isinstance(value, list):
            self._reject(path, f"{_formatted(value)} must be a list [...]")
            return None
        for index, item in enumerate(value):
            yield item, f"{path}[{index}]"

    def _reject_duplicate_names(self, names: list[str], path: str, others: list[str] | tuple[str, ...] = ()) -> None:
        taken = {name.lower() for name in others}
        for index, name in enumerate(name.lower() for name in names):
            if name and name in taken:
                self._reject(f"{path}[{index}].Name", f"{names[index]!r} already exists; names are case-insensitive")
            taken.add(name)

    def _reject(self, path: str, text: str) -> None:
        self.problems.append(Problem(path, text))


def _checked_rule_name(name: str) -> str:
    check_rule_name(name)
    return name


def _formatted(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
