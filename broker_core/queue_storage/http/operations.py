"""Which operation a request is, and what it needs: each row of the REST API in one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker_core.common.types import Actor, Right
from broker_core.queue_storage.rules.errors import InvalidQueryParameterValue
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.errors import MethodNotAllowed

from . import messages, queues, service
from .authorization import Needs
from .paths import Level
from .request import Request

Run = Callable[[Request, Actor], Awaitable[Answer]]
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Operation:
    """run: the handler. on_secondary: whether the secondary endpoint has it, which is read only."""

    run: Run
    needs: Needs
    on_secondary: bool = False


_PEEK = Operation(messages.peek, Needs(Right.LISTEN, "o", "r", "r"), on_secondary=True)
_GET_METADATA = Operation(queues.get_metadata, Needs(Right.BROWSE, "c", "r", "r"), on_secondary=True)
_GET_ACL = Operation(queues.get_acl, Needs(Right.BROWSE), on_secondary=True)
_GET_PROPERTIES = Operation(service.get_properties, Needs(Right.BROWSE, "s", "r"), on_secondary=True)
_GET_STATS = Operation(service.get_stats, Needs(Right.BROWSE, "s", "r"), on_secondary=True)
# (method, what the URL names, restype, comp)
TABLE: dict[tuple[str, Level, str, str], Operation] = {
    ("GET", Level.SERVICE, "", "list"): Operation(service.list_queues, Needs(Right.BROWSE, "s", "l"), on_secondary=True),
    ("GET", Level.SERVICE, "service", "properties"): _GET_PROPERTIES,
    ("PUT", Level.SERVICE, "service", "properties"): Operation(service.set_properties, Needs(Right.MANAGE, "s", "w")),
    ("GET", Level.SERVICE, "service", "stats"): _GET_STATS,
    ("POST", Level.SERVICE, "service", "userdelegationkey"): Operation(service.get_delegation_key, Needs(Right.MANAGE)),
    ("PUT", Level.QUEUE, "", ""): Operation(queues.create, Needs(Right.MANAGE, "c", "cw")),
    ("DELETE", Level.QUEUE, "", ""): Operation(queues.delete, Needs(Right.MANAGE, "c", "d")),
    ("GET", Level.QUEUE, "", "metadata"): _GET_METADATA,
    ("HEAD", Level.QUEUE, "", "metadata"): _GET_METADATA,
    ("PUT", Level.QUEUE, "", "metadata"): Operation(queues.set_metadata, Needs(Right.MANAGE, "c", "w")),
    ("GET", Level.QUEUE, "", "acl"): _GET_ACL,
    ("HEAD", Level.QUEUE, "", "acl"): _GET_ACL,
    ("PUT", Level.QUEUE, "", "acl"): Operation(queues.set_acl, Needs(Right.MANAGE)),
    ("POST", Level.MESSAGES, "", ""): Operation(messages.put, Needs(Right.SEND, "o", "a", "a")),
    ("GET", Level.MESSAGES, "", ""): Operation(messages.get, Needs(Right.LISTEN, "o", "p", "p")),
    ("DELETE", Level.MESSAGES, "", ""): Operation(messages.clear, Needs(Right.MANAGE, "o", "d")),
    ("PUT", Level.MESSAGE, "", ""): Operation(messages.update, Needs(Right.LISTEN, "o", "u", "u")),
    ("DELETE", Level.MESSAGE, "", ""): Operation(messages.delete, Needs(Right.LISTEN, "o", "p", "p")),
}


def operation_of(request: Request) -> Operation:
    """Raises InvalidQueryParameterValue for a `comp` or `restype` that the resource does not have, MethodNotAllowed."""
    level = request.target.level
    restype, comp = request.parameter("restype") or "", request.parameter("comp") or ""
    if request.method == "GET" and level is Level.MESSAGES and not (restype or comp) and messages.is_peek(request):
        return _PEEK
    if found := TABLE.get((request.method, level, restype, comp)):
        return found
    methods = tuple(method for method, *place in TABLE if place == [level, restype, comp])
    if methods:
        raise MethodNotAllowed(request.method, methods)
    if request.method not in METHODS:
        raise MethodNotAllowed(request.method, METHODS)
    known = sorted({f"{r and f'restype={r}&'}comp={c}" for _, at, r, c in TABLE if at is level and c})
    use = f"use {' or '.join(known)}" if known else "use neither comp nor restype"
    name, text = ("restype", restype) if restype and not comp else ("comp", comp)
    raise InvalidQueryParameterValue(name, text[:80], f"names no operation of this URL; {use}")
