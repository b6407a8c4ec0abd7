"""Authenticate a request: its shared-access token as an Actor (docs/http.md)."""

from __future__ import annotations

import time

from cachetools import TTLCache

from broker_core.common.types import Actor
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.entities.shared_access import AccessPolicy
from broker_core.service_bus.rules import sas

from .request import Request

HOLDER_HEADER = "vitrine-holder"
CACHE_SECONDS = 1.0  # how long a replaced key may still be accepted
_MOST_CACHED = 1000
_MOST_HOLDER_CHARACTERS = 100

_cached: TTLCache[tuple[str, str, str], list[AccessPolicy]] = TTLCache(_MOST_CACHED, CACHE_SECONDS)


async def actor_of(request: Request) -> Actor:
    """The actor of a request. Raises TokenRefused with the reason. A token's rights are checked by the use cases.

    A subscription has no policies of its own; those of its topic apply.
    """
    token, address = sas.parse(request.header("authorization") or ""), request.target.address
    scope = address.topic or address
    key = scope.namespace.lower(), scope.path.lower(), token.policy.lower()
    signer = _signer(token, _cached.get(key, []))
    if signer is None:  # not cached, or a key was just replaced
        policies = await shared_access.find_policies.aio(scope.namespace, scope.path, token.policy)
        if policies:  # misses are not cached: clients could cause many
            _cached[key] = policies
        signer = _signer(token, policies)
    if signer is None:
        raise sas.wrong_signature(token)
    sas.check_claims(token, host=request.host, path=request.target.path, now=time.time())
    return Actor("key", signer.name, signer.rights, _holder(request, signer))


def _signer(token: sas.Token, policies: list[AccessPolicy]) -> AccessPolicy | None:
    return next((policy for policy in policies if sas.signed_by(token, policy.keys)), None)


def _holder(request: Request, policy: AccessPolicy) -> str:
    """The label shown for locks of this client: the name it sends, otherwise its key and address."""
    label = (request.header(HOLDER_HEADER) or "").strip()
    return label[:_MOST_HOLDER_CHARACTERS] or f"key:{policy.name}@{request.client_ip}"
