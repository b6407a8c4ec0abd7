"""Parse the URLs of the REST API, and build those of locks (docs/http.md). Pure functions.

At the root of a port of its own:

    /{entity}/messages                        to send to
    /{entity}/messages/head                   to receive from
    /{entity}/messages/{id}/{lock token}      a lock; id is the message's id or sequence number, not checked

On the site, with the namespace in the path:

    .../servicebus/{namespace}/{entity}/messages, and so on

An entity is a queue, a topic or a subscription ({topic}/Subscriptions/{name}), with or without /$DeadLetterQueue. Its path may
contain slashes (and a segment "messages"), so the URL is parsed from its end. The API's keywords are case-insensitive.

This is the only place where URLs of the API are parsed. The path is split at its slashes first, and each segment is decoded once.
Routing, the address and the scope that a token must cover all come from these segments, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress
from broker_core.wire.http.errors import UnknownResource

MOUNT = "servicebus"
_ANY = "namespace"  # stands for the one that a path at the root does not name
_MESSAGES = "messages"
_HEAD = "head"
_OPERATIONS = "/messages to send, .../messages/head to receive, .../messages/<id>/<lock token> to settle"
_HOW, _HOW_AT_ROOT = f"/{MOUNT}/<namespace>/<entity>{_OPERATIONS}", f"/<entity>{_OPERATIONS}"


class Kind(StrEnum):
    MESSAGES = "messages"
    HEAD = "head"
    LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL.

    address:    its namespace is empty if the path names none (`within`).
    path:       the parsed address as a decoded path, which a token's scope is compared with.
    collection: the URL's path up to "messages", encoded as received.
    """

    kind: Kind
    address: EntityAddress
    path: str
    collection: str
    lock_token: UUID | None = None

    @property
    def lock(self) -> UUID:
        """The lock token in the URL. Raises UnknownResource if there is none."""
        if self.lock_token is None:
            raise UnknownResource(f"'{self.path}' does not name a lock; use {_HOW}.")
        return self.lock_token

    def within(self, namespace: str) -> Target:
        """The same in a namespace that the host or the key of the request names."""
        return replace(self, address=replace(self.address, namespace=namespace))

    def lock_path(self, sequence_number: int, lock_token: UUID) -> str:
        return f"{self.collection}/{sequence_number}/{lock_token}"


def is_mounted(scope: Mapping[str, Any]) -> bool:
    """Whether an ASGI request is for this API: its first segment below the site's prefix is the mount."""
    return _below_mount(_raw_path(scope), scope.get("root_path", "")) is not None


def parse_scope(scope: Mapping[str, Any]) -> Target:
    """Parse the path of an ASGI request. Raises the errors of `parse`."""
    return parse(_raw_path(scope), scope.get("root_path", ""))


def parse(raw_path: str, root_path: str = "") -> Target:
    """Parse a request's percent-encoded path, as received by the server.

    root_path: the prefix the site is mounted under, decoded, which a proxy may have stripped from raw_path.
    Raises UnknownResource, or InvalidArgument for a malformed address or lock token.
    """
    encoded = _below_mount(raw_path, root_path)
    if encoded is None:
        raise _unknown(raw_path, _HOW)
    prefix = root_path.rstrip("/")
    return _target(raw_path, encoded, f"{prefix}/{MOUNT}/", f"{quote(prefix)}/{MOUNT}/", _HOW)


def kind_at_root(scope: Mapping[str, Any]) -> Kind | None:
    """What an ASGI request to a port of its own is for by its path alone; None: nothing of this API. A path is that of a lock
    only if it ends in a UUID, so that other paths can be those of entities. An encoded slash may be a part of a message's id, or
    a slash, as where entities are created: none has a path whose requests would come here."""
    words = [unquote(segment).lower() for segment in _raw_path(scope).split("/")]
    return _kind_by(words) or _kind_by("/".join(words).split("/"))


def _kind_by(words: list[str]) -> Kind | None:
    kind, _ = _kind_of(words) or (None, 0)
    return None if kind is Kind.LOCK and not _is_uuid(words[-1]) else kind


