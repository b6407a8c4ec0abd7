"""Poison queues, and what operators do: release, remove, requeue."""

from datetime import timedelta
from typing import Any

import pytest

from broker_core import queue_storage
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, EventKind
from broker_core.queue_storage import (
    create_queue,
    delete,
    get,
    getting,
    list_queues,
    peek,
    put,
    put_all,
    release,
    remove,
    requeue_poison,
    update,
)
from broker_core.queue_storage.rules.errors import MessageNotFound, PopReceiptMismatch, QueueNotFound
from broker_core.queue_storage.rules.explaining import Code
from broker_core.store import connections
from tests.broker_state import entity_id, events, ledger_agrees, now

from .test_time import sweep

SECOND = timedelta(seconds=1)


def texts(messages):
    return [message.text for message in messages]


def poison_of(address):
    return EntityAddress(address.namespace, f"{address.path}-poison")


def fail(address, step, times, count=32):
    """Get whatever is visible so many times, and let each lease end."""
    for _ in range(times):
        got = get(address, count, visibility_timeout=SECOND)
        step(SECOND)
    return got


def origin(address, number=1):
    query = "SELECT resubmitted_from FROM vitrine_message WHERE entity_id = %s AND sequence_number = %s"
    return connections.current().execute(query, [entity_id(address), number]).fetchone()[0]


def test_a_message_at_the_dequeue_limit_moves_with_the_next_get(make_queue, step):
    address = make_queue(max_dequeue_count=2)
    original = put(address, "bad", time_to_live=3600 * SECOND)
    assert fail(address, step, 2)[0].dequeue_count == 2
    assert not [q for q in list_queues(address.namespace) if q.name.endswith("-poison")]  # made when first needed
    put(address, "good")
    assert texts(get(address, 32)) == ["good"]
    (copy,) = peek(poison_of(address))
    assert (copy.text, copy.dequeue_count, copy.inserted_at) == ("bad", 0, now(address))
    assert copy.message_id != original.message_id
    assert copy.expires_at == now(address) + timedelta(days=7)
    assert ledger_agrees(address) and ledger_agrees(poison_of(address))


def test_moved_messages_are_linked_in_both_directions(make_queue, step):
    address = make_queue(max_dequeue_count=1)
    original = put(address, "bad")
    fail(address, step, 1)
    get(address)
    poison = poison_of(address)
    gone, born = events(address, 1)[-1], events(poison, 1)[0]
    assert (EventKind(gone.kind), gone.reason) == (EventKind.MOVED, "MaxDequeueCountExceeded")
    assert gone.details == {"to": [{"entity": entity_id(poison), "path": poison.path, "sequence_number": 1}]}
    assert EventKind(born.kind) is EventKind.SENT
    came_from = {"entity": entity_id(address), "path": address.path, "sequence_number": 1, "reason": "MaxDequeueCountExceeded"}
    assert born.details == {"from": came_from}
    link = origin(poison)
    assert (link["path"], link["sequence_number"], link["message_id"]) == (address.path, 1, original.message_id)
    assert (link["dequeue_count"], link["times"]) == (1, 1)


def test_a_sweep_moves_a_spent_message_once_its_lease_has_ended(make_queue, step):
    address = make_queue(max_dequeue_count=1)
    put(address, "bad")
    (held,) = get(address)
    assert sweep(address) == 0
    step(30 * SECOND)
    assert sweep(address) == 1
    assert texts(peek(poison_of(address))) == ["bad"]
    with pytest.raises(MessageNotFound):
        delete(address, held.message_id, held.pop_receipt)
    assert ledger_agrees(address)


def test_the_last_allowed_get_can_still_delete_or_extend(make_queue, step):
    address = make_queue(max_dequeue_count=1)
    put_all(address, [*"ab"])
    first, second = get(address, 2)
    step(30 * SECOND)  # ended, and nobody has looked yet
    delete(address, first.message_id, first.pop_receipt)
    receipt, _ = update(address, second.message_id, second.pop_receipt, visibility_timeout=60 * SECOND)
    step(59 * SECOND)
    assert (sweep(address), get(address)) == (0, [])
    delete(address, second.message_id, receipt)
    assert ledger_agrees(address)


@pytest.mark.parametrize("dear", [False, True])
def test_a_get_returns_messages_behind_many_spent_messages(make_queue, step, monkeypatch, dear):
    monkeypatch.setattr(getting, "CHEAP_REFRESH", -1.0 if dear else float("inf"))  # also without refreshes of the hint
    address = make_queue(max_dequeue_count=1)
    put_all(address, ["bad"] * 1100)
    for _ in range(35):
        get(address, 32, visibility_timeout=SECOND)
    step(SECOND)
    put(address, "good")
    assert texts(get(address)) == ["good"]
    assert queue_storage.approximate_count(address) == 1
    assert queue_storage.approximate_count(poison_of(address)) == 1100
    assert ledger_agrees(address) and ledger_agrees(poison_of(address))


