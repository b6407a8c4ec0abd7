"""Presents a run and its results: sentences, chart series, table rows. Pure: no request, no query."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from explorer.models import AnalysisReason, AnalysisResult, AnalysisRun
from explorer.shared.charts import WIDTHS, Chart, brief, duration_lines, stacked_bars

from .running.runs import BUCKET_LENGTH

# In the order of the chart, the table and the file.
OUTCOMES = {
    "completed": "completed",
    "received_and_deleted": "received and deleted",
    "dead_lettered": "dead-lettered",
    "moved": "moved to other queues",
    "forwarded": "forwarded",
    "resubmitted": "resubmitted",
    "dropped": "dropped",
    "expired": "expired",
    "purged": "purged",
    "deleted": "deleted",
    "other": "other",
    "still_there": "still in the queue",
}
DELIVERED = ("completed", "received_and_deleted", "forwarded")
WITH_REASON = {"dead_lettered": "dead-lettered", "moved": "moved", "dropped": "dropped"}
PERCENTILES = ("p50", "p95", "p99")
MOST_NAMED = 5  # queues in a sentence
TIMES = {"waiting": "waited", "processing": "processed"}


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue's part of a result page.

    rows: per bucket. whole: the whole range. outcomes: those that occur, with their labels. delivered: those of them that are a
    success. why: the outcomes that have reasons.
    """

    queue: dict
    whole: AnalysisResult
    rows: list[AnalysisResult]
    outcomes: dict[str, str]
    delivered: tuple[str, ...]
    reasons: list[tuple[str, int]]
    why: str
    outcome_charts: list[Chart]
    trouble_charts: list[Chart]
    waiting_charts: list[Chart]
    processing_charts: list[Chart]
    sentence: str
    trouble_sentence: str
    waiting_sentence: str
    processing_sentence: str


def queue_view(
    run: AnalysisRun, queue: dict, results: Sequence[AnalysisResult], reasons: Iterable[AnalysisReason]
) -> QueueView | None:
    """A queue's results for the template; None if no message entered it in the range."""
    whole = next((result for result in results if result.bucket_at is None), None)
    if whole is None:
        return None
    by_start = {result.bucket_at: result for result in results if result.bucket_at}
    starts = buckets(run)
    outcomes = outcomes_among([whole])
    ranked = rank_reasons(reasons)
    partial = [is_partial(run, at) for at in starts]

    def named(at: datetime) -> str:
        return moment(at, run.bucket) + (" (partial)" if is_partial(run, at) else "")

    def column(name: str, missing=None) -> list:
        return [getattr(by_start[at], name) if at in by_start else missing for at in starts]

    def lines(kind: str) -> list[Chart]:
        series = {p: column(f"{kind}_{p}") for p in PERCENTILES}
        tips = [
            f"{named(at)}: " + ", ".join(f"{p} {brief(values[i])}" for p, values in series.items()) for i, at in enumerate(starts)
        ]
        return [duration_lines(starts, series, tips, variant, partial=partial) for variant in WIDTHS]

    counts = {name: column(name, 0) for name in outcomes}
    trouble = {name: values for name, values in counts.items() if name not in DELIVERED}
    tips = [
        f"{named(at)}: "
        + (", ".join(f"{values[i]:,} {OUTCOMES[name]}" for name, values in counts.items() if values[i]) or "none")
        for i, at in enumerate(starts)
    ]
    return QueueView(
        queue=queue,
        whole=whole,
        rows=[by_start[at] for at in starts if at in by_start],
        outcomes=outcomes,
        delivered=DELIVERED,
        reasons=ranked,
        why=_or([word for name, word in WITH_REASON.items() if getattr(whole, name)]),
        outcome_charts=[stacked_bars(starts, counts, tips, variant, partial=partial) for variant in WIDTHS],
        trouble_charts=[stacked_bars(starts, trouble, tips, variant, partial=partial) for variant in WIDTHS] if trouble else [],
        waiting_charts=lines("waiting"),
        processing_charts=lines("processing"),
        sentence=outcome_sentence(whole, ranked),
        trouble_sentence=trouble_sentence(whole),
        waiting_sentence=time_sentence(whole, "waiting", "received", "No messages were received."),
        processing_sentence=time_sentence(whole, "processing", "settled", "No messages were settled by a receiver."),
    )


def queue_names(queues: Sequence[dict]) -> str:
    """The first queues by name, and how many more there are."""
    named = ", ".join(f"{queue['namespace']}/{queue['path']}" for queue in queues[:MOST_NAMED])
    return named + (f" and {len(queues) - MOST_NAMED:,} more" if len(queues) > MOST_NAMED else "")


def outcomes_among(rows: Iterable[AnalysisResult]) -> dict[str, str]:
    """The outcomes that occur, with their labels, in the order of OUTCOMES."""
    rows = list(rows)
    return {name: word for name, word in OUTCOMES.items() if any(getattr(row, name) for row in rows)}


