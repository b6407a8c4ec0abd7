"""Executes every job of the pipeline by a driver, over a small history in files, without a database."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from broker_core.common.types import EventKind
from broker_core.history import ordering, schema
from explorer.analysis.jobs import generated, reports
from explorer.analysis.jobs.load import LOAD
from explorer.analysis.running.driver import Driver
from tests.analysis.jobs.random_events import NOON, Writer, random_events

SECOND = timedelta(seconds=1)
REPORTS = sorted(module.name for module in pkgutil.iter_modules(reports.__path__))
STEADY = 9  # the entity whose history can be replayed: one consumer that is absent for two minutes of every ten
PLACE = "day=2026-03-01/namespace=1"
Rows = list[tuple[Any, ...]]


class Jobs:
    """Executes jobs by one driver, and keeps its log and specifications in a folder."""

    def __init__(self, driver: Driver, folder: Path):
        self._driver, self._folder, self._count = driver, folder, 0

    def run(self, job: str, **specification: Any) -> dict[str, Any]:
        """The last event of the driver: `finished` or `failed`."""
        self._count += 1
        path, log = self._folder / f"{self._count}-{job}.json", self._folder / "log.txt"
        path.write_text(json.dumps(specification))
        self._driver.ask(job, path)
        for event in self._driver.events(log):
            if event is not None and event["event"] in ("finished", "failed"):
                return event
        raise AssertionError(log.read_text()[-3000:])

    def done(self, job: str, **specification: Any) -> dict[str, Any]:
        """As `run`, for a job that must succeed."""
        event = self.run(job, **specification)
        assert event["event"] == "finished", event["message"]
        return event


def everything(jobs: Jobs, folder: Path) -> dict[str, Rows]:
    """What each job wrote, by content or by report and table, as sorted rows."""
    events = written_events(folder / "events" / PLACE)
    derived, carried = [], []
    for number, file in enumerate(events):
        output = folder / f"lives-{number}"
        jobs.done(
            "lives", events=[file], open=carried, output=str(output), partitions=2, today="2026-03-02",
            keys={str(entity): ["region"] for entity in (1, 2, 3)},
        )  # fmt: skip
        derived.append(output)
        carried = files(output, "open")
    jobs.done("roll_up", lives=files(derived[0], "lives"), output=str(folder / "rolled"), step_seconds=300)
    merged = folder / "merged"
    for content, inputs in (("lives", files(derived[0], "lives")), ("events", events)):
        jobs.done("compact", content=content, files=inputs, output=str(merged / content), partitions=2, rows=0)
    rows = {f"{job.name} {content}": rows_of(job, content) for job in derived for content in ("lives", "open")}
    rows |= {content: rows_of(folder / "rolled", content) for content in ("counts", "histograms")}
    rows |= {f"merged {content}": rows_of(merged / content, content) for content in ("lives", "events")}
    inputs = {content: files(folder / "rolled", content) for content in ("counts", "histograms")}
    inputs |= {"lives": files(derived[1], "lives"), "open": carried, "settings": [written_settings(folder)]}
    inputs["events"] = files(merged / "events", "events")
    asked = [a_report(folder, name, inputs, files(merged / "lives", "lives")) for name in REPORTS]
    jobs.done("reporting", reports=asked)
    for request in asked:
        packed = msgpack.unpackb(Path(request["result"]).read_bytes())
        rows |= {f"{request['title']} {name}": rows_in(ipc.open_stream(data).read_all()) for name, data in packed.items()}
    verified = jobs.done(
        "verification", events=events, lives=[path for each in derived for path in files(each, "lives")], open=carried
    )
    assert verified["messages"] > 100 and verified["wrong"] == []
    return rows | {"imported": _imported(jobs, folder), "generated": _generated(jobs, folder)}


def _imported(jobs: Jobs, folder: Path) -> Rows:
    """The events of a file of 3,000 messages."""
    file, output = folder / "old.csv", folder / "imported"
    end = "2026-03-{day:02}T12:00:00Z,2026-03-{day:02}T12:00:0{second}Z,completed,message {number}"
    rows = (end.format(day=1 + number % 3, second=number % 10, number=number) for number in range(3000))
    file.write_text("\n".join(["enqueued_at,ended_at,outcome,message_id", *rows]))
    columns = ["enqueued_at", "ended_at", "outcome", "message_id"]
    asked: dict[str, Any] = {"file": str(file), "form": "csv", "columns": columns, "numbers_from": 5, "not_before": None}
    checked = jobs.done("importing", **asked)
    assert (checked["rows"], checked["refusal"]) == (3000, None)
    jobs.done("importing", **asked, entity_id=7, namespace_id=1, output=str(output), partitions=2)
    return rows_of(output, "events")


def _generated(jobs: Jobs, folder: Path) -> Rows:
    """The events of two queues with a day of load."""
    output, queues = folder / "generated", [generated.Queue(number, f"q-{number}", 1) for number in (1, 2)]
    done = jobs.done(
        "generation", queues=[asdict(queue) for queue in queues], loads=[asdict(LOAD)] * 2, messages=[300, 200], days=1.0,
        until=NOON.isoformat(), seed=3, namespace_id=1, output=str(output), partitions=2,
    )  # fmt: skip
    assert [truth["path"] for truth in done["truths"]] == ["q-1", "q-2"]
    return rows_of(output, "events")


def a_report(folder: Path, name: str, given: Mapping[str, list[str]], rolled: list[str]) -> dict[str, Any]:
    """The request of a report over all that there is."""
    end, before = NOON + timedelta(hours=12), NOON - timedelta(hours=12)
    span = {"start": NOON.isoformat(), "end": end.isoformat()}
    return {
        "report": name, "title": name, "result": str(folder / f"{name}.tables"), "span": span, "now": end.isoformat(),
        "compared": {"start": before.isoformat(), "end": NOON.isoformat()}, "step_seconds": 300.0,
        "entity_ids": [STEADY] if name == "what_if" else [1, 2, 3, STEADY],
        "values": {
            "entity_ids": [1, 2, 3, STEADY], "time_to_live": 60_000_000, "within": 60_000_000, "share": 95.0,
            "traits": {"deliveries": 5, "more": 0},
            "deploys": [{"at": (NOON + timedelta(hours=1)).isoformat(), "name": "7.1", "actor": "user:a"}],
        },
        "files": given, "rolled": {"lives": rolled},
    }  # fmt: skip


def written_events(folder: Path, seed: int = 7, count: int = 1500) -> list[str]:
    """Two files of events, as the archiver writes them. No transaction is in both."""
    folder.mkdir(parents=True)
    results = []
    for table in parts(pa.concat_tables([random_events(seed, count), steady_events(count)])):
        results.append(str(folder / f"slice-{len(results)}.parquet"))
        by_message = table.sort_by([(name, "ascending") for name in ("entity_id", "sequence_number", "event_id")])
        pq.write_table(ordering.in_order(by_message), results[-1])
    return results


def parts(events: pa.Table) -> list[pa.Table]:
    """Halves of each entity's history, in the order of ids."""
    middle = events["recorded_at"][events.num_rows // 4].as_py()
    early = pa.compute.less(events["recorded_at"], pa.scalar(middle, events.schema.field("recorded_at").type))
    return [events.filter(early), events.filter(pa.compute.invert(early))]


def steady_events(first_id: int, messages: int = 60) -> pa.Table:
    """Messages at every tenth second, each of which takes 9 s of work."""
    writer, free = Writer(Random(1)), 0
    for number in range(1, messages + 1):
        begun = max(number * 10, free)
        begun += max(120 - begun % 600, 0)
        free = begun + 9
        enqueued, received = NOON + number * 10 * SECOND, NOON + begun * SECOND
        times = {"enqueued_at": enqueued, "first_received_at": received, "last_received_at": received}
        _write(writer, enqueued, number, EventKind.SENT, enqueued_at=enqueued, size=100)
        until = received + 30 * SECOND
        _write(writer, received, number, EventKind.RECEIVED, actor="consumer", locked_until=until)
        _write(writer, NOON + free * SECOND, number, EventKind.COMPLETED, actor="consumer", delivery_count=0, **times)
    rows = sorted(writer.rows, key=lambda row: row["at"])
    again = [row | {"event_id": first_id + 1000 + place, "xid": 100_000 + place} for place, row in enumerate(rows)]
    return pa.Table.from_pylist(again, schema=schema.EVENT)


def written_settings(folder: Path) -> str:
    """A file of revisions of settings, one of them in the range."""
    settings_row = {"path": "q", "kind": "queue", "family": "service_bus", "actor": "user:a"}
    rows = [
        {"revision_id": number, "entity_id": 1, "since": at, "settings": f'{{"max_delivery_count": {number}}}', **settings_row}
        for number, at in ((1, datetime(2026, 2, 1, tzinfo=UTC)), (2, NOON + timedelta(hours=1)))
    ]
    path = folder / "settings.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema.SETTING), path)
    return str(path)


def files(folder: Path, content: str) -> list[str]:
    """The files of a content that a job wrote."""
    return [str(file) for file in sorted(folder.glob(f"content={content}/**/*.parquet"))]


def rows_of(folder: Path, content: str) -> Rows:
    """The rows of a content, each with its day and namespace, sorted."""
    results = []
    for file in files(folder, content):
        results += [
            (Path(file).parent.relative_to(folder).as_posix(), *row) for row in _tuples(pq.read_table(file, partitioning=None))
        ]
    return sorted(results, key=repr)


def rows_in(table: pa.Table) -> Rows:
    """The rows of a table, sorted."""
    return sorted(_tuples(table), key=repr)


def _tuples(table: pa.Table) -> Rows:
    return [tuple(row.values()) for row in table.to_pylist()]


def _write(writer: Writer, at: datetime, number: int, kind: EventKind, **values: Any) -> None:
    writer.at = writer.recorded_at = at
    writer.write(STEADY, number, kind, **{"entity_time_to_live_us": None, **values})
