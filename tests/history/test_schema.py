"""The columns of files: Spark reads those that the archive writes, and versions are in what either writes."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import LongType, StructField, StructType

from broker_core.common.types import EventKind
from broker_core.history import schema
from explorer.analysis.jobs import outcomes, schemas
from explorer.analysis.jobs.kinds import Kind


@pytest.mark.parametrize(("ours", "theirs"), [(schema.EVENT, schemas.EVENT), (schema.SETTING, schemas.SETTING)])
def test_spark_reads_the_columns_that_the_archive_writes(ours, theirs):
    """Both are written down, and mean the same; Spark's are in the jobs, which know nothing of the broker."""
    spark = {field.name: field.dataType for field in theirs}
    assert spark == {field.name: from_arrow_type(field.type) for field in ours}


def test_spark_uses_the_brokers_numbers_for_kinds_and_outcomes():
    kinds = {name: value for name, value in vars(Kind).items() if name.isupper()}
    assert kinds == {kind.name: int(kind) for kind in EventKind}
    named = {name: value for name, value in vars(outcomes).items() if name in EventKind.__members__}
    assert len(named) >= 12 and named == {name: int(EventKind[name]) for name in named}


def by_spark(**metadata_of: dict) -> pa.Schema:
    """The schema of a file as Spark writes it: its own description of the columns, with their metadata, is in the file's."""
    described = StructType([StructField(name, LongType(), metadata=metadata) for name, metadata in metadata_of.items()])
    columns = pa.schema([(name, pa.int64()) for name in metadata_of])
    return columns.with_metadata({"org.apache.spark.sql.parquet.row.metadata": described.json()})


@pytest.mark.parametrize(
    ("found", "version"),
    [
        (schema.with_metadata(schema.EVENT), schema.VERSION),
        (schema.EVENT.with_metadata({"vitrine.version": "2"}), 2),
        (by_spark(n={"vitrine.version": 4}, m={}), 4),
        (by_spark(n={}, m={"vitrine.version": 3}), 3),
        (by_spark(n={"comment": "x"}), None),
        (by_spark(), None),
        (schema.EVENT, None),
        (schema.EVENT.with_metadata({"vitrine.version": "x"}), None),
    ],
)
def test_the_version_of_a_file_is_in_the_metadata_of_the_file_or_of_a_column(found, version):
    assert schema.version_of(found) == version


def test_jobs_write_the_version_that_is_read():
    assert schemas.VERSION == schema.VERSION
