"""The parts of an explanation in every family: reasons, some of which are obstacles, and a position in the queue. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """One fact that affects whether the message is delivered.

    code:    a member of its family's Code.
    text:    a sentence for people. values: the values that decided it, by name. change: what would remove it; may be empty.
    ends_at: the instant (namespace's clock) at which it ends by itself; None: never.
    is_obstacle: whether it prevents the message from being received; other reasons describe the message's state.
    """

    code: StrEnum
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    ends_at: datetime | None = None
    change: str = ""
    is_obstacle: bool = True


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """How many deliverable messages a receive returns before this one; capped: there are at least so many."""

    before: int = 0
    capped: bool = False


def is_deliverable(reasons: Sequence[Reason]) -> bool:
    """Whether none of the reasons is an obstacle."""
    return not any(reason.is_obstacle for reason in reasons)
