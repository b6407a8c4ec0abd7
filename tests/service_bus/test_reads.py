"""What the explorer asks, on real Postgres: right answers at the namespace's instant, and nothing touched by asking."""

import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import psycopg
import pytest

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, EntityKind, EventKind, MessageState, Right
from broker_core.history.feed import Follower
from broker_core.reads import EventFilter, Tab, parse_filter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.display_state import DisplayState
from broker_core.service_bus.rules.filters import Rule, compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from tests.broker_state import entity_id, now

SECOND = timedelta(seconds=1)
BROWSER = Actor("user", "vera", Right.BROWSE)


def send(queue, count=1, **properties):
    return service_bus.send(queue, [Message(f"body {i}".encode(), **properties) for i in range(count)])


def matching(text):
    return parse_filter(text, now=datetime.now(UTC))


def numbers(page):
    return [row.sequence_number for row in page.rows]


# Counts and the overview


def test_counts_follow_every_state_and_the_clock(make_queue, step):
    queue = make_queue(lock_duration=30 * SECOND, max_delivery_count=1)
    send(queue, 4)
    send(queue, 2, scheduled_enqueue_at=now(queue) + timedelta(hours=1))
    first, second, third = service_bus.receive(queue, 3)
    service_bus.defer(queue, [first.lock_token])
    service_bus.dead_letter(queue, [second.lock_token])
    counts = reads.counts(queue)
    assert (counts.active, counts.locked, counts.deferred, counts.scheduled, counts.dead_letter) == (2, 1, 1, 2, 1)
    assert counts.total == 6
    step(30 * SECOND)
    assert reads.counts(queue).locked == 0  # with no sweep: the lock's instant lies behind
    assert third.sequence_number in [row.sequence_number for row in reads.list_messages(queue).rows]


def test_locks_on_deferred_messages_and_dead_letters_are_counted_separately(queue):
    send(queue, 2)
    first, second = service_bus.receive(queue, 2)
    service_bus.defer(queue, [first.lock_token])
    service_bus.dead_letter(queue, [second.lock_token])
    service_bus.receive_deferred(queue, [first.sequence_number])
    service_bus.receive(queue.dead_letter)
    counts = reads.counts(queue)
    assert (counts.locked, counts.deferred_locked, counts.dead_letter_locked) == (0, 1, 1)


def test_the_overview_has_the_same_counts_as_each_entity(make_queue):
    busy, idle = make_queue(), make_queue()
    send(busy, 3)
    service_bus.receive(busy)
    service_bus.receive_and_delete(busy, 1)
    rows = {row.address: row for row in reads.overview(busy.namespace)}
    assert set(rows) == {busy, idle}
    for queue, row in rows.items():
        alone = reads.entity(queue)
        assert alone.counts == reads.counts(queue) == row.counts
        assert alone.id == row.id == entity_id(queue)
    assert rows[busy].oldest_active_at == service_bus.peek(busy)[0].enqueued_at
    assert rows[busy].size_bytes > 0 == rows[idle].size_bytes
    assert rows[busy].sent_rate == pytest.approx(3 / 55, rel=0.15)  # over the whole 10 s buckets of the last minute
    assert rows[busy].completed_rate == pytest.approx(1 / 55, rel=0.15)
    assert rows[idle].oldest_active_at is None


def test_the_overview_can_be_filtered_and_leaves_out_hidden_entities(make_queue):
    queue = make_queue()
    make_queue(hidden=True)
    assert [row.address for row in reads.overview(queue.namespace)] == [queue]
    assert len(reads.overview(queue.namespace, include_hidden=True)) == 2
    assert [row.address for row in reads.overview(queue.namespace, "QUEUE-1")] == [queue]
    assert reads.overview(queue.namespace, "nothing") == []
    assert reads.overview("no-such-namespace") == []


@pytest.mark.parametrize("by_default", [False, True])
def test_expired_messages_are_counted_until_they_are_removed(make_queue, step, by_default):
    queue = make_queue(default_message_time_to_live=10 * SECOND if by_default else None)
    send(queue, 3, time_to_live=None if by_default else 10 * SECOND)
    send(queue, 1, time_to_live=timedelta(seconds=5))
    service_bus.receive(queue, 1)  # locked: not pending while the lock lasts (SB-038)
    assert str(reads.entity(queue).expired_pending) == "0"
    step(10 * SECOND)
    assert str(reads.entity(queue).expired_pending) == "3"
    standings = [row.display_state for row in reads.list_messages(queue, newest_first=False).rows]
    assert standings == [DisplayState.LOCKED, DisplayState.EXPIRED, DisplayState.EXPIRED, DisplayState.EXPIRED]
    assert reads.counts(queue).active == 4  # they stay counted (SB-031)
    service_bus.receive(queue)
    assert str(reads.entity(queue).expired_pending) == "0"


def test_many_expired_messages_are_counted_to_a_cap(make_queue, step):
    queue, _ = make_queue(default_message_time_to_live=SECOND), make_queue()
    send(queue, reads.EXPIRED_CAP_OF_MANY + 5)
    step(2 * SECOND)
    assert str(reads.entity(queue).expired_pending) == "105"
    row = next(row for row in reads.overview(queue.namespace) if row.address == queue)
    assert str(row.expired_pending) == "100+"


