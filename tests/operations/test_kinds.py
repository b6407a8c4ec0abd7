"""What each kind of operation does, its report and its undo, in all families."""

from datetime import UTC, datetime, timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core import operations as core
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, EventKind, Family, Right, SubQueue
from broker_core.operations import Kind, State
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer import operations
from explorer.operations import runner
from explorer.operations.presenters import Line
from tests.broker_state import now

OTTO = Actor("user", "otto", Right.ALL)


def start(kind, address, tab="active", family=Family.SERVICE_BUS, numbers=None, filter="", **how):
    chosen = operations.selection(address, family, tab, numbers=numbers, filter=filter)
    return operations.start(kind, chosen, actor=OTTO, **how)


def undo(operation):
    return operations.change(operation, "undo", actor=OTTO)


def facts(address):
    """Every stored message of an entity as it is, its counts by the ledger, and its stored bytes."""
    entity = reads.entity(address)
    rows = connections.current().execute(
        "SELECT * FROM vitrine_message WHERE entity_id = %s ORDER BY subqueue, sequence_number", [entity.id]
    )
    return rows.fetchall(), entity.counts, entity.size_bytes


def dead(queue, count, reason="Refused", body=b'{"currency": "DM", "n": 1}'):
    """Dead letters with the numbers 1 to count."""
    service_bus.send(queue, [Message(body) for _ in range(count)])
    for message in service_bus.receive(queue, count):
        service_bus.dead_letter(queue, [message.lock_token], reason)


def kinds_of(address, number):
    rows = connections.current().execute(
        "SELECT kind, reason FROM vitrine_message_event WHERE entity_id = %s AND sequence_number = %s ORDER BY event_id",
        [reads.entity(address).id, number],
    )
    return [(EventKind(row.kind), row.reason) for row in rows]


def ledger_is_right():
    assert sweeps.check_ledger()["differences"] == []


@pytest.mark.parametrize(("kind", "reason"), [(Kind.PURGE, None), (Kind.DISCARD, "discarded"), (Kind.ARCHIVE, "archived")])
def test_removed_messages_are_invisible_and_restored_unchanged(queue, kind, reason):
    service_bus.send(queue, [Message(b"a", message_id="a", properties={"n": 1}), Message(b"bb"), Message(b"c")])
    [first] = service_bus.receive(queue)
    service_bus.abandon(queue, [first.lock_token])
    before = facts(queue)
    done = start(kind, queue)
    assert (done.state, done.counted, done.done, done.skipped) == (State.DONE, 3, 3, 0)
    assert (reads.entity(queue).counts.active, reads.entity(queue).size_bytes) == (0, 0)
    assert service_bus.receive(queue, 5) == service_bus.peek(queue) == []
    assert reads.message(queue, 1) is None
    assert kinds_of(queue, 1)[-1] == (EventKind.PURGED, reason)
    ledger_is_right()
    undone = undo(done)
    assert (undone.state, undone.undone) == (State.UNDONE, 3)
    assert facts(queue) == before
    assert kinds_of(queue, 1)[-1][0] is EventKind.RESTORED
    assert [m.delivery_count for m in service_bus.receive(queue, 5)] == [1, 0, 0]
    ledger_is_right()


@pytest.mark.parametrize("restored", [False, True])
def test_hiding_scheduled_messages_and_restoring_messages_count_as_activity(namespace, restored):
    """SB-190, SB-918: the queue is not deleted at the instant at which its scheduled message goes, nor with what returned."""
    minute = timedelta(minutes=1)
    queue = entities.create_queue(EntityAddress(namespace, "brief"), auto_delete_on_idle=5 * minute).address
    service_bus.send(queue, [Message(b"a", scheduled_enqueue_at=now(queue) + timedelta(hours=1))])
    namespaces.step_clock(namespace, 10 * minute)
    done = start(Kind.PURGE, queue, tab="scheduled")
    assert done.done == 1 and sweeps.delete_idle_entities() == {}
    namespaces.step_clock(namespace, 5 * minute)
    if restored:
        assert undo(done).undone == 1
        service_bus.cancel_scheduled(queue, [1])
        namespaces.step_clock(namespace, 5 * minute)
        assert sweeps.delete_idle_entities() == {}
    namespaces.step_clock(namespace, timedelta(seconds=20))
    assert sweeps.delete_idle_entities() == {"deleted": [str(queue)]}


