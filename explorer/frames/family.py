"""The registry of family pages: what a family provides for the pages that all families share.

explorer/families.py registers the installed families. Shared pages and templates use the registry and name no family. What a
family must provide is abstract here; the rest has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import URLPattern, URLResolver, reverse

from broker_core.common.errors import InvalidArgument
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, BodyKind, EntityAddress, EntityStatus, EventKind, Family
from broker_core.export_format.messages import Sent
from broker_core.namespaces import Namespace
from broker_core.operations import Batch, Place, Places, Skip
from broker_core.reads import Counted, EntityRow, Event, Explanation, MessageDetail, MessageRow
from broker_core.store.driver import Steps
from explorer.bodies.display import Readable

from .actions import Action
from .connections import ConnectionPages
from .values import Act, Badge, BoardPages, Fact, Figure, StateLine
from .vocabulary import Vocabulary

View = Callable[..., HttpResponse]


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
    locked: str = "locked for {}"
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
class MessageEdit:
    """What an operator changes in a message. body, properties: None: unchanged. version: of the message that was opened."""

    body: str | None
    properties: Mapping[str, Any] | None
    version: str
    reason: str | None


class MessagePage(ABC):
    """The family's part of the message page."""

    @abstractmethod
    def actions(self, detail: MessageDetail, actor: Actor) -> list[Action]:
        """The actions on a message in its state."""

    @abstractmethod
    def carry_out(self, request: HttpRequest, address: EntityAddress, number: int, action: str) -> Act | None:
        """Carry out one of the actions; None: the family has no such action."""

    @abstractmethod
    def explain(self, address: EntityAddress, number: int, actor: Actor) -> Explanation | None:
        """Why the message is, or is not, delivered."""

    @abstractmethod
    def state_line(self, detail: MessageDetail, explanation: Explanation | None, entity: EntityRow, actor: Actor) -> StateLine:
        """What the page says first."""

    @abstractmethod
    def facts(self, record: MessageRecord) -> list[Fact]:
        """What the broker knows of the message, before its properties."""

    @abstractmethod
    def beside(self, query: QueryDict, record: MessageRecord, side: str, actor: Actor) -> int | None:
        """The number of the "next" or "previous" message in the list that the query names; None: there is none."""

    def is_held_by(self, row: MessageRow, actor: Actor) -> bool:
        """Whether the actor holds the message, so that the part "message_held" is shown."""
        return False

    def property_name(self, name: str) -> str:
        """The family's name of a stored broker property."""
        return name

    def property_text(self, name: str, value: Any) -> tuple[str, str]:
        """A stored broker property for people, with a note."""
        return str(value), ""

    def anchors(self, properties: Mapping[str, Any]) -> Mapping[str, str]:
        """By name of an application property, the id of the section that explains it."""
        return {}

    def read_sections(self, kind: BodyKind, body: bytes) -> bytes | Readable:
        """A whole body of encoded sections: its content, if they hold plain bytes or text, else their values."""
        return body


class LockPages(ABC):
    """How operators release what holds the family's messages."""

    #: "lock", "lease" or "delivery".
    word: str
    #: Of a release, in one or two sentences.
    effect: str
    #: The same of releasing a session; empty: the family has no sessions.
    session_effect: str = ""

    @abstractmethod
    def release(self, address: EntityAddress, numbers: Sequence[int], reason: str, actor: Actor) -> Sequence[int]:
        """Release these messages. Returns the numbers of those released."""

    def release_session(self, address: EntityAddress, session_id: str, reason: str, actor: Actor) -> bool:
        """Release a session. Returns whether it was locked. Raises InvalidArgument if the family has no sessions."""
        raise InvalidArgument("session", "has no lock: entities of this family have no sessions")


class FormRows(Protocol):
    """Rows of a form, as forms/typed.py has them."""

    prefix: str
    entered: list[tuple[str, str, str]]
    errors: list[str]

    def values(self) -> dict[str, Any]: ...


class EditPages(ABC):
    """How operators edit the family's messages (docs/design.md D22)."""

    @abstractmethod
    def why_not(self, row: MessageRow) -> str:
        """Why a message cannot be edited now, and what to do, as a sentence; empty: it can."""

    @abstractmethod
    def rows(self, data: QueryDict | None, properties: Mapping[str, tuple[str, Any]]) -> FormRows | None:
        """The form rows of the sender's properties; None: messages have none. data: as posted; None: as stored."""

    @abstractmethod
    def edit(self, address: EntityAddress, number: int, change: MessageEdit, actor: Actor) -> Any:
        """Carry out an edit."""


