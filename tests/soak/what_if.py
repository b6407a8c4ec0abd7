"""The proof of the analyses that answer "what if": their bands cover a known truth, and what they say about another setting
is what happens if the same history is really run on the broker with that setting, under the manual clock."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

from broker_core.common.types import EntityAddress
from explorer.analysis import simulation
from explorer.analysis.reports import deliveries as limit_report
from explorer.analysis.reports import lock as lock_report
from explorer.analysis.reports import replay_history
from tests.analysis.known_truth import coverage
from tests.analysis.real_run import run, scope_of, script

from .findings import Findings

COVERED = (93, 98)  # of 100 histories
MANY = 200  # messages of a real run
RUNS = 5
LOCKS, LIMITS = (10, 20, 40), (1, 2, 4)
NEAR = 0.06  # what estimates and real runs may differ in; the real share is itself a sample
NEAR_WAIT = 0.25  # of the 95th percentile of waiting
SECOND = timedelta(seconds=1)


def examine(seed: int) -> Findings:
    findings = Findings()
    for name, share in coverage().items():
        findings.did[f"bands of {name} compared with the truth"] = 100
        if not COVERED[0] <= share <= COVERED[1]:
            findings.wrong.append(f"what if, {name}: the bands cover the truth in {share:.1f} of 100, not {COVERED}")
    draw = random.Random(seed)
    for _ in range(RUNS):
        one = draw.randrange(10**9)
        for problem in (*_estimates(one, findings), *_replays(one, findings)):
            findings.wrong.append(f"what if, real run {one}: {problem}")
    return findings


def _estimates(seed: int, findings: Findings) -> Iterator[str]:
    """Enough consumers for all messages, so that nothing feeds back."""
    played = script(seed, MANY, every=2, mean=25, failing=0.2, crashing=0.04, until=5000)
    namespace = f"what-if-{seed}"
    run(EntityAddress(namespace, "was"), played, consumers=MANY, lock_duration=60 * SECOND, max_delivery_count=5)
    was = scope_of(EntityAddress(namespace, "was"))
    locks, limits = lock_report.history(was), limit_report.history(was)
    for lock in LOCKS:
        queue = EntityAddress(namespace, f"lock-{lock}")
        really = run(queue, played, consumers=MANY, lock_duration=lock * SECOND, max_delivery_count=5)
        share, said = really["LOCK_LOST"] / really["RECEIVED"], lock_report.answer(locks, lock * SECOND).lost
        findings.did["settings really run"] += 1
        if abs(said.share - share) > NEAR:
            yield f"with a lock of {lock} s, {share:.3f} of the deliveries lost it; estimated: {said}"
    for limit in LIMITS:
        queue = EntityAddress(namespace, f"limit-{limit}")
        really = run(queue, played, consumers=MANY, lock_duration=60 * SECOND, max_delivery_count=limit)
        dead, one = really["DEAD_LETTERED"], limit_report.answer(limits, limit)
        findings.did["settings really run"] += 1
        if abs(one.dead.share * MANY - dead) > 0.5:  # the same deliveries: no chance is left
            yield f"with at most {limit} deliveries, {dead} of {MANY} messages were dead-lettered; estimated: {one.dead}"


def _replays(seed: int, findings: Findings) -> Iterator[str]:
    """Consumers that take several messages at once: in one history they lose locks, in the other they are absent for a while."""
    losing = script(seed, MANY, every=3, mean=5, failing=0.1, until=3000)
    absent = script(seed, MANY, every=3, mean=5, failing=0.1, until=3000, absent=[(200, 320)])
    for name, played, lock in (("losing", losing, 20 * SECOND), ("absent", absent, 300 * SECOND)):
        was = EntityAddress(f"{name}-{seed}", "was")
        run(was, played, consumers=2, prefetch=3, lock_duration=lock, max_delivery_count=5)
        found = replay_history.read(scope_of(was), 5)
        yield from _compared(name, found.actual, simulation.replay_all(found.history, [found.setting])[0])
        for consumers, prefetch in ((4, 1), (3, 2)):
            other = EntityAddress(was.namespace, f"{consumers}-{prefetch}")
            run(other, played, consumers=consumers, prefetch=prefetch, lock_duration=lock, max_delivery_count=5)
            truth = replay_history.read(scope_of(other), 5).actual
            settings = simulation.grid(found.setting, consumers=[consumers], prefetch=[prefetch])
            [said] = simulation.replay_all(found.history, settings)
            findings.did["settings really run"] += 1
            yield from _compared(f"{name}, {consumers} consumers that take {prefetch}", truth, said)


def _compared(what: str, truth: simulation.Outcome, said: simulation.Outcome) -> Iterator[str]:
    wait, near_depth = truth.waiting or 0, max(5, 0.2 * truth.depth)
    if abs((said.waiting or 0) - wait) > max(NEAR_WAIT * wait, 8_000_000):
        yield f"{what}: the wait differs: {truth}; replayed: {said}"
    if abs(said.processed - truth.processed) > NEAR * MANY or abs(said.depth - truth.depth) > near_depth:
        yield f"{what}: {truth}; replayed: {said}"
