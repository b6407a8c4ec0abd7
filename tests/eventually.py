"""Waiting for what another thread, process or server brings about, which no clock of the broker's can bring."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], seconds: float = 5.0, why: str = "") -> T:
    """The condition's first true value. Fails with its last one when the time is up."""
    ends_at = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends_at, f"{why or condition} does not hold after {seconds} s: {value!r}"
        time.sleep(0.01)
    return value
