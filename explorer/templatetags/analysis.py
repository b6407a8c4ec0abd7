"""Template tags of the analysis pages."""

from django import template

from broker_core.common.durations import human
from explorer.analysis import presenters
from explorer.shared import charts

register = template.Library()
register.filter("brief", charts.brief)
register.filter("moment", presenters.moment)
register.filter("is_partial", presenters.is_partial)
register.filter("queue_names", presenters.queue_names)
register.filter("human", human)


@register.filter
def counts(result, outcomes) -> list[int]:
    """The counts of a result for these outcomes, in their order."""
    return [getattr(result, name) for name in outcomes]
