"""What axe-core says of pages in states that an address alone does not show, in light and dark: with a selection, an open dialog,
a preview, an error, an operation that runs or was stopped."""

import re

import pytest
from playwright.sync_api import expect

from broker_core import service_bus
from broker_core.common.types import Family
from broker_core.operations import Kind
from broker_core.service_bus.rules.values import Message
from explorer import operations

from .conftest import WORKER
from .test_accessibility import browser, problems, shop  # noqa: F401


@pytest.fixture
def page(browser):  # noqa: F811
    page = browser("operator", bypass_csp=True, viewport={"width": 1440, "height": 900})
    yield page
    page.context.complaints[:] = [complaint for complaint in page.context.complaints if "status of 40" not in complaint]


@pytest.mark.slow
def test_axe_finds_nothing_beside_an_open_message_with_a_selection_nor_in_a_dialog(shop, page):  # noqa: F811
    page.goto(f"/entities/{shop}?tab=dead-letter&m=2")
    page.locator("#rows input").first.check()
    expect(page.locator("#bulk")).to_be_visible()
    page.locator("#act-on-all > summary").click()
    assert problems(page) == []
    page.goto(f"/locks/?q={shop.namespace}")
    page.get_by_role("button", name="Release…").click()
    expect(page.get_by_role("textbox", name="Reason")).to_be_focused()
    assert problems(page) == []


@pytest.mark.slow
def test_axe_finds_nothing_in_a_preview_a_trial_and_a_running_or_stopped_operation(shop, page):  # noqa: F811
    service_bus.send(shop, [Message(b'{"a": 1}')] * 3, actor=WORKER)
    for message in service_bus.receive(shop, 4, actor=WORKER):
        service_bus.dead_letter(shop, [message.lock_token], "Schema", actor=WORKER)
    page.goto(f"/dead-letters/dead-letter/{shop}")
    page.get_by_role("link", name="Repair…").click()
    page.keyboard.type('{"a": 2}')
    page.keyboard.press("Control+Enter")
    expect(page.locator(".preview")).to_have_count(3)
    assert problems(page) == []
    page.keyboard.press("t")
    expect(page.locator("#fate")).to_contain_text("Message ")
    page.locator("#of-all-more > summary").click()
    page.get_by_role("button", name=re.compile("^Move .*…$")).click()
    expect(page.locator("#move-to")).to_be_focused()
    assert problems(page) == []
    chosen = operations.selection(shop.dead_letter, Family.SERVICE_BUS, "dead-letter")
    operation = operations.start(Kind.RESUBMIT, chosen, actor=WORKER, pace=1.0)
    for path in (f"/operations/{operation.id}/", "/operations/", f"/dead-letters/dead-letter/{shop}"):
        page.goto(path)
        assert problems(page) == [], path
    operations.change(operation, "stop", actor=WORKER)
    page.goto(f"/operations/{operation.id}/")
    expect(page.locator("#operation")).to_contain_text("stopped")
    assert problems(page) == []


@pytest.mark.slow
def test_axe_finds_nothing_on_pages_with_errors_or_without_results(shop, page):  # noqa: F811
    for path in (
        f"/entities/{shop}?q=reson:x", f"/entities/{shop}?m=999", f"/dead-letters/dead-letter/{shop}?q=x:y",
        "/locks/?q=holder:nobody", "/entities/?q=state:dead",
        "/dead-letters/?q=nobody", f"/dead-letters/dead-letter/{shop}?q=reason:no",
    ):  # fmt: skip
        page.goto(path)
        assert problems(page) == [], path
    page.goto(f"/entities/{shop}")
    page.context.clear_cookies(name="vitrine_session")
    page.locator("#tab-dead-letter").click()
    expect(page.locator("#notices")).to_contain_text("You are signed out")
    assert problems(page) == []
