"""Actions on a message, for its page, and the selection of several messages in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker_core import reads
from broker_core.common.errors import InvalidArgument

MAX_SELECTED = reads.PAGE_ROWS


@dataclass(frozen=True, slots=True)
class Action:
    """An action on the message.

    why_not: the reason why it is disabled; empty: enabled. says: what it does. asks_reason: whether a dialog asks for the
    operator's reason first, which is posted as "reason". is_danger: it is coloured so.
    """

    name: str
    label: str
    icon: str
    why_not: str = ""
    says: str = ""
    asks_reason: bool = False
    is_danger: bool = False


def selected_numbers(texts: Sequence[str]) -> list[int]:
    """The sequence numbers selected in a list. Raises InvalidArgument if there are none, too many or invalid ones."""
    if not texts:
        raise InvalidArgument("selection", "is empty; select messages first")
    if len(texts) > MAX_SELECTED or not all(n.isascii() and n.isdigit() and len(n) <= 18 for n in texts):
        raise InvalidArgument("selection", f"must be at most {MAX_SELECTED} sequence numbers")
    return sorted({int(n) for n in texts})
