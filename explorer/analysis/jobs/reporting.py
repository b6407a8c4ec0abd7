"""Job "reporting": makes the tables of reports.

Specification: reports, a list of requests (history.Request.of), each with `report`, a module of jobs/reports, `title`, and
`result`, the file to write on the driver's machine. The tables are small, so the driver collects them.
"""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgpack
import pyarrow as pa
from pyarrow import ipc
from pyspark.sql import DataFrame, SparkSession

from . import runner
from .history import History, Request

AT_ONCE = 2  # tables of a report: one is planned while another one is computed


def run(spark: SparkSession, spec: dict, reporter: runner.Reporter) -> dict:
    for number, each in enumerate(spec["reports"]):
        reporter.step(f"Analysing: {each['title']}")
        Path(each["result"]).write_bytes(packed(tables(spark, each)))
        reporter.made(number)
    return {}


def steps(spec: dict) -> int:
    """How many steps the run reports."""
    return len(spec["reports"])


def tables(spark: SparkSession, spec: dict) -> dict[str, pa.Table]:
    """The tables of one request."""
    module = importlib.import_module(f"{__package__}.reports.{spec['report']}")
    try:
        frames = module.tables(History(spark, Request.of(spec)))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(frames, pool.map(DataFrame.toArrow, frames.values()), strict=True))
    finally:
        spark.catalog.clearCache()  # of frames that the report uses more than once


def packed(named_tables: dict[str, pa.Table]) -> bytes:
    """Tables as bytes, for explorer.analysis.reports.tables."""
    return msgpack.packb({name: _stream(table) for name, table in named_tables.items()})


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
