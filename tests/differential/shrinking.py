"""Shortening a script that ends in a difference: steps are left out, then what steps say, as long as one is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from .scripts import Script, Step

Found = Any
_NEEDED = {"name", "queue", "channel", "tag", "exchange", "key", "body", "type", "nth", "how", "destination", "source"} | {
    *("definition", "count", "if_unused")
}


def shortest(
    script: Script, found: Found, differs: Callable[[Script], Found | None], seconds: float = 60
) -> tuple[Script, Found]:
    """The shortest script that was found within so many seconds to differ, and how it does. found: how `script` does."""
    ends_at, again = time.monotonic() + seconds, True
    while again and time.monotonic() < ends_at:
        again = False
        for shorter in _shorter(script):
            if time.monotonic() > ends_at:
                break
            if (difference := differs(shorter)) is not None:
                script, found, again = shorter, difference, True
                break
    return script, found


def _shorter(script: Script) -> Iterator[Script]:
    size = max(1, len(script) // 2)
    while size:
        for at in range(len(script), 0, -size):
            if shorter := script[: max(0, at - size)] + script[at:]:
                yield shorter
        size //= 2
    for at, step in enumerate(script):
        for simpler in _simpler(step):
            yield (*script[:at], simpler, *script[at + 1 :])


def _simpler(step: Step) -> Iterator[Step]:
    for name, value in step.given.items():
        rest = {other: step.given[other] for other in step.given if other != name}
        if name not in _NEEDED:
            yield Step(step.what, rest)
        if isinstance(value, dict) and len(value) > 1:
            for key in value:
                yield Step(step.what, step.given | {name: {k: v for k, v in value.items() if k != key}})
        if name == "body" and len(value) > 2 and "." in value:
            yield Step(step.what, step.given | {name: value.rstrip(".")})