def test_undoing_a_move_of_scheduled_messages_counts_as_activity_of_the_destination(namespace):
    minute = timedelta(minutes=1)
    source = entities.create_queue(EntityAddress(namespace, "source")).address
    brief = entities.create_queue(EntityAddress(namespace, "brief"), auto_delete_on_idle=5 * minute).address
    service_bus.send(source, [Message(b"a", scheduled_enqueue_at=now(source) + timedelta(hours=1))])
    moved = start(Kind.MOVE, source, tab="scheduled", options={"to": "brief"})
    assert moved.done == 1
    namespaces.step_clock(namespace, 10 * minute)
    assert undo(moved).undone == 1 and sweeps.delete_idle_entities() == {}
    namespaces.step_clock(namespace, timedelta(minutes=5, seconds=20))
    assert sweeps.delete_idle_entities() == {"deleted": [str(brief)]}


def test_an_archive_can_be_restored_without_a_time_limit(queue):
    service_bus.send(queue, [Message()])
    done, purged = start(Kind.ARCHIVE, queue), start(Kind.PURGE, queue)
    assert done.kept_until is None and purged.kept_until is not None
    connections.current().execute("UPDATE vitrine_operation SET kept_until = now() - interval '1 h' WHERE kept_until IS NOT NULL")
    sweeps.purge_hidden_messages()
    assert undo(done).undone == 1


def test_purged_messages_are_deleted_after_the_undo_period(queue):
    service_bus.send(queue, [Message() for _ in range(3)])
    done = start(Kind.PURGE, queue)
    sweeps.purge_hidden_messages()  # what other tests left
    assert sweeps.purge_hidden_messages() == {}
    connections.current().execute("UPDATE vitrine_operation SET kept_until = now() WHERE id = %s", [done.id])
    assert sweeps.purge_hidden_messages() == {"messages": 3}
    with pytest.raises(NotAllowed, match="30 minutes"):
        undo(done)


def test_a_resumed_operation_keeps_its_hidden_messages_beyond_the_undo_period(queue, monkeypatch):
    """Also while it is paused, and when it is undone then."""
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    service_bus.send(queue, [Message() for _ in range(3)])
    operation = half_done_and_failed(start(Kind.PURGE, queue, pace=1_000), monkeypatch, size="BATCH")
    operations.change(operation, "resume", actor=OTTO)
    make_old(operation)
    runner.run(operation, seconds=0)
    assert sweeps.purge_hidden_messages() == {}
    operations.change(core.find(operation.id), "pause", actor=OTTO)
    make_old(operation)
    assert sweeps.purge_hidden_messages() == {} and core.find(operation.id).done == 2
    assert undo(core.find(operation.id)).undone == 2 and len(facts(queue)[0]) == 3


def test_an_export_can_be_continued_while_its_file_is_kept(queue, monkeypatch):
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    service_bus.send(queue, [Message() for _ in range(3)])
    operation = half_done_and_failed(start(Kind.EXPORT, queue, pace=1_000), monkeypatch, size="BODIES_BATCH")
    operations.change(operation, "resume", actor=OTTO)
    operations.change(operation, "pause", actor=OTTO)
    make_old(operation)
    operations.change(operation, "resume", actor=OTTO)
    runner.run(operation, seconds=0)
    core.end(queue.namespace, *claimed(operation), State.FAILED, keep=Kind.EXPORT.retention)
    make_old(operation)
    with pytest.raises(NotAllowed, match="file of operation .* is deleted"):
        operations.change(core.find(operation.id), "resume", actor=OTTO)
    assert core.find(operation.id).state is State.FAILED


def half_done_and_failed(operation, monkeypatch, *, size):
    """After one of its three messages, with batches of one from now on."""
    monkeypatch.setattr(runner, size, 1)
    runner.run(operation, seconds=0)
    core.end(
        operation.address.namespace, *claimed(operation), State.FAILED, message="The disk is full.", keep=operation.kind.retention
    )
    return core.find(operation.id)


def claimed(operation):
    token = core.claim_token()
    return core.claim(operation.address.namespace, operation.id, token), token


