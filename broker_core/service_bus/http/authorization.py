"""Authenticate a request: its shared-access token as an Actor (docs/http.md)."""

from __future__ import annotations

from broker_core.common.types import Actor
from broker_core.service_bus import tokens
from broker_core.service_bus.rules.sas import PUBLISHED_KEY, TokenRefused
from broker_core.wire import published_keys
from broker_core.wire.failed_authentications import failed_authentications, peer_of
from broker_core.wire.published_keys import is_from_page

from .request import Request

HOLDER_HEADER = "vitrine-holder"
_MOST_HOLDER_CHARACTERS = 100


async def authenticate(request: Request) -> Actor:
    """The actor of a request, whose target then has a namespace. Raises TokenRefused with the reason, PublishedKeyRefused and
    TooManyFailedAuthentications."""
    text, target = _token_of(request), request.target
    named = target.address.namespace or None
    async with failed_authentications.limited(peer_of(request.client_ip, is_from_page=is_from_page(request)), _is_failure):
        verified = await tokens.verify_token(
            text, host=request.host, path=target.path, entity=target.address.path, namespace=named
        )
        if verified.key == PUBLISHED_KEY:
            published_keys.require_allowed(request, lambda origin: False)
    request.verified, request.target = verified, target.within(named or verified.namespace)
    return verified.actor("http", _client(request))


def _token_of(request: Request) -> str:
    """The value of the Authorization header; empty: there is none. Raises TokenRefused if there are several, of which a proxy and
    Vitrine could read different ones."""
    texts = [text for name, text in request.headers if name.lower() == "authorization"]
    if len(texts) > 1:
        raise TokenRefused(TokenRefused.MISSING, f"The request has {len(texts)} Authorization headers. Send one.")
    return "".join(texts)


def _is_failure(problem: BaseException) -> bool:
    """Whether it was tried to authenticate: a request without a token, or with text that is none, is no guess."""
    return isinstance(problem, TokenRefused) and problem.sub_code != TokenRefused.MISSING


def _client(request: Request) -> str:
    """The client by whom locks are held: the name that it sends, or its address."""
    return (request.header(HOLDER_HEADER) or "").strip()[:_MOST_HOLDER_CHARACTERS] or request.client_ip
