"""The search over all entities: present and removed messages, deleted entities, and slices that join without gaps."""

import time
from datetime import UTC, datetime

import pytest

from broker_core import service_bus
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, HistoryLevel, Right
from broker_core.reads import exact_id, messages_with_id, parse_filter, search_slice, searching
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from tests.fixtures import broker_database, namespace  # noqa: F401 - fixtures

ACME = {"tenant": "acme"}


@pytest.fixture
def shop(namespace):  # noqa: F811
    """orders: order-0 was completed, order-1 is active, order-2 dead. old: deleted, with old-1. quiet: without history.

    The history of other tests, which a search reads too, is emptied in the transaction of the test.
    """
    connections.current().execute("DELETE FROM vitrine_message_event")
    address = EntityAddress(namespace, "orders")
    entities.create_queue(address)
    service_bus.send(
        address,
        [Message(b'{"n": %d}' % n, message_id=f"order-{n}", correlation_id="c-7", properties=ACME) for n in range(3)],
    )
    first, _, third = service_bus.receive(address, 3)
    service_bus.complete(address, [first.lock_token])
    service_bus.dead_letter(address, [third.lock_token], "Broken")
    old, quiet = EntityAddress(namespace, "old"), EntityAddress(namespace, "quiet")
    entities.create_queue(old)
    service_bus.send(old, [Message(b"x", message_id="old-1")])
    entities.delete_queue(old)
    entities.create_queue(quiet, history_level=HistoryLevel.OFF)
    service_bus.send(quiet, [Message(b"x", message_id="quiet-1", properties=ACME)])
    return address


def searched(text, namespace):  # noqa: F811
    """All slices of a search: (message id, whether it is present)."""
    wanted, cursor, results = parse_filter(f"entity:{namespace}/ {text}", now=datetime.now(UTC)), None, []
    for _ in range(1000):
        part = search_slice(wanted, cursor)
        results += [(message.message_id, message.row is not None) for message in part.messages]
        cursor = part.cursor
        if cursor is None:
            return results
    raise AssertionError("the search does not end")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id:order", [("order-2", True), ("order-1", True), ("order-0", False)]),
        ("correlation:c-7 id=order-0", [("order-0", False)]),
        ("prop.tenant=acme", [("order-2", True), ("order-1", True), ("order-0", False), ("quiet-1", True)]),
        ("old", [("old-1", False)]),
        ("state:gone", [("old-1", False), ("order-0", False)]),
        ("-state:gone id:order", [("order-2", True), ("order-1", True)]),
        ("state:dead", [("order-2", True)]),
        ("reason=Broken", [("order-2", True)]),
        ("$.n>=0", [("order-1", True), ("order-2", True)]),
        ("body:x", [("quiet-1", True)]),
        ("quiet", [("quiet-1", True)]),
        ("id:nothing", []),
    ],
)
def test_messages_are_found_in_every_list(shop, text, expected):
    search_result = searched(text, shop.namespace)
    assert sorted(search_result) == sorted(expected)
    assert len(search_result) == len(set(search_result))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_slices_join_without_gaps_or_repetition(shop, monkeypatch, rows):
    for name in ("SLICE_ROWS", "ROWS_PASSED"):
        monkeypatch.setattr(searching, name, rows)
    monkeypatch.setattr(searching, "SLICE_SECONDS", 0)
    monkeypatch.setattr(searching, "SLICE_FOUND", 1)
    message_ids = sorted(message_id for message_id, _ in searched("prop.tenant=acme", shop.namespace))
    assert message_ids == ["order-0", "order-1", "order-2", "quiet-1"]
    assert sorted(message_id for message_id, _ in searched("$.n>=0", shop.namespace)) == ["order-1", "order-2"]


def test_a_slice_reports_its_progress(shop, monkeypatch):
    monkeypatch.setattr(searching, "SLICE_ROWS", 2)
    monkeypatch.setattr(searching, "SLICE_SECONDS", 0)
    part = search_slice(parse_filter("id:nothing", now=datetime.now(UTC)))
    assert (part.part, part.scanned) == ("events", 2)
    assert abs((datetime.now(UTC) - part.back_to).total_seconds()) < 600
    stored = search_slice(parse_filter("body:nothing", now=datetime.now(UTC)))
    assert (stored.part, stored.scanned, stored.back_to) == ("messages", 2, None)


def test_deleted_entities_and_senders_are_named(shop):
    [old] = search_slice(parse_filter("id=old-1", now=datetime.now(UTC))).messages[:1]
    assert old.deleted_at is not None and old.address.path == "old" and old.by is not None


