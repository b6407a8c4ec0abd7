"""Authenticate a request: its shared-access token as an Actor (docs/http.md)."""

from __future__ import annotations

from broker_core.common.types import Actor
from broker_core.service_bus import http_requests

from .request import Request

HOLDER_HEADER = "vitrine-holder"
_MOST_HOLDER_CHARACTERS = 100


async def authenticate(request: Request) -> Actor:
    """The actor of a request, whose target then has a namespace. Raises the errors of `http_requests.authenticate`."""
    target = request.target
    named = target.address.namespace or None
    verified = await http_requests.authenticate(request, path=target.path, entity=target.address.path, namespace=named)
    request.verified, request.target = verified, target.within(named or verified.namespace)
    return verified.actor("http", _client(request))


def _client(request: Request) -> str:
    """The client by whom locks are held: the name that it sends, or its address."""
    return (request.header(HOLDER_HEADER) or "").strip()[:_MOST_HOLDER_CHARACTERS] or request.client_ip
