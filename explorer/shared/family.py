"""What a family provides to the pages that every family has. explorer/families.py registers the installed ones.

Shared pages and templates ask the registry and name no family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from django.urls import URLPattern, URLResolver

from broker_core.common.errors import InvalidArgument
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, EventKind, Family
from broker_core.reads import EntityRow, Explanation, MessageDetail, MessageRow

if TYPE_CHECKING:
    from .actions import Action
    from .figures import Figure
    from .presenters import Badge
    from .shell import Act

View = Callable[..., HttpResponse]


def _none(*_: Any) -> None:
    return None


def _empty(*_: Any) -> tuple[()]:
    return ()


def _no(*_: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class EventTexts:
    """How a family names events, where it differs from the words in timeline.py.

    gaps: what a message does after an event of a kind; {0} is how long.
    moved_by_operator: the reason of an event MOVED that an operator caused; None: the family has no such event.
    """

    words: Mapping[EventKind, str]
    sentences: Mapping[EventKind, str]
    gaps: Mapping[EventKind, str]
    renewed: tuple[str, str] = ("Lock renewed", "Lock renewed {} times")
    held: str = "locked for {}"
    unnoticed: str = "lock expired {} before the broker processed it"
    count: str = "failed deliveries"
    moved_by_operator: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """The family's part of a message's page.

    actions:       (detail, actor) -> what can be done to a message in its state.
    carry_out:     (request, address, number, action) -> the result; None: the family has no such action.
    explain:       (address, number, actor) -> why the message is, or is not, delivered.
    is_held_by:    (row, actor) -> whether the part "message_held" is shown: what the actor can do with a message that it holds.
    property_name: (stored name) -> the name that the family gives a property of the broker.
    anchors:       (application properties) -> by the names of those that another section explains, the section's id.
    """

    actions: Callable[[MessageDetail, Actor], list[Action]]
    carry_out: Callable[..., Act | None]
    explain: Callable[[EntityAddress, int, Actor], Explanation | None]
    is_held_by: Callable[[MessageRow, Actor], bool]
    property_name: Callable[[str], str]
    anchors: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {}


@dataclass(frozen=True, slots=True)
class NamespacePages:
    """How namespaces of the family are created and deleted on the shared pages.

    create:   (cleaned form, actor) -> the namespace.
    delete:   (namespace, actor) -> what was deleted, in a sentence.
    contents: (namespace, actor) -> what would be deleted with the namespace; None: it must be empty.
    """

    create: Callable[[Mapping[str, Any], Actor], Any]
    delete: Callable[[Any, Actor], str]
    contents: Callable[[Any, Actor], Any] = _none


@dataclass(frozen=True, slots=True)
class NewEntity:
    """A kind of entity that a person can create. url: of its form."""

    word: str
    icon: str
    url: Callable[[], str]


@dataclass(frozen=True, slots=True)
class CommonCounts:
    """Counts in the columns of a table with entities of several families; None: the family has no such messages."""

    held: Callable[[EntityRow], int]
    waiting: Callable[[EntityRow], int | None] = _none
    deferred: Callable[[EntityRow], int | None] = _none
    dead: Callable[[EntityRow], int | None] = _none


@dataclass(frozen=True, slots=True)
class PageTexts:
    """Words of the family on shared pages.

    body:                   heading of a message's content.
    application_properties: heading of what the sender added; empty: a message has none.
    deliverable, why_not:   before the reasons why a message can, or cannot, be received.
    receivable:             what an available message does now.
    leaves:                 the ways in which a message leaves an entity.
    no_consumer:            of an entity that nobody has received from.
    """

    body: str
    application_properties: str
    deliverable: str
    why_not: str
    receivable: str
    leaves: str
    no_consumer: str = "none yet"


@dataclass(frozen=True, slots=True)
class FamilyPages:
    """A family's answers to the questions that shared pages ask.

    urls:        its own addresses.
    views:       by the name of a shared address, such as "entity", the view behind it.
    parts:       by name, the templates that shared ones include ({% family_part %}); one that is absent shows nothing.
    message:     of the page of one message.
    badge:       (message row) -> its state.
    ends:        by state, the words before the countdown to its end.
    events:      the words of the timeline.
    figures:     columns of a table that has entities of this family alone.
    counts:      those of a table with several families.
    namespaces:  None: the family has pages of its own for them, named in `namespace_urls`.
    namespace_urls: names of its own addresses: "namespace_new", "namespace_delete".
    new_entities: the forms that create an entity.
    tags:        (entity row) -> words that a list shows beside the name, with what each means.
    needs_a_person: (entity row) -> whether its messages wait for a person, and not for a receiver.
    dead_tab:    query of the list that the count of dead letters links to.
    demo:        name of the module with the family's part of the demo (explorer/demo/parts.py); empty: none.
    """

    family: Family
    urls: Sequence[URLPattern | URLResolver]
    views: Mapping[str, View]
    parts: Mapping[str, str]
    message: MessagePage
    badge: Callable[[MessageRow], Badge]
    ends: Mapping[Any, str]
    events: EventTexts
    texts: PageTexts
    figures: tuple[Figure, ...]
    counts: CommonCounts
    new_entities: tuple[NewEntity, ...]
    namespaces: NamespacePages | None = None
    namespace_urls: Mapping[str, str] = field(default_factory=dict)
    tags: Callable[[EntityRow], Sequence[tuple[str, str]]] = _empty
    needs_a_person: Callable[[EntityRow], bool] = _no
    dead_tab: str = ""
    demo: str = ""

    @property
    def title(self) -> str:
        return definition_of(self.family).title

    @property
    def container_noun(self) -> str:
        return definition_of(self.family).container_noun


_registered: dict[Family, FamilyPages] = {}


def register(pages: FamilyPages) -> None:
    """Make an installed family's pages known."""
    _registered[pages.family] = pages


def pages_of(family: Family | str) -> FamilyPages:
    """The pages of an installed family. Raises InvalidArgument for one that has none."""
    try:
        return _registered[Family(family)]
    except (KeyError, ValueError) as exc:
        raise InvalidArgument("family", f"{family!r} has no pages: choose one of {', '.join(_registered)}") from exc


def installed() -> tuple[FamilyPages, ...]:
    """The pages of all installed families, in the registry's order."""
    return tuple(_registered.values())
