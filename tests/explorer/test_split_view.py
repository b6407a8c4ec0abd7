"""The split view in a real browser: by mouse and by keyboard, with its address, its focus, live updates, and on a phone."""

import re

import pytest
from playwright.sync_api import expect

from broker_core import service_bus

from .conftest import WORKER
from .test_accessibility import browser, shop, violations  # noqa: F401


@pytest.fixture
def list_of(pages, browser):  # noqa: F811
    """list_of(tab, **options) -> a browser page with that list of the shop."""

    def opened(tab="all", **options):
        page = browser("operator", **options)
        page.goto(f"/entities/{pages.at}?tab={tab}")
        return page

    return opened


def title(page):
    return page.locator("#pane-title")


@pytest.mark.slow
def test_a_row_opens_beside_the_list_and_escape_closes_it(list_of):
    page = list_of()
    row = page.locator("#rows tr", has_text="order-5")
    row.locator("td").nth(2).click(force=True)  # anywhere in the row: its link covers it
    expect(title(page)).to_contain_text("Message 5")
    expect(page).to_have_url(re.compile(r"tab=all&m=5$"))
    expect(row).to_have_class(re.compile("opened"))
    page.get_by_label("Next message").click()
    expect(title(page)).to_contain_text("Message 4")
    expect(page).to_have_url(re.compile("m=4$"))
    page.get_by_role("link", name="Hex").click()
    expect(page.locator("#body-text")).to_contain_text("00000000")
    page.keyboard.press("Escape")
    expect(page.locator("#pane")).to_be_hidden()
    expect(page).to_have_url(re.compile("tab=all$"))
    expect(page.locator("#rows tr", has_text="order-4").locator(".row-link")).to_be_focused()
    page.go_back()
    expect(title(page)).to_contain_text("Message 4")


@pytest.mark.slow
def test_keys_move_through_the_rows_and_enter_opens_the_page(list_of):
    page = list_of()
    page.keyboard.press("j")
    page.keyboard.press("o")
    expect(title(page)).to_contain_text("Message 7")
    for _ in range(3):
        page.keyboard.press("j")
    expect(title(page)).to_contain_text("Message 4")
    page.keyboard.press("k")
    expect(title(page)).to_contain_text("Message 5")
    expect(page.locator("#rows tr", has_text="order-5").locator(".row-link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("Message 5")
    page.keyboard.press("]")
    expect(page.locator("h1")).to_contain_text("Message 4")


def test_the_open_message_is_live(pages, list_of):
    page = list_of("dead-letter")
    page.locator("#rows .row-link").click()
    expect(page.locator("#state-title")).to_contain_text("Dead-lettered: PaymentRefused")
    service_bus.resubmit(pages.shop.dead_letter, [2], actor=WORKER)
    expect(page.locator("#state-title")).to_contain_text("Resubmitted by worker")
    expect(title(page)).to_contain_text("Message 2")


def test_an_action_in_the_pane_keeps_the_list(list_of):
    page = list_of("dead-letter")
    page.locator("#rows .row-link").click()
    page.get_by_role("button", name="Resubmit", exact=True).last.click()
    expect(page.locator("#state-title")).to_contain_text(re.compile(r"Resubmitted by \S+ \(you\)"))
    expect(page.locator("#notices")).to_contain_text("Resubmitted message 2")
    expect(page).to_have_url(re.compile("tab=dead-letter&m=2$"))


def test_on_a_phone_the_pane_is_a_sheet_with_the_focus(list_of):
    page = list_of(viewport={"width": 375, "height": 700}, bypass_csp=True)
    page.locator("#rows .row-link").first.click()
    expect(title(page)).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert violations(page) == []
    page.get_by_label(re.compile("^Close message")).click()
    expect(page.locator("#pane")).to_be_hidden()


def test_without_javascript_the_pane_is_part_of_the_page(pages, browser):  # noqa: F811
    page = browser("operator", java_script_enabled=False)
    page.goto(f"/entities/{pages.at}?tab=dead-letter&m=2")
    expect(title(page)).to_contain_text("Message 2")
    page.get_by_role("button", name="Resubmit", exact=True).last.click()
    expect(page).to_have_url(re.compile("m=2$"))
    expect(page.locator("#state-title")).to_contain_text(re.compile(r"Resubmitted by \S+ \(you\)"))
    page.get_by_label("Close message 2").click()
    expect(page.locator("#pane")).to_be_hidden()