def make_old(operation):
    """As if two days had passed."""
    connections.current().execute(
        "UPDATE vitrine_operation SET kept_until = kept_until - interval '2 d' WHERE id = %s", [operation.id]
    )


def test_locked_messages_are_skipped_with_their_holder(queue):
    service_bus.send(queue, [Message() for _ in range(3)])
    service_bus.receive(queue, actor=Actor("key", "worker", Right.ALL))
    done = start(Kind.PURGE, queue, "all")
    assert (done.done, done.skipped, dict(done.reasons)) == (2, 1, {"held by worker": 1})
    assert done.listed == [[1, "held by worker"]]


def test_an_operation_is_limited_to_its_filter_and_its_previewed_messages(queue):
    dead(queue, 3)
    dead(queue, 2, reason="Other")
    counted = operations.count(operations.selection(queue, Family.SERVICE_BUS, "dead-letter", filter="reason=Other"), actor=OTTO)
    assert (counted.count, counted.is_exact) == (2, True)
    dead(queue, 1, reason="Other")
    done = start(Kind.DISCARD, queue, "dead-letter", filter="reason=Other", up_to=counted.selection.up_to)
    assert (done.counted, done.done) == (2, 2)
    assert reads.entity(queue).counts.dead_letter == 4


def test_an_undo_recalls_resubmitted_messages_that_still_wait(queue):
    dead(queue, 4)
    before = facts(queue)
    done = start(Kind.RESUBMIT, queue, "dead-letter")
    assert (done.done, reads.entity(queue).counts.dead_letter) == (4, 0)
    [taken] = service_bus.receive(queue)
    undone = undo(done)
    assert (undone.undone, dict(undone.reasons)) == (3, {"not undone: already received, held, or published to subscriptions": 1})
    rows, counts, _ = facts(queue)
    assert counts.dead_letter == 3 and counts.active == 1
    assert [row for row in rows if row.subqueue == SubQueue.DEAD_LETTER] == before[0][1:]
    service_bus.complete(queue, [taken.lock_token])
    ledger_is_right()


def test_repaired_messages_have_the_patched_body_and_after_an_undo_the_old_body(queue):
    dead(queue, 2)
    dead(queue, 1, body=b"no json")
    before = facts(queue)
    done = start(Kind.REPAIR, queue, "dead-letter", options={"merge_patch": {"currency": "EUR", "n": None}})
    assert (done.done, done.failed, dict(done.reasons)) == (2, 1, {"its body is not JSON": 1})
    assert [m.body for m in service_bus.peek(queue)] == [b'{"currency": "EUR"}'] * 2
    assert undo(done).undone == 2
    assert facts(queue) == before
    ledger_is_right()


def test_a_message_that_would_exceed_its_queues_limit_stays_unchanged(queue):
    """SB-007: the limit is the queue's, as for a send, and counts properties, too."""
    largest = 256 * 1024
    dead(queue, 2)
    before = facts(queue)
    done = start(Kind.REPAIR, queue, "dead-letter", options={"body": "x" * largest})
    assert (done.failed, done.done) == (2, 0)
    assert next(iter(done.reasons)).endswith(f"{largest:,} are allowed")
    assert facts(queue) == before
    assert start(Kind.REPAIR, queue, "dead-letter", options={"body": "x" * (largest - 2_000)}).done == 2
    ledger_is_right()


@pytest.mark.parametrize("tab", ["active", "dead-letter"])
def test_messages_move_to_another_queue_and_back(queue, make_queue, tab):
    other = make_queue()
    if tab == "active":
        service_bus.send(queue, [Message(b"x", properties={"n": n}) for n in range(3)])
    else:
        dead(queue, 3)
    before = facts(queue)
    done = start(Kind.MOVE, queue, tab, options={"to": other.path})
    assert (done.done, reads.entity(other).counts.active) == (3, 3)
    ledger_is_right()
    assert undo(done).undone == 3
    assert facts(queue) == before
    assert facts(other)[0] == [] and facts(other)[2] == 0
    ledger_is_right()


def test_a_move_to_a_missing_queue_changes_nothing_and_can_be_resumed(queue):
    service_bus.send(queue, [Message()])
    done = start(Kind.MOVE, queue, options={"to": "elsewhere"})
    assert done.state is State.FAILED and "elsewhere" in done.message and done.done == 0
    entities.create_queue(EntityAddress(queue.namespace, "elsewhere"))
    operations.change(done, "resume", actor=OTTO)
    runner.run(done, seconds=None)
    assert core.find(done.id).done == 1


