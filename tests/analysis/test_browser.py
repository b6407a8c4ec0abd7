"""Analyses in a real browser: the new figures replace the old ones and nothing else, details are loaded, values are read."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from broker_core import namespaces
from broker_core.common.types import Family
from explorer.models import AnalysisRun
from tests.explorer.test_accessibility import browser, problems_of  # noqa: F401 - a fixture

from .stored import a_run_of, a_stored_result
from .test_pages import at, no_spark, queue, submitted  # noqa: F401 - fixtures

OLD = timedelta(minutes=20)


@pytest.fixture
def page(transactional_db, queue, browser):  # noqa: F811
    return browser("operator", viewport={"width": 1280, "height": 800})


def report(queue):  # noqa: F811
    return at("analysis_report", "waiting", queue=queue.pk)


@pytest.mark.slow
def test_new_figures_keep_the_fields_being_edited(page, queue):  # noqa: F811
    a_stored_result([queue], made_at=datetime.now(UTC) - OLD)
    page.goto(report(queue))
    expect(page.locator("#progress progress")).to_be_visible()
    expect(page.locator(".finding")).to_contain_text("within 1.1 s")
    page.get_by_text("Custom range").click()
    page.locator("#d-waiting > summary").click()
    page.get_by_label("From (UTC)").fill("2026-03-01T10:05")
    AnalysisRun.objects.update(state="succeeded", finished_at=datetime.now(UTC))
    a_stored_result([queue], waits=100.0)
    expect(page.locator(".finding")).to_contain_text("min, 95")
    expect(page.locator("#progress progress")).to_have_count(0)
    assert page.evaluate("document.activeElement.id") == "id_start"
    expect(page.get_by_label("From (UTC)")).to_have_value("2026-03-01T10:05")
    expect(page.locator("#d-waiting")).to_have_attribute("open", "")
    page.get_by_label("To (UTC)").fill("2026-03-01T10:20")
    expect(page).to_have_url(re.compile("start=2026-03-01T10"))
    expect(page.locator("#range-label + nav [aria-current]")).to_have_count(0)


def test_a_run_can_be_cancelled_and_retried(page, queue):  # noqa: F811
    page.goto(report(queue))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#progress")).to_contain_text("The analysis was cancelled.")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#progress")).to_contain_text("Waiting for a worker")
    assert AnalysisRun.objects.filter(state="queued").count() == 1


def test_details_load_when_opened_and_chart_values_can_be_read(page, queue):  # noqa: F811
    a_stored_result([queue])
    page.goto(at("analysis_question", "slow", queue=queue.pk))
    page.locator("#d-waiting > summary").click()
    expect(page.get_by_role("heading", name="How long they waited")).to_be_visible()
    plot = page.locator("#answer-waiting .plot").first
    plot.focus()
    page.keyboard.press("End")
    expect(plot.locator(".readout")).to_contain_text("Wait, median")
    page.keyboard.press("Escape")
    expect(plot.locator(".readout")).not_to_contain_text("Wait, median")
    page.get_by_role("button", name="About Waiting and work").press("Enter")
    expect(page.locator("#n-waiting")).to_contain_text("Kaplan-Meier")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV of Percentiles").click()
    assert download.value.suggested_filename.endswith(".csv")


def test_a_choice_before_the_script_has_loaded_takes_effect(page, queue):  # noqa: F811
    namespaces.create_namespace("other", Family.SERVICE_BUS)
    held = []

    def hold(route):  # Playwright cannot take a built-in method
        held.append(route)

    page.route("**/charts*.js", hold, times=1)
    with page.expect_request("**/charts*.js"):
        page.goto(at("analyses"), wait_until="commit")
    page.get_by_label("Namespace", exact=True).select_option("other")
    held[0].continue_()
    expect(page).to_have_url(re.compile("namespace=other$"))
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_a_value_that_the_browser_changes_is_no_choice(page, queue):  # noqa: F811
    """A text field drops the line feeds of its value."""
    navigations = []
    page.on("request", lambda request: request.is_navigation_request() and navigations.append(request.url))
    page.goto(f"{at('analysis_question', 'slow', queue=queue.pk)}&time=%0A5%20s%0A", wait_until="networkidle")
    assert len(navigations) == 1


@pytest.mark.slow
def test_axe_finds_nothing(page, queue, browser):  # noqa: F811
    a_stored_result([queue], notes=["A file is damaged."])
    failed = {"state": "failed", "finished_at": datetime.now(UTC), "message": "No."}
    run = a_run_of(["waiting"], {"queue": queue.pk, "range": "7d"}, **failed)
    addresses = [
        *(at("analyses"), at("analyses", queue=queue.pk), at("analysis_question", "slow", queue=queue.pk)),
        *(report(queue), f"{report(queue)}&range=7d", f"{report(queue)}&range=30d", at("analysis_run", run.pk)),
    ]
    assert problems_of(browser("viewer", bypass_csp=True), addresses) == {}
