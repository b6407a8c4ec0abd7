"""What an explanation is made of, in every family: reasons, of which some are obstacles, and a place in the queue. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that bears on whether the message is delivered.

    code:    a member of its family's Code.
    text:    a sentence for people. values: what decided it, by name. change: what would make it otherwise; may be empty.
    ends_at: the instant (namespace's clock) at which the clock alone ends it; None: no instant does.
    is_obstacle: whether it keeps the message from being received; the others say where the message stands.
    """

    code: StrEnum
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    ends_at: datetime | None = None
    change: str = ""
    is_obstacle: bool = True


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """How many deliverable messages a receive returns before this one; capped: counted no further."""

    before: int = 0
    capped: bool = False


def is_deliverable(reasons: Sequence[Reason]) -> bool:
    """Whether nothing of what `explain` found keeps the message back."""
    return not any(reason.is_obstacle for reason in reasons)
