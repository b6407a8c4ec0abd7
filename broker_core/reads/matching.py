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
    bounds = [one for one in numbers if one.field == "number" and not one.negated]
    return {
        "reads_bodies": filter.needs_bodies,
        "lowest": max((one.low for one in bounds if one.low is not None), default=0),
        "highest": min((one.high for one in bounds if one.high is not None), default=HIGHEST),
        "holds": None if filter.holds is None else list(filter.holds),
        "text_fields": _column(STORED.get(one.field, one.field) for one in texts),
        "text_patterns": _column(one.pattern.like if one.exact else f"%{one.pattern.like}%" for one in texts),
        "text_exact": _column(one.exact for one in texts),
        "text_negated": _negated(texts),
        "property_names": _column(one.name for one in properties),
        "property_operators": _column(one.operator or "" for one in properties),
        "property_patterns": _column(f"%{one.pattern.like}%" if one.operator == ":" else one.pattern.like for one in properties),
        "property_texts": _column(one.pattern.text for one in properties),
        "property_numbers": _column(_number(one.pattern.text) for one in properties),
        "property_negated": _negated(properties),
        "number_fields": _column(one.field for one in numbers),
        "number_lows": _column(one.low for one in numbers),
        "number_highs": _column(one.high for one in numbers),
        "number_negated": _negated(numbers),
        "time_fields": _column([*(one.field for one in ranges), *(one.field for one in ages)]),
        "time_starts": _column([*(one.start for one in ranges), *(None for _ in ages)]),
        "time_ends": _column([*(one.end for one in ranges), *(None for _ in ages)]),
        "age_lows": _column([*(None for _ in ranges), *(one.low for one in ages)]),
        "age_highs": _column([*(None for _ in ranges), *(one.high for one in ages)]),
        "time_negated": _negated([*ranges, *ages]),
        "states": _column(str(one.state) for one in states),
        "state_negated": _negated(states),
        "body_parts": _column(one.text.encode() for one in bodies),
        "body_negated": _negated(bodies),
        "json_paths": _column(map(json_path, values)),
        "json_negated": _negated(values),
    }


def _of(filter: MessageFilter, kind: type[Kind]) -> list[Kind]:
    return [one for one in filter.conditions if isinstance(one, kind)]


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
    return _column(one.negated for one in conditions)
