"""The README's examples of clients, on a site that `make up` starts, with nothing but what a new site has."""

import re
import subprocess
import sys

import pytest

from .vitrine import ROOT, Vitrine, environment, manage

ACCOUNT, PORT = "devstoreaccount1", ":10001"


def example(language: str, part: str) -> str:
    """The only block of the README in this language that contains the part."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if part in block]
    return found


@pytest.fixture(scope="module")
def vitrine():
    with Vitrine() as running:
        yield running


@pytest.mark.slow
def test_microsofts_client_reaches_a_new_site(vitrine):
    ports = {"QUEUE_STORAGE_PORT": str(vitrine.queue_storage_port)}
    printed = manage("connection_string", ACCOUNT, "--client", "sdk", data=vitrine.data, **ports).stdout.strip()
    program = example("python", "azure.storage").replace("UseDevelopmentStorage=true", printed)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "hello 1\n"), done.stderr


@pytest.mark.slow
def test_the_administration_client_reaches_a_new_site(vitrine):
    program = example("python", "azure.servicebus").replace(":5300", f":{vitrine.service_bus_port}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "reports 3 0\n"), done.stderr


@pytest.mark.slow
def test_curl_reaches_a_new_site(vitrine):
    commands = example("sh", "curl").replace(PORT, f":{vitrine.queue_storage_port}")
    command = ["/bin/bash", "-eu", "-o", "pipefail", "-c", commands]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(vitrine.data), capture_output=True, text=True, timeout=120, check=False
    )
    assert re.findall(r"HTTP/1.1 (\d{3})", done.stdout) == ["201", "201", "200"], done.stdout + done.stderr
    assert "<MessageText>hello</MessageText>" in done.stdout
