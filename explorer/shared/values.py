"""What families give to the shared pages: badges, columns of counts, and the outcomes of actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from broker_core.reads import Counted

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
class Act:
    """The outcome of an action: its result, or the error."""

    result: Any = None
    error: BrokerError | None = None

    @property
    def status(self) -> int:
        return 200 if self.error is None else status_of(self.error)


def status_of(error: BrokerError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 409)
