"""Shared-access policies: named pairs of keys that grant rights on a namespace or one of its entities.

A scope is the name of a namespace or the EntityAddress of a queue or topic; a topic's policies also apply to its subscriptions.
Reading requires MANAGE, as changing does, since it reveals the keys. Every function is a use case, and raises EntityNotFound for
a missing scope or policy, NotAuthorized, InvalidArgument.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from broker_core.common.arguments import require_kind
from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, LimitReached, NotAllowed
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.service_bus.rules.entity_settings import check_policy_name
from broker_core.service_bus.rules.limits import STRICT
from broker_core.service_bus.rules.values import GivenPolicy
from broker_core.store import connections
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

ROOT_POLICY = "RootManageSharedAccessKey"
MOST_CANDIDATES = 2000  # policies of one name that are searched for a key
_KEY = re.compile("[!-:<-~]{8,64}")  # in a connection string, a semicolon ends it
Scope = str | EntityAddress


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """A policy as stored. path: None: it applies to the whole namespace. created_at, updated_at: database time."""

    id: int
    name: str
    namespace: str
    path: str | None
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    send: bool
    listen: bool
    manage: bool
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def keys(self) -> tuple[str, str]:
        return self.primary_key, self.secondary_key

    @property
    def scope(self) -> Scope:
        return self.namespace if self.path is None else EntityAddress(self.namespace, self.path)

    def applies_to(self, address: EntityAddress) -> bool:
        """Whether it applies to an entity; a topic's policies also apply to its subscriptions."""
        scope = address.topic or address
        return self.namespace.lower() == scope.namespace.lower() and (self.path or scope.path).lower() == scope.path.lower()

    @property
    def rights(self) -> Right:
        """The rights of an actor with one of the keys. Manage implies the others; Listen implies browsing (SB-140)."""
        granted = Right.SEND if self.send or self.manage else Right.NONE
        if self.listen or self.manage:
            granted |= Right.LISTEN | Right.BROWSE | Right.SEE_BODIES
        return granted | Right.MANAGE if self.manage else granted


