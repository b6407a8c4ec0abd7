"""Service level: how long messages waited, by week or month."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .. import measures, roll_up, traffic
from ..constants import BY_WEEK
from ..history import History

MEASURES = (measures.WAITING, measures.NEVER_RECEIVED)


def tables(history: History) -> dict[str, DataFrame]:
    """queues: entity_id, at (start of the week or month of entering), measure, bins, counts. known: of traffic.known."""
    span = history.request.span
    unit = "week" if span.end - span.start <= BY_WEEK else "month"
    timed = history.histograms().where(F.col("measure").isin(*MEASURES) & span.has("step"))
    periods = timed.withColumn("at", F.date_trunc(unit, "step"))
    return {"queues": roll_up.histograms(periods, "entity_id", "at", "measure"), "known": traffic.known(history)}
