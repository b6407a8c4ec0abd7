"""Repairs bodies: a new body, a JSON merge patch (RFC 7396), or a replaced text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from broker_core.common.errors import InvalidArgument

_DECODER = json.JSONDecoder(parse_int=str)  # a number of any length is skipped; it is not computed with
_UNCHANGED = object()
MOST_DIGITS = 1_000  # of an integer in a patch


def check_patch(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument unless the options of a repair say what is to be changed."""
    patch, body, properties = options.get("merge_patch"), options.get("body"), options.get("properties")
    replace = options.get("replace")
    if replace is not None and not (isinstance(replace, list) and len(replace) == 2 and replace[0]):
        raise InvalidArgument("find", "is empty: enter the text to be replaced")
    if patch is None and body is None and replace is None and not properties:
        raise InvalidArgument("merge_patch", 'is empty: say what to change, as a JSON object such as {"currency": "EUR"}')
    if patch is not None and not isinstance(patch, dict):
        raise InvalidArgument("merge_patch", "must be a JSON object; its members are set, and those that are null are removed")
    if body is not None and not isinstance(body, str):
        raise InvalidArgument("body", "must be text")


def parsed_json(text: str) -> Any:
    """JSON that a person entered. Raises ValueError for what could not be stored as it is written: a number that is too large
    for a double or has more digits, and a key that an object has twice."""
    try:
        return json.loads(text, parse_float=_float, parse_int=_integer, parse_constant=_refuse, object_pairs_hook=_object)
    except _Repeated as name:
        raise ValueError(f"an object has the key {name} twice") from None


def _float(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise ValueError(f"{_cut(token)} is larger than a number can be")
    try:
        is_exact = Decimal(token) == Decimal(repr(number))
    except ArithmeticError:  # an exponent beyond those of Decimal
        is_exact = False
    if not is_exact:
        raise ValueError(f"{_cut(token)} has more digits than a number can have; it would be stored as {number!r}")
    return number


def _integer(token: str) -> int:
    if len(token) > MOST_DIGITS:
        raise ValueError(f"{_cut(token)} has {len(token):,} digits; {MOST_DIGITS:,} are allowed")
    return int(token)


def _cut(token: str) -> str:
    return token if len(token) <= 40 else f"{token[:20]}…"


def merged(target: Any, patch: Any) -> Any:
    """The target with a JSON merge patch applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def patched(body: bytes, options: Mapping[str, Any]) -> bytes:
    """The repaired body. Raises ValueError with the reason why it cannot be repaired."""
    if options.get("body") is not None:
        return options["body"].encode()
    if options.get("replace") is not None:
        return _replaced(body, *options["replace"])
    if options.get("merge_patch") is None:
        return body
    return _merged_text(body, options["merge_patch"])


def _merged_text(body: bytes, patch: Mapping[str, Any]) -> bytes:
    """The JSON object with the patch applied. All that the patch does not name stays as it is written: if it were parsed and
    written again, its numbers would be rounded."""
    try:
        encoding = json.detect_encoding(body)
        text = body.decode(encoding)
        value = json.loads(text, parse_int=str, parse_constant=_refuse, object_pairs_hook=_object)
    except _Repeated as name:
        raise ValueError(f"its body has the key {name} twice") from None
    except (ValueError, RecursionError):
        raise ValueError("its body is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("its body is not a JSON object")
    start = text.index("{")
    try:
        after, end = _spliced(text, start, patch)
        return f"{text[:start]}{after}{text[end:]}".encode(encoding)
    except (ValueError, RecursionError):
        raise ValueError("its body cannot be written as JSON again") from None


class _Repeated(Exception):
    """The name of a member that an object has twice; readers of JSON differ about its value."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _Repeated(json.dumps(name[:40]))
        members[name] = value
    return members


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _spliced(text: str, start: int, patch: Mapping[str, Any]) -> tuple[str, int]:
    """The object that starts at this place of valid JSON, with the patch applied; and its end."""
    added, parts, leads = dict(patch), [], []
    tail, at = "", _after_space(text, start + 1)
    space = text[start + 1 : at]
    while text[at] != "}":
        leads.append(space)
        name, end = _DECODER.raw_decode(text, at)
        value = _after_space(text, _after_space(text, end) + 1)
        after, end = _value(text, value, added.pop(name, _UNCHANGED))
        comma = _after_space(text, end)
        tail = text[end:comma]
        if after is not None:
            parts.append(f"{space}{text[at:value]}{after}")
        at = _after_space(text, comma + 1) if text[comma] == "," else comma
        space = text[comma + 1 : at]
    parts += [
        f"{leads[-1] if leads else ''}{_written(name)}: {_written(value)}" for name, value in added.items() if value is not None
    ]
    if parts and leads:
        parts[0] = leads[0] + parts[0].lstrip()
    return f"{{{','.join(parts)}{tail}}}", at + 1


def _value(text: str, start: int, change: Any) -> tuple[str | None, int]:
    """The value that starts at this place after its change, None: it is removed; and its end."""
    if isinstance(change, dict) and text[start] == "{":
        return _spliced(text, start, change)
    end = _DECODER.raw_decode(text, start)[1]
    if change is _UNCHANGED:
        return text[start:end], end
    return None if change is None else _written(change), end


def _after_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _written(value: Any) -> str:
    return json.dumps(merged(None, value), ensure_ascii=False, allow_nan=False)


def _replaced(body: bytes, find: str, by: str) -> bytes:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ValueError("its body is not text in UTF-8") from None
    if find not in text:
        raise ValueError("its body does not contain the text")
    return text.replace(find, by).encode()
