"""What changes would do to the messages that are there: what the previews of all families have in common.

A preview counts effects, and names by a token all that it counted. Who applies it counts again: with another token the world has
moved, and nothing is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from broker_core.common.errors import WorldMoved
from broker_core.common.types import EntityAddress

SCAN_CAP = 100_000  # messages that a preview of an entity looks at


@dataclass(frozen=True, slots=True)
class Effect:
    """What would happen to `count` messages of one list.

    what:     a member of its family's What. address: the list. reason: of dead-lettering.
    samples:  the lowest of their sequence numbers, at most five.
    at_least: not all messages were looked at, so there may be more.
    """

    what: StrEnum
    address: EntityAddress
    count: int
    samples: tuple[int, ...] = ()
    reason: str | None = None
    at_least: bool = False

    def __str__(self) -> str:
        because = f" ({self.reason})" if self.reason else ""
        number = f"{'at least ' if self.at_least else ''}{self.count:,} message{'' if self.count == 1 else 's'}"
        return f"{number} of {self.address}: {self.what}{because}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What an action on an entity would do at `at` of the namespace's clock.

    before, after: the settings; None where it changes none. changes: as asked for.
    token:    of everything that was counted: equal tokens mean the same settings and the same effects on the same messages.
    notes:    what the change means beside what it does to messages.
    scanned:  messages looked at; capped: looking stopped at SCAN_CAP.
    """

    address: EntityAddress
    at: datetime
    token: str
    effects: tuple[Effect, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    before: Any = None
    after: Any = None
    notes: tuple[str, ...] = ()
    scanned: int = 0
    capped: bool = False

    def count(self, what: StrEnum) -> int:
        """Messages of all lists to which this would happen."""
        return counted(self.effects, what)


def counted(effects: Sequence[Effect], what: StrEnum) -> int:
    return sum(effect.count for effect in effects if effect.what is what)


def token_of(*facts: Any) -> str:
    """Equal for equal facts, whose texts say all of them."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def require_same(previewed: Foreseen, now: Foreseen) -> None:
    """Raise WorldMoved unless the same would happen now as was previewed."""
    if now.token == previewed.token:
        return
    if now.before != previewed.before:
        raise WorldMoved(str(previewed.address), "its settings have changed")
    raise WorldMoved(str(previewed.address), f"the effect would now be: {listed(now.effects)}")


def listed(effects: Sequence[Effect]) -> str:
    """Effects in words, for who is told that they are others now."""
    return "; ".join(map(str, effects)) or "no effect on any message"
