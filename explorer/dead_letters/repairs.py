"""What a repair would do to a body: the difference, line by line, and what is wrong with it. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.common.errors import InvalidArgument
from explorer.operations.patching import merged, patched
from explorer.shared.bodies import pretty_json

MOST_LINES = 120
CONTEXT = 2
_CSS = {"+": "added", "-": "removed"}
MOST_CHARACTERS = 64 * 1024  # of a body that can be edited here


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one body. lines: ("added", "removed" or "", text with its sign). problem: why there is none."""

    number: int
    lines: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    left_out: int = 0


def editable(body: bytes) -> str | None:
    """The body as text for an editor: JSON is indented. None: it is no text, or too long."""
    if len(body) > MOST_CHARACTERS:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else pretty_json(text) or text


def change(number: int, body: bytes, options: Mapping[str, Any], largest: int) -> Change:
    """What the options of a repair would do to a body."""
    try:
        after = patched(body, options)
    except ValueError as problem:
        return Change(number, problem=f"{problem}")
    if len(after) > largest:
        return Change(number, problem=f"with its new body it has {len(after):,} bytes; {largest:,} are allowed")
    lines = _lines(_shown(body), _shown(after))
    return Change(number, tuple(lines[:MOST_LINES]), "" if lines else "nothing would change", max(0, len(lines) - MOST_LINES))


def parsed_patch(text: str) -> dict[str, Any]:
    """A merge patch as written in a form. Raises InvalidArgument that says what is wrong, and where."""
    try:
        patch = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise InvalidArgument("patch", f"is not JSON: {problem.msg} at {where}") from None
    except (ValueError, RecursionError) as problem:
        raise InvalidArgument("patch", f"cannot be used: {problem}") from None
    if not isinstance(patch, dict):
        raise InvalidArgument("patch", 'must be a JSON object, such as {"currency": "EUR"}; members that are null are removed')
    if not patch:
        raise InvalidArgument("patch", "is empty, so it changes nothing")
    return patch


def parsed_properties(text: str) -> dict[str, str]:
    """Properties as written in a form, one "name=value" in each line. Raises InvalidArgument."""
    found = {}
    for place, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise InvalidArgument("properties", f"line {place} must be name=value")
        found[name.strip()] = value.strip()
    return found


def patch_between(before: bytes, after: str) -> str:
    """The merge patch that makes one JSON object of another, as JSON; empty if there is none, as for a member set to null."""
    try:
        old, new = json.loads(before), json.loads(after)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(old, dict) or not isinstance(new, dict) or old == new:
        return ""
    patch = _between(old, new)
    return json.dumps(patch, ensure_ascii=False) if merged(old, patch) == new else ""


def _between(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = dict.fromkeys(name for name in old if name not in new)
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif old[name] != value:
            both_objects = isinstance(old[name], dict) and isinstance(value, dict)
            patch[name] = _between(old[name], value) if both_objects else value
    return patch


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _shown(body: bytes) -> list[str]:
    text = body.decode(errors="replace")
    return (pretty_json(text) or text).splitlines()


def _lines(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    found = []
    for line in list(difflib.unified_diff(before, after, n=CONTEXT, lineterm=""))[2:]:
        found.append(("", "…") if line.startswith("@@") else (_CSS.get(line[:1], ""), f"{line[:1]} {line[1:]}"))
    return found[1:] if found and found[0][1] == "…" else found
