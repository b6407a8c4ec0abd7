"""Generated history: its form, that it is consistent, and that its parameters are those that were drawn."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.common.types import EventKind as Kind
from broker_core.history import archive, schema
from broker_core.models import Entity, EntityCounter, Namespace
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message, QueueSettings
from broker_core.sweeps import end_locks, expire_messages
from explorer.analysis import generation
from explorer.analysis.jobs import generated, load

from . import generated_events

UNTIL = datetime(2026, 3, 8, tzinfo=UTC)
LOAD = load.Load(
    work=2.0, lock=10.0, fails=0.1, poison=0.01, rejected=0.02, outages=2.0, time_to_live=600.0, own_time_to_live=60.0,
    own_share=0.1, max_deliveries=3,
)  # fmt: skip


def generated_rows(queues, *, messages, load=LOAD, days=1.0, seed=0, skew=None, archived=True):
    """The generated events as rows, and the truths."""
    events, truths = generation.generate(
        queues, messages=messages, days=days, until=UNTIL, load=load, skew=skew, seed=seed, archived=archived
    )
    return [row for table in events.by_time() for row in table.to_pylist()], truths


@pytest.fixture
def queue(postgres):
    entity = Entity.objects.create(namespace=Namespace.objects.create(name="generation-tests"), path="orders")
    EntityCounter.objects.create(entity=entity)
    return entity


def another(queue, path="other", **settings):
    other = Entity.objects.create(namespace=queue.namespace, path=path, **settings)
    EntityCounter.objects.create(entity=other)
    return other


@pytest.mark.parametrize("archived", [False, True])
def test_generated_events_are_consistent_and_follow_the_parameters(queue, archived):
    other, buries = another(queue, requires_session=True), replace(LOAD, dead_letters_expired=True)
    rows, truths = generated_rows(
        [queue, other], messages=6000, days=2, load=[LOAD, buries], skew=0.75, seed=3, archived=archived
    )
    kinds = generated_events.check(rows, dict(zip([queue.pk, other.pk], truths, strict=True)))
    assert [truth.messages for truth in truths] == [4500, 1500]
    assert kinds[queue.pk][Kind.EXPIRED] == truths[0].expired > 0
    assert kinds[other.pk][Kind.EXPIRED] == 0 < truths[1].expired
    assert all(truth.locks_lost and truth.rejected and truth.poison and truth.outages for truth in truths)
    assert {row["event_id"] for row in rows} == set(range(1, len(rows) + 1))
    ordered = sorted(rows, key=lambda row: row["event_id"])
    assert [row["at"] for row in ordered] == sorted(row["at"] for row in ordered) and ordered[-1]["at"] <= UNTIL
    assert {row["session_id"] is None for row in rows if row["kind"] == Kind.SENT and row["entity_id"] == other.pk} == {False}
    own = [row for row in rows if row["time_to_live_us"] is not None]
    assert own and {row["kind"] for row in own} == {Kind.SENT} and {row["time_to_live_us"] for row in own} == {60_000_000}
    assert {row["entity_time_to_live_us"] for row in rows} == {600_000_000}


@pytest.mark.parametrize("archived", [False, True])
def test_each_transaction_has_an_id_and_events_of_one_message(queue, archived):
    transactions = defaultdict(list)
    for row in generated_rows([queue], messages=3000, archived=archived)[0]:
        transactions[row["xid"]].append(row)
    together = [rows for rows in transactions.values() if len(rows) > 1]
    orders = {tuple(Kind(row["kind"]).name for row in rows) for rows in together}
    assert orders >= {("ABANDONED", "DEAD_LETTERED"), ("LOCK_LOST", "DEAD_LETTERED")}
    noticed = {("LOCK_LOST", "RECEIVED"), ("RECEIVED", "LOCK_LOST")}
    assert orders & noticed == {("LOCK_LOST", "RECEIVED") if archived else ("RECEIVED", "LOCK_LOST")}, "in files, in order"
    for first, second in together:
        assert (first["at"], first["sequence_number"]) == (second["at"], second["sequence_number"])
        assert second["event_id"] == first["event_id"] + 1
        if (first["kind"], second["kind"]) == (Kind.LOCK_LOST, Kind.RECEIVED):
            assert first["locked_until"] <= first["at"] < second["locked_until"], "an earlier lock"


def test_consumers_process_one_message_at_a_time_and_none_during_outages(queue):
    busy = replace(LOAD, consumers=3, incident=load.Incident(20_000, 4000, absence=1000))
    rows, [truth] = generated_rows([queue], messages=3000, load=busy)
    held = defaultdict(list)
    for each in generated_events.by_message(rows).values():
        for receipt, end in generated_events.deliveries(each):
            held[receipt["actor"]].append((receipt["at"], min(end["at"], receipt["locked_until"])))
    assert len(held) == truth.consumers == 3
    for each in map(sorted, held.values()):
        assert all(before[1] <= after[0] for before, after in zip(each, each[1:], strict=False))
    late = timedelta(seconds=2)  # for the pick-up
    begins = [receipt for each in held.values() for receipt, _ in each]
    assert truth.outages and not any(since + late < at < until for since, until in truth.outages for at in begins)


def test_generated_events_have_the_same_columns_as_the_brokers(postgres):
    """For each kind of event, and each reason, the same columns have values: in generated events, and in the broker's own."""
    namespaces.create_namespace("played", Family.SERVICE_BUS)
    namespaces.pause_clock("played")
    address = EntityAddress("played", "orders")
    settings = QueueSettings(
        lock_duration=timedelta(seconds=10), max_delivery_count=2, default_message_time_to_live=timedelta(minutes=1)
    )
    entities.create_queue(address, settings)
    _play_on_broker(address)
    queue = Entity.objects.get(path="orders", namespace__name="played")
    with archive.connected() as connection:
        archived_rows = archive.read_arrow(connection, "history_slice_events", from_xid=0, to_xid=2**62).to_pylist()
    assert {row["kind"] for row in archived_rows} >= {
        *generated_events.DELIVERY_ENDS,
        Kind.SENT,
        Kind.PURGED,
        Kind.SETTLE_REFUSED,
    } - {Kind.EXPIRED}
    changed_load = replace(LOAD, work=4.0, fails=0.3, own_share=1.0, poison=0.1)
    made_, _ = generated_rows([queue], messages=3000, load=replace(changed_load, dead_letters_expired=True))
    ignored = {"details", "session_id"}  # only generated messages are marked

    def shapes(rows):
        shapes_ = defaultdict(set)
        for row in rows:
            reason = row["reason"] if row["reason"] in (*generated.REASONS, None) else "rejected"
            empty = row["kind"] == Kind.RECEIVED or row["first_received_at"] is None
            shapes_[row["kind"], reason, row["subqueue"], empty].add(
                frozenset(name for name in schema.EVENT.names if row.get(name) is not None and name not in ignored)
            )
        return shapes_

    ours, theirs = shapes(made_), shapes(archived_rows)
    for key in theirs.keys() & ours.keys():
        assert ours[key] == theirs[key], (Kind(key[0]).name, key[1:])
    assert len(theirs.keys() & ours.keys()) >= 10
    for rows in (archived_rows, made_):
        pairs = {(Kind(row["kind"]).name, row["reason"]) for row in rows}
        assert ("DEAD_LETTERED", "MaxDeliveryCountExceeded") in pairs and ("DEAD_LETTERED", "TTLExpiredException") in pairs


