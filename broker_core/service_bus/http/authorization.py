"""Authenticate a request: its shared-access token as an Actor (docs/http.md)."""

from __future__ import annotations

from broker_core.common.types import Actor
from broker_core.service_bus import tokens
from broker_core.service_bus.entities.shared_access import AccessPolicy
from broker_core.service_bus.rules import sas
from broker_core.service_bus.rules.sas import PUBLISHED_KEY, TokenRefused
from broker_core.wire import published_keys
from broker_core.wire.failed_authentications import failed_authentications, peer_of
from broker_core.wire.published_keys import is_from_page

from .request import Request

HOLDER_HEADER = "vitrine-holder"
_MOST_HOLDER_CHARACTERS = 100


async def actor_of(request: Request) -> Actor:
    """The actor of a request. Raises TokenRefused with the reason, PublishedKeyRefused and TooManyFailedAuthentications."""
    text, target = request.header("authorization") or "", request.target
    async with failed_authentications.limited(peer_of(request.client_ip, is_from_page=is_from_page(request)), _is_failure):
        token, policy = await tokens.verify(text, target.address, host=request.host, path=target.path)
        if PUBLISHED_KEY in policy.keys and sas.signed_by(token, [PUBLISHED_KEY]):
            published_keys.require_allowed(request, lambda origin: False)
    return Actor("key", policy.name, policy.rights, _holder(request, policy))


def _is_failure(problem: BaseException) -> bool:
    """Whether it was tried to authenticate: a request without a token, or with text that is none, is no guess."""
    return isinstance(problem, TokenRefused) and problem.sub_code != TokenRefused.MISSING


def _holder(request: Request, policy: AccessPolicy) -> str:
    """The holder of this client's locks: its key, and the name that it sends, or its address."""
    name = (request.header(HOLDER_HEADER) or "").strip()[:_MOST_HOLDER_CHARACTERS]
    return f"key:{policy.name}@{name or request.client_ip}"
