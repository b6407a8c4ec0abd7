"""Export and import of messages, in all families."""

import csv
import json
import uuid
from datetime import timedelta
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.files.uploadedfile import SimpleUploadedFile

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core import operations as core
from broker_core.common.errors import NotAllowed, NotAuthorized
from broker_core.common.typed import Typed
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.operations import Kind, batches, exporting
from broker_core.rabbitmq import Properties, Publication
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.transfer import exporting as transfer_out
from broker_core.transfer import importing
from explorer.frames.family import pages_of
from explorer.models import AuditRecord
from explorer.operations import runner
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


def messages_in(text):
    """The messages of a file, without the lines around them."""
    return [line["message"] for line in map(json.loads, text.split("\n")[:-1]) if "message" in line]


def file_of(count):
    return "".join(f'{{"message": {{"body": "{n}"}}}}\n' for n in range(count))


@pytest.fixture
def queues(db):
    namespace = f"files-{uuid.uuid4().hex[:8]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
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
        assert [getattr(one, name) for one in before] == [getattr(message, name) for message in after], name
    assert [record.target for record in AuditRecord.objects.filter(action="export messages", namespace=a.namespace)] == ["all 3"]
    assert AuditRecord.objects.filter(action="import messages", outcome="done").exists()


def test_only_messages_that_match_the_filter_are_exported(queues, as_):
    a, _ = queues
    service_bus.send(a, [Message(b"1", message_id="x"), Message(b"2", message_id="y")])
    [found] = messages_in(exported(as_("operator"), a, tab="active", filter="id:y"))
    assert found["body"] == "2"


def test_export_and_import_need_their_rights(queues, as_):
    a, _ = queues
    assert as_("viewer").get(f"/operate/{a}?kind=export&tab=active").status_code == 403
    assert as_("viewer").post(f"/import-messages/{a}", {"do": "import", "text": file_of(1)}).status_code == 403
    assert reads.entity(a).counts.active == 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[" * 5000, "is not valid JSON"),
        ("[]", "must be an object with one member"),
        ("{}", "must be an object with one member"),
        ('{"body": "x"}', "must be an object with one member"),
        ('{"massage": {"body": "x"}}', "'massage' must be a message"),
        ('{"entity": {"path": "x"}}', "'entity' must be a message"),
        *(
            (f'{{"message": {message}}}', problem)
            for message, problem in (
                ("{}", "message.body: is missing"),
                ('{"body": 5}', "must be text"),
                ('{"body": "x", "body_base64": "eA=="}', "must be missing beside body_base64"),
                ('{"body_base64": "?"}', "is not valid base64"),
                ('{"body": "\\ud800"}', "unpaired surrogate"),
                ('{"body": "x", "time_to_live": "soon"}', "must be a duration such as"),
                ('{"body": "x", "application_properties": {"n": 5}}', "must be [type, text]"),
                ('{"body": "x", "application_properties": {"n": ["int", "x"]}}', "must be [type, text]"),
                ('{"body": "x", "application_properties": {"n": ["colour", "x"]}}', "must be [type, text]"),
                ('{"body": "x", "encoded": "eA=="}', "is no valid AMQP"),
                ('{"body": "x", "body_kind": "soup"}', "must be one of"),
                ('{"body": "x", "properties": {"subject": 5}}', "subject"),
                ('{"body": "x", "scheduled_enqueue_at": "2030-01-01T00:00"}', "must be a timestamp such as"),
            )
        ),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(queues, as_, line, problem):
    a, _ = queues
    preview, done = imported(as_("operator"), a, f'{{"message": {{"body": "good"}}}}\n\n{line}\n')
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
        (b"x" * 16_800_000, "larger"),
    ):
        answer = client.post(url, {"do": "preview", "file": SimpleUploadedFile("f", content)})
        assert answer.status_code == 400 and problem in body_of(answer), problem


