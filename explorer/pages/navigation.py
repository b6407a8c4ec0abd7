"""The places of the explorer, as data: what the navigation lists, and which of them a page belongs to. A page names its place in
the context variable `section`. Above them: the environment and the switch between namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from broker_core import reads
from broker_core.common.errors import BrokerError
from broker_core.common.types import Right
from broker_core.reads import EntityFilter, NamespaceRow
from explorer import sandbox_names
from explorer.frames import figures, presenters
from explorer.frames.family import pages_of
from explorer.frames.recent import Recent
from explorer.frames.well_known import without_unused
from explorer.lessons import sandboxes

COLORS = ("grey", "green", "blue", "purple", "amber", "red")
_COLOR_OF_NAME = {"production": "red", "prod": "red", "live": "red", "staging": "amber"}
COUNTS = "explorer/_nav_counts.html"  # for a page's live fragments
MOST_LISTED = 30  # namespaces in the switch


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation.

    name: what pages of this place give as `section`. keys: a key sequence that opens it. is_low: below the others, as it is about
    Vitrine itself. count: the number beside the title, one of `counts`.
    """

    name: str
    title: str
    icon: str
    url_name: str
    keys: str = ""
    is_low: bool = False
    count: str = ""

    @property
    def url(self) -> str:
        """Empty if the host site does not have the page."""
        try:
            return reverse(self.url_name)
        except NoReverseMatch:
            return ""


PLACES = (
    Place("now", "Now", "now", "explorer:now", "g w"),
    Place("entities", "Entities", "list", "explorer:entities", "g o", count="entities"),
    Place("messages", "Messages", "search", "explorer:messages", "g f"),
    Place("dead_letters", "Dead letters", "dead", "explorer:dead_letters", "g d", count="dead"),
    Place("locks", "Locks", "locked", "explorer:locks", "g l", count="held"),
    Place("operations", "Operations", "operations", "explorer:operations", "g r"),
    Place("insights", "Insights", "chart", "explorer:insights", "g n"),
    Place("help", "Learn", "book", "explorer:help", "g h"),
    Place("administration", "Administration", "gear", "explorer:administration", "g a", is_low=True),
)


def places() -> list[list[Place]]:
    """The places that exist on this site: the upper and the lower group."""
    existing = [place for place in PLACES if place.url]
    return [[place for place in existing if place.is_low is low] for low in (False, True)]


def _read_counts() -> dict[str, int]:
    rows = reads.tallies(EntityFilter()).rows
    return {"entities": sum(row.entities for row in rows)} | {
        figure.name: sum(figure.of(row) or 0 for row in rows) for figure in figures.SEVERAL
    }


_counts = Recent(_read_counts)


def counts(request: HttpRequest) -> Mapping[str, int]:
    """The numbers of the navigation, some seconds old at most: entities, and the columns of a table of several families (held,
    dead, ...). Empty for a person who may see none."""
    try:
        return _counts.get() if _may_browse(request) else {}
    except BrokerError:  # the page itself says so
        return {}


def _may_browse(request: HttpRequest) -> bool:
    actor = getattr(request, "actor", None)
    return actor is not None and Right.BROWSE in actor.rights


@dataclass(frozen=True, slots=True)
class Environment:
    """The installation's environment, such as production. color: one of COLORS."""

    name: str
    color: str


def environment() -> Environment | None:
    """By VITRINE_ENVIRONMENT and VITRINE_ENVIRONMENT_COLOR; without a colour, by the name."""
    name = getattr(settings, "VITRINE_ENVIRONMENT", "")
    color = getattr(settings, "VITRINE_ENVIRONMENT_COLOR", "") or _COLOR_OF_NAME.get(name.lower(), "grey")
    return Environment(name, color if color in COLORS else "grey") if name else None


@dataclass(frozen=True, slots=True)
class NamespaceLink:
    """A namespace to switch to; without a noun, all of them."""

    name: str
    noun: str
    url: str
    is_here: bool


@dataclass(frozen=True, slots=True)
class Switch:
    """The switch between namespaces. words: what is in view. others: how many are not listed. is_sandbox: what is in view."""

    title: str
    words: str
    choices: tuple[NamespaceLink, ...]
    others: int
    is_sandbox: bool = False


_namespaces = Recent(lambda: sandbox_names.without(reads.namespaces()))


def _in_use(current: str | None) -> list[NamespaceRow]:
    return [namespace for namespace in without_unused(_namespaces.get(), keep=current) if not namespace.is_system]


def switch(request: HttpRequest, current: str | None) -> Switch | None:
    """current: the namespace of the page. None for a person who may see no namespace."""
    try:
        known = _in_use(current) if _may_browse(request) else []
    except BrokerError:
        known = []
    if not known:
        return None
    page = next((name for name in ("explorer:now", "explorer:map") if request.path == reverse(name)), None)
    view = {"view": "table"} if page and request.GET.get("view") == "table" else {}
    all_of_them = reverse(page or "explorer:entities") + (f"?{urlencode(view)}" if view else "")
    links = [NamespaceLink("All namespaces", "", all_of_them, not current)]
    for namespace in known[:MOST_LISTED]:
        query = urlencode({"namespace": namespace.name, **view})
        url = f"?{query}" if page else reverse("explorer:namespace", args=[namespace.name])
        links.append(
            NamespaceLink(namespace.name, str(pages_of(namespace.family).container_noun), url, namespace.name == current)
        )
    words = next((str(pages_of(namespace.family).container_noun) for namespace in known if namespace.name == current), "")
    subtitle = words or presenters.plural(len(known), "namespace", "namespaces")
    sandbox_title = sandboxes.title(getattr(request, "user", None), current) if current else ""
    title = sandbox_title or current or "All namespaces"
    return Switch(title, subtitle, tuple(links), max(0, len(known) - MOST_LISTED), bool(sandbox_title))
