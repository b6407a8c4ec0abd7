"""Namespaces, queues and clocks against a real database (SB-190, SB-230 to SB-242, SB-907, docs/design.md D6)."""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection, transaction

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, HistoryLevel, Right
from broker_core.models import Entity, Namespace, SharedAccessPolicy
from broker_core.runtime import entity_cache
from broker_core.service_bus import configured_limits
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.values import Message, QueueSettings
from broker_core.store import connections

from .made_by import API, entities

ORDERS = EntityAddress("space", "Orders")
VIEWER = Actor("user", "vera", Right.BROWSE)
ADMINISTRATOR = Actor("user", "anna", Right.ALL)
CLIENT = Actor("key", "sender", Right.SEND | Right.LISTEN)
MIN = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def in_one_transaction(request, made_by):
    """All of a test in one transaction that is rolled back, unless it has several connections: faster than emptying tables."""
    if made_by == API or "transactional_db" in request.fixturenames:
        yield
        return
    request.getfixturevalue("db")
    with connections.callers_transaction():
        yield


@pytest.fixture
def space(in_one_transaction):
    return namespaces.create_namespace("space", Family.SERVICE_BUS)


def fetch_one(sql, *params):
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()


# Namespaces


def test_a_new_namespace_has_the_policy_with_all_rights(space):
    (policy,) = shared_access.list_policies("space")
    assert (policy.name, policy.rights) == ("RootManageSharedAccessKey", Right.ALL & ~Right.OPERATE)


def test_namespace_names_are_unique_case_insensitively(space):
    with pytest.raises(EntityExists):
        namespaces.create_namespace("SPACE", Family.SERVICE_BUS)
    assert namespaces.get_namespace("sPaCe").name == "space"


def test_ensure_namespace_does_not_change_an_existing_namespace(space):
    assert namespaces.ensure_namespace("SPACE", Family.SERVICE_BUS, "another text") == space


def test_a_namespace_with_queues_cannot_be_deleted(space):
    entities.create_queue(ORDERS)
    with pytest.raises(NotAllowed, match="has 1 entities"):
        namespaces.delete_namespace("space")
    entities.delete_queue(ORDERS)
    Entity.objects.filter(namespace=space.id).delete()  # as retention does at last
    namespaces.delete_namespace("space")
    assert not Namespace.objects.filter(id=space.id).exists()
    assert not SharedAccessPolicy.objects.filter(namespace=space.id).exists()


def test_a_deleted_namespace_keeps_its_history_under_a_name_marked_as_deleted(space):
    entity_id = entities.create_queue(ORDERS).id
    service_bus.send(ORDERS, [Message(b"a", message_id="kept")])
    entities.delete_queue(ORDERS)
    namespaces.delete_namespace("space")
    for gone in (
        lambda: namespaces.get_namespace("space"),
        lambda: entities.create_queue(ORDERS),
        lambda: service_bus.send(ORDERS, [Message()]),
    ):
        with pytest.raises(EntityNotFound):
            gone()
    assert "space" not in [namespace.name for namespace in (*namespaces.list_namespaces(), *reads.namespaces())]
    assert not SharedAccessPolicy.objects.filter(namespace=space.id).exists()
    buried = Namespace.objects.get(id=space.id).name
    assert buried.startswith("space (deleted ") and str(space.id) in buried
    with pytest.raises(EntityNotFound):
        entities.create_queue(EntityAddress(buried, "orders"))
    assert [match.address.namespace for match in reads.find("kept").matches] == [buried]
    assert {event.address for event in reads.timeline(entity_id, 1)} == {EntityAddress(buried, ORDERS.path)}
    assert namespaces.create_namespace("space", Family.SERVICE_BUS).id != space.id and entities.list_queues("space") == []


def test_a_rollback_of_the_callers_transaction_undoes_a_creation(transactional_db):
    with pytest.raises(ZeroDivisionError), transaction.atomic(), connections.callers_transaction():
        # The first statement of Django's transaction, and a transaction block of its own.
        namespaces.create_namespace("space", Family.SERVICE_BUS)
        raise ZeroDivisionError
    with pytest.raises(EntityNotFound):
        namespaces.get_namespace("space")


# Queues


@pytest.mark.made_by_api
def test_a_new_queue_has_the_services_defaults_and_keeps_its_casing(space):
    queue = entities.create_queue(ORDERS)
    assert queue.settings == QueueSettings()
    stored_queue = entities.get_queue(EntityAddress("SPACE", "orders"))
    assert stored_queue == queue
    assert str(stored_queue.address) == "space/Orders"


