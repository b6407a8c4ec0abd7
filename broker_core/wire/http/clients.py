"""HTTP clients as the registry of clients has them: one for each protocol, peer address, user agent and key.

A request costs a look-up and a few additions. A client ends after five minutes without a request, or when it is closed: the
requests that wait are answered, and its kept-alive connections end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from broker_core.common.types import Actor, EntityAddress
from broker_core.wire.clients import Client, Direction, registry

from .answer import Answer, write
from .request import ClientGone

if TYPE_CHECKING:
    from .request import Request

    R = TypeVar("R", bound=Request)

MOST_CLIENTS = 1_000  # a further one ends the one that has made no request for longest
MOST_ENTITIES = 20  # of a client that are shown, with what it does with them
IDLE_SECONDS = 300.0
CONNECTION = "vitrine.connection"  # in the scope: the server's object for the connection, with a method `shutdown`
_PRODUCT = re.compile(r"([^\s/()]+)/(\S+)")

_clients: dict[Hashable, HttpClient] = {}  # in the order of their last requests


class HttpClient:
    """What closing needs to know. waiting: the requests that wait for messages."""

    __slots__ = ("_key", "client", "connections", "waiting")

    def __init__(self, key: Hashable, request: Request, protocol: str, actor: Actor, namespace: str):
        self._key = key
        self.connections: WeakSet = WeakSet()
        self.waiting: set[Request] = set()
        self.client: Client = registry.opened(
            protocol, request.client_ip, is_tls=request.is_tls, port=request.port, close=self._close
        )
        self.client.idle_seconds = IDLE_SECONDS
        agent = request.agent.decode("latin-1")
        found = _PRODUCT.match(agent)
        self.client.identify(found[1] if found else agent, found[2] if found else "", agent)
        self.client.authenticated(actor, namespace)

    def begin_waiting(self, request: Request) -> None:
        """A request waits for messages, which is no idleness."""
        self.waiting.add(request)
        self.client.idle_seconds = None

    def end_waiting(self, request: Request) -> None:
        self.waiting.discard(request)
        if not self.waiting:
            self.client.idle_seconds, self.client.last_at = IDLE_SECONDS, time.time()

    def _close(self, reason: str) -> None:
        self.end()
        for request in list(self.waiting):
            request.close_because(reason)
        for connection in list(self.connections):
            connection.shutdown()

    def end(self) -> None:
        if _clients.get(self._key) is self:
            del _clients[self._key]
        registry.closed(self.client)


async def serve(
    answer: Callable[[R], Awaitable[Answer]], request: R, send: Callable[[Mapping[str, Any]], Awaitable[None]]
) -> None:
    """Answer a request of an ASGI server, unless its client is gone."""
    try:
        with suppress(ClientGone):
            answered = await answer(request)
            end(request, answered)
            await write(answered, request, send)
    finally:
        request.close()


def begin(protocol: str, request: Request, actor: Actor, namespace: str) -> None:
    """A request was authenticated: `request.client` is whose it is."""
    key = (protocol, request.client_ip, request.agent, actor.holder_label, namespace, request.port)
    if (found := _clients.pop(key, None)) is None:
        if len(_clients) >= MOST_CLIENTS:
            next(iter(_clients.values())).end()
        found = HttpClient(key, request, protocol, actor, namespace)
    _clients[key] = found
    request.client = found
    client = found.client
    client.last_at, client.last_request = time.time(), f"{request.method} {request.path[:200]}"
    if (connection := request.connection) is not None and connection not in found.connections:
        found.connections.add(connection)


def sent(request: Request, address: EntityAddress, messages: int) -> None:
    """A request has sent messages to an entity."""
    if (found := request.client) is not None:
        found.client.messages_in += messages
        _count(found.client, address, Direction.SENDS, "", messages)


def received(request: Request, address: EntityAddress, messages: int, mode: str) -> None:
    """A request has received messages, maybe none, from an entity."""
    if (found := request.client) is not None:
        found.client.messages_out += messages
        _count(found.client, address, Direction.RECEIVES, mode, messages)


def end(request: Request, answer: Answer) -> None:
    """A request is answered."""
    if (found := request.client) is not None:
        client = found.client
        client.bytes_in += request.length
        client.bytes_out += len(answer.body)


def _count(client: Client, address: EntityAddress, direction: Direction, mode: str, messages: int) -> None:
    key = (address, direction, mode)
    if (link := client.links.get(key)) is None:
        if len(client.links) >= MOST_ENTITIES:
            client.unlink(next(iter(client.links)))
        link = client.link(address, direction, mode, key=key)
    link.messages += messages
