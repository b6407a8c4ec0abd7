"""The Makefile and what calls it: what its targets may touch, and which tests they run."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("target", "folder"),
    [
        ("test", "test"),
        ("test-slow", "test"),
        ("test-quick", "test"),
        ("test-quarantine", "test"),
        ("mutants", "test"),
        ("test-clients", "test"),
        ("bench", "bench"),
        ("soak", "soak"),
    ],
)
def test_checks_do_not_use_the_data_of_make_up(target, folder):
    """They empty tables, and some kill the database server."""
    without = {name: value for name, value in os.environ.items() if name not in ("VITRINE_DATA", "MAKEFLAGS", "MAKELEVEL")}
    printed = subprocess.run(
        ["make", "--dry-run", "--print-data-base", target], cwd=ROOT, env=without, capture_output=True, text=True, check=True
    ).stdout
    assert f"\n{target}: VITRINE_DATA := {ROOT}/.vitrine/{folder}\n" in printed


def commands(target: str) -> str:
    return subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("target", "marks"),
    [
        ("test", "not slow and not quarantine"),
        ("test-slow", "slow and not quarantine"),
        ("test-quick", "not slow and not quarantine"),
        ("test-quarantine", "quarantine"),
    ],
)
def test_a_test_in_quarantine_runs_separately(target, marks):
    assert f'-m "{marks}"' in commands(target)


def test_an_empty_quarantine_succeeds_and_an_empty_test_run_fails():
    """The exit code 5 of pytest says that no test was collected."""
    assert "[ $code -ne 5 ] || code=0" in commands("test-quarantine")
    assert not [target for target in ("test", "test-slow", "test-quick") if "code=0" in commands(target)]


def test_ci_runs_the_commands_of_the_readme_without_retries():
    script, readme = (ROOT / ".ci" / "run").read_text(), (ROOT / "README.md").read_text()
    targets = re.findall(r"^make (\S+)", script, re.MULTILINE)
    assert targets == ["lint", "test", "test-slow", "test-quarantine", "test-clients"]
    assert all(f"\n    make {target} " in readme for target in targets)
    runs = script + (ROOT / "Makefile").read_text() + (ROOT / "pyproject.toml").read_text()
    assert not re.search(r"--reruns|--lf\b|--last-failed|flaky|rerunfailures", runs)
