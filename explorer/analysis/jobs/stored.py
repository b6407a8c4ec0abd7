"""Reads and writes files of the archive in jobs.

A job writes to a folder of its own, under `content=.../day=.../namespace=.../`. The launcher enters the files in the manifest
when the job has ended; the folder of one that failed is deleted later. Files have the schema's version in the metadata of their
first column.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from . import schemas

NEAR = 1_000_000  # numbers of messages that are in one file
GROUP_BYTES = 16 * 2**20  # of a row group: a task writes several files at once, and holds a group of each in memory


def read(spark: SparkSession, columns: StructType, addresses: Sequence[str]) -> DataFrame:
    """The rows of files, with `day` (ISO 8601) and `namespace` of each from its path."""
    if not addresses:
        by = [StructField("day", StringType()), StructField("namespace", LongType())]
        return spark.createDataFrame([], StructType([*columns, *by])).where(F.lit(False))
    rows = spark.read.schema(columns).parquet(*addresses)
    return rows.withColumns({"day": _of_path("day"), "namespace": _of_path("namespace").cast("long")})


def write(rows: DataFrame, folder: str, by: Sequence[str], mode: str = "error") -> None:
    """Write rows to a folder, by these columns, in the order that they have within each partition. mode: "error": the folder must
    not exist yet."""
    first = next(name for name in rows.columns if name not in by)
    marked = rows.withColumn(first, F.col(first).alias(first, metadata={"vitrine.version": schemas.VERSION}))
    marked.write.mode(mode).partitionBy(*by).option("parquet.block.size", GROUP_BYTES).parquet(folder)


def write_events(rows: DataFrame, spec: dict) -> None:
    """Write schemas.EVENT, of which columns may be missing, in files of the days on which they were recorded. spec: output (a
    folder), namespace_id, and how many partitions. Messages of near numbers are in one file."""
    lacking = {field.name: F.lit(None).cast(field.dataType) for field in schemas.EVENT if field.name not in rows.columns}
    by = {"content": F.lit("events"), "day": F.to_date("recorded_at"), "namespace": F.lit(spec["namespace_id"])}
    near = F.floor(F.col("sequence_number") / NEAR)
    placed = rows.withColumns(lacking | by).repartition(spec["partitions"], "day", "entity_id", near)
    ordered = placed.sortWithinPartitions("day", "entity_id", "sequence_number", "event_id")
    write(ordered.select(*schemas.EVENT.names, *by), spec["output"], by=list(by))


def _of_path(name: str) -> Column:
    """The value of the innermost folder NAME=VALUE of a row's file. A regular expression would cost much more for each row."""
    return F.substring_index(F.substring_index("_metadata.file_path", f"/{name}=", -1), "/", 1)