def test_without_a_limit_a_message_is_delivered_any_number_of_times(queue, step):
    put(queue, "a")
    assert fail(queue, step, 30)[0].dequeue_count == 30
    assert [q.name for q in list_queues(queue.namespace)] == [queue.path]


def test_a_poison_queue_has_no_poison_queue(account, step):
    address = EntityAddress(account, "orders-poison")
    create_queue(address, max_dequeue_count=1)
    put(address, "a")
    fail(address, step, 3)
    assert [q.name for q in list_queues(account)] == ["orders-poison"]
    codes = [reason.code for reason in queue_storage.explain(address, 1).reasons]
    assert codes == [Code.PARKED, Code.NEXT]


def test_a_named_poison_queue_can_serve_several_queues(account, step):
    addresses = [EntityAddress(account, name) for name in ("orders", "returns")]
    for address in addresses:
        create_queue(address, max_dequeue_count=1, poison_queue="grave")
        put(address, address.path)
        fail(address, step, 1)
        get(address)
    grave = EntityAddress(account, "grave")
    assert texts(peek(grave, 32)) == ["orders", "returns"]
    assert requeue_poison(grave, [1, 2]) == {1: 2, 2: 2}
    assert [texts(get(address)) for address in addresses] == [["orders"], ["returns"]]


def test_a_long_name_cannot_have_a_poison_queue_of_its_own(account):
    with pytest.raises(InvalidArgument):
        create_queue(EntityAddress(account, "q" * 57), max_dequeue_count=5)
    assert create_queue(EntityAddress(account, "q" * 56), max_dequeue_count=5).created


def test_a_deleted_poison_queue_is_created_again(make_queue, step):
    address = make_queue(max_dequeue_count=1)
    for turn in range(2):
        put(address, f"bad {turn}")
        fail(address, step, 1)
        assert get(address) == []
        assert texts(peek(poison_of(address), 32)) == [f"bad {turn}"]
        queue_storage.delete_queue(poison_of(address))


# Operators


def test_requeue_moves_a_message_back_as_a_new_message_with_a_link(make_queue, step):
    address = make_queue(max_dequeue_count=1)
    put(address, "bad", time_to_live=3600 * SECOND)
    fail(address, step, 1)
    get(address)
    poison = poison_of(address)
    put(poison, "put here")
    (held,) = get(poison)  # a consumer has it
    assert requeue_poison(poison, [1, 2, 99], time_to_live=None) == {2: 2}
    assert requeue_poison(poison, [1]) == {}
    step(30 * SECOND)
    assert requeue_poison(poison, [1]) == {1: 3}
    with pytest.raises(MessageNotFound):
        delete(poison, held.message_id, held.pop_receipt)
    first, second = get(address, 2)
    assert (first.text, first.expires_at, second.text) == ("put here", None, "bad")
    assert (second.dequeue_count, second.expires_at) == (1, now(address) + timedelta(days=7))
    assert origin(address, 3)["times"] == 2
    assert EventKind(events(poison, 1)[-1].kind) is EventKind.MOVED
    assert events(poison, 1)[-1].reason == "Requeued"
    assert ledger_agrees(address) and ledger_agrees(poison)


def test_a_requeued_message_is_not_requeued_into_the_poison_queue(account, step):
    """The queue that it came from last is the one it was brought back from."""
    orders, poison, grave = (EntityAddress(account, name) for name in ("orders", "orders-poison", "grave"))
    create_queue(orders, max_dequeue_count=1)
    create_queue(poison, max_dequeue_count=1, poison_queue=grave.path)
    put(orders, "bad")
    for address in (orders, poison):
        fail(address, step, 1)
        get(address)
    assert requeue_poison(grave, [1]) == {1: 2}
    assert requeue_poison(poison, [2]) == {2: 2}  # to the queue that this one is named after, and not to the grave
    with pytest.raises(InvalidArgument, match="is not a poison queue"):
        requeue_poison(orders, [2])
    assert texts(peek(orders)) == ["bad"]


def test_requeue_requires_a_known_origin(make_queue, queue, step):
    put(queue, "a")
    with pytest.raises(InvalidArgument, match="is not a poison queue"):
        requeue_poison(queue, [1])
    address = make_queue(max_dequeue_count=1)
    put(address, "bad")
    fail(address, step, 1)
    get(address)
    queue_storage.delete_queue(address)
    with pytest.raises(QueueNotFound):
        requeue_poison(poison_of(address), [1])
    assert texts(peek(poison_of(address))) == ["bad"]


