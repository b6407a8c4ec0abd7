"""A page that stayed open until its session had ended, or its form's proof had changed: nothing is changed, and nothing typed is
lost."""

import pytest
from django.test import Client
from playwright.sync_api import expect

from broker_core import reads
from explorer.models import AuditRecord
from tests.html import body_of

from .conftest import FRAGMENT
from .test_accessibility import browser, shop  # noqa: F401


@pytest.mark.parametrize(
    ("method", "path"),
    [("get", "/entities/"), ("get", "/entities/{at}?q=id:x"), ("post", "/receive/main/{at}"), ("post", "/locks/")],
)
def test_an_unauthenticated_htmx_request_returns_a_notice_instead_of_the_sign_in_page(shop, method, path):  # noqa: F811
    headers = {**FRAGMENT, "HX-Current-URL": f"http://testserver/entities/{shop}?tab=active"}
    answer = getattr(Client(), method)(path.format(at=shop), headers=headers)
    assert (answer.status_code, answer["HX-Retarget"], answer["HX-Reswap"]) == (401, "#notices", "innerHTML")
    page = body_of(answer)
    assert "You are signed out. Nothing was changed." in page and "<html" not in page and "password" not in page
    assert f"/sign-in/?next=%2Fentities%2F{shop.namespace}%2F" in page and "tab%3Dactive" in page


def test_an_unauthenticated_form_is_refused_with_a_reason_and_a_page_redirects_to_the_sign_in(shop):  # noqa: F811
    answer = Client().post(f"/send/{shop}", {"body": "typed"}, headers={"Referer": f"http://testserver/send/{shop}"})
    assert answer.status_code == 401 and "what you typed is still there" in body_of(answer)
    assert Client().get(f"/send/{shop}").url.startswith("/sign-in/?next=/send/")
    assert not AuditRecord.objects.exists()


def test_a_form_with_an_old_csrf_token_leaves_the_page_unchanged(shop, as_):  # noqa: F811
    client = as_("operator", Client(enforce_csrf_checks=True))
    answer = client.post(f"/receive/main/{shop}", {"action": "receive"}, headers=FRAGMENT)
    assert (answer.status_code, answer["HX-Retarget"]) == (403, "#notices")
    assert "Nothing was changed. Reload the page" in body_of(answer)


@pytest.mark.slow
def test_a_form_can_be_sent_after_signing_in_again(shop, browser, sign_in, person, live_site):  # noqa: F811
    page = browser("operator")
    page.goto(f"/send/{shop}")
    page.fill("#id_body", "typed yesterday")
    page.context.clear_cookies(name="vitrine_session")
    page.locator("form#send button.primary").click()
    expect(page.locator("h1")).to_have_text("Signed out")
    sign_in(page.context, person("operator"))
    page.context.add_cookies([{"name": "vitrine_csrf", "value": "n" * 32, "url": live_site}])  # as signing in changes it
    page.go_back()
    expect(page.locator("#id_body")).to_have_value("typed yesterday")
    page.locator("form#send button.primary").click()
    expect(page.locator("#notices")).to_contain_text("Sent message 8")
    assert reads.body(shop, 8).content == b"typed yesterday"
    page.context.complaints[:] = [complaint for complaint in page.context.complaints if "401" not in complaint]
