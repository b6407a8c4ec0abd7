"""Show as code: each printed program runs as it is printed against this site, and does what its button does."""

import html
import re
import shlex
import subprocess
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command
from playwright.sync_api import expect

from broker_core import queue_storage, rabbitmq, reads, service_bus
from broker_core.common.errors import BrokerError
from broker_core.common.family import definition_of
from broker_core.common.types import EntityAddress, EntityKind, EventKind, Family, MessageState, Tier
from broker_core.reads import EventFilter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.lessons import catalog, sandboxes
from explorer.snippets import code, of
from tests.html import body_of

from .conftest import FRAGMENT
from .test_accessibility import DESK, PHONE, problems
from .test_lessons import start

BUS, STORE, HOST = "codebus", "codestore", "codehost"
QUEUE = EntityAddress(BUS, "orders")
STORED = EntityAddress(STORE, "pictures")
LETTERS = EntityAddress(HOST, "letters")


@pytest.fixture
def ada(as_, transactional_db):
    """An administrator of a site with a queue of each family."""
    definition_of(Family.SERVICE_BUS).create_namespace(BUS, "", Tier.STANDARD, sandboxes.BUILDER)
    entities.create_queue(QUEUE)
    queue_storage.create_account(STORE)
    queue_storage.create_queue(STORED)
    rabbitmq.create_vhost(HOST)
    rabbitmq.declare_queue(LETTERS)
    return as_("administrator")