def _play_on_broker(address):
    """Each kind of end of a delivery and of a message."""
    worker, ttl = Actor("process", "worker", Right.LISTEN), timedelta(seconds=50)

    def send():
        service_bus.send(address, [Message(b"x", message_id="a", properties={"region": "eu"}, time_to_live=ttl)])

    def receive():
        [message] = service_bus.receive(address, 1, actor=worker)
        return [message.lock_token]

    entities.update_queue(address, dead_lettering_on_message_expiration=True)
    send()
    service_bus.complete(address, receive(), actor=worker)
    send()
    service_bus.dead_letter(address, receive(), "PaymentRejected", actor=worker)
    send()
    lost = receive()
    namespaces.step_clock(address.namespace, timedelta(seconds=11))
    receive()  # notices the loss
    service_bus.complete(address, lost, actor=worker)  # is refused
    namespaces.step_clock(address.namespace, timedelta(seconds=11))
    end_locks(namespace=address.namespace)  # the second loss is the last
    send()
    for _ in range(2):
        service_bus.abandon(address, receive(), actor=worker)
    send()
    namespaces.step_clock(address.namespace, timedelta(seconds=101))
    expire_messages(namespace=address.namespace)
    service_bus.purge(address.dead_letter)


def test_the_waits_follow_the_parameters(queue):
    """What waited longer is known exactly if no message expired; with outages some wait for minutes."""
    calm = load.Load(outages=0, bursts=0, poison=0, fails=0, time_to_live=None, own_time_to_live=None)
    for load_case in (calm, load.Load(outages=4, time_to_live=None, own_time_to_live=None)):
        events, [truth] = generated_rows([queue], messages=4000, days=2, load=load_case)
        waited = [(rows[1]["at"] - rows[0]["at"]).total_seconds() for rows in generated_events.by_message(events).values()]
        for longer, count in truth.longer_than.items():
            assert abs(sum(wait > longer for wait in waited) - count) <= truth.not_ended
        assert (truth.longer_than[60] > 50) == bool(truth.outages)


