"""What a real browser and axe-core say of every page, in light and dark; journeys by keyboard alone; narrow screens."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from broker_core import reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus.rules.values import Message, Session

AXE = Path(__file__).parent / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]
FOCUSED = "document.activeElement"
DESK, PHONE = {"width": 1280, "height": 720}, {"width": 320, "height": 700}


@pytest.fixture
def shop(transactional_db, shop):
    return shop


@pytest.fixture
def browser(live_site, new_context, sign_in, person):
    """browser(role, **context options) -> a page, signed in; open addresses relative to the site."""

    def start(role="administrator", **options):
        context = new_context(base_url=live_site, **options)
        sign_in(context, person(role, username=f"{role}-{len(role)}"))
        return context.new_page()

    return start


def violations(page, only=RULES) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(content=AXE.read_text())
    options = {"runOnly": only, "rules": {"target-size": {"enabled": True}}, "resultTypes": ["violations"], "preload": False}
    problems_found = page.evaluate("options => axe.run(options).then(r => r.violations)", options)
    return [f"{v['id']}: {json.dumps([n['target'] for n in v['nodes']][:4])}" for v in problems_found]


def problems(page) -> list[str]:
    """Every rule in light; of a page that is dark only its colours are others."""
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    problems_found = violations(page)
    page.emulate_media(color_scheme="dark")
    return problems_found + violations(page, OF_COLOURS)


def problems_of(page, addresses) -> dict[str, list[str]]:
    """By address: of the page at a desk, and whether it scrolls sideways on a phone."""
    results = {}
    page.add_init_script(path=AXE)
    for address in addresses:
        page.set_viewport_size(DESK)
        page.goto(address)
        here = problems(page)
        page.set_viewport_size(PHONE)
        if over := page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"):
            here.append(f"it is {over} pixels too wide")
        if here:
            results[address] = here
    return results


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))  # all together take minutes
def test_no_page_violates_accessibility_in_light_in_dark_or_on_a_phone(part, pages, browser):
    page = browser(bypass_csp=True)  # the policy would refuse axe, and it is tested elsewhere
    addresses = [*pages.all, f"/entities/{pages.at}?tab=lost", f"/entities/{pages.shop.namespace}/none"]
    assert problems_of(page, addresses[part::4]) == {}
    page.context.complaints[:] = [c for c in page.context.complaints if "status of 40" not in c]


def test_axe_finds_nothing_on_a_phone_nor_in_the_open_menu_or_the_key_sheet(pages, browser):
    page = browser(viewport=PHONE, bypass_csp=True)
    page.goto(f"/entities/{pages.at}")
    page.click("button.menu")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#keys dl")).to_be_visible()
    assert violations(page) == []


def test_rows_are_within_their_maximum_height(pages, browser, live_site):
    page = browser(viewport={"width": 1360, "height": 850})
    for density, limit in (("comfortable", 44), ("compact", 32)):
        page.context.add_cookies([{"name": "vitrine_density", "value": density, "url": live_site}])
        for tab in ("active", "dead-letter"):
            page.goto(f"/entities/{pages.at}?tab={tab}")
            assert max(page.evaluate("[...document.querySelectorAll('#rows tr')].map(r => r.offsetHeight)")) <= limit


def test_the_first_load_is_small(pages, browser, live_site):
    """At most 8 requests, none to a third party (how many bytes: tests/site/test_up.py)."""
    page = browser()
    answers = []
    page.on("response", lambda response: answers.append(response))  # noqa: PLW0108 (playwright marks the function)
    page.goto(f"/entities/{pages.at}", wait_until="networkidle")
    assert len(answers) <= 8
    assert all(a.url.startswith(live_site) for a in answers)


# Journeys without a pointer


def test_a_dead_letter_is_found_and_resubmitted_by_keyboard(pages, browser):
    page = browser()
    page.goto(f"/entities/{pages.at}")
    page.keyboard.press("/")
    page.keyboard.type("order-2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages/?q=order-2")
    page.keyboard.press("j")
    assert page.evaluate(f"{FOCUSED}.textContent") == "order-2"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/messages/{pages.at}/2")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"{FOCUSED}.value") == "resubmit":
            break
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/messages/{pages.at}/8")
    assert "Resubmitted message 2" in page.text_content("#notices")


def test_acting_on_selected_rows_by_keyboard_keeps_the_focus(pages, browser):
    page = browser()
    page.goto(f"/entities/{pages.at}?tab=dead-letter")
    page.keyboard.press("j")
    page.keyboard.press("x")
    button = page.locator("#bulk button[value=resubmit]")
    assert button.inner_text() == "Resubmit 1" and button.is_enabled()
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#notices :text('Resubmitted')")
    assert reads.counts(pages.shop).dead_letter == 0
    page.wait_for_function(f"() => {FOCUSED} !== document.body")  # once the answer has settled


def test_messages_of_a_storage_queue_are_released_got_and_deleted_by_keyboard(jobs, browser):
    page = browser()
    queue = f"{jobs.namespace}/{jobs.path}"
    page.goto(f"/entities/{queue}?tab=leased&order=oldest")
    page.keyboard.press("j")
    page.keyboard.press("x")
    button = page.locator("#bulk button[value=release]")
    assert button.inner_text() == "Release 1"
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#notices :text('Released 1 message.')")
    page.wait_for_function(f"() => {FOCUSED} !== document.body")
    page.keyboard.press("r")
    page.wait_for_url(f"**/receive/main/{queue}")
    page.focus("#id_numofmessages")
    page.keyboard.press("Control+a")
    page.keyboard.type("32")
    page.keyboard.press("Enter")
    page.wait_for_selector("#notices :text('Got 3 messages')")
    page.locator("#held-2 button[value=delete]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#notices :text('Deleted message 2')")
    expect(page.locator("#held-2")).to_have_count(0)
    page.wait_for_function(f"() => {FOCUSED} !== document.body")


def test_the_open_tab_is_visible_on_a_phone(pages, browser):
    page = browser(viewport={"width": 375, "height": 780})
    page.goto(f"/entities/{pages.at}?tab=history")
    tab, tabs = page.locator(".tabs > a[aria-current]").bounding_box(), page.locator(".tabs").bounding_box()
    assert tab["x"] + tab["width"] < tabs["x"] + tabs["width"] + 1  # lists scroll by whole pixels


def test_a_range_is_selected_with_shift(pages, browser):
    service_bus.send(pages.shop, [Message(body=b"x") for _ in range(5)])
    page = browser()
    page.goto(f"/entities/{pages.at}")
    boxes = page.locator('input[name="numbers"]')
    boxes.nth(0).click()
    boxes.nth(3).click(modifiers=["Shift"])
    assert page.locator("tr.selected").count() == 4
    assert page.text_content("[data-selection]") == "4 selected"


def test_the_key_sheet_opens_and_restores_the_focus(pages, browser):
    page = browser()
    page.goto("/entities/")
    page.keyboard.press("j")
    page.keyboard.press("?")
    expect(page.locator("#keys dl")).to_be_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    assert page.evaluate(f"{FOCUSED}.className") == "row-link"
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/administration/")


def test_single_keys_can_be_switched_off_and_never_act_while_typing(pages, browser):
    page = browser()
    page.goto("/entities/")
    page.focus("#f-q")
    page.keyboard.type("gs?")
    assert not page.locator("#keys").is_visible() and page.input_value("#f-q") == "gs?"
    page.goto("/entities/")
    page.keyboard.press("?")
    page.click("#keys button[name=shortcuts]")
    page.wait_for_load_state()
    page.keyboard.press("?")
    assert not page.locator("#keys").is_visible()


def test_focus_is_visible_and_never_hidden_behind_the_bar(pages, browser):
    page = browser(viewport={"width": 1200, "height": 500})
    page.goto(f"/entities/{pages.at}")
    bar = page.evaluate("document.querySelector('.bar').getBoundingClientRect().bottom")
    for _ in range(60):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            "e => { const r = e.getBoundingClientRect(); const s = getComputedStyle(e.closest('.filter-box') ?? e);"
            " return {inBar: !!e.closest('.bar, .side, .skip'), top: r.top, outline: s.outlineStyle, tag: e.tagName}; }",
            page.evaluate_handle(FOCUSED),
        )
        if seen["tag"] == "BODY":
            break
        assert seen["outline"] != "none", seen
        assert seen["inBar"] or seen["top"] >= bar - 1, seen


# With htmx


def test_filtering_the_overview_while_typing_keeps_the_focus_and_the_address(pages, browser):
    page = browser()
    page.goto("/entities/")
    page.focus("#f-q")
    page.keyboard.type(pages.shop.namespace)
    page.wait_for_url(f"**/entities/?q={pages.shop.namespace}*")
    page.wait_for_selector("#overview tbody tr:nth-child(6)")
    expect(page.locator("#overview tbody tr")).to_have_count(6)
    expect(page.locator("#f-q")).to_be_focused()
    assert page.input_value("#f-q") == pages.shop.namespace


def test_tabs_swap_in_place_and_back_works(pages, browser):
    page = browser()
    page.goto(f"/entities/{pages.at}")
    page.evaluate("window.stayed = true")
    page.click("#tab-dead-letter")
    page.wait_for_url("**?tab=dead-letter")
    page.wait_for_selector("#messages th:has-text('Reason')")
    assert page.evaluate("window.stayed") is True
    page.go_back()
    page.wait_for_selector("#messages th:has-text('Next')")


def test_messages_are_received_and_completed_without_leaving_the_page(pages, browser):
    page = browser()
    page.goto(f"/receive/main/{pages.at}")
    page.click("button[value=receive]")
    page.wait_for_selector("#held-5")
    page.evaluate("window.stayed = true")
    page.focus("#held-5 button[value=complete]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#held-5", state="detached")
    expect(page.locator("#receiver")).to_be_focused()
    assert page.evaluate("window.stayed") is True
    assert reads.message(pages.shop, 5) is None


def test_a_rejected_form_has_the_focus_on_its_first_error(pages, browser):
    page = browser()
    page.goto(f"/delete/{pages.at}")
    page.fill("#id_name", "not its name")
    page.keyboard.press("Enter")
    page.wait_for_selector("[aria-invalid=true]")
    expect(page.locator("#id_name")).to_be_focused()
    page.context.complaints.clear()  # the form comes back with a 400


def test_a_rule_form_shows_the_fields_of_its_kind_and_tests_messages_in_place(pages, browser):
    page = browser()
    page.goto(f"/new-rule/{pages.market.subscription('eu')}")
    assert page.is_visible("#id_sql") and not page.is_visible("#id_subject")
    page.check("input[value=correlation]")
    assert page.is_visible("#id_subject") and not page.is_visible("#id_sql")
    page.click(".for-correlation [data-add-row]")
    assert page.locator(".for-correlation .property-row").count() == 4 and page.locator(".for-sql .property-row").count() == 1
    page.goto(f"/test-rules/{pages.market}")
    page.evaluate("window.stayed = true")
    page.fill("[aria-label='Name of property 1']", "region")
    page.fill("[aria-label='Value of property 1']", "eu")
    page.click("#try button.primary")
    page.wait_for_selector("#route")
    expect(page.locator("#route > .card-body > .route > li > .route > li")).to_have_count(3)
    expect(page.locator("#route :text('does not match')")).to_have_count(1)
    page.wait_for_function(f"() => {FOCUSED} !== document.body")
    assert page.evaluate("window.stayed") is True


def test_open_details_and_typed_text_survive_a_renewal_in_another_tab(pages, browser):
    carts = EntityAddress(pages.shop.namespace, "carts")
    service_bus.send(carts, [Message(b"one", session_id="cart-a"), Message(b"two", session_id="cart-a")])
    page = browser()
    page.goto(f"/receive/main/{carts}")
    page.click("button[value=accept]")
    page.wait_for_selector("#held-1")
    page.wait_for_selector('#live[data-live="live"]')
    page.click(".session summary")
    page.fill("#state-1", "half written")
    [held] = reads.sessions(carts, part="cart-a").rows
    ends = page.get_attribute(".session .countdown", "data-deadline")
    service_bus.renew_session(Session(carts, "cart-a", held.lock_token, held.locked_until, timedelta(0)))
    page.wait_for_selector(f".session .countdown:not([data-deadline='{ends}'])")
    expect(page.locator("#state-1")).to_be_visible()
    expect(page.locator("#state-1")).to_have_value("half written")
    page.click("button[value=set-state]")
    page.wait_for_selector("#notices :text('Session state set')")
    assert reads.sessions(carts, part="cart-a").rows[0].state == b"half written"


def test_all_actions_work_without_javascript(pages, browser):
    page = browser(java_script_enabled=False)
    page.goto(f"/entities/{pages.at}?tab=dead-letter")
    page.check('input[name="numbers"]')
    page.click("#bulk button[value=resubmit]")
    assert "Resubmitted 1 message." in page.text_content("#notices")
    page.goto(f"/receive/main/{pages.at}")
    page.click("button[value=receive]")
    page.click("#held-5 button[value=complete]")
    assert "Completed message 5" in page.text_content("#notices")
    page.goto(f"/send/{pages.at}")
    page.fill("#id_body", "by hand")
    page.click("form#send button.primary")
    assert "Sent message 9" in page.text_content("#notices")


def test_wide_lists_fit_a_phone(pages, jobs, browser):
    """What has a column of its own where there is room stands beneath where there is none."""
    page = browser(viewport={"width": 375, "height": 780})
    page.goto(f"/entities/{jobs}-poison")
    assert page.evaluate("(one => one.scrollWidth - one.clientWidth)(document.querySelector('.scroller'))") <= 0
    assert page.locator("#rows .beneath").first.is_visible()
    page.set_viewport_size({"width": 1360, "height": 850})
    assert not page.locator("#rows .beneath").first.is_visible()