def test_names_are_case_insensitive_and_missing_entities_are_refused(queue):
    assert reads.entity(EntityAddress(queue.namespace.upper(), queue.path.upper())).address == queue
    for ask in (reads.entity, reads.counts, reads.list_messages, reads.gone, reads.traffic):
        with pytest.raises(EntityNotFound):
            ask(EntityAddress(queue.namespace, "nothing"))
    with pytest.raises(EntityNotFound):
        reads.now("nothing")


# Lists


@pytest.mark.parametrize("newest_first", [True, False])
def test_paging_in_both_directions_returns_every_message_once(queue, newest_first):
    send(queue, 12)
    first = reads.list_messages(queue, limit=5, newest_first=newest_first)
    second = reads.list_messages(queue, limit=5, newest_first=newest_first, cursor=first.next_cursor)
    third = reads.list_messages(queue, limit=5, newest_first=newest_first, cursor=second.next_cursor)
    expected = list(range(12, 0, -1)) if newest_first else list(range(1, 13))
    assert numbers(first) + numbers(second) + numbers(third) == expected
    assert (first.previous_cursor, third.next_cursor) == (None, None)
    back = reads.list_messages(queue, limit=5, newest_first=newest_first, cursor=third.previous_cursor)
    assert (numbers(back), back.next_cursor) == (numbers(second), second.next_cursor)
    start = reads.list_messages(queue, limit=5, newest_first=newest_first, cursor=back.previous_cursor)
    assert numbers(start) == numbers(first)


@pytest.mark.parametrize("newest_first", [False, True])
def test_scheduled_messages_are_listed_in_due_order_in_both_directions(queue, newest_first):
    start = now(queue)
    for minutes in (50, 10, 30, 10, 40, 20, 60):  # two are due at the same instant
        send(queue, scheduled_enqueue_at=start + timedelta(minutes=minutes))
    order = [2, 4, 6, 3, 5, 1, 7]
    order = order[::-1] if newest_first else order
    pages, cursor = [], None
    while True:
        page = reads.list_messages(queue, Tab.SCHEDULED, limit=3, newest_first=newest_first, cursor=cursor)
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [numbers(page) for page in pages] == [order[:3], order[3:6], order[6:]]
    back = reads.list_messages(queue, Tab.SCHEDULED, limit=3, newest_first=newest_first, cursor=pages[2].previous_cursor)
    assert (numbers(back), back.next_cursor) == (order[3:6], pages[1].next_cursor)
    again = reads.list_messages(queue, Tab.SCHEDULED, limit=3, newest_first=newest_first, cursor=back.previous_cursor)
    assert (numbers(again), again.previous_cursor) == (order[:3], None)
    listing = reads.list_messages(queue, Tab.SCHEDULED, filter=matching("body:body"), limit=9, newest_first=newest_first)
    assert numbers(listing) == order
    capped = reads.list_messages(queue, Tab.SCHEDULED, filter=matching("subject:none"), max_scanned=2)
    assert capped.capped and capped.next_cursor
    with pytest.raises(InvalidArgument, match="cursor"):
        reads.list_messages(queue, Tab.SCHEDULED, cursor="above-3")


def test_one_list_has_all_present_messages_in_any_state(queue):
    send(queue, 5)
    first, second = service_bus.receive(queue, 2)
    service_bus.defer(queue, [first.lock_token])
    service_bus.dead_letter(queue, [second.lock_token])
    send(queue, 1, scheduled_enqueue_at=now(queue) + timedelta(hours=1))
    page = reads.list_messages(queue, Tab.ALL, limit=3)
    assert numbers(page) == [6, 5, 4]
    further = reads.list_messages(queue, Tab.ALL, limit=3, cursor=page.next_cursor)
    assert (numbers(further), further.next_cursor) == ([3, 1], None)


def test_a_page_back_that_reaches_the_start_is_the_first_page(queue):
    send(queue, 6)
    page = reads.list_messages(queue, limit=4, cursor="above-3")
    assert (numbers(page), page.previous_cursor, page.next_cursor) == ([6, 5, 4, 3], None, "below-3")


@pytest.mark.parametrize("cursor", ["7", "below-x", "over-7", "below-", "below--7", "below-" + "9" * 30])
def test_an_invalid_cursor_is_refused(queue, cursor):
    with pytest.raises(InvalidArgument, match="cursor"):
        reads.list_messages(queue, cursor=cursor)


