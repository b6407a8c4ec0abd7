"""Template tags of the analysis pages."""

from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from broker_core.common.durations import human
from broker_core.history import properties
from broker_core.reads import EntityRow
from explorer.analysis import forms
from explorer.analysis.pages import cards
from explorer.charts import labels
from explorer.frames.family import pages_of

register = template.Library()
register.filter("brief", labels.brief)
register.filter("human", human)
register.filter("readings", cards.readings)


@register.simple_tag(takes_context=True)
def archived_properties(context, entity: EntityRow) -> dict[str, Any] | None:
    """The keys whose values the archive keeps of an entity's messages, and the page that changes them; None: it can keep none."""
    if entity.kind not in forms.RECEIVABLE or not pages_of(entity.family).texts.application_properties:
        return None
    url = (
        f"{reverse('explorer:analysis_properties')}?{urlencode({'queue': entity.id, 'back': context['request'].get_full_path()})}"
    )
    return {"keys": properties.chosen([entity.id]).get(entity.id, []), "url": url}
