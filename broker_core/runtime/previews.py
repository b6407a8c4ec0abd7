"""Previews: the effects of a change on existing messages, counted before it is made. Shared by all families.

The token of a preview identifies everything that was counted. A change given a token counts the effects again in its own
transaction, and is refused with PreviewOutdated if they differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar, cast

from broker_core.common.arguments import require_kind
from broker_core.common.errors import PreviewOutdated
from broker_core.common.types import EntityAddress
from broker_core.store.driver import Atomically, Steps

_HALF = 16  # digits of each part of a token
SCAN_CAP = 100_000  # maximum number of messages examined by a preview of an entity


@dataclass(frozen=True, slots=True)
class Effect:
    """What would happen to `count` messages of one list.

    what:     a member of the family's enum of effects. address: the list. reason: of dead-lettering.
    samples:  the lowest sequence numbers, at most five.
    at_least: not all messages were examined, so there may be more.
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
class Preview:
    """The effects of an action at `at` of the namespace's clock.

    subject:  the address of an entity, or the name of another object that is changed.
    before, after: the settings; None if there are none.
    token:    equal tokens mean the same settings and the same effects on the same messages (token_of).
    notes:    consequences of the change other than effects on messages.
    scanned:  number of messages examined; capped: there are more than SCAN_CAP, so numbers are lower bounds.
    """

    subject: EntityAddress | str
    at: datetime
    token: str
    effects: tuple[Effect, ...] = ()
    before: Any = None
    after: Any = None
    notes: tuple[str, ...] = ()
    scanned: int = 0
    capped: bool = False

    @property
    def address(self) -> EntityAddress:
        """The entity, in a preview of an entity."""
        require_kind("subject", self.subject, EntityAddress)
        return cast(EntityAddress, self.subject)

    @property
    def namespace(self) -> str:
        return self.address.namespace

    def count(self, what: StrEnum) -> int:
        """The number of messages with this effect, in all lists."""
        return sum(effect.count for effect in self.effects if effect.what is what)


P = TypeVar("P", bound=Preview)


def make_if_unchanged(counted: Steps[P], make: Callable[[], Steps], token: str | None = None) -> Steps[P]:
    """Count the effects, compare them with `token` and make the change, in one transaction. Returns the preview.

    token: of the preview that must still hold; None makes the change whatever its effects. Raises PreviewOutdated and changes
    nothing if effects or settings differ.
    """

    def steps() -> Steps[P]:
        now = yield from counted
        _require_same(token, now)
        yield from make()
        return now

    return (yield Atomically(steps()))


def token_of(settings: Any, *facts: Any) -> str:
    """Hashes of the settings before the change, and of what else was counted. All must have a complete repr."""
    return _hash(settings) + _hash(facts)


def _hash(facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:_HALF]


def _require_same(token: str | None, now: Preview) -> None:
    if token is None or token == now.token:
        return
    if token[:_HALF] != now.token[:_HALF]:
        raise PreviewOutdated(str(now.subject), "its settings have changed")
    raise PreviewOutdated(str(now.subject), f"the effect would now be: {_listed(now.effects)}")


def _listed(effects: Sequence[Effect]) -> str:
    return "; ".join(map(str, effects)) or "no effect on any message"