def test_release_makes_a_message_visible_and_its_pop_receipt_invalid(queue):
    put(queue, "leased")
    (held,) = get(queue)
    delayed = put(queue, "delayed", visibility_timeout=60 * SECOND)
    put(queue, "visible")
    assert release(queue, [1, 2, 3, 99]) == [1, 2]
    assert texts(peek(queue, 32)) == ["leased", "delayed", "visible"]
    for message in (held, delayed):
        with pytest.raises(PopReceiptMismatch):
            delete(queue, message.message_id, message.pop_receipt)
    assert [EventKind(event.kind) for event in events(queue, 1)[-2:]] == [EventKind.RELEASED, EventKind.SETTLE_REFUSED]
    assert ledger_agrees(queue)
    assert get(queue)[0].dequeue_count == 2


def test_remove_deletes_single_messages_whether_leased_or_not(queue):
    put_all(queue, [*"abc"])
    (held,) = get(queue)
    assert remove(queue, [1, 3, 99]) == [1, 3]
    with pytest.raises(MessageNotFound):
        delete(queue, held.message_id, held.pop_receipt)
    assert texts(peek(queue, 32)) == ["b"]
    assert EventKind(events(queue, 3)[-1].kind) is EventKind.PURGED
    assert ledger_agrees(queue)


def test_an_empty_list_of_numbers_changes_nothing(queue):
    put(queue, "a")
    assert (release(queue, []), remove(queue, []), requeue_poison(queue, [])) == ([], [], {})
    assert queue_storage.delete_all(queue, []) == ((), ())
    assert queue_storage.put_all(queue, []) == []
    assert texts(peek(queue, 32)) == ["a"]


def test_invalid_numbers_are_refused(queue):
    wrong: Any = "x"
    with pytest.raises(InvalidArgument):
        queue_storage.explain(queue, wrong)
    for operation in (release, remove, requeue_poison):
        with pytest.raises(InvalidArgument):
            operation(queue, ["x"])
        for wrong in (5, None, [True], [[1]], "1"):
            with pytest.raises(InvalidArgument):
                operation(queue, wrong)
        with pytest.raises(QueueNotFound):
            operation(EntityAddress(queue.namespace, "nowhere"), [1])


# Explaining


def codes(address, number):
    explanation = queue_storage.explain(address, number)
    return [(reason.code, reason.ends_at) for reason in explanation.reasons]


def test_every_invisible_message_has_a_reason_and_an_end(queue, step):
    at = now(queue)
    put(queue, "delayed", visibility_timeout=60 * SECOND)
    message = put(queue, "rescheduled")
    update(queue, message.message_id, message.pop_receipt, visibility_timeout=70 * SECOND)
    put(queue, "leased")
    get(queue)
    put(queue, "extended")
    (held,) = get(queue)
    update(queue, held.message_id, held.pop_receipt, visibility_timeout=80 * SECOND)
    put(queue, "short", time_to_live=10 * SECOND)
    put(queue, "next")
    assert codes(queue, 1) == [(Code.DELAYED, at + 60 * SECOND)]
    assert codes(queue, 2) == [(Code.RESCHEDULED, at + 70 * SECOND)]
    assert codes(queue, 3) == [(Code.LEASED, at + 30 * SECOND)]
    assert codes(queue, 4) == [(Code.EXTENDED, at + 80 * SECOND)]
    step(10 * SECOND)
    assert codes(queue, 5) == [(Code.EXPIRED, at + 70 * SECOND)]
    assert codes(queue, 6) == [(Code.NEXT, None)]
    assert queue_storage.explain(queue, 6).deliverable and not queue_storage.explain(queue, 1).deliverable
    assert queue_storage.explain(queue, 7) is None
    with pytest.raises(QueueNotFound):
        queue_storage.explain(EntityAddress(queue.namespace, "nowhere"), 1)


def test_an_update_beyond_the_expiry_is_flagged(queue):
    at = now(queue)
    message = put(queue, "a", time_to_live=10 * SECOND)
    update(queue, message.message_id, message.pop_receipt, visibility_timeout=100 * SECOND)
    assert codes(queue, 1) == [(Code.RESCHEDULED, at + 100 * SECOND), (Code.WILL_EXPIRE_FIRST, at + 10 * SECOND)]


def test_a_message_beyond_the_reach_of_a_peek_is_explained(queue):
    put_all(queue, ["x"] * 40)
    assert [code for code, _ in codes(queue, 32)] == [Code.BEHIND]
    assert [code for code, _ in codes(queue, 33)] == [Code.BEHIND, Code.BEYOND_REACH]
