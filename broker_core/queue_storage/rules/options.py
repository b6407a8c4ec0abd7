"""A queue's metadata and options. The options are extensions of this broker (QS-106, QS-903, QS-923)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from broker_core.common.arguments import require_kind, require_storable
from broker_core.common.errors import InvalidArgument

from .errors import EmptyMetadataKey, InvalidAccessPolicy, InvalidMetadata, MetadataTooLarge
from .limits import DEFAULT_GRACE, LONGEST_GRACE, METADATA_BYTES
from .names import LONGEST, POISON, check_queue_name, poison_queue_of
from .sas import QUEUE_LETTERS, AccessPolicy, read_instant

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
MOST_POLICIES = 5
LONGEST_POLICY_ID = 64


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """metadata: names in lower case (QS-924).
    max_dequeue_count: the number of dequeues after which a message is moved to the poison queue; None: unlimited.
    poison_queue: its name, in the same account; None: the queue's name with -poison appended.
    expiry_grace: how long expired messages are kept for the explorer (QS-923).
    strict_visibility: reject updates that hide a message until after it expires (QS-903).
    access_policies: what shared access signatures may refer to (QS-095).
    """

    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    max_dequeue_count: int | None = None
    poison_queue: str | None = None
    expiry_grace: timedelta = DEFAULT_GRACE
    strict_visibility: bool = False
    access_policies: tuple[AccessPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class Poison:
    """The number of dequeues after which messages are moved, and the poison queue they are moved to."""

    max_dequeue_count: int
    queue: str


def check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Check and normalize metadata: names in lower case, values stripped, as in headers (QS-924, QS-F02). Raises
    InvalidMetadata, EmptyMetadataKey, MetadataTooLarge."""
    if not isinstance(metadata, Mapping | None):
        raise InvalidMetadata(f"{metadata!r} must be names with their values")
    checked: dict[str, str] = {}
    for name, value in (metadata or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMetadata(f"{name!r}: names and values must be strings")
        if not name:
            raise EmptyMetadataKey
        if not _NAME.fullmatch(name):  # before lower(), which turns some letters into ASCII
            raise InvalidMetadata(
                f"{name!r} must start with a letter or an underscore, followed by letters, digits or underscores"
            )
        key = name.lower()
        if not _VALUE.fullmatch(value):
            raise InvalidMetadata(f"the value of {name!r} must be printable ASCII; encode anything else")
        if key in checked:
            raise InvalidMetadata(f"{name!r} is given twice; names are case-insensitive")
        checked[key] = value.strip()
    size = sum(len(name) + len(value) for name, value in checked.items())
    if size > METADATA_BYTES:
        raise MetadataTooLarge(size, METADATA_BYTES)
    return checked


def check_access_policies(policies: Sequence[AccessPolicy]) -> tuple[AccessPolicy, ...]:
    """Check stored access policies (QS-095) and return them. One without start, expiry and permission is allowed. Raises
    InvalidAccessPolicy."""
    checked = tuple(policies)
    if len(checked) > MOST_POLICIES:
        raise InvalidAccessPolicy(f"{len(checked)} are given; a queue has at most {MOST_POLICIES}")
    ids = [policy.id for policy in checked]
    for policy in checked:
        require_kind("access_policies", policy, AccessPolicy)
        for text in (policy.id, *filter(None, (policy.start, policy.expiry, policy.permission))):
            require_kind("access_policies", text, str)
            require_storable("access_policies", text)
        if not 1 <= len(policy.id) <= LONGEST_POLICY_ID:
            raise InvalidAccessPolicy(f"the id {policy.id[:80]!r} must have 1 to {LONGEST_POLICY_ID} characters")
        if ids.count(policy.id) > 1:
            raise InvalidAccessPolicy(f"the id {policy.id!r} is given twice")
        for what, at in (("Start", policy.start), ("Expiry", policy.expiry)):
            if at is not None and read_instant(at) is None:
                raise InvalidAccessPolicy(f"{what} {at[:40]!r} of {policy.id!r} must be a time such as 2026-11-21T02:55:46Z")
        if wrong := set(policy.permission or "") - set(QUEUE_LETTERS):
            raise InvalidAccessPolicy(f"the permission {min(wrong)!r} of {policy.id!r} must be one of {', '.join(QUEUE_LETTERS)}")
    return checked


def check_options(name: str, options: QueueOptions) -> QueueOptions:
    """Check the options of the queue of this name and return them. Raises InvalidArgument."""
    count, grace, target = options.max_dequeue_count, options.expiry_grace, options.poison_queue
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 2**31):
        raise InvalidArgument("max_dequeue_count", f"{count!r} must be a whole number from 1 to 2^31 - 1")
    require_kind("expiry_grace", grace, timedelta)
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        raise InvalidArgument("expiry_grace", f"{grace!r} must be 0 to {LONGEST_GRACE.days} days")
    if not isinstance(options.strict_visibility, bool):
        raise InvalidArgument("strict_visibility", f"{options.strict_visibility!r} must be true or false")
    if target is not None and check_queue_name(target) == name:
        raise InvalidArgument("poison_queue", f"'{name}' cannot be its own poison queue")
    if count is not None and target is None and not name.endswith(POISON) and len(name) + len(POISON) > LONGEST:
        raise InvalidArgument("poison_queue", f"'{name}' is too long to append {POISON}; choose another poison queue (QS-106)")
    policies = check_access_policies(options.access_policies)
    return replace(options, metadata=check_metadata(options.metadata), access_policies=policies)


def changed(name: str, options: QueueOptions, changes: Mapping[str, Any]) -> QueueOptions:
    """The options after a change, checked. Raises InvalidArgument, also for an unknown option."""
    known = [f.name for f in fields(QueueOptions)]
    for wrong in changes.keys() - set(known):
        raise InvalidArgument(wrong, f"is not an option of a storage queue; valid options are {', '.join(known)}")
    return check_options(name, replace(options, **changes))


def poison_of(name: str, options: QueueOptions) -> Poison | None:
    """When and where messages of this queue are moved; None: never. A poison queue has no poison queue unless one is configured
    (QS-108)."""
    target = options.poison_queue or poison_queue_of(name)
    if options.max_dequeue_count is None or target is None:
        return None
    return Poison(options.max_dequeue_count, target)


def as_json(options: QueueOptions) -> dict[str, Any]:
    """The options as stored in the column `options`."""
    return {
        "metadata": dict(options.metadata),
        "max_dequeue_count": options.max_dequeue_count,
        "poison_queue": options.poison_queue,
        "expiry_grace": options.expiry_grace.total_seconds(),
        "strict_visibility": options.strict_visibility,
        "access_policies": [asdict(policy) for policy in options.access_policies],
    }


def from_json(stored: Mapping[str, Any]) -> QueueOptions:
    """The inverse of as_json."""
    return QueueOptions(
        MappingProxyType(dict(stored.get("metadata", {}))),
        stored.get("max_dequeue_count"),
        stored.get("poison_queue"),
        timedelta(seconds=stored.get("expiry_grace", DEFAULT_GRACE.total_seconds())),
        stored.get("strict_visibility", False),
        tuple(AccessPolicy(**policy) for policy in stored.get("access_policies", ())),
    )


def effective_json(name: str, options: QueueOptions) -> dict[str, Any]:
    """The effective values, as stored in the column `effective`."""
    poison = poison_of(name, options)
    return {} if poison is None else {"max_dequeue_count": poison.max_dequeue_count, "poison_queue": poison.queue}
