"""Entity pages stay quiet: how many controls a person sees, and how many Tab stops come before the first message.

In all families, for a queue with four messages, in a window of 1440 x 900. The brand is not counted: it is Now again, by mouse.
"""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message

from .test_accessibility import browser, violations  # noqa: F401

DESK = {"width": 1440, "height": 900}
VISIBLE = """() => [...document.querySelectorAll(
  'a[href]:not(.brand), button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')].filter(e => {
    const { width, height } = e.getBoundingClientRect();
    return width > 0 && height > 0 && e.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  }).map(e => e.tagName + ' ' + (e.getAttribute('aria-label') || e.innerText || e.id).trim())"""
FIRST_ROW = "#rows tr, .chip-item"
FOCUSED = "document.activeElement.innerText.trim()"
HEAD_HEIGHT = "document.querySelector('#head').getBoundingClientRect().height"
BAR_HEIGHT = "document.querySelector('#time-bar').getBoundingClientRect().height"
CUT_LABELS = """() => {
  const card = document.querySelector('#time-bar').getBoundingClientRect()
  const boxes = [...document.querySelectorAll('#time-bar text')].filter(text => text.checkVisibility())
    .map(text => text.getBoundingClientRect())
  return boxes.filter(box => box.left < card.left || box.right > card.right).length
}"""
LANES = """() => Object.fromEntries([...document.querySelectorAll('.lane')].map(
  lane => [lane.id.replace('lane-', ''), Math.round(lane.getBoundingClientRect().width)]))"""
FAMILIES = ("service bus", "subscription", "queue storage", "rabbitmq")
CONTROLS = {"service bus": 25, "subscription": 27, "queue storage": 25, "rabbitmq": 25}  # a subscription has a topic and rules


@pytest.fixture
def four(transactional_db):
    """By kind: a queue with four messages that wait, and without a change that time makes within the hour."""
    bus = namespaces.create_namespace("shop", Family.SERVICE_BUS).name
    queue, topic = EntityAddress(bus, "orders"), EntityAddress(bus, "news")
    entities.create_queue(queue)
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    queue_storage.create_account("shopaccount")
    jobs, mail = EntityAddress("shopaccount", "jobs"), EntityAddress("shophost", "mail")
    queue_storage.create_queue(jobs)
    rabbitmq.create_vhost("shophost")
    rabbitmq.declare_queue(mail)
    for address in (queue, topic):
        service_bus.send(address, [Message(b"x", message_id=f"order-{n}", subject="placed") for n in range(4)])
    queue_storage.put_all(jobs, ["one", "two", "three", "four"])
    rabbitmq.publish("shophost", [rabbitmq.Publication(b"x", routing_key="mail")] * 4)
    return dict(zip(FAMILIES, (queue, topic.subscription("all"), jobs, mail), strict=True))


@pytest.fixture
def desk(browser):  # noqa: F811
    return browser(viewport=DESK, bypass_csp=True)


def tabs_to_the_first_row(page, rows=FIRST_ROW) -> int:
    """How often Tab is pressed, from the top of the page."""
    for count in range(1, 40):
        page.keyboard.press("Tab")
        if page.evaluate("rows => document.activeElement.closest(rows) !== null", rows):
            return count
    raise AssertionError("no row was reached")


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_queue_with_four_messages_has_few_controls_and_its_rows_are_near(kind, four, desk):
    address, budget = four[kind], CONTROLS[kind]
    for query, rows, more in (("", "#rows tr", 0), ("?view=board", ".chip-item", 1)):
        desk.goto(f"/entities/{address}{query}")
        expect(desk.locator(rows)).to_have_count(4)
        expect(desk.locator("#live-word")).to_have_text("live")
        shown = desk.evaluate(VISIBLE)
        assert len(shown) <= budget + more, shown
        assert tabs_to_the_first_row(desk) <= 15
    desk.goto(f"/entities/{address}?m={1 if kind != 'queue storage' else 2}")
    expect(desk.locator("#pane-title")).to_be_visible()
    shown = desk.evaluate(VISIBLE)
    assert len(shown) <= budget + 20, "\n".join(shown)


@pytest.mark.slow
def test_what_belongs_to_a_row_or_label_shows_on_hover_and_focus_without_moving_anything(four, desk):
    desk.goto(f"/entities/{four['service bus']}")
    row = desk.locator("#rows tr").first
    box, place = row.locator("input"), row.locator(".row-link").bounding_box()
    opacity = "e => getComputedStyle(e.closest('.hit')).opacity"
    assert box.evaluate(opacity) == "0"
    row.hover()
    assert box.evaluate(opacity) == "1" and row.locator(".row-link").bounding_box() == place
    box.check()
    assert desk.locator("#rows input").last.evaluate(opacity) == "1", "all of them, once one is selected"
    box.uncheck()
    desk.mouse.move(0, 0)
    desk.locator("#rows input").last.focus()
    assert desk.locator("#rows input").last.evaluate(opacity) == "1"
    term = desk.get_by_role("button", name="What is Number?")
    term.click()
    expect(desk.locator("#term-sequence-number")).to_be_visible()
    desk.goto(f"/messages/{four['service bus']}/1")
    copy = desk.get_by_role("button", name="Copy Message ID")
    assert copy.evaluate("e => getComputedStyle(e).opacity") == "0"
    copy.focus()
    assert copy.evaluate("e => getComputedStyle(e).opacity") == "1"


