"""The conditions of a filter as parameters of the statements that search (fragments of store/sql/read.sql)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from .conditions import (
    NUMBER,
    Age,
    BodyText,
    Condition,
    InState,
    JsonValue,
    NumberRange,
    Property,
    Text,
    TimeRange,
)
from .filters import MessageFilter

Kind = TypeVar("Kind")
STORED = {  # the names in the column `properties`, where they differ from the key
    "correlation": "correlation_id", "content-type": "content_type", "reply-to": "reply_to", "routing-key": "routing_key",
    "user": "user_id", "app": "app_id",
}  # fmt: skip
HIGHEST = 2**63 - 2  # above every sequence number


def parameters(filter: MessageFilter) -> dict[str, Any]:
    """The parameters of the fragments `matches` and `json_matches`, and of the statements' own bounds."""
    texts, properties, numbers = _of(filter, Text), _of(filter, Property), _of(filter, NumberRange)
    ranges, ages, states = _of(filter, TimeRange), _of(filter, Age), _of(filter, InState)
    bodies, values = _of(filter, BodyText), _of(filter, JsonValue)
    bounds = [number for number in numbers if number.field == "number" and not number.negated]
    return {
        "reads_bodies": filter.needs_bodies,
        "lowest": max((bound.low for bound in bounds if bound.low is not None), default=0),
        "highest": min((bound.high for bound in bounds if bound.high is not None), default=HIGHEST),
        "holds": None if filter.holds is None else list(filter.holds),
        "text_fields": _column(STORED.get(text.field, text.field) for text in texts),
        "text_patterns": _column(text.pattern.like if text.exact else f"%{text.pattern.like}%" for text in texts),
        "text_exact": _column(text.exact for text in texts),
        "text_negated": _negated(texts),
        "property_names": _column(item.name for item in properties),
        "property_operators": _column(item.operator or "" for item in properties),
        "property_patterns": _column(
            f"%{item.pattern.like}%" if item.operator == ":" else item.pattern.like for item in properties
        ),
        "property_texts": _column(item.pattern.text for item in properties),
        "property_numbers": _column(_number(item.pattern.text) for item in properties),
        "property_negated": _negated(properties),
        "number_fields": _column(number.field for number in numbers),
        "number_lows": _column(number.low for number in numbers),
        "number_highs": _column(number.high for number in numbers),
        "number_negated": _negated(numbers),
        "time_fields": _column([*(span.field for span in ranges), *(span.field for span in ages)]),
        "time_starts": _column([*(span.start for span in ranges), *(None for _ in ages)]),
        "time_ends": _column([*(span.end for span in ranges), *(None for _ in ages)]),
        "age_lows": _column([*(None for _ in ranges), *(span.low for span in ages)]),
        "age_highs": _column([*(None for _ in ranges), *(span.high for span in ages)]),
        "time_negated": _negated([*ranges, *ages]),
        "states": _column(str(state.state) for state in states),
        "state_negated": _negated(states),
        "body_parts": _column(body.text.encode() for body in bodies),
        "body_negated": _negated(bodies),
        "json_paths": _column(map(json_path, values)),
        "json_negated": _negated(values),
    }


def _of(filter: MessageFilter, kind: type[Kind]) -> list[Kind]:
    return [condition for condition in filter.conditions if isinstance(condition, kind)]


def json_path(condition: JsonValue) -> str:
    """The condition as a path of SQL/JSON that finds something if the condition holds."""
    path = "$" + "".join(_step(step) for step in condition.steps)
    return path if condition.operator is None else f"{path} ? ({_predicate(condition)})"


def _predicate(condition: JsonValue) -> str:
    pattern, text = condition.pattern, json.dumps(condition.pattern.text)
    is_literal = not condition.is_quoted and pattern.is_plain and (
        NUMBER.fullmatch(pattern.text) is not None or pattern.text in ("true", "false", "null")
    )  # fmt: skip
    if condition.operator == ":":
        part = f'@ like_regex {json.dumps(pattern.regex)} flag "is"'
        return f"@ == {pattern.text} || {part}" if is_literal else part
    if condition.operator == "=":
        whole = f"@ == {text}" if pattern.is_plain else f'@ like_regex {json.dumps(f"^{pattern.regex}$")} flag "s"'
        return f"@ == {pattern.text} || {whole}" if is_literal else whole
    return f"@ {condition.operator} {pattern.text if is_literal else text}"


def _step(step: str | int | None) -> str:
    if step is None:
        return "[*]"
    return f"[{step}]" if isinstance(step, int) else f".{json.dumps(step)}"


def _number(text: str) -> Decimal | None:
    return Decimal(text) if NUMBER.fullmatch(text) else None


def _column(values: Iterable[Any]) -> list[Any] | None:
    return list(values) or None


def _negated(conditions: Sequence[Condition]) -> list[bool] | None:
    return _column(condition.negated for condition in conditions)