def test_each_tab_shows_its_list(queue):
    send(queue, 4)
    send(queue, 1, scheduled_enqueue_at=now(queue) + SECOND)
    first, second, third = service_bus.receive(queue, 3)
    service_bus.defer(queue, [first.lock_token])
    service_bus.dead_letter(queue, [second.lock_token], "Broken", "no wheels")
    shown = {tab: numbers(reads.list_messages(queue, tab)) for tab in Tab}
    assert shown == {
        Tab.ACTIVE: [4, 3],
        Tab.LOCKED: [3],
        Tab.DEFERRED: [1],
        Tab.SCHEDULED: [5],
        Tab.ALL: [5, 4, 3, 1],
        Tab.UNLOCKED: [4],
        Tab.DEAD_LETTER: [2],
        Tab.TRANSFER_DEAD_LETTER: [],
    }
    [dead] = reads.list_messages(queue, Tab.DEAD_LETTER).rows
    assert (dead.dead_letter_reason, dead.dead_letter_description, dead.address) == ("Broken", "no wheels", queue.dead_letter)
    [scheduled] = reads.list_messages(queue, Tab.SCHEDULED).rows
    assert scheduled.deadline == now(queue) + SECOND
    assert scheduled.why_not_deliverable == "Scheduled: due in 1 s."
    [locked] = reads.list_messages(queue, Tab.LOCKED).rows
    assert (locked.deadline, locked.lock_token) == (third.locked_until, third.lock_token)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id:ORD", [3, 1]),
        ("id=ORD", []),
        ("id:order-1", [1]),
        ("id=*-3", [3]),
        ("-id:order", [2]),
        ("body:grün", [2]),
        ("body:GRÜN", []),
        ("-body:a", [3]),
        ("prop.size", [2, 1]),
        ("-prop.size", [3]),
        ("prop.size=7", [1]),
        ("prop.size>7", [2]),
        ("prop.size>=7 prop.size<8", [1]),
        ("prop.size>x", []),
        ("prop.zone:EU", [2]),
        ("prop.zone>b", [2]),
        ("prop.zone>7", []),
        ("-prop.zone=eu*", [3, 1]),
        ("subject:invoice", [3]),
        ("correlation:corr", [3]),
        ("session=s", [2]),
        ("session:S", [2]),
        ("-session=s", [3, 1]),
        ("id:order subject:invoice", [3]),
        ("corr", [3]),
        ("order", [3, 1]),
        ('id:"100% _ wrong"', []),
        ("id:order_1", []),
        ("number:2..3", [3, 2]),
        ("number>2", [3]),
        ("-number=2", [3, 1]),
        ("size>1GB", []),
        ("deliveries=0 number<2", [1]),
        ("priority<5", []),
        ("-priority<5", [3, 2, 1]),
        ("age<1h", [3, 2, 1]),
        ("age>1h", []),
        ("at>2000-01-01", [3, 2, 1]),
        ("at<2000-01-01", []),
        ("dead-age>0s", []),
        ("state:active", [3, 2, 1]),
        ("-state:active", []),
        ("entity:queue-", [3, 2, 1]),
    ],
)
def test_messages_can_be_filtered(queue, text, expected):
    service_bus.send(
        queue,
        [
            Message(b"a", message_id="order-1", properties={"size": 7}),
            Message("das ist grün".encode(), message_id="other", session_id="s", properties={"size": 8, "zone": "eu-1"}),
            Message(b"\xff\x00c", message_id="Order-3", subject="Invoice 5", correlation_id="Corr"),
        ],
    )
    assert numbers(reads.list_messages(queue, filter=matching(text))) == expected


def test_a_filter_by_state_uses_the_state_at_the_instant(make_queue, step):
    queue = make_queue(lock_duration=30 * SECOND)
    send(queue, 1, time_to_live=40 * SECOND)
    send(queue, 2)
    send(queue, 1, scheduled_enqueue_at=now(queue) + timedelta(hours=1))
    locked, deferred, dead = service_bus.receive(queue, 3)
    service_bus.defer(queue, [deferred.lock_token])
    service_bus.dead_letter(queue, [dead.lock_token])

    def found(state):
        tabs = (Tab.ACTIVE, Tab.DEFERRED, Tab.SCHEDULED, Tab.DEAD_LETTER)
        return [n for tab in tabs for n in numbers(reads.list_messages(queue, tab, filter=matching(f"state:{state}")))]

    states = ("active", "locked", "expired", "deferred", "scheduled", "dead", "gone")
    assert [found(state) for state in states] == [[], [1], [], [2], [4], [3], []]
    step(30 * SECOND)  # the lock ends
    assert (found("active"), found("locked"), found("expired")) == ([1], [], [])
    step(10 * SECOND)
    assert (found("active"), found("locked"), found("expired")) == ([], [], [1])
    assert (found("visible"), found("dead-letter"), found("delayed")) == ([], [3], [4])


def test_ages_are_measured_by_the_clock_of_the_namespace(queue, step):
    send(queue)
    step(timedelta(hours=2))
    send(queue)
    for text, expected in (("age>1h", [1]), ("age<1h", [2]), ("age:0s..1h", [2]), ("-age>3h", [2, 1])):
        assert numbers(reads.list_messages(queue, filter=matching(text))) == expected
    [message] = service_bus.receive(queue, 1)
    service_bus.dead_letter(queue, [message.lock_token])
    assert numbers(reads.list_messages(queue, Tab.DEAD_LETTER, filter=matching("dead-age<1h"))) == [1]
    assert numbers(reads.list_messages(queue, Tab.DEAD_LETTER, filter=matching("dead-age>1h"))) == []