def test_messages_of_storage_queues_and_rabbitmq_are_the_same_after_export_and_import(db, as_):
    unique = uuid.uuid4().hex[:8]
    queue_storage.create_account(f"files{unique}")
    jobs = [EntityAddress(f"files{unique}", name) for name in ("jobs-a", "jobs-b")]
    for address in jobs:
        queue_storage.create_queue(address)
    queue_storage.put_all(jobs[0], ["<a>", "b"])
    client = as_("operator")
    _, done = imported(client, jobs[1], exported(client, jobs[0], tab="all"))
    assert done.status_code == 302
    assert [message.text for message in queue_storage.peek(jobs[1], 9)] == ["<a>", "b"]

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


FAMILIES = ["service_bus", "queue_storage", "rabbitmq"]


@pytest.fixture
def target(db, request):
    """An empty queue of a family."""
    unique = uuid.uuid4().hex[:8]
    address = EntityAddress(f"files{unique}", "target")
    match request.param:
        case "service_bus":
            namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
            entities.create_queue(address)
        case "queue_storage":
            queue_storage.create_account(address.namespace)
            queue_storage.create_queue(address)
        case "rabbitmq":
            rabbitmq.create_vhost(address.namespace)
            rabbitmq.declare_queue(address)
    return address


@pytest.mark.parametrize("target", FAMILIES, indirect=True)
def test_a_large_import_runs_in_batches_stops_resumes_and_is_undone(target, as_, monkeypatch):
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    monkeypatch.setattr("explorer.operations.control.submit", lambda _: None)
    client = as_("operator")
    answer = client.post(
        f"/import-messages/{target}", {"do": "import", "file": SimpleUploadedFile("m.jsonl", file_of(1_100).encode())}
    )
    [operation] = core.newest(limit=1)
    assert answer["Location"] == f"/operations/{operation.id}/"
    assert (operation.kind, operation.counted, operation.done) == (Kind.IMPORT, 1_100, 0)
    runner.run(operation, seconds=0)  # one batch
    half = core.find(operation.id)
    assert half.done == runner.BATCH == reads.counts(target).active
    client.post(f"/operations/{half.id}/change/", {"action": "pause"})
    assert not runner.run(half, seconds=None) and reads.counts(target).active == 500
    client.post(f"/operations/{half.id}/change/", {"action": "resume"})
    runner.run(half, seconds=None)
    page = body_of(client.get(f"/operations/{half.id}/"))
    assert "Import 1,100 messages" in page and "from m.jsonl" in page and "Undo 1,100" in page
    assert reads.counts(target).active == 1_100 == core.find(half.id).done
    changed = core.change(core.find(half.id), "undo", actor=Actor("user", "otto", Right.ALL))
    runner.run(changed, seconds=None)
    assert reads.counts(target).active == 0 and core.find(half.id).undone == 1_100


