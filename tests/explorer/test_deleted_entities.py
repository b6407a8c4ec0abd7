"""The record of an entity that was deleted."""

import re

import pytest

from broker_core import service_bus
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.reads import deleted_entity
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.fixtures import namespace  # noqa: F401 - fixture
from tests.html import body_of

ADMIN = Actor("user", "ada", Right.ALL)


@pytest.fixture
def queue(namespace):  # noqa: F811
    address = EntityAddress(namespace, "eu/orders")
    entities.create_queue(address)
    return address


def url(address):
    return f"/entities/{address.namespace}/{address.path}"


def test_a_deleted_entity_is_recorded_with_actor_time_and_message_count(queue):
    service_bus.send(queue, [Message(b"x") for _ in range(3)])
    service_bus.receive_and_delete(queue, 1)
    assert deleted_entity(queue) is None
    entities.delete_queue(queue, actor=ADMIN)
    first = deleted_entity(queue)
    assert (first.deleted_by, first.messages, first.address) == ("user:ada", 2, queue)
    assert first.settings["max_delivery_count"] == 10
    entities.create_queue(queue)
    entities.delete_queue(queue)
    second = deleted_entity(EntityAddress(queue.namespace.upper(), queue.path.upper()))
    assert second.id > first.id and second.messages == 0
    assert deleted_entity(queue, entity_id=first.id).id == first.id


def test_the_page_is_a_record_with_history_and_settings(as_, queue):
    viewer = as_("viewer")
    service_bus.send(queue, [Message(b"x", message_id=f"order-{i}") for i in range(3)])
    service_bus.receive_and_delete(queue, 1)
    entities.delete_queue(queue, actor=ADMIN)
    answer = viewer.get(url(queue))
    assert answer.status_code == 200
    assert re.search(r"Deleted by ada (now|\d+ s ago), with 2 messages.", re.sub("<[^>]*>", "", body_of(answer)))
    assert "order-0" in answer.text
    assert f"?of={deleted_entity(queue).id}" in answer.text
    assert "Max delivery count" in viewer.get(f"{url(queue)}?of={deleted_entity(queue).id}&tab=settings").text
    assert viewer.get(f"{url(queue)}?tab=dead-letter").status_code == 200  # a link from the time when it existed


def test_a_new_entity_of_the_same_name_is_shown_and_the_deleted_entity_by_its_id(as_, queue):
    viewer = as_("viewer")
    entities.delete_queue(queue)
    entities.create_queue(queue)
    assert "Deleted by" not in viewer.get(url(queue)).text
    old = viewer.get(f"{url(queue)}?of={deleted_entity(queue).id}")
    assert "Deleted by" in old.text and "has this name now" in old.text
    assert "Deleted by" not in viewer.get(f"{url(queue)}?of=1").text


def test_an_entity_that_never_existed_is_not_found(as_, queue):
    viewer = as_("viewer")
    assert viewer.get(f"/entities/{queue.namespace}/nothing").status_code == 404
    assert viewer.get("/entities/nowhere/nothing").status_code == 404
    assert viewer.get(f"{url(queue)}?of=x").status_code == 400
