"""What the clock alone changes next, in each family; and what a step of the clock made due is done at once."""

from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, reads, service_bus, sweeps
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.types import EntityAddress, Family, UseKind
from broker_core.reads import Change
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.rabbitmq import shortcuts

SECOND = timedelta(seconds=1)


def clock_of(address):
    return namespaces.get_clock(address.namespace).now


def next_of(address):
    """(what, seconds from now, number), or None."""
    next_change = reads.next_change(address)
    return next_change and (next_change.what, (next_change.at - clock_of(address)).total_seconds(), next_change.sequence_number)


def go_on_to_the_next(address):
    namespaces.step_clock_to(address.namespace, reads.next_change(address).at)
    return sweeps.follow_clock(address.namespace)


def test_an_empty_queue_has_no_next_change(queue):
    assert next_of(queue) is None
    with pytest.raises(EntityNotFound):
        reads.next_change(EntityAddress(queue.namespace, "none"))


def test_the_next_change_is_the_earliest_of_lock_schedule_and_expiry(make_queue):
    queue = make_queue(lock_duration=timedelta(seconds=30), max_delivery_count=1)
    now = clock_of(queue)
    service_bus.send(queue, [Message(body=b"1"), Message(body=b"2", time_to_live=40 * SECOND)])
    service_bus.send(queue, [Message(body=b"3", scheduled_enqueue_at=now + 35 * SECOND)])
    service_bus.receive(queue, 1)
    assert next_of(queue) == (Change.LOCK, 30, 1)
    assert go_on_to_the_next(queue)["locks_ended"] == 1
    assert next_of(queue) == (Change.DUE, 5, 3)
    assert go_on_to_the_next(queue)["activated"] == 1
    assert next_of(queue) == (Change.LIFE, 5, 2)
    namespaces.step_clock_to(queue.namespace, reads.next_change(queue).at)
    assert next_of(queue) is None


def test_a_settled_or_renewed_lock_is_not_the_next_change(make_queue):
    queue = make_queue(lock_duration=timedelta(seconds=30))
    service_bus.send(queue, [Message(body=b"1"), Message(body=b"2")])
    first, second = service_bus.receive(queue, 2)
    namespaces.step_clock(queue.namespace, 10 * SECOND)
    service_bus.complete(queue, [first.lock_token])
    service_bus.renew(queue, [second.lock_token])
    assert next_of(queue) == (Change.LOCK, 30, second.sequence_number)


def test_a_locked_message_does_not_expire_before_its_lock_ends(make_queue):
    queue = make_queue(lock_duration=timedelta(seconds=30))
    service_bus.send(queue, [Message(body=b"1", time_to_live=10 * SECOND)])
    service_bus.receive(queue, 1)
    assert next_of(queue) == (Change.LOCK, 30, 1)


def test_expiries_by_the_default_are_found_from_the_head_on(make_queue):
    queue = make_queue(default_message_time_to_live=timedelta(seconds=60))
    service_bus.send(queue, [Message(body=b"1")])
    namespaces.step_clock(queue.namespace, 20 * SECOND)
    service_bus.send(queue, [Message(body=b"2")])
    assert next_of(queue) == (Change.LIFE, 40, 1)
    namespaces.step_clock(queue.namespace, 50 * SECOND)
    assert next_of(queue) == (Change.LIFE, 10, 2)


def test_the_next_change_includes_the_lock_of_a_session(make_queue):
    queue = make_queue(lock_duration=timedelta(seconds=30), requires_session=True)
    service_bus.send(queue, [Message(body=b"1", session_id="a")])
    service_bus.accept_session(queue, "a")
    assert next_of(queue) == (Change.SESSION, 30, None)


def test_a_storage_message_is_visible_then_expires_then_is_removed(account):
    jobs = EntityAddress(account, "jobs")
    queue_storage.create_queue(jobs, expiry_grace=timedelta(seconds=7))
    queue_storage.put(jobs, "1", visibility_timeout=10 * SECOND, time_to_live=15 * SECOND)
    assert next_of(jobs) == (Change.VISIBLE, 10, 1)
    go_on_to_the_next(jobs)
    assert next_of(jobs) == (Change.LIFE, 5, 1)
    assert go_on_to_the_next(jobs)["expired"] == 0  # it is shown for its grace
    assert next_of(jobs) == (Change.REMOVAL, 7, 1)
    assert go_on_to_the_next(jobs)["expired"] == 1
    assert next_of(jobs) is None


def test_the_next_change_of_a_rabbitmq_queue_includes_its_messages(vhost):
    queue = shortcuts.declare(vhost, expires=60_000, message_ttl=40_000, consumer_timeout=50_000)
    assert next_of(queue) == (Change.QUEUE, 60, None)
    shortcuts.send(queue, "1")
    shortcuts.send(queue, "2", expiration="30000")
    assert next_of(queue) == (Change.LIFE, 30, 2)
    namespaces.step_clock(vhost, 31 * SECOND)
    assert next_of(queue) == (Change.LIFE, 9, 1)
    shortcuts.get(queue)
    assert next_of(queue) == (Change.UNACKNOWLEDGED, 50, 1)


