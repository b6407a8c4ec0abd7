"""Job "compact": writes the rows of small files of one content, day and namespace as few large ones, ordered by message.

Specification: content, files, output (a folder to write), partitions (how many files).
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from . import schemas, stored
from .runner import Reporter

STEPS = 2
ORDER = {"events": ("entity_id", "sequence_number", "event_id"), "lives": ("entity_id", "sequence_number", "ended_at")}


def run(spark: SparkSession, spec: dict, reporter: Reporter) -> dict:
    content = spec["content"]
    reporter.step(f"Merging {len(spec['files']):,} files of {content}")
    rows = stored.read(spark, schemas.BY_CONTENT[content], spec["files"]).withColumn("content", F.lit(content))
    if spec["partitions"] > 1:
        rows = rows.repartitionByRange(spec["partitions"], "entity_id", "sequence_number")
    else:
        rows = rows.coalesce(1)
    stored.write(rows.sortWithinPartitions(*ORDER[content]), spec["output"], by=("content", "day", "namespace"))
    return {}
