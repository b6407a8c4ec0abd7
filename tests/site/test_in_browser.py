"""Signing in by a real browser, under the strict policy.

Browser tests have modules of their own: their event loop ends with the module.
"""

import pytest

from explorer.people.sign_in import link_for


def test_opening_the_link_signs_in(live_site, person, browser_page):
    browser_page.goto(live_site + link_for(person()))
    browser_page.wait_for_url(f"{live_site}/")
    assert browser_page.title().endswith("Vitrine")


def test_without_scripts_the_button_signs_in(live_site, person, new_context):
    page = new_context(java_script_enabled=False).new_page()
    page.goto(live_site + link_for(person()))
    page.get_by_role("button", name="Sign in as administrator").click()
    assert page.url == f"{live_site}/"


@pytest.mark.parametrize("path", ["/sign-in/", "/no-such-page"])
@pytest.mark.parametrize("width", [375, 1360])
def test_standalone_pages_fit_the_window(live_site, new_context, path, width):
    context = new_context(viewport={"width": width, "height": 780})
    page = context.new_page()
    page.goto(live_site + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("heading", level=1).is_visible()
    context.complaints[:] = [text for text in context.complaints if "404" not in text]  # the browser logs the page's own status