JSON_BODIES = [
    b'{"order": {"id": 4711, "note": "Urgent: 100% [now]", "paid": true, "items": [{"sku": "A1"}, {"sku": "B2"}]}}',
    b'{"order": {"id": "4711", "paid": false, "items": []}, "a b": null}',
    b'{"order": {"id": 9}}',
    b"not JSON",
    b"\xff\xfe",
    b'{"nul": "\\u0000"}',
    b"[" * 100_000,
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$.order.id=4711", [2, 1]),
        ('$.order.id="4711"', [2]),
        ("$.order.id:471", [2]),
        ("$.order.id:4711", [2, 1]),
        ("$.order.id>4700", [1]),
        ("$.order.id<10", [3]),
        ("-$.order.id>4700", [3, 2]),
        ("$.order.id!=9", [2, 1]),
        ("$.order.paid=true", [1]),
        ("$.order.paid", [2, 1]),
        ('$."a b"=null', [2]),
        ('$.order.note:"urgent: 100% [NOW]"', [1]),
        ("$.order.note=Urgent*now]", [1]),
        ("$.order.note=urgent*", []),
        ("$.order.items[*].sku=B2", [1]),
        ("$.order.items[0].sku=B2", []),
        ("$.order.items[1].sku:b", [1]),
        ('$.order.note>"A"', [1]),
        ("$.order.id>4700 $.order.paid=false", []),
        ("$.nothing", []),
    ],
)
def test_values_in_json_are_found_and_bodies_that_are_not_json_are_counted(queue, text, expected):
    service_bus.send(queue, [Message(body) for body in JSON_BODIES])
    page = reads.list_messages(queue, filter=matching(text))
    assert (numbers(page), page.not_json) == (expected, 4)
    assert reads.list_messages(queue, filter=matching(f"{text} number<5")).not_json == 1


def test_bounds_of_numbers_limit_the_examined_messages(queue):
    send(queue, 20)
    for newest_first in (True, False):
        page = reads.list_messages(queue, filter=matching("number:5..7 id:*"), newest_first=newest_first)
        assert (sorted(numbers(page)), page.scanned) == ([5, 6, 7], 3)
    assert reads.list_messages(queue, filter=matching("number>18 number<3")).scanned == 0


def test_dead_letters_can_be_filtered_by_reason(queue):
    send(queue, 2)
    first, second = service_bus.receive(queue, 2)
    service_bus.dead_letter(queue, [first.lock_token], "PaymentRefused")
    service_bus.dead_letter(queue, [second.lock_token], "Other")
    assert numbers(reads.list_messages(queue, Tab.DEAD_LETTER, filter=matching("reason:payment"))) == [1]


def test_a_search_stops_at_its_cap_and_can_be_continued(queue, monkeypatch):
    monkeypatch.setattr("broker_core.reads.messages.SCAN_CHUNK", 4)
    service_bus.send(queue, [Message(message_id="needle" if i == 2 else "hay") for i in range(20)])
    page = reads.list_messages(queue, filter=matching("id:needle"), max_scanned=10)
    assert (page.rows, page.scanned, page.capped) == ((), 10, True)
    further = reads.list_messages(queue, filter=matching("id:needle"), cursor=page.next_cursor, max_scanned=20)
    assert (numbers(further), further.capped, further.next_cursor) == ([3], False, None)


def test_a_search_stops_after_its_time(queue, monkeypatch):
    monkeypatch.setattr("broker_core.reads.messages.SCAN_CHUNK", 2)
    send(queue, 10)
    page = reads.list_messages(queue, filter=matching("id:nowhere"), max_seconds=0)
    assert (page.scanned, page.capped) == (2, True)


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_search_of_bodies_checks_the_time_limit_by_bytes(queue, monkeypatch, newest_first):
    monkeypatch.setattr("broker_core.reads.messages.SCAN_BYTES", 250_000)
    service_bus.send(queue, [Message(bytes(100_000) + b"needle" * (n == 3)) for n in range(7)])
    wanted = matching("body:needle")
    page = reads.list_messages(queue, filter=wanted, newest_first=newest_first, max_seconds=0)
    assert (page.rows, page.scanned, page.capped) == ((), 3, True)
    further = reads.list_messages(queue, filter=wanted, cursor=page.next_cursor, newest_first=newest_first, max_seconds=0)
    assert (numbers(further), further.scanned, further.capped) == ([4], 3, True)
    end = reads.list_messages(queue, filter=wanted, cursor=further.next_cursor, newest_first=newest_first, max_seconds=0)
    assert (end.rows, end.scanned, end.next_cursor) == ((), 1, None)
    whole = reads.list_messages(queue, filter=wanted, newest_first=newest_first, max_seconds=60)
    assert (numbers(whole), whole.scanned, whole.capped) == ([4], 7, False)


def test_a_body_larger_than_a_chunk_is_its_own_chunk(queue, monkeypatch):
    monkeypatch.setattr("broker_core.reads.messages.SCAN_BYTES", 10)
    service_bus.send(queue, [Message(b"larger than ten bytes, needle") for _ in range(2)])
    assert reads.list_messages(queue, filter=matching("body:needle"), max_seconds=0).scanned == 1
    assert numbers(reads.list_messages(queue, filter=matching("body:needle"))) == [2, 1]
    other = reads.list_messages(queue, filter=matching("id:nowhere"), max_seconds=0)
    assert (other.scanned, other.capped) == (2, False)  # where no body is searched, bytes do not count