@pytest.mark.made_by_api
def test_settings_round_trip(space):
    wanted = QueueSettings(
        lock_duration=timedelta(seconds=5),
        max_delivery_count=2**31 - 1,
        default_message_time_to_live=timedelta(days=14, microseconds=1),
        dead_lettering_on_message_expiration=True,
        auto_delete_on_idle=5 * MIN,
        max_size_in_megabytes=5120,
        status=EntityStatus.SEND_DISABLED,
        user_metadata="ключ\n'quoted'",
        kept_properties={"EnablePartitioning": True, "EntityAvailabilityStatus": "Limited"},
    )
    assert entities.create_queue(ORDERS, wanted).settings == wanted
    assert entities.get_queue(ORDERS).settings == wanted


def test_settings_unknown_to_the_service_round_trip(space):
    wanted = QueueSettings(history_level=HistoryLevel.LIFECYCLE, hidden=True)
    assert entities.create_queue(ORDERS, wanted).settings == wanted
    assert entities.get_queue(ORDERS).settings == wanted


def test_single_settings_override_a_settings_object(space):
    queue = entities.create_queue(ORDERS, QueueSettings(max_delivery_count=3, lock_duration=2 * MIN), max_delivery_count=4)
    assert (queue.settings.max_delivery_count, queue.settings.lock_duration) == (4, 2 * MIN)


@pytest.mark.made_by_api
def test_paths_are_case_insensitive(space):
    entities.create_queue(ORDERS)
    with pytest.raises(EntityExists):
        entities.create_queue(EntityAddress("Space", "ORDERS"))


def test_ensure_queue_creates_a_queue_once_and_does_not_change_it(space):
    first = entities.ensure_queue(ORDERS, max_delivery_count=3)
    assert entities.ensure_queue(ORDERS, max_delivery_count=5) == first


@pytest.mark.parametrize(
    ("address", "settings", "error"),
    [
        (EntityAddress("space", "a b"), {}, InvalidArgument),
        (EntityAddress("space", "q").dead_letter, {}, InvalidArgument),
        (EntityAddress("nowhere", "q"), {}, EntityNotFound),
        (EntityAddress("space", "q"), {"lock_duration": timedelta(seconds=1)}, InvalidArgument),
        (EntityAddress("space", "q"), {"enable_partitioning": True}, InvalidArgument),
    ],
)
def test_an_invalid_queue_is_refused_and_nothing_is_stored(space, address, settings, error):
    with pytest.raises(error):
        entities.create_queue(address, **settings)
    assert entities.list_queues("space") == []


@pytest.mark.made_by_api
def test_relaxed_limits_allow_short_locks(space, settings):
    settings.VITRINE_LIMITS = "relaxed"
    assert entities.create_queue(ORDERS, lock_duration=timedelta(seconds=1)).settings.lock_duration == timedelta(seconds=1)


@pytest.mark.made_by_api
def test_an_update_changes_only_the_given_settings(space):
    entities.create_queue(ORDERS, max_delivery_count=3)
    updated = entities.update_queue(ORDERS, lock_duration=2 * MIN, status="Disabled")
    assert updated.settings == QueueSettings(max_delivery_count=3, lock_duration=2 * MIN, status=EntityStatus.DISABLED)
    assert updated.updated_at > updated.created_at
    assert entities.get_queue(ORDERS) == updated


@pytest.mark.parametrize(
    "change",
    [{"kind": "topic"}, {"path": "other"}, {"requires_session": True}, {"kept_properties": {"EnablePartitioning": True}}],
)
def test_immutable_settings_cannot_be_changed(space, change):
    entities.create_queue(ORDERS)
    with pytest.raises(InvalidArgument, match="cannot be changed after creation"):
        entities.update_queue(ORDERS, **change)


def test_two_concurrent_updates_are_both_applied(transactional_db, space):
    entities.create_queue(ORDERS)
    changes = [{"max_delivery_count": 7}, {"lock_duration": 3 * MIN}, {"user_metadata": "x"}, {"hidden": True}]
    for update in [in_another_thread(lambda c=c: entities.update_queue(ORDERS, **c)) for c in changes]:
        update.result(timeout=10)
    assert entities.get_queue(ORDERS).settings == QueueSettings(
        max_delivery_count=7, lock_duration=3 * MIN, user_metadata="x", hidden=True
    )