def test_an_undo_restores_sessions_and_scheduled_messages(make_queue):
    from datetime import timedelta

    carts = make_queue(requires_session=True)
    service_bus.send(carts, [Message(session_id="a"), Message(session_id="b")])
    undo(start(Kind.DISCARD, carts))
    session = service_bus.accept_session(carts, "a")
    assert len(service_bus.receive_from_session(session)) == 1
    queue = make_queue()
    service_bus.send(queue, [Message(scheduled_enqueue_at=now(queue) + timedelta(hours=1))])
    before = facts(queue)
    done = start(Kind.DISCARD, queue, "scheduled")
    assert done.done == 1 and reads.entity(queue).counts.scheduled == 0
    undo(done)
    assert facts(queue) == before


def test_a_storage_purge_includes_leased_messages_and_its_undo_restores_their_pop_receipts(account):
    jobs = EntityAddress(account, "jobs")
    queue_storage.create_queue(jobs)
    queue_storage.put_all(jobs, ["a", "b", "c"])
    [got] = queue_storage.get(jobs)
    before = facts(jobs)
    done = start(Kind.PURGE, jobs, "all", Family.QUEUE_STORAGE)
    assert done.done == 3 and queue_storage.get(jobs, 5) == []
    ledger_is_right()
    undo(done)
    assert facts(jobs) == before
    queue_storage.delete(jobs, got.message_id, got.pop_receipt)
    assert len(queue_storage.get(jobs, 5)) == 2
    ledger_is_right()


def test_poison_messages_return_to_their_queue_or_stay_with_a_reason(account):
    jobs, poison = EntityAddress(account, "jobs"), EntityAddress(account, "jobs-poison")
    queue_storage.create_queue(jobs)
    queue_storage.create_queue(poison)
    queue_storage.put_all(poison, ["a", "b"])
    before = facts(poison)
    done = start(Kind.RESUBMIT, poison, "all", Family.QUEUE_STORAGE)
    assert done.done == 2 and reads.entity(jobs).counts.active == 2
    undo(done)
    assert facts(poison) == before
    done = start(Kind.RESUBMIT, jobs, "all", Family.QUEUE_STORAGE)
    assert done.done == 0


def test_storage_messages_move_and_leases_are_released(account):
    a, b = EntityAddress(account, "aaa"), EntityAddress(account, "bbb")
    queue_storage.create_queue(a)
    queue_storage.create_queue(b)
    queue_storage.put_all(a, ["a", "b"])
    queue_storage.get(a)
    moved = start(Kind.MOVE, a, "all", Family.QUEUE_STORAGE, options={"to": "bbb"})
    assert (moved.done, moved.skipped) == (1, 1)
    released = start(Kind.RELEASE, a, "leased", Family.QUEUE_STORAGE)
    assert released.done == 1 and len(queue_storage.get(a, 5)) == 1
    with pytest.raises(NotAllowed, match="cannot be undone"):
        undo(released)


def test_locks_are_released_and_unlocked_messages_are_skipped(queue):
    service_bus.send(queue, [Message(), Message()])
    service_bus.receive(queue)
    done = start(Kind.RELEASE, queue, "active", numbers=[1, 2])
    assert (done.done, done.skipped) == (1, 1) and len(service_bus.receive(queue, 5)) == 2


@pytest.fixture
def rabbit(vhost):
    address = EntityAddress(vhost, "work")
    rabbitmq.declare_queue(address)
    rabbitmq.declare_queue(EntityAddress(vhost, "other"))
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"%d" % n, routing_key="work") for n in range(3)])
    return address


def test_rabbitmq_messages_are_purged_and_restored(rabbit):
    before = facts(rabbit)
    done = start(Kind.PURGE, rabbit, "messages", Family.RABBITMQ)
    assert done.done == 3 and reads.entity(rabbit).counts.active == 0
    undo(done)
    assert facts(rabbit) == before
    ledger_is_right()


