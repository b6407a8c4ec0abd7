"""Template tags of the analysis pages."""

from django import template

from explorer.analysis import charts, presenters

register = template.Library()
register.filter("brief", charts.brief)
register.filter("moment", presenters.moment)


@register.filter
def counts(result, outcomes) -> list[int]:
    """The counts of a result for these outcomes, in their order."""
    return [getattr(result, name) for name in outcomes]