class NamespacePages(ABC):
    """How namespaces of the family are created and deleted on the shared pages."""

    @abstractmethod
    def create(self, values: Mapping[str, Any], actor: Actor) -> Any:
        """Create a namespace from a cleaned form, and return it."""

    @abstractmethod
    def delete(self, namespace: Namespace, actor: Actor) -> str:
        """Delete a namespace. Returns what was deleted, as a sentence."""

    def contents(self, namespace: Namespace, actor: Actor) -> Any:
        """What would be deleted with the namespace; None: it must be empty."""
        return None


@dataclass(frozen=True, slots=True)
class NewEntity:
    """A kind of entity that users can create. url_name, arguments: of its form."""

    word: str
    icon: str
    url_name: str
    arguments: tuple[str, ...] = ()

    def url(self) -> str:
        return reverse(f"explorer:{self.url_name}", args=self.arguments)


@dataclass(frozen=True, slots=True)
class KeyLine:
    """What programs sign in with, in a list. scope: what it is for, such as a namespace. rights: in words. url: of its page."""

    name: str
    scope: str
    rights: str
    url: str


class KeyPages(ABC):
    """What programs of the family sign in with. nouns: "Shared access policies". new_text, new_url_name, new_query: of the link
    to the form that creates one. none: what is shown if there is none, as a heading and a sentence."""

    nouns: str
    new_text: str
    new_url_name: str
    new_query: str = ""
    none: tuple[str, str]

    @property
    def new_url(self) -> str:
        return reverse(f"explorer:{self.new_url_name}") + (f"?{self.new_query}" if self.new_query else "")

    @abstractmethod
    def lines(self, actor: Actor) -> list[KeyLine]:
        """All of them, by what they are for. Raises NotAuthorized without Right.MANAGE."""


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """A policy of settings, in a list. kind: "policy". applies_to: what it applies to, in words. url: of its page."""

    name: str
    namespace: str
    kind: str
    pattern: str
    applies_to: str
    priority: float
    url: str


class PolicyPages(ABC):
    """The family's policies, which set the settings of queues by the pattern of their names."""

    @abstractmethod
    def lines(self, namespace: str, actor: Actor) -> list[PolicyLine]:
        """Those of a namespace, in the order in which they are considered."""

    @abstractmethod
    def url(self, namespace: str) -> str:
        """The page with the policies of a namespace, on which new ones are created."""


class CommonCounts(ABC):
    """Counts for a table with entities of several families; None: the family has no such messages."""

    @abstractmethod
    def locked(self, entity: Counted) -> int:
        """Locked, leased or unacknowledged messages."""

    def waiting(self, entity: Counted) -> int | None:
        return None

    def deferred(self, entity: Counted) -> int | None:
        return None

    def dead(self, entity: Counted) -> int | None:
        return None


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
    attempts:               heading of how often dead letters failed.
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
    attempts: str = "Attempts"


class FamilyOperations(ABC):
    """How operations on many messages work in the family. Methods with a batch return steps that run in its transaction."""

    #: By the name of a tab, the list it shows. Tabs that are missing have no messages to operate on.
    lists: Mapping[str, Place]
    #: The tabs with messages that can be released.
    releases: Collection[str] = ()
    #: Whether a repair can set properties.
    sets_properties: bool = False
    #: Whether a purge also removes messages that somebody holds.
    hides_held: bool = False
    #: The maximum size of a repaired message, in bytes; None: each entity has its own limit.
    largest_body: int | None = None

    @abstractmethod
    def resubmit(self, batch: Batch) -> Steps:
        """Move failed messages back to where they came from. Returns where each is now, and why others stayed."""

    @abstractmethod
    def move(self, batch: Batch) -> Steps:
        """Move messages to the operation's target (options["to"]) in the namespace. Returns the same."""

    @abstractmethod
    def release(self, batch: Batch) -> Steps:
        """End the locks of messages. Returns the outcome."""

    @abstractmethod
    def resubmits(self, tab: str, entity: EntityRow) -> bool:
        """Whether messages of this list can be resubmitted."""

    @abstractmethod
    def read_sent(self, sent: Sent) -> Any:
        """A message of an import, checked as far as possible without sending it."""

    @abstractmethod
    def send_records(self, batch: Batch, messages: Sequence[Any]) -> Steps[list[Places | Skip]]:
        """Send such messages. Returns where each is now, or why it was not sent."""

    def target(self, name: str) -> Any:
        """The target of a move to the queue of this name."""
        return name

    def target_words(self, target: Any) -> str:
        """A target in words."""
        return f"to {target}"

    def move_page(self, address: EntityAddress) -> str:
        """The URL of the family's own page that asks where to move messages; empty: there is none."""
        return ""


