"""What a report reads: data frames over the files of the archive, restricted to its entities.

A report is a function of a `History` that returns its tables, small data frames (jobs/reports). It reads roll-ups first, else
lives and attempts. All is up to the newest derived event; messages that have not ended count until the namespace's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from . import outcomes, roll_up, schemas

MAIN = 0  # the sub-queue of messages that can be received


@dataclass(frozen=True, slots=True)
class Span:
    """From an instant up to, but not including, another one; aware UTC."""

    start: datetime
    end: datetime

    def has(self, column: str) -> Column:
        """Whether an instant of a row is in it; NULL is not."""
        return F.coalesce((F.col(column) >= F.lit(self.start)) & (F.col(column) < F.lit(self.end)), F.lit(False))


@dataclass(frozen=True, slots=True)
class Request:
    """What a report is asked.

    now: by the namespace's clock. step: the interval of its charts, by which it groups. values: of its form. files: addresses by
    content (schemas.BY_CONTENT). rolled: those of lives that roll-ups already count.
    """

    entity_ids: Sequence[int]
    span: Span
    now: datetime
    step: timedelta
    compared: Span | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rolled: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Request:
        """From a specification (JSON; instants in ISO 8601)."""

        def span(instants: Mapping[str, str] | None) -> Span | None:
            return Span(datetime.fromisoformat(instants["start"]), datetime.fromisoformat(instants["end"])) if instants else None

        return cls(
            entity_ids=spec["entity_ids"],
            span=Span(datetime.fromisoformat(spec["span"]["start"]), datetime.fromisoformat(spec["span"]["end"])),
            now=datetime.fromisoformat(spec["now"]),
            step=timedelta(seconds=spec["step_seconds"]),
            compared=span(spec.get("compared")),
            values=spec.get("values", {}),
            files=spec.get("files", {}),
            rolled=spec.get("rolled", {}),
        )


class History:
    """The rows of the request's entities. frames: instead of files, by content, for tests."""

    def __init__(self, spark: SparkSession, request: Request, frames: Mapping[str, DataFrame] | None = None):
        self.spark, self.request, self._frames = spark, request, frames or {}
        self._counts: DataFrame | None = None

    def lives(self) -> DataFrame:
        """schemas.LIFE: messages that left a list (any sub-queue)."""
        return self._lives(late=False)

    def attempts(self) -> DataFrame:
        """schemas.ATTEMPT: deliveries that ended."""
        return self._attempts(late=False)

    def events(self) -> DataFrame:
        """schemas.EVENT."""
        return self._read("events", self.request.files.get("events", ()))

    def settings(self) -> DataFrame:
        """schemas.SETTING."""
        return self._read("settings", self.request.files.get("settings", ()))

    def open(self) -> DataFrame:
        """schemas.LIFE: messages that are still in the main list, with outcome and result STILL_THERE; those that were not
        received have waited up to now. Scheduled ones that are not due are left out."""
        rows = self._read("open", self.request.files.get("open", ()))
        present = rows.where(~F.col("is_waiting") & (F.col("subqueue") == MAIN) & F.col("enqueued_at").isNotNull())
        age = micros(F.lit(self.request.now)) - micros(F.col("enqueued_at"))
        limit = F.coalesce("time_to_live_us", F.least("entity_time_to_live_us", "topic_time_to_live_us"))
        received = F.col("first_received_at")
        known = {
            "outcome": F.lit(outcomes.STILL_THERE), "result": F.lit(outcomes.STILL_THERE),
            "waiting_us": F.when(received.isNotNull(), F.greatest(micros(received) - micros(F.col("enqueued_at")), F.lit(0))),
            "never_received_us": F.when(received.isNull(), F.greatest(F.least(age, limit), F.lit(0))),
            "time_to_live_in_force_us": limit,
        }  # fmt: skip
        return present.select(
            *(
                known.get(column.name, F.col(column.name) if column.name in rows.columns else F.lit(None))
                .cast(column.dataType).alias(column.name)
                for column in schemas.LIFE
            )
        )  # fmt: skip

    def counts(self) -> DataFrame:
        """schemas.COUNT, of main lists: of roll-ups, of what none counts yet, and of messages that have not ended (their end_step
        is NULL). Several rows may have equal keys. The tables of a report read them several times, so they are kept until its job
        has ended."""
        if self._counts is None:
            late, tried = self._lives(late=True).unionByName(self.open()), self._attempts(late=True)
            rolled = self._read("counts", self.request.files.get("counts", ()))
            rows = rolled.unionByName(roll_up.counts_of_lives(late)).unionByName(roll_up.counts_of_attempts(tried))
            self._counts = rows.where(F.col("subqueue") == MAIN).persist()
        return self._counts

    def histograms(self) -> DataFrame:
        """As `counts`: entity_id, step, measure, bin, n."""
        rolled = self._read("histograms", self.request.files.get("histograms", ())).where(F.col("subqueue") == MAIN)
        each = F.inline(F.arrays_zip("measures", "bins", "counts")).alias("measure", "bin", "n")
        late = roll_up.bins(self._lives(late=True).unionByName(self.open())).where(F.col("subqueue") == MAIN)
        return rolled.select("entity_id", "step", each).unionByName(late.drop("subqueue"))

    def floor(self, column: str) -> Column:
        """The start of the chart interval in which an instant is. Weeks begin on Monday."""
        return roll_up.floor(column, self.request.step)

    def _lives(self, *, late: bool) -> DataFrame:
        """late: only those that no roll-up counts yet."""
        return roll_up.ended_lives(self._ended(late))

    def _attempts(self, *, late: bool) -> DataFrame:
        if "attempts" in self._frames:
            return self._of_entities(self._frames["attempts"])
        return roll_up.ended_attempts(self._ended(late))

    def _ended(self, late: bool) -> DataFrame:
        rolled = () if late else self.request.rolled.get("lives", ())
        return self._read("lives", [*self.request.files.get("lives", ()), *rolled])

    def _of_entities(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("entity_id").isin(list(self.request.entity_ids)))

    def _read(self, content: str, addresses: Sequence[str]) -> DataFrame:
        columns = schemas.BY_CONTENT[content]
        if content in self._frames:
            rows = self._frames[content]
        elif addresses:
            rows = self.spark.read.schema(columns).parquet(*addresses)
        else:
            rows = self.spark.createDataFrame([], columns).where(F.lit(False))  # so that the optimizer leaves it out
        return self._of_entities(rows)


def micros(at: Column) -> Column:
    """An instant in microseconds since 1970."""
    return F.unix_micros(at)


def percentile(value: Column | str, *shares: float) -> Column:
    """The values that these shares do not exceed, as an array; NULL: there are no values. NULLs do not count."""
    return F.percentile_approx(value, list(shares), 10_000)