def test_the_same_seed_gives_the_same_events_and_sequence_numbers_continue(queue):
    parts = [generated_rows([queue], messages=1000, seed=seed, load=load.LOAD)[0] for seed in (1, 1, 2)]
    sent = [[(row["sequence_number"], row["at"]) for row in each if row["kind"] == Kind.SENT] for each in parts]
    numbers = [number for each in sent for number, _ in each]
    assert numbers == sorted(set(numbers)) and [each[0][0] for each in sent] == [1, 1001, 2001]
    first, second, other = ([row["at"] for row in each] for each in parts)
    assert first == second != other


def test_incidents_weekends_and_earlier_lock_durations_are_visible(queue):
    incident = load.Incident(begins=36_000, seconds=7200, absence=1200)
    changed_load = replace(
        LOAD, incident=incident, earlier_lock=(86_400, 20), time_to_live=None, own_time_to_live=None, outages=0
    )
    events, _ = generated_rows([queue], messages=20_000, days=4, load=changed_load)  # the last two days are a weekend
    begins, failed, entered, locks = UNTIL - timedelta(seconds=36_000), [[], []], defaultdict(int), defaultdict(set)
    for rows in generated_events.by_message(events).values():
        at = rows[0]["at"]
        entered[at.weekday()] += 1
        failed[begins <= at < begins + timedelta(seconds=7200)].append(len(generated_events.deliveries(rows)) > 1)
        for receipt, _ in generated_events.deliveries(rows):
            assert not begins + timedelta(seconds=2) < receipt["at"] < begins + timedelta(seconds=1200)
            locks[receipt["at"] >= UNTIL - timedelta(days=1)].add((receipt["locked_until"] - receipt["at"]).total_seconds())
    usual, worst = (sum(each) / len(each) for each in failed)
    assert worst > 2 * usual and locks == {False: {20.0}, True: {10.0}}
    assert entered[5] < 0.7 * entered[4] and entered[6] < 0.7 * entered[4]


@pytest.fixture
def recorded(postgres, queue):
    """History in the event table, of two queues with much that goes wrong. Gives (queues, what was generated)."""
    queues = [queue, another(queue)]
    until = datetime.now(UTC).replace(microsecond=0)
    loads = [LOAD, replace(LOAD, dead_letters_expired=True)]
    yield queues, generation.record(queues, messages=3000, days=1, until=until, load=loads)
    postgres.execute("TRUNCATE vitrine_traffic")


def test_the_events_in_the_table_are_consistent_and_in_several_transactions(postgres, recorded):
    queues, done = recorded
    with archive.connected() as connection:
        rows = archive.read_arrow(connection, "history_slice_events", from_xid=0, to_xid=2**62).to_pylist()
    generated_events.check(rows, {queue.pk: truth for queue, truth in zip(queues, done.truths, strict=True)})
    assert len(rows) == done.events and len({row["xid"] for row in rows}) == -(-done.events // generated.BLOCK) > 1
    assert all(row["recorded_at"] == row["at"] for row in rows)
    in_order = [row["at"] for row in sorted(rows, key=lambda row: row["event_id"])]
    assert in_order == sorted(in_order)
    assert {row["time_to_live_us"] for row in rows} == {None, 60_000_000}
    assert postgres.execute("SELECT count(*) FROM vitrine_message_event_default").fetchone() == (0,)


def test_generated_messages_are_counted_in_the_traffic(postgres, recorded):
    queues, done = recorded
    names = ("sent", "completed", "dead_lettered", "expired", "received", "abandoned", "active_change", "dead_change")
    sums = ", ".join(f"sum({name})::int AS {name}" for name in names)
    counted = postgres.execute(f"SELECT entity_id, {sums} FROM vitrine_traffic WHERE step = 60 GROUP BY entity_id")
    found = {entity_id: counts for entity_id, *counts in counted.fetchall()}
    for queue, truth in zip(queues, done.truths, strict=True):
        expired = 0 if queue is queues[1] else truth.expired
        sent = truth.messages - truth.not_ended
        assert found[queue.pk] == [sent, truth.completed, truth.dead_lettered, expired, truth.attempts, truth.abandoned, 0, 0]
    whole = [sum(each) for each in zip(*(found[queue.pk] for queue in queues), strict=True)]
    assert found[-queues[0].namespace_id] == whole
