"""The time bar, and an entity's page at an instant of the past."""

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import namespaces, reads, service_bus
from broker_core.common.types import EventKind, Family
from broker_core.reads import Change, NextChange
from broker_core.service_bus.rules.values import Message
from explorer.time_bar import time_scale
from explorer.time_bar.bar import coming, past

from .conftest import WORKER
from .test_board import lanes_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BEYOND = "0" * 9 + "9" * 9  # a place on the time bar


@given(st.integers(1, time_scale.STEPS))
def test_a_slider_step_is_at_the_position_of_its_instant(step):
    ahead = time_scale.place(time_scale.distance(step))
    assert ahead == pytest.approx(50 + step / 20, abs=0.5)
    assert time_scale.place(-time_scale.distance(step)) == pytest.approx(100 - ahead, abs=0.02)


def test_the_bar_ends_in_an_hour_and_now_is_in_the_middle():
    assert [time_scale.place(timedelta(hours=h)) for h in (-2, -1, 0, 1, 2)] == [0, 0, 50, 100, 100]
    places = [place for place, _ in time_scale.labels()]
    assert places == sorted(places) and len(set(places)) == len(places)


def test_the_first_changes_are_labelled_as_space_permits():
    changes = [NextChange(Change.LOCK, NOW + n * SECOND, n) for n in (8, 9, 60, 900, 4000)]
    found = coming(changes, NOW)
    assert [mark.name for mark in found] == ["8 lock ends", "", "60 lock ends", "900 lock ends", ""]
    assert found[-1].place is None and found[0].words == "the lock of message 8 ends"


def test_overlapping_events_show_the_most_important_event():
    happened = [(EventKind.SENT, 60), (EventKind.DEAD_LETTERED, 60), (EventKind.RECEIVED, 60), (EventKind.SENT, -5)]
    events: list[Any] = [SimpleNamespace(kind=kind, at=NOW - ago * SECOND, reason=None) for kind, ago in happened]
    assert [(mark.hue, mark.height) for mark in past(events, NOW, Family.SERVICE_BUS)] == [("dead", 20)]


def bar_of(page) -> str:
    return re.search(r'<section\s+class="card time-bar".*?</section>', page.content.decode(), re.DOTALL)[0]


def test_in_real_time_the_bar_has_upcoming_changes_and_for_administrators_a_pause_button(as_, shop):
    url = f"/entities/{shop.namespace}/{shop.path}"
    bar = bar_of(as_("operator").get(url))
    assert "the lock of message 4 ends" in bar and "message 6 becomes due" in bar and "<button" in bar
    assert "Pause the clock" not in bar and "Play" not in bar
    assert "Pause the clock" in bar_of(as_("administrator").get(url))


def test_a_manual_clock_can_play_step_and_jump_on_the_bar(as_, shop):
    url, clock = f"/entities/{shop.namespace}/{shop.path}", f"/clocks/{shop.namespace}/"
    admin = as_("administrator")
    admin.post(clock, {"act": "pause", "page": url})
    assert "Play at 60" in bar_of(admin.get(url))
    admin.post(clock, {"act": "play", "rate": "60", "page": url})
    assert namespaces.get_clock(shop.namespace).rate == 60
    assert re.search(r'value="60.0"\s+aria-label="[^"]*"\s+aria-pressed="true"', bar_of(admin.get(url)))
    admin.post(clock, {"act": "pause", "page": url})
    before = namespaces.get_clock(shop.namespace).now
    admin.post(clock, {"act": "ahead", "ahead": "500", "page": url})
    assert namespaces.get_clock(shop.namespace).now - before == time_scale.distance(500)
    wrong = [{"act": "ahead", "ahead": place} for place in ("x", "0", "5000", BEYOND)]
    for bad in (*wrong, {"act": "play", "rate": "fast"}):
        assert admin.post(clock, bad | {"page": url}, headers={"HX-Request": "true"}).status_code == 400
    assert as_("operator").post(clock, {"act": "play", "rate": "1"}, headers={"HX-Request": "true"}).status_code == 403


