"""The admin in a real browser: no page breaks the strict content security policy, and its scripts work under it."""

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.urls import reverse
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from broker_core import broker, entities
from broker_core.models import SweepRun
from broker_core.semantics.types import EntityAddress, Message
from explorer.schedules import create_missing
from tests.explorer.test_admin import MODELS, READ_ONLY, row, url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def space():
    """Something on every page, committed: the server has connections of its own."""
    entities.create_namespace("space")
    queue = entities.create_queue(EntityAddress("space", "orders")).address
    broker.send(queue, [Message(b"1")])
    create_missing(apps)
    SweepRun.objects.create(name="expire_messages", started_at="2026-01-01T00:00Z", outcome={"expired": 3})


@pytest.fixture
def administrator(client):
    client.force_login(User.objects.create_superuser("anna"))
    return client


@pytest.fixture(scope="module")
def chromium():
    """A browser for this module only: its event loop must not outlive it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def watched(chromium, live_server, administrator):
    """A page signed in as administrator, and the list of all that went wrong on it."""
    context = chromium.new_context(base_url=live_server.url)
    cookies = [{"name": name, "value": morsel.value, "url": live_server.url} for name, morsel in administrator.cookies.items()]
    context.add_cookies(cookies)
    context.add_init_script(
        "addEventListener('securitypolicyviolation', e => console.error('CSP: ' + e.violatedDirective + ' ' + e.blockedURI))"
    )
    context.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # asked for by the browser, not by the page
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("response", lambda response: wrong.append(f"{response.status} {response.url}") if response.status >= 400 else None)
    yield page, wrong
    context.close()


def test_no_page_of_the_admin_breaks_the_content_security_policy(space, watched):
    page, wrong = watched
    CrontabSchedule.objects.get_or_create(minute="0")
    paths = [reverse("admin:index"), *(url(model) for model in MODELS)]
    for model in MODELS:
        if model not in READ_ONLY:
            paths.append(url(model, "add"))
            found = row(model)
            paths += [url(model, page_name, found.pk) for page_name in ("change", "delete", "history")] if found else []
    found = []
    for path in paths:
        page.goto(path)
        assert page.evaluate("getComputedStyle(document.body).fontSize") != "", path
        if wrong:
            found.append((path, list(wrong)))
            wrong.clear()
    assert found == []


def test_the_schedules_form_says_in_words_when_a_crontab_runs(space, watched):
    page, wrong = watched
    task = PeriodicTask.objects.get(task="broker_core.check_ledger")
    page.goto(url("django_celery_beat.periodictask", "change", task.pk))
    assert "03:17" in page.inner_text(".field-crontab .help")
    page.select_option("#id_crontab", "")
    assert "03:17" not in page.inner_text(".field-crontab .help")
    assert wrong == []


def test_the_admins_own_scripts_work_under_the_policy(space, watched):
    page, wrong = watched
    page.goto(url("broker_core.entity"))
    page.check("#action-toggle")  # actions.js
    assert page.is_checked("input.action-select")
    page.goto(url("broker_core.entity", "add"))
    page.fill("#id_path", "from/browser")
    page.select_option("#id_namespace", label="space")
    page.click("input[name=_save]")
    assert "was added successfully" in page.inner_text("body")
    assert entities.get_queue(EntityAddress("space", "from/browser"))
    assert wrong == []
