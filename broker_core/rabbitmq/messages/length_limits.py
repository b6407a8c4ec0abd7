"""Length limits: the maximum number of ready messages and their bytes in a queue (RMQ-090 to RMQ-099)."""

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
    """Whether the queue rejects publishes over its limit instead of dropping messages from its head."""
    return is_limited(queue) and queue.effective.get("overflow") in (REJECT_PUBLISH, REJECT_PUBLISH_DLX)


def exceeds(queue: QueueInfo, n: int, size: int) -> bool:
    """Whether this many ready messages or bytes exceed the queue's limit."""
    most, most_bytes = queue.effective.get("max_length"), queue.effective.get("max_length_bytes")
    return most is not None and n > most or most_bytes is not None and size > most_bytes


def ready(entity_ids: Sequence[int]) -> Steps:
    """The number of ready messages of each queue and their bytes, by queue id."""
    rows = yield call("rabbit_ready", entity_ids=list(entity_ids))
    return {row.entity_id: (row.n, row.bytes) for row in rows}


class Capacity:
    """Remaining capacity of queues that reject publishes, in a transaction that holds their counters."""

    def __init__(self):
        self._used: dict[int, tuple[int, int]] = {}

    def load(self, queues: Iterable[QueueInfo], *, lock: bool = True) -> Steps:
        """Read the current length of queues that reject publishes. lock: lock their counters first; False for previews."""
        ids = [queue.id for queue in queues if refuses(queue) and queue.id not in self._used]
        if ids:
            if lock:
                yield call("rabbit_lock_counters", entity_ids=ids)
            self._used |= yield from ready(ids)

    def fits(self, queue: QueueInfo, size: int) -> bool:
        """Whether a message of this size fits."""
        if queue.id not in self._used:
            return True
        n, used = self._used[queue.id]
        return not exceeds(queue, n + 1, used + size)

    def admit(self, queue: QueueInfo, size: int) -> bool:
        """Whether a message of this size fits; if so, it is counted (RMQ-093)."""
        if not self.fits(queue, size):
            return False
        if queue.id in self._used:
            n, used = self._used[queue.id]
            self._used[queue.id] = n + 1, used + size
        return True
