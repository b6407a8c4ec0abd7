"""Entity pages of all families in a real browser: where the first message stands, what is live, what opens."""

import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, EntityStatus, Family
from broker_core.queue_storage import accounts
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message

from .test_accessibility import browser, violations  # noqa: F401

FIRST_ROW = "document.querySelector('#rows tr').getBoundingClientRect().y"

WIDE_COUNTS = "document.querySelectorAll('#tabs .count').forEach(count => { count.textContent = '1,234,567' })"

CUT_TABS = """(() => {
  const edge = document.querySelector('#tabs .tabs').getBoundingClientRect().right
  const tabs = [...document.querySelectorAll('#tabs .tabs > *')].filter(tab => tab.checkVisibility())
  return tabs.filter(tab => tab.getBoundingClientRect().right > edge + 1).map(tab => tab.textContent.trim())
})()"""

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def one_of_each(transactional_db):
    """A queue of each family with messages."""
    queue, jobs, rabbits = (EntityAddress(within, "work") for within in ("shop", "shopaccount", "shophost"))
    namespaces.create_namespace("shop", Family.SERVICE_BUS)
    entities.create_queue(queue)
    service_bus.send(queue, [Message(b"x", message_id=f"order-{n}", subject="placed") for n in range(3)])
    queue_storage.create_account("shopaccount")
    queue_storage.create_queue(jobs)
    queue_storage.put_all(jobs, ["one", "two", "three"])
    rabbitmq.create_vhost("shophost")
    rabbitmq.declare_queue(rabbits)
    rabbitmq.publish("shophost", [rabbitmq.Publication(b"x", routing_key="work")] * 3)
    return queue, jobs, rabbits


@pytest.mark.slow
def test_the_first_message_is_in_the_upper_part_of_the_window(one_of_each, browser):  # noqa: F811
    page = browser("operator", viewport={"width": 1440, "height": 900})
    for size, limit in (({"width": 1440, "height": 900}, 330), ({"width": 390, "height": 844}, 420)):
        page.set_viewport_size(size)
        for address in one_of_each:
            for query in ("", "?q=number>0&q=size>0", "?q=number>0&m=1"):
                page.goto(f"/entities/{address}{query}")
                expect(page.locator("#rows tr").first).to_be_attached()
                assert page.evaluate(FIRST_ROW) <= limit, (address, size, query)
                assert page.evaluate(OVERFLOW) == 0, (address, size, query)


@pytest.mark.slow
def test_the_address_of_a_filtered_list_has_no_empty_parameter(one_of_each, browser):  # noqa: F811
    page = browser("viewer")
    for address in one_of_each:
        page.goto(f"/entities/{address}")
        page.locator("#f-q").fill("number>1")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"q=number%3E1"))
        assert all(values[0] for values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).values()), page.url
    page.goto("/tail/?kinds=failures&id=&actor=")
    expect(page).to_have_url(re.compile("/tail/[?]q=event%3Afailures$"))


def test_all_tabs_can_be_read_however_wide_their_counts_are(one_of_each, browser):  # noqa: F811
    page = browser("operator", viewport={"width": 1440, "height": 900})
    for address in one_of_each:
        page.goto(f"/entities/{address}")
        expect(page.locator("#rows tr").first).to_be_attached()
        page.evaluate(WIDE_COUNTS)
        assert page.evaluate(CUT_TABS) == [] and page.evaluate(FIRST_ROW) <= 330, address
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/entities/{one_of_each[0]}")
    expect(page.locator("#rows tr").first).to_be_attached()
    assert page.evaluate(CUT_TABS) == []
    expect(page.get_by_role("link", name="Board")).to_be_visible()


def test_the_status_of_an_entity_opens_within_a_narrow_window(one_of_each, browser):  # noqa: F811
    page = browser("operator", viewport={"width": 390, "height": 844})
    for address in one_of_each:
        page.goto(f"/entities/{address}")
        page.locator(".status > summary").click()
        expect(page.locator("#effective-settings")).to_be_visible()
        for fold in page.locator("#effective-settings summary").all():
            fold.click()
        assert page.evaluate(OVERFLOW) == 0, address