def test_rabbitmq_messages_move_and_return(rabbit):
    before = facts(rabbit)
    done = start(Kind.MOVE, rabbit, "messages", Family.RABBITMQ, options={"to": {"queue": "other"}})
    assert done.done == 3 and reads.entity(EntityAddress(rabbit.namespace, "other")).counts.active == 3
    assert undo(done).undone == 3
    assert facts(rabbit) == before
    ledger_is_right()


def test_a_rabbitmq_message_without_a_death_stays_with_the_reason(rabbit):
    done = start(Kind.RESUBMIT, rabbit, "messages", Family.RABBITMQ)
    assert (done.done, dict(done.reasons)) == (0, {"no recorded death": 3})


@pytest.mark.parametrize("pace", [0, -1, 1e9, float("nan")])
def test_an_invalid_pace_is_refused(queue, pace):
    with pytest.raises(InvalidArgument, match="pace"):
        start(Kind.PURGE, queue, pace=pace)


def test_deleting_the_entity_ends_the_operation(queue, monkeypatch):
    service_bus.send(queue, [Message() for _ in range(1_200)])
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    waiting = start(Kind.PURGE, queue)
    assert waiting.state is State.QUEUED
    entities.delete_entity(queue)
    runner.run(waiting, seconds=None)
    ended = core.find(waiting.id)
    assert ended.state is State.FAILED and ended.done == 0 and queue.path in ended.message
    with pytest.raises(EntityNotFound):
        start(Kind.PURGE, queue)


def test_after_the_entity_was_deleted_an_operation_cannot_be_undone(queue):
    dead(queue, 2)
    done = start(Kind.RESUBMIT, queue, "dead-letter")
    assert [operation.id for operation in core.newest(entity_id=done.entity_id, undoable=True)] == [done.id]
    entities.delete_entity(queue)
    for _ in range(2):  # also after the rows of the entity are removed
        operation_record = core.find(done.id)
        assert not operation_record.can_be_undone and core.newest(entity_id=done.entity_id, undoable=True) == []
        with pytest.raises(
            NotAllowed, match=f"was deleted at {operation_record.entity_deleted_at:%H:%M} UTC; nothing can be undone"
        ):
            undo(operation_record)
        sweeps.remove_deleted_entities()
    assert core.find(done.id).state is State.DONE


def test_an_undo_does_not_change_how_long_the_operation_took(queue):
    dead(queue, 1)
    done = start(Kind.RESUBMIT, queue, "dead-letter")
    connections.current().execute(
        "UPDATE vitrine_operation SET finished_at = started_at + interval '2 s' WHERE id = %s", [done.id]
    )
    assert undo(core.find(done.id)).finished_at == done.started_at + timedelta(seconds=2)
    assert Line(core.find(done.id)).took == "2 s"


def test_records_of_operations_are_deleted_after_the_retention_but_not_archives(queue):
    dead(queue, 3)
    archive = start(Kind.ARCHIVE, queue, "dead-letter", numbers=[1])
    old = start(Kind.RESUBMIT, queue, "dead-letter", numbers=[2])
    new = start(Kind.RESUBMIT, queue, "dead-letter", numbers=[3])
    connections.current().execute(
        "UPDATE vitrine_operation SET finished_at = finished_at - interval '8 d', kept_until = kept_until - interval '8 d'"
        " WHERE id = ANY (%s)",
        [[archive.id, old.id]],
    )
    assert sweeps.purge_hidden_messages()["operations"] == 1
    assert core.find(old.id) is None and core.find(new.id) is not None
    assert undo(core.find(archive.id)).undone == 1


def test_messages_in_all_states_are_purged_and_restored(queue):
    later = datetime.now(UTC) + timedelta(hours=1)
    service_bus.send(queue, [Message(), Message(), Message(scheduled_enqueue_at=later)])
    [held] = service_bus.receive(queue, 1)
    service_bus.defer(queue, [held.lock_token])
    before = reads.entity(queue).counts
    counted = operations.count(operations.selection(queue, Family.SERVICE_BUS, "all"), actor=OTTO)
    assert (counted.count, counted.is_exact) == (3, True)
    done = start(Kind.PURGE, queue, "all")
    after = reads.entity(queue).counts
    assert (done.done, after.active, after.deferred, after.scheduled) == (3, 0, 0, 0)
    undo(done)
    assert reads.entity(queue).counts == before
