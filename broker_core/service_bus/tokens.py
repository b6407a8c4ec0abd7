"""Shared-access tokens: which policy signed one, for every front end that accepts tokens. Policies are cached for a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from cachetools import TTLCache

from broker_core.common.types import EntityAddress

from .entities import shared_access
from .entities.shared_access import AccessPolicy
from .rules import sas

CACHE_SECONDS = 1.0  # how long a replaced key may still be accepted
_MOST_CACHED = 1000

_cached: TTLCache[tuple[str, str, str], list[AccessPolicy]] = TTLCache(_MOST_CACHED, CACHE_SECONDS)


class Signed(NamedTuple):
    """A valid token, and the policy whose key signed it."""

    token: sas.Token
    policy: AccessPolicy


async def verify(text: str, address: EntityAddress, *, host: str, path: str) -> Signed:
    """The policy that signed this token. Its rights are checked by the use cases.

    text: of an Authorization header. address: of the entity that is used; a subscription has no policies of its own, those of
    its topic apply. host, path: what the client names, which the token must cover. Raises TokenRefused with the reason.
    """
    token, scope = sas.parse(text), address.topic or address
    key = scope.namespace.lower(), scope.path.lower(), token.policy.lower()
    signer = _signer(token, _cached.get(key, []))
    if signer is None:  # not cached, or a key was just replaced
        policies = await shared_access.find_policies.aio(scope.namespace, scope.path, token.policy)
        if policies:  # misses are not cached: clients could cause many
            _cached[key] = policies
        signer = _signer(token, policies)
    if signer is None:
        raise sas.wrong_signature(token)
    sas.check_claims(token, host=host, path=path, now=time.time())
    return Signed(token, signer)


def _signer(token: sas.Token, policies: Sequence[AccessPolicy]) -> AccessPolicy | None:
    return next((policy for policy in policies if sas.signed_by(token, policy.keys)), None)
