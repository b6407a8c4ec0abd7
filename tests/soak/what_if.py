"""python -m tests.soak.what_if [--cases 40] [--seed N]

The proof of "What if?": histories are run on the broker under the manual clock, and again with another time-to-live, lock or
maximum of deliveries; loaded ones with an outage, and ones with enough consumers; in all three families. What the replay says of
the first run is compared with the second. Where nothing waits behind busy consumers the time-to-live is answered by the survival
estimate, as on the page. Then the bands are compared with the known truth of a process (tests/analysis/known_truth.py).

`make soak` runs some of it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .findings import Findings

COVERED = (93, 98)  # of 100 bands
CASES = 12  # of `make soak`
MANY = 120  # messages of a real run
FAR = 0.08  # by which a share may miss what really happened, outside of its band


@dataclass(frozen=True, slots=True)
class Seen:
    """A question that was really tried. estimate: the share without feedback, for the time-to-live."""

    kind: str
    asked: str
    truth: float
    said: float
    low: float
    high: float
    estimate: float | None = None

    @property
    def has(self) -> bool:
        return self.low - 1e-9 <= self.truth <= self.high + 1e-9

    def __str__(self) -> str:
        most = "" if self.estimate is None else f", without feedback {self.estimate:.3f}"
        return f"{self.kind}, {self.asked}: {self.truth:.3f}; said {self.said:.3f} ({self.low:.3f} to {self.high:.3f}){most}"


def cases(seed: int, count: int) -> Iterator[Seen]:
    """Random questions, each of a history of its own; families, loads and settings take turns."""
    draw = random.Random(seed)
    kinds = [
        (family, loaded, varied)
        for varied in ("time_to_live", "lock", "longer lock", "deliveries")
        for loaded in (True, False)
        for family in ("service_bus", "queue_storage", "rabbitmq")
        if family != "rabbitmq" or "lock" not in varied  # its consumer timeout is no lock that a replay varies
    ]
    for at in range(count):
        yield tried(*kinds[at % len(kinds)], draw.randrange(10**9))


def tried(family: str, loaded: bool, varied: str, seed: int) -> Seen:
    """Run a history, ask, and run it again with what was asked."""
    from uuid import uuid4

    from broker_core.common.types import EntityAddress
    from tests.analysis.known_truth import band, dead, expired, lost_locks, setting_of
    from tests.analysis.real_run import SECOND, Limits, run, script

    draw = random.Random(seed)
    consumers, mean = (3, 5.0) if loaded else (MANY, 5.0)
    load = draw.uniform(0.8, 1.05)
    every = mean / 3 / load * 1.1
    start, lasts = draw.randint(30, 120), draw.randint(20, 80)
    crashing = 0.0 if family == "rabbitmq" else 0.02
    played = script(
        seed, MANY, every=every, mean=mean, failing=0.1, crashing=crashing, until=3 * MANY * every + 600,
        absent=[(start, start + lasts)],
    )  # fmt: skip
    has_lock = family != "rabbitmq"
    now = Limits(lock=20 * SECOND if has_lock else None, deliveries=4)
    if varied == "time_to_live":
        then, share = replace(now, time_to_live=draw.randint(5, 60) * SECOND), expired
    elif varied == "deliveries":
        then, share = replace(now, deliveries=draw.choice((1, 2, 3))), dead
    else:
        was, asked = (5, draw.randint(7, 12)) if varied == "longer lock" else (20, draw.randint(6, 15))
        now = replace(now, lock=was * SECOND)
        then, share = replace(now, lock=asked * SECOND), lost_locks
    namespace = f"whatif{uuid4().hex[:8]}"
    replay = run(family, EntityAddress(namespace, "was"), played, now, consumers=consumers).replayable()
    truth = share(run(family, EntityAddress(namespace, "then"), played, then, consumers=consumers).replayable().actual)
    said, low, high = band(replay, setting_of(replay, then), share, seed)
    estimate = None
    if varied == "time_to_live" and then.time_to_live is not None:
        estimate = survival(replay, then.time_to_live)
        if not replay.has_backlog and estimate is not None:
            said, low, high = estimate
    chosen = {"time_to_live": then.time_to_live, "deliveries": then.deliveries}.get(varied, then.lock)
    kind = f"{family}, {'loaded' if loaded else 'enough consumers'}, {varied}"
    return Seen(kind, f"{chosen:,}, seed {seed}", truth, said, low, high, None if estimate is None else estimate[0])


def survival(found: object, time_to_live: int) -> tuple[float, float, float] | None:
    """The Kaplan-Meier estimate of the waiting of a Replayable's messages."""
    from explorer.analysis.jobs.measures import bin_of
    from explorer.analysis.survival import CannotTell, Curve

    received: Counter[int] = Counter()
    never: Counter[int] = Counter()
    for waited, was_received in found.waits:
        (received if was_received else never)[bin_of(waited)] += 1
    try:
        estimate = Curve(received, never).at(time_to_live)
    except CannotTell:
        return None
    return estimate.share, estimate.low, estimate.high


def examine(seed: int, count: int = CASES, histories: int = 20) -> Findings:
    """As a part of `make soak`. histories: of each process with a known truth."""
    from tests.analysis.known_truth import coverage

    findings = Findings()
    by_kind: dict[str, list[Seen]] = defaultdict(list)
    for seen in cases(seed, count):
        findings.did["settings really run"] += 1
        by_kind[seen.kind].append(seen)
        print(f"{'in ' if seen.has else 'OUT'} {seen}", flush=True)
        if not seen.has and abs(seen.said - seen.truth) > FAR:
            findings.wrong.append(f"what if, {seen}")
    for kind, all_seen in sorted(by_kind.items()):
        inside = sum(case.has for case in all_seen)
        error = sum(abs(case.said - case.truth) for case in all_seen) / len(all_seen)
        print(f"{kind}: {inside} of {len(all_seen)} in the band, mean error {100 * error:.1f} points", flush=True)
    everything = [case for each in by_kind.values() for case in each]
    if 100 * sum(case.has for case in everything) < COVERED[0] * len(everything) - 100:  # one may miss by chance
        findings.wrong.append(f"what if: {sum(case.has for case in everything)} of {len(everything)} truths are in the band")
    for name, share in coverage(histories) if histories else ():
        findings.did["bands compared with a known truth"] += histories
        print(f"{name}: the band has the truth in {share:.0f} of 100", flush=True)
        if share < COVERED[0] - 150 / histories**0.5 / 2:  # chance, of so few histories
            findings.wrong.append(f"what if, {name}: the bands have the truth in {share:.0f} of 100 only, not in {COVERED}")
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.what_if", description="What is said, and what really happens.")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--histories", type=int, default=0, help="of each process with a known truth")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    os.environ.setdefault("VITRINE_DATA", str(Path(__file__).resolve().parent.parent.parent / ".vitrine" / "soak"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    os.environ["VITRINE_LIMITS"] = "relaxed"
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    findings = examine(options.seed, options.cases, options.histories)
    print(findings.tell())
    print(f"{len(findings.wrong)} findings")
    return bool(findings.wrong)


if __name__ == "__main__":
    sys.exit(main())
