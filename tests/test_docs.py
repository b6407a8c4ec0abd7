"""The examples of the README and of docs/: those in Python can be pasted into a shell; they, and those with curl, run."""

import codeop
import os
import re
import subprocess
from functools import reduce
from pathlib import Path

import pytest

from broker_core import namespaces, queue_storage
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas

from .fixtures import broker_database  # noqa: F401 - fixture
from .wire.listening import database_url_of_tests

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

RUNNABLE = [
    "README.md",
    "docs/entities.md",
    "docs/messages.md",
    "docs/queue-storage.md",
    "docs/sessions.md",
    "docs/understanding.md",
]


SDK = "from azure."  # how an example begins that needs the listener, and a package that users install themselves
WITH_CURL = ["README.md", "docs/http.md", "docs/queue-storage-rest.md", "docs/service-bus-administration.md"]


def blocks(page, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def pasted(block):
    """The statements that a Python shell makes of lines typed one by one. Raises SyntaxError where it refuses one."""
    waiting = []
    for line in [*block.splitlines(), ""]:
        waiting.append(line)
        if statement := codeop.compile_command("\n".join(waiting)):
            yield statement
            waiting = []
    assert not waiting


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples_can_be_pasted_into_a_shell(page):
    for block in blocks(page):
        assert list(pasted(block))


def test_readme_examples_do_not_change_the_playground_of_the_first_five_minutes():
    assert not any("playground" in block for block in blocks(ROOT / "README.md"))


@pytest.mark.parametrize("name", RUNNABLE)
def test_examples_run_in_sequence(broker_database, name, capsys):  # noqa: F811
    namespaces.create_namespace("demo", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("demo", "playground"))
    world = {}
    for block in blocks(ROOT / name):
        if block.startswith(SDK):
            continue
        for statement in pasted(block):
            exec(statement, world)
    printed = capsys.readouterr().out.splitlines()
    for told in re.findall(r"^    ((?:expired|lock ended) \| .+|2 messages of .+)$", (ROOT / name).read_text(), re.MULTILINE):
        assert told.strip() in [line.strip() for line in printed]


@pytest.fixture
def ports(live_site, listener):
    """A site as `make up` seeds it, and the ports of this test for those in examples."""
    from broker_core.queue_storage import accounts
    from broker_core.queue_storage.rules.shared_key import PUBLISHED_ACCOUNT, PUBLISHED_KEY

    queue_storage.create_account(PUBLISHED_ACCOUNT)
    accounts.set_keys(PUBLISHED_ACCOUNT, primary=PUBLISHED_KEY)
    namespaces.create_namespace(sas.PUBLISHED_NAMESPACE, Family.SERVICE_BUS)
    shared_access.set_keys(sas.PUBLISHED_NAMESPACE, shared_access.ROOT_POLICY, primary=sas.PUBLISHED_KEY)
    namespaces.create_namespace("demo", Family.SERVICE_BUS)
    exec(blocks(ROOT / "docs/http.md")[0], {})
    listening = {":10001": listener.port("QUEUE_STORAGE_PORT"), ":5300": listener.port("SERVICE_BUS_PORT")}
    return {"localhost:8000": live_site.removeprefix("http://"), **{text: f":{port}" for text, port in listening.items()}}


def with_sdk(name):
    """The only example of the README with this SDK."""
    (example,) = [block for block in blocks(ROOT / "README.md") if block.startswith(SDK) and f"from azure.{name}" in block]
    return example


def test_the_example_with_the_storage_sdk_runs(ports, capsys, monkeypatch):
    from azure.storage.queue import QueueServiceClient
    from azure.storage.queue._shared import base_client

    def endpoint(service):
        return f"http://127.0.0.1{ports[':10001']}/devstoreaccount1"

    monkeypatch.setattr(base_client, "_get_development_storage_endpoint", endpoint)
    exec(with_sdk("storage"), {})
    assert capsys.readouterr().out == "hello 1\n"
    service = QueueServiceClient.from_connection_string("UseDevelopmentStorage=true")
    assert [queue.name for queue in service.list_queues()] == ["letters"]


def test_the_example_with_the_administration_client_runs(ports, capsys):
    exec(with_sdk("servicebus").replace(":5300", ports[":5300"]), {})
    assert capsys.readouterr().out == "reports 3 0\n"
    (rule,) = entities.list_rules(EntityAddress(sas.PUBLISHED_NAMESPACE, "prices").subscription("cheap"))
    assert rule.rule.name == "below"


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_CURL)
def test_examples_with_curl_run_as_printed(ports, name):
    """Each comment says what the next request is answered with."""
    environment = os.environ | {"DATABASE_URL": database_url_of_tests()}
    for example in blocks(ROOT / name, "sh"):
        expected = re.findall(r"^# [^:]*: (\d{3})\b", example, re.MULTILINE)
        assert len(expected) == len(re.findall(r"(?<!/)curl -", example))
        here = reduce(lambda text, port: text.replace(*port), ports.items(), example)
        command = ["/bin/bash", "-eu", "-o", "pipefail", "-c", here]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, errors="replace", timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert re.findall(r"HTTP/1.1 (\d{3})", done.stdout) == expected, done.stdout
