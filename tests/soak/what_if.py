"""The proof of the analyses that answer "what if": their bands cover a known truth, and what they say about another setting
is what happens if the same history is really run on the broker with that setting, under the manual clock."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from broker_core.common.types import EntityAddress
from broker_core.history import archive
from broker_core.models import Entity
from broker_core.namespaces import get_clock
from explorer.analysis import replay, replay_history, what_if_deliveries, what_if_lock
from tests.analysis.known_truth import coverage
from tests.analysis.real_run import run, script

from .findings import Findings

COVERED = (93, 98)  # of 100 histories
MANY = 200  # messages of a real run
RUNS = 5
LOCKS, LIMITS = (10, 20, 40), (1, 2, 4)
NEAR = 0.06  # what estimates and real runs may differ in; the real share is itself a sample
NEAR_WAIT = 0.2  # of the 95th percentile of waiting
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
    locks, limits = what_if_lock.history(*_archived(namespace, "was")), what_if_deliveries.history(*_archived(namespace, "was"))
    for lock in LOCKS:
        queue = EntityAddress(namespace, f"lock-{lock}")
        really = run(queue, played, consumers=MANY, lock_duration=lock * SECOND, max_delivery_count=5)
        share, said = really["LOCK_LOST"] / really["RECEIVED"], what_if_lock.answer(locks, lock * SECOND).lost
        findings.did["settings really run"] += 1
        if abs(said.share - share) > NEAR:
            yield f"with a lock of {lock} s, {share:.3f} of the deliveries lost it; estimated: {said}"
    for limit in LIMITS:
        queue = EntityAddress(namespace, f"limit-{limit}")
        really = run(queue, played, consumers=MANY, lock_duration=60 * SECOND, max_delivery_count=limit)
        dead, one = really["DEAD_LETTERED"], what_if_deliveries.answer(limits, limit)
        findings.did["settings really run"] += 1
        if abs(one.dead.share * MANY - dead) > 0.5:  # the same deliveries: no chance is left
            yield f"with at most {limit} deliveries, {dead} of {MANY} messages were dead-lettered; estimated: {one.dead}"


def _replays(seed: int, findings: Findings) -> Iterator[str]:
    """Consumers that take several at once, are absent for a while, and lose locks."""
    played = script(seed, MANY, every=3, mean=5, failing=0.1, until=3000, absent=[(200, 260)])
    namespace, lock = f"replay-{seed}", 20 * SECOND
    run(EntityAddress(namespace, "was"), played, consumers=2, prefetch=3, lock_duration=lock, max_delivery_count=5)
    found = replay_history.read(*_archived(namespace, "was"), 5, notices_crashes=False)
    for consumers, prefetch in ((2, 3), (4, 1), (3, 2)):
        path = f"{consumers}-{prefetch}"
        run(EntityAddress(namespace, path), played, consumers=consumers, prefetch=prefetch, lock_duration=lock,
            max_delivery_count=5)  # fmt: skip
        truth = replay_history.read(*_archived(namespace, path), 5, notices_crashes=False).actual
        settings = replay.grid(found.setting, consumers=[consumers], prefetch=[prefetch])
        [said] = replay.replay_all(found.history, settings)
        findings.did["settings really run"] += 1
        if not truth.waiting or not said.waiting or abs(said.waiting - truth.waiting) > NEAR_WAIT * truth.waiting:
            yield f"with {consumers} consumers that take {prefetch}: {truth}; replayed: {said}"
        if abs(said.processed - truth.processed) > NEAR * MANY or abs(said.depth - truth.depth) > NEAR * MANY:
            yield f"with {consumers} consumers that take {prefetch}: {truth}; replayed: {said}"


def _archived(namespace: str, path: str) -> tuple[Any, Any, Any]:
    archive.archive_events()
    now = get_clock(namespace).now
    return Entity.objects.get(namespace__name=namespace, path=path), now - timedelta(days=30), now + SECOND
