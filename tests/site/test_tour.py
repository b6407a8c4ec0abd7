"""The first five minutes of the README, in a browser, on a fresh data folder: every link and button has the name given there."""

import re

import pytest

from .vitrine import Vitrine

STARTS_SECONDS, ANALYSIS_SECONDS = 30, 240  # on a busy machine; an update of a page takes far less


@pytest.fixture
def vitrine():
    with Vitrine(VITRINE_DEMO="1") as running:
        yield running


@pytest.mark.slow
def test_the_first_five_minutes_of_the_readme_work(vitrine, new_context):
    tour = Tour(new_context(viewport={"width": 1280, "height": 800}).new_page(), vitrine.url)
    tour.sees_what_needs_a_person(vitrine.sign_in_link())
    tour.opens_a_busy_queue_and_a_message()
    tour.sends_and_settles()
    tour.resubmits_a_dead_letter()
    tour.opens_the_other_families()
    tour.steps_a_clock()
    analyses = tour.starts_an_analysis()
    tour.finds_keys_and_terms()
    tour.reads_the_charts(analyses)


def entity(path):
    """The name of its link, of which the namespace may be hidden."""
    return re.compile(f"^{path.replace('/', '. ?')}$")


class Tour:
    """The steps of the README, in their order."""

    def __init__(self, page, url):
        from playwright.sync_api import expect

        expect.set_options(timeout=10_000)
        page.set_default_timeout(10_000)
        self.page, self.url, self.expect = page, url, expect

    def click(self, name, role="link", within=None):
        """Follow the only link, or press the only button, of this name."""
        (within or self.page.locator("#main, #side")).get_by_role(role, name=name, exact=True).click()

    def sees_what_needs_a_person(self, link):
        """1."""
        self.page.goto(link)
        self.page.wait_for_url(f"{self.url}/")
        attention = self.page.get_by_role("region", name="What needs a person")
        self.expect(attention.get_by_text("demo, by design").first).to_be_visible(timeout=STARTS_SECONDS * 1000)
        self.expect(self.page.get_by_role("heading", level=1)).to_contain_text("by design of the demo")
        self.page.locator("#demo-menu > summary").click()
        self.expect(self.page.get_by_role("button", name="Pause demo")).to_be_visible()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("p")
        self.expect(self.page.locator("#live")).to_contain_text("paused")
        self.page.keyboard.press("p")
        self.expect(self.page.locator("#live")).to_contain_text("live", timeout=STARTS_SECONDS * 1000)
        receivers = self.page.locator("a.node.receiver", has_text="orders")
        self.expect(receivers).to_be_visible(timeout=STARTS_SECONDS * 1000)
        receivers.click()
        self.page.locator("#map-menu").get_by_role("button", name=re.compile("^Kill")).click()
        self.expect(self.page.locator("#notices")).to_contain_text(re.compile("orders-[12] is killed"))

    def opens_a_busy_queue_and_a_message(self):
        """2 and 3."""
        self.click(re.compile("^Entities"))
        self.click(entity("demo/payments"), within=self.page.locator("#overview table"))
        rows = self.page.locator("#rows tr")
        self.expect(rows.first).to_be_visible(timeout=STARTS_SECONDS * 1000)
        rows.first.locator("a.row-link").click()
        pane = self.page.locator("#pane")
        for heading in (re.compile("^Body"), re.compile("^Properties"), "Timeline"):
            self.expect(pane.get_by_role("heading", name=heading)).to_be_visible()
        self.expect(pane.locator("#state-title")).not_to_be_empty()
        self.click("Board")
        self.expect(self.page.locator(".board-chip").first).to_be_visible(timeout=STARTS_SECONDS * 1000)
        self.page.locator("#more > summary").click()
        self.click("Look back")  # in the menu at all times; the time bar is there only while something is due
        past = self.page.get_by_role("region", name="Time", exact=True)
        self.expect(past.get_by_role("link", name="Back to now")).to_be_visible()

    def sends_and_settles(self):
        """4: the examples come first, so the newest of five is the message that was sent."""
        self.page.goto(f"{self.url}/entities/demo/playground")
        self.click("Send")
        self.page.get_by_role("textbox", name="Body").fill('{"order": 4711}')
        self.page.get_by_label("Time-to-live").fill("30 min")
        self.click("Send", "button")
        self.expect(self.page.locator("#notices")).to_contain_text("Sent message")
        self.page.goto(f"{self.url}/entities/demo/playground")
        self.click("Receive")
        self.page.get_by_label("Count").fill("5")
        self.click("Receive", "button")
        held = self.page.locator("li.held")
        self.expect(held).to_have_count(5)
        for action, says, left in (
            ("Renew the lock of", "renewed", 5),
            ("Abandon", "Abandoned", 4),
            ("Defer", "Deferred", 3),
            ("Dead-letter", "to the dead-letter queue", 2),
        ):
            held.first.get_by_role("button", name=re.compile(f"^{action} message")).click()
            self.expect(self.page.locator("#notices")).to_contain_text(says)
            self.expect(held).to_have_count(left)

    def resubmits_a_dead_letter(self):
        self.page.goto(f"{self.url}/entities/demo/playground")
        self.click(re.compile("^dead letters"))
        self.click("2")  # the example with a wrong address
        pane = self.page.locator("#pane")
        pane.get_by_role("button", name="Resubmit", exact=True).click()
        self.expect(self.page.locator("#notices")).to_contain_text("esubmitted")
        self.page.goto(f"{self.url}/entities/demo/playground")
        self.page.locator("#rows tr", has_text="example-rejected").locator("a.row-link").click()
        self.expect(pane.locator("#message-timeline")).to_contain_text("Resubmitted to the queue")

    def opens_the_other_families(self):
        """5."""
        for path, headings in (("photolab/thumbnails", "storage queue"), ("post-office/letters", "RabbitMQ classic queue")):
            self.page.goto(f"{self.url}/entities/")
            self.click(entity(path), within=self.page.locator("#overview table"))
            self.expect(self.page.locator(".entity-title")).to_contain_text(headings)
        self.expect(self.page.locator("#rows tr").first).to_contain_text("expires in", timeout=STARTS_SECONDS * 1000)

    def steps_a_clock(self):
        """6."""
        self.click(re.compile("^Entities"))
        self.click("New namespace…")
        self.page.get_by_label("Name", exact=True).fill("mine")
        self.click("Create", "button")
        self.click("New queue, topic…")
        self.page.get_by_role("textbox", name="Name").fill("tries")
        self.click("Create queue", "button")
        self.click("Send")
        self.page.get_by_role("textbox", name="Body").fill("soon over")
        self.page.get_by_label("Time-to-live").fill("2 min")
        self.click("Send", "button")
        self.page.goto(f"{self.url}/entities/mine/tries")
        self.expect(self.page.locator("#rows tr")).to_contain_text("expires in")
        self.page.locator("#status > summary").click()
        self.page.locator("details.clock summary").click()
        self.click("Pause", "button", self.page.locator("#clock"))
        self.expect(self.page.locator("#clock")).to_contain_text("is paused")
        self.click("To the next change", "button", self.page.locator("#clock"))
        self.expect(self.page.locator("#rows")).not_to_be_visible()

    def starts_an_analysis(self):
        """7."""
        self.click("Insights")
        self.click("Analyses")
        self.click("Answer all", "button")
        self.expect(self.page.locator("#progress progress")).to_be_visible()
        return f"{self.url}/analyses/?namespace=demo"

    def finds_keys_and_terms(self):
        """8."""
        self.page.keyboard.press("?")
        self.expect(self.page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        self.page.keyboard.press("Escape")
        self.click("Learn")
        self.click("Glossary")
        self.expect(self.page.locator("#locked")).to_contain_text("RabbitMQ: unacknowledged")
        self.click("Lessons")
        self.page.get_by_role("button", name=re.compile("^Start")).first.click()
        self.expect(self.page.locator("#step-1")).to_be_visible()

    def reads_the_charts(self, analyses):
        """7, when the job has ended."""
        self.page.goto(analyses)
        self.expect(self.page.locator("#answer-overview")).to_be_visible(timeout=ANALYSIS_SECONDS * 1000)
        self.page.locator(".question a").first.click()
        self.expect(self.page.locator("svg.chart").first).to_be_visible(timeout=ANALYSIS_SECONDS * 1000)
        self.expect(self.page.locator("#main")).to_contain_text("Includes generated history")
