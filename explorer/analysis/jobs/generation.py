"""Job "generation": generates the history of a load with known parameters (load.py) as events in files, a task for each queue.

Specification: queues (generated.Queue as objects), loads (load.Load as objects, of each queue), messages (of each), days, until
(ISO 8601), seed, namespace_id, output (a folder to write), partitions. The result has `truths` (load.Truth as objects), by queue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from . import by_value, generated, kinds, load, schemas, stored
from .runner import Reporter

STEPS = 2
IDS = 1 << 40  # so many ids of events are reserved for each queue
BATCH = 100_000  # events that a worker hands over at a time
COLUMNS = StructType([field for field in schemas.EVENT if field.name in generated.EVENT.names])


class Truths(AccumulatorParam[dict]):
    """Adds up dictionaries; a task that is repeated gives the same again."""

    def zero(self, value: dict) -> dict:
        return {}

    def addInPlace(self, value1: dict, value2: dict) -> dict:
        return value1 | value2


def run(spark: SparkSession, spec: dict, reporter: Reporter) -> dict:
    queues = [generated.Queue(**queue) for queue in spec["queues"]]
    loads = [load_of(values) for values in spec["loads"]]
    days, until, seed, messages = spec["days"], datetime.fromisoformat(spec["until"]), spec["seed"], spec["messages"]
    with by_value.modules(kinds, load, generated, sys.modules[__name__]):  # the last for Truths
        truths = spark.sparkContext.accumulator({}, Truths())

        def events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for place in (place for batch in batches for place in batch.column(0).to_pylist()):
                queue = queues[place]
                played = generated.played(queue, place, messages[place], days, until, loads[place], seed)
                truths.add({place: asdict(played.truth)})
                batch_events = generated.Events([queue], [played], archived=True, first_id=place * IDS + 1)
                for table in batch_events.by_time(BATCH):
                    yield from table.to_batches()

        reporter.step(f"Generating the history of {len(queues):,} queues")
        rows = spark.range(0, len(queues), numPartitions=len(queues)).mapInArrow(events, COLUMNS)
        stored.write_events(rows, spec)
    return {"truths": [_plain(truths.value[place]) for place in range(len(queues))]}


def load_of(values: dict[str, Any]) -> load.Load:
    """A load from what JSON made of it."""
    arguments: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    if arguments.get("incident"):
        arguments["incident"] = load.Incident(**arguments["incident"])
    return load.Load(**arguments)


def _plain(truth: dict[str, Any]) -> dict[str, Any]:
    """A truth for JSON."""
    outages = [[instant.isoformat() for instant in pair] for pair in truth["outages"]]
    return truth | {"outages": outages, "longer_than": list(truth["longer_than"].items())}
