"""Random scripts of puts, gets, peeks, updates, deletes and time, told to both services and shortened where they end apart.

A script is in phases of two seconds. What a phase has in it is done in its first part, and every time that ends does so at an odd
second, in the gaps between: so a real clock decides nothing by a hair. Nor does it decide an order, for what becomes visible at
one second was hidden in one phase. A service that was too slow for that is told the script again.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from broker_core import namespaces

from .brokers import Azurite, Changed, Core, Handle, Port, Seen, Service, Stored

PHASE = 2  # seconds
NEVER_SEEN = 1001  # seconds: long after any script
WITHIN = 0.7  # seconds from a phase's beginning, in which all of it has to be done
AT_ONCE = (20, 6, 2)  # scripts that Azurite is told at a time; the later numbers for those that it was too slow for
MOST_STEPS = 60


class Step(NamedTuple):
    """An operation, and what it is given. message: which of the puts of this script it is about."""

    what: str
    given: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.what}({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"


Script = tuple[Step, ...]


@dataclass
class Difference:
    """The first step after which two services tell different things. who: is compared with the core."""

    who: str
    script: Script
    at: int
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        steps = "\n".join(f"    {step}" for step in self.script[: self.at + 1])
        return f"{steps}\n  {self.who + ':':9}{self.theirs!r}\n  here:    {self.ours!r}"


class TooSlow(Exception):
    """A phase took too long for its answers to mean anything."""


# Making


def made(seed: int) -> Script:
    """The script of a seed."""
    return _Maker(seed).make()


class _Maker:
    """Makes one script. Instants are seconds since it began."""

    WEIGHTS = {"put": 26, "get": 22, "peek": 8, "update": 18, "delete": 10, "count": 4, "foreign": 2, "clear": 1, "next_phase": 9}
    PHASES = 7

    def __init__(self, seed: int):
        self._dice, self._puts, self._phase = random.Random(seed), 0, 0
        self._hidden_in: dict[int, int] = {}  # the phase that hid what becomes visible at a second

    def make(self) -> Script:
        steps = []
        while len(steps) < MOST_STEPS and self._phase < self.PHASES:
            what = self._dice.choices(*zip(*self.WEIGHTS.items(), strict=True))[0] if self._puts else "put"
            steps.append(Step(what, getattr(self, f"_{what}")()))
        return (*steps, Step("get", {"count": 32, "until": NEVER_SEEN}))

    def _put(self) -> dict[str, Any]:
        values: dict[str, Any] = {"message": self._puts}
        self._puts += 1
        if self._dice.random() < 0.3:
            values["until"] = self._until()
        if self._dice.random() < 0.5:
            values["ends"] = self._dice.choice(
                (None, max(values.get("until", 0), self._now) // 2 * 2 + self._dice.choice((1, 3, 5, 9)))
            )
        return values

    def _get(self) -> dict[str, Any]:
        return {"count": self._dice.choice((1, 1, 2, 3, 32)), "until": self._until()}

    def _peek(self) -> dict[str, Any]:
        return {"count": self._dice.choice((1, 32))}

    def _update(self) -> dict[str, Any]:
        until = self._dice.choice((None, None, self._until(), self._until()))
        return self._delete() | {"until": until, "text": self._dice.choice((None, None, "", "new"))}

    def _delete(self) -> dict[str, Any]:
        """age: how many receipts of the message are newer."""
        late = max(0, self._puts - 1 - int(self._dice.expovariate(0.4)))
        return {
            "message": self._dice.choice((late, self._dice.randrange(self._puts))),
            "age": self._dice.choice((0, 0, 0, 0, 1, 2)),
        }

    def _foreign(self) -> dict[str, Any]:
        return {"message": self._dice.randrange(self._puts), "other": self._dice.randrange(self._puts)}

    def _count(self) -> dict[str, Any]:
        return {}

    _clear = _count

    def _next_phase(self) -> dict[str, Any]:
        count = self._dice.choice((1, 1, 1, 2))
        self._phase += count
        return {"count": count}

    @property
    def _now(self) -> int:
        return self._phase * PHASE

    def _until(self) -> int:
        """A second at which nothing becomes visible that another phase hid."""
        free = [self._now + s for s in (1, 1, 3, 5, 7) if self._hidden_in.get(self._now + s, self._phase) == self._phase]
        chosen = self._dice.choice([*free, NEVER_SEEN + 2 * self._phase])
        self._hidden_in[chosen] = self._phase
        return chosen


# Telling


class Teller:
    """Tells a script to a service, and keeps every receipt that it heard of."""

    def __init__(self, service: Service):
        self.service, self.phase = service, 0
        self.receipts: dict[int, list[Handle]] = {}  # by message, the newest last
        self.began = time.monotonic()

    def tell(self, script: Script) -> list[Any]:
        """What came of each step."""
        self.service.create()
        self.begin()
        try:
            return [self._told(step) for step in script]
        finally:
            self.service.drop()

    def begin(self) -> None:
        raise NotImplementedError

    def _told(self, step: Step) -> Any:
        return getattr(self, f"_{step.what}")(**step.given)

    def _put(self, message: int, until: int | None = None, **ends: int | None) -> Any:
        options: dict[str, Any] = {} if until is None else {"visibility": self._from_now(until)}
        if ends:
            options["life"] = -1 if ends["ends"] is None else self._from_now(ends["ends"])
        return self._heard(message, self.service.put(f"m{message}", **options))

    def _get(self, count: int, until: int) -> Any:
        messages = self.service.get(count, self._from_now(until))
        return (
            messages
            if isinstance(messages, str)
            else [(self._heard(self._message(seen), seen), self._message(seen)) for seen in messages]
        )

    def _peek(self, count: int) -> Any:
        return self.service.peek(count)

    def _update(self, message: int, age: int, until: int | None, text: str | None) -> Any:
        handle = self._handle(message, age)
        return handle and self._heard(message, self.service.update(handle, 0 if until is None else self._from_now(until), text))

    def _delete(self, message: int, age: int) -> Any:
        handle = self._handle(message, age)
        return handle and self.service.delete(handle)

    def _foreign(self, message: int, other: int) -> Any:
        """With the receipt of another message's put."""
        if message == other or not {message, other} <= self.receipts.keys():
            return None
        handle = Handle(self.receipts[message][0].id, self.receipts[other][0].receipt)
        return self.service.update(handle, 1), self.service.delete(handle)

    def _clear(self) -> Any:
        return self.service.clear()

    def _count(self) -> Any:
        """Azurite counts what has expired until somebody looks (QS-901): so somebody does."""
        self.service.peek()
        return self.service.count()

    def _next_phase(self, count: int) -> None:
        self.phase += count

    def _from_now(self, instant: int) -> int:
        return instant - self.phase * PHASE

    def _heard(self, message: int, answer: Any) -> Any:
        if isinstance(answer, Stored | Seen | Changed):
            self.receipts.setdefault(message, []).append(answer.handle)
        return answer

    def _handle(self, message: int, age: int) -> Handle | None:
        receipt = self.receipts.get(message)
        return receipt[max(0, len(receipt) - 1 - age)] if receipt else None

    def _message(self, seen: Seen) -> int:
        return next(message for message, handles in self.receipts.items() if handles[0].id == seen.handle.id)


