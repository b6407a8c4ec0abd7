"""What people come for, in at most four actions each, by mouse and by keyboard alone.

An action is a click, a key or a key sequence such as `g d`, or text typed into the field that has the focus.
"""

import re
import uuid

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, operations, reads, service_bus
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, Right
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.operations import runner
from tests.table_cleanup import empty_tables

from .test_accessibility import browser  # noqa: F401

MOST = 4
BILLING = Actor("process", "billing-7", Right.ALL)
by_mouse_and_keyboard = pytest.mark.parametrize("hand", ["mouse", "keyboard"])


class Hand:
    """A person with a mouse, or with a keyboard alone, whose actions are counted."""

    def __init__(self, page, has_mouse):
        self.page, self.has_mouse, self.actions = page, has_mouse, 0

    def _act(self, what):
        self.actions += 1
        assert self.actions <= MOST, f"{what} is action {self.actions}"

    def starts(self):
        """The next step of a longer journey."""
        self.actions = 0

    def do(self, what, key):
        """A click on a control, or the key for it: one key, or a sequence such as "g d"."""
        if self.has_mouse:
            self._act(f"a click on {what}")
            what.click()
        else:
            self.press(key)

    def press(self, keys):
        self._act(keys)
        self.page.wait_for_load_state()  # until then, no script listens
        for key in keys.split():
            self.page.keyboard.press(key)

    def type(self, text):
        expect(self.page.locator("input:focus, textarea:focus")).to_be_visible()
        self._act(f"typing {text}")
        self.page.keyboard.type(text)


@pytest.fixture
def orders(transactional_db):
    """A queue with order-1 to order-9 available, order-4707 and order-4708 locked, and order-4711 completed, by billing-7.

    Nothing else is there: what tests without this database fixture sent is emptied, because the pages show all namespaces.
    """
    if namespaces.list_namespaces():
        empty_tables("default")
    address = EntityAddress(f"shop-{uuid.uuid4().hex[:8]}", "eu/orders")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    ids = ["order-4711", "order-4707", "order-4708", *(f"order-{n}" for n in range(1, 10))]
    service_bus.send(address, [Message(b'{"total": 12.5}', message_id=message_id, subject="placed") for message_id in ids])
    first, *_ = service_bus.receive(address, 3, actor=BILLING)
    service_bus.complete(address, [first.lock_token], actor=BILLING)
    return address


@pytest.fixture
def start(browser):  # noqa: F811
    """start(hand, address) -> a hand on that page of an operator."""

    def at(hand, address="/"):
        page = browser("operator", viewport={"width": 1440, "height": 900})
        page.goto(address)
        return Hand(page, hand == "mouse")

    return at


def find(hand, text):
    """Search for a message, and open it."""
    hand.do(hand.page.locator("#find"), "/")
    hand.type(text)
    hand.press("Enter")
    found = hand.page.get_by_role("link", name=text, exact=True)
    expect(found).to_be_visible()
    hand.do(found, "o")


@by_mouse_and_keyboard
def test_an_undelivered_message_shows_the_reason(orders, start, hand):
    entities.set_status(orders, EntityStatus.RECEIVE_DISABLED)
    hand = start(hand)
    link = hand.page.locator("#now-attention").get_by_role("link", name="Open queue")
    expect(link).to_be_visible()
    if hand.has_mouse:
        hand.do(link, None)
    else:
        hand.press("o")
    first = hand.page.locator("#rows .row-link").first
    expect(first).to_be_visible()
    hand.do(first, "o")
    expect(hand.page.locator("#pane .message-state")).to_contain_text("Receives are disabled")


@by_mouse_and_keyboard
def test_a_message_found_by_id_shows_its_timeline(orders, start, hand):
    hand = start(hand)
    find(hand, "order-4711")
    expect(hand.page.locator("#state-title")).to_contain_text("Completed by billing-7")
    expect(hand.page.locator("#message-timeline")).to_contain_text("Received with peek-lock")


@by_mouse_and_keyboard
def test_a_locked_message_shows_its_holder(orders, start, hand):
    hand = start(hand)
    find(hand, "order-4708")
    expect(hand.page.locator(".message-state")).to_contain_text("billing-7")


@by_mouse_and_keyboard
def test_a_single_lock_is_released(orders, start, hand):
    hand = start(hand)
    row = hand.page.get_by_role("row", name="order-4708")
    hand.do(hand.page.get_by_role("link", name="Locks"), "g l")
    expect(row).to_be_visible()
    hand.do(row.get_by_role("button", name="Release…"), "l")
    hand.do(hand.page.get_by_role("button", name="Release", exact=True), "Enter")
    expect(hand.page.locator("#notices")).to_contain_text(re.compile("Released the lock of message .\\."))
    expect(hand.page.locator("#locks tbody tr")).to_have_count(1)


@by_mouse_and_keyboard
def test_receiving_is_paused_and_resumed(orders, start, hand):
    hand = start(hand, f"/entities/{orders}")
    hand.do(hand.page.locator("#status > summary"), "P")
    expect(hand.page.get_by_role("button", name="Pause sending")).to_be_visible()
    if not hand.has_mouse:
        hand.press("Tab")
    hand.do(hand.page.get_by_role("button", name="Pause receiving"), "Enter")
    expect(hand.page.locator("#head")).to_contain_text("Receiving paused")


