"""Runs that add history to the archive that was never in the event table: imported from another system, or generated.

Their files are entered in the manifest together, as one slice, so that either all of it is added or nothing. Lives are derived
from them by the next run that makes reports, or at night.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from csv import reader
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.conf import settings
from django.db.models.functions import Now

from broker_core.common.types import Actor, Right
from broker_core.history import archive, manifest, storage
from broker_core.history.manifest import Change
from broker_core.models import ArchiveFile, Entity
from explorer.models import AnalysisRun

from ..generation import queue_of, reserve
from ..jobs import generated
from ..jobs.load import LOAD, Load
from ..jobs.masters import is_local
from ..jobs.message_files import COLUMNS, REQUIRED
from . import pipeline, runs
from .execution import CannotRun, Jobs

EVENTS_A_MESSAGE = 3.2  # of generated history, about
BYTES_A_ROW = 100  # of a file to import, about
CHUNK = 2**20  # bytes


def request_import(file: Path, entity: Entity, *, actor: Actor) -> AnalysisRun:
    """A run that imports the messages of a file of this machine. The caller executes it."""
    actor.require(Right.OPERATE, "the history")
    about = {"namespace": entity.namespace.name, "subject": f"Import of {file.name} into {entity}"}
    request = {"file": str(file.absolute()), "entity_id": entity.pk}
    return AnalysisRun.objects.create(
        kind=AnalysisRun.IMPORT, request=request, requested_by=str(actor), requested_at=Now(), **about
    )  # fmt: skip


def request_generation(
    queues: Sequence[Entity], *, messages: int, days: float, until: datetime, actor: Actor, load: Load = LOAD,
    skew: float | None = None, seed: int = 0,
) -> AnalysisRun:  # fmt: skip
    """A run that generates the history of about so many messages, over the days before `until`. The queues are of one namespace.
    The caller executes it.

    skew: the share of the first queue; None: every queue has the same. Numbers come from the queues' counters. The same arguments
    give the same times.
    """
    actor.require(Right.OPERATE, "the history")
    counts = [round(messages * share) for share in generated.shares(len(queues), skew)]
    request = {
        "queues": [queue.pk for queue in queues], "messages": counts, "days": days, "until": until.isoformat(), "seed": seed,
        "loads": [asdict(load)] * len(queues),
    }  # fmt: skip
    about = {"namespace": queues[0].namespace.name, "subject": f"Generated history of {queues[0].namespace.name}"}
    return AnalysisRun.objects.create(
        kind=AnalysisRun.GENERATION, request=request, requested_by=str(actor), requested_at=Now(), **about
    )  # fmt: skip


def import_history(jobs: Jobs, run: AnalysisRun) -> None:
    """Check the rows, take numbers for them, and write their events."""
    entity, file = Entity.objects.select_related("namespace").get(pk=run.request["entity_id"]), Path(run.request["file"])
    asked = _format(file) | _earliest_end(entity)
    asked |= {"file": _address(jobs, file, asked["form"]), "numbers_from": _next_number(entity)}
    jobs.expect(2 * file.stat().st_size // BYTES_A_ROW)  # events; both jobs use one driver
    checked = jobs.run("importing", asked)
    if checked["refusal"]:
        raise CannotRun(checked["refusal"])
    if not checked["rows"]:
        raise CannotRun(f"{file.name} has no rows. Write one row a message below the names of the columns.")
    last = checked["last_number"] or asked["numbers_from"] + checked["rows"] - 1
    if reserve(entity, last + 1 - asked["numbers_from"]) != asked["numbers_from"]:
        raise CannotRun(f"{entity} has got messages meanwhile, so that numbers are taken. Start the import again.")
    _, files = _add(jobs, "importing", asked | {"entity_id": entity.pk}, entity.namespace_id, rows=2 * checked["rows"])
    message = f"{checked['rows']:,} messages were added to the history of {entity}, in {len(files):,} files."
    runs.succeed(jobs.claim, message=message)


def generate_history(jobs: Jobs, run: AnalysisRun) -> None:
    """Generate events, and write the parameters and what was drawn beside them."""
    request, entities = run.request, Entity.objects.in_bulk(run.request["queues"])
    queues = [
        queue_of(entities[pk], reserve(entities[pk], count))
        for pk, count in zip(request["queues"], request["messages"], strict=True)
    ]
    specification = {
        **{name: request[name] for name in ("loads", "messages", "days", "until", "seed")},
        "queues": [asdict(queue) for queue in queues],
    }
    estimated, namespace_id = round(sum(request["messages"]) * EVENTS_A_MESSAGE), entities[request["queues"][0]].namespace_id
    jobs.expect(estimated)
    done, files = _add(jobs, "generation", specification, namespace_id, estimated=estimated)
    truths = done["truths"]
    facts = {"seed": request["seed"], "days": request["days"], "until": request["until"]}
    each = [truth | {"load": load} for truth, load in zip(truths, request["loads"], strict=True)]
    path = f"parameters/run-{run.pk:010d}.json"
    storage.current_archive().store(pa.py_buffer(json.dumps(facts | {"queues": each}, indent=1).encode()), path)
    messages, events = sum(truth["messages"] - truth["not_ended"] for truth in truths), sum(file.rows for file in files)
    message = f"{messages:,} messages with {events:,} events, in {len(files):,} files."
    runs.succeed(jobs.claim, message=f"{message} The parameters are in {path} of the archive.", events=events)


def _add(
    jobs: Jobs, job: str, specification: dict[str, Any], namespace_id: int, *, rows: int | None = None, estimated: int = 0
) -> tuple[dict[str, Any], list[ArchiveFile]]:
    """Have a job write events, and enter its files. rows: how many there will be, or else estimated: about how many. Returns what
    the job says, and the files."""
    folder, count = pipeline.new_folder(jobs), rows or estimated
    output = {"output": storage.current_archive().address(folder), "partitions": pipeline.partitions_of(count)}
    done = jobs.run(job, specification | output | {"namespace_id": namespace_id})
    return done, manifest.enter(folder, Change(added=True, rows=rows))


def _next_number(entity: Entity) -> int:
    with archive.connected() as connection:
        number: int = archive.row(connection, "history_next_number", entity_id=entity.pk).next_number
    return number


def _earliest_end(entity: Entity) -> dict[str, Any]:
    """From when on messages may have ended: counts of days that are not kept stay, and an import would replace them."""
    days = entity.namespace.archive_days
    if not days:
        return {"not_before": None}
    first = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)
    reason = f"it is older than the {days:,} days that the archive of {entity.namespace.name} is kept. Remove the row."
    return {"not_before": first.isoformat(), "too_old": reason}


def _address(jobs: Jobs, file: Path, form: str) -> str:
    """Where Spark opens a file of this machine, under a plain name: Spark skips names that begin with _ or a dot, and takes
    brackets as patterns. Workers of a cluster need a copy in the archive, which is deleted later."""
    name = f"import.{form}"
    if is_local(settings.SPARK_MASTER):
        link = jobs.folder.scratch / name
        link.symlink_to(file)
        return str(link)
    folder, own_archive = pipeline.new_folder(jobs), storage.current_archive()
    own_archive.copy(file, f"{folder}/{name}")
    return own_archive.address(f"{folder}/{name}")


def _format(file: Path) -> dict[str, Any]:
    """form, columns and nanoseconds of a file (jobs/importing.py)."""
    try:
        columns_of_file = _of_parquet(file) if file.suffix.lower() == ".parquet" else _of_csv(file)
    except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
        raise CannotRun(f"{file.name} cannot be read: {problem}. Write it as CSV in UTF-8, or as Parquet.") from None
    _check_names(columns_of_file["columns"])
    return columns_of_file


def _of_parquet(file: Path) -> dict[str, Any]:
    columns = pq.read_schema(file)
    fine = [column.name for column in columns if pa.types.is_timestamp(column.type) and column.type.unit == "ns"]
    return {"form": "parquet", "columns": columns.names, "nanoseconds": fine}


def _of_csv(file: Path) -> dict[str, Any]:
    """Reads all of it: Spark does not say where a text is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    with file.open(encoding="utf-8-sig", newline="") as text:
        return {"form": "csv", "columns": next(reader(text), [])}


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CannotRun(f"Column {twice[0]}: it is there more than once. Keep one.")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise CannotRun(f"Column {unknown[0]}: it is unknown. Remove or rename it; the columns are {', '.join(COLUMNS)}.")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise CannotRun(f"Column {missing[0]}: it is missing. Every file needs {', '.join(REQUIRED)}.")
