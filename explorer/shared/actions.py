"""What can be done to a message, as its page offers it, and to those that are selected in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker_core import reads
from broker_core.common.errors import InvalidArgument

MAX_SELECTED = reads.PAGE_ROWS


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done to the message. why_not: the reason where it cannot be; says: what it does."""

    name: str
    label: str
    icon: str
    why_not: str = ""
    says: str = ""


def selected_numbers(given: Sequence[str]) -> list[int]:
    """The sequence numbers ticked in a list. Raises InvalidArgument for none, too many, or what is no number."""
    if not given:
        raise InvalidArgument("selection", "is empty; select messages first")
    if len(given) > MAX_SELECTED or not all(n.isascii() and n.isdigit() and len(n) <= 18 for n in given):
        raise InvalidArgument("selection", f"must be at most {MAX_SELECTED} sequence numbers")
    return sorted({int(n) for n in given})
