"""Ready for clients: the well-known namespaces that nobody has used yet, and those whose keys other machines may use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from broker_core.common.connection_strings import ConnectionString
from broker_core.common.family import definition_of, installed
from broker_core.common.types import Actor
from broker_core.listener import status
from broker_core.reads import NamespaceRow
from broker_core.wire.published_keys import EVERYWHERE
from explorer.frames.well_known import is_unused


@dataclass(frozen=True, slots=True)
class ReadyName:
    """A well-known namespace. words: which client finds it where, or that nothing serves it. url: of how to connect."""

    family: str
    name: str
    words: str
    url: str


def ready(request: HttpRequest, namespaces: Iterable[NamespaceRow]) -> list[ReadyName]:
    """Those that have no entities, in the order of the families."""
    unused = {row.name: row for row in namespaces if is_unused(row)}
    names = [definition.well_known.name for definition in installed() if definition.well_known.name in unused]
    opened = open_ports(request.actor) if names else frozenset()
    return [_ready(request, unused[name], opened) for name in names]


def open_ports(actor: Actor) -> frozenset[int]:
    """The ports that listeners serve now."""
    return frozenset(port.number for one in status.listeners(actor=actor) for port in one.listening.ports)


def is_closed(string: ConnectionString, opened: Collection[int]) -> bool:
    """Whether it works only while a listener serves its port, and none does. The site's own port is open: it shows the page."""
    return not string.why_not and string.is_for_listener and string.port not in opened


def _ready(request: HttpRequest, row: NamespaceRow, opened: Collection[int]) -> ReadyName:
    definition = definition_of(row.family)
    strings = definition.connection_strings(row.name, is_hidden=True, actor=request.actor)
    first = next((string for string in strings if not string.why_not), None)
    if first is None:
        words = strings[0].why_not
    elif is_closed(first, opened):
        words = f"port {first.port} is not open"
    else:
        serves_all = not any(string.why_not for string in strings)
        words = f"at {first.at}" if serves_all else f"{first.client} at {first.at}"
    return ReadyName(definition.title, row.name, words, reverse("explorer:namespace_connect", args=[row.name]))


def open_to_others(namespaces: Iterable[NamespaceRow]) -> Sequence[str]:
    """The namespaces whose published keys clients on other machines may use. They have all rights there."""
    if settings.WELL_KNOWN_KEYS != EVERYWHERE:
        return ()
    return [row.name for row in namespaces if _has_published_key(row)]


def _has_published_key(row: NamespaceRow) -> bool:
    definition = definition_of(row.family)
    key = definition.well_known.key
    if not key or row.name != definition.well_known.name:
        return False
    return any(key in string.text for string in definition.connection_strings(row.name, actor=Actor.local()))
