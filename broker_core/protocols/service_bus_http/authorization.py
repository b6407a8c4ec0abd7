"""Who a request comes from: its shared-access token as an Actor (reference 7.7)."""

from __future__ import annotations

import time

from broker_core import policies
from broker_core.policies import Policy
from broker_core.protocols import sas
from broker_core.semantics.types import Actor, EntityAddress

from .request import Request

HOLDER_HEADER = "vitrine-holder"
REMEMBERED_SECONDS = 1.0  # so long a key that was replaced may still be accepted
_MOST_REMEMBERED = 1000
_MOST_HOLDER_CHARACTERS = 100

_remembered: dict[tuple[str, str, str], tuple[float, list[Policy]]] = {}


async def actor_of(request: Request) -> Actor:
    """Raises TokenRefused, saying why. A token's rights are checked by the use cases."""
    token, address = sas.parse(request.header("authorization") or ""), request.target.address
    found = await _policies(address, token.policy)
    signer = _signer(token, found) or _signer(token, found := await _policies(address, token.policy, fresh=True))
    keys = [key for policy in found for key in policy.keys]
    sas.verify(token, keys, host=request.host, path=request.target.path, now=time.time())
    return Actor("key", signer.name, signer.rights, _holder(request, signer))


def _signer(token: sas.Token, found: list[Policy]) -> Policy | None:
    return next((policy for policy in found if sas.signed_by(token, policy.keys)), None)


async def _policies(address: EntityAddress, name: str, *, fresh: bool = False) -> list[Policy]:
    """Policies of that name that hold here, the entity's own first; remembered for a moment."""
    key, now = (address.namespace.lower(), address.path.lower(), name.lower()), time.monotonic()
    until, found = _remembered.get(key, (0.0, []))
    if fresh or until <= now:
        found = await policies.find_policies.aio(address.namespace, address.path, name)
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        if found:
            _remembered[key] = (now + REMEMBERED_SECONDS, found)
    return found


def _holder(request: Request, policy: Policy) -> str:
    """How a lock of this client is shown: the name it gives itself, else key and machine."""
    label = (request.header(HOLDER_HEADER) or "").strip()
    return label[:_MOST_HOLDER_CHARACTERS] or f"key:{policy.name}@{request.client_ip}"
