"""The admin in a real browser: no page breaks the strict content security policy, and its scripts work under it."""

import pytest
from django.urls import reverse

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.models import SweepRun
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message

from .test_admin import MODELS, READ_ONLY, row, url


@pytest.fixture
def space(transactional_db):
    """Something on every page, committed: the server has connections of its own."""
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    queue = entities.create_queue(EntityAddress("space", "orders")).address
    service_bus.send(queue, [Message(b"1")])
    SweepRun.objects.create(name="expire_messages", started_at="2026-01-01T00:00Z", outcome={"expired": 3})


@pytest.fixture
def page(live_site, new_context, sign_in, person):
    """A page signed in as administrator; whatever the browser complains about fails the test."""
    context = new_context(base_url=live_site)
    sign_in(context, person("administrator"))
    page = context.new_page()
    page.on("response", lambda found: found.status >= 400 and context.complaints.append(f"{found.status} {found.url}"))
    return page


@pytest.mark.slow
def test_no_page_of_the_admin_breaks_the_content_security_policy(space, page):
    paths = [reverse("admin:index"), *(url(model) for model in MODELS)]
    for model in MODELS:
        if model not in READ_ONLY:
            paths.append(url(model, "add"))
            instance = row(model)
            paths += [url(model, page_name, instance.pk) for page_name in ("change", "delete", "history")] if instance else []
    for path in paths:
        page.goto(path)
        assert page.context.complaints == [], path


@pytest.mark.slow
def test_the_admins_own_scripts_work_under_the_policy(space, page):
    page.goto(url("broker_core.entity"))
    page.check("#action-toggle")  # actions.js
    assert page.is_checked("input.action-select")
    page.goto(url("broker_core.entity", "add"))
    page.fill("#id_path", "from/browser")
    page.select_option("#id_namespace", label="space")
    page.click("input[name=_save]")
    page.wait_for_selector(".messagelist .success:has-text('was added successfully')")
    assert entities.get_queue(EntityAddress("space", "from/browser"))