@pytest.mark.made_by_api
def test_an_update_counts_as_activity_and_reading_does_not(space):
    queue = entities.create_queue(ORDERS)
    namespaces.pause_clock("space")
    before = fetch_one("SELECT last_activity_at FROM vitrine_entity_activity WHERE entity_id = %s", queue.id)
    namespaces.step_clock("space", timedelta(hours=1))
    entities.get_queue(ORDERS), entities.list_queues("space"), entities.effective(ORDERS)
    assert fetch_one("SELECT last_activity_at FROM vitrine_entity_activity WHERE entity_id = %s", queue.id) == before
    entities.update_queue(ORDERS, max_delivery_count=3)
    (after,) = fetch_one("SELECT last_activity_at FROM vitrine_entity_activity WHERE entity_id = %s", queue.id)
    assert after == namespaces.get_clock("space").now


def test_each_setting_has_its_source(space):
    entities.create_queue(ORDERS, max_delivery_count=3)
    settings = entities.effective(ORDERS)
    assert settings["max_delivery_count"] == (3, "entity")
    assert settings["lock_duration"] == (MIN, "default")
    assert settings["default_message_time_to_live"] == (None, "default")


def test_a_deletion_frees_the_name_immediately_and_removes_the_counter(space):
    first = entities.create_queue(ORDERS)
    shared_access.create_policy(ORDERS, "app", send=True)
    entities.delete_queue(ORDERS)
    with pytest.raises(EntityNotFound):
        entities.get_queue(ORDERS)
    assert fetch_one("SELECT count(*) FROM vitrine_entity_counter WHERE entity_id = %s", first.id) == (0,)
    assert Entity.objects.get(pk=first.id).deleted_at is not None
    second = entities.create_queue(ORDERS)
    assert second.id != first.id
    assert fetch_one("SELECT next_number FROM vitrine_entity_counter WHERE entity_id = %s", second.id) == (1,)
    assert shared_access.list_policies(ORDERS) == []


def in_another_thread(call):
    """Start a call on a connection of its own; `.result()` waits for what it returned or raised."""
    executor = ThreadPoolExecutor(max_workers=1)
    future = executor.submit(call)
    executor.submit(lambda: connections.current().close())
    return future


def is_waiting(future):
    with pytest.raises(FutureTimeout):
        future.result(timeout=0.3)
    return True


@pytest.mark.made_by_api
def test_a_deletion_waits_for_a_running_send(transactional_db, space):
    queue = entities.create_queue(ORDERS)
    with transaction.atomic(), connections.callers_transaction():
        assert service_bus.send(ORDERS, [Message(b"x")]) == [1]
        deleting = in_another_thread(lambda: entities.delete_queue(ORDERS))
        assert is_waiting(deleting)
    deleting.result(timeout=10)
    with pytest.raises(EntityNotFound):
        service_bus.send(ORDERS, [Message(b"y")])
    assert fetch_one("SELECT count(*) FROM vitrine_message WHERE entity_id = %s", queue.id) == (1,)  # for the sweep


@pytest.mark.made_by_core("A listener has connections of its own: what it does is no part of the test's transaction.")
def test_a_send_during_a_deletion_finds_no_queue_and_stores_nothing(transactional_db, space):
    queue = entities.create_queue(ORDERS)
    with transaction.atomic(), connections.callers_transaction():
        entities.delete_queue(ORDERS)
        sending = in_another_thread(lambda: service_bus.send(ORDERS, [Message(b"x")]))
        assert is_waiting(sending)
    with pytest.raises(EntityNotFound):
        sending.result(timeout=10)
    assert fetch_one("SELECT count(*) FROM vitrine_message WHERE entity_id = %s", queue.id) == (0,)
    entities.create_queue(ORDERS)
    assert service_bus.send(ORDERS, [Message(b"y")]) == [1]  # SB-241


@pytest.mark.made_by_core("A listener has connections of its own: what it does is no part of the test's transaction.")
def test_a_namespace_that_concurrently_gets_a_queue_is_not_deleted(transactional_db, space):
    entities.create_queue(EntityAddress("space", "gone"))
    entities.delete_queue(EntityAddress("space", "gone"))  # its history would keep the row
    with transaction.atomic(), connections.callers_transaction():
        entities.create_queue(ORDERS)
        deleting = in_another_thread(lambda: namespaces.delete_namespace("space"))
        assert is_waiting(deleting)
    with pytest.raises(NotAllowed, match="has 1 entities"):
        deleting.result(timeout=10)
    assert entities.get_queue(ORDERS).address == ORDERS