def new_key() -> str:
    """A key in the service's format: 32 random bytes in base64. The secret is this text, not the decoded bytes."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


def checked_key(name: str, key: str | None) -> str | None:
    """Return a key that is given (SB-934). name: which key it is. Raises InvalidArgument."""
    if key is not None and not (isinstance(key, str) and _KEY.fullmatch(key)):
        problem = "a key must have 8 to 64 printable ASCII characters without spaces and semicolons, such as 32 bytes in base64"
        raise InvalidArgument(name, problem)
    return key


@use_case
def create_policy(
    scope: Scope,
    name: str,
    *,
    send: bool = False,
    listen: bool = False,
    manage: bool = False,
    primary_key: str | None = None,
    secondary_key: str | None = None,
    actor: Actor | None = None,
) -> Steps[AccessPolicy]:
    """Add a policy with these keys, or new ones; at most 12 per scope. Raises EntityExists if the name is taken."""
    _authorize(actor, scope)
    check_policy_name(name)
    keys = checked_key("primary_key", primary_key), checked_key("secondary_key", secondary_key)
    _require_a_right(send, listen, manage)
    if isinstance(scope, EntityAddress) and scope.topic:
        raise NotAllowed(
            f"Subscriptions have no policies. Create the policy on '{scope.topic}'; it applies to its subscriptions."
        )

    def steps() -> Steps:
        target = yield from _lock(scope)
        if target.family != Family.SERVICE_BUS:
            raise NotAllowed(
                f"'{scope}' is of the family {target.family}; only Service Bus entities have shared-access policies."
            )
        (present,) = yield call("count_policies", namespace_id=target.namespace_id, entity_id=target.entity_id)
        if present.n >= STRICT.policies_per_scope:
            raise LimitReached(f"'{scope}' has {present.n} shared-access policies, the maximum. Delete one first.")
        return (yield from insert(target.namespace_id, target.entity_id, name, *keys, send=send, listen=listen, manage=manage))

    return (yield Atomically(steps()))


def insert(
    namespace_id: int,
    entity_id: int | None,
    name: str,
    primary_key: str | None = None,
    secondary_key: str | None = None,
    /,
    *,
    send: bool,
    listen: bool,
    manage: bool,
) -> Steps[AccessPolicy]:
    """Insert a policy with these keys, which are checked, or new ones; the caller's transaction has locked the scope's row."""
    rows = yield call(
        "create_policy",
        namespace_id=namespace_id,
        entity_id=entity_id,
        name=name,
        primary_key=primary_key or new_key(),
        secondary_key=secondary_key or new_key(),
        send=send,
        listen=listen,
        manage=manage,
    )
    if not rows:
        raise EntityExists(name, "policy")
    return AccessPolicy(**rows[0]._asdict())


@use_case
def list_policies(scope: Scope, *, actor: Actor | None = None) -> Steps[list[AccessPolicy]]:
    """The policies of exactly this scope, oldest first."""
    _authorize(actor, scope)
    rows = yield call("list_policies", **_scope_parameters(scope))
    return [AccessPolicy(**row._asdict()) for row in rows]


def _by_scope(lists: Iterable[list[AccessPolicy]]) -> list[AccessPolicy]:
    return sorted(
        chain.from_iterable(lists), key=lambda policy: (policy.namespace.lower(), policy.path or "", policy.name.lower())
    )


@use_case(namespace=WHOLE_DATABASE, combine=_by_scope)
def list_all_policies(*, actor: Actor | None = None) -> Steps[list[AccessPolicy]]:
    """The policies of all scopes, by namespace, entity and name."""
    _authorize(actor, "keys")
    rows = yield call("list_all_policies")
    return [AccessPolicy(**row._asdict()) for row in rows]


@use_case
def get_policy(scope: Scope, name: str, *, actor: Actor | None = None) -> Steps:
    """One policy of this scope; its name is case-insensitive."""
    policies = yield from list_policies.steps(scope, actor=actor)
    for policy in policies:
        if policy.name.lower() == name.lower():
            return policy
    raise EntityNotFound(f"{scope}: {name}", "policy")


@use_case
def policy_for_clients(scope: Scope, name: str | None = None, *, actor: Actor | None = None) -> Steps[AccessPolicy]:
    """The policy of this name, or without one ROOT_POLICY, or the oldest. Raises InvalidArgument with the names that exist."""
    policies = yield from list_policies.steps(scope, actor=actor)
    by_name = {policy.name.lower(): policy for policy in policies}
    if found := by_name.get((name or ROOT_POLICY).lower()) or (None if name else next(iter(policies), None)):
        return found
    names = ", ".join(policy.name for policy in policies)
    raise InvalidArgument("policy", f"'{scope}' has no policy {name or ROOT_POLICY!r}; available: {names or 'none'}")


@use_case
def find_policies(namespace: str, path: str | None, name: str) -> Steps[list[AccessPolicy]]:
    """All policies of a name that apply at a path, the entity's own first. Used to verify tokens, so no rights are required.

    For a subscription, the policies of its topic apply.
    """
    topic = path and EntityAddress(namespace, path).topic
    rows = yield call("find_policies", namespace=namespace, path=topic.path if topic else path, name=name)
    return [AccessPolicy(**row._asdict()) for row in rows]


class Proof(NamedTuple):
    """A policy, and which key of it a client has."""

    policy: AccessPolicy
    key: str


class Proofs(NamedTuple):
    """is_named: whether they are of the namespace that was named. is_cut: whether there are more policies of the name than are
    searched."""

    is_named: bool
    is_cut: bool
    proofs: list[Proof]


def _of_the_named(found: list[Proofs]) -> Proofs:
    for each in found:
        if each.is_named:
            return each
    return Proofs(False, any(each.is_cut for each in found), list(chain.from_iterable(each.proofs for each in found)))


@use_case(namespace=WHOLE_DATABASE, combine=_of_the_named)
def search_by_key(label: str | None, path: str | None, name: str, proves: Callable[[str], bool]) -> Steps[Proofs]:
    """Which policies of a name have a key, as `proves` tells: of the Service Bus namespace `label`, if there is one, or else of
    all, each entity's before its namespace's. Of all, at most MOST_CANDIDATES are searched, and every key of those is tried. Used
    to verify keys, so no rights are required.

    path: at which they apply; empty: those of namespaces only; None: those of namespaces and of all their entities.
    """
    rows = yield call("search_policies", label=label, path=path, name=name, most=MOST_CANDIDATES + 1)
    here = connections.current_database()
    is_named = rows[0].is_named and label is not None and connections.assigned_database(label) == here
    known = [row for row in rows if row.id is not None and connections.assigned_database(row.namespace) == here]
    has = [(row, key) for row in known for key in (row.primary_key, row.secondary_key) if proves(key)]
    is_cut = not rows[0].is_named and rows[0].candidates > MOST_CANDIDATES
    return Proofs(is_named, is_cut, [Proof(AccessPolicy(*row[2:]), key) for row, key in has])


@use_case(namespace=WHOLE_DATABASE)
def stored_policies(ids: list[int]) -> Steps[list[AccessPolicy]]:
    """Those of these policies that exist, in the current database. Used to verify keys, so no rights are required."""
    rows = yield call("stored_policies", ids=ids)
    return [AccessPolicy(**row._asdict()) for row in rows]


@use_case
def update_policy(
    scope: Scope, name: str, *, send: bool, listen: bool, manage: bool, actor: Actor | None = None
) -> Steps[AccessPolicy]:
    """Set a policy's rights; its keys stay."""
    _authorize(actor, scope)
    _require_a_right(send, listen, manage)
    return (yield Atomically(_update(scope, name, send=send, listen=listen, manage=manage)))


