"""Quotas of namespaces and the reserve of the disk: sends are refused, receiving goes on (SB-012)."""

from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.errors import InvalidArgument, NamespaceFull, QuotaExceeded, StorageFull
from broker_core.common.types import EntityAddress, Family
from broker_core.rabbitmq import Publication
from broker_core.runtime import room
from broker_core.service_bus import entities
from broker_core.service_bus.http.errors import wire_error
from broker_core.service_bus.rules.values import Message
from tests.fixtures import (  # noqa: F401 - fixtures
    account,
    broker_database,
    fresh_room_check,
    full_disk,
    make_queue,
    namespace,
    queue,
    vhost,
)

MB = 2**20


pytestmark = pytest.mark.usefixtures("fresh_room_check")


def fill(queue, megabytes=1):  # noqa: F811
    service_bus.send(queue, [Message(b"x" * 200_000) for _ in range(6 * megabytes)])


def test_a_full_namespace_refuses_sends_until_messages_are_removed(make_queue):  # noqa: F811
    first, second = make_queue(), make_queue()
    namespaces.update_namespace(first.namespace, max_size_in_megabytes=1)
    fill(first)
    room.forget_rooms()
    with pytest.raises(NamespaceFull, match=f"'{first.namespace}' has reached its size of 1 MB") as refused:
        service_bus.send(second, [Message()])
    assert isinstance(refused.value, QuotaExceeded) and wire_error(refused.value).status == 403
    assert len(service_bus.receive_and_delete(first, 10)) == 6, "receiving goes on"
    room.forget_rooms()
    service_bus.send(second, [Message()])


def test_a_namespace_without_a_maximum_size_is_never_full(make_queue):  # noqa: F811
    first = make_queue()
    fill(first)
    namespaces.update_namespace(first.namespace, max_size_in_megabytes=1)
    with pytest.raises(NamespaceFull):
        service_bus.send(first, [Message()])
    assert namespaces.update_namespace(first.namespace, max_size_in_megabytes=0).max_size_in_megabytes is None
    service_bus.send(first, [Message()])


def test_dead_letters_count_and_other_namespaces_do_not(make_queue, broker_database):  # noqa: F811
    first = make_queue()
    fill(first)
    for message in service_bus.receive(first, 10):
        service_bus.dead_letter(first, [message.lock_token], "test")
    namespaces.create_namespace("apart", Family.SERVICE_BUS)
    apart = entities.create_queue(EntityAddress("apart", "q")).address
    namespaces.update_namespace("apart", max_size_in_megabytes=1)
    service_bus.send(apart, [Message()])
    namespaces.update_namespace(first.namespace, max_size_in_megabytes=1)
    with pytest.raises(NamespaceFull):
        service_bus.send(first, [Message()])


def test_all_families_refuse_sends_to_a_full_namespace(account, vhost):  # noqa: F811
    jobs, rabbits = EntityAddress(account, "jobs"), EntityAddress(vhost, "rabbits")
    queue_storage.create_queue(jobs)
    rabbitmq.declare_queue(rabbits)
    put = lambda: queue_storage.put(jobs, "x" * 40_000)  # noqa: E731
    publish = lambda: rabbitmq.publish(vhost, [Publication(b"x" * 400_000, routing_key="rabbits")])  # noqa: E731
    for name, send in ((account, put), (vhost, publish)):
        for _ in range(30):
            send()
        namespaces.update_namespace(name, max_size_in_megabytes=1)
        with pytest.raises(NamespaceFull):
            send()


@pytest.mark.parametrize("size", [-1, True, "1", 2**31])
def test_a_maximum_size_is_checked(namespace, size):  # noqa: F811
    with pytest.raises(InvalidArgument, match="max_size_in_megabytes: must be a whole number from 0"):
        namespaces.update_namespace(namespace, max_size_in_megabytes=size)


def test_before_the_disk_is_full_sends_are_refused_and_receives_continue(queue, full_disk):  # noqa: F811
    full_disk(100 * MB)
    service_bus.send(queue, [Message(b"a"), Message(b"b")])
    full_disk(60 * MB)
    with pytest.raises(StorageFull, match="40 MB more are free; receiving goes on") as refused:
        service_bus.send(queue, [Message()])
    assert refused.value.retryable and wire_error(refused.value).status == 503
    [message] = service_bus.receive(queue)
    service_bus.complete(queue, [message.lock_token])
    [message] = service_bus.receive_and_delete(queue)
    full_disk(101 * MB)
    service_bus.send(queue, [Message()])


def test_vitrines_own_namespace_may_use_the_reserve(broker_database, full_disk):  # noqa: F811
    """Its tasks free space."""
    namespaces.create_namespace("own", Family.SERVICE_BUS, is_system=True)
    tasks = entities.create_queue(EntityAddress("own", "tasks")).address
    full_disk(0)
    service_bus.send(tasks, [Message()])


@pytest.mark.parametrize("off", ["VITRINE_DISK_FOLDER", "VITRINE_DISK_RESERVE_MB"])
def test_without_a_folder_or_a_reserve_the_disk_is_not_checked(queue, full_disk, settings, off):  # noqa: F811
    setattr(settings, off, None)
    full_disk(0)
    service_bus.send(queue, [Message()])


def test_a_process_checks_the_room_once_every_few_seconds(queue, full_disk, monkeypatch):  # noqa: F811
    looks = []
    full_disk(10**9)
    monkeypatch.setattr(room, "_missing", lambda: looks.append(1) or 0)
    at = room.time.monotonic()
    monkeypatch.setattr(room.time, "monotonic", lambda: at)
    for _ in range(3):
        service_bus.send(queue, [Message()])
    assert len(looks) == 1
    at += timedelta(seconds=room.CHECK_SECONDS).total_seconds()
    service_bus.send(queue, [Message()])
    assert len(looks) == 2
