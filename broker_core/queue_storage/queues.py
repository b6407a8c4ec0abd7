"""Create, find, change and delete storage accounts and queues."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from broker_core import namespaces, operations
from broker_core.common.arguments import require_kind
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, HistoryLevel, Right, require_text
from broker_core.namespaces.entity_columns import entity_columns
from broker_core.namespaces.namespaces import contents, hold_whole, namespace_to_configure, of_family
from broker_core.namespaces.protection import record_revisions, require_unprotected
from broker_core.queue_storage.rules.errors import AccountNotFound, QueueAlreadyExists, QueueNotFound
from broker_core.queue_storage.rules.limits import DEFAULT_GRACE
from broker_core.queue_storage.rules.options import (
    QueueOptions,
    as_json,
    changed,
    check_access_policies,
    check_metadata,
    check_options,
    effective_json,
    from_json,
    poison_of,
)
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.runtime.find_or_create import find_or_create
from broker_core.runtime.pacing import BATCH
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, by_namespace, use_case

from .shared import FAMILY, authorize, one_row

TRIES = 20  # attempts to find or create a queue that other callers create and delete at the same time


@dataclass(frozen=True, slots=True)
class StorageQueue:
    """A queue as stored. metadata: names in lower case (QS-924). poison_queue: as configured; None: by convention.

    poison: where spent messages are moved; None: they stay. created: whether the call that returned this created it (QS-085).
    """

    id: int
    address: EntityAddress
    max_dequeue_count: int | None
    poison_queue: str | None
    expiry_grace: timedelta
    strict_visibility: bool
    history_level: HistoryLevel
    access_policies: tuple[AccessPolicy, ...]
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    created: bool = False

    @property
    def name(self) -> str:
        return self.address.path

    @property
    def options(self) -> QueueOptions:
        return QueueOptions(**{f.name: getattr(self, f.name) for f in fields(QueueOptions)})

    @property
    def poison(self) -> EntityAddress | None:
        poison_queue = poison_of(self.name, self.options)
        return None if poison_queue is None else EntityAddress(self.address.namespace, poison_queue.queue)


class AccountContents(NamedTuple):
    """What is deleted with an account. messages: in all its queues, visible or not."""

    queues: int
    messages: int


@use_case(namespace="name")
def create_account(name: str, description: str = "", *, actor: Actor | None = None) -> Steps:
    """Create a storage account: a Namespace of this family, with its own clock. Raises EntityExists."""
    return (yield from namespaces.create_namespace.steps(name, FAMILY, description, actor=actor))


@use_case(namespace="name")
def ensure_account(name: str, description: str = "", *, actor: Actor | None = None) -> Steps:
    """Return the storage account of this name; create it if it does not exist. An existing one is not changed.

    Raises NotAllowed if the name belongs to a namespace of another family.
    """

    def create() -> Steps:
        return create_account.steps(name, description, actor=actor)

    return (yield from find_or_create(lambda: get_account.steps(name, actor=actor), create))


@use_case(namespace="name")
def get_account(name: str, *, actor: Actor | None = None) -> Steps:
    """A storage account as a Namespace. Raises EntityNotFound, and NotAllowed for a namespace of another family."""
    return (yield from of_family(name, FAMILY, actor))


@use_case(namespace=WHOLE_DATABASE, combine=by_namespace)
def list_accounts(*, actor: Actor | None = None) -> Steps:
    """All storage accounts, as Namespaces, by name."""
    return [account for account in (yield from namespaces.list_namespaces.steps(actor=actor)) if account.family is FAMILY]


@use_case(namespace="name")
def preview_delete_account(name: str, *, actor: Actor | None = None) -> Steps:
    """The AccountContents that deleting an account would delete now. Requires MANAGE, as deleting does."""
    (actor or Actor.local()).require(Right.MANAGE, name)
    account = yield from get_account.steps(name, actor=actor)
    return _contents((yield from contents(account.id)))


@use_case(namespace="name")
def delete_account(name: str, *, actor: Actor | None = None) -> Steps:
    """Delete a storage account with its queues and their messages. Returns what was deleted, as AccountContents.

    The history of its queues stays readable until its retention ends, as for any deleted queue; see delete_namespace.
    Raises EntityNotFound, NotAllowed for a namespace of another family.
    """
    (actor or Actor.local()).require(Right.MANAGE, name)

    def steps() -> Steps:
        account = yield from hold_whole(name, FAMILY)
        account_contents = yield from contents(account.id)
        yield from require_unprotected(account_contents.ids)
        yield from operations.delete_entities(account_contents.ids, str(actor or Actor.local()), None)
        yield from namespaces.delete_namespace.steps(name, actor=actor)
        return _contents(account_contents)

    return (yield Atomically(steps()))


@use_case
def create_queue(
    address: EntityAddress,
    *,
    metadata: Mapping[str, str] | None = None,
    max_dequeue_count: int | None = None,
    poison_queue: str | None = None,
    expiry_grace: timedelta = DEFAULT_GRACE,
    strict_visibility: bool = False,
    access_policies: Sequence[AccessPolicy] = (),
    history_level: HistoryLevel | int = HistoryLevel.FULL,
    actor: Actor | None = None,
) -> Steps:
    """Create a queue. An existing one with the same metadata is returned unchanged, with `created` false (QS-085).

    max_dequeue_count, poison_queue, expiry_grace, strict_visibility: see QueueOptions; the service has none of these.
    Raises OutOfRangeInput and InvalidResourceName for its name, InvalidMetadata, QueueAlreadyExists, AccountNotFound.
    """
    actor = authorize(actor, Right.MANAGE, address)
    requested = QueueOptions(
        metadata or {}, max_dequeue_count, poison_queue, expiry_grace, strict_visibility, tuple(access_policies)
    )
    options, level = check_options(address.path, requested), checked_history_level(history_level)
    queue = yield from _find_or_create(address, options, level, actor)
    if dict(queue.metadata) != dict(options.metadata):
        raise QueueAlreadyExists(str(address))
    return queue


@use_case
def ensure_queue(
    address: EntityAddress,
    *,
    history_level: HistoryLevel | int = HistoryLevel.FULL,
    actor: Actor | None = None,
    **options: Any,
) -> Steps:
    """Return the queue of this address; create it with these options (fields of QueueOptions) if it does not exist. An existing
    one is not changed, whatever its metadata. Raises what create_queue raises, except QueueAlreadyExists."""
    authorize(actor, Right.BROWSE, address)
    requested, level = changed(address.path, QueueOptions(), options), checked_history_level(history_level)
    try:
        return (yield from get_queue.steps(address, actor=actor))
    except QueueNotFound:
        actor = authorize(actor, Right.MANAGE, address)
        return (yield from _find_or_create(address, requested, level, actor))


@use_case
def get_queue(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """One queue with its metadata (QS-090). Raises QueueNotFound."""
    authorize(actor, Right.BROWSE, address)
    return (yield from _find(address))


@use_case
def list_queues(account: str, prefix: str = "", *, actor: Actor | None = None) -> Steps:
    """The queues of an account whose names start with prefix, by name (QS-091). Raises InvalidArgument, AccountNotFound."""
    for name, value in (("account", account), ("prefix", prefix)):
        if not isinstance(value, str):
            raise InvalidArgument(name, f"{value!r} must be a string")
    (actor or Actor.local()).require(Right.BROWSE, account)
    if not any(row.family == FAMILY for row in (yield call("get_namespace", name=account))):
        raise AccountNotFound(account)
    rows = yield call("list_entities", namespace=account, family=str(FAMILY), kind=None, topic_id=None)
    return sorted((_queue(row) for row in rows if row.path.startswith(prefix)), key=lambda queue: queue.name)


class ListedQueue(NamedTuple):
    """A queue of a page. metadata: empty if it was not asked for."""

    name: str
    metadata: Mapping[str, str]


class QueuePage(NamedTuple):
    """Some queues of an account, by name. more: whether further ones follow the last of these."""

    queues: list[ListedQueue]
    more: bool


@use_case
def list_queue_page(
    account: str,
    prefix: str = "",
    after: str = "",
    limit: int = 5_000,
    *,
    with_metadata: bool = False,
    actor: Actor | None = None,
) -> Steps[QueuePage]:
    """The first queues whose names start with prefix and come after a name (QS-091). Raises InvalidArgument, AccountNotFound."""
    for name, value in (("account", account), ("prefix", prefix), ("after", after)):
        require_text(name, value)
    require_kind("with_metadata", with_metadata, bool)
    (actor or Actor.local()).require(Right.BROWSE, account)
    params = {"account": account, "prefix": prefix, "after": after, "limit": limit + 1, "with_metadata": with_metadata}
    rows = yield call("storage_queue_page", **params)
    if not rows and not (yield call("storage_account", account=account)):
        raise AccountNotFound(account)
    return QueuePage([ListedQueue(row.name, row.metadata or {}) for row in rows[:limit]], len(rows) > limit)


@use_case
def update_queue(
    address: EntityAddress, *, history_level: HistoryLevel | int | None = None, actor: Actor | None = None, **changes: Any
) -> Steps:
    """Change options of a queue (fields of QueueOptions); the others are kept. Returns the StorageQueue.

    Raises InvalidArgument, QueueNotFound.
    """
    actor = authorize(actor, Right.MANAGE, address)
    level = None if history_level is None else checked_history_level(history_level)

    def steps() -> Steps:
        queue = yield from lock_queue(address)
        options = changed(queue.name, queue.options, changes)
        rows = yield call(
            "storage_set_options",
            entity_id=queue.id,
            history_level=int(queue.history_level if level is None else level),
            **_as_columns(queue.name, options),
        )
        yield from record_revisions([queue.id], actor)
        return _queue(rows[0])

    return (yield Atomically(steps()))


@use_case
def set_status(address: EntityAddress, status: EntityStatus, *, actor: Actor | None = None) -> Steps[None]:
    """Pause or resume puts and gets (QS-926). Messages that are leased can still be deleted and updated. Requires OPERATE.

    The service's queues have no such setting, but its error QueueDisabled. Raises QueueNotFound.
    """
    actor = authorize(actor, Right.OPERATE, address)
    require_kind("status", status, EntityStatus)

    def steps() -> Steps[None]:
        queue = yield from lock_queue(address)
        yield call("set_status", entity_id=queue.id, status=str(status))
        yield from record_revisions([queue.id], actor)

    yield Atomically(steps())


@use_case
def set_metadata(address: EntityAddress, metadata: Mapping[str, str] | None, *, actor: Actor | None = None) -> Steps:
    """Replace all metadata of a queue; None clears it (QS-089). Raises InvalidMetadata, QueueNotFound."""
    checked = check_metadata(metadata)
    return (yield from update_queue.steps(address, metadata=checked, actor=actor))


@use_case
def set_access_policies(address: EntityAddress, policies: Sequence[AccessPolicy], *, actor: Actor | None = None) -> Steps:
    """Replace all stored access policies of a queue; they take effect at once (QS-095). Raises InvalidAccessPolicy,
    QueueNotFound."""
    return (yield from update_queue.steps(address, access_policies=check_access_policies(policies), actor=actor))


@use_case
def delete_queue(address: EntityAddress, *, operation_id: int | None = None, actor: Actor | None = None) -> Steps:
    """Delete a queue with its messages; its name can be reused at once (QS-087, QS-907). Raises QueueNotFound.

    operation_id: a new number, under which it can be restored for 30 minutes (operations.restore).
    """
    authorize(actor, Right.MANAGE, address)
    operations.require_operation_id(operation_id)

    def steps() -> Steps:
        queue = yield from lock_queue(address)
        yield from require_unprotected([queue.id])
        yield from operations.delete_rows(
            queue.id, queue.address, FAMILY, str(EntityKind.QUEUE), actor or Actor.local(), operation_id
        )

    yield Atomically(steps())


@use_case
def approximate_count(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """The number of unexpired messages in a queue, visible or not (QS-075, QS-901). It is exact."""
    authorize(actor, Right.BROWSE, address)
    return (yield from one_row(address, "storage_count")).n


def ensure_target(address: EntityAddress, history_level: HistoryLevel) -> Steps:
    """The id of the queue that messages are moved to; the broker creates it if it does not exist (QS-106)."""
    return (yield from _find_or_create(address, QueueOptions(), history_level, Actor.local("broker"))).id


def _find_or_create(address: EntityAddress, options: QueueOptions, level: HistoryLevel, actor: Actor) -> Steps:
    """Find or create the queue while other callers may create and delete it."""
    for _ in range(TRIES):
        try:
            return (yield from _find(address))
        except QueueNotFound:
            created = yield Atomically(_create(address, options, level, actor))
        if created is not None:
            return created
    raise QueueNotFound(str(address))


def _create(address: EntityAddress, options: QueueOptions, level: HistoryLevel, actor: Actor) -> Steps:
    """The new queue; None if it exists already."""
    try:
        account = yield from namespace_to_configure(address, actor, FAMILY)
    except EntityNotFound as exc:
        raise AccountNotFound(address.namespace) from exc
    columns = entity_columns(FAMILY, {"history_level": level}) | _as_columns(address.path, options)
    rows = yield call(
        "create_entity", namespace_id=account.id, path=address.path, kind=str(EntityKind.QUEUE), topic_id=None, **columns
    )
    if not rows:
        return None
    yield from record_revisions([rows[0].id], actor)
    return _queue(rows[0], created=True)


def _contents(row: Any) -> AccountContents:
    return AccountContents(row.entities, row.messages)


def _find(address: EntityAddress) -> Steps:
    return _checked(address, (yield call("get_entity", namespace=address.namespace, path=address.path)))


def lock_queue(address: EntityAddress) -> Steps:
    """Lock the queue's row until the transaction ends."""
    return _checked(address, (yield call("lock_entity", namespace=address.namespace, path=address.path)))


