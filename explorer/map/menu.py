"""The menu of a sender or receiver on the live map: its page, and what makes it fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import slugify

from broker_core.reads import NamespaceRow
from explorer.demo import menu as demo
from explorer.frames.actors import ShownActor, shown_actor
from explorer.lessons import faults as faults_of_sandboxes

from .graph import group_of

MOST = 20  # actors of one menu


@dataclass(frozen=True, slots=True)
class ActorMenu:
    """programs: the actors that are programs of the demo, with `choices`. does: what they do. sandbox_url: where the receivers of
    a sandbox are made to fail; empty: they are none."""

    title: str
    does: str
    actors: tuple[ShownActor, ...]
    programs: tuple[demo.Program, ...]
    choices: tuple[demo.FaultChoice, ...]
    sandbox_url: str = ""


def actor_menu(request: HttpRequest, namespace: NamespaceRow | None, stored: Sequence[str]) -> ActorMenu:
    """The menu of a node. stored: the actors that it stands for, as events store them."""
    actors = tuple(shown_actor(actor) for actor in stored[:MOST])
    title = actors[0].name if len(actors) == 1 else group_of(stored[0])
    if namespace and faults_of_sandboxes.kinds_by_receiver(namespace.name, request.actor.name, namespace.clock.now):
        receiver = f"#fault-{slugify(actors[0].name)}" if len(actors) == 1 else ""
        return ActorMenu(title, "", actors, (), (), reverse("explorer:sandbox", args=(namespace.name,)) + receiver)
    programs = tuple(demo.programs_named(actor.name for actor in actors))
    does = ", ".join(dict.fromkeys(program.does for program in programs))
    return ActorMenu(title, does, actors, programs, demo.PROGRAM_CHOICES)


def menu_url(namespace: str, actors: Sequence[ShownActor]) -> str:
    """The map with the menu of these actors."""
    query = urlencode({"namespace": namespace, "actor": [actor.stored for actor in actors[:MOST]]}, doseq=True)
    return f"{reverse('explorer:map')}?{query}#map-menu"


def opened_from(request: HttpRequest) -> str:
    """The page on which the menu was opened."""
    page = urlsplit(request.headers.get("HX-Current-URL", ""))
    return f"{page.path}?{page.query}" if page.query else page.path or request.get_full_path()
