"""The clients for JavaScript, in `node_modules` beside this file, which git ignores.

`python -m tests.official_clients.node.installed` installs them from npm's registry where they are missing and that can be done.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LEAST_NODE = 20  # which the clients ask for
SECONDS = 120  # for npm, which tries an unreachable registry for many minutes otherwise


def missing() -> str | None:
    """Why the clients cannot be run; None: they can."""
    if not shutil.which("node"):
        return "There is no Node.js here"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < LEAST_NODE:
        return f"Node.js here is {version}, and the clients need {LEAST_NODE} or later"
    for name, wanted in _wanted().items():
        try:
            found = json.loads((FOLDER / "node_modules" / name / "package.json").read_text())["version"]
        except OSError:
            return f"There is no {name} in {FOLDER / 'node_modules'}"
        if found != wanted:
            return f"There is {name} {found} in {FOLDER / 'node_modules'}, and not {wanted}"
    return None


def install() -> str | None:
    """Install what is missing. Returns why that was not possible."""
    if not missing():
        return None
    if not shutil.which("npm"):
        return "There is no npm here"
    print(f"Installing {', '.join(_wanted())} into {FOLDER / 'node_modules'}, once.", flush=True)
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", "--loglevel=error"]  # no package's script is run
    brief = ["--fetch-retries=1", "--fetch-timeout=20000"]
    try:
        done = subprocess.run(
            ["npm", "install", "--prefix", str(FOLDER), *quiet, *brief],
            check=False, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"npm could not install the clients within {SECONDS} s"
    if done.returncode:
        return f"npm could not install the clients: {' '.join(done.stderr.split())[-300:]}"
    return missing()


def _wanted() -> dict[str, str]:
    """The versions by package, as package.json pins them."""
    return json.loads((FOLDER / "package.json").read_text())["dependencies"]


if __name__ == "__main__":
    if problem := install():
        print(f"{problem}. The tests that need the clients for JavaScript are skipped.", file=sys.stderr)
