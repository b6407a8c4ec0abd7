"""Namespaces: create, find, change and delete them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NoReturn

from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed, PreviewOutdated
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, Behaviour, EntityAddress, Family, Right, Tier
from broker_core.runtime.find_or_create import find_or_create
from broker_core.runtime.keeping import LONGEST, SHORTEST, forget_keeping
from broker_core.runtime.previews import Preview, token_of
from broker_core.runtime.room import forget_rooms
from broker_core.store.connections import require_same_database
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, by_namespace, use_case

MOST_ARCHIVE_DAYS = 36_500
MOST_MEGABYTES = 2**31 - 1
MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class Namespace:
    """A set of entities with one clock. archive_days: how many days the archive of its history is kept; None: for ever.
    max_size_in_megabytes: of all its messages; when it is reached, sends are refused; None: unlimited.
    keep_messages_for: how long messages that end can still be read in full; None: not.
    behaviour: of its entities, where they have no setting of their own; always convenient in other families than Service Bus."""

    id: int
    name: str
    family: Family
    description: str
    is_system: bool
    tier: Tier
    created_at: datetime
    archive_days: int | None = None
    behaviour: Behaviour = Behaviour.CONVENIENT
    max_size_in_megabytes: int | None = None
    keep_messages_for: timedelta | None = None


@use_case(namespace="name")
def create_namespace(
    name: str,
    family: Family,
    description: str = "",
    *,
    tier: Tier | str = Tier.STANDARD,
    behaviour: Behaviour | str = Behaviour.CONVENIENT,
    is_system: bool = False,
    actor: Actor | None = None,
) -> Steps[Namespace]:
    """Create a namespace. Raises EntityExists.

    A Service Bus namespace gets the policy RootManageSharedAccessKey with all rights.

    family: the family of its entities (docs/design.md D10), which also decides which names are valid.
    tier:   limits its entities. Does not apply to the system namespace and to other families.
    behaviour: of a Service Bus namespace: "documented" follows the service's pages where "convenient" is kinder
            (docs/entities.md).
    """
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, name)
    require_same_database(name)
    definition = definition_of(family)
    definition.check_namespace_name(name)
    _check_description(description)
    tier, behaviour = _tier(tier), _behaviour(behaviour, family)

    def steps() -> Steps:
        rows = yield call(
            "create_namespace",
            name=name,
            family=str(family),
            description=description,
            is_system=is_system,
            tier=str(tier),
            behaviour=str(behaviour),
        )
        if not rows:
            yield from _refuse_taken(name, family)
        yield from definition.namespace_created(rows[0].id, rows[0].name)
        return _namespace(rows[0])

    return (yield Atomically(steps()))


@use_case(namespace="name")
def ensure_namespace(
    name: str,
    family: Family,
    description: str = "",
    *,
    tier: Tier | str = Tier.STANDARD,
    behaviour: Behaviour | str = Behaviour.CONVENIENT,
    is_system: bool = False,
    actor: Actor | None = None,
) -> Steps:
    """Return the namespace of this name, creating it if it does not exist. An existing one is not changed."""

    def create() -> Steps:
        return create_namespace.steps(name, family, description, tier=tier, behaviour=behaviour, is_system=is_system, actor=actor)

    return (yield from find_or_create(lambda: get_namespace.steps(name, actor=actor), create))


@use_case(namespace="name")
def get_namespace(name: str, *, actor: Actor | None = None) -> Steps[Namespace]:
    """The namespace of this name, compared case-insensitively."""
    (actor or Actor.local()).require(Right.BROWSE, name)
    require_same_database(name)
    rows = yield call("get_namespace", name=name)
    if not rows:
        raise EntityNotFound(name, "namespace")
    return _namespace(rows[0])


@use_case(namespace=WHOLE_DATABASE, combine=by_namespace)
def list_namespaces(*, actor: Actor | None = None) -> Steps[list[Namespace]]:
    """All namespaces by name."""
    (actor or Actor.local()).require(Right.BROWSE, "namespaces")
    rows = yield call("list_namespaces")
    return [_namespace(row) for row in rows]


@use_case(namespace="name")
def update_namespace(
    name: str,
    *,
    description: str | None = None,
    tier: Tier | str | None = None,
    behaviour: Behaviour | str | None = None,
    archive_days: int | None = None,
    max_size_in_megabytes: int | None = None,
    keep_messages_for: timedelta | None = None,
    actor: Actor | None = None,
) -> Steps[Namespace]:
    """Change a namespace's description, tier, behaviour, days of the archive, maximum size, or time for which messages that end
    are kept, unless None. The name is part of every address and cannot be changed.

    behaviour: applies at once to all its entities, as far as they have no setting of their own. Locks are not ended.
    archive_days: archived days of its history are deleted after so many days; 0: never (docs/history.md, "Retention").
    max_size_in_megabytes: of the messages of all its entities; 0: unlimited. Processes check every few seconds whether it is
    reached (broker_core.runtime.room).
    keep_messages_for: from one minute to seven days; 0: not. It applies to messages that end from then on, in other processes
    after some seconds (docs/history.md, "Kept messages").
    Raises NotAllowed if one of its entities uses a feature that the tier does not have.
    """
    yield from changeable_namespace(name, actor)
    if description is not None:
        _check_description(description)
    new_tier = None if tier is None else _tier(tier)
    if archive_days is not None:
        _check_archive_days(archive_days)
    if max_size_in_megabytes is not None:
        _check_max_size(max_size_in_megabytes)
    if keep_messages_for is not None:
        _check_period(keep_messages_for)

    def steps() -> Steps:
        namespace = yield from hold_namespace(name)
        if new_tier is not None and new_tier is not namespace.tier:
            yield from definition_of(namespace.family).check_tier(namespace, new_tier)
        changes = {
            "description": description,
            "tier": new_tier and str(new_tier),
            "behaviour": None if behaviour is None else str(_behaviour(behaviour, namespace.family)),
            "archive_days": archive_days,
            "max_size_in_megabytes": max_size_in_megabytes,
            "keep_messages_for": keep_messages_for,
        }
        rows = yield call("update_namespace", namespace_id=namespace.id, **changes)
        forget_rooms()
        forget_keeping()
        return _namespace(rows[0])

    return (yield Atomically(steps()))


class Limits(NamedTuple):
    """The settings that `change_limits` changes, as it gets them: 0 stands for none."""

    max_size_in_megabytes: int
    keep_messages_for: timedelta


@use_case(namespace="name")
def preview_limits(
    name: str, max_size_in_megabytes: int, keep_messages_for: timedelta = timedelta(), *, actor: Actor | None = None
) -> Steps[Preview]:
    """What `change_limits` would do now. Changes nothing, and raises the same errors."""
    return (yield Atomically(_preview_limits(name, Limits(max_size_in_megabytes, keep_messages_for), actor)))


@use_case(namespace="name")
def change_limits(
    name: str,
    max_size_in_megabytes: int,
    keep_messages_for: timedelta = timedelta(),
    *,
    token: str | None = None,
    actor: Actor | None = None,
) -> Steps[Preview]:
    """Change the maximum size of a namespace, and how long it keeps ended messages, as `update_namespace` does. Returns the
    preview.

    token: of a preview that must still hold; otherwise PreviewOutdated is raised and nothing is changed.
    """

    def steps() -> Steps[Preview]:
        limits = Limits(max_size_in_megabytes, keep_messages_for)
        preview = yield from _preview_limits(name, limits, actor)
        if token not in (None, preview.token):
            raise PreviewOutdated(name, "its settings, or whether its messages reach the new maximum size")
        yield from update_namespace.steps(name, **limits._asdict(), actor=actor)
        return preview

    return (yield Atomically(steps()))


def _preview_limits(name: str, limits: Limits, actor: Actor | None) -> Steps[Preview]:
    """In the caller's transaction, with the namespace locked. No message is affected: only sends are refused."""
    yield from changeable_namespace(name, actor)
    _check_max_size(limits.max_size_in_megabytes)
    _check_period(limits.keep_messages_for)
    namespace = yield from hold_namespace(name)
    (size,) = yield call("namespace_size", namespace_id=namespace.id)
    before = Limits(namespace.max_size_in_megabytes or 0, namespace.keep_messages_for or timedelta())
    old, new = before.max_size_in_megabytes or None, limits.max_size_in_megabytes or None
    notes = [_size_note(size.bytes, old, new)]
    if before.keep_messages_for != limits.keep_messages_for:
        notes.append(_kept_note(limits.keep_messages_for))
    return Preview(
        subject=namespace.name,
        at=size.now,
        token=token_of(before, new is not None and size.bytes >= new * MEGABYTE),
        before=before,
        after=limits,
        notes=tuple(notes),
    )


