"""The demo's generated past: consistent, of a known size, with an incident, a deploy and a changed setting that reports find."""

from datetime import UTC, datetime, timedelta

import pytest

from broker_core.common.types import EventKind as Kind
from broker_core.history import archive
from broker_core.models import Entity
from explorer.charts import changes
from explorer.frames.actors import shown_actor
from explorer.service_bus.demo import DOES, history, shop
from tests.analysis import generated_events
from tests.history import archived_settings

NAMESPACE = "demo-history-tests"


@pytest.fixture
def past(transactional_db, settings, tmp_path):
    """The demo's namespace with 3,000 generated messages. Gives the queues by path, the events, and what was generated."""
    settings.ARCHIVE_URL = str(tmp_path)
    done = []
    with pytest.MonkeyPatch.context() as patch:
        generate = history.generate
        patch.setattr(history, "generate", lambda *args, **options: done.append(generate(*args, **options)))
        shop.seed(NAMESPACE, history_messages=3000)
    queues = {entity.path: entity for entity in Entity.objects.filter(namespace__name=NAMESPACE, path__in=history.LOADS)}
    ids = {queue.pk for queue in queues.values()}
    with archive.connected() as connection:
        rows = archive.read_arrow(connection, "history_slice_events", from_xid=0, to_xid=2**62).to_pylist()
    yield queues, [row for row in rows if row["entity_id"] in ids], done[0]
    with archive.connected() as connection:
        connection.execute("TRUNCATE vitrine_message_event, vitrine_traffic")


def test_the_generated_history_is_consistent_and_follows_the_queues_settings(past):
    queues, events, done = past
    kinds = generated_events.check(events, {queues[truth.path].pk: truth for truth in done.truths})
    assert done.messages == 3000 - sum(truth.not_ended for truth in done.truths) and done.events == len(events) < 4 * 3000
    assert kinds[queues["payments"].pk][Kind.LOCK_LOST] > 0
    late = [row for row in events if row["reason"] == "TTLExpiredException"]
    assert late and {(row["entity_id"], row["kind"]) for row in late} == {(queues["notifications"].pk, Kind.DEAD_LETTERED)}
    assert all((row["at"] - row["enqueued_at"]).total_seconds() >= 20 for row in late)
    assert max(row["delivery_count"] or 0 for row in events if row["entity_id"] == queues["orders"].pk) == 3
    receivers = {row["actor"] for row in events if row["kind"] == Kind.RECEIVED}
    processes = {f"generated:process:{path}-{number}" for path in ("orders", "payments") for number in (1, 2)}
    assert receivers == processes | {"generated:key:mobile-app"}
    programs = {shown_actor(row["actor"]).name for row in events} - {"broker"}
    assert programs <= set(DOES), "generated history names programs of the demo"
    newest = max(row["at"] for row in events)
    assert newest <= datetime.now(UTC) and newest - min(row["at"] for row in events) > timedelta(days=2.9)


def test_the_incident_follows_a_deploy_and_a_settings_change(past):
    queues, events, _ = past
    now = datetime.now(UTC)
    [deploy] = changes.deploys(NAMESPACE, now - timedelta(days=7), now)
    incident = now - timedelta(seconds=history.INCIDENT.begins)
    assert deploy.name == history.DEPLOY and timedelta(0) < incident - deploy.at < timedelta(hours=1)
    payments = queues["payments"].pk
    revisions = archived_settings.read([queue.pk for queue in queues.values()], now - timedelta(days=7), now)
    before, changed = (revision for revision in revisions if revision.entity_id == payments)
    changes_of = {name for name, value in changed.settings.items() if value != before.settings[name]}
    assert changes_of - {"effective"} == {"lock_duration"}
    assert (before.settings["lock_duration"], changed.settings["lock_duration"]) == ("00:00:10", "00:00:05")
    assert before.until == changed.since and len(revisions) == len(queues) + 1
    assert Entity.objects.get(pk=payments).lock_duration == timedelta(seconds=5)
    held = {
        (row["at"] >= changed.since, row["locked_until"] - row["at"])
        for row in events if row["kind"] == Kind.RECEIVED and row["entity_id"] == payments
    }  # fmt: skip
    assert held == {(False, timedelta(seconds=10)), (True, timedelta(seconds=5))}


def test_a_queue_with_messages_gets_no_generated_history(past):
    assert history.generate(NAMESPACE, messages=100) is None
    assert len(changes.deploys(NAMESPACE, datetime.now(UTC) - timedelta(days=7), datetime.now(UTC))) == 1
