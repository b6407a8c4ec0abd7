"""RabbitMQ's pages in a real browser: axe, narrow screens, journeys by keyboard alone and without JavaScript."""

import re

import pytest
from playwright.sync_api import expect

from broker_core import rabbitmq, reads
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.messages import browsing

from .rabbitmq_office import addresses_of, publish
from .test_accessibility import browser, problems_of, violations  # noqa: F401

pytest_plugins = ["tests.explorer.rabbitmq_office"]


@pytest.fixture
def committed(transactional_db, office):
    """The server has connections of its own."""
    return office


def all_of(office):
    return [address for some in addresses_of(office.at).values() for address in some]


@pytest.mark.slow
def test_no_page_violates_accessibility_in_light_in_dark_or_on_a_phone(committed, browser):  # noqa: F811
    assert problems_of(browser(bypass_csp=True), all_of(committed)) == {}


@pytest.mark.slow
def test_a_message_is_routed_and_then_published_by_keyboard(committed, browser):  # noqa: F811
    page = browser("operator")
    page.goto(f"/rabbitmq/exchanges/{committed.at}/events")
    page.keyboard.press("s")
    page.wait_for_url("**/rabbitmq/publish/**")
    page.focus("#id_routing_key")
    page.keyboard.type("mail.keys")
    page.focus("button[name=dry]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#route")
    expect(page.locator("#route")).to_contain_text("To 1 queue")
    expect(page.locator("#id_routing_key")).to_have_value("mail.keys")
    before = reads.counts(EntityAddress(committed.vhost, "mail")).active
    page.focus("button.primary")
    page.keyboard.press("Enter")
    page.wait_for_selector("#results-title")
    assert reads.counts(EntityAddress(committed.vhost, "mail")).active == before + 1


def test_a_policy_is_previewed_and_saved_by_keyboard(committed, browser):  # noqa: F811
    page = browser()
    page.goto(f"/rabbitmq/new/policy/user/{committed.at}/?pattern=^dead$&name=typed")
    page.focus("#id_max_length")
    page.keyboard.type("4")
    page.focus("button[name=preview]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview")
    assert "typed" not in {policy.name for policy in rabbitmq.list_policies(committed.vhost)}
    page.focus("#preview button[name=token]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rabbitmq/policies/**")
    [made] = [policy for policy in rabbitmq.list_policies(committed.vhost) if policy.name == "typed"]
    assert made.definition == {"max-length": 4} and made.pattern == "^dead$"


@pytest.fixture
def dead_letters(committed):
    """Three dead letters of mail: 2 to 4 beside 1, which the office has."""
    address = EntityAddress(committed.vhost, "dead")
    with rabbitmq.connect(committed.vhost, "gravedigger") as connection, connection.channel() as channel:
        rabbitmq.purge_queue(EntityAddress(committed.vhost, "mail"))
        for n in range(3):
            publish(committed.vhost, f"mail.{n}")
        while (letter := channel.get("mail")) is not None:
            channel.reject(letter.delivery_tag, requeue=False)
    return address


def test_dead_letters_are_selected_as_a_range_and_moved_back_in_a_dialog(committed, dead_letters, browser):  # noqa: F811
    page = browser("operator", bypass_csp=True)
    page.goto(f"/entities/{committed.at}/dead")
    assert page.is_disabled("[data-bulk='Move']")
    boxes = page.locator("input[name=numbers]")
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    assert page.inner_text("[data-bulk='Move']") == "Move 3"
    page.click("[data-bulk='Move']")
    page.wait_for_selector("dialog#ask[open] #move-preview")
    expect(page.locator("#ask-title")).to_contain_text("Move the 3 selected messages in dead?")
    expect(page.locator("#move-preview")).to_contain_text("3 messages move back to where they died last: 3 to mail.")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog#ask", state="hidden")
    expect(page.locator("[data-bulk='Move']")).to_be_focused()  # where it was
    expect(page.locator("input[name=numbers]:checked")).to_have_count(3)
    assert reads.counts(dead_letters).active == 4
    page.click("[data-bulk='Move']")
    page.click("dialog#ask[open] button[name=confirmed]")
    expect(page.locator("#notices")).to_contain_text("Moved 3 messages back to where they died last.")
    assert reads.counts(dead_letters).active == 1


def test_messages_are_moved_to_another_queue_by_keyboard(committed, dead_letters, browser):  # noqa: F811
    page = browser("operator")
    page.goto(f"/entities/{committed.at}/dead")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.focus("[data-bulk='Move']")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog#ask[open]")
    page.focus("#ask #id_queue")
    page.keyboard.type("spare")
    page.keyboard.press("Tab")
    page.wait_for_selector("#move-preview >> text=1 message moves to the queue spare")
    page.focus("#ask button[name=confirmed]")
    page.keyboard.press("Enter")
    expect(page.locator("#notices")).to_contain_text("Moved 1 message to the queue spare.")
    assert reads.counts(EntityAddress(committed.vhost, "spare")).active == 1


@pytest.mark.slow
def test_a_group_is_chosen_in_the_dialog_after_the_target(committed, dead_letters, browser):  # noqa: F811
    publish(committed.vhost, "mail.late", expiration="0")
    page = browser("operator")
    page.goto(f"/entities/{committed.at}/dead")
    for box in page.locator("input[name=numbers]").all():
        box.check()
    page.click("[data-bulk='Move']")
    page.wait_for_selector("dialog#ask[open]")
    page.focus("#ask #id_queue")
    page.keyboard.type("spare")
    page.keyboard.press("Tab")
    page.wait_for_selector("#move-preview >> text=messages move to the queue spare")
    page.focus("#ask button[aria-label*='expired']")
    page.keyboard.press("Enter")
    page.wait_for_selector("#ask >> text=Selected group")
    assert page.input_value("#ask #id_queue") == "spare"
    page.focus("#ask button[name=confirmed]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#notices .notice")
    assert (reads.counts(dead_letters).active, reads.counts(EntityAddress(committed.vhost, "spare")).active) == (4, 1)


