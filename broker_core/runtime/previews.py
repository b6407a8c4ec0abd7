"""Previews: what a change would do to existing messages, before it is made. Shared by all families.

A preview counts effects, and its token stands for everything that was counted. A change that must do exactly what was previewed
takes that token: the effects are counted again in the transaction that makes it, and if they differ nothing is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar, cast

from broker_core.common.arguments import require_kind
from broker_core.common.errors import PreviewOutdated
from broker_core.common.types import EntityAddress
from broker_core.store.driver import Atomically, Steps

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


class Action(StrEnum):
    CHANGE = "change"
    DELETE = "delete"
    PURGE = "purge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an action would do at `at` of the namespace's clock.

    subject:  the address of an entity, or what else is changed, in words.
    before, after: the settings; None where there are none. changes: as asked for.
    token:    of everything that was counted: equal tokens mean the same settings and the same effects on the same messages.
    notes:    what the change means beside its effects on messages.
    scanned:  messages looked at; capped: there are more than SCAN_CAP, so numbers are lower bounds.
    """

    subject: EntityAddress | str
    at: datetime
    token: str
    action: Action = Action.CHANGE
    effects: tuple[Effect, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    before: Any = None
    after: Any = None
    notes: tuple[str, ...] = ()
    scanned: int = 0
    capped: bool = False

    @property
    def address(self) -> EntityAddress:
        """Of a preview of an entity."""
        require_kind("subject", self.subject, EntityAddress)
        return cast(EntityAddress, self.subject)

    def count(self, what: StrEnum) -> int:
        """Messages of all lists to which this would happen."""
        return sum(effect.count for effect in self.effects if effect.what is what)


P = TypeVar("P", bound=Preview)


def make_if_unchanged(counted: Steps[P], make: Callable[[], Steps], expected: Preview | str | None = None) -> Steps:
    """Count, compare and make a change in one transaction. Returns (the preview as counted, what `make` returned).

    expected: the preview that must still be true, or its token; None makes the change whatever its effects. Raises WorldMoved and
    changes nothing if effects or settings differ now.
    """

    def steps() -> Steps:
        now = yield from counted
        require_same(expected, now)
        return now, (yield from make())

    return (yield Atomically(steps()))


def token_of(*facts: Any) -> str:
    """Equal for equal facts, whose texts say all of them."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def require_same(expected: Preview | str | None, now: Preview) -> None:
    """Raise WorldMoved unless the same would happen now as was previewed."""
    if expected is None or now.token == (expected if isinstance(expected, str) else expected.token):
        return
    if isinstance(expected, Preview) and now.before != expected.before:
        raise PreviewOutdated(str(now.subject), "its settings have changed")
    raise PreviewOutdated(str(now.subject), f"the effect would now be: {_listed(now.effects)}")


def _listed(effects: Sequence[Effect]) -> str:
    return "; ".join(map(str, effects)) or "no effect on any message"
