"""Template tags of the analysis pages."""

from urllib.parse import urlencode

from django import template
from django.urls import reverse

from broker_core.common.durations import human
from explorer.analysis import presenters, what_if
from explorer.shared import charts

register = template.Library()
register.filter("brief", charts.brief)
register.filter("moment", presenters.moment)
register.filter("is_partial", presenters.is_partial)
register.filter("queue_names", presenters.queue_names)
register.filter("human", human)
register.filter("percent", what_if.percent)


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
    bucket = f"{result.bucket_at:%Y-%m-%dT%H:%M}" if result.bucket_at else ""
    query = {"queue": result.entity_id, "bucket": bucket, "outcome": outcome, "reason": reason}
    url = reverse("explorer:analysis_messages", args=(context["run"].pk,))
    return f"{url}?{urlencode({name: value for name, value in query.items() if value})}"
