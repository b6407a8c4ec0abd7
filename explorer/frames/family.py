"""The registry of family pages: what a family provides for the pages that all families share.

explorer/families.py registers the installed families. Shared pages and templates use the registry and name no family.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.http import HttpResponse, QueryDict
from django.urls import URLPattern, URLResolver, reverse

from broker_core.common.errors import InvalidArgument
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, EventKind, Family
from broker_core.operations import Batch, Place, Places, Skip
from broker_core.reads import Counted, EntityRow, Event, Explanation, MessageDetail, MessageRow
from broker_core.store.driver import Steps
from explorer.bodies.display import ReadSections

from .actions import Action
from .values import Act, Badge, BoardPages, Fact, Figure, StateLine

View = Callable[..., HttpResponse]


def _none(*_: Any) -> None:
    return None


def _empty(*_: Any) -> tuple[()]:
    return ()


def _cannot_send(*_: Any) -> Any:
    raise InvalidArgument("file", "cannot be imported here")


def _no(*_: Any) -> bool:
    return False


def _send_url(namespace: str, path: str) -> str:
    return reverse("explorer:send", args=(namespace, path))


@dataclass(frozen=True, slots=True)
class EventTexts:
    """A family's texts of events, where they differ from those in timeline.py.

    gaps: by kind of event, what the message does after it; {0} is the duration.
    moved_by_operator: the reason of MOVED events that an operator caused; None: the family has no such event.
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
class MessageRecord:
    """A message, present or gone. detail: None, if it is gone. events: its own, oldest first; there is one, if it is gone."""

    address: EntityAddress
    number: int
    detail: MessageDetail | None
    events: Sequence[Event]

    @property
    def row(self) -> MessageRow | None:
        return self.detail.row if self.detail else None

    @property
    def first(self) -> Event | None:
        return self.events[0] if self.events else None

    @property
    def last(self) -> Event | None:
        return self.events[-1] if self.events else None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """The family's part of the message page.

    actions:       (detail, actor) -> the actions on a message in its state.
    carry_out:     (request, address, number, action) -> the result; None: the family has no such action.
    explain:       (address, number, actor) -> why the message is, or is not, delivered.
    is_held_by:    (row, actor) -> whether the actor holds the message, so that the part "message_held" is shown.
    property_name: (stored name) -> the family's name of a broker property.
    anchors:       (application properties) -> by property name, the id of the section that explains it.
    state_line:    (detail, explanation, entity, actor) -> what the page says first.
    facts:         (record) -> what the broker knows of it, before its properties.
    beside:        (query of the list, record, "next" or "previous", actor) -> the number beside it in that list; None: none.
    property_text: (stored name, value) -> a property for people, with a note.
    read_sections: reads bodies of encoded sections (bodies.display.ReadSections); None: the family has none.
    """

    actions: Callable[[MessageDetail, Actor], list[Action]]
    carry_out: Callable[..., Act | None]
    explain: Callable[[EntityAddress, int, Actor], Explanation | None]
    is_held_by: Callable[[MessageRow, Actor], bool]
    property_name: Callable[[str], str]
    state_line: Callable[[MessageDetail, Explanation | None, EntityRow, Actor], StateLine]
    facts: Callable[[MessageRecord], list[Fact]]
    beside: Callable[[QueryDict, MessageRecord, str, Actor], int | None]
    anchors: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {}
    property_text: Callable[[str, Any], tuple[str, str]] = lambda name, value: (str(value), "")
    read_sections: ReadSections | None = None


@dataclass(frozen=True, slots=True)
class LockPages:
    """How operators release what holds the family's messages.

    word:     "lock", "lease" or "delivery".
    release:  (address, numbers, reason, actor) -> the numbers of those released.
    effect:   of a release, in one or two sentences.
    release_session, session_effect: (address, session id, reason, actor) -> whether it was locked, and the effect; None: the
              family has no sessions.
    """

    word: str
    release: Callable[[EntityAddress, Sequence[int], str, Actor], Sequence[int]]
    effect: str
    release_session: Callable[[EntityAddress, str, str, Actor], bool] | None = None
    session_effect: str = ""


