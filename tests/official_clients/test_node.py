"""Microsoft's clients for JavaScript: @azure/storage-queue is told the stories in node/stories.mjs, and the administration client
of @azure/service-bus those in node/administration.mjs."""

import os
import re
import subprocess

import pytest

from tests.wire.listening import listening

from .node import installed


def stories_in(file: str) -> list[str]:
    return re.findall(r'^test\("([^"]+)"', (installed.FOLDER / file).read_text(), re.MULTILINE)


def tell(file: str, story: str, **environment: str) -> None:
    """Run one story, and expect that it passes."""
    if problem := installed.missing():
        pytest.skip(f"{problem}: make test-clients installs it where it can")
    command = ["node", "--test", "--test-reporter=tap", f"--test-name-pattern=^{re.escape(story)}$", file]
    done = subprocess.run(
        command, cwd=installed.FOLDER, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "# pass 1\n" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("story", stories_in("stories.mjs"))
def test_a_story_of_the_client_for_javascript(storage, development_storage, story):
    tell("stories.mjs", story, ACCOUNT=storage.name, KEY=storage.key, URL=storage.url, PORT=str(storage.port))


@pytest.mark.parametrize("story", stories_in("administration.mjs"))
def test_a_story_of_the_administration_client_for_javascript(bus, with_tls, story):
    """It always uses TLS."""
    with listening(["SERVICE_BUS_TLS_PORT"]) as served:
        host = f"127.0.0.1:{served.port('SERVICE_BUS_TLS_PORT')}"
        namespace = {"NAME": bus.name, "POLICY": bus.policy, "KEY": bus.key, "HOST": host}
        tell("administration.mjs", story, NODE_EXTRA_CA_CERTS=with_tls.authority, **namespace)
