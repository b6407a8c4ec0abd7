"""Signing in by a real browser, under the strict policy.

Browser tests have modules of their own: their event loop ends with the module."""

from explorer.pages.sign_in import link_for


def test_sign_in_in_a_browser(live_site, person, browser_page):
    browser_page.goto(live_site + link_for(person()))
    browser_page.get_by_role("button", name="Sign in as administrator").click()
    browser_page.wait_for_url(f"{live_site}/")
    assert browser_page.title().endswith("Vitrine")
