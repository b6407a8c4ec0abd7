"""What reports read of the archive's files: the same before and after these are compacted."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow.compute as pc
import pytest

from broker_core import service_bus
from broker_core.common.types import EntityAddress, EventKind, Message
from broker_core.history import archive as archiving
from broker_core.history import compaction
from explorer.analysis.messages import TooManyLives
from explorer.analysis.reports import stored
from explorer.analysis.reports.scope import Range


def of(queue) -> tuple[Any, Range]:
    now = datetime.now(UTC)
    scope = SimpleNamespace(ids=[queue.pk], namespace=queue.namespace)
    return scope, Range(now - timedelta(days=1), now + timedelta(days=1))


def test_reports_read_compacted_files(queue):
    address = EntityAddress("reports", "q")
    service_bus.complete(address, [message.lock_token for message in service_bus.receive(address, 1)])
    archiving.archive_events()
    scope, ever = of(queue)

    def read() -> tuple[list[str], list[str]]:
        lives = stored.lives(scope, ever.start, ever, ["sequence_number", "outcome", "ended_at"])
        attempts = stored.attempts(scope, ever, ["sequence_number", "outcome", "ended_at"])
        return sorted(map(str, lives.to_pylist())), sorted(map(str, attempts.to_pylist()))

    before = read()
    assert (len(before[0]), len(before[1])) == (6, 6)
    assert compaction.compact_archive(before=ever.end.date() + timedelta(days=1)).files > 4
    assert read() == before


def test_events_are_refused_before_all_files_are_read(queue, monkeypatch):
    """The queue has six events of messages that were sent, in one file, and two in another."""
    address, opened = EntityAddress("reports", "q"), []
    service_bus.send(address, [Message(b"x") for _ in range(2)])
    archiving.archive_events()
    scope, ever = of(queue)
    archive, sent, columns = stored.storage.archive_here(), (EventKind.SENT,), ["sequence_number", "kind"]
    spy = SimpleNamespace(open=lambda path: opened.append(path) or archive.open(path))
    monkeypatch.setattr(stored.storage, "archive_here", lambda: spy)
    assert stored.events(scope, ever, columns, sent, most=8).num_rows == 8 and len(opened) == 2
    with pytest.raises(TooManyLives, match="more than 5 events"):
        stored.events(scope, ever, columns, sent, most=5)
    assert len(opened) == 3, "the second file was not read"
    last = stored.events(scope, ever, columns, sent, most=2, keep=lambda one: one.filter(pc.greater(one["sequence_number"], 6)))
    assert last["sequence_number"].to_pylist() == [7, 8]