def test_a_step_to_an_instant_is_exact_and_never_goes_back(namespace):
    at = namespaces.get_clock(namespace).now + 90 * SECOND
    assert namespaces.step_clock_to(namespace, at).now == at
    with pytest.raises(InvalidArgument, match="never goes back"):
        namespaces.step_clock_to(namespace, at)
    with pytest.raises(InvalidArgument, match="at most"):
        namespaces.step_clock_to(namespace, at + timedelta(days=40_000))
    assert namespaces.get_clock(namespace).now == at


def test_a_step_runs_maintenance_only_in_its_namespace(make_queue, account):
    queue, jobs = make_queue(lock_duration=timedelta(seconds=5)), EntityAddress(account, "jobs")
    queue_storage.create_queue(jobs, expiry_grace=timedelta(0))
    queue_storage.put(jobs, "1", time_to_live=SECOND)
    service_bus.send(queue, [Message(body=b"1")])
    service_bus.receive(queue, 1)
    namespaces.step_clock(account, 2 * SECOND)
    namespaces.step_clock(queue.namespace, 5 * SECOND)
    assert sweeps.follow_clock(queue.namespace)["expired"] == 0
    assert sweeps.follow_clock(account)["expired"] == 1


def test_the_next_change_can_be_an_idle_deletion(make_queue):
    """SB-190: not while it has scheduled messages, forwards, or a receiver waits (SB-193, SB-195, SB-918)."""
    queue, target = make_queue(auto_delete_on_idle=timedelta(minutes=5)), make_queue()
    assert next_of(queue) == (Change.IDLE, 320, None)
    [number] = service_bus.send(queue, [Message(scheduled_enqueue_at=clock_of(queue) + timedelta(minutes=10))])
    assert next_of(queue) == (Change.DUE, 600, number)
    assert go_on_to_the_next(queue)["activated"] == 1
    assert next_of(queue) == (Change.IDLE, 320, None)
    entities.update_queue(queue, forward_to=target.path)
    assert next_of(queue) is None
    entities.update_queue(queue, forward_to=None)
    assert go_on_to_the_next(queue)["deleted"] == [str(queue)]


def test_a_topics_idle_deletion_follows_the_last_use_of_its_subscriptions(namespace, step):
    """SB-191."""
    topic = entities.create_topic(EntityAddress(namespace, "brief"), auto_delete_on_idle=timedelta(minutes=5)).address
    entities.create_subscription(topic.subscription("s"))
    step(timedelta(minutes=4))
    service_bus.receive(topic.subscription("s"))
    assert next_of(topic) == (Change.IDLE, 320, None)
    idleness = reads.idleness(topic)
    assert (idleness.used, idleness.used_address, idleness.used_at) == (UseKind.RECEIVE, topic.subscription("s"), clock_of(topic))
    assert reads.idleness(topic.subscription("s")) is None


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda queue: None, UseKind.CREATE),
        (lambda queue: service_bus.send(queue, [Message()]), UseKind.SEND),
        (service_bus.receive, UseKind.RECEIVE),
        (service_bus.peek, UseKind.PEEK),
        (lambda queue: entities.update_queue(queue, user_metadata="x"), UseKind.CHANGE),
    ],
)
def test_the_last_use_of_an_entity_is_known(make_queue, step, use, kind):
    queue = make_queue(auto_delete_on_idle=timedelta(minutes=5))
    step(timedelta(minutes=1))
    use(queue)
    idleness = reads.idleness(queue)
    assert (idleness.used, idleness.kept_by, idleness.after) == (kind, None, timedelta(minutes=5))
    assert idleness.at == idleness.used_at + timedelta(minutes=5, seconds=20)


def test_a_step_forwards_messages_it_dead_lettered_or_activated(make_queue, step):
    target, hospital = make_queue(), make_queue()
    source = make_queue(dead_lettering_on_message_expiration=True, forward_dead_lettered_messages_to=hospital.path)
    relay = make_queue(forward_to=target.path)
    service_bus.send(source, [Message(b"dead", time_to_live=5 * SECOND)])
    service_bus.send(relay, [Message(b"due", scheduled_enqueue_at=clock_of(relay) + 5 * SECOND)])
    step(5 * SECOND)
    assert sweeps.follow_clock(source.namespace)["forwarded"] == 2
    counts = {queue: reads.counts(queue) for queue in (source, hospital, relay, target)}
    assert [(c.active, c.dead_letter, c.scheduled) for c in counts.values()] == [(0, 0, 0), (1, 0, 0), (0, 0, 0), (1, 0, 0)]


def test_a_step_forwards_no_messages_in_other_namespaces(make_queue, broker_database):
    namespaces.create_namespace("elsewhere", Family.SERVICE_BUS)
    hospital = entities.create_queue(EntityAddress("elsewhere", "hospital")).address
    sick = entities.create_queue(EntityAddress("elsewhere", "sick")).address
    service_bus.send(sick, [Message()])
    service_bus.dead_letter(sick, [service_bus.receive(sick)[0].lock_token], "test")
    entities.update_queue(sick, forward_dead_lettered_messages_to=hospital.path)
    assert sweeps.follow_clock(make_queue().namespace)["forwarded"] == 0
    assert sweeps.follow_clock("Elsewhere")["forwarded"] == 1