@pytest.mark.made_by_core("A listener has connections of its own: what it does is no part of the test's transaction.")
def test_entity_limits_hold_for_concurrent_creations(transactional_db, space, monkeypatch):
    """Limits hold also where two create at the same time."""
    monkeypatch.setattr(configured_limits, "STRICT", replace(configured_limits.STRICT, entities_per_namespace=1))
    with transaction.atomic(), connections.callers_transaction():
        entities.create_queue(ORDERS)
        second = in_another_thread(lambda: entities.create_queue(EntityAddress("space", "other")))
        assert is_waiting(second)
    with pytest.raises(NotAllowed, match="has 1 queues and topics"):
        second.result(timeout=10)


def test_policy_limits_hold_for_concurrent_creations(transactional_db, space):
    for n in range(10):  # one is there
        shared_access.create_policy("space", f"p{n}", send=True)
    with transaction.atomic(), connections.callers_transaction():
        shared_access.create_policy("space", "last", send=True)
        second = in_another_thread(lambda: shared_access.create_policy("space", "one-too-many", send=True))
        assert is_waiting(second)
    with pytest.raises(NotAllowed, match="has 12 shared-access policies"):
        second.result(timeout=10)


def test_locks_are_kept_when_the_queue_is_changed(space):
    entities.create_queue(ORDERS)
    service_bus.send(ORDERS, [Message(b"x")])
    (held,) = service_bus.receive(ORDERS)
    entities.update_queue(ORDERS, lock_duration=5 * MIN, max_delivery_count=1, status="SendDisabled")
    assert service_bus.complete(ORDERS, [held.lock_token]).settled


@pytest.mark.parametrize("operation", [entities.delete_queue, entities.update_queue, entities.get_queue, entities.effective])
def test_a_missing_queue_is_not_found(space, operation):
    with pytest.raises(EntityNotFound, match="space/nothing"):
        operation(EntityAddress("space", "nothing"))


@pytest.mark.made_by_api
def test_queues_are_listed_by_address(space):
    namespaces.create_namespace("Another", Family.SERVICE_BUS)
    for path in ("b", "A", "c"):
        entities.create_queue(EntityAddress("space", path))
    entities.create_queue(EntityAddress("Another", "z"))
    ours = [str(q.address) for q in entities.list_queues() if q.address.namespace in ("space", "Another")]
    assert ours == ["Another/z", "space/A", "space/b", "space/c"]
    assert [str(q.address) for q in entities.list_queues("SPACE")] == ["space/A", "space/b", "space/c"]


# Rights