@dataclass(frozen=True, slots=True)
class NamespacePages:
    """How namespaces of the family are created and deleted on the shared pages.

    create:   (cleaned form, actor) -> the namespace.
    delete:   (namespace, actor) -> what was deleted, as a sentence.
    contents: (namespace, actor) -> what would be deleted with the namespace; None: it must be empty.
    """

    create: Callable[[Mapping[str, Any], Actor], Any]
    delete: Callable[[Any, Actor], str]
    contents: Callable[[Any, Actor], Any] = _none


@dataclass(frozen=True, slots=True)
class NewEntity:
    """A kind of entity that users can create. url: of its form."""

    word: str
    icon: str
    url: Callable[[], str]


@dataclass(frozen=True, slots=True)
class CommonCounts:
    """Counts for a table with entities of several families; None: the family has no such messages."""

    held: Callable[[Counted], int]
    waiting: Callable[[Counted], int | None] = _none
    deferred: Callable[[Counted], int | None] = _none
    dead: Callable[[Counted], int | None] = _none


@dataclass(frozen=True, slots=True)
class PageTexts:
    """The family's texts on shared pages.

    body:                   heading of a message's content.
    application_properties: heading of the sender's properties; empty: messages have none.
    leaves:                 the ways in which a message leaves an entity.
    no_consumer:            shown for an entity from which no message was ever received.
    collected, collected_why: what an entity whose messages wait for an operator holds, and how these came there.
    receiver:               the noun for who receives.
    copier:                 the noun for what copies a message to several queues; empty: nothing does.
    lock_lost:              why a delivery ended without a settlement, after "because".
    """

    body: str
    application_properties: str
    leaves: str
    no_consumer: str = "none yet"
    collected: str = "dead letter"
    collected_why: str = "dead-lettered to this queue, and nothing consumes them"
    receiver: str = "receiver"
    copier: str = ""
    lock_lost: str = "their lock ended"


@dataclass(frozen=True, slots=True)
class FamilyOperations:
    """How operations on many messages work in the family. Each callable returns steps that run in the batch's transaction.

    lists:    by the name of a tab, the list it shows. Tabs that are missing have no messages to operate on.
    resubmit: (batch) -> where each message is now, and why others stayed: moves failed messages back to where they came from.
    move:     (batch) -> the same: moves messages to the operation's target (options["to"]) in the namespace.
    target:   (name of a queue) -> the target of a move to it.
    target_words: (target) -> the target in words.
    release:  (batch) -> the outcome: ends the locks of messages. None: the family has no such operation.
    releases: the tabs with messages that can be released.
    move_page: (address) -> the URL of the family's own page that asks where to move messages.
    resubmits: (tab, entity row) -> whether messages of this list can be resubmitted.
    sets_properties: whether a repair can set properties.
    hides_held: whether a purge also removes messages that somebody holds.
    read_record: (operations.message_files.Record) -> a message of an import, checked as far as possible without sending it.
    send_records: (batch, such messages) -> where each is now, or why it was not sent.
    largest_body: the maximum size of a repaired message, in bytes; None: each entity has its own limit.
    """

    lists: Mapping[str, Place]
    resubmit: Callable[[Batch], Any] | None = None
    move: Callable[[Batch], Any] | None = None
    target: Callable[[str], Any] = str
    target_words: Callable[[Any], str] = "to {}".format
    release: Callable[[Batch], Any] | None = None
    releases: Collection[str] = ()
    move_page: Callable[[EntityAddress], str] = lambda _: ""
    resubmits: Callable[[str, EntityRow], bool] = _no
    sets_properties: bool = False
    hides_held: bool = False
    largest_body: int | None = None
    read_record: Callable[[Any], Any] = _none
    send_records: Callable[[Batch, Sequence[Any]], Steps[list[Places | Skip]]] = _cannot_send