def test_a_step_updates_exactly_the_changed_messages(as_, shop):
    """The board before and after: only the message whose lock ended is in another lane."""
    namespaces.pause_clock(shop.namespace)
    admin, url = as_("administrator"), f"/entities/{shop.namespace}/{shop.path}?view=board"
    before = lanes_of(admin.get(url))
    change = reads.next_change(shop)
    assert (change.what, change.sequence_number) == (Change.LOCK, 4)
    admin.post(f"/clocks/{shop.namespace}/", {"act": "next", "entity": shop.path, "page": url})
    after = lanes_of(admin.get(url))
    assert after["locked"] == [] and after["active"] == [4, 5] and after["left"][0] == 7  # 7 was expired before
    assert {name: after[name] for name in ("scheduled", "deferred", "dead-letter")} == {
        name: before[name] for name in ("scheduled", "deferred", "dead-letter")
    }


@pytest.fixture
def then(shop):
    """An instant of the shop, after which everything changed."""
    namespaces.pause_clock(shop.namespace)
    at = namespaces.get_clock(shop.namespace).now
    namespaces.step_clock(shop.namespace, 5 * SECOND)
    service_bus.send(shop, [Message(b"", message_id="later")], actor=WORKER)
    service_bus.purge(shop, actor=WORKER)
    service_bus.resubmit(shop, [2], actor=WORKER)
    return at


def test_the_board_of_a_past_instant_has_no_actions(as_, shop, then):
    url = f"/entities/{shop.namespace}/{shop.path}?at={quote(then.isoformat())}"
    page = as_("administrator").get(f"{url}&view=board")
    assert lanes_of(page) == {"scheduled": [6], "active": [5, 7], "locked": [4], "deferred": [3], "dead-letter": [2], "left": [1]}
    html = page.content.decode()
    assert "This is the past" in html and "Back to now" in html
    main = html[html.index('<main class="main"') :]
    assert "<button" not in main.replace('type="button"', "") and 'method="post"' not in main and "live-connection" not in html


def test_the_list_of_a_past_instant_can_be_stepped_by_events(as_, shop, then):
    viewer, url = as_("viewer"), f"/entities/{shop.namespace}/{shop.path}"
    html = viewer.get(url, {"at": then.isoformat()}).content.decode()
    numbers = re.findall(rf'href="/messages/{shop.namespace}/{shop.path}/(\d+)"', html)
    assert numbers == ["2", "3", "4", "5", "6", "7"] and "PaymentRefused" in html
    assert f"at={quote((then + 5 * SECOND).isoformat(), safe='')}" in html and "One event on" in " ".join(html.split())


def test_the_slider_selects_an_instant_and_invalid_instants_are_refused(as_, shop):
    namespaces.pause_clock(shop.namespace)
    viewer, url = as_("viewer"), f"/entities/{shop.namespace}/{shop.path}"
    answer = viewer.get(url, {"ago": "300", "view": "board"})
    at = namespaces.get_clock(shop.namespace).now - time_scale.distance(300)
    assert answer.status_code == 302 and quote(at.isoformat(), safe="") in answer.url and "view=board" in answer.url
    assert viewer.get(answer.url).status_code == 200
    instants = ("yesterday", "2999-01-01", "9999-12-31T23:59:59", "0001-01-01", "0001-01-01T00:00+14:00")
    for query in (*({"ago": place} for place in ("x", "5000", BEYOND)), *({"at": instant} for instant in instants)):
        assert viewer.get(url, query).status_code == 400, query
    for instant in ("0001-01-02T00:00:01Z", "1000-01-01"):
        assert viewer.get(url, {"at": instant}).status_code == 200, instant
    assert viewer.get(f"/entities/{shop.namespace}/none", {"at": "2020-01-01"}).status_code == 404


def test_other_families_show_past_instants_with_rebuilt_leases(as_, jobs):
    at = namespaces.get_clock(jobs.namespace).now
    page = as_("viewer").get(f"/entities/{jobs.namespace}/{jobs.path}?view=board&at={quote(at.isoformat())}")
    assert lanes_of(page) == {"delayed": [4, 5], "visible": [7, 8], "leased": [2, 3], "expired": [6], "left": [1]}
