"""The board: its lanes are the lists, and its chips say what a list says."""

import random
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress, EventKind
from broker_core.reads import Tab
from broker_core.service_bus.rules.values import Message
from explorer.board import lanes as board_lanes
from explorer.board.reading import board_of
from tests.html import body_of

from .conftest import WORKER
from .rabbitmq_office import office  # noqa: F401
from .test_accessibility import browser  # noqa: F401


def lanes_of(page) -> dict[str, list[int]]:
    """The numbers of the chips by lane."""
    parts = re.split(r'<section\s+class="lane [^>]*id="lane-([a-z-]+)"', page.content.decode())
    numbers = [[int(n) for n in re.findall(r"</span><b>(\d+)</b>", part)] for part in parts[2::2]]
    return dict(zip(parts[1::2], numbers, strict=True))


def test_the_board_of_a_rabbitmq_queue_shows_the_target_of_dead_letters(as_, db):
    """By the default exchange: to the queue of the routing key, which is the message's own unless the queue has one (RMQ-062)."""
    client, vhost = as_("viewer"), "mail"
    rabbitmq.create_vhost(vhost)
    for name, arguments in (
        ("plain", {}),
        ("fanned", {"x-dead-letter-exchange": "dead"}),
        ("direct", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "plain"}),
        ("own", {"x-dead-letter-exchange": ""}),
        ("empty", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""}),
    ):
        rabbitmq.declare_queue(EntityAddress(vhost, name), arguments=arguments)
    names = ("plain", "fanned", "direct", "own", "empty")
    shown = {name: body_of(client.get(f"/entities/{vhost}/{name}?view=board")) for name in names}
    assert "dead letters go to" not in shown["plain"]
    assert f'href="/rabbitmq/exchanges/{vhost}/dead">dead</a>' in shown["fanned"]
    assert f'href="/entities/{vhost}/plain">plain</a>' in shown["direct"]
    assert f'href="/rabbitmq/exchanges/{vhost}/">the queue named by each message' in shown["own"]
    assert "no queue, because the routing key is empty" in shown["empty"]


def test_each_message_is_a_linked_chip_in_the_lane_of_its_state(as_, shop):
    page = as_("viewer").get(f"/entities/{shop.namespace}/{shop.path}?view=board")
    assert lanes_of(page) == {"scheduled": [6], "active": [5, 7], "locked": [4], "deferred": [3], "dead-letter": [2], "left": [1]}
    html = page.content.decode()
    assert f'<a class="board-chip hue-locked" href="/messages/{shop.namespace}/{shop.path}/4">' in html
    assert '<span class="tail">…er-5</span>' in html and "PaymentRefused" in html and "worker" in html


def test_a_storage_queue_has_lanes_by_the_reason_for_invisibility(as_, jobs):
    page = as_("viewer").get(f"/entities/{jobs.namespace}/{jobs.path}?view=board")
    assert lanes_of(page) == {
        "delayed": [4, 5], "visible": [7, 8], "leased": [2, 3], "expired": [6], "poison": [1], "left": [1]
    }  # fmt: skip
    html = page.content.decode()
    assert "receipt …" in html and f'href="/entities/{jobs.namespace}/jobs-poison"' in html


def test_a_rabbitmq_queue_shows_expired_messages_behind_its_head_and_a_box_for_each_consumer(as_, office):  # noqa: F811
    viewer = as_("viewer")
    page = viewer.get(f"/entities/{office.at}/mail?view=board")
    assert {name: numbers for name, numbers in lanes_of(page).items() if name != "left"} == {"ready": [2, 3, 4], "unacked": []}
    assert page.content.decode().count("expired, behind the head") == 1
    page = viewer.get(f"/entities/{office.at}/scans?view=board")
    assert lanes_of(page) == {"ready": [2], "unacked": [1], "left": []}


def test_a_receiver_has_one_box_whether_or_not_it_holds_messages(shop):
    service_bus.receive(shop, 1, actor=WORKER)
    board = board_of(reads.entity(shop), WORKER)
    assert [box.title for lane in board.lanes if lane.lane.slug == "locked" for box in lane.boxes] == ["worker"]


def test_a_session_has_a_box_while_it_is_locked(as_, market):
    carts = EntityAddress(market.namespace, "carts")
    service_bus.send(carts, [Message(b"", session_id=s) for s in ("A", "A", "B")], actor=WORKER)
    service_bus.accept_session(carts, "A", max_count=1, actor=WORKER)
    service_bus.accept_session(carts, "C", actor=WORKER)
    board = board_of(reads.entity(carts), WORKER)
    boxes = {lane.lane.slug: {box.title: [chip.number for chip in box.chips] for box in lane.boxes} for lane in board.lanes}
    assert boxes["locked"] == {"session A": [1], "session C": []}
    assert boxes["active"] == {"session A": [2], "session B": [3]}


