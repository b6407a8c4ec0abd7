"""Names of accounts and queues, and how a queue and its poison queue are paired (docs/queue-storage.md, QS-106)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from broker_core.common.errors import InvalidArgument

from .errors import InvalidResourceName, OutOfRangeInput

SHORTEST, LONGEST = 3, 63
POISON = "-poison"
SPENT = "MaxDequeueCountExceeded"  # why a message was moved to a poison queue (QS-105)
REQUEUED = "Requeued"  # why a message was moved from a poison queue back
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_QUEUE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def check_account_name(name: str) -> str:
    """Check a storage account's name and return it."""
    if not isinstance(name, str) or not _ACCOUNT.fullmatch(name):
        raise InvalidArgument("account", f"{name!r} must have 3 to 24 lower-case letters and digits")
    return name


def check_queue_name(name: str) -> str:
    """Check a queue's name and return it. The length is checked first; it has its own error code."""
    if not isinstance(name, str):
        raise InvalidArgument("queue", f"{name!r} must be a string")
    return _checked(name)


@lru_cache(maxsize=10_000)
def _checked(name: str) -> str:
    if not SHORTEST <= len(name) <= LONGEST:
        raise OutOfRangeInput(name, SHORTEST, LONGEST)
    if not _QUEUE.fullmatch(name):
        raise InvalidResourceName(name)
    return name


def poison_queue_of(name: str) -> str | None:
    """The conventional name of a queue's poison queue; None: there cannot be one (QS-106, QS-108)."""
    if name.endswith(POISON) or len(name) + len(POISON) > LONGEST:
        return None
    return name + POISON


def origin_of(poison_queue: str) -> str | None:
    """The queue that a poison queue belongs to by convention; None: it is not named by convention."""
    return poison_queue.removesuffix(POISON) if poison_queue.endswith(POISON) else None


def requeued_to(queue: str, came_from: Mapping | None) -> str | None:
    """The queue that a message of this poison queue is requeued to: the one that it was moved from as spent, else the one that
    this queue is named after; None: neither is known. A message that was requeued to this queue came from another poison queue,
    which is not its target.

    came_from: the message's stored origin (QS-109).
    """
    if came_from and came_from.get("reason") != REQUEUED:
        return came_from.get("path")
    return origin_of(queue)
