"""A user's preferences: theme, row height, sidebar, keyboard shortcuts. Stored in cookies, so that the server renders them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

ALLOWED = {
    "theme": ("system", "light", "dark"),
    "density": ("comfortable", "compact"),
    "side": ("full", "rail"),
    "shortcuts": ("on", "off"),
}
ONE_YEAR = 365 * 86_400


class Choice(NamedTuple):
    """A preference in the person's menu. values: each with its word."""

    name: str
    title: str
    chosen: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Preferences:
    """theme: "light", "dark" or "" (system). density: "compact" or "" (comfortable). side: "rail" (icons only) or "".
    shortcuts: whether single keys act."""

    theme: str = ""
    density: str = ""
    shortcuts: bool = True
    side: str = ""

    @classmethod
    def of(cls, cookies: Mapping[str, str]) -> Preferences:
        """Read the cookies. Unknown values are ignored, since clients can set any value."""
        theme, density = cookies.get("vitrine_theme", ""), cookies.get("vitrine_density", "")
        return cls(
            theme if theme in ("light", "dark") else "",
            density if density == "compact" else "",
            cookies.get("vitrine_shortcuts") != "off",
            "rail" if cookies.get("vitrine_side") == "rail" else "",
        )

    @property
    def choices(self) -> tuple[Choice, ...]:
        return (
            Choice("theme", "Theme", self.theme or "system", (("system", "System"), ("light", "Light"), ("dark", "Dark"))),
            Choice("density", "Rows", self.density or "comfortable", (("comfortable", "Comfortable"), ("compact", "Compact"))),
            Choice("side", "Sidebar", self.side or "full", (("full", "Names"), ("rail", "Icons"))),
            Choice("shortcuts", "Keys", "on" if self.shortcuts else "off", (("on", "On"), ("off", "Off"))),
        )


@require_POST
def preferences(request: HttpRequest) -> HttpResponse:
    """Store the given preferences and go back. Open to everyone, since the sign-in page has a theme, too."""
    chosen = {name: request.POST[name] for name in ALLOWED if name in request.POST}
    for name, value in chosen.items():
        if value not in ALLOWED[name]:
            return HttpResponseBadRequest(f"{name} must be one of {', '.join(ALLOWED[name])}.", content_type="text/plain")
    response = HttpResponseRedirect(safe_next(request, request.POST.get("next", "")))
    for name, value in chosen.items():
        response.set_cookie(f"vitrine_{name}", value, max_age=ONE_YEAR, samesite="Lax", httponly=True, secure=request.is_secure())
    return response


def safe_next(request: HttpRequest, target: str) -> str:
    """The requested URL if it is on this site, else the first page."""
    safe = url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return target if safe else reverse("explorer:now")
