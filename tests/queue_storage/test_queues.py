"""Accounts and queues: created, listed, changed, deleted, counted."""

from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, sweeps
from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, HistoryLevel, Right
from broker_core.queue_storage import (
    approximate_count,
    clear,
    create_account,
    create_queue,
    delete_queue,
    ensure_account,
    ensure_queue,
    get,
    get_queue,
    list_queues,
    put,
    put_all,
    set_metadata,
    update_queue,
)
from broker_core.queue_storage.rules.errors import (
    AccountNotFound,
    InvalidMetadata,
    InvalidResourceName,
    OutOfRangeInput,
    QueueAlreadyExists,
    QueueNotFound,
)
from tests.broker_state import ledger_agrees

SECOND = timedelta(seconds=1)


def test_an_account_is_created_once(broker_database):
    account = create_account("shopaccount1", "orders and returns")
    assert (account.family, account.description) == (Family.QUEUE_STORAGE, "orders and returns")
    with pytest.raises(EntityExists):
        create_account("shopaccount1")
    with pytest.raises(InvalidArgument):
        create_account("Shop")


def test_ensure_account_creates_an_account_once(broker_database, namespace):
    first = ensure_account("shopaccount2", "orders")
    again = ensure_account("shopaccount2", "something else")
    assert (again.id, again.description, again.family) == (first.id, "orders", Family.QUEUE_STORAGE)
    with pytest.raises(NotAllowed):
        ensure_account(namespace)
    with pytest.raises(InvalidArgument):
        ensure_account("Shop")


def test_ensure_queue_creates_a_queue_once(account):
    address = EntityAddress(account, "orders")
    first = ensure_queue(address, metadata={"a": "1"}, max_dequeue_count=5, history_level=1)
    assert (first.created, first.max_dequeue_count, first.history_level) == (True, 5, HistoryLevel.LIFECYCLE)
    again = ensure_queue(address, max_dequeue_count=3)
    assert (again.created, again.id, again.max_dequeue_count, dict(again.metadata)) == (False, first.id, 5, {"a": "1"})
    with pytest.raises(InvalidArgument):
        ensure_queue(EntityAddress(account, "other"), max_deliveries=5)
    with pytest.raises(AccountNotFound):
        ensure_queue(EntityAddress("nowhere", "orders"))
    only_browse = Actor("key", "k", Right.BROWSE)
    assert ensure_queue(address, actor=only_browse).id == first.id
    with pytest.raises(NotAuthorized):
        ensure_queue(EntityAddress(account, "other"), actor=only_browse)


def test_a_prefix_or_an_account_that_is_not_text_is_refused(account):
    for wrong in ((account, None), (account, b"o"), (5,), (None,)):
        with pytest.raises(InvalidArgument):
            list_queues(*wrong)


def test_creating_a_queue_twice_with_the_same_metadata_succeeds(account):
    address = EntityAddress(account, "orders")
    first = create_queue(address, metadata={"Colour": "Blue"})
    again = create_queue(address, metadata={"COLOUR": "Blue"})
    assert (first.created, again.created) == (True, False)
    assert first.id == again.id and dict(again.metadata) == {"colour": "Blue"}
    for other in ({"colour": "blue"}, {}, None, {"colour": "Blue", "size": "1"}):
        with pytest.raises(QueueAlreadyExists):
            create_queue(address, metadata=other)


def test_an_invalid_queue_is_not_created(account, namespace):
    for name, refusal in (("ab", OutOfRangeInput), ("Orders", InvalidResourceName), ("a--b", InvalidResourceName)):
        with pytest.raises(refusal):
            create_queue(EntityAddress(account, name))
    with pytest.raises(InvalidMetadata):
        create_queue(EntityAddress(account, "orders"), metadata={"a-b": "c"})
    with pytest.raises(InvalidArgument):
        create_queue(EntityAddress(account, "orders"), max_dequeue_count=0)
    with pytest.raises(InvalidArgument):
        create_queue(EntityAddress(account, "orders"), history_level=7)
    with pytest.raises(InvalidArgument, match="sub-queue"):
        create_queue(EntityAddress(account, "orders").dead_letter)
    with pytest.raises(AccountNotFound):
        create_queue(EntityAddress("nowhere1", "orders"))
    with pytest.raises(NotAllowed):
        create_queue(EntityAddress(namespace, "orders"))
    assert list_queues(account) == []


def test_queues_are_listed_by_name(account, namespace):
    for name in ("b-1", "b1", "b-0", "a00", "c00", "b00"):
        create_queue(EntityAddress(account, name.ljust(3, "x")))
    assert [q.name for q in list_queues(account)] == ["a00", "b-0", "b-1", "b00", "b1x", "c00"]
    assert [q.name for q in list_queues(account, "b-")] == ["b-0", "b-1"]
    assert list_queues(account, "B") == []
    with pytest.raises(AccountNotFound):
        list_queues("nowhere1")
    with pytest.raises(AccountNotFound):
        list_queues(namespace)


