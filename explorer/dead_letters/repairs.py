"""What a repair would do to bodies: the difference, line by line, and what is wrong with them."""

from __future__ import annotations

import difflib
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker_core import reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor
from broker_core.operations import Selection, entity_status
from explorer.bodies.display import pretty_json
from explorer.operations.patching import merged, parsed_json, patched
from explorer.operations.selecting import count, matching_part

CHECK_SECONDS = 1.0
CHECK_PAGE, CHECK_BYTES = 500, 4 * 2**20
MOST_REFUSED = 10
EXAMPLES = 3
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


@dataclass(frozen=True, slots=True)
class Checked:
    """What a repair would do to the messages of a group. refused: the first ones that would stay, (number, reason).
    is_complete: False if there are more messages than were checked. examples: some numbers, newest first: of messages whose
    bodies change; if there are too few, of others."""

    count: int
    refused: Sequence[tuple[int, str]]
    refused_count: int
    is_complete: bool
    examples: Sequence[int] = ()

    @property
    def repairable(self) -> int:
        return self.count - self.refused_count


def check_all(chosen: Selection, options: Mapping[str, Any], largest: int | None, actor: Actor) -> Checked:
    """Check a repair on all messages of a group, lowest number first, within a time. largest: message, in bytes; None: the
    entity's own limit."""
    counted = count(chosen, actor=actor)
    chosen, deadline = counted.selection, time.monotonic() + CHECK_SECONDS
    if largest is None:
        largest = entity_status(chosen.address.namespace, counted.entity_id).largest
    position, at_end, checked, refused = 0, False, 0, []
    newest: dict[bool | None, deque[int]] = {effect: deque(maxlen=EXAMPLES) for effect in (True, False, None)}
    while not at_end and time.monotonic() < deadline:
        numbers, position, at_end = matching_part(chosen, position, CHECK_PAGE, actor)
        while numbers and time.monotonic() < deadline:
            contents = reads.contents(chosen.address, numbers, max_bytes=CHECK_BYTES, actor=actor)
            for detail, body in contents:
                after, problem = _after(body, options, largest - max(0, detail.row.size - detail.body_size))
                refused += [(detail.row.sequence_number, problem)] if problem else []
                newest[None if problem else after != body].append(detail.row.sequence_number)
            checked += len(contents)
            last = contents[-1][0].row.sequence_number if contents else numbers[-1]
            numbers = [number for number in numbers if number > last]
        at_end = at_end and not numbers
    examples = [number for numbers in newest.values() for number in reversed(numbers)][:EXAMPLES]
    return Checked(checked, refused[:MOST_REFUSED], len(refused), at_end, examples)


def _after(body: bytes, options: Mapping[str, Any], largest: int) -> tuple[bytes, str]:
    """The repaired body, and why it cannot be repaired; empty: it can."""
    try:
        after = patched(body, options)
    except ValueError as problem:
        return body, str(problem)
    too_large = f"with its new body it has {len(after):,} bytes; {largest:,} are allowed"
    return after, too_large if len(after) > largest else ""


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
    after, problem = _after(body, options, largest)
    if problem:
        return Change(number, problem=problem)
    lines = _lines(_display_lines(body), _display_lines(after))
    return Change(number, tuple(lines[:MOST_LINES]), "" if lines else "nothing would change", max(0, len(lines) - MOST_LINES))


def parsed_patch(text: str) -> dict[str, Any]:
    """A merge patch as written in a form. Raises InvalidArgument that says what is wrong, and where."""
    try:
        patch = parsed_json(text)
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
    properties = {}
    for place, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise InvalidArgument("properties", f"line {place} must be name=value")
        properties[name.strip()] = value.strip()
    return properties


def patch_between(before: bytes, after: str) -> str:
    """The merge patch that makes one JSON object of another, as JSON; empty if there is none, as for a member set to null."""
    try:
        old, new = parsed_json(before.decode()), parsed_json(after)
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


def _display_lines(body: bytes) -> list[str]:
    text = body.decode(errors="replace")
    return (pretty_json(text) or text).splitlines()


def _lines(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    lines = []
    for line in list(difflib.unified_diff(before, after, n=CONTEXT, lineterm=""))[2:]:
        lines.append(("", "…") if line.startswith("@@") else (_CSS.get(line[:1], ""), f"{line[:1]} {line[1:]}"))
    return lines[1:] if lines and lines[0][1] == "…" else lines
