"""What families give to the shared pages: badges, columns of counts, and the outcomes of actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from broker_core.common.errors import (
    BrokerError,
    BrokerUnavailable,
    EntityNotFound,
    InvalidArgument,
    MessageNotFound,
    NotAuthorized,
    ServerBusy,
)
from broker_core.common.types import Actor, EntityAddress
from broker_core.reads import Capped, Counted, EntityRow, MessageRow, Tab

from .actors import ShownActor

_STATUS = (
    (EntityNotFound, 404),
    (MessageNotFound, 404),
    (NotAuthorized, 403),
    (InvalidArgument, 400),
    (ServerBusy, 503),
    (BrokerUnavailable, 503),
)


@dataclass(frozen=True, slots=True)
class Badge:
    """A message's state as a word, an icon and a colour. hue, icon: names in the style sheet and the sprite."""

    word: str
    hue: str
    icon: str


@dataclass(frozen=True, slots=True)
class StateLine:
    """The first line of a message: its state, with the time left, and what follows from it in plain sentences.

    before, after: the title around the countdown to ends_at; since: when the countdown began, for its ring.
    covers: the codes of the explanation's reasons that the title and the text say already.
    """

    badge: Badge
    before: str
    text: str = ""
    ends_at: datetime | None = None
    since: datetime | None = None
    after: str = ""
    covers: frozenset[StrEnum] = frozenset()


@dataclass(frozen=True, slots=True)
class Fact:
    """A property of a message. text, or the instant `at`. note: said after it. url: the text links there.

    is_code: as a program wrote it.
    """

    name: str
    text: str = ""
    note: str = ""
    at: datetime | None = None
    url: str = ""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of counts. of: the count of an entity; None: it has no such messages. hue: colour of a count above 0."""

    name: str
    title: str
    hint: str
    of: Callable[[Counted], int | None]
    css: str = "num"
    hue: str = ""
    word: str = ""  # label of the total; empty: not summed


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of the board: the messages of an entity in one state.

    slug:   of the tab that lists the same messages. word, hue, icon, note: its head. nothing: the text if it is empty.
    tab, holds: its list, as for reads.list_messages. has: (message row) -> whether it belongs to the lane.
    count:  how many messages; None: unknown.
    by:     (message row) -> the title of the box that it is in, or its receiver; None: there are no boxes. by_session: the boxes
            are sessions.
    place:  another entity, whose messages these are.
    """

    slug: str
    word: str
    hue: str
    icon: str
    note: str
    nothing: str
    tab: Tab
    count: Callable[[EntityRow], int | Capped | None]
    has: Callable[[MessageRow], bool]
    holds: tuple[int, ...] | None = None
    newest_first: bool = False
    by: Callable[[MessageRow], ShownActor | str] | None = None
    by_session: bool = False
    place: EntityAddress | None = None


class BoardPages(ABC):
    """How the board shows a family's entities."""

    #: The slug of the lane with a box for each receiver.
    boxes: str

    @abstractmethod
    def lanes(self, entity: EntityRow, actor: Actor) -> Sequence[Lane]:
        """The lanes of an entity."""

    @abstractmethod
    def tries(self, row: MessageRow) -> tuple[int, str]:
        """How often a message failed, or was received, as a number and in words; empty: never."""

    def dead_letters(self, entity: EntityRow) -> tuple[str, str] | None:
        """Where its dead letters go, as name and URL, if no lane has them; None: a lane has them, or they are dropped."""
        return None


@dataclass(frozen=True, slots=True)
class Act:
    """The outcome of an action: its result, or the error."""

    result: Any = None
    error: BrokerError | None = None

    @property
    def status(self) -> int:
        return 200 if self.error is None else status_of(self.error)


def status_of(error: BrokerError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 409)
