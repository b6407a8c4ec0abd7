"""@azure/storage-queue, Microsoft's client for JavaScript: the stories in node/stories.mjs."""

import os
import re
import subprocess

import pytest

from .node import installed

STORIES = re.findall(r'^test\("([^"]+)"', (installed.FOLDER / "stories.mjs").read_text(), re.MULTILINE)


@pytest.mark.parametrize("story", STORIES)
def test_a_story_of_the_client_for_javascript(storage, development_storage, story):
    if problem := installed.missing():
        pytest.skip(f"{problem}: make test-clients installs it where it can")
    environment = {"ACCOUNT": storage.name, "KEY": storage.key, "URL": storage.url, "PORT": str(storage.port)}
    command = ["node", "--test", "--test-reporter=tap", f"--test-name-pattern=^{re.escape(story)}$", "stories.mjs"]
    done = subprocess.run(
        command, cwd=installed.FOLDER, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "# pass 1\n" in done.stdout, done.stdout + done.stderr
