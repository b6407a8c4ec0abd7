"""Export and import of messages, in all families."""

import json
import uuid
from datetime import timedelta
from uuid import UUID

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress, Message
from broker_core.common.values import Typed
from broker_core.rabbitmq import Properties, Publication
from broker_core.service_bus import entities
from explorer.models import AuditRecord
from tests.html import body_of

from .conftest import WORKER


def exported(client, address, **query):
    answer = client.get(f"/operate/{address.namespace}/{address.path}", {"kind": "export", **query})
    assert answer.status_code == 200 and answer["Content-Disposition"].startswith("attachment")
    return b"".join(answer.streaming_content).decode()


def imported(client, address, text, **more):
    """Through the preview."""
    url = f"/import-messages/{address.namespace}/{address.path}"
    file = SimpleUploadedFile("some.jsonl", text.encode())
    preview = body_of(client.post(url, {"do": "preview", "file": file}))
    return preview, client.post(url, {"do": "import", "text": text}, **more)


@pytest.fixture
def queues(db):
    namespace = f"files-{uuid.uuid4().hex[:8]}"
    namespaces.create_namespace(namespace)
    made = [EntityAddress(namespace, name) for name in ("a", "b")]
    for address in made:
        entities.create_queue(address)
    return made


def test_messages_of_service_bus_are_the_same_after_export_and_import(queues, as_):
    a, b = queues
    values = {"n": 5, "long": Typed("long", 5), "id": UUID(int=7), "span": timedelta(seconds=2), "none": None, "nul": "a\0b"}
    service_bus.send(a, [
        Message(b'{"x": 1}', message_id="one", correlation_id=UUID(int=3), content_type="application/json", properties=values),
        Message(b"\xff\x00", subject="bytes", time_to_live=timedelta(days=1)),
        Message("línea\u2028".encode()),
    ])  # fmt: skip
    client = as_("operator")
    text = exported(client, a, tab="active")
    preview, done = imported(client, b, text)
    assert "Preview of 3 messages" in preview and "Import 3 messages" in preview
    assert done.status_code == 302
    before, after = service_bus.peek(a), service_bus.peek(b)
    same = (
        "body",
        "message_id",
        "correlation_id",
        "properties",
        "raw_application_properties",
        "broker_properties",
        "time_to_live",
    )
    for name in same:
        assert [getattr(one, name) for one in before] == [getattr(one, name) for one in after], name
    assert [record.target for record in AuditRecord.objects.filter(action="export messages", namespace=a.namespace)] == ["all 3"]
    assert AuditRecord.objects.filter(action="import messages", outcome="done").exists()


def test_only_what_the_filter_matches_is_exported(queues, as_):
    a, _ = queues
    service_bus.send(a, [Message(b"1", message_id="x"), Message(b"2", message_id="y")])
    [line] = exported(as_("operator"), a, tab="active", filter="id:y").splitlines()
    assert json.loads(line)["body"] == "2"


def test_export_and_import_need_their_rights(queues, as_):
    a, _ = queues
    assert as_("viewer").get(f"/operate/{a}?kind=export&tab=active").status_code == 403
    assert as_("viewer").post(f"/import-messages/{a}", {"do": "import", "text": '{"body": "x"}'}).status_code == 403
    assert reads.entity(a).counts.active == 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not JSON"),
        ("[" * 5000, "is not JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "body"),
        ('{"body": 5}', "must be text"),
        ('{"body": "x", "body_base64": "eA=="}', "not both"),
        ('{"body_base64": "?"}', "is not base64"),
        ('{"body": "\\ud800"}', "unpaired surrogate"),
        ('{"body": "x", "time_to_live": "soon"}', "number of seconds"),
        ('{"body": "x", "application_properties": {"n": 5}}', "must be [type, text]"),
        ('{"body": "x", "application_properties": {"n": ["int", "x"]}}', "must be [type, text]"),
        ('{"body": "x", "application_properties": {"n": ["colour", "x"]}}', "must be [type, text]"),
        ('{"body": "x", "encoded": "eA=="}', "is no valid AMQP"),
        ('{"body": "x", "body_kind": "soup"}', "must be one of"),
        ('{"body": "x", "properties": {"subject": 5}}', "subject"),
        ('{"body": "x", "scheduled_enqueue_at": "2030-01-01T00:00"}', "needs a time zone"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(queues, as_, line, problem):
    a, _ = queues
    preview, done = imported(as_("operator"), a, f'{{"body": "good"}}\n\n{line}\n')
    text = preview.replace("&#x27;", "'").replace("&quot;", '"')
    assert "<strong>Line 3</strong>" in text and problem in text and "Import 1" not in text
    assert done.status_code in (200, 400) and reads.entity(a).counts.active == 0


def test_a_file_that_is_empty_too_large_or_not_text_is_refused(queues, as_):
    a, _ = queues
    client, url = as_("operator"), f"/import-messages/{a}"
    for content, problem in (
        (b"\n", "has no messages"),
        (b"", "Choose a file"),
        (b"\xff", "UTF-8"),
        (b"x" * 1_600_000, "larger"),
    ):
        answer = client.post(url, {"do": "preview", "file": SimpleUploadedFile("f", content)})
        assert answer.status_code == 400 and problem in body_of(answer), problem


def test_messages_of_storage_queues_and_rabbitmq_are_the_same_too(db, as_):
    unique = uuid.uuid4().hex[:8]
    queue_storage.create_account(f"files{unique}")
    jobs = [EntityAddress(f"files{unique}", name) for name in ("jobs-a", "jobs-b")]
    for address in jobs:
        queue_storage.create_queue(address)
    queue_storage.put_all(jobs[0], ["<a>", "b"])
    client = as_("operator")
    _, done = imported(client, jobs[1], exported(client, jobs[0], tab="all"))
    assert done.status_code == 302
    assert [one.text for one in queue_storage.peek(jobs[1], 9)] == ["<a>", "b"]

    host = f"files-{unique}"
    rabbitmq.create_vhost(host)
    mail = [EntityAddress(host, name) for name in ("a", "b")]
    for address in mail:
        rabbitmq.declare_queue(address)
    properties = Properties(content_type="text/plain", priority=3, message_id="m", headers={"n": 5, "list": [1, "x"]})
    rabbitmq.publish(host, [Publication(b"\xff", routing_key="a", properties=properties)], actor=WORKER)
    _, done = imported(client, mail[1], exported(client, mail[0], tab="messages"))
    assert done.status_code == 302
    [before], [after] = (rabbitmq.take(address, 1, owner_id=1_000_005) for address in mail)
    assert (before.body, before.properties) == (after.body, after.properties)
