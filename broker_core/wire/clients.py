"""The clients that are connected to this process, with their links, and what they send and receive.

A front end counts in plain integers, on the event loop that serves the client; nothing is computed, and nothing is written, here.
broker_core/clients records the clients in the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from enum import StrEnum
from itertools import count

from broker_core.common.types import Actor, EntityAddress

MOST_TEXT = 255  # characters of a text that a client gives
MOST_PATH = 1_000  # characters of the name of a namespace or entity
MOST_LINKS = 1_000  # of a client: a further one ends the oldest


class Direction(StrEnum):
    """What the client does with the entity of a link."""

    SENDS = "sends"
    RECEIVES = "receives"


class Link:
    """What a client does with an entity: an AMQP link, a consumer, or the requests of an HTTP client.

    mode: how it settles, such as "peek-lock". credit: how many more messages the client asks for, or its prefetch; None: it has
    none. unsettled: messages that were delivered and not settled. channel: of AMQP 0-9-1, or the session of AMQP 1.0.
    """

    __slots__ = ("address", "channel", "credit", "direction", "messages", "mode", "name", "number", "unsettled")

    def __init__(self, number: int, address: EntityAddress, direction: Direction, mode: str, name: str, channel: int | None):
        self.number, self.address, self.direction, self.mode = number, address, direction, mode
        self.name, self.channel = shown(name), channel
        self.credit: int | None = None
        self.unsettled = self.messages = 0


class Client:
    """A connection, or the requests of an HTTP client.

    peer: its address, with its port if it is one connection. port: of the process. product, version, description: what it says of
    itself. actor, holder: as events and locks store them; empty before it has signed in. since, last_at: seconds, as time.time().
    messages_in: sent by the client; messages_out: delivered to it. last_request: of HTTP, such as "GET /account/queue/messages".
    idle_seconds: the client ends after so long without a request; None: when it is closed.
    """

    __slots__ = (
        *(
            "actor",
            "bytes_in",
            "bytes_out",
            "description",
            "holder",
            "idle_seconds",
            "is_tls",
            "last_at",
            "last_request",
            "links",
        ),
        *("messages_in", "messages_out", "namespace", "number", "peer", "port", "product", "protocol", "since", "version"),
        *("_close", "_numbers"),
    )

    def __init__(
        self, numbers: Iterator[int], protocol: str, peer: str, *, is_tls: bool, port: int, close: Callable[[str], None]
    ) -> None:
        self._numbers, self._close = numbers, close
        self.number = next(numbers)
        self.protocol, self.peer, self.is_tls, self.port = protocol, shown(peer), is_tls, port
        self.product = self.version = self.description = self.actor = self.holder = self.namespace = self.last_request = ""
        self.since = self.last_at = time.time()
        self.messages_in = self.messages_out = self.bytes_in = self.bytes_out = 0
        self.idle_seconds: float | None = None
        self.links: dict[Hashable, Link] = {}

    def identify(self, product: str = "", version: str = "", description: str = "") -> None:
        """Record what the client says of itself."""
        self.product, self.version, self.description = shown(product), shown(version), shown(description)

    def authenticated(self, actor: Actor, namespace: str) -> None:
        """Record whom the client acts for."""
        self.actor, self.holder, self.namespace = shown(str(actor)), shown(actor.holder_label), shown(namespace)

    def link(
        self, address: EntityAddress, direction: Direction, mode: str = "", *,
        key: Hashable = None, name: str = "", channel: int | None = None,
    ) -> Link:  # fmt: skip
        """A new link. key: to end it by; default: its number."""
        link = Link(next(self._numbers), address, direction, mode, name, channel)
        if len(self.links) >= MOST_LINKS:
            self.links.pop(next(iter(self.links)))
        self.links[link.number if key is None else key] = link
        return link

    def unlink(self, key: Hashable) -> None:
        self.links.pop(key, None)

    def close(self, reason: str) -> None:
        """Close the connection, as its protocol does, on the event loop that serves it. reason: for the client."""
        self._close(reason)


class Registry:
    """The clients of a process, by number. Numbers are unique in the process, those of links too."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.clients: dict[int, Client] = {}

    def opened(
        self, protocol: str, peer: str, *, is_tls: bool = False, port: int = 0, close: Callable[[str], None] = lambda reason: None
    ) -> Client:
        """Register a connection. close: closes it, given the reason."""
        client = Client(self._numbers, protocol, peer, is_tls=is_tls, port=port, close=close)
        self.clients[client.number] = client
        return client

    def closed(self, client: Client) -> None:
        """Remove a connection that has ended; has no effect if that was done."""
        self.clients.pop(client.number, None)

    def end_idle(self, at: float) -> None:
        """End the clients without connections of their own that have made no request for long. at: as time.time()."""
        for client in list(self.clients.values()):
            if client.idle_seconds is not None and at - client.last_at > client.idle_seconds:
                client.close("it made no request")


def shown(text: str, most: int = MOST_TEXT) -> str:
    """A text of a client, of at most so many characters, without those that cannot be shown or stored."""
    text = text[:most]
    return text if text.isprintable() else "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


registry = Registry()
