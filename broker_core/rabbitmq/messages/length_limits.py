"""Length limits: how many messages, and bytes, a queue may have ready (RMQ-090 to RMQ-099)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.store.driver import Steps
from broker_core.store.statements import call

REJECT_PUBLISH = "reject-publish"
REJECT_PUBLISH_DLX = "reject-publish-dlx"


def is_limited(queue: QueueInfo) -> bool:
    return "max_length" in queue.effective or "max_length_bytes" in queue.effective


def drops_head(queue: QueueInfo) -> bool:
    return is_limited(queue) and not refuses(queue)


def refuses(queue: QueueInfo) -> bool:
    """Whether it refuses what would be too much, rather than make room for it."""
    return is_limited(queue) and queue.effective.get("overflow") in (REJECT_PUBLISH, REJECT_PUBLISH_DLX)


def exceeds(queue: QueueInfo, n: int, size: int) -> bool:
    """Whether so many ready messages, or so many bytes, are more than it may have."""
    most, most_bytes = queue.effective.get("max_length"), queue.effective.get("max_length_bytes")
    return most is not None and n > most or most_bytes is not None and size > most_bytes


def ready(entity_ids: Sequence[int]) -> Steps:
    """How many messages of each queue are ready, and their bytes, by id."""
    rows = yield call("rabbit_ready", entity_ids=list(entity_ids))
    return {row.entity_id: (row.n, row.bytes) for row in rows}


class Rooms:
    """What queues that refuse still take, in a transaction that holds their counters."""

    def __init__(self):
        self._used: dict[int, tuple[int, int]] = {}

    def look(self, queues: Iterable[QueueInfo], *, hold: bool = True) -> Steps:
        """Hold and count those of them that refuse and were not looked at yet. hold: False only counts: nothing is stored."""
        ids = [queue.id for queue in queues if refuses(queue) and queue.id not in self._used]
        if ids:
            if hold:
                yield call("rabbit_lock_counters", entity_ids=ids)
            self._used |= yield from ready(ids)

    def fits(self, queue: QueueInfo, size: int) -> bool:
        """Whether a message of so many bytes would be taken."""
        if queue.id not in self._used:
            return True
        n, used = self._used[queue.id]
        return not exceeds(queue, n + 1, used + size)

    def admit(self, queue: QueueInfo, size: int) -> bool:
        """Whether a message of so many bytes is taken; then it is in (RMQ-093)."""
        if not self.fits(queue, size):
            return False
        if queue.id in self._used:
            n, used = self._used[queue.id]
            self._used[queue.id] = n + 1, used + size
        return True
