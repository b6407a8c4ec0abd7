"""Connect a client: what the page prints runs as it is printed, keys are shown by right, and nothing is promised."""

import html
import re
import subprocess

import pytest

from broker_core import queue_storage, service_bus
from broker_core.common.types import EntityAddress
from broker_core.queue_storage import accounts
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from explorer.models import AuditRecord
from tests.wire.listening import listening

from .conftest import FRAGMENT

pytest_plugins = ["tests.explorer.rabbitmq_office"]


def printed(response) -> dict[str, str]:
    """The programs and connection strings of a page, by the ids of their elements."""
    assert response.status_code == 200
    found = re.findall(r'<pre[^>]*id="([\w-]+)"[^>]*>(.*?)</pre>', response.content.decode(), re.DOTALL)
    return {name: html.unescape(text) for name, text in found}


def run_shell(text: str) -> str:
    done = subprocess.run(["/bin/bash", "-eu", "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture
def pictures(transactional_db):
    queue_storage.create_account("photos")
    address = EntityAddress("photos", "pictures")
    queue_storage.create_queue(address)
    return address


@pytest.fixture
def queue(namespace, transactional_db):
    address = EntityAddress(namespace, "orders")
    entities.create_queue(address)
    return address


# What is printed, runs


def test_the_program_of_the_storage_sdk_sends_and_receives(pictures, listener, settings, as_, capsys):
    settings.QUEUE_STORAGE_PORT = listener.port()
    program = printed(as_("administrator").post(f"/connect/{pictures}"))["code-azure-storage-queue"]
    exec(compile(program, "printed", "exec"), {})
    assert capsys.readouterr().out == "hello\n"
    assert queue_storage.peek(pictures) == []


def test_the_requests_of_the_storage_rest_api_put_and_get(transactional_db, listener, settings, as_):
    settings.QUEUE_STORAGE_PORT = listener.port()
    drawings = EntityAddress("drawings", "pencil")  # an account whose keys the listener has not cached
    queue_storage.create_account(drawings.namespace)
    queue_storage.create_queue(drawings)
    output = run_shell(printed(as_("administrator").post(f"/connect/{drawings}"))["code-curl"])
    assert "HTTP/1.1 201" in output and "<DequeueCount>1</DequeueCount><MessageText>hello</MessageText>" in output
    assert queue_storage.peek(drawings) == [], "it is hidden from others"


def test_without_the_plain_port_the_programs_use_the_one_with_tls(pictures, settings, as_):
    settings.QUEUE_STORAGE_PORT, settings.QUEUE_STORAGE_TLS_PORT = 0, 10011
    settings.TLS_CERTIFICATE = settings.TLS_KEY = "given.pem"
    found = printed(as_("viewer").get(f"/connect/{pictures}"))
    assert "QueueEndpoint=https://127.0.0.1:10011/photos;" in found["code-azure-storage-queue"]
    assert found["code-curl"].startswith("Q=https://127.0.0.1:10011/photos/pictures\nKEY='<key>'\n")


def test_the_program_of_the_rest_api_sends_and_receives(queue, live_site, as_):
    client, host = as_("administrator"), live_site.removeprefix("http://")
    program = printed(client.post(f"/connect/{queue}", headers={"host": host}))["code-curl"]
    output = run_shell(program)
    assert "HTTP/1.1 201" in output and output.endswith("hello")
    assert service_bus.peek(queue) == []


def test_the_programs_of_topics_subscriptions_and_sessions_do_what_these_can(namespace, live_site, as_):
    client, host = as_("administrator"), {"host": live_site.removeprefix("http://")}
    topic, sessions = EntityAddress(namespace, "news"), EntityAddress(namespace, "carts")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    entities.create_queue(sessions, requires_session=True)
    for address in (topic, sessions):
        output = run_shell(printed(client.post(f"/connect/{address}", headers=host))["code-curl"])
        assert "HTTP/1.1 201" in output and "hello" not in output
    assert [message.session_id for message in service_bus.peek(sessions)] == ["session-1"]
    output = run_shell(printed(client.post(f"/connect/{topic.subscription('all')}", headers=host))["code-curl"])
    assert "HTTP/1.1 200" in output and output.endswith("hello")


@pytest.fixture
def administered(namespace, transactional_db):
    """A queue, a topic and its subscription."""
    queue, topic = EntityAddress(namespace, "a/orders"), EntityAddress(namespace, "news")
    entities.create_queue(queue, max_delivery_count=3)
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    service_bus.send(queue, [service_bus.Message(b"x")])
    return {queue: "3 1\n", topic: "['all']\n", topic.subscription("all"): "$Default "}


def test_the_programs_of_the_administration_client_read_entities(administered, listener, settings, as_, capsys):
    settings.SERVICE_BUS_PORT = listener.port("SERVICE_BUS_PORT")
    for address, output in administered.items():
        program = printed(as_("administrator").post(f"/connect/{address}"))["code-azure-servicebus"]
        exec(compile(program, "printed", "exec"), {})
        assert capsys.readouterr().out.startswith(output) and "PlainHttp" in program


def test_the_program_of_a_namespace_lists_its_queues(administered, namespace, listener, settings, as_, capsys):
    settings.SERVICE_BUS_PORT = listener.port("SERVICE_BUS_PORT")
    program = printed(as_("administrator").post(f"/connect/{namespace}/"))["code-azure-servicebus"]
    exec(compile(program, "printed", "exec"), {})
    assert capsys.readouterr().out == "a/orders\n"


def test_without_the_plain_port_the_administration_client_uses_the_one_with_tls(
    administered, with_tls, settings, as_, capsys, monkeypatch
):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", with_tls.authority)
    with listening(["SERVICE_BUS_TLS_PORT"]) as served:
        settings.SERVICE_BUS_PORT, settings.SERVICE_BUS_TLS_PORT = 0, served.port("SERVICE_BUS_TLS_PORT")
        for address, output in administered.items():
            program = printed(as_("administrator").post(f"/connect/{address}"))["code-azure-servicebus"]
            exec(compile(program, "printed", "exec"), {})
            assert capsys.readouterr().out.startswith(output) and "PlainHttp" not in program


def test_without_a_port_there_is_no_program_of_the_administration_client(queue, settings, as_):
    settings.SERVICE_BUS_PORT = settings.SERVICE_BUS_TLS_PORT = 0
    assert "code-azure-servicebus" not in printed(as_("viewer").get(f"/connect/{queue}"))


# Keys


def test_an_administrator_sees_the_key_on_request_and_that_is_recorded(pictures, as_):
    client, key = as_("administrator"), accounts.get_keys("photos").primary_key
    page = client.get(f"/connect/{pictures}")
    assert "AccountKey=<key>;" in printed(page)["string-sdk"] and key not in html.unescape(page.content.decode())
    assert not AuditRecord.objects.exists()
    page = client.post(f"/connect/{pictures}")
    assert f"AccountKey={key};" in printed(page)["string-sdk"] and key in printed(page)["code-azure-storage-queue"]
    assert "no-store" in page["Cache-Control"] and "Show with key" not in page.content.decode()
    assert [(act.action, act.path, act.outcome) for act in AuditRecord.objects.all()] == [("show keys", "pictures", "done")]
    assert not AuditRecord.objects.filter(detail__contains=key).exists()


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_may_not_see_keys_sees_a_placeholder(pictures, queue, as_, role):
    client = as_(role)
    for address in (pictures, queue, "photos/"):
        page = client.get(f"/connect/{address}")
        assert all("<key>" in text for name, text in printed(page).items() if name.startswith("string"))
        text = page.content.decode()
        assert "Showing keys requires the administrator role." in text and "Show with key" not in text
        assert client.post(f"/connect/{address}").status_code == 403
    assert not AuditRecord.objects.filter(outcome="done").exists()


def test_a_published_key_is_no_secret_of_administrators_as_long_as_it_is_the_key(transactional_db, settings, as_):
    settings.QUEUE_STORAGE_PORT = 10001
    queue_storage.create_account("devstoreaccount1")
    client, viewer = as_("administrator"), as_("viewer")
    assert printed(client.get("/connect/devstoreaccount1/"))["string-development"] == "UseDevelopmentStorage=true"
    assert "<key>" in printed(viewer.get("/connect/devstoreaccount1/"))["string-sdk"]
    accounts.regenerate_key("devstoreaccount1")
    assert "<key>" in printed(client.get("/connect/devstoreaccount1/"))["string-sdk"]


def test_a_namespace_without_its_root_policy_has_another_one(namespace, as_):
    shared_access.create_policy(namespace, "app", send=True)
    shared_access.delete_policy(namespace, "RootManageSharedAccessKey")
    client = as_("administrator")
    assert "SharedAccessKeyName=app;" in printed(client.post(f"/connect/{namespace}/"))["string-site"]
    shared_access.delete_policy(namespace, "app")
    page = client.post(f"/connect/{namespace}/")
    assert page.status_code == 400 and "has no policy" in html.unescape(page.content.decode())


# What is not served


def test_what_nothing_serves_is_said_and_not_printed(office, queue, as_):
    client = as_("viewer")
    page = client.get(f"/connect/{queue}")
    text = " ".join(page.content.decode().split())
    assert "Azure Service Bus SDKs (AMQP 1.0): not served yet." in text and ":5672" not in text
    page = client.get(f"/connect/{office.at}/mail")
    text = " ".join(page.content.decode().split())
    assert printed(page) == {} and "No client can connect to RabbitMQ over the network yet" in text
    assert "amqp://" not in text


def test_the_menus_lead_to_it(pictures, as_):
    client = as_("viewer")
    assert f'href="/connect/{pictures}"' in client.get(f"/entities/{pictures}").content.decode()
    assert 'href="/connect/photos/"' in client.get("/namespaces/photos/").content.decode()
    part = client.get(f"/connect/{pictures}", headers=FRAGMENT).content.decode()
    assert '<h2 id="ask-title">' in part and "<html" not in part
