"""Deleting an entity in the explorer can be undone: from the notice, the operations and the record of the entity."""

import re

from django.urls import reverse

from broker_core import operations, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.operations import Kind
from broker_core.rabbitmq import Publication
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.fixtures import account, broker_database, make_queue, namespace, queue, vhost  # noqa: F401 - fixtures
from tests.html import body_of


def deleted_by(client, address):
    """Delete a queue in the explorer. Returns the page that follows."""
    return body_of(client.post(f"/delete/{address.namespace}/{address.path}", {"name": address.path}, follow=True))


def undo_in(page):
    return re.search(r'action="(/operations/[^"]*action=undo[^"]*)"', page).group(1).replace("&amp;", "&")


def test_the_notice_undoes_the_deletion(queue, as_):  # noqa: F811
    service_bus.send(queue, [Message(b"1"), Message(b"2")])
    client = as_("administrator")
    page = deleted_by(client, queue)
    assert "with 2 messages" in page
    page = body_of(client.post(undo_in(page), follow=True))
    assert f"Restored the queue {queue.namespace}/{queue.path} with 2 messages." in page
    assert reads.entity(queue).counts.active == 2


def test_the_operations_list_the_deletion_and_restore_it(queue, as_):  # noqa: F811
    service_bus.send(queue, [Message(b"1")])
    client = as_("administrator")
    deleted_by(client, queue)
    page = body_of(client.get("/operations/"))
    assert f"Deleted queue {queue.namespace}/{queue.path} (1 message)" in page and "left" in page
    [operation] = operations.newest(kind=Kind.DELETE, parts=[queue.namespace])
    page = body_of(client.get(f"/operations/{operation.id}/"))
    assert "Can be restored until" in page and ">Matched<" not in page
    assert "Restore" in page and "Restore" not in body_of(as_("operator").get(f"/operations/{operation.id}/"))
    assert as_("operator").post(f"/operations/{operation.id}/change/", {"action": "undo"}).status_code == 302
    assert operations.find(operation.id).state == "done", "an operator may not restore it"
    client.post(f"/operations/{operation.id}/change/", {"action": "undo"})
    assert reads.entity(queue).counts.active == 1


def test_the_record_of_the_queue_offers_to_restore_it(queue, as_):  # noqa: F811
    at = f"/entities/{queue.namespace}/{queue.path}"
    client = as_("administrator")
    deleted_by(client, queue)
    page = body_of(client.get(at))
    assert "Restore" in page and "nothing in it can be changed" not in page
    assert "Restore" not in body_of(as_("viewer").get(at))
    [form] = re.findall(r'action="(/operations/[^"]*)"', page)
    client.post(form, {"action": "undo"})
    assert reads.entity(queue).counts.active == 0


def test_it_says_why_it_cannot_be_restored(queue, as_):  # noqa: F811
    client = as_("administrator")
    page = deleted_by(client, queue)
    entities.create_queue(queue)
    answer = body_of(client.post(undo_in(page), follow=True))
    assert "another entity has this name now" in answer


def test_storage_queues(account, as_):  # noqa: F811
    letters = EntityAddress(account, "letters")
    queue_storage.create_queue(letters)
    queue_storage.put(letters, "1")
    client = as_("administrator")
    client.post(undo_in(deleted_by(client, letters)))
    assert reads.entity(letters).counts.active == 1


def test_queues_of_rabbitmq(vhost, as_):  # noqa: F811
    tasks = EntityAddress(vhost, "tasks")
    rabbitmq.declare_queue(tasks)
    rabbitmq.publish(vhost, [Publication(b"1", routing_key="tasks")])
    client = as_("administrator")
    page = body_of(client.post(reverse("explorer:entity_delete", args=(vhost, "tasks")), {"name": "tasks"}, follow=True))
    client.post(undo_in(page))
    assert reads.entity(tasks).counts.active == 1
