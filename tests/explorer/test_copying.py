"""Sending one like a message: the same bytes, or none and a word about it."""

import pytest

from broker_core import queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus.rules.values import Message
from tests.html import body_of

pytest_plugins = ["tests.explorer.rabbitmq_office"]
NO_TEXT = [b"\xff\xfe\x80", b"a\x00b", b"one\r\ntwo"]


def form_of(client, address):
    page = client.get(address)
    return page.context["form"], body_of(page)


def test_a_text_body_is_copied_unchanged(shop, as_):
    [number] = service_bus.send(shop, [Message("één\ntwee ".encode())])
    form, page = form_of(as_("operator"), f"/send/{shop}?like={number}")
    assert form["body"].value() == "één\ntwee " and "was not copied" not in page


@pytest.mark.parametrize("body", NO_TEXT)
def test_a_body_that_a_form_would_change_is_not_copied_with_a_note(shop, as_, body):
    [number] = service_bus.send(shop, [Message(body)])
    form, page = form_of(as_("operator"), f"/send/{shop}?like={number}")
    assert form["body"].value() == ""
    assert f"The body of message {number} was not copied into the form: it contains bytes or line endings that" in page


def test_a_long_body_is_not_copied_with_a_note(shop, as_):
    [number] = service_bus.send(shop, [Message(b"x" * 65_537)])
    form, page = form_of(as_("operator"), f"/send/{shop}?like={number}")
    assert form["body"].value() == "" and "it is larger than 64 KB" in page


def test_a_note_warns_of_changed_line_ends_in_a_storage_queue(jobs, as_):
    queue_storage.put(jobs, "one\r\ntwo")
    form, page = form_of(as_("operator"), f"/send/{jobs}?like=9")
    assert form["text"].value() == "" and "was not copied into the form" in page


@pytest.mark.parametrize("body", NO_TEXT)
def test_a_rabbitmq_payload_is_copied_as_base64_where_text_would_change_it(office, as_, body):
    rabbitmq.publish(office.vhost, [rabbitmq.Publication(body, routing_key="spare")])
    client, default = as_("operator"), f"/rabbitmq/publish/{office.at}/amq.default"
    form, _ = form_of(client, f"{default}?like=1&of=spare")
    fields = {name: form[name].value() for name in ("body", "encoding", "copies", "delivery_mode")}
    client.post(default, fields | {"routing_key": "spare"})
    assert reads.body(EntityAddress(office.vhost, "spare"), 2).content == body