def test_on_touch_the_controls_of_rows_are_always_there(four, browser):  # noqa: F811
    page = browser(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(f"/entities/{four['service bus']}")
    expect(page.locator("#rows tr")).to_have_count(4)
    assert page.locator("#rows .hit").first.evaluate("e => getComputedStyle(e).opacity") == "1"
    page.goto(f"/messages/{four['service bus']}/1")
    assert page.locator(".copy-value").first.evaluate("e => getComputedStyle(e).opacity") == "1"


@pytest.mark.slow
def test_the_time_bar_is_a_line_until_something_is_due_within_the_hour(four, desk):
    queue, *_ = four.values()
    desk.goto(f"/entities/{queue}")
    expect(desk.locator("#live-word")).to_have_text("live")
    assert desk.evaluate(BAR_HEIGHT) == 0
    now = datetime.now(UTC)
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=now + timedelta(hours=5))])
    bar = desk.locator("#time-bar")
    expect(bar).to_contain_text("message 5 becomes due")
    assert 0 < desk.evaluate(BAR_HEIGHT) <= 32
    assert desk.locator("#time-bar").get_by_role("button").count() == 0
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=now + timedelta(minutes=50))])
    expect(bar.locator(".time-picture")).to_be_visible()
    assert desk.evaluate(CUT_LABELS) == 0
    desk.set_viewport_size({"width": 390, "height": 844})
    assert desk.evaluate(CUT_LABELS) == 0
    namespaces.pause_clock(four["queue storage"].namespace)
    desk.goto(f"/entities/{four['queue storage']}")
    expect(desk.locator("#time-bar").get_by_role("button", name="Play", exact=True)).to_be_visible()


@pytest.mark.slow
def test_an_empty_lane_is_a_spine_that_opens_when_a_message_arrives_and_then_stays(four, desk):
    queue, *_ = four.values()
    desk.goto(f"/entities/{queue}?view=board")
    expect(desk.locator("#live-word")).to_have_text("live")
    lanes = desk.evaluate(LANES)
    spines = {name for name, width in lanes.items() if width <= 44}
    assert spines == {"scheduled", "locked", "deferred", "dead-letter"}
    assert lanes["left"] < lanes["active"]
    assert violations(desk) == []
    deferred = desk.get_by_role("region", name="deferred 0", exact=True)
    expect(deferred).to_be_visible()
    [held] = service_bus.receive(queue, 1)
    service_bus.defer(queue, [held.lock_token])
    expect(desk.locator("#lane-deferred .board-chip")).to_be_visible()
    assert desk.evaluate(LANES)["deferred"] > 100
    [again] = service_bus.receive_deferred(queue, [held.sequence_number])
    service_bus.complete(queue, [again.lock_token])
    expect(desk.locator("#lane-left .board-chip")).to_be_visible()
    assert desk.evaluate(LANES)["deferred"] > 100, "nothing jumps back"


@pytest.mark.slow
def test_a_tab_without_messages_is_in_the_menu_and_appears_with_its_first_one(four, desk):
    queue, *_ = four.values()
    desk.goto(f"/entities/{queue}")
    expect(desk.locator("#live-word")).to_have_text("live")
    tab = desk.locator("#tab-dead-letter")
    expect(tab).to_be_hidden()
    desk.click("#all-tabs > summary")
    expect(desk.locator("#all-tabs")).to_contain_text("dead letters")
    [held] = service_bus.receive(queue, 1)
    service_bus.dead_letter(queue, [held.lock_token], "Broken")
    expect(tab).to_contain_text("1")
    tab.click()
    expect(desk.locator("#rows")).to_contain_text("Broken")
    expect(tab).to_have_attribute("aria-current", "page")
    service_bus.purge(queue.dead_letter)
    expect(desk.locator("#messages")).to_contain_text("No dead letters")
    expect(tab).to_be_visible()


@pytest.mark.slow
def test_the_head_has_the_same_height_with_and_without_traffic(four, desk):
    queue, *_ = four.values()
    entities.create_queue(EntityAddress(queue.namespace, "still"))
    desk.goto(f"/entities/{queue}")
    expect(desk.locator("#head .spark")).to_have_attribute("aria-label", re.compile("^4 sent"))
    busy = desk.evaluate(HEAD_HEIGHT)
    desk.goto(f"/entities/{EntityAddress(queue.namespace, 'still')}")
    expect(desk.locator("#head .spark")).to_have_attribute("aria-label", "No traffic in the last 30 minutes")
    assert desk.evaluate(HEAD_HEIGHT) == busy


