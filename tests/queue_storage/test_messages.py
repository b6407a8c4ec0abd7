"""Put, get, peek, update, delete and clear, on the real database."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from broker_core import queue_storage, reads, service_bus
from broker_core.common.errors import InvalidArgument, NotAllowed, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.queue_storage import clear, delete, delete_all, get, peek, put, put_all, update
from broker_core.queue_storage.rules.errors import (
    InvalidQueryParameterValue,
    InvalidXmlDocument,
    MessageNotFound,
    MissingRequiredQueryParameter,
    OutOfRangeQueryParameterValue,
    PopReceiptMismatch,
    QueueNotFound,
    RequestBodyTooLarge,
)
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.broker_state import events, ledger_agrees, now

SECOND = timedelta(seconds=1)
LEASE = 30 * SECOND


def texts(messages):
    return [message.text for message in messages]


def kinds(address, number):
    return [EventKind(event.kind).name for event in events(address, number)]


def take(address, **options):
    (message,) = get(address, **options)
    return message


# Put


def test_put_returns_the_stored_message(queue):
    at = now(queue)
    message = put(queue, "hello", visibility_timeout=5 * SECOND, time_to_live=60 * SECOND)
    assert (message.inserted_at, message.visible_at, message.expires_at) == (at, at + 5 * SECOND, at + 60 * SECOND)
    assert message.sequence_number == 1
    assert message.message_id == message.message_id.lower() and len(message.message_id) == 36
    assert message.pop_receipt.hex not in message.message_id.replace("-", "")
    assert kinds(queue, 1) == ["SENT"]
    assert ledger_agrees(queue)


def test_without_a_visibility_timeout_a_message_is_visible_at_once(queue):
    put(queue, "a")
    (seen,) = peek(queue)
    assert (seen.text, seen.dequeue_count) == ("a", 0)


def test_the_default_ttl_is_seven_days_and_none_means_no_expiry(queue, step):
    week, ever = put(queue, "week"), put(queue, "ever", time_to_live=None)
    assert week.expires_at - week.inserted_at == timedelta(days=7)
    assert ever.expires_at is None
    step(timedelta(days=7))
    assert texts(get(queue, 32)) == ["ever"]


def test_a_time_to_live_beyond_the_year_9999_means_no_expiry(queue):
    at = now(queue)
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert put(queue, "a", time_to_live=timedelta.max).expires_at is None
    assert put(queue, "b", time_to_live=last - at + SECOND).expires_at is None
    assert put(queue, "c", time_to_live=timedelta(days=365_000)).expires_at == at + timedelta(days=365_000)


def test_an_invalid_put_stores_nothing_and_is_reported_before_a_missing_queue(queue):
    missing = EntityAddress(queue.namespace, "nowhere")
    put_wrongly: Any = put
    for address in (queue, missing):
        for wrong, refusal in (
            ({"visibility_timeout": timedelta(days=8)}, OutOfRangeQueryParameterValue),
            ({"time_to_live": timedelta(0)}, InvalidQueryParameterValue),
            ({"visibility_timeout": 10 * SECOND, "time_to_live": 10 * SECOND}, InvalidQueryParameterValue),
        ):
            with pytest.raises(refusal):
                put_wrongly(address, "a", **wrong)
        with pytest.raises(RequestBodyTooLarge):
            put(address, "x" * 65_537, visibility_timeout=timedelta(days=8))
        for unreadable in ("\x01", "a\x00b", "\ud800"):
            with pytest.raises(InvalidXmlDocument):
                put(address, unreadable)
    with pytest.raises(QueueNotFound):
        put(missing, "a")
    assert queue_storage.approximate_count(queue) == 0
    assert events(queue) == []


def test_a_delay_equal_to_the_default_ttl_expires_as_it_becomes_visible(queue, step):
    put(queue, "a", visibility_timeout=timedelta(days=7))
    step(timedelta(days=7))
    assert get(queue) == []


def test_every_text_is_returned_unchanged(queue):
    texts_put = ["", " ", "<a>&amp;</a>", "\r\n", "é😀", "x" * 65_536]
    put_all(queue, texts_put)
    assert texts(get(queue, 32)) == texts_put
    assert ledger_agrees(queue)


def test_the_receipt_of_a_put_updates_and_deletes(queue):
    message = put(queue, "a")
    receipt, _ = update(queue, message.message_id, message.pop_receipt, visibility_timeout=timedelta(0), text="b")
    assert texts(peek(queue)) == ["b"]
    delete(queue, message.message_id, receipt)
    assert peek(queue) == []


def test_the_receipt_of_a_put_is_lost_with_the_first_get(queue):
    message = put(queue, "a")
    get(queue)
    with pytest.raises(PopReceiptMismatch):
        delete(queue, message.message_id, message.pop_receipt)


# Get


def test_get_hides_the_message_counts_and_issues_a_new_receipt(queue, step):
    first = put(queue, "a")
    got = take(queue)
    assert (got.dequeue_count, got.visible_at, got.inserted_at) == (1, now(queue) + LEASE, first.inserted_at)
    assert got.message_id == first.message_id and got.pop_receipt != first.pop_receipt
    assert get(queue) == []
    step(LEASE)  # at the very instant it is visible
    again = take(queue, visibility_timeout=SECOND)
    assert (again.dequeue_count, again.visible_at) == (2, now(queue) + SECOND)
    assert again.pop_receipt not in (first.pop_receipt, got.pop_receipt)
    assert kinds(queue, 1) == ["SENT", "RECEIVED", "RECEIVED", "LOCK_LOST"]
    assert ledger_agrees(queue)


def test_an_empty_queue_returns_an_empty_list_at_once(queue):
    assert get(queue, 32) == []
    assert peek(queue, 32) == []


def test_an_invalid_get_is_reported_before_a_missing_queue(queue):
    missing = EntityAddress(queue.namespace, "nowhere")
    put(queue, "a")
    for address in (queue, missing):
        for count, lease in ((0, LEASE), (33, LEASE), (1, timedelta(0)), (1, timedelta(days=8))):
            with pytest.raises(OutOfRangeQueryParameterValue):
                get(address, count, visibility_timeout=lease)
    for operation in (get, peek):
        with pytest.raises(QueueNotFound):
            operation(missing)
    assert take(queue).dequeue_count == 1


def test_each_message_has_its_own_receipt(queue):
    put_all(queue, [*"abc"])
    assert len({message.pop_receipt for message in get(queue, 3)}) == 3


def test_a_lease_may_end_after_the_message_expires(queue, step):
    put(queue, "a", time_to_live=10 * SECOND)
    got = take(queue, visibility_timeout=60 * SECOND)
    assert got.visible_at > got.expires_at
    step(60 * SECOND)
    assert get(queue) == []
    with pytest.raises(MessageNotFound):
        delete(queue, got.message_id, got.pop_receipt)


def test_a_lease_that_ends_keeps_its_full_precision(queue, step):
    put(queue, "a")
    take(queue, visibility_timeout=timedelta(seconds=1.5))
    step(timedelta(microseconds=1_499_999))
    assert get(queue) == []
    step(timedelta(microseconds=1))
    assert take(queue).dequeue_count == 2


# Order


def test_put_order_without_delays(queue):
    for text in "abc":
        put(queue, text)
    put_all(queue, [*"def"])
    assert texts(get(queue, 4)) == ["a", "b", "c", "d"]
    assert texts(get(queue, 4)) == ["e", "f"]


def test_messages_are_returned_in_the_order_in_which_they_became_visible(queue, step):
    put(queue, "two", visibility_timeout=2 * SECOND)
    put(queue, "one", visibility_timeout=SECOND)
    put(queue, "zero")
    step(3 * SECOND)
    put(queue, "late")
    assert texts(peek(queue, 32)) == texts(get(queue, 32)) == ["zero", "one", "two", "late"]


def test_a_released_message_comes_after_those_visible_earlier(queue, step):
    put_all(queue, [*"ab"])
    held = take(queue)
    step(SECOND)
    update(queue, held.message_id, held.pop_receipt, visibility_timeout=timedelta(0))
    assert texts(get(queue, 2)) == ["b", "a"]


# Peek


def test_peek_changes_nothing_and_shows_no_receipt(queue, step):
    put_all(queue, [*"ab"])
    before = peek(queue, 32)
    assert peek(queue, 32) == before and texts(before) == ["a", "b"]
    assert not hasattr(before[0], "pop_receipt") and not hasattr(before[0], "visible_at")
    assert take(queue).dequeue_count == 1
    assert len(events(queue)) == 3


def test_peek_shows_nothing_invisible(queue, step):
    put(queue, "delayed", visibility_timeout=5 * SECOND)
    put(queue, "short", time_to_live=SECOND)
    step(SECOND)
    put(queue, "leased")
    get(queue)
    put(queue, "there")
    assert texts(peek(queue, 32)) == ["there"]


def test_peek_returns_at_most_32_messages(queue):
    put_all(queue, [str(i) for i in range(40)])
    assert texts(peek(queue, 32)) == [str(i) for i in range(32)]
    with pytest.raises(OutOfRangeQueryParameterValue):
        peek(queue, 33)


# Update


def test_update_returns_a_new_receipt_and_a_new_time(queue, step):
    put(queue, "a", time_to_live=3600 * SECOND)
    got = take(queue)
    step(10 * SECOND)
    receipt, visible_at = update(queue, got.message_id, got.pop_receipt, visibility_timeout=60 * SECOND)
    assert visible_at == now(queue) + 60 * SECOND and receipt != got.pop_receipt
    step(59 * SECOND)
    assert get(queue) == []
    step(SECOND)
    again = take(queue)
    assert (again.text, again.dequeue_count) == ("a", 2)
    assert (again.inserted_at, again.expires_at) == (got.inserted_at, got.expires_at)
    assert kinds(queue, 1)[:3] == ["SENT", "RECEIVED", "RENEWED"]
    assert ledger_agrees(queue)


def test_updates_are_counted_until_the_next_get(queue, step):
    put(queue, "a")
    receipt = take(queue).pop_receipt
    for count in (1, 2, 3):
        row = reads.message(queue, 1).row
        assert row.renewals == count - 1
        receipt, _ = update(queue, row.message_id, receipt, visibility_timeout=LEASE)
    step(LEASE)
    assert reads.message(queue, 1).row.renewals == 3
    take(queue)
    assert reads.message(queue, 1).row.renewals == 0


def test_update_to_zero_makes_the_message_visible(queue):
    put(queue, "a")
    got = take(queue)
    update(queue, got.message_id, got.pop_receipt, visibility_timeout=timedelta(0))
    assert take(queue).dequeue_count == 2
    assert kinds(queue, 1) == ["SENT", "RECEIVED", "ABANDONED", "RECEIVED"]
    assert ledger_agrees(queue)


@pytest.mark.parametrize(("text", "expected"), [(None, "before"), ("after", "after"), ("", "")])
def test_update_replaces_the_text_only_if_a_text_is_given(queue, text, expected):
    message = put(queue, "before")
    update(queue, message.message_id, message.pop_receipt, visibility_timeout=timedelta(0), text=text)
    assert texts(peek(queue)) == [expected]
    assert ledger_agrees(queue)


def test_an_update_invalidates_the_previous_receipt(queue):
    put(queue, "a")
    got = take(queue)
    update(queue, got.message_id, got.pop_receipt, visibility_timeout=SECOND)
    with pytest.raises(PopReceiptMismatch):
        update(queue, got.message_id, got.pop_receipt, visibility_timeout=SECOND)
    with pytest.raises(PopReceiptMismatch):
        delete(queue, got.message_id, got.pop_receipt)


def test_the_queue_is_checked_first_then_the_message_then_the_receipt(queue):
    message = put(queue, "a")
    other = put(queue, "b")
    missing = EntityAddress(queue.namespace, "nowhere")
    for change in (delete, lambda *args: update(*args, visibility_timeout=SECOND)):
        with pytest.raises(QueueNotFound):
            change(missing, "nonsense", uuid4())
        for unknown in ("nonsense", str(uuid4()), ""):
            with pytest.raises(MessageNotFound):
                change(queue, unknown, message.pop_receipt)
        for wrong in (uuid4(), "nonsense", other.pop_receipt):
            with pytest.raises(PopReceiptMismatch):
                change(queue, message.message_id, wrong)
    assert texts(peek(queue, 2)) == ["a", "b"]


def test_update_works_after_the_lease_until_the_next_get(queue, step):
    put(queue, "a")
    got = take(queue)
    step(LEASE + SECOND)
    receipt, _ = update(queue, got.message_id, got.pop_receipt, visibility_timeout=SECOND)
    step(2 * SECOND)
    take(queue)
    with pytest.raises(PopReceiptMismatch):
        update(queue, got.message_id, receipt, visibility_timeout=SECOND)
    assert ledger_agrees(queue)


def test_an_expired_message_cannot_be_updated_or_deleted(queue, step):
    message = put(queue, "a", time_to_live=SECOND)
    step(SECOND)
    with pytest.raises(MessageNotFound):
        update(queue, message.message_id, message.pop_receipt, visibility_timeout=SECOND)
    with pytest.raises(MessageNotFound):
        delete(queue, message.message_id, message.pop_receipt)


def test_an_update_may_extend_beyond_the_expiry_unless_the_queue_is_strict(make_queue, step):
    strict, lenient = make_queue(strict_visibility=True), make_queue()
    for address in (strict, lenient):
        message = put(address, "a", time_to_live=10 * SECOND)
        if address is lenient:
            assert update(address, message.message_id, message.pop_receipt, visibility_timeout=100 * SECOND)
            continue
        with pytest.raises(InvalidQueryParameterValue, match="expiration"):
            update(address, message.message_id, message.pop_receipt, visibility_timeout=100 * SECOND)
        with pytest.raises(PopReceiptMismatch):  # the receipt comes first
            update(address, message.message_id, uuid4(), visibility_timeout=100 * SECOND)
        assert update(address, message.message_id, message.pop_receipt, visibility_timeout=10 * SECOND)  # equal is not beyond
        assert ledger_agrees(address)


def test_an_invalid_update_changes_nothing(queue):
    message = put(queue, "a")
    with pytest.raises(MissingRequiredQueryParameter):
        update(queue, message.message_id, None, visibility_timeout=SECOND)
    with pytest.raises(MissingRequiredQueryParameter):
        update(queue, message.message_id, message.pop_receipt, visibility_timeout=None)
    with pytest.raises(OutOfRangeQueryParameterValue):
        update(queue, message.message_id, message.pop_receipt, visibility_timeout=timedelta(days=8))
    with pytest.raises(RequestBodyTooLarge):
        update(queue, message.message_id, message.pop_receipt, visibility_timeout=SECOND, text="x" * 65_537)
    for unreadable in ("\x02", "\x00", "\udfff"):
        with pytest.raises(InvalidXmlDocument):
            update(queue, message.message_id, message.pop_receipt, visibility_timeout=SECOND, text=unreadable)
    assert texts(peek(queue)) == ["a"]
    delete(queue, message.message_id, message.pop_receipt)


# Delete and clear


def test_a_deleted_message_is_not_found_again(queue, step):
    put(queue, "a")
    got = take(queue)
    delete(queue, got.message_id, got.pop_receipt)
    step(LEASE)
    assert get(queue) == []
    with pytest.raises(MessageNotFound):
        delete(queue, got.message_id, got.pop_receipt)
    with pytest.raises(MissingRequiredQueryParameter):
        delete(queue, got.message_id, None)
    assert kinds(queue, 1) == ["SENT", "RECEIVED", "COMPLETED"]
    assert ledger_agrees(queue)


def test_delete_works_after_the_lease_until_the_next_get(queue, step):
    put_all(queue, [*"ab"])
    first, second = get(queue, 2)
    step(LEASE)
    delete(queue, first.message_id, str(first.pop_receipt))
    take(queue)
    with pytest.raises(PopReceiptMismatch):
        delete(queue, second.message_id, second.pop_receipt)


def test_a_list_of_messages_is_deleted_in_one_statement(queue):
    put_all(queue, [*"abc"])
    first, second, third = get(queue, 3)
    delete(queue, second.message_id, second.pop_receipt)
    report = delete_all(queue, [first, second, (third.message_id, uuid4())])
    assert report.deleted == (first.message_id,)
    assert report.missing == (second.message_id, third.message_id)
    assert ledger_agrees(queue)


def test_a_message_named_twice_in_a_list_is_deleted_once(queue):
    first, second = put_all(queue, [*"ab"])
    again = (first.message_id.upper(), first.pop_receipt)  # another id: they are compared as they are written
    report = delete_all(queue, [first, second, (first.message_id, str(first.pop_receipt)), again, (first.message_id, uuid4())])
    assert report == ((first.message_id, second.message_id), (again[0],))
    assert ledger_agrees(queue)


def test_invalid_lists_are_refused(queue):
    put(queue, "a")
    wrong: Any
    for wrong in (None, 5, "ab", [5], [b"ab"], ["a"], [("a",)], [("a", "b", "c")]):
        with pytest.raises(InvalidArgument):
            delete_all(queue, wrong)
    for wrong in (None, 5, "ab", b"ab", [b"ab"]):
        with pytest.raises(InvalidArgument):
            put_all(queue, wrong)
    assert texts(peek(queue, 32)) == ["a"]


@pytest.mark.parametrize("wrong", [None, 5, "", "x\0y", "\ud800", "no-id", b"x", ["a"]], ids=repr)
def test_an_invalid_id_is_not_found(queue, wrong):
    receipt = put(queue, "a").pop_receipt
    for operation in (
        lambda: update(queue, wrong, receipt, visibility_timeout=SECOND),
        lambda: delete(queue, wrong, receipt),
    ):
        with pytest.raises(MessageNotFound):  # well formed or not (QS-050)
            operation()
    assert delete_all(queue, [(wrong, receipt)]) == ((), (str(wrong),))


@pytest.mark.parametrize("wrong", ["account/orders", None, 5, ("account", "orders")], ids=repr)
def test_an_invalid_address_is_refused(broker_database, wrong):
    for operation in (lambda: put(wrong, "a"), lambda: get(wrong), lambda: queue_storage.ensure_queue(wrong)):
        with pytest.raises(InvalidArgument):
            operation()
    for parts in (("account", ["orders"]), (None, "orders"), ("account", "a\x00b")):
        with pytest.raises(InvalidArgument):
            get(EntityAddress(*parts))


def test_clear_removes_all_messages_including_leased_messages(queue, step):
    put_all(queue, ["x"] * 1200)
    put(queue, "later", visibility_timeout=60 * SECOND)
    put(queue, "short", time_to_live=SECOND)
    held = take(queue)
    step(SECOND)
    assert clear(queue) == 1202
    assert (peek(queue), queue_storage.approximate_count(queue)) == ([], 0)
    with pytest.raises(MessageNotFound):
        delete(queue, held.message_id, held.pop_receipt)
    assert kinds(queue, 1) == ["SENT", "RECEIVED", "PURGED"]
    assert ledger_agrees(queue)
    assert clear(queue) == 0


# Who may, and which family


def test_each_operation_needs_its_right(queue):
    message = put(queue, "a")
    key = message.message_id, message.pop_receipt
    calls = {
        Right.SEND: [lambda a: put(queue, "b", actor=a)],
        Right.LISTEN: [
            lambda a: get(queue, actor=a),
            lambda a: peek(queue, actor=a),
            lambda a: update(queue, *key, visibility_timeout=SECOND, actor=a),
            lambda a: delete(queue, *key, actor=a),
            lambda a: delete_all(queue, [message], actor=a),
        ],
        Right.OPERATE: [
            lambda a: queue_storage.release(queue, [1], actor=a),
            lambda a: queue_storage.remove(queue, [1], actor=a),
            lambda a: queue_storage.requeue_poison(queue, [1], actor=a),
        ],
        Right.MANAGE: [
            lambda a: queue_storage.delete_queue(queue, actor=a),
            lambda a: queue_storage.set_metadata(queue, {}, actor=a),
            lambda a: queue_storage.create_queue(EntityAddress(queue.namespace, "new"), actor=a),
        ],
        Right.BROWSE: [
            lambda a: queue_storage.get_queue(queue, actor=a),
            lambda a: queue_storage.list_queues(queue.namespace, actor=a),
            lambda a: queue_storage.approximate_count(queue, actor=a),
            lambda a: queue_storage.explain(queue, 1, actor=a),
        ],
        Right.MANAGE | Right.OPERATE: [lambda a: clear(queue, actor=a)],
    }
    for right, operations in calls.items():
        for operation in operations:
            with pytest.raises(NotAuthorized):
                operation(Actor("key", "k", Right.ALL & ~right))
    for enough in (Right.MANAGE, Right.OPERATE):
        clear(queue, actor=Actor("key", "k", enough))


def test_operations_of_another_family_are_refused(queue, namespace):
    bus = EntityAddress(namespace, "bus-queue")
    entities.create_queue(bus)
    with pytest.raises(NotAllowed):
        service_bus.send(queue, [Message(b"\x00 any bytes, with properties", properties={"a": 1})])
    for call in (lambda: put(bus, "a"), lambda: get(bus), lambda: queue_storage.get_queue(bus)):
        with pytest.raises(NotAllowed):
            call()
    assert peek(queue) == []


async def _all_asynchronously(queue):
    message = await put.aio(queue, "a")
    (got,) = await get.aio(queue)
    receipt, _ = await update.aio(queue, got.message_id, got.pop_receipt, visibility_timeout=timedelta(0))
    await delete.aio(queue, message.message_id, receipt)
    return await queue_storage.approximate_count.aio(queue)


def test_everything_can_be_awaited(queue):
    import asyncio

    from broker_core.store import aio

    async def work():
        try:
            return await _all_asynchronously(queue)
        finally:
            await aio.close()

    assert asyncio.run(work()) == 0


def test_history_can_be_reduced_or_off(make_queue, step):
    for level, expected in ((0, []), (1, ["SENT", "COMPLETED"])):
        address = make_queue(history_level=level)
        put(address, "a")
        got = take(address)
        receipt, _ = update(address, got.message_id, got.pop_receipt, visibility_timeout=SECOND)
        delete(address, got.message_id, receipt)
        assert kinds(address, None) == expected
        assert ledger_agrees(address)
