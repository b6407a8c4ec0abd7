"""The Python examples of the README and of docs/: they can be pasted into a shell, and they run as they stand."""

import codeop
import re
from pathlib import Path

import pytest

from broker_core import namespaces, reads
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities

from .fixtures import broker_database  # noqa: F401 - fixture

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


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


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


def test_curl_examples_use_only_entities_they_create(broker_database):  # noqa: F811
    """And no messages wait in them, so that the first receive returns what was sent."""
    namespaces.create_namespace("demo", Family.SERVICE_BUS)
    exec(blocks(ROOT / "docs/http.md")[0], {})
    used = re.findall(r"servicebus/(demo/[a-z-]+)`?$", (ROOT / "docs/http.md").read_text().replace("`:", "`"), re.MULTILINE)
    assert len(used) == 2 and all(reads.entity(EntityAddress.parse(address)) for address in used)


def test_readme_examples_do_not_change_the_playground_of_the_first_five_minutes():
    assert not any("playground" in block for block in blocks(ROOT / "README.md"))


@pytest.mark.parametrize("name", RUNNABLE)
def test_examples_run_in_sequence(broker_database, name, capsys):  # noqa: F811
    namespaces.create_namespace("demo", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("demo", "playground"))
    world = {}
    for block in blocks(ROOT / name):
        for statement in pasted(block):
            exec(statement, world)
    printed = capsys.readouterr().out.splitlines()
    for told in re.findall(r"^    ((?:expired|lock ended) \| .+|2 messages of .+)$", (ROOT / name).read_text(), re.MULTILINE):
        assert told.strip() in [line.strip() for line in printed]