def _kept_note(period: timedelta) -> str:
    if not period:
        return "Messages that end are no longer kept. Those that are kept now stay readable until their time is over."
    return "Messages that end from then on stay readable, with their bodies, which need about their size on the disk."


def _size_note(size: int, before: int | None, after: int | None) -> str:
    used = f"The messages of all entities have {size / MEGABYTE:,.1f} MB"
    if before == after:
        return f"{used}. The maximum size is the same; nothing changes."
    if after is None:
        return f"{used}. Sends are no longer limited by the size of the namespace."
    if size >= after * MEGABYTE:
        return f"{used}: sends will be refused until they have less than {after:,} MB. Messages can still be received."
    return f"{used}: sends will be refused when they have {after:,} MB."


@use_case(namespace="name")
def delete_namespace(name: str, *, actor: Actor | None = None) -> Steps[None]:
    """Delete a namespace without entities. Its name can be reused at once. The history of its deleted entities stays readable
    until the end of the retention, under the namespace's name with the time of deletion."""
    yield from changeable_namespace(name, actor)

    def steps() -> Steps:
        rows = yield call("lock_namespace", name=name)
        if not rows:
            raise EntityNotFound(name, "namespace")
        (contents,) = yield call("namespace_holds", namespace_id=rows[0].id)
        if contents.entities:
            raise NotAllowed(f"The namespace '{name}' has {contents.entities} entities. Delete them first.")
        if contents.exchanges:
            raise NotAllowed(f"'{name}' is a virtual host. Delete it with rabbitmq.delete_vhost.")
        yield call("bury_namespace" if contents.deleted_entities else "delete_namespace", namespace_id=rows[0].id)

    yield Atomically(steps())