CHANGES = [
    lambda actor: namespaces.create_namespace("other", Family.SERVICE_BUS, actor=actor),
    lambda actor: namespaces.update_namespace("space", description="x", actor=actor),
    lambda actor: namespaces.delete_namespace("space", actor=actor),
    lambda actor: entities.create_queue(EntityAddress("space", "new"), actor=actor),
    lambda actor: entities.ensure_queue(EntityAddress("space", "new"), actor=actor),
    lambda actor: entities.update_queue(ORDERS, hidden=True, actor=actor),
    lambda actor: entities.delete_queue(ORDERS, actor=actor),
    lambda actor: namespaces.pause_clock("space", actor=actor),
    lambda actor: namespaces.step_clock("space", MIN, actor=actor),
    lambda actor: namespaces.resume_clock("space", actor=actor),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changing_requires_the_right_to_manage(space, change):
    entities.create_queue(ORDERS)
    with pytest.raises(NotAuthorized) as refused:
        change(VIEWER)
    assert refused.value.right == "MANAGE"
    assert entities.get_queue(ORDERS).settings == QueueSettings()
    assert not namespaces.get_clock("space").is_manual


def test_reading_requires_the_right_to_browse(space):
    entities.create_queue(ORDERS)
    assert entities.get_queue(ORDERS, actor=VIEWER).settings == QueueSettings()
    with pytest.raises(NotAuthorized, match="BROWSE"):
        entities.get_queue(ORDERS, actor=Actor("key", "sender", Right.SEND))


# The system namespace


def test_the_system_namespace_can_be_changed_by_processes_but_not_by_users():
    namespaces.ensure_namespace("system", Family.SERVICE_BUS, is_system=True)
    queue = EntityAddress("system", "of-a-test")
    with pytest.raises(NotAllowed, match="only its processes"):
        entities.create_queue(queue, actor=ADMINISTRATOR)
    created = entities.create_queue(queue)
    assert created.settings.history_level == HistoryLevel.OFF
    assert entities.effective(queue)["history_level"] == (HistoryLevel.OFF, "default")
    for refused in (
        lambda: entities.delete_queue(queue, actor=ADMINISTRATOR),
        lambda: entities.update_queue(queue, hidden=True, actor=ADMINISTRATOR),
        lambda: namespaces.delete_namespace("system"),
        lambda: namespaces.update_namespace("system", description="x"),
        lambda: namespaces.pause_clock("system"),
        lambda: namespaces.step_clock("system", MIN),
        lambda: namespaces.resume_clock("system", 2),
    ):
        with pytest.raises(NotAllowed):
            refused()


# Clocks


def test_a_clock_is_in_real_time_until_it_is_changed(space):
    clock = namespaces.get_clock("space")
    assert (clock.rate, clock.is_manual) == (1.0, False)


def test_a_paused_clock_does_not_advance_and_can_be_stepped(space):
    paused = namespaces.pause_clock("space")
    assert namespaces.get_clock("space").now == paused.now
    stepped = namespaces.step_clock("space", timedelta(days=2))
    assert stepped.now - paused.now == timedelta(days=2)
    assert namespaces.get_clock("space") == stepped


def test_a_resumed_clock_continues_from_its_time(space):
    paused = namespaces.pause_clock("space")
    namespaces.resume_clock("space", 1000)
    first, second = namespaces.get_clock("space"), namespaces.get_clock("space")
    assert paused.now < first.now < second.now
    assert (first.rate, first.is_manual) == (1000.0, True)


def test_a_running_clock_can_be_stepped_without_a_pause(space):
    before = namespaces.get_clock("space").now
    stepped = namespaces.step_clock("space", timedelta(hours=1))
    assert stepped.now - before >= timedelta(hours=1)
    assert namespaces.get_clock("space").now > stepped.now


def test_a_clock_never_goes_back(space):
    shown = [namespaces.get_clock("space").now]
    for change in (
        lambda: namespaces.step_clock("space", MIN),
        lambda: namespaces.resume_clock("space", 86_400),
        lambda: namespaces.pause_clock("space"),
        lambda: namespaces.resume_clock("space", 0.001),
        lambda: namespaces.step_clock("space", timedelta(0)),
        lambda: namespaces.resume_clock("space"),
    ):
        shown += [change().now, namespaces.get_clock("space").now]
    assert shown == sorted(shown)


@pytest.mark.parametrize("step", [-timedelta(microseconds=1), timedelta(days=36_501), 60, None])
def test_invalid_clock_steps_are_refused(space, step):
    with pytest.raises(InvalidArgument, match="only moves forward|must be a timedelta"):
        namespaces.step_clock("space", step)


@pytest.mark.parametrize("rate", [0, -1, 86_401, float("nan"), float("inf"), True, "2", None])
def test_invalid_clock_rates_are_refused(space, rate):
    with pytest.raises(InvalidArgument, match="greater than 0"):
        namespaces.resume_clock("space", rate)


def test_a_clock_stays_within_the_supported_years(space):
    namespaces.pause_clock("space")
    with pytest.raises(InvalidArgument, match="year 3000"):
        for _ in range(11):
            namespaces.step_clock("space", timedelta(days=36_500))
    assert namespaces.get_clock("space").now.year < 3000


@pytest.mark.parametrize("before", [True, False])
def test_a_recreated_entity_is_used_with_its_current_settings(namespace, before):
    """Whether it requires sessions is remembered; it may be another one by now."""
    address = EntityAddress(namespace, "q")
    uses = [
        lambda: service_bus.send(address, [Message(b"m", session_id=None if before else "s")]),
        lambda: service_bus.receive(address, 1) if before else service_bus.accept_session(address, "s"),
    ]
    for use in uses:
        entities.create_queue(address, requires_session=before)
        service_bus.send(address, [Message(b"m", session_id="s")])
        entities.delete_queue(address)
        entities.create_queue(address, requires_session=not before)
        use()
        entities.delete_queue(address)


def test_renewing_reads_a_recreated_entity_again(namespace):
    """As the receiver is in another process, this one remembers only what was there before."""
    address = EntityAddress(namespace, "q")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"m")])
    (message,) = service_bus.receive(address, 1)
    key = entity_cache._key(address)
    entity_cache._entities[key] = entity_cache._entities[key]._replace(requires_session=True)
    assert service_bus.renew(address, [message.lock_token]).settled
