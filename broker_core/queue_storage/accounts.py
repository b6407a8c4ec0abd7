"""The keys of storage accounts, and the properties of their queue service.

Reading the keys requires MANAGE, as changing them does. Every function is a use case, and raises AccountNotFound and
NotAuthorized.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.queue_storage.rules.errors import AccountNotFound
from broker_core.queue_storage.rules.service_properties import ServiceProperties, as_json, check, from_json
from broker_core.queue_storage.rules.shared_key import is_key
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

KEYS = ("primary", "secondary")


@dataclass(frozen=True, slots=True)
class StorageAccount:
    """An account as stored. Either of its keys is valid, so that one can be replaced while programs use the other."""

    id: int
    name: str
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    properties: ServiceProperties

    @property
    def keys(self) -> tuple[str, str]:
        return self.primary_key, self.secondary_key


def new_key() -> str:
    """A key in the service's format: 64 random bytes in base64."""
    return base64.b64encode(secrets.token_bytes(64)).decode()


def checked_key(name: str, key: str | None) -> str | None:
    """Return a key that is given, in the one way that base64 is written. Raises InvalidArgument."""
    if key is None:
        return None
    if not (isinstance(key, str) and is_key(key)):
        raise InvalidArgument(name, "a key must be the base64 of 32 to 64 bytes")
    return base64.b64encode(base64.b64decode(key)).decode()


def insert(
    namespace_id: int, primary_key: str, secondary_key: str, properties: ServiceProperties = ServiceProperties()
) -> Steps[None]:
    """Give a new account its keys, in the transaction that creates it."""
    stored = json.dumps(as_json(properties))
    yield call(
        "create_storage_account",
        namespace_id=namespace_id,
        primary_key=primary_key,
        secondary_key=secondary_key,
        properties=stored,
    )


@use_case
def find_account(account: str) -> Steps[StorageAccount | None]:
    """The account of this name; None: there is none. Used to verify signatures, so no rights are required."""
    rows = yield call("storage_account", account=account)
    return _account(rows[0]) if rows else None


@use_case
def get_keys(account: str, *, actor: Actor | None = None) -> Steps[StorageAccount]:
    """The account with its keys."""
    (actor or Actor.local()).require(Right.MANAGE, account)
    return _found(account, (yield call("storage_account", account=account)))


@use_case
def set_keys(
    account: str, *, primary: str | None = None, secondary: str | None = None, actor: Actor | None = None
) -> Steps[StorageAccount]:
    """Replace the keys that are given; what was signed with the old ones becomes invalid. Raises InvalidArgument."""
    (actor or Actor.local()).require(Right.MANAGE, account)
    checked_key("primary", primary)
    checked_key("secondary", secondary)
    return (yield Atomically(_set_keys(account, primary, secondary)))


@use_case
def regenerate_key(account: str, *, which: str = "primary", actor: Actor | None = None) -> Steps[StorageAccount]:
    """Replace the "primary" or the "secondary" key by a new one."""
    (actor or Actor.local()).require(Right.MANAGE, account)
    if which not in KEYS:
        raise InvalidArgument("which", f"{which!r} must be primary or secondary")
    key = new_key()
    return (yield Atomically(_set_keys(account, *((key, None) if which == "primary" else (None, key)))))


@use_case
def get_service_properties(account: str, *, actor: Actor | None = None) -> Steps[ServiceProperties]:
    """The properties of an account's queue service."""
    (actor or Actor.local()).require(Right.BROWSE, account)
    return _found(account, (yield call("storage_account", account=account))).properties


@use_case
def set_service_properties(account: str, *, actor: Actor | None = None, **given: Any) -> Steps[ServiceProperties]:
    """Replace the parts that are given (fields of ServiceProperties; None: it stays). Raises InvalidArgument."""
    (actor or Actor.local()).require(Right.MANAGE, account)
    changed = {name: value for name, value in given.items() if value is not None}
    stored = as_json(check(ServiceProperties().replaced(**changed)))
    properties = json.dumps({name: stored[name] for name in changed})

    def steps() -> Steps:
        rows = yield call("set_storage_account_properties", account=account, properties=properties)
        if not rows:
            raise AccountNotFound(account)
        return from_json(rows[0].properties)

    return (yield Atomically(steps()))


def _set_keys(account: str, primary: str | None, secondary: str | None) -> Steps[StorageAccount]:
    rows = yield call("set_storage_account_keys", account=account, primary_key=primary, secondary_key=secondary)
    return _found(account, rows)


def _found(account: str, rows: list) -> StorageAccount:
    if not rows:
        raise AccountNotFound(account)
    return _account(rows[0])


def _account(row: Any) -> StorageAccount:
    return StorageAccount(row.id, row.name, row.primary_key, row.secondary_key, from_json(row.properties))
