"""The behaviour of a Service Bus namespace on its pages (SB-902, SB-903, SB-907)."""

import re

from broker_core import namespaces
from broker_core.common.types import Behaviour, EntityAddress
from broker_core.service_bus import entities
from tests.html import body_of


def test_the_page_of_a_namespace_lists_the_differences_with_their_rules(namespace, account, as_):
    page = body_of(as_("viewer").get(f"/namespaces/{namespace}/"))
    rules = re.findall(r'<a href="https://learn.microsoft.com/azure/service-bus-messaging/[^"]+"[^>]*>(SB-\d+)</a>', page)
    assert rules == ["SB-902", "SB-903", "SB-907"] and "<b>convenient</b>" in page
    assert "Changing it requires the administrator role." in page
    assert 'id="behaviour"' not in body_of(as_("viewer").get(f"/namespaces/{account}/"))


def test_an_administrator_changes_the_behaviour(namespace, as_):
    at = f"/behaviour/{namespace}/"
    assert as_("operator").post(at, {"behaviour": "documented"}).status_code in (302, 403)
    assert namespaces.get_namespace(namespace).behaviour is Behaviour.CONVENIENT
    page = body_of(as_("administrator").post(at, {"behaviour": "documented"}, follow=True))
    assert f"The entities of {namespace} now behave as documented." in page and "<b>documented</b>" in page
    assert namespaces.get_namespace(namespace).behaviour is Behaviour.DOCUMENTED
    assert as_("administrator").post(at, {"behaviour": "strict"}).status_code == 400


def test_a_namespace_is_created_with_a_behaviour(broker_database, as_):
    form_data = {"family": "service_bus", "name": "strict", "description": "", "tier": "standard", "behaviour": "documented"}
    assert as_("administrator").post("/new-namespace/", form_data).status_code == 302
    assert namespaces.get_namespace("strict").behaviour is Behaviour.DOCUMENTED


def test_the_settings_of_a_queue_show_that_they_follow_the_namespace(namespace, as_):
    queue = entities.create_queue(EntityAddress(namespace, "orders")).address
    namespaces.update_namespace(namespace, behaviour="documented")
    assert "by the namespace's behaviour" in body_of(as_("viewer").get(f"/entities/{queue}")).replace("&#x27;", "'")
    settings = body_of(as_("administrator").get(f"/settings/{queue}"))
    assert settings.count("as the namespace behaves") == 3
    assert "Expiry that a peek returns" in settings


def test_a_queue_may_show_other_expiries_in_a_peek_than_its_namespace(namespace, as_):
    queue = entities.create_queue(EntityAddress(namespace, "orders")).address
    client = as_("administrator")
    form = client.get(f"/settings/{queue}").context["form"]
    fields = {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}
    for chosen, stored in (("False", False), ("True", True), ("", None)):
        sent = fields | {"peek_shows_default_expiry": chosen}
        assert "A peek returns the expiry" in body_of(client.post(f"/settings/{queue}", sent | {"preview": ""}))
        assert client.post(f"/settings/{queue}", sent).status_code == 302
        assert entities.get_queue(queue).settings.peek_shows_default_expiry is stored
