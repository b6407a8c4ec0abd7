"""Inputs that once made something fail: tests/fuzz/cases/TARGET/NAME, as the fuzzer writes them."""

from __future__ import annotations

from pathlib import Path

CASES = Path(__file__).with_name("cases")


def cases_of(target: str) -> list[Path]:
    return sorted((CASES / target).glob("*"))
