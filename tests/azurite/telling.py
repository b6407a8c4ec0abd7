"""Telling stories and scripts, and what fails then: for each comparison of storage queues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from broker_core.queue_storage import getting

from .brokers import Service
from .scripts import Comparison, made, shortest
from .stories import STORIES

SHORTEN_FOR = 180  # seconds
STORY_WITHIN = 60  # seconds
LINE_ENDS = "the client sends a carriage return as it is, and XML makes a line feed of it, and of CR LF; Azurite reads no XML so"
# By story and fact: why the port does otherwise than the Python API.
AT_THE_PORT: dict[tuple[str, str], str] = {
    **{("texts", f"{what}: {how}"): LINE_ENDS for what in ("a carriage return", "both") for how in ("peeked", "got")},
    **{("updating", fact): LINE_ENDS for fact in ("an odd text", "nothing was changed")},
}


@pytest.fixture
def always_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: a get that finds too little looks from the beginning."""
    monkeypatch.setattr(getting, "CHEAP_REFRESH", float("inf"))


def facts_of(service: Service, name: str) -> dict[str, Any]:
    """The facts of a story. It is told of a queue that is there and empty."""
    began = time.monotonic()
    try:
        service.create()
        STORIES[name](service)
        service.drop()
    finally:
        service.close()
    assert time.monotonic() - began < STORY_WITHIN
    return service.facts


def fail_shortest(comparison: Comparison, seeds: Sequence[int]) -> None:
    """Fail with the shortest script that ends otherwise, if one of these does."""
    for number, difference in zip(seeds, comparison.differences(map(made, seeds)), strict=True):
        if difference:
            least = shortest(difference, comparison, SHORTEN_FOR)
            pytest.fail(f"SEED={number} SCRIPTS=1 ends otherwise here than in {comparison.who}:\n{least}", pytrace=False)
