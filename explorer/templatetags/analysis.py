"""Template tags of the analysis pages."""

from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from broker_core.common.durations import human
from broker_core.history import properties
from broker_core.reads import EntityRow
from explorer.analysis import forms, listing, presenters
from explorer.analysis.running import runs
from explorer.shared import charts
from explorer.shared.family import pages_of

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


@register.simple_tag(takes_context=True)
def archived_properties(context, entity: EntityRow) -> dict[str, Any] | None:
    """The keys whose values the archive keeps of an entity's messages, and the page that changes them; None: it can keep none."""
    if entity.kind not in forms.RECEIVABLE or not pages_of(entity.family).texts.application_properties:
        return None
    url = (
        f"{reverse('explorer:analysis_properties')}?{urlencode({'queue': entity.id, 'back': context['request'].get_full_path()})}"
    )
    return {"keys": properties.chosen([entity.id]).get(entity.id, []), "url": url}
