"""Pages that show the properties which are kept for clients without effect (SB-940)."""

import re

import pytest

from broker_core import reads
from broker_core.common.types import EntityAddress, EntityKind
from broker_core.service_bus import entities
from explorer.models import AuditRecord
from explorer.service_bus.kept_properties import KeptProperties, in_words, kept_of
from tests.fixtures import namespace  # noqa: F401 - fixture
from tests.html import body_of

TITLE = "Kept for clients, without effect"
KEPT = {"EnableBatchedOperations": False, "EnablePartitioning": True, "EntityAvailabilityStatus": "Limited"}


@pytest.fixture
def queue(namespace):  # noqa: F811
    return entities.create_queue(EntityAddress(namespace, "orders"), kept_properties=KEPT).address


def group_of(html):
    """The text of the group, without tags."""
    inside = re.split("</details>|</section>", html.partition(TITLE)[2])[0]
    return " ".join(re.sub("<[^>]*>", " ", inside).split())


def test_properties_that_differ_from_their_defaults_come_first():
    assert kept_of(EntityKind.SUBSCRIPTION, {}) == KeptProperties(
        {}, "EnableBatchedOperations yes, EntityAvailabilityStatus Available"
    )
    partitioned = kept_of(EntityKind.QUEUE, {"EnablePartitioning": True})
    assert partitioned.changed == {"EnablePartitioning": True}
    assert partitioned.defaults.endswith("IsAnonymousAccessible no, SupportOrdering no")
    assert in_words({"EnablePartitioning": True, "SupportOrdering": True}) == "EnablePartitioning yes, SupportOrdering yes"
    assert in_words({}) == "all default"


def test_the_page_of_an_entity_shows_them_in_a_group_of_their_own(queue, as_):
    html = body_of(as_("viewer").get(f"/entities/{queue}"))
    assert html.count(TITLE) == 1
    assert group_of(html).startswith(
        "EnableBatchedOperations no EnablePartitioning yes EntityAvailabilityStatus Limited "
        "Default: EnableExpress no, IsAnonymousAccessible no, SupportOrdering no"
    )
    assert "KeptProperties" not in html


@pytest.mark.parametrize("kind", EntityKind)
def test_an_entity_with_defaults_shows_only_one_line_of_them(kind, namespace, as_):  # noqa: F811
    topic = EntityAddress(namespace, "news")
    if kind is EntityKind.QUEUE:
        address = entities.create_queue(EntityAddress(namespace, "plain")).address
    else:
        address = entities.create_topic(topic).address
    if kind is EntityKind.SUBSCRIPTION:
        address = entities.create_subscription(topic.subscription("all")).address
    for page in ("entities", "settings"):
        assert group_of(body_of(as_("administrator").get(f"/{page}/{address}"))).startswith(
            "Default: EnableBatchedOperations yes"
        )


def test_the_settings_page_shows_them_and_keeps_them_when_others_change(queue, as_):
    client = as_("administrator")
    page = client.get(f"/settings/{queue}")
    assert group_of(page.text).startswith("EnableBatchedOperations no EnablePartitioning yes EntityAvailabilityStatus Limited")
    assert 'name="kept_properties"' not in page.text
    assert client.post(f"/settings/{queue}", values_of(page) | {"max_delivery_count": "4"}).status_code == 302
    settings = entities.get_queue(queue).settings
    assert (settings.max_delivery_count, settings.kept_properties) == (4, KEPT)
    assert AuditRecord.objects.get(action="change settings").target == "MaxDeliveryCount"


def values_of(page):
    form = page.context["form"]
    values = {name: form[name].value() for name in form.fields}
    return {name: "" if value is None else value for name, value in values.items() if value is not False}


def test_a_new_entity_has_the_defaults_and_its_form_no_group(namespace, as_):  # noqa: F811
    client = as_("administrator")
    page = client.get(f"/new/queue/?namespace={namespace}")
    assert page.status_code == 200 and TITLE not in page.text
    sent = values_of(page) | {"namespace": namespace, "path": "fresh"}
    assert client.post("/new/queue/", sent).status_code == 302
    assert entities.get_queue(EntityAddress(namespace, "fresh")).settings.kept_properties == {}


def test_the_configuration_history_shows_a_change_and_restores_it_through_the_preview(queue, as_):
    client = as_("administrator")
    entities.update_queue(queue, kept_properties={"EnablePartitioning": True, "SupportOrdering": True}, max_delivery_count=4)
    page = client.get(f"/revisions/{queue}")
    newest, first = page.context["lines"]
    change = next(change for change in newest.changes if change.name == TITLE)
    assert change.before == "EnableBatchedOperations no, EnablePartitioning yes, EntityAvailabilityStatus Limited"
    assert change.after == "EnablePartitioning yes, SupportOrdering yes"
    url = f"/settings/{queue}?revision={first.id}"
    shown = client.get(url)
    assert "have no effect on messages" in shown.text
    assert group_of(shown.text).startswith("EnableBatchedOperations no EnablePartitioning yes Entity")
    done = client.post(url, values_of(shown) | {"token": shown.context["previewed"].token})
    assert done.status_code == 302, done.context and done.context["form"].errors
    assert reads.revisions(queue)[0].columns == reads.revisions(queue)[-1].columns
    settings = entities.get_queue(queue).settings
    assert (settings.kept_properties, settings.max_delivery_count) == (KEPT, 10)


def test_a_deleted_entity_shows_those_that_it_had(queue, as_):
    entities.delete_queue(queue)
    deleted = reads.deleted_entity(queue)
    assert deleted.kept_properties == KEPT
    html = body_of(as_("viewer").get(f"/entities/{queue}?of={deleted.id}&tab=settings"))
    assert group_of(html) == "EnableBatchedOperations no EnablePartitioning yes EntityAvailabilityStatus Limited"
    plain = entities.create_queue(EntityAddress(queue.namespace, "plain")).address
    entities.delete_queue(plain)
    html = body_of(as_("viewer").get(f"/entities/{plain}?of={reads.deleted_entity(plain).id}&tab=settings"))
    assert "Max delivery count" in html and TITLE not in html


def test_the_admin_shows_them_and_keeps_them(queue, as_):
    client = as_("administrator")
    entity = reads.entity(queue)
    page = client.get(f"/admin/broker_core/entity/{entity.id}/change/")
    assert TITLE in page.text and "EnableBatchedOperations false, EnableExpress false, EnablePartitioning true" in page.text