@pytest.mark.slow
def test_the_pages_of_all_entities_are_quiet_and_their_rows_are_near(four, desk):
    queue, *_ = four.values()
    lost, _ = service_bus.receive(queue, 2)
    service_bus.dead_letter(queue, [lost.lock_token], "Broken")
    for url, controls in (("/entities/", 40), ("/locks/", 25), ("/dead-letters/", 25)):
        desk.goto(url)
        expect(desk.locator("#live-word")).to_have_text("live")
        shown = desk.evaluate(VISIBLE)
        assert len(shown) <= controls, (url, shown)
        assert tabs_to_the_first_row(desk, "main tbody tr, main [data-rows] > li") <= 15, url
        assert violations(desk) == []


def test_a_heading_of_entities_sorts_by_keyboard_and_shows_that_it_does(four, desk):
    desk.goto(f"/namespaces/{four['service bus'].namespace}/")
    by_name, by_active = (desk.locator(".sort", has_text=f"Sort by {word}") for word in ("Name", "Active"))
    shown = "e => getComputedStyle(e).opacity"
    assert by_active.evaluate(shown) == "0"
    desk.locator("th", has=by_active).hover()
    assert by_active.evaluate(shown) == "1"
    by_name.focus()
    desk.keyboard.press("ArrowRight")
    expect(by_active).to_be_focused()
    desk.keyboard.press("Enter")
    desk.wait_for_url("**sort=-active*")
    expect(desk.locator("th[aria-sort=descending]")).to_contain_text("Active")


def test_the_brand_leads_to_now_without_a_tab_stop(four, desk):
    desk.goto("/entities/")
    brand = desk.get_by_role("link", name="Vitrine", exact=True)
    assert brand.evaluate("e => e.tabIndex") == -1
    brand.click()
    expect(desk.locator("#now-health")).to_be_visible()


def test_the_oldest_messages_follow_live_while_the_menu_is_open(four, desk):
    queue, *_ = four.values()
    desk.goto(f"/entities/{queue}")
    expect(desk.locator("#live-word")).to_have_text("live")
    desk.click("#status > summary")
    oldest = desk.locator("#oldest-messages")
    expect(oldest.locator("dt")).to_have_text(["active"])
    [held] = service_bus.receive(queue, 1)
    expect(oldest.locator("dt")).to_have_text(["active", "locked"])
    service_bus.dead_letter(queue, [held.lock_token], "Broken")
    expect(oldest.locator("dt")).to_have_text(["active", "dead letters"])
    assert violations(desk) == []
    oldest.get_by_role("link", name="dead letters").press("Enter")
    expect(desk.locator("#pane-title")).to_be_visible()
    expect(desk.locator("#tab-dead-letter")).to_have_attribute("aria-current", "page")


def test_the_navigation_is_one_tab_stop_and_the_arrow_keys_move_within_it(four, desk):
    queue, *_ = four.values()
    desk.goto(f"/entities/{queue}")
    places = desk.get_by_role("navigation", name="Main").get_by_role("link")
    assert places.count() >= 8, "all are links for assistive technology"
    assert places.evaluate_all("all => all.filter(e => e.tabIndex === 0).map(e => e.title)") == ["Entities"]
    places.filter(has_text="Entities").focus()
    desk.keyboard.press("ArrowDown")
    assert desk.evaluate(FOCUSED) == "Messages"
    desk.keyboard.press("End")
    last = desk.evaluate(FOCUSED)
    desk.keyboard.press("ArrowDown")
    assert desk.evaluate(FOCUSED) == last
    desk.keyboard.press("Home")
    assert desk.evaluate(FOCUSED) == "Now"
    desk.keyboard.press("Enter")
    desk.wait_for_url("**/")
    desk.goto(f"/entities/{queue}")
    desk.get_by_role("link", name="Send").focus()
    desk.keyboard.press("ArrowRight")
    assert desk.evaluate(FOCUSED) == "Receive"
    desk.keyboard.press("ArrowRight")
    desk.keyboard.press("ArrowDown")
    assert desk.evaluate(FOCUSED) == "Settings", "into the menu, which opens"
    desk.keyboard.press("Escape")
    desk.keyboard.press("Shift+Tab")
    assert desk.evaluate(FOCUSED) == "Active"
    desk.keyboard.press("Enter")
    desk.get_by_role("button", name="Pause sending").focus()
    desk.keyboard.press("ArrowDown")
    assert desk.evaluate(FOCUSED) == "Pause receiving"
    desk.keyboard.press("Escape")
    assert desk.evaluate(FOCUSED) == "Active"


def test_without_javascript_every_link_of_the_navigation_and_the_tabs_is_a_tab_stop(four, browser):  # noqa: F811
    page = browser(java_script_enabled=False, viewport=DESK)
    page.goto(f"/entities/{four['service bus']}")
    html = page.content()
    assert 'tabindex="-1"' not in html.partition('class="side-places"')[2].partition("</aside>")[0]
    page.click("#all-tabs > summary")
    page.get_by_role("link", name="dead letters 0").click()
    assert page.url.endswith("?tab=dead-letter")
    page.click("#status > summary")
    page.get_by_role("button", name="Pause sending").click()
    expect(page.locator("#head")).to_contain_text("Sending paused")