@dataclass(frozen=True, slots=True)
class LimitPages:
    """What analyses call the lock and the maximum of deliveries, and where these are changed.

    lock, deliveries:  the settings in sentences, such as "visibility timeout" and "maximum dequeue count".
    idle:              the setting that deletes unused queues; empty: there is none.
    sending_is_use:    whether a queue that only gets messages is used.
    more_deliveries:   by how much the deliveries of a message may exceed its limit.
    notices_crashes:   whether a consumer that crashes loses its messages at once, instead of when the lock ends.
    by_visibility:     whether a message whose lock ended goes behind others, and can be settled until it is delivered again.
    in_force:          (entity's record) -> the limit of deliveries; None: unlimited.
    propose:           (entity's record, lock, limit, time-to-live; None: as it is) -> the URL that previews these values; empty:
                       none of them is a setting.
    """

    lock: str
    deliveries: str
    in_force: Callable[[Any], int | None]
    propose: Callable[[Any, timedelta | None, int | None, timedelta | None], str]
    more_deliveries: int = 0
    notices_crashes: bool = False
    by_visibility: bool = False
    idle: str = ""
    sending_is_use: bool = True


@dataclass(frozen=True, slots=True)
class FamilyPages:
    """What a family provides for shared pages.

    urls:        the family's own URL patterns.
    views:       by the name of a shared URL, such as "entity", the family's view.
    parts:       by name, the templates that shared ones include ({% family_part %}); a missing one shows nothing.
    message:     the family's part of the message page.
    locks:       how its locks are released.
    badge:       (message row) -> its state.
    ends:        by state, the text before the countdown to its end.
    events:      the texts of the timeline.
    figures:     columns of a table with entities of this family only.
    counts:      counts for a table with several families.
    set_status:  (address, status, actor) -> pauses or resumes an entity.
    settings_words: (entity, columns of a revision) -> its settings in words, by name.
    setting_words: (kind of object, setting, value) -> the setting's name and its value in words, as on the settings pages.
    audited_as:  by kind of object, the name that the audit gives to its creation by hand, where it is not "create ...".
    namespaces:  None: the family has its own pages for namespaces, named in `namespace_urls`.
    namespace_urls: URL names of these: "namespace_new", "namespace_delete".
    new_entities: the forms that create an entity.
    tags:        (entity row) -> tags that a list shows beside the name, each with its meaning.
    needs_a_person: (entity row) -> whether its messages wait for an operator instead of a receiver.
    dead_tab:    query of the list to which the count of dead letters links.
    operations:  how operations on many messages work.
    limits:      the lock and the maximum of deliveries, for analyses.
    board:       how the board shows its entities.
    send_url:    (namespace, path) -> the URL of the form that sends to an entity, or to what else the family sends to.
    exchange_url: (namespace, name) -> the URL of an exchange's page; empty: the family has no exchanges.
    demo:        name of the module with the family's part of the demo (explorer/demo/parts.py); empty: none.
    term:        (term of the glossary) -> what the family calls it; empty: unknown.
    lessons:     name of the package with the family's lessons and their actions (explorer/lessons/catalog.py); empty: none.
    """

    family: Family
    urls: Sequence[URLPattern | URLResolver]
    views: Mapping[str, View]
    parts: Mapping[str, str]
    message: MessagePage
    locks: LockPages
    badge: Callable[[MessageRow], Badge]
    ends: Mapping[Any, str]
    events: EventTexts
    texts: PageTexts
    figures: tuple[Figure, ...]
    counts: CommonCounts
    new_entities: tuple[NewEntity, ...]
    set_status: Callable[..., Any]
    settings_words: Callable[[EntityRow, Mapping[str, Any]], Mapping[str, str]]
    setting_words: Callable[[str, str, Any], tuple[str, str]]
    operations: FamilyOperations
    limits: LimitPages
    board: BoardPages
    audited_as: Mapping[str, str] = field(default_factory=dict)
    namespaces: NamespacePages | None = None
    namespace_urls: Mapping[str, str] = field(default_factory=dict)
    tags: Callable[[EntityRow], Sequence[tuple[str, str]]] = _empty
    needs_a_person: Callable[[Counted], bool] = _no
    dead_tab: str = ""
    send_url: Callable[[str, str], str] = _send_url
    exchange_url: Callable[[str, str], str] = lambda namespace, name: ""
    demo: str = ""
    term: Callable[[Any], str] = lambda term: ""
    lessons: str = ""

    @property
    def title(self) -> str:
        return definition_of(self.family).title

    @property
    def container_noun(self) -> str:
        return definition_of(self.family).container_noun


_registered: dict[Family, FamilyPages] = {}


def register(pages: FamilyPages) -> None:
    """Register a family's pages."""
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
