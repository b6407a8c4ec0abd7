"""Authenticate a request: its shared-access token as an Actor (docs/http.md)."""

from __future__ import annotations

from broker_core.common.types import Actor
from broker_core.service_bus import tokens
from broker_core.service_bus.entities.shared_access import AccessPolicy

from .request import Request

HOLDER_HEADER = "vitrine-holder"
_MOST_HOLDER_CHARACTERS = 100


async def actor_of(request: Request) -> Actor:
    """The actor of a request. Raises TokenRefused with the reason."""
    text, target = request.header("authorization") or "", request.target
    policy = (await tokens.verify(text, target.address, host=request.host, path=target.path)).policy
    return Actor("key", policy.name, policy.rights, _holder(request, policy))


def _holder(request: Request, policy: AccessPolicy) -> str:
    """The holder of this client's locks: its key, and the name that it sends, or its address."""
    name = (request.header(HOLDER_HEADER) or "").strip()[:_MOST_HOLDER_CHARACTERS]
    return f"key:{policy.name}@{name or request.client_ip}"
