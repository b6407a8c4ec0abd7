"""Authenticate a request: its shared-access token as an Actor (docs/http.md)."""

from __future__ import annotations

import time

from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.entities.shared_access import AccessPolicy
from broker_core.service_bus.rules import sas

from .request import Request

HOLDER_HEADER = "vitrine-holder"
CACHE_SECONDS = 1.0  # how long a replaced key may still be accepted
_MOST_CACHED = 1000
_MOST_HOLDER_CHARACTERS = 100

_cached: dict[tuple[str, str, str], tuple[float, list[AccessPolicy]]] = {}


async def actor_of(request: Request) -> Actor:
    """The actor of a request. Raises TokenRefused with the reason. A token's rights are checked by the use cases.

    A subscription has no policies of its own; those of its topic apply.
    """
    token, address = sas.parse(request.header("authorization") or ""), request.target.address
    scope = address.topic or address
    signer = _signer(token, _cached_policies(scope, token.policy))
    if signer is None:  # not cached, or a key was just replaced
        found = await shared_access.find_policies.aio(scope.namespace, scope.path, token.policy)
        _cache_policies(scope, token.policy, found)
        signer = _signer(token, found)
    if signer is None:
        raise sas.wrong_signature(token)
    sas.check_claims(token, host=request.host, path=request.target.path, now=time.time())
    return Actor("key", signer.name, signer.rights, _holder(request, signer))


def _signer(token: sas.Token, found: list[AccessPolicy]) -> AccessPolicy | None:
    return next((policy for policy in found if sas.signed_by(token, policy.keys)), None)


def _key(address: EntityAddress, name: str) -> tuple[str, str, str]:
    return address.namespace.lower(), address.path.lower(), name.lower()


def _cached_policies(address: EntityAddress, name: str) -> list[AccessPolicy]:
    until, found = _cached.get(_key(address, name), (0.0, []))
    return found if time.monotonic() < until else []


def _cache_policies(address: EntityAddress, name: str, found: list[AccessPolicy]) -> None:
    """Cache the policies of this name that apply here, the entity's own first. Misses are not cached; clients could cause
    many."""
    if len(_cached) >= _MOST_CACHED:
        _cached.clear()
    if found:
        _cached[_key(address, name)] = (time.monotonic() + CACHE_SECONDS, found)


def _holder(request: Request, policy: AccessPolicy) -> str:
    """The label shown for locks of this client: the name it sends, otherwise its key and address."""
    label = (request.header(HOLDER_HEADER) or "").strip()
    return label[:_MOST_HOLDER_CHARACTERS] or f"key:{policy.name}@{request.client_ip}"
