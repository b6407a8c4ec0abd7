"""Job "time in queue and outcome": outcomes of the messages that entered, and their waiting and processing times.

Specification: lives (files of ended lives), still_there (a file of lives without an end), exported_xmin, entity_ids, start, end
(ISO instants), bucket (minute, hour, day), accuracy, most_reasons, result (a folder to write).
Writes `result/whole`, `result/buckets`, `result/reasons`: one Parquet file each.
"""

import sys
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from . import runner, schemas, transforms

STEPS = 5


def run(spark: SparkSession, spec: dict, reporter: runner.Reporter) -> dict:
    reporter.step("Reading lives from the archive")
    lives = prepared(spark, spec).persist(StorageLevel.MEMORY_AND_DISK)
    messages = lives.count()
    print(
        f"{messages} messages entered in the range; {len(spec['lives'])} files of ended lives were read",
        file=sys.stderr,
        flush=True,
    )

    reporter.step("Outcomes and percentiles of the whole range")
    write(transforms.time_and_outcome(lives, ["entity_id"], accuracy=spec["accuracy"]), spec, "whole")

    reporter.step(f"Outcomes and percentiles by {spec['bucket']}")
    write(transforms.time_and_outcome(lives, ["entity_id", "bucket_at"], accuracy=spec["accuracy"]), spec, "buckets")

    reporter.step("Reasons of dead-lettering, moving and dropping")
    reasons = transforms.reasons(lives, ["entity_id", "bucket_at"], most=spec["most_reasons"])
    write(reasons, spec, "reasons")
    return {"messages": messages}


def prepared(spark: SparkSession, spec: dict) -> DataFrame:
    """The lives of the specification's range and entities, with their times and bucket."""
    reader = spark.read.schema(schemas.LIFE)
    ended = reader.parquet(*spec["lives"]) if spec["lives"] else spark.createDataFrame([], schemas.LIFE)
    lives = transforms.lives_and_still_there(ended, reader.parquet(spec["still_there"]), exported_xmin=spec["exported_xmin"])
    start, end = datetime.fromisoformat(spec["start"]), datetime.fromisoformat(spec["end"])
    return (
        lives.transform(transforms.entered_between, start, end, spec["entity_ids"])
        .transform(transforms.with_time_in_queue)
        .transform(transforms.with_expiry)
        .transform(transforms.with_bucket, spec["bucket"])
        .select("entity_id", "bucket_at", "outcome", "reason", "waiting_us", "processing_us", "generated")
    )


def write(frame: DataFrame, spec: dict, name: str) -> None:
    frame.repartition(1).write.mode("overwrite").parquet(str(Path(spec["result"]) / name))
