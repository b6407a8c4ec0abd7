"""Who makes a request: the signature with an account's key, or a shared access signature, as an Actor."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from cachetools import TTLCache

from broker_core.common.actors import key_holder
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage import accounts, queues
from broker_core.queue_storage.accounts import StorageAccount
from broker_core.queue_storage.rules import sas, shared_key
from broker_core.queue_storage.rules.errors import (
    AccountNotFound,
    AuthenticationFailed,
    AuthorizationPermissionMismatch,
    AuthorizationResourceTypeMismatch,
    QueueNotFound,
)
from broker_core.queue_storage.rules.shared_key import PUBLISHED_KEY
from broker_core.wire import published_keys
from broker_core.wire.failed_authentications import failed_authentications, peer_of
from broker_core.wire.published_keys import is_from_page

from . import cors
from .request import Request

CACHE_SECONDS = 1.0  # how long a replaced key may still be accepted
_MOST_CACHED = 1000
_TYPES = {"s": "service", "c": "queues", "o": "messages"}
_cached: TTLCache[str, StorageAccount] = TTLCache(_MOST_CACHED, CACHE_SECONDS)
_finding: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[StorageAccount | None]] = {}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request needs. right: of the use case that it calls.

    type: of the resource in an account SAS: s, c or o; None: no account SAS permits it. account_letters: any of them suffices.
    service_letters: of a service SAS; empty: none permits it.
    """

    right: Right
    type: str | None = None
    account_letters: str = ""
    service_letters: str = ""


async def account_of(request: Request) -> StorageAccount:
    """The account that a request names, with its keys. Raises AccountNotFound."""
    name = request.target.account
    if (account := _cached.get(name)) is None:
        account = await _find_once(name)
        if account is None:  # not cached: clients could name many
            raise AccountNotFound(name)
        _cached[name] = account
    return account


def forget(name: str) -> None:
    """Look an account up again: a client that changed it sees the change at once."""
    _cached.pop(name, None)


async def _find_once(name: str) -> StorageAccount | None:
    """Look up an account, once for all requests of this loop that wait for it."""
    key = asyncio.get_running_loop(), name
    if (finding := _finding.get(key)) is None:
        finding = _finding[key] = asyncio.create_task(accounts.find_account.aio(name))
        finding.add_done_callback(lambda _: _finding.pop(key))
    return await asyncio.shield(finding)


async def actor_of(request: Request, account: StorageAccount, needs: Needs) -> Actor:
    """The actor of a request, with the right that it needs and no other. Raises AuthenticationFailed, InvalidAuthenticationInfo,
    the authorization mismatches, PublishedKeyRefused and TooManyFailedAuthentications."""
    given = [value for name, value in request.headers if name == "authorization"]
    authorization = ", ".join(given) if given else None  # two are none that can be read
    if authorization is None and not sas.is_signed(request.query_pairs):
        raise AuthenticationFailed("The request has neither an Authorization header nor a shared access signature (sig=...)")
    peer = peer_of(request.client_ip, is_from_page=is_from_page(request))
    async with failed_authentications.limited(peer, lambda problem: isinstance(problem, AuthenticationFailed)):
        if authorization is None:
            return _actor(request, account, await _check_sas(request, account, needs) or account.name, needs)
        _check_key(authorization, request, account)
        return _actor(request, account, account.name, needs)


def _check_key(authorization: str, request: Request, account: StorageAccount) -> None:
    if authorization.lower().startswith("bearer "):
        raise AuthenticationFailed("Bearer tokens are not supported. Sign with an account key, or use a shared access signature")
    credential, parts = shared_key.parse(authorization), request.signed_parts
    if credential.account != account.name:
        raise AuthenticationFailed(f"The request is for the account {account.name!r} and signed for {credential.account!r}")
    key = shared_key.check_signature(credential, parts, account.keys)
    if key == PUBLISHED_KEY:
        _require_allowed(request, account)
    else:  # clients of emulators do not set their clocks (QS-920)
        shared_key.check_date(parts, datetime.now(UTC))


async def _check_sas(request: Request, account: StorageAccount, needs: Needs) -> str | None:
    """Check a shared access signature. Returns the stored access policy that it names, if any."""
    signature, queue = sas.parse(request.query_pairs), request.target.queue or None
    key = sas.check_signature(signature, account.keys, account=account.name, queue=queue)
    if key == PUBLISHED_KEY:
        _require_allowed(request, account)
    policies = {}
    if signature.policy_id is not None and queue is not None:
        policies = await _policies(account.name, queue)
    letters = sas.permitted(signature, policies, datetime.now(UTC))
    sas.check_use(signature, is_tls=request.is_tls, client_ip=request.client_ip)
    if signature.is_for_account:
        if needs.type is None:
            raise AuthorizationPermissionMismatch("only a request signed with the account's key may do this (QS-098)")
        if needs.type not in (signature.types or ""):
            raise AuthorizationResourceTypeMismatch(
                f"it is for the resource types {signature.types!r}, and this needs {needs.type}, {_TYPES[needs.type]}"
            )
    allowed = needs.account_letters if signature.is_for_account else needs.service_letters
    if not set(allowed) & set(letters):
        raise AuthorizationPermissionMismatch(f"it has the permissions {letters!r}, and this needs {_wanted(allowed, needs)}")
    return signature.policy_id


def _wanted(allowed: str, needs: Needs) -> str:
    """What a signature must permit; if none of its kind can, who may."""
    if allowed or not needs.account_letters:
        return " or ".join(allowed) or "an account key"
    return f"an account key, or an account SAS with {' or '.join(needs.account_letters)}"


async def _policies(account: str, queue: str) -> dict[str, sas.AccessPolicy]:
    """The stored access policies of a queue; none if it does not exist, which the use case says to those who may know."""
    try:
        found = await queues.get_queue.aio(EntityAddress(account, queue))
    except QueueNotFound:
        return {}
    return {policy.id: policy for policy in found.access_policies}


def _require_allowed(request: Request, account: StorageAccount) -> None:
    """Raise PublishedKeyRefused unless this request may use the key that everybody knows."""
    published_keys.require_allowed(request, lambda origin: cors.rule_of(request, account) is not None)


def _actor(request: Request, account: StorageAccount, name: str, needs: Needs) -> Actor:
    """name: of the account, or of its stored access policy."""
    return _key_actor(account.name, name, request.client_ip, needs.right)


@lru_cache(1000)
def _key_actor(account: str, name: str, client_ip: str, right: Right) -> Actor:
    name = name.replace("%", "%25").replace("@", "%40")  # where actors are stored, the client follows an @
    return Actor("key", name, right, key_holder("http", name, client_ip), namespace=account)
