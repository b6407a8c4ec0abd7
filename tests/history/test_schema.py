"""The columns of files, as the archive writes them and Spark reads them."""

from broker_core.common.types import EventKind
from broker_core.history import schema


def test_spark_reads_the_columns_that_the_archive_writes():
    """Both are written down, and mean the same; Spark's is in the job, which knows nothing of us."""
    from pyspark.sql.pandas.types import from_arrow_type

    from explorer.analysis.jobs import schemas

    for ours, theirs in ((schema.LIFE, schemas.LIFE), (schema.ATTEMPT, schemas.ATTEMPT)):
        spark = {field.name: (field.dataType, field.nullable) for field in theirs}
        assert spark == {field.name: (from_arrow_type(field.type), field.nullable) for field in ours}


def test_spark_knows_outcomes_by_the_brokers_numbers():
    from explorer.analysis.jobs import outcomes

    for name in ("COMPLETED", "DEAD_LETTERED", "EXPIRED", "CANCELLED", "PURGED", "RECEIVED_AND_DELETED"):
        assert getattr(outcomes, name) == EventKind[name]
