"""What reports read of the archive's files: the same before and after these are compacted."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.history import archive as archiving
from broker_core.history import compaction
from explorer.analysis.reports import stored
from explorer.analysis.reports.scope import Range


def test_reports_read_compacted_files(queue):
    address = EntityAddress("reports", "q")
    service_bus.complete(address, [message.lock_token for message in service_bus.receive(address, 1)])
    archiving.archive_events()
    scope: Any = SimpleNamespace(ids=[queue.pk], namespace=queue.namespace)
    now = datetime.now(UTC)
    ever = Range(now - timedelta(days=1), now + timedelta(days=1))

    def read() -> tuple[list[str], list[str]]:
        lives = stored.lives(scope, ever.start, ever, ["sequence_number", "outcome", "ended_at"])
        attempts = stored.attempts(scope, ever, ["sequence_number", "outcome", "ended_at"])
        return sorted(map(str, lives.to_pylist())), sorted(map(str, attempts.to_pylist()))

    before = read()
    assert (len(before[0]), len(before[1])) == (6, 6)
    assert compaction.compact_archive(before=now.date() + timedelta(days=2)).files > 4
    assert read() == before
