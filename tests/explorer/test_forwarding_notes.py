"""What pages say of forwards that the broker accepts and that may be a mistake: loops, and sessions that are forwarded (SB-175,
SB-176)."""

import html
import re

import pytest

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.html import body_of

LOOP = "Messages are forwarded to this queue itself. After 4 forwards, they are dead-lettered."
SESSIONS = "No receiver can accept the sessions of this queue while its messages are forwarded."


def warnings(page) -> str:
    """The text of the warnings below the head of an entity's page."""
    part = body_of(page).partition('id="warnings"')[2].partition("</main>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())


def fields_of(client, url):
    form = client.get(url).context["form"]
    return {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}


@pytest.fixture
def queue(namespace):
    return entities.create_queue(EntityAddress(namespace, "orders"), requires_session=True).address


def test_the_preview_of_a_change_warns_before_it_is_saved(queue, as_):
    client, url = as_("administrator"), f"/settings/{queue}"
    fields = fields_of(client, url) | {"forward_to": "orders"}
    preview = body_of(client.post(url, fields | {"preview": ""})).partition('id="preview"')[2].partition("</form>")[0]
    assert LOOP in preview and SESSIONS in preview and "rule SB-173" in preview
    assert entities.get_queue(queue).settings.forward_to is None
    page = client.post(url, fields, follow=True)
    assert LOOP in warnings(page) and SESSIONS in warnings(page)
    assert entities.get_queue(queue).settings.forward_to == "orders"


@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_a_new_queue_that_forwards_to_itself_is_created_with_a_warning(namespace, as_, setting):
    client = as_("administrator")
    fields = fields_of(client, "/new/queue/") | {"namespace": namespace, "path": "Loop", setting: "loop"}
    page = client.post("/new/queue/", fields, follow=True)
    assert "Created the queue" in body_of(page) and "are forwarded to this queue itself" in warnings(page)
    assert getattr(entities.get_queue(EntityAddress(namespace, "Loop")).settings, setting) == "Loop"


def test_every_role_sees_the_warnings_of_a_subscription_that_forwards_to_its_topic(namespace, as_):
    topic = entities.create_topic(EntityAddress(namespace, "news")).address
    loop = entities.create_subscription(topic.subscription("loop"), forward_to="news").address
    service_bus.send(topic, [Message(b"x")])
    for role in ("viewer", "operator", "administrator"):
        page = as_(role).get(f"/entities/{loop}")
        assert "Messages are forwarded to the topic of this subscription, which publishes them again" in warnings(page)
        assert 'title="All messages are forwarded"' in body_of(page)
    assert "forwarded" not in warnings(as_("viewer").get(f"/entities/{topic}"))


def test_an_ordinary_forward_has_no_warning(namespace, queue, as_):
    plain = entities.create_queue(EntityAddress(namespace, "plain"), forward_to="orders").address
    page = as_("viewer").get(f"/entities/{plain}")
    assert 'title="All messages are forwarded; receive them there"' in body_of(page)
    assert "are forwarded" not in warnings(page)
