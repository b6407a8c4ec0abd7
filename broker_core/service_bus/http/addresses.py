"""What a URL of the REST API names, and the URL of a lock (reference 8.1). Pure.

    .../servicebus/{namespace}/{entity}/messages                        to send to
    .../servicebus/{namespace}/{entity}/messages/head                   to receive from
    .../servicebus/{namespace}/{entity}/messages/{id}/{lock token}      a lock; id is the message's id or sequence number, unread

An entity is a queue, a topic or a subscription ({topic}/Subscriptions/{name}), with or without /$DeadLetterQueue. Its path may
have slashes (and a segment "messages"), so the URL is read from its end. The API's own words are known in any casing (1.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote
from uuid import UUID

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress

from .errors import UnknownResource

MOUNT = "servicebus"
_MESSAGES = "messages"
_HEAD = "head"
_HOW = f"/{MOUNT}/<namespace>/<entity>/messages to send, .../messages/head to receive, .../messages/<id>/<lock token> to settle"


class Kind(StrEnum):
    MESSAGES = "messages"
    HEAD = "head"
    LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Target:
    """path: of the request, decoded, for comparing with a token's scope. collection: up to "messages", encoded as it came."""

    kind: Kind
    address: EntityAddress
    path: str
    collection: str
    lock_token: UUID | None = None

    @property
    def lock(self) -> UUID:
        """The token of the lock that the address names. Raises UnknownResource where it names none."""
        if self.lock_token is None:
            raise UnknownResource(f"'{self.path}' does not name a lock; use {_HOW}.")
        return self.lock_token

    def lock_path(self, sequence_number: int, lock_token: UUID) -> str:
        return f"{self.collection}/{sequence_number}/{lock_token}"


def parse(raw_path: str, root_path: str = "") -> Target:
    """Read a request's path, still percent-encoded, as the server got it.

    root_path: the prefix the site is mounted under, which a proxy may have stripped from raw_path.
    Raises UnknownResource, or InvalidArgument for a lock token that is none.
    """
    full = raw_path if raw_path.startswith(f"{root_path}/") else root_path + raw_path
    segments = full.split("/")
    if MOUNT not in segments:
        raise UnknownResource(f"No resource at '{unquote(full)}'; use {_HOW}.")
    rest = segments[segments.index(MOUNT) + 1 :]
    kind, length = _kind(rest, full)
    return Target(
        kind,
        EntityAddress.parse("/".join(unquote(segment) for segment in rest[:-length])),
        unquote(full),
        "/".join(segments[: len(segments) - length + 1]),
        _lock_token(unquote(rest[-1])) if kind is Kind.LOCK else None,
    )


def _kind(rest: list[str], full: str) -> tuple[Kind, int]:
    """The kind, and how many segments from "messages" on belong to it."""
    words = [segment.lower() for segment in rest]
    if words[2:] and words[-1] == _MESSAGES:
        return Kind.MESSAGES, 1
    if words[3:] and words[-2:] == [_MESSAGES, _HEAD]:
        return Kind.HEAD, 2
    if words[4:] and words[-3] == _MESSAGES:
        return Kind.LOCK, 3
    raise UnknownResource(f"No resource at '{unquote(full)}'; use {_HOW}.")


def _lock_token(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as exc:
        raise InvalidArgument(
            "lock token", f"{text[:60]!r} in the URL is not a UUID; use the Location a receive gave, unchanged"
        ) from exc
