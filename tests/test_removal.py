"""A family, or a front end, is removed by deleting its folders and its lines in the registries: the rest imports and starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent
STARTS = """
import importlib, pathlib
import django
django.setup()
from django.apps import apps
from django.contrib import admin
from django.test import Client
from django.urls import get_resolver
from broker_core.common.family import installed
from broker_core.listener.front_ends import known_ports
from explorer.site import health

for package in ("broker_core", "explorer"):
    for path in pathlib.Path(package).rglob("*.py"):
        if "migrations" not in path.parts:
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
admin.autodiscover()
get_resolver().url_patterns
from django.core.management import call_command
call_command("check")
client = Client(headers={"host": "localhost"})
assert health.current_state()["state"] == "ok"
assert client.get("/sign-in/", follow=True).status_code in (200, 404)
print("installed:", ", ".join(one.title for one in installed()))
print("ports:", ", ".join(port.setting for port in known_ports()))
"""

LISTENER = "broker_core/listener/front_ends.py"
# The folder of each front end, the registries that have lines of it, by what these contain, and the ports that go with it.
FRONT_ENDS = {
    "service_bus/http": ((LISTENER, "explorer/site/front_ends.py"), "service_bus_http|service_bus import http", ()),
    "service_bus/administration": ((LISTENER,), "administration", ()),
    "queue_storage/http": ((LISTENER,), "queue_storage", ("QUEUE_STORAGE_PORT",)),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources."""
    for name in ("broker_core", "explorer", "templates", "static"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("manage.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def without_lines(file: Path, pattern: str) -> None:
    lines = file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not re.search(pattern, line)]
    assert len(kept) < len(lines)
    file.write_text("".join(kept))


def start(tree: Path) -> str:
    """What the remaining site prints once it has imported all its modules and answered requests."""
    settings = connection.settings_dict
    params = connection.get_connection_params()
    host = params.get("host", "")
    at = f"host={host}&port={params.get('port', 5432)}"
    url = f"postgresql://{params['user']}:{params.get('password', '')}@/{settings['NAME']}?{at}"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "explorer.site.settings",
        "DATABASE_URL": url,
        "VITRINE_DATA": str(tree / "data"),
        "PYTHONPATH": str(tree),
        "SECRET_KEY": "x" * 50,
    }
    done = subprocess.run(
        [sys.executable, "-c", STARTS], cwd=tree, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("family", "name", "pages", "commands", "remaining"),
    [
        ("queue_storage", "QueueStorage", "StoragePages", ("storage_sas",), "Service Bus, RabbitMQ"),
        ("rabbitmq", "RabbitMQ", "RabbitPages", ("export_definitions", "import_definitions"), "Service Bus, Queue Storage"),
    ],
)
def test_a_family_is_removed_with_its_folders_and_commands(tree, family, name, pages, commands, remaining):
    shutil.rmtree(tree / "broker_core" / family)
    shutil.rmtree(tree / "explorer" / family)
    for command in commands:
        (tree / "broker_core" / "management" / "commands" / f"{command}.py").unlink()
    without_lines(tree / "broker_core" / "families.py", name)
    without_lines(tree / "explorer" / "families.py", pages)
    if family == "queue_storage":
        without_lines(tree / LISTENER, family)
    assert f"installed: {remaining}" in start(tree)


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("folder", FRONT_ENDS)
def test_a_front_end_is_removed_with_its_folder(tree, folder):
    registries, lines, ports = FRONT_ENDS[folder]
    shutil.rmtree(tree / "broker_core" / folder)
    for registry in registries:
        without_lines(tree / registry, lines)
    started = start(tree)
    assert "installed: Service Bus, Queue Storage, RabbitMQ" in started
    [opened] = re.findall("^ports: (.*)$", started, re.MULTILINE)
    assert {port for port in ("SERVICE_BUS_PORT", "QUEUE_STORAGE_PORT") if port not in opened} == set(ports)
