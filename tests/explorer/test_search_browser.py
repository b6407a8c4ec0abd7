"""The search in a real browser: conditions by keyboard, Stop and Continue."""

import threading

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.reads import searching
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.pages import search

QUEUE = EntityAddress("search", "orders")


@pytest.fixture
def open_as(transactional_db, live_site, new_context, sign_in, person):
    """A function that opens the page Messages for a person with a role. There are three orders."""
    namespaces.create_namespace("search", Family.SERVICE_BUS)
    entities.create_queue(QUEUE)
    service_bus.send(QUEUE, [Message(b"{}", message_id=f"order-{n}") for n in (1, 2, 3)])

    def page_of(role, path="/messages/"):
        context = new_context(base_url=live_site)
        sign_in(context, person(role))
        page = context.new_page()
        page.goto(path)
        return page

    return page_of


@pytest.mark.slow
def test_conditions_are_edited_by_keyboard_and_a_search_can_be_stopped_and_continued(open_as, monkeypatch):
    page = open_as("viewer")
    page.keyboard.press("f")
    expect(page.locator("#f-q")).to_be_focused()
    page.keyboard.type("subj")
    expect(page.locator('#f-suggestions option[value="subject:"]')).to_be_attached()
    page.keyboard.type("ect:nothing")
    page.keyboard.press("Enter")
    expect(page.locator("[data-chip]")).to_have_text("subject:nothing")
    expect(page.get_by_text("No messages match this filter")).to_be_visible()
    expect(page.locator("#f-q")).to_be_focused()
    page.keyboard.press("Backspace")
    expect(page.locator("[data-chip]")).to_have_count(0)

    may_answer, slice_of = threading.Event(), search._slice
    monkeypatch.setattr(searching, "SLICE_ROWS", 1)
    monkeypatch.setattr(searching, "SLICE_SECONDS", 0)

    def held(request, filter, query, known):
        if query["cursor"]:
            may_answer.wait(10)
        return slice_of(request, filter, query, known)

    monkeypatch.setattr(search, "_slice", held)
    page.locator("#f-q").fill("order entity:search")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Stop").click()
    go_on = page.get_by_role("link", name="Continue")
    expect(go_on).to_be_focused()
    expect(page.locator("[data-stop-search]")).to_have_count(0)
    monkeypatch.setattr(searching, "SLICE_ROWS", 20_000)
    may_answer.set()
    page.keyboard.press("Enter")
    expect(page.get_by_text("3 messages found. The search is complete.")).to_be_visible()
    expect(page.locator(".results .row-link")).to_have_text(["order-3", "order-2", "order-1"])


@pytest.mark.slow
def test_two_conditions_are_typed_in_a_live_list_and_suggestions_stay(open_as):
    page = open_as("viewer", f"/entities/{QUEUE}")
    expect(page.locator("#live")).to_have_text("live")
    page.locator("#f-q").click()
    for text, chips in (("number>0", ["number>0"]), ("size>0", ["number>0", "size>0"])):
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        expect(page.locator("[data-chip]")).to_have_text(chips)
    page.keyboard.type("subj")
    suggested = page.locator('#f-suggestions option[value="subject:"]')
    expect(suggested).to_be_attached()
    service_bus.send(QUEUE, [Message(b"{}", message_id="order-4")])
    expect(page.locator("tr", has_text="order-4")).to_be_visible()
    assert suggested.count() == 1, "a live update leaves them"


SUBMIT_AT_ONCE = """() => {
    window.stayed = true;
    document.getElementById("f-q").style.width = "300px"; // as a person who resizes a field does
    const watch = new MutationObserver(() => {
        watch.disconnect();
        document.getElementById("f-q").value = "size>0";
        document.querySelector(".filter-form").requestSubmit();
    });
    watch.observe(document.getElementById("messages").parentNode, { childList: true });
}"""


@pytest.mark.slow
def test_a_form_accepts_input_before_htmx_is_ready(open_as):
    """A key that was pressed before htmx knows the form would submit it as a link: the page would be loaded, the focus lost."""
    page = open_as("viewer", f"/entities/{QUEUE}")
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate(SUBMIT_AT_ONCE)
    page.locator("#f-q").fill("number>0")
    page.keyboard.press("Enter")
    expect(page.locator("[data-chip]")).to_have_text(["number>0", "size>0"])
    assert page.evaluate("window.stayed") is True
    expect(page.locator("#f-q")).to_be_focused()