def test_a_dead_letter_is_moved_back_without_javascript(committed, dead_letters, browser):  # noqa: F811
    page = browser("operator", java_script_enabled=False)
    page.goto(f"/entities/{committed.at}/dead")
    page.check("input[name=numbers][value='1']")
    page.click("[data-bulk='Move']")
    page.check("input[name=to][value=queue]")
    page.fill("#id_queue", "spare")
    page.click("#move noscript button")
    assert "1 message moves to the queue spare" in page.inner_text("main")
    page.check("input[name=to][value=back]")
    page.click("button[name=confirmed]")
    assert "1 message moves back to where it died last: 1 to mail." in page.inner_text("main"), (
        "another target is asked about first"
    )
    page.click("button[name=confirmed]")
    assert (
        "Moved 1 message back to where they died last." in page.inner_text("#notices") and reads.counts(dead_letters).active == 3
    )


def test_lists_swap_in_place_and_back_works(committed, browser):  # noqa: F811
    page = browser("viewer")
    page.goto(f"/entities/{committed.at}/mail")
    page.click("#all-tabs > summary")
    page.click("#all-tabs a:has-text('settings')")
    page.wait_for_selector("text=the lowest value wins")
    assert page.url.endswith("?tab=settings")
    page.go_back()
    page.wait_for_selector("#rows")
    assert "tab=" not in page.url


def test_all_actions_work_without_javascript(committed, browser):  # noqa: F811
    page = browser(java_script_enabled=False)
    page.goto(f"/rabbitmq/publish/{committed.at}/events")
    page.fill("#id_routing_key", "mail.plain")
    page.click("button.primary")
    assert "mail, message" in page.inner_text("main")
    page.goto(f"/entities/{committed.at}/dead?tab=bindings")
    page.fill("#id_other", "events")
    page.fill("#id_routing_key", "without.script")
    page.get_by_role("button", name="Bind", exact=True).click()
    assert "without.script" in page.inner_text("main")
    page.goto(f"/rabbitmq/get/{committed.at}/mail")
    page.click("button.primary")
    assert "requeued and marked as redelivered" in page.inner_text("main")


@pytest.mark.slow
def test_messages_are_got_and_settled_by_keyboard_and_a_consumer_gets_the_next(committed, browser):  # noqa: F811
    page = browser("operator", bypass_csp=True)
    for n in range(4):
        publish(committed.vhost, f"dead {n}", exchange="graves")
    page.goto(f"/rabbitmq/get/{committed.at}/dead")
    page.focus("input[value=hold]")
    page.keyboard.press("Space")
    page.focus("button[value=get]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#held-1-1")
    dead = EntityAddress(committed.vhost, "dead")
    assert reads.counts(dead).locked == 1 and violations(page) == []
    page.fill("#id_prefetch", "2")
    page.focus("button[value=consume]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#held-2-2")
    page.focus("#ack-2-1")
    page.keyboard.press("Enter")
    page.wait_for_selector("#held-2-3")
    expect(page.locator("#held-2-1")).to_have_count(0)
    page.wait_for_function("() => ['manual-consumer', 'get'].includes(document.activeElement.id)")
    assert reads.counts(dead).locked == 3 and violations(page) == []
    page.focus("#nack-all-2-3")
    page.keyboard.press("Enter")
    page.wait_for_selector("#held-2-5")
    expect(page.locator("#held-2-5")).to_contain_text("redelivered")
    page.focus("#close-manual-consumer")
    page.keyboard.press("Enter")
    page.wait_for_selector("#manual-consumer >> text=You hold no messages")
    assert reads.counts(dead).locked == 0


def test_a_held_message_is_settled_without_javascript(committed, browser):  # noqa: F811
    page = browser("operator", java_script_enabled=False)
    page.goto(f"/rabbitmq/get/{committed.at}/dead")
    page.check("input[value=hold]")
    page.click("button[value=get]")
    page.click("#ack-1-1")
    assert "Acknowledged 1 message." in page.inner_text("#notices")
    assert "You hold no messages of this queue" in page.inner_text("#manual-consumer")
    page.click("#close-manual-consumer")
    assert browsing.connections(committed.vhost)[-1].name == "scanner"


@pytest.mark.slow
def test_the_list_of_queues_follows_words_and_applies_conditions_by_enter(committed, browser):  # noqa: F811
    page = browser("viewer")
    page.goto(f"/rabbitmq/queues/{committed.at}/?sort=-ready")
    field, rows = page.locator("#f-q"), page.locator("#queues tbody tr")
    expect(rows).to_have_count(4)
    page.keyboard.press("f")
    page.keyboard.type("mai")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?sort=-ready&q=mai$"))
    page.keyboard.press("Enter")
    expect(page.locator("[data-chip]")).to_have_text("mai")
    page.keyboard.press("Backspace")
    expect(rows).to_have_count(4)
    page.wait_for_load_state()
    page.keyboard.press("f")
    page.keyboard.type("type:q")
    expect(page.locator("#f-suggestions [role=option]")).to_contain_text("type:quorum")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(page.locator("[data-chip]")).to_have_text("type:quorum")
    expect(field).to_be_focused()