class LimitPages(ABC):
    """What analyses call the lock and the maximum of deliveries, and where these are changed."""

    #: The settings in sentences, such as "visibility timeout" and "maximum dequeue count".
    lock: str
    deliveries: str
    #: By how much the deliveries of a message may exceed its limit.
    more_deliveries: int = 0
    #: Whether a consumer that crashes loses its messages at once, instead of when the lock ends.
    notices_crashes: bool = False
    #: Whether a message whose lock ended goes behind others, and can be settled until it is delivered again.
    by_visibility: bool = False
    #: The setting that deletes unused queues; empty: there is none.
    idle: str = ""
    #: Whether a queue that only gets messages is used.
    sending_is_use: bool = True

    @abstractmethod
    def delivery_limit(self, entity: Any) -> int | None:
        """The limit of deliveries of an entity's record; None: unlimited."""

    @abstractmethod
    def propose(self, entity: Any, lock: timedelta | None, deliveries: int | None, time_to_live: timedelta | None) -> str:
        """The URL that previews these values (None: as it is) of an entity's record; empty: none of them is a setting."""


class FamilyPages(ABC):
    """What a family provides for shared pages."""

    family: Family
    #: The family's own URL patterns.
    urls: Sequence[URLPattern | URLResolver]
    #: By the name of a shared URL, such as "entity", the family's view.
    views: Mapping[str, View]
    #: By name, the templates that shared ones include ({% family_part %}); a missing one shows nothing.
    parts: Mapping[str, str]
    message: MessagePage
    locks: LockPages
    edits: EditPages
    operations: FamilyOperations
    limits: LimitPages
    board: BoardPages
    counts: CommonCounts
    #: By state, the text before the countdown to its end.
    ends: Mapping[Any, str]
    #: The texts of the timeline.
    events: EventTexts
    texts: PageTexts
    #: Columns of a table with entities of this family only.
    figures: tuple[Figure, ...]
    #: The forms that create an entity.
    new_entities: tuple[NewEntity, ...]
    #: By kind of object, the name that the audit gives to its creation by hand, where it is not "create ...".
    audited_as: Mapping[str, str] = {}
    #: None: the family has its own pages for namespaces, whose URL names are in `namespace_urls`.
    namespaces: NamespacePages | None = None
    namespace_urls: Mapping[str, str] = {}
    #: What Administration lists of the family; None: the family has none.
    keys: KeyPages | None = None
    policies: PolicyPages | None = None
    #: The connections that the family keeps itself, for the page of all connections; None: it keeps none.
    connections: ConnectionPages | None = None
    #: Of the family's own lists.
    vocabularies: Sequence[Vocabulary] = ()
    #: Query of the list to which the count of dead letters links.
    dead_tab: str = ""
    #: Name of the module with the family's part of the demo (explorer/demo/parts.py); empty: none.
    demo: str = ""
    #: Name of the module with the family's operations as code (explorer/snippets/); empty: none.
    snippets: str = ""
    #: Name of the package with the family's lessons and their actions (explorer/lessons/catalog.py); empty: none.
    lessons: str = ""

    @property
    def title(self) -> str:
        return definition_of(self.family).title

    @property
    def container_noun(self) -> str:
        return definition_of(self.family).container_noun

    @abstractmethod
    def badge(self, row: MessageRow) -> Badge:
        """The state of a message."""

    @abstractmethod
    def set_status(self, address: EntityAddress, status: EntityStatus, *, actor: Actor) -> Any:
        """Pause or resume an entity."""

    @abstractmethod
    def settings_words(self, entity: EntityRow, columns: Mapping[str, Any]) -> Mapping[str, str]:
        """The settings of a revision in words, by name."""

    @abstractmethod
    def setting_words(self, kind: str, name: str, value: Any) -> tuple[str, str]:
        """The name of a setting of a kind of object, and its value in words, as on the settings pages."""

    @abstractmethod
    def term(self, term: Any) -> str:
        """What the family calls a term of the glossary; empty: unknown."""

    def tags(self, entity: EntityRow) -> Sequence[tuple[str, str]]:
        """Tags that a list shows beside the name, each with its meaning."""
        return ()

    def needs_a_person(self, entity: Counted) -> bool:
        """Whether the entity's messages wait for an operator instead of a receiver."""
        return False

    def send_url(self, namespace: str, path: str) -> str:
        """The URL of the form that sends to an entity, or to what else the family sends to."""
        return reverse("explorer:send", args=(namespace, path))

    def exchange_url(self, namespace: str, name: str) -> str:
        """The URL of an exchange's page; empty: the family has no exchanges."""
        return ""


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
