"""What each comparison with a real server shares: stories that tell facts, and differences that are meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

MOST = 400  # characters of a fact that are printed
_DIFFERENCES: dict[str, list[str]] = {}  # by server: what is printed at the end


class Told:
    """Somebody whom a story is told to. facts: what it told, by name."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def tell(self, fact: str, value: Any) -> None:
        assert fact not in self.facts, fact
        self.facts[fact] = value


class Stories(dict[str, Callable]):
    """Stories by name. Decorate a function to make it one."""

    def __call__(self, tell: Callable) -> Callable:
        assert tell.__name__ not in self, tell.__name__
        self[tell.__name__] = tell
        return tell


def compare(server: str, story: str, theirs: Mapping[str, Any], ours: Mapping[str, Any], meant: Mapping[tuple, str]) -> None:
    """Fails where facts differ and that is not meant, or are meant to differ and do not. All are printed at the end.

    meant: by story and fact, why ours is another.
    """
    assert theirs.keys() == ours.keys()
    differing = {fact for fact in theirs if comparable(theirs[fact]) != comparable(ours[fact])}
    for fact in sorted(differing):
        why = meant.get((story, fact), "NOT MEANT")
        both = "".join(f"\n    {who + ':':9} {repr(facts[fact])[:MOST]}" for who, facts in ((server, theirs), ("here", ours)))
        note(server, f"{story}, {fact}: {why}{both}")
    listed = {fact for about, fact in meant if about == story}
    if differing - listed:
        pytest.fail(f"{story}: the core does otherwise than {server}: {', '.join(sorted(differing - listed))}", pytrace=False)
    if listed - differing:
        pytest.fail(f"{story}: what is listed as a difference is none: {', '.join(sorted(listed - differing))}", pytrace=False)


def note(server: str, text: str) -> None:
    """Something to be printed at the end."""
    _DIFFERENCES.setdefault(server, []).append(text)


def report(server: str, terminalreporter: Any) -> None:
    """Print what was noted."""
    if found := _DIFFERENCES.get(server):
        terminalreporter.section(f"differences from {server}")
        terminalreporter.write("".join(f"{line}\n" for line in found))


def comparable(fact: Any) -> Any:
    """Tuples are lists, and what is equal for a client is equal here."""
    if isinstance(fact, list | tuple):
        return [comparable(value) for value in fact]
    return {key: comparable(value) for key, value in fact.items()} if isinstance(fact, dict) else fact
