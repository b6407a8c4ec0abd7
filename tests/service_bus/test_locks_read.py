"""The locks of all entities and families (reads.locks)."""

from dataclasses import replace
from uuid import uuid4

import pytest

from broker_core import queue_storage, rabbitmq, reads, service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq import Publication
from broker_core.reads import EntityFilter, LockFilter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message

ANNA, BEN = Actor("process", "anna", Right.ALL), Actor("process", "ben", Right.ALL)


@pytest.fixture
def held(make_queue):
    """Two locks of anna in a queue, one of them on a dead letter; a session of ben with a message."""
    queue = make_queue()
    service_bus.send(queue, [Message(message_id=f"m{n}") for n in range(1, 5)])
    dead, kept = service_bus.receive(queue, 2, actor=ANNA)
    service_bus.dead_letter(queue, [dead.lock_token])
    service_bus.receive(queue.dead_letter, 1, actor=ANNA)
    service_bus.renew(queue, [kept.lock_token])
    carts = EntityAddress(queue.namespace, "carts")
    entities.create_queue(carts, requires_session=True)
    service_bus.send(carts, [Message(session_id="s")])
    service_bus.accept_session(carts, "s", max_count=1, actor=BEN)
    return queue


def _in(queue, **filter):
    return LockFilter(EntityFilter(namespace=queue.namespace), **filter)


def test_every_lock_is_listed_with_its_holder_and_renewals(held):
    locks = reads.locks(_in(held))
    assert [(row.address.path, row.session_id, row.number, row.holder, row.renewals) for row in locks.rows] == [
        ("carts", "s", None, "process:ben", None),
        ("carts", "s", 1, "process:ben", 0),
        (held.path, None, 1, "process:anna", 0),
        (held.path, None, 2, "process:anna", 1),
    ]
    assert [row.is_session for row in locks.rows] == [True, False, False, False]
    assert all(row.since <= row.read_at < row.until for row in locks.rows)
    assert (locks.matching.value, locks.next_cursor) == (4, None)
    assert [(holder.name, holder.messages, holder.sessions) for holder in locks.holders] == [
        ("process:anna", 2, 0),
        ("process:ben", 1, 1),
    ]


def test_a_new_receive_counts_renewals_from_the_beginning(held):
    service_bus.release_locks(held, [2])
    service_bus.receive(held, 1)
    assert [row.renewals for row in reads.locks(_in(held)).rows if row.number == 2 and row.address.path == held.path] == [0]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_follow_each_other_without_gaps(held, limit):
    whole, pages, cursor = reads.locks(_in(held)).rows, [], None
    while True:
        locks = reads.locks(_in(held), limit=limit, cursor=cursor)
        pages += locks.rows
        if (cursor := locks.next_cursor) is None:
            break
    assert [row.dom_id for row in pages] == [row.dom_id for row in whole]


def test_locks_can_be_filtered(held):
    bens = reads.locks(_in(held, holder="BEN"), limit=1)
    assert {row.holder for row in bens.rows} == {"process:ben"}
    assert (bens.matching.value, [holder.name for holder in bens.holders]) == (2, ["process:ben"])
    by_path = replace(_in(held), entities=EntityFilter(namespace=held.namespace, parts=("carts",)))
    assert {row.address.path for row in reads.locks(by_path).rows} == {"carts"}


@pytest.mark.parametrize("cursor", ["", "x", "[]", '["a", "b", true]', '["a", "b", null]', "[" * 5000])
def test_an_invalid_cursor_is_refused(db, cursor):
    with pytest.raises(InvalidArgument):
        reads.locks(cursor=cursor)


def test_leases_and_unacknowledged_deliveries_are_locks(db):
    account, vhost = f"leases{uuid4().hex[:6]}", f"held {uuid4().hex[:6]}"
    queue_storage.create_account(account)
    jobs, rabbits = EntityAddress(account, "jobs"), EntityAddress(vhost, "q")
    queue_storage.create_queue(jobs)
    queue_storage.put_all(jobs, ["a", "b", "c"])
    queue_storage.get(jobs, 2, actor=ANNA)
    rabbitmq.create_vhost(vhost)
    rabbitmq.declare_queue(rabbits)
    rabbitmq.publish(vhost, [Publication(b"x", routing_key="q")] * 2)
    rabbitmq.take(rabbits, owner_id=1_000_002, holder="client 7")
    leased = reads.locks(LockFilter(EntityFilter(namespace=account)))
    assert [(row.number, row.holder, row.until is not None) for row in leased.rows] == [
        (1, "process:anna", True),
        (2, "process:anna", True),
    ]
    unacked = reads.locks(LockFilter(EntityFilter(namespace=vhost)))
    assert [(row.number, row.holder, row.until) for row in unacked.rows] == [(1, "client 7", None)]
    assert rabbitmq.release(rabbits, [1, 2]) == [1]
    assert reads.locks(LockFilter(EntityFilter(namespace=vhost))).rows == ()