class AzuriteTeller(Teller):
    """By the real clock."""

    def begin(self) -> None:
        self.began = time.monotonic()

    def _told(self, step: Step) -> Any:
        answer = super()._told(step)
        if time.monotonic() > self._phase_begins() + WITHIN:
            raise TooSlow
        return answer

    def _next_phase(self, count: int) -> None:
        super()._next_phase(count)
        self.service.wait(max(0.0, self._phase_begins() - time.monotonic()))

    def _phase_begins(self) -> float:
        return self.began + self.phase * PHASE


class SteppedTeller(Teller):
    """By the account's own clock."""

    def begin(self) -> None:
        self.start = namespaces.step_clock(self.service.account, timedelta(seconds=1)).now

    def _next_phase(self, count: int) -> None:
        super()._next_phase(count)
        namespaces.step_clock_to(self.service.account, self.start + timedelta(seconds=self.phase * PHASE))


class Comparison:
    """Tells scripts to another service and to the core. account: in the core."""

    who: str

    def __init__(self, account: str):
        self._account = account
        self._names = (f"script-{number}" for number in itertools.count(1))

    def differences(self, scripts: Iterable[Script]) -> list[Difference | None]:
        """Of each script, in order; None where both tell the same."""
        raise NotImplementedError

    def _compared(self, script: Script, name: str, theirs: list[Any]) -> Difference | None:
        ours = SteppedTeller(Core(self._account, name)).tell(script)
        both = enumerate(zip(theirs, ours, strict=True))
        return next((Difference(self.who, script, at, left, other) for at, (left, other) in both if left != other), None)


