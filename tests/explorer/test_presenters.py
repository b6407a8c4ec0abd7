"""How facts are put for a reader. Tables on pure functions: no database, no clock."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.common.types import BodyKind, EntityAddress, EntityStatus, EventKind, Family, SubQueue
from broker_core.queue_storage.rules.display_state import DisplayState as StorageDisplayState
from broker_core.rabbitmq.rules.display_state import DisplayState as RabbitDisplayState
from broker_core.reads import Body, Capped, Counts, Event, LinkedMessage, TrafficPoint
from broker_core.service_bus.rules.display_state import DisplayState
from explorer.bodies import display
from explorer.charts import sparklines
from explorer.frames import background_tasks, presenters, timeline
from explorer.live.instants import epoch_ms
from explorer.service_bus import presenters as service_bus_presenters

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDERS = EntityAddress("demo", "orders")
NEWS = EntityAddress("demo", "news")


def seconds(n):
    return timedelta(seconds=n)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(-5, "now"), (0, "now"), (0.9, "now"), (1, "1 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (86_400,
    "1 day"),
     (200_000, "2 days")],
)  # fmt: skip
def test_an_age_has_one_unit_and_is_never_negative(length, expected):
    assert presenters.age(seconds(length)) == expected


def test_an_age_in_a_sentence():
    assert [presenters.age_in_words(timedelta(seconds=n)) for n in (0, 12)] == ["now", "12 s ago"]


def test_milliseconds_are_rounded_down():
    assert epoch_ms(datetime(2026, 11, 21, 14, 8, 21, 280_604, tzinfo=UTC)) == 1_795_270_101_280


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (-3, "moments"),
        (0, "moments"),
        (1, "0:01"),
        (59, "0:59"),
        (61, "1:01"),
        (3600, "1:00:00"),
        (3 * 86_400, "3 days"),
        (3 * 86_400 - 1, "3 days"),
    ],
)
def test_a_countdown_at_its_end_is_shown_as_pending(left, expected):
    assert presenters.clock_text(seconds(left)) == expected


@pytest.mark.parametrize(
    ("per_second", "expected"), [(0, "0"), (0.001, "<1/min"), (0.5, "30/min"), (2.34, "2.3/s"), (1234, "1,234/s")]
)
def test_rates_are_formatted(per_second, expected):
    assert presenters.rate(per_second) == expected


@pytest.mark.parametrize(("per_second", "expected"), [(0, "0"), (0.4, "0"), (12.3, "12 B/s"), (4200, "4.1 KB/s")])
def test_rates_of_bytes_are_formatted(per_second, expected):
    assert presenters.byte_rate(per_second) == expected


@pytest.mark.parametrize(
    ("family", "display_state", "subqueue"),
    [
        *((Family.SERVICE_BUS, display_state, subqueue) for display_state in DisplayState for subqueue in SubQueue),
        *((Family.QUEUE_STORAGE, display_state, SubQueue.MAIN) for display_state in StorageDisplayState),
        *((Family.RABBITMQ, display_state, SubQueue.MAIN) for display_state in RabbitDisplayState),
    ],
)
def test_every_state_has_a_label_an_icon_and_a_hue(family, display_state, subqueue):
    row: Any = SimpleNamespace(family=family, display_state=display_state, subqueue=subqueue)
    badge = presenters.badge(row)
    assert badge.word and badge.icon and badge.hue


def test_six_states_have_six_hues_and_six_icons():
    def row(display_state, subqueue=SubQueue.MAIN):
        return SimpleNamespace(family=Family.SERVICE_BUS, display_state=display_state, subqueue=subqueue)

    shown = [DisplayState.AVAILABLE, DisplayState.LOCKED, DisplayState.SCHEDULED, DisplayState.DEFERRED, DisplayState.EXPIRED]
    badges = [presenters.badge(row(s)) for s in shown] + [presenters.badge(row(DisplayState.AVAILABLE, SubQueue.DEAD_LETTER))]
    assert len({b.hue for b in badges}) == len({b.icon for b in badges}) == len({b.word for b in badges}) == 6


def an_entity(**changes):
    values = {
        "counts": Counts(active=5), "expired_pending": Capped(0), "expired_leased": 0, "expired_delayed": 0,
        "consumers_waiting": False, "consumers": 0, "family": Family.SERVICE_BUS, "waits_for_operator": False,
        "status": EntityStatus.ACTIVE, "last_receive_at": None, "forward_to": None,
        "clock": SimpleNamespace(now=NOON),
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"consumers_waiting": True}, False),
        ({"consumers": 1, "family": Family.RABBITMQ}, False),
        ({"last_receive_at": NOON - seconds(59)}, False),
        ({"last_receive_at": NOON - seconds(61)}, True),
        ({"counts": Counts(active=5, locked=5)}, False),
        ({"expired_pending": Capped(5)}, False),
        ({"status": EntityStatus.RECEIVE_DISABLED}, False),
    ],
)
def test_a_warning_about_missing_receivers_requires_waiting_messages(changes, expected):
    assert presenters.is_neglected(an_entity(**changes)) is expected


@pytest.mark.parametrize(
    ("changes", "is_received_from", "words"),
    [
        ({}, False, "no receiver yet"),
        ({"last_receive_at": NOON - seconds(59)}, True, "receivers active"),
        ({"last_receive_at": NOON - seconds(33 * 60)}, False, "no receiver for 33 min"),
        ({"consumers_waiting": True}, True, "receivers waiting"),
        ({"forward_to": "other"}, True, "forwards its messages"),
    ],
)
def test_an_entity_without_receivers_differs_from_an_entity_with_receivers(changes, is_received_from, words):
    entity = an_entity(**changes)
    assert (presenters.is_received_from(entity), presenters.receiving(entity)) == (is_received_from, words)


@pytest.mark.parametrize(
    ("time_to_live", "waiting", "warns"),
    [(None, None, False), (3, None, True), (5, None, False), (60, 59, False), (60, 61, True), (3600, None, False)],
)
def test_a_time_to_live_shorter_than_the_wait_warns(time_to_live, waiting, warns):
    lives = None if time_to_live is None else seconds(time_to_live)
    waits = None if waiting is None else seconds(waiting)
    assert bool(service_bus_presenters.short_time_to_live_warning(lives, waits)) is warns


# Bodies


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1}', '{\n  "a": 1\n}'),
        ('{"n":12345678901234567890.10}', '{\n  "n": 12345678901234567890.10\n}'),
        ('{"a":"\\u00e9 {,:}"}', '{\n  "a": "\\u00e9 {,:}"\n}'),
        ('{"a":1,"a":2}', '{\n  "a": 1,\n  "a": 2\n}'),
        ("[]", "[]"),
        ('{"a":[],"b":{}}', '{\n  "a": [],\n  "b": {}\n}'),
        ("[1,[2]]", "[\n  1,\n  [\n    2\n  ]\n]"),
        ("17", None),
        ("{not json", None),
        ("[" * 100_000, None),
    ],
)
def test_json_is_indented_without_changing_numbers_escapes_or_repeated_keys(text, expected):
    assert display.pretty_json(text) == expected


def test_xml_is_indented_and_entities_are_never_expanded():
    assert display.pretty_xml("<a><b>1</b></a>") == "<a>\n  <b>1</b>\n</a>"
    assert display.pretty_xml('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>') is None
    assert display.pretty_xml("<a") is None


def readable(content: bytes, total: int | None = None):
    return display.readable(Body(content, 0, len(content) if total is None else total, BodyKind.DATA, None))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500 + "1," * 10_000 + "1" + "]" * 500,
        '{"a":' * 500 + "[" + "{}," * 10_000 + "1]" + "}" * 500,
        "<a>" * 300 + "<b/>" * 10_000 + "</a>" * 300,
    ],
)
def test_a_body_that_indenting_would_make_huge_is_shown_unchanged(text):
    assert readable(text.encode()) == display.Readable("text", text)


@pytest.mark.parametrize(
    ("content", "form"),
    [(b'{"a": 1}', "JSON"), (b"<a/>", "XML"), (b"hello", "text"), (b"\xff\xfe", "bytes"), (b"a\x00b", "bytes"), (b"", "nothing")],
)
def test_the_format_of_a_body_is_detected_from_its_bytes(content, form):
    assert readable(content).form == form


def test_a_body_truncated_inside_a_character_is_still_text():
    content = "é".encode() * 10
    shown = readable(content[:-1], 1000)
    assert shown.form == "text" and shown.text == "é" * 9 and "1,000 bytes" in shown.note


def test_a_hex_dump_shows_sixteen_bytes_per_line():
    assert display.hex_dump(bytes(range(17))).splitlines()[1].startswith("00000010  10")


# Timeline


def an_event(kind, at, **changes):
    number = changes.pop("number", 7)
    values = {
        "event_id": 1, "recorded_at": NOON, "at": NOON + seconds(at), "entity_id": 1, "address": ORDERS, "sequence_number":
        number,
        "kind": kind, "message_id": "m", "delivery_count": 0, "locked_until": None, "actor": "process:worker", "reason": None,
    }  # fmt: skip
    return Event(**values | changes)


def texts(events):
    return [entry.text for entry in timeline.entries(events, 1, 7)]


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_has_a_text(kind):
    [entry] = timeline.entries([an_event(kind, 0)], 1, 7)
    assert entry.text and entry.words.word and entry.words.icon


def test_the_time_between_events_is_explained():
    told = texts([an_event(EventKind.SENT, 0), an_event(EventKind.RECEIVED, 250), an_event(EventKind.COMPLETED, 250.1)])
    assert told == ["Sent", "waited 4 min 10 s for a receiver", "Received with peek-lock", "Completed"]


def test_a_lock_that_expired_unnoticed_shows_the_elapsed_time():
    events = [an_event(EventKind.RECEIVED, 0, locked_until=NOON + seconds(30)), an_event(EventKind.LOCK_LOST, 250)]
    assert texts(events)[1] == "held for 30 s; lock expired 3 min 40 s before the broker processed it"


def test_consecutive_renewals_are_combined():
    events = [an_event(EventKind.RECEIVED, 0), *(an_event(EventKind.RENEWED, n / 10) for n in range(1, 4))]
    assert texts(events) == ["Received with peek-lock", "Lock renewed 3 times"]


def test_events_under_another_number_name_that_number():
    events = [
        an_event(EventKind.RESUBMITTED, 0, details={"to": 9}, others=(LinkedMessage(1, ORDERS, 9),)),
        an_event(
            EventKind.SENT,
            0,
            number=9,
            details={"resubmitted_from": {"sequence_number": 7}},
            others=(LinkedMessage(1, ORDERS, 7),),
        ),
    ]
    first, second = timeline.entries(events, 1, 7)
    assert first.links == (LinkedMessage(1, ORDERS, 9),) and first.elsewhere is None
    assert second.elsewhere == (ORDERS, 9) and second.links == ()


COPY = NEWS.subscription("all")


@pytest.mark.parametrize(
    ("event", "text", "link"),
    [(an_event(EventKind.PUBLISHED, 0, details={"copies": 2}), "Published: 2 copies for its subscriptions", None),
     (an_event(EventKind.PUBLISHED, 0, details={"copies": 0}), "Published; no subscription's rules matched, so it was discarded",
      None),
     (an_event(EventKind.SENT, 0, address=COPY, details={"published_from": {}}, others=(LinkedMessage(2, NEWS, 4),)),
      "Copied from the topic by a matching rule", LinkedMessage(2, NEWS, 4)),
     (an_event(EventKind.SENT, 0, details={"published_from": {}}, others=(LinkedMessage(2, NEWS, 4),)), "Forwarded from news",
      LinkedMessage(2, NEWS, 4)),
     (an_event(EventKind.DEAD_LETTERED, 0, address=COPY, reason="FilterException", details={"published_from": {}},
               others=(LinkedMessage(2, NEWS, 4),)),
      "Copied from the topic into the dead-letter queue: FilterException", LinkedMessage(2, NEWS, 4)),
     (an_event(EventKind.FORWARDED, 0, details={"to": {}}, others=(LinkedMessage(2, NEWS, 4),)), "Forwarded to news",
      LinkedMessage(2, NEWS, 4)),
     (an_event(EventKind.FORWARDED, 0, details={"to": {}, "duplicate": True}, others=(LinkedMessage(2, NEWS, None),)),
      "Forwarded to news, where it was dropped as a duplicate", None),
     (an_event(EventKind.FORWARDED, 0, details={"to": {}}, others=(LinkedMessage(2, None, 4),)), "Forwarded to a deleted entity",
      None)],
)  # fmt: skip
def test_events_between_entities_name_both_entities(event, text, link):
    [entry] = timeline.entries([event], 1, 7)
    assert (entry.text, entry.links) == (text, (link,) if link else ())


FAILED, JOBS = LinkedMessage(8, EntityAddress("demo", "jobs-poison"), 3), LinkedMessage(9, EntityAddress("demo", "jobs"), 7)
MOVED = {"from": {"entity": 9, "path": "jobs", "sequence_number": 7, "reason": "expired"}}


@pytest.mark.parametrize(
    ("family", "event", "word", "text", "links"),
    [
        (Family.QUEUE_STORAGE, an_event(EventKind.MOVED, 0, reason="spent", others=(FAILED,)), "moved",
         "Moved to jobs-poison: spent", (FAILED,)),
        (Family.QUEUE_STORAGE, an_event(EventKind.SENT, 0, details=MOVED, others=(JOBS,)), "put", "Moved here from jobs: expired",
         (JOBS,)),
        (Family.RABBITMQ, an_event(EventKind.MOVED, 0, reason="expired", others=(FAILED, JOBS)), "dead-lettered",
         "Dead-lettered to jobs-poison, jobs: expired", (FAILED, JOBS)),
        (Family.RABBITMQ, an_event(EventKind.MOVED, 0, reason="rejected"), "dead-lettered",
         "Dead-lettered to no queue: rejected", ()),
        (Family.RABBITMQ, an_event(EventKind.SENT, 0, details=MOVED, others=(JOBS,)), "published",
         "Dead-lettered here from jobs: expired", (JOBS,)),
        (Family.RABBITMQ, an_event(EventKind.DROPPED, 0, reason="maxlen"), "dropped", "Dropped: maxlen", ()),
    ],
)  # fmt: skip
def test_moved_and_dropped_messages_show_target_and_reason(family, event, word, text, links):
    [entry] = timeline.entries([event], 1, 7, family)
    assert (entry.words.word, entry.text, entry.links) == (word, text, links)


def test_each_family_describes_events_in_its_own_terms():
    events = [
        an_event(EventKind.SENT, 0, details={"visible_at": (NOON + seconds(60)).isoformat()}),
        an_event(EventKind.RECEIVED, 60, locked_until=NOON + seconds(90)),
        an_event(EventKind.LOCK_LOST, 120, delivery_count=1),
    ]
    told = timeline.entries(events, 1, 7, Family.QUEUE_STORAGE)
    assert [entry.text for entry in told] == [
        "Put", "waited 1 min for a get", "Received by a get: leased, with a new pop receipt", 
        "leased for 30 s; then visible again for 30 s",
        "Lease expired; received by another get",
    ]  # fmt: skip
    assert [entry.note for entry in told if entry.words] == ["invisible for 1 min", "invisible for 30 s", "dequeue count: 1"]


# Other pages


def test_a_chart_without_traffic_is_omitted_and_the_highest_value_touches_the_top():
    points = [TrafficPoint(NOON, 60, sent, 0, 0) for sent in (0, 5, 2)]
    assert sparklines.spark([]) is None and sparklines.spark([TrafficPoint(NOON, 10, 0, 0, 0)]) is None
    assert sparklines.spark(points).sent == "0,38.0 110,0.0 220,22.8"


def test_a_chart_marks_the_deploys_of_its_minutes():
    points = [TrafficPoint(NOON + timedelta(minutes=i), 60, 1, 0, 0) for i in range(30)]
    deploys = [(NOON - timedelta(seconds=1), "too old"), (NOON, "a 1"), (NOON + timedelta(minutes=15), "b 2")]
    drawn = sparklines.spark(points, deploys=deploys)
    assert drawn.deploys == ((0, "a 1"), (110, "b 2"))
    assert drawn.words.endswith("in the last 30 minutes; deploy a 1 at 12:00 UTC; deploy b 2 at 12:15 UTC")


def test_a_chart_sums_complete_minutes():
    points = [TrafficPoint(NOON, 10, 1, 0, 0) for _ in range(15)]
    assert sparklines.by_minute(points, lambda point: point.sent) == [3, 6, 6]
    tops = [sparklines.spark([TrafficPoint(NOON, 60, sent, 0, 0)]).top for sent in (1, 3, 6, 10, 11, 450, 999)]
    assert tops == [1, 5, 10, 10, 20, 500, 1000]


@pytest.mark.parametrize(
    ("last_at", "error", "enabled", "late"),
    [(-5, "", True, False), (-26, "", True, True), (-25, "", True, False), (-5, "broke", True, True), (None, "", True, True),
     (None, "", False, False)],
)  # fmt: skip
def test_a_sweep_is_late_after_two_intervals_and_a_grace_period(last_at, error, enabled, late):
    last: Any = None if last_at is None else SimpleNamespace(started_at=NOON + seconds(last_at), error=error)
    assert bool(background_tasks.lateness(last, seconds(5), NOON, enabled, NOON - timedelta(days=1))) is late


def test_a_sweep_before_its_first_run_is_not_late():
    assert background_tasks.lateness(None, seconds(5), NOON, True, NOON - seconds(3)) == ""
