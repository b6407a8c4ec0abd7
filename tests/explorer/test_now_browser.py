"""Now in a browser: what is in sight at 1280 x 720, what is red, and the menu of a sender or receiver by keyboard."""

import pytest
from playwright.sync_api import expect

from broker_core import queue_storage, service_bus
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.demo import parts
from explorer.models import Demonstration, Fault
from explorer.queue_storage import demo as photolab
from explorer.service_bus import demo as shop_demo

from .conftest import WORKER
from .test_accessibility import DESK, browser, violations  # noqa: F401 - fixture

RECEIVERS = {
    "invoices": ("approver", "clerk"), "notifications": ("mobile-app", "pager"), "orders": ("picker", "packer"),
    "payments": ("teller", "auditor"), "reminders": ("alarm", "calendar"), "stock-levels": ("dashboard", "keeper"),
}  # fmt: skip
RED = """selector => {
    const probe = document.createElement("i");
    probe.style.color = "var(--dead)";
    document.body.append(probe);
    const red = getComputedStyle(probe).color;
    probe.remove();
    const isRed = (e) => ["color", "stroke", "fill", "backgroundColor"].some((name) => getComputedStyle(e)[name] === red);
    return [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility() && isRed(e)).length;
}"""


@pytest.fixture
def queues(transactional_db, namespace):
    """Five queues with 100 dead letters each: those of the first came now, those of the others an hour ago."""
    made = [EntityAddress(namespace, name) for name in ("new", "a", "b", "c", "d")]
    for queue in made:
        entities.create_queue(queue)
        service_bus.send(queue, [Message(b"x")] * 100, actor=WORKER)
        tokens = [message.lock_token for message in service_bus.receive(queue, 100, actor=WORKER)]
        service_bus.dead_letter(queue, tokens, "Schema", "The field `vat` is missing", actor=WORKER)
    connections.current().execute(
        "UPDATE vitrine_count_delta AS d SET at = d.at - interval '1 hour' FROM vitrine_entity AS e "
        "WHERE e.id = d.entity_id AND e.path IN ('a', 'b', 'c', 'd')"
    )
    return made


def program(name):
    return Actor("process", name, Right.ALL)


def test_the_map_is_in_sight_below_three_problems(queues, browser):  # noqa: F811
    page = browser(viewport=DESK)
    page.goto(f"/?namespace={queues[0].namespace}")
    rows = page.locator("#now-attention li")
    expect(page.get_by_role("heading", level=1)).to_contain_text("5 problems.")
    assert rows.filter(visible=True).count() == 3
    top = page.locator(".map-picture").bounding_box()
    assert top["y"] < DESK["height"] / 2 and top["y"] + top["height"] <= DESK["height"]
    page.get_by_text("2 more", exact=True).click()
    assert rows.filter(visible=True).count() == 5
    for row in rows.all():
        why = row.locator(".why")
        assert why.evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight"), "nothing is cut off"


@pytest.fixture
def whole_demo(transactional_db):
    """The demo's three namespaces, with as many receivers as its programs are, and some real problems."""
    Demonstration.objects.create(pk=Demonstration.ONLY)
    for part in parts.parts():
        part.seed()
    for path, receivers in RECEIVERS.items():
        queue = EntityAddress(shop_demo.NAMESPACE, path)
        service_bus.send(queue, [Message()] * 2, actor=program(f"{path}-shop"))
        for name in receivers:
            [message] = service_bus.receive(queue, 1, actor=program(name))
            if name in ("clerk", "pager", "packer"):
                service_bus.dead_letter(queue, [message.lock_token], "Schema", actor=program(name))


@pytest.mark.slow
def test_the_map_of_the_demo_is_whole_in_sight(whole_demo, browser):  # noqa: F811
    page = browser(viewport=DESK, bypass_csp=True)
    page.goto("/")
    picture = page.locator(".map-picture")
    assert page.locator("#now-attention li").filter(visible=True).count() == 3
    assert picture.locator(".receiver, .nobody").count() >= 12
    box = picture.bounding_box()
    assert box["width"] > 1000, "it is not made smaller, which would make it hard to read"
    assert box["y"] + box["height"] <= DESK["height"]
    assert violations(page) == []


def test_only_a_problem_that_grows_is_red(queues, browser):  # noqa: F811
    page = browser(viewport=DESK)
    page.goto(f"/?namespace={queues[0].namespace}")
    rising = page.locator("#now-attention li.rising")
    expect(rising).to_have_count(1)
    expect(rising.locator(".where")).to_contain_text("new")
    assert page.evaluate(RED, "#now-attention li.rising *") > 0
    page.get_by_text("2 more", exact=True).click()
    assert page.evaluate(RED, "#now-attention li:not(.rising), #now-attention li:not(.rising) *") == 0
    assert page.evaluate(RED, "#now-health *, #map *, #now-charts *, .side *") == 0


@pytest.fixture
def photo_lab(transactional_db):
    """The demo's storage account, with a picture that its receiver takes."""
    Demonstration.objects.create(pk=Demonstration.ONLY)
    photolab.seed()
    queue_storage.get(EntityAddress(photolab.NAMESPACE, photolab.THUMBNAILS), actor=Actor("process", "resizer", Right.ALL))


def test_the_menu_of_a_receiver_is_used_by_keyboard(photo_lab, browser):  # noqa: F811
    page = browser("operator", viewport=DESK, bypass_csp=True)
    page.goto("/?namespace=photolab")
    node = page.locator("a.node.receiver", has_text="resizer")
    menu = page.locator("#map-menu")
    node.focus()
    page.keyboard.press("Enter")
    expect(menu.get_by_role("link", name="Page of resizer")).to_be_focused()
    expect(menu).to_contain_text("Consumes thumbnails")
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(node).to_be_focused()
    page.keyboard.press("Enter")
    expect(menu.get_by_role("link", name="Page of resizer")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(menu.get_by_role("button", name="Kill")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#notices")).to_contain_text("resizer is killed for 1 min.")
    assert page.url.endswith("/?namespace=photolab")
    expect(node).to_contain_text("killed")
    assert Fault.objects.get().target == "resizer"
    page.locator("#demo-menu > summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#demo-menu")).to_contain_text("resizer killed, ends in 0:")
    assert violations(page) == []
    page.get_by_role("button", name="End the fault of resizer").press("Enter")
    expect(page.locator("#notices")).to_contain_text("The fault of resizer has ended.")
    expect(page.locator("#demo-menu > summary")).to_have_text("Demo")


def test_without_javascript_a_node_leads_to_its_menu(photo_lab, browser):  # noqa: F811
    page = browser("operator", viewport=DESK, java_script_enabled=False)
    page.goto("/?namespace=photolab")
    page.locator("a.node.receiver", has_text="resizer").click()
    menu = page.locator("#map-menu")
    expect(menu).to_contain_text("Consumes thumbnails")
    menu.get_by_role("button", name="Slow down").click()
    expect(page.locator("#notices")).to_contain_text("resizer is slow for 2 min.")
    page.locator("#demo-menu > summary").click()
    expect(page.locator("#demo-menu")).to_contain_text("resizer slow, ends in 1:")