def test_a_receive_returns_exactly_the_messages_that_reads_call_deliverable(make_queue, step):
    """Invariant 7: the page and the API agree on the same instant."""
    queue = make_queue(lock_duration=10 * SECOND, max_delivery_count=2)
    send(queue, 2, time_to_live=5 * SECOND)
    send(queue, 8)
    send(queue, 1, scheduled_enqueue_at=now(queue) + timedelta(hours=1))
    for message in service_bus.receive(queue, 6)[2:4]:
        service_bus.abandon(queue, [message.lock_token])
    step(6 * SECOND)
    service_bus.receive(queue, 1)
    step(5 * SECOND)
    rows = [row for tab in (Tab.ACTIVE, Tab.SCHEDULED) for row in reads.list_messages(queue, tab, newest_first=False).rows]
    deliverable = [row.sequence_number for row in rows if row.why_not_deliverable is None]
    assert {row.display_state for row in rows} >= {
        DisplayState.LOCKED,
        DisplayState.EXPIRED,
        DisplayState.LOCK_ENDED,
        DisplayState.SCHEDULED,
    }
    assert [message.sequence_number for message in service_bus.receive(queue, 100)] == deliverable


# Names


def test_names_are_found_by_a_part_prefix_matches_first(make_queue, queue):
    namespace = queue.namespace
    for path in ("eu/orders", "orders", "orders-2", "carts"):
        entities.create_queue(EntityAddress(namespace, path), hidden=path == "carts")
    entities.create_topic(EntityAddress(namespace, "orders-news"))
    entities.delete_entity(queue)

    def paths(*args, **kwargs):
        return [name.address.path for name in reads.names(*args, actor=BROWSER, **kwargs).matches]

    assert paths("ORD", namespace=namespace.upper()) == ["orders", "orders-2", "orders-news", "eu/orders"]
    assert paths("orders", namespace=namespace, kinds=[EntityKind.TOPIC]) == ["orders-news"]
    assert paths("", namespace=namespace) == ["carts", "eu/orders", "orders", "orders-2", "orders-news"]
    assert paths("%", namespace=namespace) == paths("", namespace="none-such") == []
    assert paths(f"{namespace}/car") == ["carts"]
    [carts] = reads.names("carts", namespace=namespace).matches
    assert carts.id == reads.entity(carts.address).id


def test_a_truncated_list_of_names_says_so(make_queue, queue):
    entities.create_queue(EntityAddress(queue.namespace, "another"))
    capped, both = (reads.names(namespace=queue.namespace, limit=limit) for limit in (1, 2))
    assert (len(capped.matches), capped.more, len(both.matches), both.more) == (1, True, 2, False)
    with pytest.raises(NotAuthorized):
        reads.names(actor=Actor("person", "nobody", Right(0)))


# One message


def test_a_message_is_read_completely_and_its_body_separately(queue):
    body = bytes(range(256)) * 8
    service_bus.send(
        queue,
        [Message(body, message_id="m", subject="s", reply_to="r", content_type="x/y", properties={"n": 5, "none": None},
                 time_to_live=60 * SECOND)],
    )  # fmt: skip
    detail = reads.message(queue, 1, actor=BROWSER)
    assert (detail.row.message_id, detail.row.subject, detail.body_size) == ("m", "s", len(body))
    assert detail.broker_properties == {"subject": "s", "reply_to": "r", "content_type": "x/y"}
    assert detail.application_properties == {"n": ("int", "5"), "none": ("null", None)}
    assert (detail.time_to_live, detail.row.expires_at) == (60 * SECOND, detail.row.enqueued_at + 60 * SECOND)
    whole = reads.body(queue, 1)
    assert (whole.content, whole.is_complete, whole.content_type) == (body, True, "x/y")
    part = reads.body(queue, 1, offset=255, length=3)
    assert (part.content, part.offset, part.total, part.is_complete) == (b"\xff\x00\x01", 255, len(body), False)
    assert reads.body(queue, 1, offset=9999).content == b""
    assert reads.message(queue, 2) is None
    assert reads.body(queue, 2) is None


def test_a_message_is_found_in_any_list(queue):
    send(queue, 3)
    first, second, _ = service_bus.receive(queue, 3)
    service_bus.defer(queue, [first.lock_token])
    service_bus.dead_letter(queue, [second.lock_token])
    places = [(row.state, row.subqueue) for row in reads.messages_by_number(entity_id(queue), [1, 2, 3, 4])]
    assert places == [(MessageState.DEFERRED, 0), (MessageState.ACTIVE, 1), (MessageState.ACTIVE, 0)]
    assert reads.message(queue, 2).row.address == queue.dead_letter


