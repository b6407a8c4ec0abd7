"""Azurite's queue service of one's own: on loopback only, with its data in its memory, and gone at the end.

`python -m tests.azurite.server` installs it from npm's registry where it is missing and where that can be done.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

from tests.differential.process import LOOPBACK, Processes, free_ports

INSTALLED_IN = Path(__file__).resolve().parents[2] / ".vitrine" / "azurite"  # which git ignores
MINOR = "3.37."  # the version that the differences were looked at with; any patch of it will do
STARTS_WITHIN = 60  # seconds
ACCOUNT = "stories"


def find() -> Path | None:
    """The queue service's script, of the right version; or None."""
    package = INSTALLED_IN / "node_modules" / "azurite"
    try:
        description = json.loads((package / "package.json").read_text())
    except OSError:
        return None
    script = package / description["bin"]["azurite-queue"]
    return script if description["version"].startswith(MINOR) and script.exists() else None


def install() -> str | None:
    """Install Azurite where it is missing. Returns why that was not possible."""
    if not shutil.which("node"):
        return "Azurite needs Node.js, and there is no node here"
    if find():
        return None
    if not shutil.which("npm"):
        return "there is no Azurite, and no npm to install it with"
    print(f"Installing Azurite into {INSTALLED_IN}, once: 365 MB on disk.", flush=True)
    INSTALLED_IN.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]  # no package's own script is run
    command = ["npm", "install", "--prefix", str(INSTALLED_IN), *quiet, f"azurite@~{MINOR}0"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return f"npm could not install Azurite: {' '.join(done.stderr.split())[-300:]}"
    return None if find() else "npm installed Azurite, but not where it is expected"


class Server:
    """A running queue service with one account. url: that account's address. Use it as a context manager."""

    def __init__(self, folder: Path):
        self.folder = folder / "azurite"
        (self._port,) = free_ports(1)
        self.url = f"http://{LOOPBACK}:{self._port}/{ACCOUNT}"
        self.key = base64.b64encode(uuid.uuid4().bytes).decode()
        self._processes = Processes(self.folder)

    def __enter__(self) -> Server:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        # The newest client is ahead of the service's list of versions: that check is left out.
        options = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
        command = ["node", str(find()), "--queueHost", LOOPBACK, "--queuePort", str(self._port), *options]
        try:
            self._processes.start("queue service", command, os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.key}"})
            self._processes.wait("queue service", self._answers, STARTS_WITHIN)
        except BaseException:
            self._processes.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.stop()

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self._port), 1):
                return True
        except OSError:
            return False


if __name__ == "__main__":
    if problem := install():
        print(f"{problem}. The tests that need it are skipped.", file=sys.stderr)