@pytest.mark.slow
def test_the_page_header_is_live(one_of_each, browser):  # noqa: F811
    queue, *_ = one_of_each
    page = browser("operator")
    service_bus.receive(queue, 3)
    page.goto(f"/entities/{queue}?tab=active")
    expect(page.locator("#live")).to_have_text("live")
    head = page.locator("#head")
    chart, size = head.locator(".spark"), head.locator("li").last
    expect(chart).to_have_attribute("aria-label", "3 sent and 0 completed in the last 30 minutes, at most 5 in a minute")
    before, rate_before = size.inner_text(), head.locator("li").first.inner_text()
    service_bus.send(queue, [Message(b"x" * 5_000)] * 12)
    expect(chart).to_have_attribute("aria-label", "15 sent and 0 completed in the last 30 minutes, at most 20 in a minute")
    expect(head.locator("li").first).not_to_have_text(rate_before)
    expect(size).not_to_have_text(before)
    service_bus.purge(queue)
    expect(head).to_contain_text("oldest")  # three are still locked
    expect(size).to_have_text(before)
    entities.set_status(queue, EntityStatus.RECEIVE_DISABLED)
    service_bus.send(queue, [Message(b"y")])
    expect(head).to_contain_text("Receiving paused")


@pytest.mark.slow
def test_a_click_anywhere_in_a_row_opens_it_and_a_removed_message_shows_the_time(one_of_each, browser):  # noqa: F811
    queue, *_ = one_of_each
    page = browser("operator")
    page.goto(f"/entities/{queue}")
    expect(page.locator("#live")).to_have_text("live")
    [held] = service_bus.receive(queue, 1)
    row = page.locator("tr", has_text="order-0")
    expect(row).to_contain_text("lock ends in")
    service_bus.complete(queue, [held.lock_token])
    expect(row).to_contain_text("left")
    expect(row.locator("[data-deadline], input")).to_have_count(0)
    expect(row).to_have_count(0)
    page.locator("td", has_text="placed").first.click(force=True)  # the link covers the row
    page.wait_for_url("**?m=3")


def test_a_selection_scrolls_the_action_bar_into_view(one_of_each, browser):  # noqa: F811
    queue, *_ = one_of_each
    service_bus.send(queue, [Message(b"x")] * 40)
    page = browser("operator", viewport={"width": 1440, "height": 700})
    page.goto(f"/entities/{queue}")
    bar = page.locator("#bulk")
    expect(bar).to_be_hidden()
    page.locator("#rows input").first.check()
    expect(bar).to_be_in_viewport()
    expect(bar).to_contain_text("Discard 1")


def test_the_preview_of_a_change_appears_next_to_its_button(one_of_each, browser):  # noqa: F811
    queue, *_ = one_of_each
    page = browser()
    page.goto(f"/settings/{queue}")
    page.fill("[name=default_message_time_to_live]", str(timedelta(seconds=1)))
    page.get_by_role("button", name="Preview changes").click()
    expect(page.locator("#preview")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Save if unchanged")).to_be_in_viewport()


@pytest.mark.slow
def test_axe_finds_nothing_on_a_page_with_all_menus_open(one_of_each, browser):  # noqa: F811
    page = browser(bypass_csp=True)
    for address in one_of_each:
        page.goto(f"/entities/{address}")
        page.click("#status > summary")
        if address != one_of_each[1]:  # storage messages have no properties
            page.click("#view > summary")
            expect(page.locator("#column-name")).to_be_visible()
        assert violations(page) == [], address
        page.click("#all-tabs > summary")  # one at a time, since a menu that covers half of a button makes its target small
        assert violations(page) == [], address
        page.click("#more > summary")
        assert violations(page) == [], address


@pytest.mark.slow
def test_how_to_connect_opens_in_a_dialog_by_keyboard(browser):  # noqa: F811
    queue_storage.create_account("photos")
    queue_storage.create_queue(EntityAddress("photos", "pictures"))
    key = accounts.get_keys("photos").primary_key
    page = browser(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page.goto("/entities/photos/pictures")
    page.locator("#more > summary").press("Enter")
    page.get_by_role("link", name="Connect a client").press("Enter")
    dialog = page.locator("#ask")
    expect(dialog).to_contain_text("QueueClient.from_connection_string")
    expect(page.locator("#more")).not_to_have_attribute("open", "")
    assert violations(page) == []
    dialog.get_by_role("button", name="Show with key").press("Enter")
    expect(dialog.locator("#code-azure-storage-queue")).to_contain_text(key)
    expect(dialog).to_be_focused()
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("#more > summary")).to_be_focused()
    assert key not in page.content()
