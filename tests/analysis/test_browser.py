"""Analyses in a real browser: start, watch, cancel, open, compare, and follow a number to its messages."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from broker_core.models import Entity
from explorer.analysis import tasks
from explorer.models import AnalysisRun
from tests.explorer.test_accessibility import browser  # noqa: F401 - a fixture

MANY = 5_000
HOUR = timedelta(hours=1)


@pytest.fixture
def page(queue, browser):  # noqa: F811
    return browser("operator", viewport={"width": 1280, "height": 800})


def follow(page, name):
    page.locator("#main").get_by_role("link", name=name, exact=True).first.click()


def test_a_number_leads_to_its_messages(page):
    page.goto("/entities/reports/q")
    page.get_by_label("More actions").click()
    follow(page, "Analyses")
    follow(page, "Losses")
    expect(page.locator(".finding")).to_contain_text("2 messages were lost")
    page.get_by_label("Compare with").select_option(label="a week earlier")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".finding")).to_contain_text("there were none")
    expect(page).to_have_url(re.compile("compare=week"))
    page.locator("#main table").first.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("heading", name="Dead-lettered: reports/q")).to_be_visible()
    page.locator("#main table tbody a").first.click()
    expect(page.locator("#message-timeline")).to_contain_text("Order 17")


def test_a_run_is_started_watched_and_cancelled_among_many_queues(page, queue, monkeypatch):
    handed = []
    monkeypatch.setattr(tasks.run_analysis, "delay", handed.append)
    values = {field.attname: getattr(queue, field.attname) for field in Entity._meta.concrete_fields if not field.primary_key}
    Entity.objects.bulk_create([Entity(**values | {"path": f"branch-{n:04}"}) for n in range(MANY)])
    page.goto("/analyses/new/")
    page.get_by_label("Name contains").fill("branch-410")
    expect(page.get_by_label("reports/branch-4109")).to_be_visible()
    page.get_by_label("reports/branch-4107").check()
    page.get_by_role("button", name="Analyse history").click()
    state = page.locator("#run .run-state")
    expect(state).to_contain_text("waiting")
    run, now = AnalysisRun.objects.get(pk__in=handed), datetime.now(UTC)
    assert [one["path"] for one in run.queues] == ["branch-4107"]
    AnalysisRun.objects.filter(pk=run.pk).update(state="running", lease_until=now + HOUR, step=1, steps=4)
    expect(state).to_contain_text("running")
    page.get_by_role("button", name=f"Cancel analysis {run.pk}").click()
    expect(state).to_contain_text("stopping")
    AnalysisRun.objects.filter(pk=run.pk).update(state="cancelled", finished_at=now)
    expect(state).to_contain_text("cancelled")
    follow(page, "Run again")
    expect(page.get_by_label("reports/branch-4107")).to_be_checked()
