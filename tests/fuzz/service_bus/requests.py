"""Whole requests to the port of Service Bus: its administration API, and the REST API for messages.

In an input, TOKEN is replaced by a valid token, SIGNATURE by that of the token that it is in, and LOCK by the token of a lock: so
changed requests come past the signature.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote
from uuid import UUID, uuid4
from xml.etree import ElementTree

from broker_core import namespaces, service_bus
from broker_core.common.errors import BrokerError, EntityExists
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.listener.front_ends import known_ports
from broker_core.service_bus import entities, http
from broker_core.service_bus.administration.elements import DESCRIPTION, ORDER, RULE_DESCRIPTION
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.http.errors import TABLE
from broker_core.service_bus.rules.sas import TokenRefused

from ..requests import HTTP_REFUSALS, Response, Scope, require, well_formed
from .seeds import SPELLED

NAMESPACE, POLICY, KEY = "fuzzed-bus", "root", "QUJD" * 11
QUEUE, TOPIC = EntityAddress(NAMESPACE, "orders"), EntityAddress(NAMESPACE, "news")
LASTS = 50  # requests, then what they deleted is made again
MOST_ENTITIES = 50  # then all are deleted
_TOKEN = re.compile(rb"sr=([^&\s]*)&se=([0-9]+)&skn=[^&\s]*&sig=SIGNATURE")
_TYPE = re.compile(r"application/atom\+xml;type=(entry|feed);charset=utf-8")
_TOKENS = {(401, code) for code in (TokenRefused.MISSING, TokenRefused.SIGNATURE, TokenRefused.AUDIENCE, TokenRefused.EXPIRED)}
_OF_ADMINISTRATION = _TOKENS | {  # docs/service-bus-administration.md
    *((400, 40000), (401, 40105), (403, 40300), (403, 40302), (404, 40400), (405, 40500), (409, 40900), (413, 41300)),
}
_OF_MESSAGES = _TOKENS | {(row.status, row.sub_code) for row in TABLE.values() if row.status < 500}
_ORDER: Mapping[str, Sequence[str]] = {DESCRIPTION[kind]: order for kind, order in ORDER.items()} | {
    RULE_DESCRIPTION: ("Filter", "Action", "CreatedAt", "Name"),
    "NamespaceInfo": ("Alias", "CreatedTime", "MessagingSKU", "MessagingUnits", "ModifiedTime", "Name", "NamespaceType"),
}


class ServiceBus:
    """Creates the namespace NAMESPACE with a policy of the key KEY."""

    def __init__(self) -> None:
        with suppress(EntityExists):
            namespaces.create_namespace(NAMESPACE, Family.SERVICE_BUS)
        with suppress(EntityExists):
            shared_access.create_policy(NAMESPACE, POLICY, manage=True, primary_key=KEY)
        serves = next(port.serves for port in known_ports() if port.setting == "SERVICE_BUS_PORT")
        assert callable(serves)
        self.application = serves
        self._filled, self._lock = 0, uuid4()

    async def fill(self, data: bytes) -> bytes:
        if self._filled % LASTS == 0:
            await self._make()
        self._filled += 1
        return _TOKEN.sub(_signed, data.replace(b"TOKEN", SPELLED)).replace(b"LOCK", str(self._lock).encode())

    def check(self, scope: Scope | None, response: Response) -> None:
        """As documented (SB, sections 7.2 to 7.7 and 8.1)."""
        if scope is None or response.headers.get("content-type", "").startswith("text/plain"):
            is_message = scope is not None and http.is_for_messages(scope) and response.status < 300
            require(is_message or response.status in HTTP_REFUSALS and response.headers.get("connection") == "close", response)
        elif response.status >= 400:
            _check_error(scope, response)
        elif http.is_for_messages(scope):
            require(response.status in (200, 201, 204), response)
        else:
            _check_answer(scope, response)

    async def _make(self) -> None:
        """What the seeds need, and a lock on a message."""
        for kind in (EntityKind.QUEUE, EntityKind.TOPIC):
            found = await entities.describe_entities.aio(NAMESPACE, kind, max_count=MOST_ENTITIES)
            if len(found) == MOST_ENTITIES:
                for each in found:
                    await entities.delete_entity.aio(each.entity.address)
        made: list[Callable[[], Awaitable[object]]] = [
            lambda: entities.create_queue.aio(QUEUE),
            lambda: entities.create_topic.aio(TOPIC),
            lambda: entities.create_subscription.aio(TOPIC.subscription("all")),
            lambda: service_bus.send.aio(QUEUE, [service_bus.Message(b"x")]),
        ]
        for make in made:
            with suppress(BrokerError):
                await make()
        with suppress(BrokerError):
            for message in await service_bus.receive.aio(QUEUE):
                self._lock = message.lock_token


def _signed(found: re.Match[bytes]) -> bytes:
    """A token with its signature, which is made of the encoded resource and the expiry in it."""
    signature = b64encode(hmac.digest(KEY.encode(), found[1] + b"\n" + found[2], "sha256"))
    return found[0].replace(b"SIGNATURE", quote(signature, safe="").encode())


def _check_answer(scope: Scope, response: Response) -> None:
    """An answer of the administration API."""
    method, status = scope["method"], response.status
    require(status in ((200, 201) if method == "PUT" else (200,)), response)
    if method == "DELETE":
        require(not response.body, response)
        return
    kind = _TYPE.fullmatch(response.headers["content-type"])
    require(kind and well_formed(response)[0] == kind[1], response)
    for found in ElementTree.fromstring(response.body).iter():
        order = _ORDER.get(_local(found))
        names = [_local(child) for child in found]
        require(order is None or names == [name for name in order if name in names], response)


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _check_error(scope: Scope, response: Response) -> None:
    UUID(response.headers["vitrine-tracking-id"])
    if scope["method"] == "HEAD":
        require(not response.body, response)
        return
    require(well_formed(response) == ["Error", "Code", "Detail"], response)
    found = re.match(rb"<Error><Code>(\d{3})</Code><Detail>SubCode=(\d{5})\. ", response.body)
    require(found and int(found[1]) == response.status, response)
    documented = _OF_MESSAGES if http.is_for_messages(scope) else _OF_ADMINISTRATION
    require((response.status, int(found[2])) in documented, response)
