"""The core against a RabbitMQ server: scripts made from seeds, without time and with it.

`make test-rabbitmq SECONDS=3600 SEED=1000` tells for an hour, beginning with that seed; `SECONDS=0 SEED=1234` tells that one
script of either kind. A difference that is not meant is printed with its seed, as the shortest script that still has it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from .brokers import Core, Real
from .comparison import note
from .execution import Difference, TooLate, first_difference, timed_difference, told_to_core, told_to_server
from .expected_differences import ALIKE, why_meant
from .scripts import LEFT_OUT, Script, made
from .shrinking import shortest

WITHOUT_TIME = 0.6  # of the seconds there are
PATIENT = 3.0  # seconds: for a difference that was seen already
AT_ONCE = 6  # scripts with time that the server is told together
SHORTEN = 40.0  # seconds for one script
MOST = 5  # differences that are shortened

_numbers = itertools.count(1)


@dataclass
class Tally:
    """What came of the scripts of a run. meant: how many ended for a reason."""

    what: str
    told: list[int] = field(default_factory=list)
    meant: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    not_said: int = 0  # for want of time, or not seen again

    def add(self, seed: int, difference: Difference, again: Callable[[Script], Difference | None], *, shorten: bool) -> None:
        """A difference that was seen. again: tells a script once more; only what is seen again counts."""
        if why := why_meant(difference):
            self.meant[why] += 1
            return
        found = _fault(again)(difference.done)
        if found is None:
            self.not_said += 1
            return
        self.kinds[found.kind] += 1
        if self.kinds[found.kind] == 1 and len(self.faults) < MOST and shorten:
            _, found = shortest(found.done, found, _fault(again), SHORTEN)
        if self.kinds[found.kind] <= 2:
            self.faults.append(f"seed {seed}: {found.kind}\n{found}")

    def report(self) -> None:
        seeds = f"seeds {self.told[0]} to {self.told[-1]}" if self.told else "none"
        note("RabbitMQ", f"{len(self.told)} scripts {self.what} ({seeds}); of {self.not_said} nothing can be said")
        for why, count in self.meant.most_common():
            note("RabbitMQ", f"    {count} ended by what is meant, {why}")
        for fault in self.faults:
            note("RabbitMQ", f"    NOT MEANT, {fault}")


def _fault(tell: Callable[[Script], Difference | None]) -> Callable[[Script], Difference | None]:
    """The difference, if it is not meant."""

    def differs(script: Script) -> Difference | None:
        difference = tell(script)
        return None if difference is None or why_meant(difference) else difference

    return differs


@pytest.fixture
def seconds() -> float:
    return float(os.environ.get("SECONDS") or 90)


@pytest.fixture
def seeds() -> Iterator[int]:
    return itertools.count(int(os.environ.get("SEED") or 1))


def _vhost() -> str:
    return f"script-{next(_numbers)}"


@pytest.mark.timeout(0)
def test_scripts_without_time_have_the_same_outcome(rabbit, broker_database, seconds, seeds):
    tally, ends_at = Tally("without time"), time.monotonic() + seconds * WITHOUT_TIME
    for text in (*(f"not compared: {what}" for what in ALIKE), *(f"not told: {what} ({why})" for what, why in LEFT_OUT.items())):
        note("RabbitMQ", f"scripts, {text}")

    def tell(script: Script, patience: float) -> Difference | None:
        vhost = _vhost()
        return first_difference(script, Real(rabbit, vhost, settles_in=0), Core(vhost), patience=patience)

    for seed in seeds:
        tally.told.append(seed)
        if (found := tell(made(seed), 1.0)) is not None:
            tally.add(seed, found, lambda script: tell(script, PATIENT), shorten=True)
        if time.monotonic() > ends_at:
            break
    tally.report()
    assert not tally.faults, "the core does otherwise than RabbitMQ"


@pytest.mark.timeout(0)
def test_scripts_with_time_have_the_same_outcome(rabbit, broker_database, seconds, seeds):
    tally, ends_at = Tally("with time"), time.monotonic() + seconds * (1 - WITHOUT_TIME)

    def on_server(script: Script) -> tuple[str, list | None]:
        vhost = _vhost()
        try:
            return vhost, told_to_server(script, Real(rabbit, vhost, settles_in=0))
        except TooLate:
            return vhost, None

    def tell(script: Script, said: tuple[str, list | None] | None = None) -> Difference | None:
        vhost, told = said or on_server(script)
        if told is None:
            tally.not_said += 1
            return None
        return timed_difference(script, told, told_to_core(script, Core(vhost)))

    at_once = AT_ONCE if seconds else 1
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while not tally.told or time.monotonic() < ends_at:
            some = list(itertools.islice(seeds, at_once))
            scripts = [made(seed, timed=True) for seed in some]
            tally.told += some
            said_to_all = list(threads.map(on_server, scripts))  # before the core is told anything: that would hold them up
            if sum(told is None for _, told in said_to_all) * 2 > at_once:
                at_once = max(1, at_once // 2)
            for seed, script, said in zip(some, scripts, said_to_all, strict=True):
                if (found := tell(script, said)) is not None:
                    tally.add(seed, found, tell, shorten=False)
    tally.report()
    assert not tally.faults, "the core does otherwise than RabbitMQ"