def test_topics_have_no_board_and_unknown_views_are_refused(as_, market):
    viewer = as_("viewer")
    assert viewer.get(f"/entities/{market.namespace}/{market.path}?view=board").status_code == 400
    assert viewer.get(f"/entities/{market.namespace}/carts?view=wall").status_code == 400
    assert "view=board" not in viewer.get(f"/entities/{market.namespace}/{market.path}").content.decode()


def test_a_lane_shows_forty_chips_and_how_many_more_there_are(as_, shop):
    service_bus.send(shop, [Message(b"")] * 400, actor=WORKER)
    page = as_("viewer").get(f"/entities/{shop.namespace}/{shop.path}?view=board")
    assert len(lanes_of(page)["active"]) == 40
    assert "+ 362<" in page.content.decode()


def test_after_500_events_the_lanes_still_equal_the_lists(as_, shop):
    dice, held = random.Random(7), []
    for _ in range(90):
        act = dice.choice(["send", "send", "receive", "settle", "settle", "schedule"])
        if act == "send":
            service_bus.send(shop, [Message(b"")] * dice.randrange(1, 4), actor=WORKER)
        elif act == "schedule":
            at = datetime.now(UTC) + timedelta(minutes=dice.randrange(1, 90))
            service_bus.send(shop, [Message(b"", scheduled_enqueue_at=at)], actor=WORKER)
        elif act == "receive":
            held += service_bus.receive(shop, dice.randrange(1, 4), actor=WORKER)
        elif held:
            token = held.pop(dice.randrange(len(held))).lock_token
            how = dice.choice(["complete", "abandon", "defer", "dead_letter"])
            getattr(service_bus, how)(shop, [token], actor=WORKER)
    lanes = lanes_of(as_("viewer").get(f"/entities/{shop.namespace}/{shop.path}?view=board"))
    for lane, tab, newest_first in (
        ("scheduled", Tab.SCHEDULED, False), ("active", Tab.UNLOCKED, False), ("locked", Tab.LOCKED, False),
        ("deferred", Tab.DEFERRED, False), ("dead-letter", Tab.DEAD_LETTER, True),
    ):  # fmt: skip
        rows = reads.list_messages(shop, tab, limit=40, newest_first=newest_first).rows
        assert sorted(lanes[lane]) == sorted(row.sequence_number for row in rows), lane
    gone = [event.sequence_number for event in reads.gone(shop).rows if event.kind is not EventKind.ACTIVATED]
    assert lanes["left"] == gone[: board_lanes.MOST_LEFT]


@pytest.mark.parametrize("text, tail", [(None, ""), ("a", "a"), ("order7", "order7"), ("order-7", "…er-7")])
def test_a_chip_has_the_end_of_the_message_id(text, tail):
    assert board_lanes.tail_of(text) == tail


def test_a_message_with_a_new_number_is_the_same_chip(shop):
    """An activated schedule and a resubmitted dead letter keep their place on the board for the movement."""
    [new] = service_bus.resubmit(shop, [2], actor=WORKER).values()
    board = board_of(reads.entity(shop), WORKER)
    positions = {chip.number: chip.was for lane in board.lanes for chip in lane.chips}
    assert positions[new].endswith("-2") and positions[5] == ""
    assert [chip.number for chip in board.left] == [1]


@pytest.mark.parametrize("missing_frames", [0, 1, 3])
def test_a_chip_moves_when_its_lock_ends_and_keeps_the_focus(missing_frames, browser, shop):  # noqa: F811
    """missing_frames: those whose lanes were read while the message changed, so that it is in none of them."""

    def tell(message):
        if "failed 1 of 3" in message:
            without = re.sub(r"<li[^>]*chip-item(?:(?!</li>).)*failed 1 of 3(?:(?!</li>).)*</li>", "", message)
            for _ in range(missing_frames):
                page_socket.send(without)
        page_socket.send(message)

    def connect(socket):
        nonlocal page_socket
        page_socket, server = socket, socket.connect_to_server()
        socket.on_message(server.send)
        server.on_message(tell)

    page_socket = None
    namespaces.pause_clock(shop.namespace)
    page = browser("viewer", viewport={"width": 1440, "height": 900})
    page.route_web_socket("**", connect)
    page.goto(f"/entities/{shop.namespace}/{shop.path}?view=board")
    expect(page.locator("#live-word")).to_have_text("live")
    page.evaluate("""() => {
        window.seen = [];
        const air = document.querySelector(".board-air");
        new MutationObserver(all => all.forEach(one => one.addedNodes.forEach(node => seen.push(node.textContent.trim()))))
            .observe(air, {childList: true});
    }""")
    page.locator("#lane-active .board-chip").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#lane-locked .board-chip")).to_be_focused()
    namespaces.step_clock(shop.namespace, timedelta(minutes=2))
    expect(page.locator("#lane-active .chip-tries").first).to_have_text("failed 1 of 3")
    expect(page.locator("#lane-locked .board-chip")).to_have_count(0)
    expect(page.locator("#lane-active .board-chip").first).to_be_focused()
    page.wait_for_function("() => seen.some(text => text.includes('4')) && seen.includes('+1')")