def _checked(address: EntityAddress, rows: list) -> StorageQueue:
    if not rows:
        raise QueueNotFound(str(address))
    if rows[0].family != FAMILY:
        raise NotAllowed(f"'{address}' is of the family {rows[0].family}, whose operations differ from those of {FAMILY}.")
    return _queue(rows[0])


def _as_columns(name: str, options: QueueOptions) -> dict[str, str]:
    return {"options": json.dumps(as_json(options)), "effective": json.dumps(effective_json(name, options))}


def checked_history_level(value: HistoryLevel | int) -> HistoryLevel:
    try:
        return HistoryLevel(value)
    except ValueError as exc:
        raise InvalidArgument(
            "history_level", f"{value!r} must be one of {', '.join(str(int(h)) for h in HistoryLevel)}"
        ) from exc


def _queue(row: Any, *, created: bool = False) -> StorageQueue:
    options = from_json(row.options)
    return StorageQueue(
        id=row.id,
        address=EntityAddress(row.namespace, row.path),
        max_dequeue_count=options.max_dequeue_count,
        poison_queue=options.poison_queue,
        expiry_grace=options.expiry_grace,
        strict_visibility=options.strict_visibility,
        access_policies=options.access_policies,
        history_level=HistoryLevel(row.history_level),
        created_at=row.created_at,
        updated_at=row.updated_at,
        metadata=options.metadata,
        created=created,
    )


def entities_restored(rows: Sequence[Any], actor: Actor) -> Steps[None]:
    """End the leases of the messages of restored queues: they are visible, and their old receipts stop working. Delays continue.
    rows: of `soft_deleted_by`."""
    for row in rows:
        leased = [found.sequence_number for found in (yield call("storage_leased", entity_id=row.entity_id))]
        for at in range(0, len(leased), BATCH):
            part = leased[at : at + BATCH]
            yield call("storage_release", entity_id=row.entity_id, numbers=part, actor=str(actor), reason="restored")