def _refuse_taken(name: str, family: Family) -> Steps[NoReturn]:
    if (yield call("get_namespace", name=name)):
        raise EntityExists(name, definition_of(family).container_noun)
    raise InvalidArgument("name", f"'{name}' is reserved for a deleted namespace whose history is kept. Choose another name")


def hold_whole(name: str, family: Family) -> Steps:
    """Lock a namespace that is to be deleted with its content: until the transaction ends, no entity can be created in it, and
    no client can connect. Raises EntityNotFound; NotAllowed for a namespace of another family."""
    if not (yield call("lock_namespace", name=name)):
        raise EntityNotFound(name, definition_of(family).container_noun)
    return (yield from of_family(name, family, None))


def of_family(name: str, family: Family, actor: Actor | None) -> Steps:
    """The namespace of this name. Raises EntityNotFound; NotAllowed if it is of another family."""
    (actor or Actor.local()).require(Right.BROWSE, name)
    require_same_database(name)
    rows = yield call("get_namespace", name=name)
    if not rows:
        raise EntityNotFound(name, definition_of(family).container_noun)
    namespace = _namespace(rows[0])
    if namespace.family is not family:
        raise NotAllowed(
            f"'{namespace.name}' is of the family {namespace.family}; it is not a {definition_of(family).container_noun}."
        )
    return namespace