def printed(client, at, host="testserver"):
    """The programs of a page, by language."""
    page = client.get(at, headers={"host": host})
    assert page.status_code == 200, (at, body_of(page))
    found = re.findall(r'<pre[^>]*id="code-([\w-]+)"[^>]*>(.*?)</pre>', page.content.decode(), re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


def run_python(text):
    """As `manage.py shell` does with what is pasted into it."""
    assert text.startswith("# .venv/bin/python manage.py shell\n")
    exec(compile(text, "printed", "exec"), {})


def run_http(text, tmp_path):
    """In bash, in a folder whose `manage.py` has the token that the printed command prints for the printed URL."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    [[url]] = [re.findall(r"^Q=(\S+)$", text, re.MULTILINE)]
    url = url.strip("'")
    assert '$(.venv/bin/python manage.py sas_token "$Q")' in text
    (tmp_path / "token").write_text(_token(url))
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = {shlex.quote(f"manage.py sas_token {url}")} ] && cat token\n')
    python.chmod(0o755)
    done = subprocess.run(["/bin/bash", "-eu", "-c", text], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done
    return done.stdout.decode()


def _token(url):
    from io import StringIO

    out = StringIO()
    call_command("sas_token", url, stdout=out)
    return out.getvalue()


def send(*bodies, to=QUEUE, **values):
    return service_bus.send(to, [Message(body, **values) for body in bodies])


def row(number=1, at=QUEUE):
    return reads.message(at, number).row


def counts(at=QUEUE):
    return reads.counts(at)


def nothing():
    pass


def lock():
    send(b"one")
    service_bus.receive(QUEUE)


def bury():
    send(b"one")
    (message,) = service_bus.receive(QUEUE)
    service_bus.dead_letter(QUEUE, [message.lock_token], "Broken")


def one():
    send(b"one")


# Of an entity of Service Bus: (operation, what is there before, what must hold after it)
OF_QUEUE = {
    "send": (nothing, lambda: counts().active == 1),
    "receive": (one, lambda: counts().locked == 1),
    "complete": (one, lambda: counts().total == 0),
    "abandon": (one, lambda: row().delivery_count == 1),
    "defer": (one, lambda: row().state is MessageState.DEFERRED),
    "dead_letter": (one, lambda: counts().dead_letter == 1),
    "renew": (one, lambda: row().renewals == 1),
    "peek": (one, lambda: counts().active == 1),
    "purge": (one, lambda: counts().total == 0),
    "release_all": (lock, lambda: counts().locked == 0 and row().delivery_count == 1),
    "create_queue": (lambda: entities.delete_queue(QUEUE), lambda: entities.get_queue(QUEUE).settings.max_delivery_count == 10),
}
OF_MESSAGE = {
    "send": (one, lambda: counts().active == 2),
    "edit": (one, lambda: reads.body(QUEUE, 1).content == b"new body"),
    "complete": (lock, lambda: counts().total == 0),
    "abandon": (lock, lambda: row().delivery_count == 1 and counts().locked == 0),
    "defer": (lock, lambda: row().state is MessageState.DEFERRED),
    "dead_letter": (lock, lambda: counts().dead_letter == 1),
    "renew": (lock, lambda: row().renewals == 1),
    "release": (lock, lambda: counts().locked == 0),
    "discard": (one, lambda: counts().total == 0),
    "resubmit": (bury, lambda: (counts().dead_letter, counts().active) == (0, 1)),
}


@pytest.mark.parametrize("body", [b"hello", "grüß \"dich\"\n'x' $HOME `id` \\".encode(), b"\x00\xff\x01", b"@file", b""])
def test_a_message_is_sent_again_as_it_is(body, ada, live_site, tmp_path):
    values = {
        "message_id": "order 'one\" $1", "subject": "größe", "correlation_id": "c", "content_type": "application/json",
        "time_to_live": timedelta(hours=1), "properties": {"tenant": "a'b\"c", "size": 7, "ratio": 0.5, "is_urgent": True},
    }  # fmt: skip
    send(body, **values)
    programs = printed(ada, f"/code/{QUEUE}?number=1", urlsplit(live_site).netloc)
    run_python(programs["python"])
    assert "HTTP/1.1 201" in run_http(programs["http"], tmp_path)
    assert counts().active == 3
    first, *others = service_bus.peek(QUEUE)
    for message in others:
        for name in ("body", "message_id", "subject", "correlation_id", "content_type", "time_to_live", "properties"):
            assert getattr(message, name) == getattr(first, name), (name, programs)


HTTP = {name: OF_QUEUE[name] for name in ("send", "receive", "complete", "abandon", "renew")}


@pytest.mark.parametrize("operation", HTTP)
def test_the_requests_of_a_queue_run(operation, ada, live_site, tmp_path):
    before, holds = HTTP[operation]
    text = printed(ada, f"/code/{QUEUE}?op={operation}", urlsplit(live_site).netloc)["http"]
    before()
    answer = run_http(text, tmp_path)
    assert "HTTP/1.1 20" in answer and holds(), (text, answer)


def test_the_requests_of_a_dead_letter_queue_and_a_subscription_run(ada, live_site, tmp_path):
    bury()
    host = urlsplit(live_site).netloc
    run_http(printed(ada, f"/code/{QUEUE}?op=complete&subqueue=dead-letter", host)["http"], tmp_path)
    assert counts().dead_letter == 0
    topic = EntityAddress(BUS, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    run_http(printed(ada, f"/code/{topic}?op=send", host)["http"], tmp_path)
    assert counts(topic.subscription("all")).active == 1
    run_http(printed(ada, f"/code/{topic.subscription('all')}?op=complete", host)["http"], tmp_path)
    assert counts(topic.subscription("all")).total == 0


def test_only_operations_of_the_http_api_are_printed_for_it(ada):
    lock()
    with_http = {name for name in of.operations("service_bus") if "http" in printed_or_none(ada, name)}
    assert with_http == {"send", "receive", "complete", "abandon", "renew"}
    for at in (STORED, LETTERS):
        assert list(printed(ada, f"/code/{at}")) == ["python"]


def printed_or_none(client, name):
    page = client.get(f"/code/{QUEUE}?op={name}")
    return printed(client, f"/code/{QUEUE}?op={name}") if page.status_code == 200 else {}


def test_what_is_printed_for_a_topic_and_a_subscription_runs(ada):
    topic = EntityAddress(BUS, "news")
    run_python(printed(ada, f"/code/{BUS}/news?new=topic")["python"])
    run_python(printed(ada, f"/code/{topic}?op=create_subscription")["python"])
    [subscription] = [entity.address for entity in entities.list_entities(BUS) if entity.kind is EntityKind.SUBSCRIPTION]
    before = len(entities.list_rules(subscription))
    with pytest.raises(BrokerError):
        printed_rule(ada, subscription, "$Default")
    printed_rule(ada, subscription, "mine")
    assert len(entities.list_rules(subscription)) == before + 1
    run_python(printed(ada, f"/code/{topic}")["python"])
    run_python(printed(ada, f"/code/{subscription}?op=complete")["python"])
    assert counts(subscription).total == 0


def printed_rule(client, subscription, name):
    written = of.operations("service_bus")["create_rule"].write(subscription, {"name": name})
    (program, *_) = code.programs([written], "http://here")
    run_python(program.text)


# Queue Storage and RabbitMQ


def put():
    queue_storage.put(STORED, "holiday.jpg")


def lease():
    put()
    queue_storage.get(STORED)


OF_STORED = {
    "put": (nothing, lambda: queue_storage.approximate_count(STORED) == 1),
    "get": (put, lambda: row(at=STORED).last_received_at is not None),
    "delete": (put, lambda: queue_storage.approximate_count(STORED) == 0),
    "update": (put, lambda: row(at=STORED).renewals == 1),
    "peek": (put, lambda: queue_storage.approximate_count(STORED) == 1),
    "purge": (put, lambda: queue_storage.approximate_count(STORED) == 0),
    "create_queue": (lambda: queue_storage.delete_queue(STORED), lambda: queue_storage.get_queue(STORED) is not None),
}
OF_STORED_MESSAGE = {
    "put": (put, lambda: queue_storage.approximate_count(STORED) == 2),
    "edit": (put, lambda: queue_storage.peek(STORED)[0].text == "new text"),
    "delete": (lease, lambda: queue_storage.approximate_count(STORED) == 0),
    "update": (lease, lambda: row(at=STORED).renewals == 1),
    "release": (lease, lambda: len(queue_storage.peek(STORED)) == 1),
    "discard": (put, lambda: queue_storage.approximate_count(STORED) == 0),
}


def publish():
    rabbitmq.publish(
        HOST, [rabbitmq.Publication(b"dear", "", "letters", rabbitmq.Properties(message_id="l-1", headers={"a": "b"}))]
    )


def newest(at):
    return reads.events(EventFilter(namespace=at.namespace), limit=1).rows[0].kind


OF_LETTERS = {
    "publish": (nothing, lambda: counts(LETTERS).active == 1),
    "get": (publish, lambda: counts(LETTERS).total == 0),
    "requeue": (publish, lambda: counts(LETTERS).active == 1 and newest(LETTERS) is EventKind.ABANDONED),
    "reject": (publish, lambda: counts(LETTERS).total == 0 and newest(LETTERS) is EventKind.DROPPED),
    "purge": (publish, lambda: counts(LETTERS).total == 0),
    "declare_queue": (lambda: rabbitmq.delete_queue(LETTERS), lambda: rabbitmq.get_queue(LETTERS) is not None),
    "bind": (nothing, lambda: any(one.source == "amq.fanout" for one in rabbitmq.list_bindings(HOST))),
}


QUEUES = {QUEUE: OF_QUEUE, STORED: OF_STORED, LETTERS: OF_LETTERS}
MESSAGES = {QUEUE: OF_MESSAGE, STORED: OF_STORED_MESSAGE}


@pytest.mark.parametrize(("at", "operation"), [(at, operation) for at, table in QUEUES.items() for operation in table], ids=str)
def test_the_code_of_a_queue_runs(at, operation, ada):
    before, holds = QUEUES[at][operation]
    text = printed(ada, f"/code/{at}?op={operation}")["python"]
    before()
    run_python(text)
    assert holds(), text


@pytest.mark.parametrize(("at", "operation"), [(at, operation) for at, table in MESSAGES.items() for operation in table], ids=str)
def test_the_code_of_a_message_runs(at, operation, ada):
    before, holds = MESSAGES[at][operation]
    before()
    text = printed(ada, f"/code/{at}?op={operation}&number=1")["python"]
    run_python(text)
    assert holds(), text


def test_the_code_of_a_rabbitmq_message_runs(ada):
    publish()
    run_python(printed(ada, f"/code/{LETTERS}?number=1")["python"])
    assert counts(LETTERS).active == 2
    for number in (1, 2):
        run_python(printed(ada, f"/code/{LETTERS}?number={number}&op=edit")["python"])
        assert reads.body(LETTERS, number).content == b"new body"
    with rabbitmq.connect(HOST) as connection:
        first, second = (connection.channel().get("letters") for _ in range(2))
        assert (first.body, first.properties.headers, first.properties.message_id) == (
            second.body, second.properties.headers, second.properties.message_id
        )  # fmt: skip
        assert counts(LETTERS).locked == 2
        run_python(printed(ada, f"/code/{LETTERS}?number=1&op=release")["python"])
        assert counts(LETTERS).locked == 1
    run_python(printed(ada, f"/code/{HOST}/amq.default?new=publication")["python"].replace("my-key", "letters"))
    assert counts(LETTERS).active == 3


@pytest.mark.parametrize("value", [timedelta(seconds=1_234_567), timedelta(days=9_999), timedelta(microseconds=1), timedelta(0)])
def test_a_duration_is_printed_exactly(value):
    assert eval(code.literal(value), {"timedelta": timedelta}) == value


def test_each_operation_that_is_offered_is_tried():
    """A new one needs a row in these tables."""
    tables = {
        Family.SERVICE_BUS: (OF_QUEUE, OF_MESSAGE), Family.QUEUE_STORAGE: (OF_STORED, OF_STORED_MESSAGE),
        Family.RABBITMQ: (OF_LETTERS, {"publish", "edit", "get", "release"}),
    }  # fmt: skip
    for family, (of_queue, of_message) in tables.items():
        module = of._module(family)
        assert set(module.OF_ENTITY[EntityKind.QUEUE]) == set(of_queue)
        assert {*module.OF_MESSAGE, *module.OF_DEAD_LETTER} == set(of_message)


# New entities


@pytest.mark.parametrize(
    ("at", "exists"),
    [
        (f"/code/{BUS}/my-queue?new=queue", lambda: entities.get_queue(EntityAddress(BUS, "my-queue"))),
        (f"/code/{STORE}/my-queue?new=queue", lambda: queue_storage.get_queue(EntityAddress(STORE, "my-queue"))),
        (f"/code/{HOST}/my-queue?new=queue", lambda: rabbitmq.get_queue(EntityAddress(HOST, "my-queue"))),
    ],
)
def test_the_creation_of_a_queue_runs(at, exists, ada):
    run_python(printed(ada, at)["python"])
    assert exists()


# Lessons


@pytest.mark.parametrize("slug", [one.slug for one in catalog.lessons() if not one.load])
def test_each_action_of_a_lesson_has_code_that_python_reads(slug):
    lesson = catalog.lesson(slug)
    for step in lesson.steps:
        actions = [(do.action, do.arguments) for do in step.do]
        for program in of.of_actions(lesson.family, "learn1", actions, "http://here") if actions else ():
            if program.name == "python":
                compile(program.text, step.title, "exec")
        assert not actions or of.of_actions(lesson.family, "learn1", actions, "http://here"), step.title


HOLDING = ("receive", "receive_deferred", "get", "complete", "abandon", "defer", "delete", "update")


@pytest.mark.parametrize("slug", ["time-to-live", "schedule-and-defer", "topics", "ttl-and-dead-letters", "visibility-timeout"])
def test_a_lesson_can_be_played_by_its_code(slug, as_, transactional_db):
    """Where a step expects an action of the person, or holds a message for a later one, its button is pressed: the program is
    somebody else."""
    vera = as_("viewer")
    at, by_code = start(vera, slug), 0
    for step in catalog.lesson(slug).steps:
        if step.ask:
            vera.post(at, {"act": "answer", "answer": step.ask.right})
        names_actor = any("by" in expectation.attributes for expectation in step.expect) or any(do.by for do in step.do)
        needs_lock = any(do.action in HOLDING and "then" not in do.arguments for do in step.do)
        if step.do and not names_actor and not needs_lock:
            run_python(printed(vera, f"{at}code/")["python"])
            by_code += 1
            assert vera.get(at).context["done"] or not step.expect, step.title
        if not vera.get(at).context["done"]:
            vera.post(at, {"act": "do"})
        assert vera.get(at).context["done"], step.title
        vera.post(at, {"act": "next"})
    assert by_code


# The pages


def test_the_dialog_and_the_page_have_the_same_programs(ada):
    whole, fragment = ada.get(f"/code/{QUEUE}"), ada.get(f"/code/{QUEUE}", headers=FRAGMENT)
    for page in (whole, fragment):
        assert page.status_code == 200 and "service_bus.send(" in body_of(page)
    assert "<main" in body_of(whole) and "<main" not in body_of(fragment) and "data-close" in body_of(fragment)
    assert "pika" not in body_of(whole) and "azure-servicebus" not in body_of(whole), "what does not run is not shown"
    assert set(code.LANGUAGES) == {"python", "http", "azure-servicebus", "azure-storage-queue", "pika"}


@pytest.mark.parametrize(
    ("at", "status"),
    [
        (f"/code/{QUEUE}?op=fly", 400),
        (f"/code/{QUEUE}?op=resubmit", 400),
        (f"/code/{QUEUE}?number=x", 400),
        (f"/code/{QUEUE}?number=99", 404),
        (f"/code/{QUEUE}?new=castle", 400),
        (f"/code/{BUS}/none", 404),
        ("/code/none/none?new=queue", 404),
    ],
)
def test_bad_addresses_of_code_are_refused(at, status, ada):
    assert ada.get(at).status_code == status


def test_a_body_that_a_person_may_not_see_is_not_printed(ada, as_):
    send(b"secret")
    send(b"x" * (of.MOST_BODY + 1))
    page = body_of(as_("viewer").get(f"/code/{QUEUE}?number=1"))
    assert "secret" not in page and "permission to view message bodies" in page
    assert "is replaced" in body_of(ada.get(f"/code/{QUEUE}?number=2"))


def test_a_form_that_creates_opens_without_a_namespace_to_choose(ada):
    """Regression: its link to the code needed one."""
    for name in (BUS, STORE):
        delete_all(name)
    for at in ("/new/queue/", "/new-storage-queue/", "/rabbitmq/new/queue/"):
        assert ada.get(at).status_code == 200, at


def delete_all(namespace):
    sandboxes.delete_namespace(namespace, Family.SERVICE_BUS if namespace == BUS else Family.QUEUE_STORAGE)


def test_pages_lead_to_their_code(ada):
    lock()
    for at, link in (
        (f"/entities/{QUEUE}", f"/code/{QUEUE}"),
        (f"/messages/{QUEUE}/1", f"/code/{QUEUE}?number=1"),
        (f"/send/{QUEUE}", f"/code/{QUEUE}"),
        (f"/receive/main/{QUEUE}", f"/code/{QUEUE}?op=receive"),
        (f"/receive/dead-letter/{QUEUE}", f"/code/{QUEUE}?op=receive&subqueue=dead-letter"),
        (f"/operate/{QUEUE}?kind=purge&tab=active", f"/code/{QUEUE}?op=purge"),
        (f"/send/{STORED}", f"/code/{STORED}"),
        (f"/receive/main/{STORED}", f"/code/{STORED}?op=get"),
    ):
        page = ada.get(at).content.decode().replace("&amp;", "&")
        assert f'href="{link}"' in page, at


# The command


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("demo", {}, "not an address of the REST API"),
        ("http://localhost/servicebus/", {}, "not an address of the REST API"),
        ("http://localhost/servicebus/nowhere", {}, "nowhere"),
        (f"http://localhost/servicebus/{BUS}", {"policy": "none"}, "none"),
        ("http://localhost:5300/orders", {}, "or any other with --namespace NAMESPACE"),
        ("http://localhost:5300/orders", {"namespace": "nowhere"}, "nowhere"),
        (f"http://localhost/servicebus/{BUS}", {"seconds": 0}, "between 1 and 86,400"),
    ],
)
def test_a_token_for_a_wrong_address_is_refused(url, options, problem, ada):
    with pytest.raises(CommandError, match=re.escape(problem)):
        call_command("sas_token", url, **options)


# In a browser, at the end: commands do not run while its event loop is in this thread.


@pytest.mark.slow
def test_code_opens_in_a_dialog_by_keyboard(ada, live_site, new_context, sign_in):
    context = new_context(viewport=DESK, bypass_csp=True)
    sign_in(context, ada.user)
    page = context.new_page()
    page.goto(f"{live_site}/entities/{QUEUE}")
    page.locator("#more > summary").focus()
    page.keyboard.press("Enter")
    page.locator("#more").get_by_text("Show as code").focus()
    page.keyboard.press("Enter")
    dialog = page.locator("#ask")
    expect(dialog).to_be_visible()
    expect(dialog.locator("#code-python")).to_contain_text("service_bus.send(")
    assert problems(page) == []
    dialog.get_by_role("link", name="Complete").focus()
    page.keyboard.press("Enter")
    expect(dialog.locator("#ask-title")).to_contain_text("Complete")
    dialog.locator("summary", has_text="HTTP").focus()
    page.keyboard.press("Enter")
    expect(dialog.locator("#code-http")).to_contain_text("sas_token")
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    page.set_viewport_size(PHONE)
    page.goto(f"{live_site}/code/{QUEUE}?op=complete")
    assert problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
