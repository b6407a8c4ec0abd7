"""Insights and Entities in a real browser: values read from a chart, a term's explanation, and focus after a swap."""

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message


@pytest.fixture
def page(live_site, new_context, sign_in, person):
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    for name in ("eu-orders", "eu-mails", "eu-prices"):
        entities.create_queue(EntityAddress("space", name))
    service_bus.send(EntityAddress("space", "eu-orders"), [Message(b"x")] * 7)
    context = new_context(base_url=live_site)
    sign_in(context, person("operator"))
    return context.new_page()


@pytest.mark.slow
def test_chart_values_can_be_read_by_mouse_and_by_keyboard(page):
    page.goto("/insights/?range=1h&namespace=space")
    plot, readout = page.locator(".plot").first, page.locator("#r-rates")
    expect(readout).to_have_text("7 in and 0 out in 1 h")
    box = plot.locator("svg.chart:visible").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(readout).to_contain_text("In 0 · Out 0")
    page.mouse.move(0, 0)
    expect(readout).to_have_text("7 in and 0 out in 1 h")
    plot.focus()
    page.keyboard.press("End")
    expect(readout).to_contain_text("so far")
    page.keyboard.press("ArrowLeft")
    expect(readout).not_to_contain_text("so far")
    expect(page.locator("#r-backlog")).to_contain_text("Backlog")
    page.keyboard.press("Escape")
    expect(readout).to_have_text("7 in and 0 out in 1 h")


def test_a_group_keeps_the_focus_and_a_term_is_explained(page):
    page.goto("/namespaces/space/")
    group = page.get_by_role("button", name="eu-")
    group.focus()
    before = group.get_attribute("aria-expanded")
    page.keyboard.press("Enter")
    expect(group).to_have_attribute("aria-expanded", "false" if before == "true" else "true")
    expect(group).to_be_focused()
    page.goto("/entities/space/eu-orders")
    page.locator("#status > summary").click()
    page.get_by_role("button", name="What is Max deliveries?").click()
    sheet = page.locator("#term-delivery-count")
    expect(sheet).to_contain_text("RabbitMQ: x-delivery-count")
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