def contents(namespace_id: int) -> Steps:
    """What a namespace contains: the number and ids of its entities, and the number of their messages."""
    (row,) = yield call("namespace_contents", namespace_id=namespace_id)
    return row


def changeable_namespace(name: str, actor: Actor | None) -> Steps:
    """The namespace of this name. Raises NotAuthorized without MANAGE, and NotAllowed for Vitrine's own namespace."""
    (actor or Actor.local()).require(Right.MANAGE, name)
    namespace = yield from get_namespace.steps(name, actor=actor)
    if namespace.is_system:
        raise NotAllowed(
            f"The namespace '{name}' is used by Vitrine itself. It cannot be changed or deleted and runs on real time."
        )
    return namespace


def namespace_to_configure(address: EntityAddress, actor: Actor, family: Family) -> Steps:
    """Lock the namespace of an entity that this actor is about to create, change or delete. Raises NotAllowed if the namespace is
    of another family."""
    namespace = yield from hold_namespace(address.namespace)
    if namespace.family is not family:
        raise NotAllowed(
            f"'{namespace.name}' is of the family {namespace.family}, which cannot contain entities of the family {family}."
        )
    if namespace.is_system and actor.kind != "process":
        raise NotAllowed(f"The queues of '{namespace.name}' are used by Vitrine itself; only its processes can change them.")
    return namespace


def hold_namespace(name: str) -> Steps[Namespace]:
    """Lock a namespace: no other transaction can change its tier or entities until this one ends."""
    require_same_database(name)
    rows = yield call("hold_namespace", name=name)
    if not rows:
        raise EntityNotFound(name, "namespace")
    return _namespace(rows[0])


def _namespace(row: Any) -> Namespace:
    family, tier = Family(row.family), Tier(row.tier)
    more = (row.created_at, row.archive_days, Behaviour(row.behaviour), row.max_size_in_megabytes, row.keep_messages_for)
    return Namespace(row.id, row.name, family, row.description, row.is_system, tier, *more)


def _tier(value: Tier | str) -> Tier:
    try:
        return Tier(value.lower())
    except (ValueError, AttributeError) as exc:
        raise InvalidArgument("tier", f"{value!r} must be one of {', '.join(Tier)}") from exc


def _behaviour(value: Behaviour | str, family: Family) -> Behaviour:
    try:
        behaviour = Behaviour(value.lower())
    except (ValueError, AttributeError) as exc:
        raise InvalidArgument("behaviour", f"{value!r} must be one of {', '.join(Behaviour)}") from exc
    if behaviour is Behaviour.DOCUMENTED and family is not Family.SERVICE_BUS:
        raise InvalidArgument("behaviour", f"must be {Behaviour.CONVENIENT}: only Service Bus namespaces have another one")
    return behaviour


def _check_description(description: str) -> None:
    if not isinstance(description, str) or len(description) > 250 or "\x00" in description:
        raise InvalidArgument("description", "must be a string of at most 250 characters, without NUL characters")


def _check_archive_days(days: int) -> None:
    if not isinstance(days, int) or isinstance(days, bool) or not 0 <= days <= MOST_ARCHIVE_DAYS:
        raise InvalidArgument(
            "archive_days", f"must be a whole number from 0, which keeps it indefinitely, to {MOST_ARCHIVE_DAYS:,}"
        )


def _check_max_size(megabytes: int) -> None:
    if not isinstance(megabytes, int) or isinstance(megabytes, bool) or not 0 <= megabytes <= MOST_MEGABYTES:
        problem = f"must be a whole number from 0, which means unlimited, to {MOST_MEGABYTES:,}"
        raise InvalidArgument("max_size_in_megabytes", problem)


def _check_period(period: timedelta) -> None:
    if not isinstance(period, timedelta) or (period and not SHORTEST <= period <= LONGEST):
        raise InvalidArgument("keep_messages_for", "must be from 1 minute to 7 days, or 0, which keeps no messages")
