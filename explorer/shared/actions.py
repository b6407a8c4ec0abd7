"""What can be done to a message, as its page offers it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done to the message. why_not: the reason where it cannot be; says: what it does."""

    name: str
    label: str
    icon: str
    why_not: str = ""
    says: str = ""