def parse_scope_at_root(scope: Mapping[str, Any]) -> Target:
    """Parse the path of an ASGI request to the API on a port of its own. Raises the errors of `parse_at_root`."""
    return parse_at_root(_raw_path(scope))


def parse_at_root(raw_path: str) -> Target:
    """Parse a request's percent-encoded path that begins with the entity; the target's address has no namespace yet.

    Raises UnknownResource, or InvalidArgument for a malformed address or lock token.
    """
    first, *encoded = raw_path.split("/")
    if first:
        raise _unknown(raw_path, _HOW_AT_ROOT)
    target = _target(raw_path, [_ANY, *encoded], "/", "/", _HOW_AT_ROOT)
    return replace(
        target,
        address=replace(target.address, namespace=""),
        path=target.path.removeprefix(f"/{_ANY}"),
        collection=target.collection.removeprefix(f"/{_ANY}"),
    )


def _target(raw_path: str, encoded: list[str], prefix: str, encoded_prefix: str, how: str) -> Target:
    """encoded: the segments from the namespace on. prefix: what is before them."""
    decoded = [unquote(segment) for segment in encoded]
    kind, length = _kind(decoded, raw_path, how)
    address, operation = _address(decoded[:-length], how), "/".join(decoded[-length:])
    return Target(
        kind,
        address,
        f"{prefix}{address}/{operation}",
        encoded_prefix + "/".join(encoded[: len(encoded) - length + 1]),
        _lock_token(decoded[-1]) if kind is Kind.LOCK else None,
    )


def _raw_path(scope: Mapping[str, Any]) -> str:
    """The encoded path. If the server does not pass it, encoded and plain slashes cannot be distinguished."""
    raw = scope.get("raw_path")
    return raw.decode("latin-1") if raw else quote(scope["path"])


def _below_mount(raw_path: str, root_path: str) -> list[str] | None:
    """The encoded segments below the mount; None if the path is not below it."""
    segments, prefix = raw_path.split("/"), root_path.rstrip("/").split("/")
    has_prefix = [unquote(segment) for segment in segments[: len(prefix)]] == prefix
    below = segments[len(prefix) if has_prefix else 1 :]
    return below[1:] if below and unquote(below[0]) == MOUNT and not segments[0] else None


def _address(segments: list[str], how: str) -> EntityAddress:
    """Build the address; an encoded slash in an entity's path is a slash. Raises InvalidArgument for paths that proxies
    rewrite."""
    namespace, path = segments[0], "/".join(segments[1:])
    parts = [namespace, *path.split("/")]
    if "/" in namespace or not all(parts) or not {".", ".."}.isdisjoint(parts):
        raise InvalidArgument(
            "address",
            f"'{path}' must not contain empty segments, '.' or '..', and no namespace's name a slash; use {how}",
        )
    return EntityAddress.parse(f"{quote(namespace, safe='')}/{path}")


def _kind(segments: list[str], raw_path: str, how: str) -> tuple[Kind, int]:
    """The kind, and the number of segments from "messages" on."""
    if found := _kind_of([segment.lower() for segment in segments]):
        return found
    raise _unknown(raw_path, how)


def _kind_of(words: list[str]) -> tuple[Kind, int] | None:
    """words: the segments in lower case, after the first of which the entity begins."""
    if words[2:] and words[-1] == _MESSAGES:
        return Kind.MESSAGES, 1
    if words[3:] and words[-2:] == [_MESSAGES, _HEAD]:
        return Kind.HEAD, 2
    if words[4:] and words[-3] == _MESSAGES:
        return Kind.LOCK, 3
    return None


def _unknown(raw_path: str, how: str) -> UnknownResource:
    return UnknownResource(f"No resource at '{unquote(raw_path)}'; use {how}.")


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _lock_token(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as exc:
        raise InvalidArgument(
            "lock token", f"{text[:60]!r} in the URL is not a UUID; use the Location a receive gave, unchanged"
        ) from exc
