"""How the tests find a browser, install one, and say that there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that puts a program into the only folder on the path; without any, the machine has no browser."""

    def add(name: str, exit_code: int = 0, then: str = "") -> Path:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{then}\nexit {exit_code}\n")
        program.chmod(0o755)
        return program

    monkeypatch.setattr(browser, "PROGRAMS", ("chromium", "google-chrome"))
    monkeypatch.setattr(browser, "_path_of_playwright", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    browser.find.cache_clear()
    yield add
    browser.find.cache_clear()


def test_the_first_program_that_starts_is_used_as_the_browser(programs):
    programs("chromium", exit_code=127)  # it lacks a library
    chrome = programs("google-chrome")
    assert browser.find() == str(chrome)


def test_a_browser_that_playwright_has_installed_is_found(programs, monkeypatch):
    installed = programs("chrome")
    monkeypatch.setattr(browser, "_path_of_playwright", lambda: str(installed))
    assert browser.find() == str(installed)


def test_playwrights_folder_is_searched(tmp_path):
    """In a process of its own: the variable is read once."""
    asked = "from tests import browser; print(browser._path_of_playwright())"
    printed = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)},
    ).stdout  # fmt: skip
    assert printed.startswith(f"{tmp_path}/chromium-")


@pytest.mark.parametrize(
    ("user", "has_sudo", "has_apt", "commands"),
    [
        (0, False, True, ["playwright --with-deps", "apt-get update", "apt-get install"]),
        (0, False, False, ["playwright --with-deps"]),
        (1000, True, True, ["playwright --with-deps", "sudo apt-get update", "sudo apt-get install"]),
        (1000, False, True, ["playwright"]),
    ],
)
def test_the_install_commands_depend_on_root_and_debian(programs, monkeypatch, user, has_sudo, has_apt, commands):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    programs("sudo", exit_code=0 if has_sudo else 1)
    if has_apt:
        programs("apt-get")
    tried = [" ".join(command) for command in browser._installations()]
    assert len(tried) == len(commands)
    assert all(word in command for command, words in zip(tried, commands, strict=True) for word in words.split())
    assert all(("sudo" in command) == ("sudo" in words) for command, words in zip(tried, commands, strict=True))
    assert all(("--with-deps" in command) == ("--with-deps" in words) for command, words in zip(tried, commands, strict=True))


def test_the_next_command_is_tried_only_if_there_is_still_no_browser(programs, monkeypatch, tmp_path, capsys):
    for number in (1, 2, 3):
        programs(f"install-{number}", exit_code=int(number == 1), then=f"echo {number} >> {tmp_path}/tried")
    programs(
        "install-2", then=f"echo 2 >> {tmp_path}/tried\necho '#!/bin/sh' > {tmp_path}/chromium\n/bin/chmod +x {tmp_path}/chromium"
    )
    monkeypatch.setattr(browser, "_installations", lambda: [[f"install-{number}"] for number in (1, 2, 3)])
    browser.ensure()
    assert browser.find() == str(tmp_path / "chromium")
    assert (tmp_path / "tried").read_text().split() == ["1", "2"]
    assert capsys.readouterr().out.endswith("This command failed: install-1\n")
    browser.ensure()
    assert (tmp_path / "tried").read_text().split() == ["1", "2"], "one that is there is not installed again"


@pytest.mark.slow
def test_without_a_browser_its_tests_are_skipped_and_counted_at_the_end(tmp_path):
    """A whole run of pytest, on a path without a browser."""
    tests = "from tests.conftest import chromium\ndef test_1(chromium): ...\ndef test_2(chromium): ...\ndef test_3(): ...\n"
    (tmp_path / "test_pages.py").write_text(tests)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-p", "no:cacheprovider", tmp_path / "test_pages.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PATH": "/none", "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert run.stdout.startswith("No Chrome or Chromium was found: the browser tests are skipped.")
    assert "No Chrome or Chromium was found: 2 browser tests were skipped." in run.stdout
    assert "1 passed, 2 skipped" in run.stdout
