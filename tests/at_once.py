"""Races: calls that begin at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Their results, in their order."""
    barrier = threading.Barrier(len(calls))

    def call(one: Callable[[], T]) -> T:
        barrier.wait(10)
        return one()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call, one) for one in calls]]