def test_a_timeline_has_all_events_even_of_a_removed_message(queue, step):
    send(queue)
    [held] = service_bus.receive(queue)
    step(5 * SECOND)
    service_bus.abandon(queue, [held.lock_token])
    [held] = service_bus.receive(queue)
    service_bus.complete(queue, [held.lock_token])
    assert reads.message(queue, 1) is None
    events = reads.timeline(entity_id(queue), 1)
    kinds = [EventKind.SENT, EventKind.RECEIVED, EventKind.ABANDONED, EventKind.RECEIVED, EventKind.COMPLETED]
    assert [event.kind for event in events] == kinds
    assert events[2].at - events[1].at == 5 * SECOND
    assert all(event.address == queue for event in events)
    assert all(before.recorded_at <= after.recorded_at for before, after in pairwise(events))
    assert reads.timeline(entity_id(queue), 2) == []


def test_a_timeline_follows_schedule_and_resubmission(queue, step):
    send(queue, scheduled_enqueue_at=now(queue) + SECOND)
    step(SECOND)
    [held] = service_bus.receive(queue)
    service_bus.dead_letter(queue, [held.lock_token], "Broken")
    again = service_bus.resubmit(queue.dead_letter, [held.sequence_number])[held.sequence_number]
    assert len({1, held.sequence_number, again}) == 3
    whole = [(event.sequence_number, event.kind) for event in reads.timeline(entity_id(queue), held.sequence_number)]
    assert (1, EventKind.SCHEDULED) in whole
    assert (1, EventKind.ACTIVATED) in whole
    assert (held.sequence_number, EventKind.DEAD_LETTERED) in whole
    assert (again, EventKind.SENT) in whole
    for number in (1, again):
        other = [(event.sequence_number, event.kind) for event in reads.timeline(entity_id(queue), number)]
        assert other == whole


def test_a_present_or_removed_message_is_found_by_its_id(queue, make_queue):
    other = make_queue()
    for place in (queue, other):
        service_bus.send(place, [Message(message_id=f"id of {queue.namespace}")])
    service_bus.receive_and_delete(other)
    result = reads.find(f"  id of {queue.namespace} ")
    told = {(match.address, match.is_present, match.last_kind) for match in result.matches}
    assert told == {(queue, True, EventKind.SENT), (other, False, EventKind.RECEIVED_AND_DELETED)}
    assert reads.find("no such id").matches == ()
    assert reads.find("  ").matches == ()


def test_a_message_without_history_is_found_while_it_is_present(make_queue):
    queue = make_queue(history_level=0)
    service_bus.send(queue, [Message(message_id=f"quiet {queue.namespace}")])
    [match] = reads.find(f"quiet {queue.namespace}").matches
    assert (match.address, match.is_present, match.last_kind) == (queue, True, None)


# Events, traffic, sweeps, health


def test_events_are_paged_newest_first(queue):
    send(queue, 7)
    narrowed = EventFilter(entity_id=entity_id(queue))
    first = reads.events(narrowed, limit=4)
    second = reads.events(narrowed, limit=4, cursor=first.next_cursor)
    assert [event.sequence_number for event in (*first.rows, *second.rows)] == [7, 6, 5, 4, 3, 2, 1]
    assert second.next_cursor is None
    with pytest.raises(InvalidArgument):
        reads.events(cursor="below-5")


def test_events_can_be_filtered(queue):
    service_bus.send(queue, [Message(message_id="a"), Message(message_id="b")], actor=Actor("user", "ann", Right.ALL))
    service_bus.receive(queue)
    mine = EventFilter(entity_id=entity_id(queue), actor="user:ann", message_id="b")
    assert [event.sequence_number for event in reads.events(mine).rows] == [2]
    received = EventFilter(entity_id=entity_id(queue), kinds=[EventKind.RECEIVED])
    assert [event.sequence_number for event in reads.events(received).rows] == [1]


def test_messages_that_left_a_queue_are_listed(queue):
    send(queue, 3)
    [held] = service_bus.receive(queue)
    service_bus.complete(queue, [held.lock_token])
    service_bus.receive_and_delete(queue)
    left = reads.gone(queue)
    assert [(e.sequence_number, e.kind) for e in left.rows] == [(2, EventKind.RECEIVED_AND_DELETED), (1, EventKind.COMPLETED)]
    assert left.rows[1].first_received_at is not None


def test_traffic_has_every_interval_including_the_current_one(queue):
    send(queue, 5)
    service_bus.receive_and_delete(queue, 2)
    [held] = service_bus.receive(queue)
    service_bus.dead_letter(queue, [held.lock_token])
    points = reads.traffic(queue, 15)
    assert len(points) == 90
    assert {(after.at - before.at).total_seconds() for before, after in pairwise(points)} == {10}
    assert sum(point.sent for point in points) == 5
    assert sum(point.completed for point in points) == 2
    assert sum(point.dead_lettered for point in points) == 1
    assert len(reads.traffic(queue, 24 * 60)) == 144  # of ten minutes


