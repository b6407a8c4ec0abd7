"""The fields of conditions in a real browser: by keyboard, their suggestions and addresses, the menu View; Stop and Continue."""

import re
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
    expect(page.locator('#f-suggestions [data-text="subject:"]')).to_be_visible()
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
    suggested = page.locator('#f-suggestions [data-text="subject:"]')
    expect(suggested).to_be_visible()
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


# Asks for suggestions again, and waits until they are shown, as if they were the answer to an earlier key.
LATE_ANSWER = """() => new Promise((done) => {
  document.addEventListener("htmx:after:swap", () => setTimeout(done), { once: true });
  document.getElementById("f-q").dispatchEvent(new Event("suggest"));
})"""


@pytest.mark.slow
def test_a_condition_is_built_of_suggestions_by_keyboard(open_as):
    page = open_as("viewer", "/locks/")
    field, options = page.locator("#f-q"), page.locator("#f-suggestions [role=option]")
    page.keyboard.press("f")
    expect(field).to_be_focused()
    expect(options).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(options).to_have_count(3)
    expect(field).to_have_attribute("aria-expanded", "true")
    page.keyboard.type("fam")
    expect(options).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", "f-s-1")
    page.evaluate(LATE_ANSWER)
    expect(field).to_have_attribute("aria-activedescendant", "f-s-1")
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(field).to_have_value("family:")
    expect(options.first).to_contain_text("family:service-bus")
    page.keyboard.press("ArrowUp")
    expect(options.last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")  # a value is complete: it is applied
    expect(page.locator("[data-chip]")).to_have_text("family:rabbitmq")
    expect(page).to_have_url(re.compile(r"/locks/\?q=family%3Arabbitmq$"))
    expect(field).to_be_focused()
    expect(field).to_have_value("")
    page.keyboard.type("hol")
    expect(options).to_have_count(1)
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    expect(field).to_be_focused()
    expect(field).to_have_value("hol")


@pytest.mark.slow
def test_a_suggestion_is_chosen_by_mouse(open_as):
    page = open_as("viewer", "/tail/")
    page.locator("#f-q").click()
    page.locator("#f-suggestions").get_by_text("event:", exact=True).click()
    page.locator("#f-suggestions").get_by_text("event:arrivals").click()
    expect(page.locator("[data-chip]")).to_have_text("event:arrivals")
    expect(page.locator("#tail tbody tr", has_text="order-3").first).to_contain_text("sent")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/locks/", f"/entities/{QUEUE}", "/operations/", "/entities/", "/messages/"])
def test_the_address_follows_at_once_and_has_no_empty_parameter(open_as, path):
    page = open_as("viewer", path)
    may_answer = threading.Event()
    asked = []

    def hold(route):
        asked.append(route)
        if not may_answer.is_set():
            page.wait_for_url(re.compile(r"\?q=order$"))
        route.continue_()

    page.route(re.compile(r"\?q=order$"), hold)
    page.locator("#f-q").fill("order")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"{path}\?q=order$"))
    expect(page.locator("[data-chip]")).to_have_text("order")
    assert asked
    page.go_back()
    expect(page).to_have_url(re.compile(rf"{path}$"))
    expect(page.locator("[data-chip]")).to_have_count(0)


@pytest.mark.slow
def test_a_condition_is_not_applied_while_it_is_typed(open_as):
    page = open_as("viewer", "/entities/")
    field, rows = page.locator("#f-q"), page.locator("#overview tbody tr")
    expect(rows).to_have_count(1)
    page.evaluate("window.shown = document.getElementById('overview')")
    field.press_sequentially("dead>")
    expect(page.locator("#f-suggestions > li")).to_have_count(0)
    expect(page.locator("#f-problem")).to_have_count(0)
    field.press_sequentially("9")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No entities match this filter")).to_be_visible()
    expect(page.locator("[data-chip]")).to_have_text("dead>9")
    expect(field).to_be_focused()
    page.keyboard.press("Backspace")
    expect(rows).to_have_count(1)


@pytest.mark.slow
def test_the_menu_view_is_used_by_keyboard(open_as):
    page = open_as("viewer", f"/entities/{QUEUE}")
    menu = page.locator("#view")
    page.keyboard.press("v")
    expect(menu.get_by_role("link", name="newest first")).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu.locator("summary")).to_be_focused()
    expect(menu.get_by_role("link", name="oldest first")).to_be_hidden()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?order=oldest$"))
    expect(page.locator("#rows .row-link").first).to_have_text("1")
    page.locator("#f-q").fill("number>1")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?order=oldest&q=number%3E1$"))
    expect(page.locator("#rows .row-link")).to_have_text(["2", "3"])


IN_VIEW = """() => {
    const { left, right } = document.querySelector("#view > .pick-sheet").getBoundingClientRect();
    return left >= 0 && right <= innerWidth && document.documentElement.scrollWidth <= innerWidth;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/entities/?q=order", f"/entities/{QUEUE}?q=order", "/messages/?q=order"])
def test_the_menu_view_is_whole_on_a_phone(open_as, path):
    page = open_as("operator", path)
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#view > summary").click()
    expect(page.locator("#view > .pick-sheet")).to_be_visible()
    assert page.evaluate(IN_VIEW)


@pytest.mark.slow
def test_without_javascript_enter_applies_the_conditions(transactional_db, live_site, new_context, sign_in, person):
    namespaces.create_namespace("search", Family.SERVICE_BUS)
    entities.create_queue(QUEUE)
    context = new_context(base_url=live_site, java_script_enabled=False)
    sign_in(context, person("viewer"))
    page = context.new_page()
    for path in ("/entities/", f"/entities/{QUEUE}", "/locks/"):
        page.goto(path)
        page.locator("#f-q").fill("orders")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(rf"{path}\?q=orders$"))
        page.locator("#f-q").fill("search")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(rf"{path}\?q=orders\+search$"))
        assert page.locator("[data-chip]").all_inner_texts() == ["orders", "search"]
