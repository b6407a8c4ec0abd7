"""The settings of a load and their limits, which keep a small machine usable. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import Any, NamedTuple

from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument

DURATION = timedelta(minutes=10)  # of a load
MOST_MESSAGES = 20_000  # sent by a load
MOST_WAITING = 2_000  # messages in the queue; until there are fewer, nothing is sent
MOST_RUNNING = 2  # loads on a site; each occupies one of the worker's four threads


class Limit(NamedTuple):
    """What a setting may be. unit: after its number."""

    least: float
    most: float
    label: str
    unit: str = ""
    is_whole: bool = True


LIMITS = {
    "senders": Limit(1, 10, "Senders"),
    "rate": Limit(0, 50, "Rate", "/s", is_whole=False),
    "receivers": Limit(0, 10, "Receivers"),
    "work": Limit(0, 10, "Work", "s", is_whole=False),
    "failures": Limit(0, 100, "Failing", "%"),
    "prefetch": Limit(1, 50, "Prefetch"),
}


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """rate: messages a second of all senders together. work: seconds for which a receiver works on a message. failures: the share
    of deliveries that fail, in percent. prefetch: how many messages a receiver locks at once."""

    senders: int = 2
    rate: float = 5.0
    receivers: int = 2
    work: float = 0.2
    failures: int = 0
    prefetch: int = 1

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> LoadSettings:
        """From texts or numbers by name; a missing one is the default. Raises InvalidArgument."""
        numbers: dict[str, Any] = {
            each.name: _number(each.name, values[each.name]) for each in fields(cls) if each.name in values
        }
        return cls(**numbers)

    @property
    def as_values(self) -> dict[str, float]:
        return asdict(self)

    @property
    def capacity(self) -> float | None:
        """How many messages a second the receivers can process at most; None: as many as the broker delivers."""
        return self.receivers / self.work if self.work else None

    @property
    def forecast(self) -> str:
        """What to expect, in a sentence."""
        if not self.receivers:
            return "No receivers: every message waits."
        if self.capacity is None:
            return "The receivers need no time for their work: no message should wait."
        able = f"{self.receivers} receiver{'' if self.receivers == 1 else 's'} can process {self.capacity:.3g} a second"
        if self.rate > self.capacity:
            return f"{able}, but {self.rate:g} arrive: the queue grows."
        return f"{able}, and {self.rate:g} arrive: the queue stays short."

    def holds_too_long(self, lock: timedelta | None, warning: str) -> str:
        """A warning, if a receiver holds its messages longer than they are locked; empty: it does not. warning: its end, in which
        {} is that time."""
        longest = timedelta(seconds=self.prefetch * self.work)
        if lock is None or longest <= lock:
            return ""
        return f"A receiver needs {human(longest)} for what it prefetches; {warning.format(human(lock))}."


def _number(name: str, value: Any) -> float | int:
    limit = LIMITS[name]
    bounds = f"must be between {limit.least:g} and {limit.most:g}{f' {limit.unit}' if limit.unit else ''}"
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError) as exc:
        raise InvalidArgument(name, bounds) from exc
    if not limit.least <= number <= limit.most:  # also if it is no number
        raise InvalidArgument(name, bounds)
    if limit.is_whole and number != int(number):
        raise InvalidArgument(name, f"{bounds}, without a fraction")
    return int(number) if limit.is_whole else number