@by_mouse_and_keyboard
def test_two_messages_are_compared(orders, start, hand):
    hand = start(hand, f"/entities/{orders}?tab=active&order=oldest")
    boxes = hand.page.locator('#rows input[name="numbers"]')
    if hand.has_mouse:
        for box in (boxes.nth(0), boxes.nth(1)):
            hand.do(box, None)
    else:
        for key in ("j", "x", "j"):
            hand.press(key)
    hand.do(hand.page.get_by_role("button", name="Compare 2"), "c")
    expect(hand.page.locator("h1")).to_have_text(re.compile("Messages . and ."))


@by_mouse_and_keyboard
def test_a_message_of_a_deleted_queue_is_found(orders, start, hand):
    old = EntityAddress(orders.namespace, "old")
    entities.create_queue(old)
    service_bus.send(old, [Message(b"{}", message_id="lost-1")])
    entities.delete_queue(old)
    hand = start(hand)
    find(hand, "lost-1")
    expect(hand.page).to_have_url(re.compile(rf"/messages/{old}/1\?of=\d+"))
    expect(hand.page.locator("main")).to_contain_text("deleted")


@by_mouse_and_keyboard
def test_a_filter_is_shared(orders, start, browser, hand):  # noqa: F811
    hand = start(hand, f"/entities/{orders}?tab=active&q=id:order-4708")
    page = hand.page
    hand.do(page.get_by_role("link", name="Save…"), "b")
    expect(page.get_by_label(re.compile("^Save id:order-4708 as"))).to_be_focused()
    if not hand.has_mouse:
        hand.press("Tab")
    hand.do(page.get_by_label("Share with everybody"), "Space")
    hand.do(page.get_by_role("button", name="Save filter"), "Enter")
    expect(page.locator("#notices")).to_contain_text("shared with everybody")
    colleague = browser("viewer")
    colleague.goto("/filters/")
    colleague.get_by_role("link", name="id:order-4708").click()
    expect(colleague.locator("[data-chip]")).to_have_text("id:order-4708")


@pytest.fixture
def dead_letters(orders):
    """450 dead letters of another queue: 410 with an unknown currency, 40 that were late."""
    address = EntityAddress(orders.namespace, "eu/payments")
    entities.create_queue(address)
    service_bus.send(address, [Message(b'{"total": 12.5, "currency": "DM"}', message_id=f"payment-{n}") for n in range(450)])
    tokens = [message.lock_token for message in service_bus.receive(address, 450, actor=BILLING)]
    service_bus.dead_letter(address, tokens[:410], "Schema", "unknown currency 'DM'", actor=BILLING)
    service_bus.dead_letter(address, tokens[410:], "Late", actor=BILLING)
    return address


@by_mouse_and_keyboard
def test_the_next_dead_letter_is_opened(dead_letters, start, hand):
    hand = start(hand)
    open_message = hand.page.locator("#pane h2")
    if hand.has_mouse:
        hand.do(hand.page.get_by_role("link", name=re.compile("^Review")), None)
    else:
        hand.press("g d")
        expect(hand.page.locator("#inbox")).to_contain_text("Schema")
        hand.press("o")
    expect(open_message).to_contain_text("Message 410")
    hand.do(hand.page.locator("#pane").get_by_role("link", name="Next"), "]")
    expect(open_message).to_contain_text("Message 409")


@pytest.mark.slow
@by_mouse_and_keyboard
def test_dead_letters_are_repaired_tried_resubmitted_at_a_pace_stopped_and_undone(dead_letters, start, hand):
    """Each step: open the dead letters, filter them, preview the repair, try one, resubmit the others at 50/s, stop, undo."""
    hand = start(hand, f"/entities/{dead_letters}?tab=dead-letter")
    page = hand.page
    heading, operation, fate = page.locator("#work h1"), page.locator(".operation").first, page.locator("#fate")
    hand.do(page.get_by_role("link", name="Groups and repair"), "w")
    expect(heading).to_contain_text("450 dead letters")

    hand.starts()
    hand.do(page.locator("#f-q"), "f")
    hand.type("reason=Schema")
    hand.press("Enter")
    expect(heading).to_contain_text("410 dead letters")

    hand.starts()
    hand.do(page.get_by_role("link", name="Repair…"), "r")
    hand.type('{"currency": "EUR"}')
    hand.do(page.get_by_role("button", name="Preview three"), "Control+Enter")
    expect(page.locator(".preview")).to_have_count(3)
    expect(page.locator(".preview").first).to_be_focused()

    hand.starts()
    hand.do(page.get_by_role("button", name="Try repair on 1"), "t")
    expect(fate).to_contain_text("Message 410: ")
    expect(fate).to_be_focused()
    [message] = service_bus.receive(dead_letters, 1, actor=BILLING)
    assert message.body == b'{"total": 12.5, "currency": "EUR"}'
    service_bus.complete(dead_letters, [message.lock_token], actor=BILLING)
    expect(fate).to_contain_text("Message 410: Completed")

    hand.starts()
    hand.do(page.locator("#pace"), "a")
    hand.type("50")
    hand.do(page.get_by_role("button", name="Repair and resubmit 409 as tried"), "Enter")
    expect(operation).to_contain_text("queued")
    expect(operation).to_be_focused()
    [started] = operations.newest(open_only=True)
    assert (started.pace, started.counted) == (50.0, 409)
    runner.run(started, seconds=0)  # a batch, as by a worker
    expect(operation).to_contain_text(" of 409 done")

    hand.starts()
    hand.do(operation.get_by_role("button", name="Stop"), ".")
    expect(operation).to_contain_text("stopped")

    hand.starts()
    hand.do(operation.get_by_role("button", name="Undo"), "z")
    expect(operation).to_contain_text("undone")
    expect(heading).to_contain_text("409 dead letters")
    assert reads.counts(dead_letters).dead_letter == 449
