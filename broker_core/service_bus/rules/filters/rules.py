"""Rules of subscriptions: a name, a filter and an optional action; and their JSON form in the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker_core.common.arguments import require_kind
from broker_core.common.errors import FilterEvaluationError, InvalidArgument, MessageTooLarge
from broker_core.service_bus.rules.amqp.properties import decode_properties, encode_properties
from broker_core.service_bus.rules.limits import STRICT
from broker_core.service_bus.rules.messages import prepare
from broker_core.service_bus.rules.values import Message

from .actions import Action, compile_action
from .correlation import CorrelationFilter
from .sql import FalseFilter, SqlFilter, TrueFilter, compile_filter
from .view import MessageView

DEFAULT_RULE_NAME = "$Default"
RULE_NAME = "RuleName"
_NOT_IN_NAMES = "/\\@?#"

Filter = SqlFilter | CorrelationFilter | TrueFilter | FalseFilter


@dataclass(frozen=True, slots=True)
class Rule:
    """name: 1 to 50 characters without / \\ @ ? # (SB-F20); unique in its subscription (case-insensitive)."""

    name: str
    filter: Filter = TrueFilter()
    action: Action | None = None

    def __post_init__(self) -> None:
        check_rule_name(self.name)
        require_kind("filter", self.filter, Filter)
        if self.action is not None:
            require_kind("action", self.action, Action)

    def copy(self, message: Message, view: MessageView | None = None) -> Message:
        """The copy of a message made by a rule with an action, with the property RuleName (SB-212).

        Raises FilterEvaluationError, also for a copy that could not be stored.
        """
        changed = self.action.apply(message, view) if self.action else message
        remaining = {name: value for name, value in changed.properties.items() if name.lower() != RULE_NAME.lower()}
        changed = replace(changed, properties=remaining | {RULE_NAME: self.name})
        try:
            prepare(changed)
        except (InvalidArgument, MessageTooLarge) as exc:
            raise FilterEvaluationError(f"the changed message is invalid: {exc}") from exc
        return changed


def check_rule_name(name: str) -> None:
    """Raise InvalidArgument for an invalid name."""
    if not isinstance(name, str) or not 1 <= len(name) <= STRICT.rule_name:
        raise InvalidArgument("rule name", f"must be 1 to {STRICT.rule_name} characters")
    bad = next((c for c in name if c in _NOT_IN_NAMES or c < " " or "\ud800" <= c <= "\udfff"), None)
    if bad is not None:
        raise InvalidArgument("rule name", f"{name!r} contains {bad!r}; names cannot contain / \\ @ ? # or control characters")


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """A rule as stored: {"name", "filter": {"type", ...}, "action": {"expression", "parameters"} or None}."""
    action = rule.action and {"expression": rule.action.text, "parameters": encode_properties(rule.action.parameters)}
    return {"name": rule.name, "filter": filter_to_json(rule.filter), "action": action}


def rule_from_json(stored: Mapping[str, Any]) -> Rule:
    """The inverse of rule_to_json. Raises InvalidArgument for an invalid rule."""
    try:
        action = stored.get("action")
        return Rule(stored["name"], filter_from_json(stored["filter"]), action and _compiled(compile_action, action))
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        raise InvalidArgument("rule", f"{stored!r} is not a valid stored rule") from exc


def filter_to_json(filter: Filter) -> dict[str, Any]:
    match filter:
        case TrueFilter():
            return {"type": "true"}
        case FalseFilter():
            return {"type": "false"}
        case SqlFilter():
            return {"type": "sql", "expression": filter.text, "parameters": encode_properties(filter.parameters)}
    return {"type": "correlation", **filter.texts, "properties": encode_properties(filter.properties)}


def filter_from_json(stored: Mapping[str, Any]) -> Filter:
    match stored["type"]:
        case "true":
            return TrueFilter()
        case "false":
            return FalseFilter()
        case "sql":
            return _compiled(compile_filter, stored)
        case "correlation":
            texts = {name: value for name, value in stored.items() if name not in ("type", "properties")}
            return CorrelationFilter(**texts, properties=decode_properties(stored.get("properties") or {}))
    raise InvalidArgument("filter type", f"{stored['type']!r} must be sql, correlation, true or false")


def _compiled(compile_text: Callable[[str, Mapping[str, Any]], Any], stored: Mapping[str, Any]) -> Any:
    return compile_text(stored["expression"], decode_properties(stored.get("parameters") or {}))