@pytest.mark.parametrize("target", FAMILIES, indirect=True)
def test_many_messages_are_exported_by_an_operation_in_batches(target, as_, monkeypatch):
    """A worker that dies in a batch leaves the file as it was after the one before; the messages stay as they are."""
    client, viewer = as_("operator"), as_("viewer")
    imported(client, target, file_of(5))
    monkeypatch.setattr("explorer.operations.transfer.DIRECT", 2)
    monkeypatch.setattr("explorer.operations.starting.DIRECT", 2)
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    monkeypatch.setattr(runner, "BODIES_BATCH", 2)
    monkeypatch.setattr(exporting, "CHUNK", 1)
    kind, _ = ContentType.objects.get_or_create(app_label="explorer", model="auditrecord")
    viewer.user.user_permissions.add(Permission.objects.get_or_create(codename="see_bodies", content_type=kind)[0])
    tab = {"tab": next(iter(pages_of(reads.entity(target).family).operations.lists))}
    asked = body_of(client.get(f"/operate/{target}", {"kind": "export", **tab}))
    assert "Export 5 messages" in asked and "They stay as they are." in asked and "cannot be undone" not in asked
    assert len(messages_in(exported(viewer, target, **tab))) == 5
    answer = client.post(f"/operate/{target}", {"kind": "export", "all": 1, "confirmed": 1, **tab})
    [operation] = core.newest(limit=1)
    assert answer["Location"] == f"/operations/{operation.id}/" and operation.counted == 5
    url = f"{answer['Location']}file/"
    assert client.get(url).status_code == 404  # it has not begun
    runner.run(operation, seconds=0)  # one batch
    with monkeypatch.context() as dying:
        dying.setattr(batches, "write", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runner.run(core.find(operation.id), seconds=None)
    connections.current().execute("UPDATE vitrine_operation SET lease_until = now() WHERE id = %s", [operation.id])
    runner.run(core.find(operation.id), seconds=None)
    done = core.find(operation.id)
    assert (done.state, done.done, reads.counts(target).active) == ("done", 5, 5)
    page = body_of(client.get(answer["Location"]))
    assert "Download 5 messages" in page and "Undo" not in page
    lines = b"".join(client.get(url).streaming_content).decode()
    assert [message["body"] for message in messages_in(lines)] == list("01234")
    table = b"".join(client.get(f"{url}?format=csv").streaming_content).decode()
    assert [row["body"] for row in csv.DictReader(table.splitlines())] == list("01234")
    assert viewer.get(url).status_code == 403
    assert AuditRecord.objects.filter(action="download export", namespace=target.namespace).count() == 2
    connections.current().execute("UPDATE vitrine_operation SET kept_until = now() WHERE id = %s", [operation.id])
    sweeps.purge_hidden_messages()
    assert client.get(url).status_code == 404 and "The file is deleted by now" in body_of(client.get(answer["Location"]))
    counted = "SELECT count(*) FROM vitrine_export_part WHERE operation_id = %s"
    [[left]] = connections.current().execute(counted, [operation.id]).fetchall()
    assert left == 0


def test_a_stopped_export_has_a_file_of_the_exported_messages(queues, as_, monkeypatch):
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    monkeypatch.setattr(runner, "BODIES_BATCH", 2)
    a, client = queues[0], as_("operator")
    service_bus.send(a, [Message(b"x") for _ in range(5)])
    client.post(f"/operate/{a}", {"kind": "export", "all": 1, "confirmed": 1, "tab": "active", "pace": 100})
    [operation] = core.newest(limit=1)
    runner.run(operation, seconds=0)
    url = f"/operations/{operation.id}/"
    client.post(f"{url}change/", {"action": "stop"})
    assert "The file has what was exported before the operation ended" in body_of(client.get(url))
    assert len(messages_in(b"".join(client.get(f"{url}file/").streaming_content).decode())) == 2
    with pytest.raises(NotAllowed, match="nothing to undo"):
        core.change(core.find(operation.id), "undo", actor=Actor("user", "otto", Right.ALL))


@pytest.fixture
def large_export(queues, as_, monkeypatch):
    """An export that stores a part for each message, and the address of its page."""
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    monkeypatch.setattr(exporting, "CHUNK", 1)
    monkeypatch.setattr(runner, "BODIES_BATCH", 2)
    service_bus.send(queues[0], [Message(b"x" * 500) for _ in range(6)])
    as_("operator").post(f"/operate/{queues[0]}", {"kind": "export", "all": 1, "confirmed": 1, "tab": "active", "pace": 10_000})
    [operation] = core.newest(limit=1)
    return operation


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_download_is_aborted_if_the_file_is_deleted_while_it_is_read(large_export, as_, format):
    """So that nobody takes a part of it for the whole."""
    runner.run(large_export, seconds=None)
    streamed = iter(as_("operator").get(f"/operations/{large_export.id}/file/?format={format}").streaming_content)
    begun = [next(streamed), next(streamed)]
    connections.current().execute("UPDATE vitrine_operation SET kept_until = now() WHERE id = %s", [large_export.id])
    sweeps.purge_hidden_messages()
    with pytest.raises(NotAllowed, match="deleted while it was read: [12] of 6 messages"):
        begun += streamed


def test_an_export_stops_before_its_file_is_too_large_and_says_how_to_continue(large_export, as_, monkeypatch):
    monkeypatch.setattr(exporting, "MOST_BYTES", 3_000)  # more than four messages
    runner.run(large_export, seconds=None)
    ended, client = core.find(large_export.id), as_("operator")
    assert (ended.state, ended.done) == ("failed", 4)
    assert "number>4 in the filter" in body_of(client.get(f"/operations/{ended.id}/"))
    assert len(messages_in(b"".join(client.get(f"/operations/{ended.id}/file/").streaming_content).decode())) == 4
    again = exported(client, ended.address, tab="active", filter="number>4")
    assert [message["sequence_number"] for message in messages_in(again)] == [5, 6]


def test_reading_the_file_of_an_export_needs_the_right_to_see_bodies(large_export):
    runner.run(large_export, seconds=None)
    done = core.find(large_export.id)
    for rights in (Right.SEE_BODIES, Right.BROWSE | Right.OPERATE):
        with pytest.raises(NotAuthorized):
            core.exported_lines(done, actor=Actor("user", "eve", rights))
    assert "".join(core.exported_lines(done, actor=Actor("user", "eve", Right.BROWSE | Right.SEE_BODIES))).count("\n") == 6


def test_an_import_lists_refused_messages_and_messages_received_before_its_undo(queues, as_):
    a, _ = queues
    entities.create_queue(EntityAddress(a.namespace, "once"), requires_duplicate_detection=True)
    once, client = EntityAddress(a.namespace, "once"), as_("operator")
    lines = [f'{{"message": {{"body": "x", "message_id": "{name}"}}}}' for name in ("a", "b", "a")]
    answer = client.post(f"/import-messages/{once}", {"do": "import", "text": "\n".join(lines)}, follow=True)
    assert "its id was sent before (duplicate detection)" in body_of(answer) and reads.counts(once).active == 2
    [operation] = core.newest(limit=1)
    service_bus.receive(once)
    undone = body_of(client.post(f"/operations/{operation.id}/change/", {"action": "undo"}, follow=True))
    assert "1 message removed. 1 could not be removed" in undone.replace("Undone: ", "")


def test_an_import_into_a_full_queue_of_rabbitmq_names_the_refused_messages(db, as_):
    host = f"files-{uuid.uuid4().hex[:8]}"
    rabbitmq.create_vhost(host)
    small = EntityAddress(host, "small")
    rabbitmq.declare_queue(small, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    answer = as_("operator").post(f"/import-messages/{small}", {"do": "import", "text": file_of(3)}, follow=True)
    assert "refused: the queue is full" in body_of(answer) and reads.counts(small).active == 2


def test_deleting_the_queue_ends_a_running_import_with_a_reason(queues, as_, monkeypatch):
    a, _ = queues
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    as_("operator").post(f"/import-messages/{a}", {"do": "import", "file": SimpleUploadedFile("m", file_of(600).encode())})
    [operation] = core.newest(limit=1)
    runner.run(operation, seconds=0)
    entities.delete_entity(a)
    runner.run(operation, seconds=None)
    page = body_of(as_("operator").get(f"/operations/{operation.id}/"))
    assert "Stopped by an error." in page and "500 messages were processed before" in page


def test_a_file_too_large_for_the_preview_is_checked_and_must_be_selected_again(queues, as_):
    a, _ = queues
    content = "".join(f'{{"message": {{"body": "{"x" * 4_000}{n}"}}}}\n' for n in range(500))
    answer = as_("operator").post(f"/import-messages/{a}", {"do": "preview", "file": SimpleUploadedFile("m", content.encode())})
    text = body_of(answer)
    assert answer.status_code == 200 and "Preview of 500 messages" in text and "choose it again" in text and len(text) < 50_000


def test_an_export_reads_messages_in_batches(queues, as_, monkeypatch):
    a, _ = queues
    service_bus.send(a, [Message(f"{n}".encode()) for n in range(500)])
    asked, stored = [], reads.stored
    monkeypatch.setattr(reads, "stored", lambda *given, **options: asked.append(given) or stored(*given, **options))
    found = messages_in(exported(as_("operator"), a, tab="active"))
    assert [message["body"] for message in found] == [str(n) for n in range(500)] and len(asked) == 1
    monkeypatch.setattr("explorer.operations.message_files.CHUNK", 3)  # a batch ends at its bytes, too
    assert len(messages_in(exported(as_("operator"), a, tab="active", filter="number<20"))) == 19


def test_an_export_as_csv_suits_spreadsheets(queues, as_):
    a, _ = queues
    service_bus.send(a, [Message(b'{"a": 1}', message_id="one", properties={"n": 5}), Message(b"=1+1"), Message(b"\xff")])
    first, second, third = csv.DictReader(exported(as_("operator"), a, tab="active", format="csv").splitlines())
    assert first["body"] == '{"a": 1}' and json.loads(first["application_properties"]) == {"n": ["int", "5"]}
    assert second["body"] == "'=1+1" and third["body_base64"] == "/w=="
    assert "as CSV" in body_of(as_("operator").get(f"/entities/{a}?tab=active"))


@pytest.mark.parametrize("target", FAMILIES, indirect=True)
def test_an_export_of_a_namespace_is_imported_into_an_entity(target, as_):
    client, lines = as_("operator"), []
    imported(client, target, file_of(3))
    transfer_out.export([target.namespace], lines.append)
    _, done = imported(client, target, "".join(lines))
    assert done.status_code == 302 and reads.counts(target).active == 6


@pytest.mark.parametrize("target", FAMILIES, indirect=True)
def test_a_file_of_some_messages_restores_them_in_a_new_namespace(target, as_):
    client, lines = as_("operator"), []
    imported(client, target, file_of(5))
    tab = next(iter(pages_of(reads.entity(target).family).operations.lists))
    text = exported(client, target, tab=tab, filter="number>2")
    copy = EntityAddress(f"copy{uuid.uuid4().hex[:8]}", target.path)
    assert importing.import_(text.splitlines(), name=copy.namespace) == {
        "namespaces": [copy.namespace], "entities": 1, "messages": 3,
    }  # fmt: skip
    transfer_out.export([copy.namespace], lines.append)
    assert messages_in("".join(lines)) == messages_in(text) and [message["body"] for message in messages_in(text)] == list("234")


def test_a_file_does_not_give_away_pop_receipts(db, as_):
    account = f"files{uuid.uuid4().hex[:8]}"
    queue_storage.create_account(account)
    jobs = EntityAddress(account, "jobs")
    queue_storage.create_queue(jobs)
    queue_storage.put(jobs, "x")
    [got] = queue_storage.get(jobs)
    text = exported(as_("operator"), jobs, tab="all")
    assert messages_in(text)[0]["held_by"] and str(got.pop_receipt) not in text


def test_a_file_of_all_states_and_one_of_dead_letters_of_a_subscription_are_imported(queues, as_):
    topic = EntityAddress(queues[0].namespace, "news")
    entities.create_topic(topic)
    copies = topic.subscription("all")
    entities.create_subscription(copies)
    service_bus.send(topic, [Message(f"{n}".encode()) for n in range(5)])
    first, second, third = service_bus.receive(copies, 3)
    service_bus.defer(copies, [first.lock_token])
    service_bus.dead_letter(copies, [second.lock_token], "Why")
    service_bus.abandon(copies, [third.lock_token])
    for tab, count in (("all", 4), ("dead-letter", 1)):
        text = exported(as_("operator"), copies, tab=tab)
        name = f"copy{uuid.uuid4().hex[:8]}"
        assert importing.import_(text.splitlines(), name=name) == {"namespaces": [name], "entities": 2, "messages": count}
