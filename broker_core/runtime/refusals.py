"""Records settlements that came too late, so that a message's history can explain them (docs/design.md D7).

Only a refused call does this, after the statement that refused it. A process records at most MOST_PER_SECOND, because a client
with a wrong token may repeat it as fast as it can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from broker_core.common.types import SubQueue
from broker_core.store.driver import Steps
from broker_core.store.statements import call

MOST_AT_ONCE = 100  # of one call
MOST_PER_SECOND = 200.0


class Allowance:
    """So many per second, and as many at once. Thread-safe."""

    def __init__(self, per_second: float):
        self._rate = self._left = per_second
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def take(self, requested: int) -> int:
        """How many of the wanted ones are allowed now."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._rate, self._left + (now - self._at) * self._rate)
            self._at = now
            taken = min(requested, int(self._left))
            self._left -= taken
            return taken


_allowance = Allowance(MOST_PER_SECOND)


def record(entity_id: int, subqueue: SubQueue, numbers: Sequence[int], *, actor: str, what: str) -> Steps[None]:
    """Record that the actor's settlement `what` of these messages was refused."""
    allowed = _allowance.take(min(len(numbers), MOST_AT_ONCE))
    if allowed:
        yield call(
            "record_refusals",
            entity_id=entity_id,
            subqueue=int(subqueue),
            numbers=list(numbers[:allowed]),
            actor=actor,
            what=what,
        )
