"""Who a client is: verifies shared-access tokens, and names of policies with their keys, for every front end of Service Bus.

The namespace (SB-933) is the one in the path that a client uses, or else that of the first label of its host, if a namespace has
this name. Otherwise the key decides: the namespace in which a policy of this name has this key, or PUBLISHED_NAMESPACE if several
have it. What was verified is kept for a second, and nothing else is: clients could cause many refusals. A refusal costs one
statement and the signatures of at most MOST_CANDIDATES policies.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from weakref import WeakKeyDictionary

from cachetools import TTLCache

from broker_core.common.actors import key_holder
from broker_core.common.errors import BrokerError, InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress
from broker_core.store import connections

from .entities import shared_access
from .entities.shared_access import MOST_CANDIDATES, AccessPolicy, Proof
from .rules import sas
from .rules.entity_settings import check_namespace_name, check_policy_name
from .rules.sas import PUBLISHED_NAMESPACE, TokenRefused

CACHE_SECONDS = 1.0  # how long a replaced key may still be accepted
CHECK_SECONDS = 1.0  # between two looks whether what is in use is still valid
_MOST_CACHED = 1000
_MOST_TOGETHER = 8  # keys that are kept for one place and name
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verified:
    """A policy, and the key of it that a client has. expires_at: when its token ends; None: it gave the key itself."""

    policy: AccessPolicy
    key: str = field(repr=False)
    expires_at: datetime | None = None

    @property
    def namespace(self) -> str:
        return self.policy.namespace

    def actor(self, protocol: str, client: str) -> Actor:
        """With the policy's rights, in its namespace only. client: the peer's address, or the name that it gives itself."""
        name = self.policy.name
        return Actor("key", name, self.policy.rights, key_holder(protocol, name, client), namespace=self.namespace)

    def require_scope(self, address: EntityAddress) -> None:
        """Raise NotAuthorized unless the policy belongs to the namespace of this address, to the entity, or to its topic."""
        if not self.policy.applies_to(address):
            raise NotAuthorized(f"key:{self.policy.name}", "ACCESS", str(address))


async def verify_token(
    text: str, *, host: str, path: str, entity: str = "", namespace: str | None = None, header: str = "Authorization"
) -> Verified:
    """Whose key signed this token. Its rights are checked by the use cases.

    text: of this header. host, path: what the client names, which the token must cover. entity: the path of the
    queue, topic or subscription that it names there; empty: it names the namespace, and policies of entities do not apply.
    namespace: the one that the path names; None: the host or the key does. Raises TokenRefused with the reason.
    """
    token = sas.parse(text, header)
    place = _Place(namespace, None if namespace else label_of(host), _scope_of(entity), token.policy.lower())
    found = await _prove(place, lambda key: sas.signed_by(token, (key,)))
    if found is None:
        raise sas.wrong_signature(token)
    sas.check_claims(token, host=host, path=path, now=time.time())
    return Verified(*found, token.expires_at)


async def verify_key(policy: str, key: str, *, host: str = "", entity: str | None = None) -> Verified:
    """The policy of this name that has this key, as with SASL PLAIN. host: what the client names.

    entity: as in `verify_token`; None: not known yet, so that policies of all entities apply, and `Verified.require_scope` says
    where. Raises TokenRefused.
    """
    place = _Place(None, label_of(host), entity and _scope_of(entity), policy.lower())
    found = await _prove(place, lambda own: _is_same(own, key))
    if found is None:
        raise sas.wrong_key(policy)
    return Verified(*found)


def label_of(host: str) -> str | None:
    """The first label of a host, with or without a port, if it can be a namespace's name."""
    label = host.partition(".")[0] if "." in host else re.sub(":[0-9]*$", "", host)
    try:
        return check_namespace_name(label).lower()
    except InvalidArgument:
        return None


class _Place(NamedTuple):
    """Where a policy is looked for. label: of the host; None: it can be no namespace's name. entity: None: anywhere."""

    namespace: str | None
    label: str | None
    entity: str | None
    policy: str


_Found = tuple[float, Proof]  # and until when it is valid, in seconds of the monotonic clock
_cached: TTLCache[_Place, tuple[_Found, ...]] = TTLCache(_MOST_CACHED, CACHE_SECONDS)


async def _prove(place: _Place, proves: Callable[[str], bool]) -> Proof | None:
    """The policy that has the key, which `proves` tells."""
    now = time.monotonic()
    kept = [found for found in _cached.get(place, ()) if found[0] > now]
    known = [proof for _, proof in kept if proves(proof.key)]
    if known:
        return known[0]
    proof = _decided(await _proofs(place, proves))
    if proof is not None:
        _cached[place] = ((now + CACHE_SECONDS, proof), *kept)[:_MOST_TOGETHER]
    return proof