class WithAzurite(Comparison):
    """server: a running Azurite. too_slow: how many scripts were not compared, for want of a free machine."""

    who = "Azurite"

    def __init__(self, server: Any, account: str):
        super().__init__(account)
        self._server = server
        self.too_slow = 0

    def differences(self, scripts: Iterable[Script]) -> list[Difference | None]:
        """None also where Azurite was too slow each time."""
        waiting = list(enumerate(scripts))
        found: list[Difference | None] = [None] * len(waiting)
        for at_once in AT_ONCE:
            told, waiting = waiting, []
            names = [next(self._names) for _ in told]
            with ThreadPoolExecutor(at_once) as pool:
                for (place, script), name, theirs in zip(told, names, pool.map(self._azurite, told, names), strict=True):
                    if theirs is None:
                        waiting.append((place, script))
                    else:
                        found[place] = self._compared(script, name, theirs)
        self.too_slow += len(waiting)
        return found

    def _azurite(self, told: tuple[int, Script], name: str) -> list[Any] | None:
        time.sleep(random.uniform(0, PHASE))  # not all phases begin together
        try:
            return AzuriteTeller(Azurite(self._server, name)).tell(told[1])
        except TooSlow:
            return None


class WithPort(Comparison):
    """port_of: makes the service of a queue's name."""

    who = "port"

    def __init__(self, port_of: Callable[[str], Port], account: str):
        super().__init__(account)
        self._port_of = port_of

    def differences(self, scripts: Iterable[Script]) -> list[Difference | None]:
        return [
            self._compared(script, name, self._port(script, name)) for script, name in zip(scripts, self._names, strict=False)
        ]

    def _port(self, script: Script, name: str) -> list[Any]:
        port = self._port_of(name)
        try:
            return SteppedTeller(port).tell(script)
        finally:
            port.close()


# Shortening


def shortest(found: Difference, comparison: Comparison, seconds: float) -> Difference:
    """The shortest script found within so many seconds that still ends apart.

    Left out is all that is done with one message, or all of one kind, then runs of steps, ever shorter ones; each time as much as
    can be left out together.
    """
    ends_at, sizes = time.monotonic() + seconds, iter((0, 8, 4, 2, 1))
    script, spare = found.script[: found.at + 1], []
    while time.monotonic() < ends_at:
        if not spare and (size := next(sizes, None)) is None:
            break
        parts = _runs(script, size) if size else _by_subject(script)
        tried = comparison.differences(_without(script, part) for part in parts)
        spare = [part for part, still in zip(parts, tried, strict=True) if still]
        if spare:
            (together,) = comparison.differences([_without(script, set().union(*spare))])
            found = together or next(filter(None, tried))
            script = found.script[: found.at + 1]
    return found


def _runs(script: Script, size: int) -> list[set[int]]:
    """Which steps, by their places."""
    return [set(range(at, at + size)) for at in range(0, len(script), size)]


def _by_subject(script: Script) -> list[set[int]]:
    about: dict[Any, set[int]] = {}
    for at, step in enumerate(script):
        about.setdefault(step.given.get("message", step.what), set()).add(at)
    return list(about.values())


def _without(script: Script, places: set[int]) -> Script:
    return tuple(step for at, step in enumerate(script) if at not in places)
