"""Waiting and work: how long messages waited for their first delivery, and how long processing took."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .. import roll_up, traffic
from ..history import History


def tables(history: History) -> dict[str, DataFrame]:
    """times: at (interval of entering), measure, bins, counts. queues: entity_id, measure, bins, counts. before: measure, bins,
    counts, of the range to compare with. known: of traffic.known."""
    request = history.request
    timed = history.histograms()
    current = timed.where(request.span.has("step"))
    before = timed.where(request.compared.has("step")) if request.compared else timed.where(F.lit(False))
    return {
        "times": roll_up.histograms(current.withColumn("at", history.floor("step")), "at", "measure"),
        "queues": roll_up.histograms(current, "entity_id", "measure"),
        "before": roll_up.histograms(before, "measure"),
        "known": traffic.known(history),
    }