@pytest.mark.parametrize("cursor", ["x", "events-1", "messages-1-2-3", "events-1-x", "messages-start"])
def test_an_invalid_cursor_is_refused(db, cursor):
    with pytest.raises(InvalidArgument):
        search_slice(parse_filter("a", now=datetime.now(UTC)), cursor)


def test_searching_bodies_requires_the_right_to_see_them(db):
    with pytest.raises(NotAuthorized):
        search_slice(parse_filter("body:x", now=datetime.now(UTC)), actor=Actor("user", "vera", Right.BROWSE))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a-1", "a-1"),
        ("id=a-1", "a-1"),
        ('id:"a 1"', "a 1"),
        ("-id=a", None),
        ("a*", None),
        ("a b", None),
        ("subject=a", None),
        ("", None),
    ],
)
def test_a_filter_that_may_be_a_complete_id_is_recognized(text, expected):
    assert exact_id(parse_filter(text, now=datetime.now(UTC))) == expected


def test_messages_with_an_id_are_found_immediately_and_only_once(shop, monkeypatch):
    quiet = EntityAddress(shop.namespace, "quiet")
    service_bus.send(quiet, [Message(b"x", message_id="order-0")])
    first = messages_with_id("order-0")
    mine = [message for message in first.messages if message.address.namespace == shop.namespace]
    assert {(match.address.path, match.row is not None) for match in mine} == {("orders", False), ("quiet", True)}
    assert len(mine) == 2 and first.parts == {"events", "messages"}
    assert [match.deleted_at is not None for match in messages_with_id("old-1").messages[:1]] == [True]
    assert messages_with_id("order").messages == ()
    part = search_slice(parse_filter("id:order-0", now=datetime.now(UTC)), known=first.parts)
    assert (part.messages, part.cursor) == ((), None)
    again = search_slice(parse_filter("id:order-0", now=datetime.now(UTC)), known={"events"})
    assert [message.address.path for message in again.messages if message.address.namespace == shop.namespace] == ["quiet"]
    monkeypatch.setattr(searching, "SCAN_ROWS", 0)
    assert messages_with_id("order-0").parts == {"events"}
    monkeypatch.setattr(searching, "SAME_ID", 0)
    assert messages_with_id("order-0").parts == frozenset()


def test_a_filter_that_names_entities_examines_only_their_stored_messages(shop, namespace, monkeypatch):  # noqa: F811
    """In slices of any size, and also with more entities than one statement takes."""
    for n in range(3):
        entities.create_queue(EntityAddress(namespace, f"part-{n}"))
        service_bus.send(EntityAddress(namespace, f"part-{n}"), [Message(b"needle")] * 3)
    monkeypatch.setattr(searching, "ENTITIES_AT_ONCE", 2)
    for rows in (2, 20_000):
        monkeypatch.setattr(searching, "SLICE_ROWS", rows)
        wanted = parse_filter(f"body:needle entity:{namespace}/part -entity:part-1", now=datetime.now(UTC))
        results, scanned, cursor = [], 0, None
        while True:
            part = search_slice(wanted, cursor)
            results += [(message.address.path, message.sequence_number) for message in part.messages]
            scanned, cursor = scanned + part.scanned, part.cursor
            if cursor is None:
                break
        assert results == [(f"part-{n}", number) for n in (2, 0) for number in (3, 2, 1)]
        assert scanned == 9 and part.total is None
    nothing = search_slice(parse_filter("body:x entity:no/such", now=datetime.now(UTC)))
    assert (nothing.messages, nothing.scanned, nothing.cursor) == ((), 0, None)


def test_a_slice_is_limited_by_time():
    def rows(seconds, scanned):
        search = searching._Search(None, None, False, None, (), time.monotonic() - seconds)
        return search.rows(scanned, searching.SLICE_ROWS)

    assert rows(0, 0) == searching.FIRST_ROWS
    assert rows(0.01, 4_000) == searching.SLICE_ROWS
    assert 3_000 < rows(0.25, 4_000) <= 4_000
    assert rows(0.49, 400) == searching.LEAST_ROWS


def test_no_event_is_examined_for_entities_that_do_not_exist(shop):
    assert search_slice(parse_filter("entity:no-such-queue id:order", now=datetime.now(UTC))).scanned == 0


def test_a_search_by_entity_finds_removed_messages_and_deleted_entities(shop):
    assert searched("id:old", shop.namespace) == [("old-1", False)]
    assert ("order-0", False) in searched(f"entity={shop} id:order", shop.namespace)