def test_sweep_runs_are_listed_newest_first_with_the_last_run_of_each_sweep(broker_database):
    name = f"sweep_{uuid.uuid4().hex[:8]}"
    connections.current().execute(
        "INSERT INTO vitrine_sweep_run (name, started_at, finished_at, outcome, error) VALUES"
        " (%(name)s, now() - interval '9 s', now() - interval '7 s', '{\"expired\": 3}', ''),"
        " (%(name)s, now(), NULL, '{}', 'broke')",
        {"name": name},
    )
    newest, older = reads.sweep_runs(name)
    assert (older.outcome, older.duration, older.error) == ({"expired": 3}, 2 * SECOND, None)
    assert (newest.duration, newest.error) == (None, "broke")
    assert reads.last_sweep_runs()[name] == newest
    assert reads.sweep_runs(name, limit=1) == [newest]


def test_health_names_the_transaction_with_the_oldest_snapshot(queue):
    before = reads.health()
    assert before.database_bytes > before.message_bytes > 0
    with _connection() as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SET application_name = 'a long report'")
        other.execute("SELECT 1")
        held = reads.health()
        other.execute("ROLLBACK")
    assert "a long report" in held.oldest_snapshot_by
    assert held.oldest_snapshot_age > timedelta(0)


def _connection():
    return psycopg.connect(**connections.current_database().parameters())


# Rights, and that looking changes nothing


def test_browsing_and_viewing_bodies_require_separate_rights(queue):
    stranger = Actor("user", "sid", Right.SEND)
    for ask in (
        lambda: reads.overview(actor=stranger),
        lambda: reads.namespaces(actor=stranger),
        lambda: reads.list_messages(queue, actor=stranger),
        lambda: reads.timeline(1, 1, actor=stranger),
        lambda: reads.find("x", actor=stranger),
        lambda: reads.health(actor=stranger),
        lambda: reads.body(queue, 1, actor=BROWSER),
        lambda: reads.list_messages(queue, filter=matching("body:x"), actor=BROWSER),
        lambda: reads.list_messages(queue, filter=matching("-$.a"), actor=BROWSER),
    ):
        with pytest.raises(NotAuthorized):
            ask()


def test_reading_does_not_count_as_activity(make_queue, step):
    """SB-190: the queue is as idle after all these questions as before."""
    queue = make_queue(auto_delete_on_idle=timedelta(minutes=5))
    send(queue)
    before = _activity(queue)
    step(timedelta(minutes=4))
    reads.overview(queue.namespace)
    reads.list_messages(queue)
    reads.message(queue, 1)
    reads.body(queue, 1)
    reads.timeline(entity_id(queue), 1)
    Follower().read([entity_id(queue)])
    assert _activity(queue) == before


def _activity(queue):
    sql = "SELECT last_activity_at, last_receive_at FROM vitrine_entity_activity WHERE entity_id = %s"
    return connections.current().execute(sql, (entity_id(queue),)).fetchone()


def test_a_manual_clock_is_reported_as_manual(queue, namespace, step):
    clock = reads.now(namespace)
    assert (clock.is_manual, clock.is_paused, clock.rate) == (True, True, 0)
    step(timedelta(hours=1))
    assert reads.now(namespace).now - clock.now == timedelta(hours=1)
    namespaces.resume_clock(namespace, 2)
    assert reads.now(namespace).rate == 2
    [row] = [row for row in reads.namespaces() if row.name == namespace]
    assert (row.entities, row.clock.rate) == (1, 2)


# The feed's reader


def test_a_follower_sees_each_event_once_including_late_commits(queue):
    follower, ids = Follower(), [entity_id(queue)]
    send(queue)
    assert follower.read(ids).latest == {}  # it begins here
    with _connection() as slow:
        slow.autocommit = False
        late = "INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, kind) VALUES (now(), %s, 0, 99, 1)"
        slow.execute(late, (ids[0],))
        send(queue)
        assert follower.read(ids).latest == {ids[0]: {2: EventKind.SENT}}
        slow.commit()
    assert follower.read(ids).latest == {ids[0]: {99: EventKind.SENT}}
    assert follower.read(ids).latest == {}


def test_a_follower_has_the_last_event_of_each_message_and_a_limit(queue, make_queue):
    follower, ids = Follower(), [entity_id(queue)]
    follower.read(ids)
    send(queue, 2)
    service_bus.receive_and_delete(queue)
    send(make_queue())  # another queue is not watched
    news = follower.read(ids)
    assert (news.latest, news.overflow) == ({ids[0]: {1: EventKind.RECEIVED_AND_DELETED, 2: EventKind.SENT}}, False)
    send(queue, 5)
    assert follower.read(ids, max_events=3).overflow
    assert follower.read(ids).latest == {}


# Topics, rules, sessions


@pytest.fixture
def news(namespace):
    """A topic with a subscription that takes everything and one that takes what is urgent."""
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    entities.create_subscription(topic.subscription("urgent"), rule=Rule("Urgent", compile_filter("urgent = TRUE")))
    return topic