def buckets(run: AnalysisRun) -> list[datetime]:
    """The starts of all buckets of the range, empty ones included."""
    length = BUCKET_LENGTH[run.bucket]
    midnight = run.start_at.replace(hour=0, minute=0, second=0, microsecond=0)
    at, starts = midnight + (run.start_at - midnight) // length * length, []
    while at < run.end_at:
        starts.append(at)
        at += length
    return starts


def outcome_sentence(whole: AnalysisResult, reasons: list[tuple[str, int]]) -> str:
    """The outcomes of the messages, most frequent first."""
    counts = sorted(((getattr(whole, name), word) for name, word in OUTCOMES.items()), reverse=True)
    verbs = ("is", "was") if whole.messages == 1 else ("are", "were")
    parts = [f"{share(count, whole.messages)} {verbs[word != 'still in the queue']} {word}" for count, word in counts if count]
    mostly = f" Most frequent reason: {reasons[0][0]}." if reasons else ""
    return f"Of {whole.messages:,} {'message' if whole.messages == 1 else 'messages'}, {_joined(parts)}.{mostly}"


def trouble_sentence(whole: AnalysisResult) -> str:
    """How many messages were not completed or received and deleted."""
    count = whole.messages - sum(getattr(whole, name) for name in DELIVERED)
    if not count:
        return "All messages were completed, received and deleted, or forwarded."
    return f"{count:,} of {whole.messages:,} ({share(count, whole.messages)}) were not completed (yet)."


def time_sentence(whole: AnalysisResult, kind: str, verb: str, none: str) -> str:
    """Three percentiles as a sentence. verb: of the receiver's action. none: the sentence if there is no time."""
    count = getattr(whole, TIMES[kind])
    if not count:
        return none
    p50, p95, p99 = (brief(getattr(whole, f"{kind}_{p}")) for p in PERCENTILES)
    return f"Of {count:,} messages, half were {verb} within {p50}, 95 % within {p95} and 99 % within {p99}."


def share(count: int, of: int) -> str:
    """A share in per cent. Rounded to 0 % or 100 % only if exact."""
    percent = 100 * count / of
    if count != of and percent > 99.9:
        return "over 99.9 %"
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:.1f} %".replace(".0 %", " %")


def rank_reasons(reasons: Iterable[AnalysisReason]) -> list[tuple[str, int]]:
    """Reasons with their counts over all buckets, most frequent first."""
    totals: dict[str, int] = {}
    for reason in reasons:
        totals[reason.reason] = totals.get(reason.reason, 0) + reason.messages
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))


def moment(at: datetime, bucket: str) -> str:
    """A bucket's start (UTC), for its row and tooltip."""
    return f"{at:%Y-%m-%d}" if bucket == "day" else f"{at:%Y-%m-%d %H:%M}"


def is_partial(run: AnalysisRun, at: datetime) -> bool:
    """Whether the range covers only a part of the bucket that starts at `at`."""
    return at < run.start_at or at + BUCKET_LENGTH[run.bucket] > run.end_at


def progress_percent(run: AnalysisRun) -> int:
    """The progress of a run in per cent: completed steps and tasks of the current one. At most 99 before the end."""
    if run.state == AnalysisRun.SUCCEEDED:
        return 100
    if not run.steps:
        return 0
    within = run.tasks_done / run.tasks_total if run.tasks_total else 0
    return min(99, int(100 * (run.step - 1 + within) / run.steps))


def csv_rows(run: AnalysisRun, results: Iterable[AnalysisResult]) -> Iterable[list]:
    """The results as rows of a file: durations in seconds, instants in ISO 8601; an empty bucket is the whole range."""
    times = [f"{kind}_{p}" for kind in TIMES for p in PERCENTILES]
    yield [
        "queue", "bucket", "messages", *OUTCOMES, "generated", "waited", "processed", *(f"{name}_seconds" for name in times)
    ]  # fmt: skip
    names = {queue["id"]: f"{queue['namespace']}/{queue['path']}" for queue in run.queues}
    for result in results:
        yield [
            names[result.entity_id],
            result.bucket_at.isoformat() if result.bucket_at else "",
            result.messages,
            *(getattr(result, name) for name in OUTCOMES),
            result.generated,
            result.waited,
            result.processed,
            *(_seconds(getattr(result, name)) for name in times),
        ]


def reason_rows(run: AnalysisRun, reasons: Iterable[AnalysisReason]) -> Iterable[list]:
    """The reasons as rows of a file, for each queue and bucket."""
    yield ["queue", "bucket", "reason", "messages"]
    names = {queue["id"]: f"{queue['namespace']}/{queue['path']}" for queue in run.queues}
    for reason in reasons:
        yield [names[reason.entity_id], reason.bucket_at.isoformat(), reason.reason, reason.messages]


def _seconds(duration: timedelta | None) -> str:
    return "" if duration is None else f"{duration.total_seconds():.6f}"


def _or(parts: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
