"""The page and the pane of a message that ended and is kept, in all families (docs/design.md D20)."""

from datetime import timedelta

import pytest
from django.urls import reverse

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Properties, Publication
from broker_core.runtime import keeping
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.fixtures import account, broker_database, make_queue, namespace, queue, vhost  # noqa: F401 - fixtures
from tests.html import body_of

HOUR = timedelta(hours=1)
BODY = b'{"tenant": "acme-1"}'


@pytest.fixture(autouse=True)
def _fresh():
    keeping.forget_keeping()


def keep(name):
    namespaces.pause_clock(name)
    namespaces.update_namespace(name, keep_messages_for=HOUR)


@pytest.fixture
def gone(queue):  # noqa: F811
    """The URL of the page of a message that was received and deleted."""
    keep(queue.namespace)
    service_bus.send(queue, [Message(BODY, message_id="m-1", subject="paid", properties={"region": "north-1"})])
    service_bus.receive_and_delete(queue)
    return f"/messages/{queue.namespace}/{queue.path}/1"


def test_the_body_and_the_properties_are_shown_until_the_time_is_over(gone, queue, as_):  # noqa: F811
    client = as_("operator")
    page = body_of(client.get(gone))
    assert "acme-1" in page and "north-1" in page and "Kept with its properties for another" in page
    assert client.get(gone.replace("messages", "bodies")).getvalue() == BODY
    namespaces.step_clock(queue.namespace, HOUR)
    page = body_of(client.get(gone))
    assert "acme-1" not in page and "The body was removed with the message." in page and "Send again" not in page
    assert client.get(gone.replace("messages", "bodies")).status_code == 404


def test_the_pane_shows_it_too(gone, queue, as_):  # noqa: F811
    page = body_of(as_("operator").get(f"/entities/{queue.namespace}/{queue.path}?tab=history&m=1"))
    assert "acme-1" in page and "Kept with its properties for another" in page


def test_the_body_is_not_shown_without_the_right(gone, as_):
    client = as_("viewer")
    page = body_of(client.get(gone))
    assert "acme-1" not in page and "have permission to view message bodies" in page and "Send again" not in page
    assert client.get(gone.replace("messages", "bodies")).status_code == 403


def test_it_can_be_sent_again(gone, queue, as_):  # noqa: F811
    client = as_("operator")
    assert "Send again…" in body_of(client.get(gone)) and "Duplicate…" not in body_of(client.get(gone))
    form = body_of(client.get(f"/send/{queue.namespace}/{queue.path}?like=1"))
    assert "acme-1" in form and "paid" in form and "north-1" in form and "is gone" not in form


def test_a_viewer_can_not_send_it_again(gone, queue, as_):  # noqa: F811
    assert "acme-1" not in body_of(as_("viewer").get(f"/send/{queue.namespace}/{queue.path}?like=1"))


def test_the_message_of_a_deleted_queue_is_shown_in_full(queue, as_):  # noqa: F811
    keep(queue.namespace)
    service_bus.send(queue, [Message(BODY)])
    entity_id = reads.entity(queue).id
    entities.delete_queue(queue)
    sweeps.remove_deleted_entities()
    client, at = as_("operator"), f"/messages/{queue.namespace}/{queue.path}/1"
    page = body_of(client.get(at))
    assert "acme-1" in page and f"of={entity_id}" in page and "Send again" not in page
    assert client.get(f"{at.replace('messages', 'bodies')}?of={entity_id}").getvalue() == BODY


def test_storage_messages(account, as_):  # noqa: F811
    letters = EntityAddress(account, "letters")
    queue_storage.create_queue(letters)
    keep(account)
    queue_storage.put(letters, BODY.decode())
    queue_storage.clear(letters)
    client = as_("operator")
    page = body_of(client.get(f"/messages/{account}/letters/1"))
    assert "acme-1" in page and "Send again…" in page
    assert "acme-1" in body_of(client.get(f"/send/{account}/letters?like=1"))


def test_messages_of_rabbitmq(vhost, as_):  # noqa: F811
    rabbitmq.declare_queue(EntityAddress(vhost, "tasks"))
    keep(vhost)
    rabbitmq.publish(vhost, [Publication(BODY, routing_key="tasks", properties=Properties(headers={"region": "north-1"}))])
    rabbitmq.get(EntityAddress(vhost, "tasks"), no_ack=True)
    client = as_("operator")
    page = body_of(client.get(reverse("explorer:message", args=(vhost, "tasks", 1))))
    assert "acme-1" in page and "north-1" in page and "Send again…" in page and "Move to…" not in page


def test_an_administrator_sets_the_period(queue, as_):  # noqa: F811
    client, at = as_("administrator"), f"/namespace-settings/{queue.namespace}/"
    previewed = body_of(client.post(at, {"keep_messages_for": "2 h", "preview": "1"}))
    assert "which need about their size on the disk" in previewed
    page = body_of(client.post(at, {"keep_messages_for": "2 h"}, follow=True))
    assert f"Ended messages of {queue.namespace} are kept for 2 h." in page
    assert namespaces.get_namespace(queue.namespace).keep_messages_for == 2 * HOUR
    service_bus.send(queue, [Message(BODY)])
    service_bus.receive_and_delete(queue)
    assert "1 message is kept now" in body_of(client.get(at))
    assert "are no longer kept" in body_of(client.post(at, {"keep_messages_for": ""}, follow=True))
    assert namespaces.get_namespace(queue.namespace).keep_messages_for is None


@pytest.mark.parametrize("text", ["1 s", "8 days", "soon"])
def test_a_wrong_period_is_reported_at_its_field(queue, as_, text):  # noqa: F811
    response = as_("administrator").post(f"/namespace-settings/{queue.namespace}/", {"keep_messages_for": text})
    assert response.status_code == 400 and 'id="id_keep_messages_for_error"' in body_of(response)
