"""python -m tests.soak.recomputation [--calls 25000] [--seed N] [--increments 5]

Random calls of all families, archived and derived in increments by real runs of the pipeline; then lives and attempts are
recomputed from the event table by the oracle (tests/analysis/jobs/oracle.py), and each column of each row is compared.

The database is made for this, beside that of VITRINE_DATA, else .vitrine/soak. Prints numbers and differences; if there are any,
the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .findings import Findings
from .own_database import own_database

Row = dict[str, Any]

NAMESPACES = 2  # of each family
ALL_MADE = 5_000  # calls of which each act is one
LIST = ("entity_id", "sequence_number", "subqueue")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.recomputation", description="Lives and attempts, recomputed.")
    parser.add_argument("--calls", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--increments", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.calls:,} calls, seed {options.seed}", flush=True)
    with own_database():
        findings = examine(options.calls, options.seed, options.increments)
    print(findings.tell())
    print(f"{len(findings.wrong)} findings")
    return bool(findings.wrong)


def examine(calls: int, seed: int, increments: int) -> Findings:
    """Make the calls, archive and derive them in increments, and compare. The event table and the archive are empty before."""
    findings, dice = Findings(), random.Random(seed)
    callers = scene(dice)
    keys = chosen_keys(callers, dice)
    for number in range(increments):
        for _ in range(calls * (number + 1) // increments - calls * number // increments):
            dice.choice(callers).one()
        derive()
    for caller in callers:
        findings.did.update({f"calls of {caller.family}": sum(caller.made.values())})
        findings.did.update({f"{caller.family} {name}": count for name, count in caller.made.items() if "refused" in name})
        never = [name for name in caller.acts if not caller.made[name]] if calls > ALL_MADE else []
        findings.wrong += [f"{caller.family}: no {name} was accepted" for name in never]
    Comparison(findings, keys).all()
    return findings


def scene(dice: random.Random) -> list[Any]:
    from .calls import FAMILIES

    unique = f"{random.SystemRandom().randrange(16**6):06x}"
    return [make(f"{name}{number}{unique}", dice) for name, make in FAMILIES.items() for number in range(NAMESPACES)]


def chosen_keys(callers: Sequence[Any], dice: random.Random) -> dict[int, list[str]]:
    """Keep the values of properties for some entities; which, by entity id."""
    from broker_core.history import properties
    from broker_core.models import Entity

    from .calls import KEYS, OPERATOR

    ids = list(Entity.objects.filter(namespace__name__in=[caller.namespace for caller in callers]).values_list("pk", flat=True))
    for entity_id in dice.sample(sorted(ids), len(ids) // 2):
        properties.choose([entity_id], dice.sample(KEYS, dice.randint(1, 3)), actor=OPERATOR)
    return properties.all_chosen()


def derive() -> None:
    """Archive and derive what there is, by a real run, as at night."""
    from broker_core.history import archive
    from explorer.analysis.running import execution, submission
    from explorer.analysis.running.kinds import KINDS
    from explorer.models import AnalysisRun

    from .calls import OPERATOR

    archive.archive_events()
    run = submission.maintain(actor=OPERATOR, submit=False)
    assert run is not None
    execution.execute(run.pk, KINDS)
    run.refresh_from_db()
    assert run.state == AnalysisRun.SUCCEEDED, run.message + run.log_tail[-3000:]


class Comparison:
    """Compares what the archive has with what follows from the event table."""

    def __init__(self, findings: Findings, keys: dict[int, list[str]]):
        self.findings, self.keys = findings, keys
        self.lives: list[Row] = []
        self.attempts: list[Row] = []
        self.counts: Counter[int] = Counter()  # of events by kind

    def all(self) -> None:
        from explorer.analysis.jobs import schemas

        self._recompute()
        rows = [row for row in read("lives") if row["outcome"] is not None or row["attempt_outcome"] is not None]
        lives = [{name: row[name] for name in schemas.LIFE.names} for row in rows if row["outcome"] is not None]
        names = schemas.ATTEMPT_NAMES
        tried = [row for row in rows if row["attempt_outcome"] is not None]
        tried = [{name: row[names.get(name, name)] for name in schemas.ATTEMPT.names} for row in tried]
        for row in lives:
            row["chosen_properties"] = json.loads(row["chosen_properties"] or "null")
        self._compare("lives", lives, self.lives, ("ended_at", "outcome"))
        self._compare("attempts", tried, self.attempts, ("ended_at", "received_at", "outcome"))
        self._invariants(tried)
        self._verified()

    def _verified(self) -> None:
        """What `verify_archive --lives` says of the same."""
        from explorer.analysis.running import commands, verification

        from .calls import OPERATOR

        run = commands.executed(verification.request_verification(repair=False, actor=OPERATOR))
        self.findings.did["verified messages"] = int(run.message.split()[0].replace(",", ""))
        self.findings.wrong += run.notes

    def _recompute(self) -> None:
        """By increments. The next one does not know what had ended, so that an undo begins another life (docs/history.md)."""
        from tests.analysis.jobs import oracle

        from . import derived_columns

        chosen, before = derived_columns.Chosen(self.keys), None
        for events in increments():
            before = events.slice(0, 0) if before is None else before
            rows = events.to_pylist()
            chosen.add(sorted(rows, key=lambda row: row["event_id"]))
            self.counts.update(row["kind"] for row in rows)
            ended, attempts = oracle.lives(events, before)
            for row in map(derived_columns.life, ended.to_pylist()):
                self.lives.append(row | {"chosen_properties": chosen.of(row)})
            self.attempts += map(derived_columns.attempt, attempts.to_pylist())
            before = not_ended(_concat(before, events))
            chosen.keep(before)
        self.findings.did.update({"increments": len(list(increments())), "events": sum(self.counts.values())})

    def _compare(self, what: str, found: list[Row], expected: list[Row], key: Sequence[str]) -> None:
        self.findings.did[what] += len(expected)
        mine, theirs = by(found, (*LIST, *key)), by(expected, (*LIST, *key))
        for place in sorted(mine.keys() | theirs.keys(), key=repr):
            ours, other = mine.get(place, []), theirs.get(place, [])
            if len(ours) != len(other):
                self.findings.wrong.append(f"{what} {place}: (archive, oracle) {ours} {other}")
            for pair in zip(ours, other, strict=False):
                if different := _different(*pair):
                    self.findings.wrong.append(f"{what} {place}: (archive, oracle) {different}")

    def _losses_without_delivery(self) -> int:
        """Locks lost of messages that are held again without a receive: an undo returned them with their lock, or a receipt of
        Queue Storage was used again after its lease was given up. Other losses follow a receive."""
        from broker_core.common.types import EventKind as Kind
        from tests.analysis.jobs import oracle

        count, last, renewed = 0, dict[Any, Row](), set[Any]()
        for row in oracle.in_order(_concat(*increments())).to_pylist():
            place, kind = (row["entity_id"], row["sequence_number"]), row["kind"]
            before = last[place]["kind"] if place in last else None
            if kind == Kind.LOCK_LOST and before != Kind.RECEIVED:
                count += 1
                if before != Kind.RESTORED and not (before in (Kind.ABANDONED, Kind.RELEASED) and place in renewed):
                    self.findings.wrong.append(f"{place}: a lock was lost after {before}: {row}")
            if kind in (Kind.RECEIVED, Kind.RECEIVED_AND_DELETED) and before == Kind.RECEIVED:
                self.findings.wrong.append(f"{place}: received twice: {last[place]}, {row}")
            if kind not in oracle.NO_CHANGE:
                last[place] = row
                renewed.discard(place)
            elif kind == Kind.RENEWED:
                renewed.add(place)
        return count

    def _invariants(self, tried: list[Row]) -> None:
        from broker_core.common.types import EventKind as Kind

        carried = read("open")
        under_way = sum(row["received_at"] is not None for row in carried)
        received = self.counts[Kind.RECEIVED] + self.counts[Kind.RECEIVED_AND_DELETED]
        lost = sum(row["outcome"] == Kind.LOCK_LOST for row in tried)
        self.findings.did.update({"receives": received, "deliveries under way": under_way, "locks lost": lost})
        if received != len(tried) + under_way:
            self.findings.wrong.append(f"{received} receives, but {len(tried)} attempts and {under_way} under way")
        held_again = self._losses_without_delivery()
        self.findings.did["locks lost of messages that were held without a receive"] = held_again
        if lost + held_again != self.counts[Kind.LOCK_LOST]:
            self.findings.wrong.append(
                f"{self.counts[Kind.LOCK_LOST]} locks lost, but {lost} attempts, {held_again} without a receive"
            )
        present, kept = present_messages(), {(row["entity_id"], row["sequence_number"]) for row in carried}
        self.findings.did["messages that are there"] = len(present)
        if missing := present - kept:
            self.findings.wrong.append(f"{len(missing)} messages are there, but not carried: {sorted(missing)[:5]}")
        if extra := kept - present:
            self.findings.wrong.append(f"{len(extra)} messages are carried, but not there: {sorted(extra)[:5]}")
        if len(kept) != len(carried):
            self.findings.wrong.append(f"{len(carried) - len(kept)} messages are carried twice")


def not_ended(events: Any) -> Any:
    """The events of messages that have not ended."""
    import pyarrow as pa

    from broker_core.common.types import EventKind as Kind
    from tests.analysis.jobs import oracle

    rows = oracle.in_order(events).select(["entity_id", "sequence_number", "kind"]).to_pylist()
    last = {(row["entity_id"], row["sequence_number"]): row["kind"] for row in rows if row["kind"] not in oracle.NO_CHANGE}
    places = zip(events["entity_id"].to_pylist(), events["sequence_number"].to_pylist(), strict=True)
    return events.filter(pa.array([place in last and not Kind(last[place]).is_terminal for place in places]))


def _different(one: Row, other: Row) -> Row:
    """The columns that are not the same, or only in one of them."""
    names = [name for name in one.keys() | other.keys() if one.get(name, ...) != other.get(name, ...)]
    return {name: (one.get(name, ...), other.get(name, ...)) for name in sorted(names)}


def increments() -> Iterator[Any]:
    """The events of each derived part, from the event table."""
    from broker_core.history import archive
    from broker_core.models import ArchiveSlice

    slices = ArchiveSlice.objects.order_by("pk")
    assert not slices.exclude(state=ArchiveSlice.DONE, derived=True).exists(), "everything is derived"
    with archive.connected() as postgres:
        for slice_ in slices:
            events = archive.read_arrow(postgres, "history_slice_events", from_xid=slice_.from_xid, to_xid=slice_.to_xid)
            if events.num_rows:
                yield events


def read(content: str) -> list[Row]:
    """The rows of the files of a content that the manifest names."""
    import pyarrow.parquet as pq

    from broker_core.history import storage
    from broker_core.models import ArchiveFile

    here, rows = storage.current_archive(), list[Row]()
    for path in ArchiveFile.objects.filter(content=content).values_list("path", flat=True):
        with here.open(path) as opened:
            rows += pq.read_table(opened).to_pylist()
    return rows


def present_messages() -> set[tuple[int, int]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT entity_id, sequence_number FROM vitrine_message")
        return set(cursor.fetchall())


def by(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    by_key: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0]))):
        by_key[tuple(row[name] for name in names)].append(row)
    return by_key


def _concat(*tables: Any) -> Any:
    import pyarrow as pa

    return pa.concat_tables(tables)


if __name__ == "__main__":
    sys.exit(main())
