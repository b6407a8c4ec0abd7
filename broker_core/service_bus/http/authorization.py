"""Who a request comes from: its shared-access token as an Actor (docs/http.md)."""

from __future__ import annotations

import time

from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus import shared_access
from broker_core.service_bus.rules import sas
from broker_core.service_bus.shared_access import AccessPolicy

from .request import Request

HOLDER_HEADER = "vitrine-holder"
REMEMBERED_SECONDS = 1.0  # so long a key that was replaced may still be accepted
_MOST_REMEMBERED = 1000
_MOST_HOLDER_CHARACTERS = 100

_remembered: dict[tuple[str, str, str], tuple[float, list[AccessPolicy]]] = {}


async def actor_of(request: Request) -> Actor:
    """Raises TokenRefused, saying why. A token's rights are checked by the use cases.

    A subscription has no policies of its own: those of its topic hold.
    """
    token, address = sas.parse(request.header("authorization") or ""), request.target.address
    scope = address.topic or address
    signer = _signer(token, _recall(scope, token.policy))
    if signer is None:  # nothing is remembered, or a key was replaced a moment ago
        found = await shared_access.find_policies.aio(scope.namespace, scope.path, token.policy)
        _remember(scope, token.policy, found)
        signer = _signer(token, found)
    if signer is None:
        raise sas.wrong_signature(token)
    sas.check_claims(token, host=request.host, path=request.target.path, now=time.time())
    return Actor("key", signer.name, signer.rights, _holder(request, signer))


def _signer(token: sas.Token, found: list[AccessPolicy]) -> AccessPolicy | None:
    return next((policy for policy in found if sas.signed_by(token, policy.keys)), None)


def _key(address: EntityAddress, name: str) -> tuple[str, str, str]:
    return address.namespace.lower(), address.path.lower(), name.lower()


def _recall(address: EntityAddress, name: str) -> list[AccessPolicy]:
    until, found = _remembered.get(_key(address, name), (0.0, []))
    return found if time.monotonic() < until else []


def _remember(address: EntityAddress, name: str, found: list[AccessPolicy]) -> None:
    """Policies of that name that hold here, the entity's own first. Misses are not kept, as anybody can make many."""
    if len(_remembered) >= _MOST_REMEMBERED:
        _remembered.clear()
    if found:
        _remembered[_key(address, name)] = (time.monotonic() + REMEMBERED_SECONDS, found)


def _holder(request: Request, policy: AccessPolicy) -> str:
    """How a lock of this client is shown: the name it gives itself, else key and machine."""
    label = (request.header(HOLDER_HEADER) or "").strip()
    return label[:_MOST_HOLDER_CHARACTERS] or f"key:{policy.name}@{request.client_ip}"