@use_case
def regenerate_key(scope: Scope, name: str, *, which: str = "primary", actor: Actor | None = None) -> Steps[AccessPolicy]:
    """Replace the "primary" or the "secondary" key; tokens signed with the old one become invalid."""
    _authorize(actor, scope)
    if which not in ("primary", "secondary"):
        raise InvalidArgument("which", f"{which!r} must be primary or secondary")
    return (yield Atomically(_update(scope, name, **{f"{which}_key": new_key()})))


@use_case
def set_keys(
    scope: Scope, name: str, *, primary: str | None = None, secondary: str | None = None, actor: Actor | None = None
) -> Steps[AccessPolicy]:
    """Replace the keys that are given; what was signed with the old ones becomes invalid. Raises InvalidArgument."""
    _authorize(actor, scope)
    keys = {"primary_key": checked_key("primary", primary), "secondary_key": checked_key("secondary", secondary)}
    return (yield Atomically(_update(scope, name, **keys)))


@use_case
def replace_policies(address: EntityAddress, policies: Sequence[GivenPolicy], *, actor: Actor | None = None) -> Steps[None]:
    """Let an entity have exactly these policies. Those that it has keep what is not given: their keys, and the spelling of their
    names. Raises the errors of create_policy."""
    _authorize(actor, address)
    wanted = check_policies(policies)

    def steps() -> Steps[None]:
        yield from _lock(address)
        present = {policy.name.lower(): policy for policy in (yield from list_policies.steps(address, actor=actor))}
        for name in present.keys() - wanted.keys():
            yield from delete_policy.steps(address, name, actor=actor)
        for name, policy in wanted.items():
            yield from _let_be(address, present.get(name), policy, actor)

    yield Atomically(steps())


