"""Template tags of a page's live connection."""

from django import template
from django.urls import reverse
from django.utils.encoding import escape_uri_path
from django.utils.http import urlencode

register = template.Library()


@register.simple_tag(takes_context=True)
def live_address(context) -> str:
    """The URL of the page's live connection, with the page's path within the site, without the prefix, as its parameter."""
    request = context["request"]
    query = request.META.get("QUERY_STRING", "")
    path = escape_uri_path(request.path_info)
    page = f"{path}?{query}" if query else path
    return f"{reverse('live', urlconf='explorer.live.routing')}?{urlencode({'page': page})}"


@register.simple_tag
def site_prefix() -> str:
    """The site's path prefix, without a trailing slash."""
    return reverse("live", urlconf="explorer.live.routing").removesuffix("/live/")
