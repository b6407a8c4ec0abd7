"""Template tags of the analysis pages."""

from django import template

from broker_core.common.durations import human
from explorer.analysis import listing, presenters, runs
from explorer.shared import charts

register = template.Library()
register.filter("brief", charts.brief)
register.filter("moment", presenters.moment)
register.filter("is_partial", presenters.is_partial)
register.filter("queue_names", presenters.queue_names)
register.filter("human", human)


@register.filter
def outcome_word(name: str) -> str:
    return presenters.OUTCOMES[name]


@register.filter
def counts(result, outcomes) -> list[tuple[str, int]]:
    """These outcomes with their counts in a result."""
    return [(name, getattr(result, name)) for name in outcomes]


@register.simple_tag(takes_context=True)
def messages_url(context, result, outcome: str = "", reason: str = "") -> str:
    """The URL of the messages behind a number of the current run."""
    run, at = context["run"], result.bucket_at
    start = max(at, run.start_at) if at else run.start_at
    end = min(at + runs.BUCKET_LENGTH[run.bucket], run.end_at) if at else run.end_at
    conditions = {"outcome": outcome or None, "reason": reason or None}
    return listing.messages_url({"queue": result.entity_id}, start, end, **conditions)