async def _proofs(place: _Place, proves: Callable[[str], bool]) -> Sequence[Proof]:
    """The policies that have the key. Every key is tried, so that the time does not tell which was right."""
    try:
        check_policy_name(place.policy)
    except InvalidArgument:
        return ()
    if place.namespace is not None:
        policies = await shared_access.find_policies.aio(place.namespace, place.entity, place.policy)
        return [Proof(policy, key) for policy in policies for key in policy.keys if proves(key)]
    found = await shared_access.search_by_key.aio(place.label, place.entity, place.policy, proves)
    if found.is_cut:
        raise TokenRefused(
            TokenRefused.SIGNATURE,
            f"More than {MOST_CANDIDATES:,} policies have the name '{place.policy}', too many to find a namespace by its key. "
            "Name the namespace in the host, or use a policy of another name.",
        )
    return found.proofs


def _decided(proofs: Sequence[Proof]) -> Proof | None:
    """Of the policies that have the key, the one that counts. Raises TokenRefused."""
    if len({proof.policy.namespace for proof in proofs}) < 2:
        return next(iter(proofs), None)
    proof = next((proof for proof in proofs if proof.policy.namespace.lower() == PUBLISHED_NAMESPACE), None)
    if proof is None:
        raise TokenRefused(
            TokenRefused.SIGNATURE, "Policies of several namespaces have this name and key. Name the namespace in the host."
        )
    return proof


def _scope_of(entity: str) -> str:
    """The path whose policies apply: of a subscription, its topic's."""
    topic = EntityAddress("", entity).topic
    return (topic.path if topic else entity).lower()


# What is in use


@contextmanager
def watched(verified: Verified) -> Iterator[asyncio.Future[TokenRefused]]:
    """Inside the block, look once a second whether a credential is still valid. The future gets the refusal when it is not: the
    policy was deleted, the key replaced, a right taken away, or the token has expired (SB-935). One statement looks for all."""
    loop = asyncio.get_running_loop()
    watch = _watches.setdefault(loop, _Watch())
    ended: asyncio.Future[TokenRefused] = loop.create_future()
    watch.add(verified, ended)
    try:
        yield ended
    finally:
        watch.remove(ended)


class _Watch:
    """The credentials that are in use in an event loop."""

    def __init__(self) -> None:
        self._used: dict[asyncio.Future[TokenRefused], Verified] = {}
        self._looking: asyncio.Task[None] | None = None

    def add(self, verified: Verified, ended: asyncio.Future[TokenRefused]) -> None:
        self._used[ended] = verified
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def remove(self, ended: asyncio.Future[TokenRefused]) -> None:
        self._used.pop(ended, None)

    async def _look(self) -> None:
        while self._used:
            await asyncio.sleep(CHECK_SECONDS)
            of_database: defaultdict[connections.Database, dict[asyncio.Future[TokenRefused], Verified]] = defaultdict(dict)
            for ended, verified in self._used.items():
                of_database[connections.database_of(verified.namespace)][ended] = verified
            for database, used in of_database.items():
                try:
                    with connections.using(database):
                        await _end_invalid(used)
                except BrokerError as exc:  # nothing of a database ends while it is away
                    _log.warning("could not look whether keys in use are still valid: %s", exc)


async def _end_invalid(used: Mapping[asyncio.Future[TokenRefused], Verified]) -> None:
    """End those that are no longer valid, whose policies are in the current database."""
    policies = await shared_access.stored_policies.aio(sorted({each.policy.id for each in used.values()}))
    current = {policy.id: policy for policy in policies}
    for ended, verified in used.items():
        refusal = refusal_of(verified, current.get(verified.policy.id), datetime.now(UTC))
        if refusal is not None and not ended.done():
            ended.set_result(refusal)


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()


def refusal_of(verified: Verified, current: AccessPolicy | None, now: datetime) -> TokenRefused | None:
    """Why a credential is no longer valid; None: it is. current: the policy as it is stored now."""
    if verified.expires_at is not None and verified.expires_at <= now:
        return sas.expired(verified.expires_at)
    if current is None:
        return _revoked(f"The policy '{verified.policy.name}' was deleted")
    if not sum(_is_same(key, verified.key) for key in current.keys):
        return _revoked(f"The key of the policy '{verified.policy.name}' was replaced")
    if verified.policy.rights & ~current.rights:
        return _revoked(f"The policy '{verified.policy.name}' has lost a right")
    return None


def _is_same(key: str, other: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(key.encode(), other.encode(errors="surrogatepass"))


def _revoked(what: str) -> TokenRefused:
    return TokenRefused(TokenRefused.SIGNATURE, f"{what} while it was in use. Sign in again with a valid key.")
