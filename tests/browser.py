"""The browser of the tests: Chrome or Chromium, found on this machine or installed. `python -m tests.browser` installs one.

A browser counts only if it starts: a program without its libraries, or Ubuntu's placeholder of a snap, is not one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache

PROGRAMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
INSTALL_SECONDS = 900
MISSING = "No Chrome or Chromium was found"  # why a test is skipped


@cache
def find() -> str | None:
    """The path of the browser that the tests use, or None. One on the path comes before one that Playwright has installed."""
    return next((path for path in _candidates() if _succeeds([path, "--version"], seconds=60)), None)


def _candidates() -> Iterator[str]:
    yield from filter(None, map(shutil.which, PROGRAMS))
    if path := _path_of_playwright():
        yield path


def _path_of_playwright() -> str | None:
    """Where Playwright's own Chromium is, if Playwright is installed; the file may be missing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def ensure() -> None:
    """Install a browser if there is none, as far as this machine allows: pytest then says what is skipped."""
    if find():
        return
    print("No Chrome or Chromium was found. Installing Chromium for the browser tests, once.", flush=True)
    for command in _installations():
        if not _succeeds(command, seconds=INSTALL_SECONDS):
            print(f"This command failed: {' '.join(command)}", flush=True)
        find.cache_clear()
        if find():
            return


def _installations() -> Iterator[Sequence[str]]:
    """The commands to try, one after the other: Playwright's download, then Debian's package."""
    playwright = [sys.executable, "-m", "playwright", "install"]
    as_root = _as_root()
    if as_root is None:
        yield [*playwright, "chromium"]
        return
    yield [*playwright, "--with-deps", "chromium"]  # without root it calls sudo for the libraries by itself
    if shutil.which("apt-get"):
        apt = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
        yield [*apt, "update", "-qq"]
        yield [*apt, "install", "-y", "-qq", "--no-install-recommends", "chromium"]


def _as_root() -> Sequence[str] | None:
    """What precedes a command that needs root, or None if this user cannot become root without a password."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    return sudo if shutil.which("sudo") and _succeeds([*sudo, "true"], seconds=60) else None


def _succeeds(command: Sequence[str], *, seconds: float) -> bool:
    """Run a command silently, to its end. Returns whether it succeeded."""
    try:
        return subprocess.run(command, capture_output=True, timeout=seconds, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


if __name__ == "__main__":
    ensure()
