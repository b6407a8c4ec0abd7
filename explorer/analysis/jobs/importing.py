"""Job "importing": makes events of the messages of another system, a row each, in a CSV or Parquet file (docs/history.md).

Specification: file, form ("csv" or "parquet"), columns (of the file, in its order), nanoseconds (columns of a Parquet file that
are instants in nanoseconds), numbers_from (the queue's next number), and not_before (no message may have ended before this
instant, ISO 8601; or null) with `too_old` (the end of a sentence: why not).

Without `output`, the rows are only checked. The result has `rows` (how many there are), `refusal` (a sentence about the first row
that cannot be imported) and `last_number`. With `output`, a folder to write, two events are written for each row: of the sending
and of the end, both in the file of the day of the end. Then entity_id, namespace_id and partitions are in the specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, FractionalType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from . import schemas, stored
from .kinds import Kind
from .message_files import COLUMNS, OUTCOMES, REQUIRED, TIMES
from .runner import Reporter

STEPS = 2
_FORMS = {
    "timestamp": "a time with its zone, such as 2026-03-01T12:00:00Z", "int": "a whole number", "bigint": "a whole number",
    "double": "a number of seconds",
}  # fmt: skip
_ZONED = r"T.*(Z|[+-]\d\d(:?\d\d)?)$"  # a text that Spark takes as a time also if it has no zone
_NUMBER = r"^[-+0-9.eE]+$"
LONGEST_TIME_TO_LIVE = 9e12  # seconds
MOST_CHARACTERS = 80  # of a value in a refusal
NANOSECONDS = "spark.sql.legacy.parquet.nanosAsLong"  # Spark has no such instants: it reads them as numbers
CSV: dict[str, str | int | bool] = {
    "header": True, "multiLine": True, "escape": '"', "nullValue": "", "emptyValue": "", "maxCharsPerColumn": -1,
    "columnNameOfCorruptRecord": "_wrong",
}  # fmt: skip


def run(spark: SparkSession, spec: dict, reporter: Reporter) -> dict:
    spark.conf.set(NANOSECONDS, "true")
    try:
        rows = typed(read(spark, spec), spec.get("nanoseconds", ()))
        if "output" not in spec:
            reporter.step("Checking the rows")
            return checked(rows, spec)
        reporter.step("Writing events")
        stored.write_events(events(rows, spec), spec)
        return {}
    finally:
        spark.conf.unset(NANOSECONDS)


def read(spark: SparkSession, spec: dict) -> DataFrame:
    """The rows as the file has them, with `row` from 1 on, and `_wrong`: the text of a row with too few or too many values."""
    if spec["form"] == "parquet":
        rows = spark.read.parquet(spec["file"])
        return rows.select("*", (F.col("_metadata.row_index") + 1).alias("row"), F.lit(None).cast("string").alias("_wrong"))
    columns = StructType([StructField(name, StringType()) for name in (*spec["columns"], "_wrong")])
    rows = spark.read.schema(columns).options(**CSV).csv(spec["file"])  # one partition, since a text may have several lines
    return rows.withColumn("row", F.monotonically_increasing_id() + 1)


def typed(rows: DataFrame, nanoseconds: tuple[str, ...] | list[str] = ()) -> DataFrame:
    """COLUMNS with their types, `row`, `_wrong`, and `not_<column>`: the text of a value that has another type."""
    types = {field.name: field.dataType for field in rows.schema}
    columns: dict[str, Column] = {}
    for name, kind in COLUMNS.items():
        if name not in types:
            columns |= {name: F.lit(None).cast(kind), f"not_{name}": F.lit(None).cast("string")}
            continue
        column, value = F.col(name), _value(F.col(name), types[name], kind, name in nanoseconds)
        columns |= {name: value, f"not_{name}": F.when(column.isNotNull() & value.isNull(), column.cast("string"))}
    return rows.select("row", "_wrong", *(value.alias(name) for name, value in columns.items()))


def checked(rows: DataFrame, spec: dict) -> dict:
    """What is known of typed rows: `rows`, `refusal`, `last_number`."""
    refused = F.coalesce(*_refusals(spec))
    numbered = rows.select(
        "row", "sequence_number", F.when(refused.isNotNull(), F.struct("row", refused.alias("why"))).alias("no")
    )
    total = numbered.agg(F.count("*").alias("rows"), F.max("sequence_number").alias("last"), F.min("no").alias("no")).first()
    assert total is not None
    refusal = None if total["no"] is None else f"Row {total['no']['row']:,}{total['no']['why']}"
    return {"rows": total["rows"], "last_number": total["last"], "refusal": refusal or _number_twice(rows)}


def events(rows: DataFrame, spec: dict) -> DataFrame:
    """schemas.EVENT, of typed rows without a refusal."""
    number = F.coalesce("sequence_number", F.col("row") - 1 + F.lit(spec["numbers_from"]))
    kind = F.element_at(F.create_map(*(F.lit(value) for pair in OUTCOMES.items() for value in pair)), F.col("outcome"))
    both = {
        "recorded_at": F.col("ended_at"), "xid": F.lit(0), "entity_id": F.lit(spec["entity_id"]), "subqueue": F.lit(0),
        "sequence_number": number, "message_id": F.col("message_id"), "enqueued_at": F.col("enqueued_at"), "size": F.col("size"),
    }  # fmt: skip
    sent = both | {
        "event_id": 2 * F.col("row") - 1, "at": F.col("enqueued_at"), "kind": F.lit(Kind.SENT),
        "session_id": F.col("session_id"), "time_to_live_us": F.round(F.col("time_to_live_seconds") * 1e6),
    }  # fmt: skip
    ended = both | {
        "event_id": 2 * F.col("row"), "at": F.col("ended_at"), "kind": kind, "reason": F.col("reason"),
        "actor": F.col("settled_by"), "delivery_count": F.col("deliveries"),
        "first_received_at": F.coalesce("first_received_at", "last_received_at"),
        "last_received_at": F.coalesce("last_received_at", "first_received_at"),
    }  # fmt: skip
    pair = F.array(*(_event(values) for values in (sent, ended)))
    return rows.select(F.inline(pair))


def _value(column: Column, of: object, kind: str, is_nanoseconds: bool) -> Column:
    """A value as a kind of COLUMNS; NULL if it cannot be."""
    if is_nanoseconds:
        return F.timestamp_micros(F.floor(column / 1000).cast("long"))
    if isinstance(of, StringType):
        form = {"timestamp": _ZONED, "double": _NUMBER}.get(kind)
        return F.when(column.rlike(form), column.try_cast(kind)) if form else column.try_cast(kind)
    if kind == "timestamp":
        is_instant = isinstance(of, TimestampType | TimestampNTZType | DateType)
        return column.cast(kind) if is_instant else F.lit(None).cast(kind)
    if kind in ("int", "bigint") and isinstance(of, FractionalType):
        return F.when(column == F.floor(column), column.try_cast(kind))
    return column.try_cast(kind)


def _refusals(spec: dict) -> Iterator[Column]:
    """Why a row is refused, each NULL where it is not: the end of a sentence that begins with the row."""

    def where(condition: Column, name: str, problem: str | Column) -> Column:
        text = F.lit(problem) if isinstance(problem, str) else problem
        return F.when(condition, F.concat(F.lit(f", column {name}: "), text))

    def quoted(name: str, problem: str) -> Column:
        return F.concat(F.lit("'"), F.substring(name, 1, MOST_CHARACTERS), F.lit(f"' {problem}"))

    begin, end = f": it does not have {len(spec['columns'])} values (", "). Put texts with commas in quotation marks."
    text = F.concat(F.lit(begin), F.substring("_wrong", 1, MOST_CHARACTERS), F.lit(end))
    yield F.when(F.col("_wrong").isNotNull(), text)
    for name, kind in COLUMNS.items():
        if kind in _FORMS:
            problem = f"is not {_FORMS[kind]}. Correct it, or leave it empty if the column is optional."
            yield where(F.col(f"not_{name}").isNotNull(), name, quoted(f"not_{name}", problem))
    for name in REQUIRED:
        yield where(F.col(name).isNull(), name, "it is empty. Every row needs a value.")
    for earlier, later in ((a, b) for place, a in enumerate(TIMES) for b in TIMES[place + 1 :]):
        problem = f"it is before {earlier}. Check whether the two columns are exchanged."
        yield where(F.col(later) < F.col(earlier), later, problem)
    if spec.get("not_before"):
        yield where(F.col("ended_at") < F.lit(datetime.fromisoformat(spec["not_before"])), "ended_at", spec["too_old"])
    yield where(~F.col("outcome").isin(*OUTCOMES), "outcome", quoted("outcome", f"is none of {', '.join(OUTCOMES)}."))
    for name in ("deliveries", "size", "time_to_live_seconds"):
        yield where(F.col(name) < 0, name, "it is negative. Leave it empty if it is unknown.")
    limit = F.isnan("time_to_live_seconds") | (F.col("time_to_live_seconds") > LONGEST_TIME_TO_LIVE)
    yield where(limit, "time_to_live_seconds", "it is too long. Leave it empty if the message lives for ever.")
    if "sequence_number" in spec["columns"]:
        yield where(F.col("sequence_number").isNull(), "sequence_number", "it is empty. Number all rows, or remove the column.")
    first = spec["numbers_from"]
    problem = f"it is below {first}, the queue's next number. Give others, or remove the column."
    yield where(F.col("sequence_number") < first, "sequence_number", problem)


def _number_twice(rows: DataFrame) -> str | None:
    """A sentence about the first row whose number another row before it has."""
    same = Window.partitionBy("sequence_number").orderBy("row")
    numbered = rows.where(F.col("sequence_number").isNotNull()).select("row", F.lag("row").over(same).alias("earlier"))
    repeated = numbered.where("earlier IS NOT NULL").orderBy("row").first()
    if repeated is None:
        return None
    text = f"row {repeated['earlier']:,} has the same. Give each row another one, or remove the column."
    return f"Row {repeated['row']:,}, column sequence_number: {text}"


def _event(values: dict[str, Column]) -> Column:
    """A row of schemas.EVENT with these values, the others NULL."""
    columns = [values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in schemas.EVENT]
    return F.struct(*columns)
