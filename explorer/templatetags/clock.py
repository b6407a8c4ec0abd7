"""Template tags of a page's clock."""

from __future__ import annotations

from django import template

from broker_core.common.errors import BrokerError
from explorer.live.instants import epoch_ms
from explorer.time_bar.clocks import STEPS, ClockView, view_of

register = template.Library()


@register.simple_tag(takes_context=True)
def clock_view(context) -> ClockView | None:
    """The clock in the context, else that of the namespace in the page's URL; None: there is none, or the user may not see it."""
    if "clock_view" in context:
        return context["clock_view"]
    request = context.get("request")
    match = getattr(request, "resolver_match", None)
    namespace = match.kwargs.get("namespace") if match else None
    if not match or not namespace or not hasattr(request, "actor"):
        return None
    try:
        return view_of(namespace, request.actor, page=request.get_full_path(), entity=match.kwargs.get("path", ""))
    except BrokerError:
        return None


register.simple_tag(epoch_ms, name="clock_ms")


@register.simple_tag
def clock_steps() -> tuple[str, ...]:
    return STEPS