def test_metadata_is_replaced_as_a_whole(account):
    address = EntityAddress(account, "orders")
    create_queue(address, metadata={"a": "1", "b": "2"}, max_dequeue_count=3)
    set_metadata(address, {"C": "3"})
    stored_queue = get_queue(address)
    assert (dict(stored_queue.metadata), stored_queue.max_dequeue_count) == ({"c": "3"}, 3)
    set_metadata(address, None)
    assert dict(get_queue(address).metadata) == {}
    with pytest.raises(QueueNotFound):
        set_metadata(EntityAddress(account, "nowhere"), {})


def test_options_can_be_changed_individually(account):
    address = EntityAddress(account, "orders")
    create_queue(address)
    assert get_queue(address).poison is None
    changed = update_queue(address, max_dequeue_count=5, expiry_grace=timedelta(0), history_level=1)
    assert (changed.max_dequeue_count, changed.expiry_grace, changed.history_level) == (5, timedelta(0), HistoryLevel.LIFECYCLE)
    assert changed.poison == EntityAddress(account, "orders-poison")
    assert update_queue(address, poison_queue="grave").poison == EntityAddress(account, "grave")
    with pytest.raises(InvalidArgument):
        update_queue(address, lock_duration=SECOND)
    with pytest.raises(InvalidArgument):
        update_queue(address, poison_queue="orders")
    assert get_queue(address).poison_queue == "grave"


def test_a_deleted_queue_is_removed_with_its_messages_and_its_name_can_be_reused(queue):
    put(queue, "a")
    delete_queue(queue)
    for operation in (lambda: put(queue, "b"), lambda: get(queue), lambda: delete_queue(queue), lambda: clear(queue)):
        with pytest.raises(QueueNotFound):
            operation()
    with pytest.raises(QueueNotFound):
        approximate_count(queue)
    assert create_queue(queue).created
    assert get(queue) == []
    assert put(queue, "new").sequence_number == 1
    sweeps.remove_deleted_entities()
    assert [m.text for m in get(queue)] == ["new"]


def test_the_count_is_exact_and_excludes_expired_messages(queue, step):
    put_all(queue, [*"abc"])
    put(queue, "delayed", visibility_timeout=60 * SECOND)
    put_all(queue, [*"xy"], time_to_live=10 * SECOND)
    get(queue, 2)
    assert approximate_count(queue) == 6
    step(10 * SECOND)
    assert approximate_count(queue) == 4
    get(queue, 32)
    assert approximate_count(queue) == 4
    sweeps.roll_up_counts()
    assert approximate_count(queue) == 4
    assert ledger_agrees(queue)


def test_each_account_has_its_own_clock(queue, account):
    other = create_account(f"{account[:20]}b").name
    namespaces.pause_clock(other)
    address = EntityAddress(other, "orders")
    create_queue(address)
    for each in (queue, address):
        put(each, "a", visibility_timeout=60 * SECOND)
    namespaces.step_clock(other, 60 * SECOND)
    assert (len(get(address)), len(get(queue))) == (1, 0)


def test_a_queue_of_any_family_is_in_the_lists(queue):
    from broker_core import reads

    put_all(queue, [*"ab"])
    put(queue, "c", visibility_timeout=60 * SECOND)
    message = put(queue, "d")
    queue_storage.update(queue, message.message_id, message.pop_receipt, visibility_timeout=60 * SECOND)
    (got,) = get(queue)
    queue_storage.update(queue, got.message_id, got.pop_receipt, visibility_timeout=60 * SECOND)
    get(queue)
    counts = reads.counts(queue)
    assert (counts.active, counts.locked, counts.delayed, counts.rescheduled, counts.extended) == (4, 1, 1, 1, 1)


def test_accounts_are_found_and_listed(account, namespace):
    assert queue_storage.get_account(account).name == account
    account_names = [listed.name for listed in queue_storage.list_accounts()]
    assert account in account_names and namespace not in account_names
    for use_case in (queue_storage.get_account, queue_storage.preview_delete_account, queue_storage.delete_account):
        with pytest.raises(NotAllowed, match="not a storage account"):
            use_case(namespace)
        with pytest.raises(EntityNotFound):
            use_case("nobody")


def test_an_account_is_deleted_with_its_queues(account):
    orders, _ = (queue_storage.create_queue(EntityAddress(account, name)).address for name in ("orders", "other"))
    queue_storage.put_all(orders, ["a", "b", "c"])
    queue_storage.get(orders)
    told = queue_storage.preview_delete_account(account)
    assert told == (2, 3)
    with pytest.raises(NotAuthorized):
        queue_storage.delete_account(account, actor=Actor("user", "x", Right.BROWSE | Right.OPERATE))
    assert queue_storage.approximate_count(orders) == 3
    assert queue_storage.delete_account(account) == told
    with pytest.raises(EntityNotFound):
        queue_storage.get_account(account)
    with pytest.raises(QueueNotFound):
        queue_storage.get(orders)
    queue_storage.create_account(account)  # its name is free
    assert queue_storage.list_queues(account) == []