def test_the_overview_lists_a_topic_and_then_its_subscriptions(news, make_queue):
    queue = make_queue()
    later = EntityAddress(news.namespace, "news-later")  # sorts before "news/..." as a text
    entities.create_topic(later)
    entities.create_rule(news.subscription("urgent"), Rule("More", compile_filter("more = 1")))
    rows = reads.overview(news.namespace)
    assert [row.address for row in rows] == [news, news.subscription("all"), news.subscription("urgent"), later, queue]
    assert [(row.kind, row.subscriptions, row.rules) for row in rows[:3]] == [
        (EntityKind.TOPIC, 2, 0), (EntityKind.SUBSCRIPTION, 0, 1), (EntityKind.SUBSCRIPTION, 0, 2),
    ]  # fmt: skip
    assert {row.topic_id for row in rows[1:3]} == {rows[0].id} and not rows[0].holds_messages
    assert [row.address for row in reads.subscriptions(news)] == [row.address for row in rows[1:3]]
    entities.delete_subscription(news.subscription("all"))
    assert reads.entity(news).subscriptions == 1


def test_published_messages_are_traffic_of_the_topic_and_copies_of_its_subscriptions(news):
    send(news, 3)
    send(news, 1, scheduled_enqueue_at=now(news) + timedelta(hours=1))
    topic, everything, urgent = reads.entity(news), *reads.subscriptions(news)
    assert (topic.counts.scheduled, topic.counts.active) == (1, 0)
    assert topic.sent_rate == pytest.approx(everything.sent_rate, rel=0.01) and everything.sent_rate > urgent.sent_rate == 0
    assert sum(point.sent for point in reads.traffic(news)) == 3
    assert sum(point.sent for point in reads.traffic(news.subscription("all"))) == 3


def test_the_timeline_of_a_copy_begins_at_its_topic(news):
    send(news, 1, message_id="extra", properties={"urgent": True})
    urgent = reads.entity(news.subscription("urgent"))
    published, copied = reads.timeline(urgent.id, 1)
    assert (published.kind, published.address, published.details) == (EventKind.PUBLISHED, news, {"copies": 2})
    assert copied.address == news.subscription("urgent")
    assert (copied.other.address, copied.other.sequence_number) == (news, 1)
    assert reads.message(news.subscription("urgent"), 1).came_from_elsewhere
    present = {match.address for match in reads.find("extra").matches if match.is_present}
    assert present == {row.address for row in reads.subscriptions(news)}


def test_a_forwarded_message_has_one_timeline(make_queue):
    target = make_queue()
    source = make_queue(forward_to=target.path)
    send(source)
    ids = reads.entity(source).id, reads.entity(target).id
    assert reads.entity(source).forward_to == target.path
    for entity, number in ((ids[0], 1), (ids[1], 1)):
        events = reads.timeline(entity, number)
        assert [event.kind for event in events if event.kind != EventKind.SENT] == [EventKind.FORWARDED]
        assert {event.address for event in events} == {source, target}
    detail = reads.message(target, 1)
    assert detail.transfer["hops"] == 1 and detail.came_from_elsewhere


def test_rules_of_many_subscriptions_are_read_together(news):
    ids = [row.id for row in reads.subscriptions(news)]
    rules = service_bus.rules_of(ids)
    assert [[rule.rule.name for rule in rules[id]] for id in ids] == [["$Default"], ["Urgent"]]
    assert rules[ids[1]][0].rule.filter.text == "urgent = TRUE"
    entities.delete_rule(news.subscription("all"), "$Default")
    assert service_bus.rules_of(ids).keys() == {ids[1]}


def test_sessions_are_listed_while_they_have_messages_state_or_a_holder(make_queue, step):
    queue = make_queue(requires_session=True, lock_duration=30 * SECOND)
    for session_id in ("a", "a", "b", "B"):
        send(queue, 1, session_id=session_id)
    held = service_bus.accept_session(queue, "b", actor=Actor("process", "worker", Right.ALL))
    service_bus.set_session_state(held, b"step 2")
    empty = service_bus.accept_session(queue, "none-yet")
    rows = {row.session_id: row for row in reads.sessions(queue).rows}
    assert list(rows) == ["B", "a", "b", "none-yet"]
    assert [str(rows[name].messages) for name in ("B", "a", "b", "none-yet")] == ["1", "2", "1", "0"]
    assert (rows["b"].locked_by, rows["b"].locked_until, rows["b"].lock_token) == (
        "process:worker",
        held.locked_until,
        held.lock_token,
    )
    assert (rows["b"].state, rows["b"].state_size, rows["a"].locked_until) == (b"step 2", 6, None)
    assert reads.sessions(queue, actor=BROWSER).rows[2].state is None  # that is content
    assert [row.session_id for row in reads.sessions(queue, holder="process:worker").rows] == ["b"]
    assert [row.session_id for row in reads.sessions(queue, part="e").rows] == ["none-yet"]
    service_bus.close_session(empty)
    step(31 * SECOND)
    rows = {row.session_id: row for row in reads.sessions(queue).rows}
    assert "none-yet" not in rows and rows["b"].locked_until is None


def test_sessions_are_listed_page_by_page(make_queue):
    queue = make_queue(requires_session=True)
    for n in range(5):
        send(queue, 1, session_id=f"s{n}")
    first = reads.sessions(queue, limit=2)
    second = reads.sessions(queue, limit=2, cursor=first.next_cursor)
    third = reads.sessions(queue, limit=2, cursor=second.next_cursor)
    assert [row.session_id for page in (first, second, third) for row in page.rows] == [f"s{n}" for n in range(5)]
    assert third.next_cursor is None
