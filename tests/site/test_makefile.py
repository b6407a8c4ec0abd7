"""The Makefile: what its targets may touch."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("target", "folder"), [("test", "test"), ("test-slow", "test"), ("mutants", "test"), ("bench", "bench"), ("soak", "soak")]
)
def test_checks_leave_the_data_of_make_up_alone(target, folder):
    """They empty tables, and some kill the database server."""
    without = {name: value for name, value in os.environ.items() if name not in ("VITRINE_DATA", "MAKEFLAGS", "MAKELEVEL")}
    printed = subprocess.run(
        ["make", "--dry-run", "--print-data-base", target], cwd=ROOT, env=without, capture_output=True, text=True, check=True
    ).stdout
    assert f"\n{target}: VITRINE_DATA := {ROOT}/.vitrine/{folder}\n" in printed