def check_policies(policies: Sequence[GivenPolicy]) -> dict[str, GivenPolicy]:
    """The policies by their names in lower case. Raises InvalidArgument, and LimitReached if they are too many."""
    wanted: dict[str, GivenPolicy] = {}
    for policy in policies:
        require_kind("policies", policy, GivenPolicy)
        check_policy_name(policy.name)
        try:
            _check_policy(policy)
        except InvalidArgument as exc:
            raise InvalidArgument(exc.name, f"of the policy '{policy.name}': {exc.problem}") from exc
        if policy.name.lower() in wanted:
            raise InvalidArgument("policies", f"two are called '{policy.name}'; names are case-insensitive")
        wanted[policy.name.lower()] = policy
    if len(wanted) > STRICT.policies_per_scope:
        raise LimitReached(f"There are {len(wanted)} shared-access policies; at most {STRICT.policies_per_scope} are allowed.")
    return wanted


def _check_policy(policy: GivenPolicy) -> None:
    checked_key("primary_key", policy.primary_key)
    checked_key("secondary_key", policy.secondary_key)
    for right in ("send", "listen", "manage"):
        require_kind(right, getattr(policy, right), bool)
    _require_a_right(policy.send, policy.listen, policy.manage)


def _let_be(address: EntityAddress, present: AccessPolicy | None, wanted: GivenPolicy, actor: Actor | None) -> Steps[None]:
    """Create a policy, or change in it what differs."""
    name, send, listen, manage = wanted.name, wanted.send, wanted.listen, wanted.manage
    primary, secondary = wanted.primary_key, wanted.secondary_key
    if present is None:
        keys = {"primary_key": primary, "secondary_key": secondary}
        yield from create_policy.steps(address, name, send=send, listen=listen, manage=manage, **keys, actor=actor)
        return
    if (present.send, present.listen, present.manage) != (send, listen, manage):
        yield from update_policy.steps(address, name, send=send, listen=listen, manage=manage, actor=actor)
    primary, secondary = primary or present.primary_key, secondary or present.secondary_key
    if (primary, secondary) != present.keys:
        yield from set_keys.steps(address, name, primary=primary, secondary=secondary, actor=actor)


@use_case
def delete_policy(scope: Scope, name: str, *, actor: Actor | None = None) -> Steps[None]:
    """Remove a policy; tokens signed with its keys become invalid."""
    _authorize(actor, scope)

    def steps() -> Steps:
        target = yield from _lock(scope)
        if not (yield call("delete_policy", namespace_id=target.namespace_id, entity_id=target.entity_id, name=name)):
            raise EntityNotFound(f"{scope}: {name}", "policy")

    yield Atomically(steps())


def _update(scope: Scope, name: str, **changes) -> Steps[AccessPolicy]:
    target = yield from _lock(scope)
    unchanged = dict.fromkeys(("send", "listen", "manage", "primary_key", "secondary_key"))
    rows = yield call(
        "update_policy", namespace_id=target.namespace_id, entity_id=target.entity_id, name=name, **{**unchanged, **changes}
    )
    if not rows:
        raise EntityNotFound(f"{scope}: {name}", "policy")
    return AccessPolicy(**rows[0]._asdict())


def _lock(scope: Scope) -> Steps:
    rows = yield _lock_statement(scope)
    if not rows:
        raise EntityNotFound(str(scope), "namespace" if isinstance(scope, str) else "messaging entity")
    return rows[0]


def _lock_statement(scope: Scope) -> Statement:
    if isinstance(scope, EntityAddress):
        return call("lock_entity_policy_scope", namespace=scope.namespace, path=scope.path)
    return call("lock_policy_scope", namespace=scope)


def _scope_parameters(scope: Scope) -> dict:
    if isinstance(scope, EntityAddress):
        return {"namespace": scope.namespace, "path": scope.path}
    return {"namespace": scope, "path": None}


def _authorize(actor: Actor | None, scope: Scope) -> None:
    (actor or Actor.local()).require(Right.MANAGE, scope)


def _require_a_right(send: bool, listen: bool, manage: bool) -> None:
    if not (send or listen or manage):
        raise InvalidArgument("rights", "a policy needs at least one of send, listen and manage")
