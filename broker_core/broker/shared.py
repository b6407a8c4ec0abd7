"""What the use cases share: finding the entity behind an address, and refusing what cannot be done there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from broker_core.semantics.errors import EntityDisabled, EntityNotFound, InvalidArgument, NotAllowed
from broker_core.semantics.types import EntityAddress, EntityKind, EntityStatus, Family, SubQueue
from broker_core.store import connections
from broker_core.store.driver import AfterCommit, Atomically, Steps
from broker_core.store.statements import call


class Known(NamedTuple):
    """What never changes about an entity, so it can be remembered."""

    id: int
    kind: EntityKind
    family: Family
    requires_session: bool
    requires_duplicate_detection: bool


class Memory(dict):
    """What a process remembers, in all its threads: any of them may forget it at any time. With `most` it begins anew, so what
    is gone for good takes no space for ever."""

    def __init__(self, most: int):
        self.most = most

    def keep(self, key: Any, value: Any) -> Any:
        if len(self) >= self.most:
            self.clear()
        self[key] = value
        return value


BROKER = "process:broker"  # the actor of what nobody asked for
_known = Memory(100_000)  # database, namespace and path -> Known


def _key(address: EntityAddress):
    return connections.current_database(), address.namespace.lower(), address.path


def forget(address: EntityAddress) -> None:
    _known.pop(_key(address), None)


def known(address: EntityAddress, family: Family = Family.SERVICE_BUS) -> Steps:
    """What is known of the entity behind an address, remembered: ids are never used again.

    Raises EntityNotFound; NotAllowed for one of another family, which has operations of its own.
    """
    key = _key(address)
    found = _known.get(key)
    if found is None:
        rows = yield call("find_entity", namespace=address.namespace, path=address.path)
        if not rows:
            raise EntityNotFound(str(address))
        row = rows[0]
        flags = row.requires_session, row.requires_duplicate_detection
        found = _known.keep(key, Known(row.id, EntityKind(row.kind), Family(row.family), *flags))
    if found.family is not family:
        raise NotAllowed(f"'{address}' is of the family {found.family}, which has other operations than {family}.")
    return found


def entity_id_of(address: EntityAddress) -> Steps:
    """The id behind an address. Raises EntityNotFound."""
    return (yield from known(address)).id


def on_entity(address: EntityAddress, attempt: Callable[[Known], Steps], family: Family = Family.SERVICE_BUS) -> Steps:
    """Attempt something on an entity. Returns what is known of it, the answer, and, if there is none, a look at the entity.

    What is remembered may be of an entity deleted since: it is looked up once more where nothing was found, or where it does not
    allow the attempt. Raises EntityNotFound.
    """
    for is_last in (False, True):
        remembered = _key(address) in _known
        entity = yield from known(address, family)
        try:
            answer = yield from attempt(entity)
        except NotAllowed:
            if is_last or not remembered:
                raise
            forget(address)
            continue
        if answer:
            return entity, answer, None
        look = yield call("look", entity_id=entity.id)
        if look:
            return entity, None, look[0]
        forget(address)
        if not remembered:
            break
    raise EntityNotFound(str(address))


def on(address: EntityAddress, name: str, **params: Any) -> Steps:
    """Run a statement on an entity. Returns its id, the rows, and, if there are none, a look at the entity."""

    def attempt(entity: Known) -> Steps:
        return (yield call(name, entity_id=entity.id, subqueue=address.subqueue, **params))

    entity, rows, look = yield from on_entity(address, attempt)
    return entity.id, rows or [], look


def wake(entity_ids: Iterable[int]) -> Steps[None]:
    """Tell who waits for messages of these entities, after the commit (design D8)."""
    for entity_id in entity_ids:
        yield AfterCommit(_wake(entity_id))


def _wake(entity_id: int) -> Steps[None]:
    yield call("wake", entity_id=entity_id)


def new_ids(count: int) -> list[str]:
    """Random message ids, from one call for all."""
    ids = os.urandom(16 * count).hex()
    return [ids[at : at + 32] for at in range(0, 32 * count, 32)]


def whole_numbers(given: Iterable[int], name: str = "sequence_number") -> list[int]:
    """Each number once, in the order given. Raises InvalidArgument."""
    if not isinstance(given, Iterable):
        raise InvalidArgument(name, f"{given!r} is no list of numbers")
    numbers = list(given)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
            raise InvalidArgument(name, f"{number!r} is no whole number from 0 to 2^63 - 1")
    return list(dict.fromkeys(numbers))


def require_count(name: str, count: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 2**63:
        raise InvalidArgument(name, f"{count!r} is no whole number from 1 to 2^63 - 1")


def require_receivable(address: EntityAddress, look: Any) -> None:
    """Raise what keeps everybody from receiving: the entity's kind, its status, or that its messages go elsewhere (SB-104,
    SB-171)."""
    if look.kind == EntityKind.TOPIC and address.subqueue is not SubQueue.TRANSFER_DEAD_LETTER:
        raise NotAllowed(f"Nothing can be received from the topic {address}: receive from one of its subscriptions.")
    goes_to = {SubQueue.MAIN: look.forward_to, SubQueue.DEAD_LETTER: look.forward_dead_lettered_messages_to}.get(address.subqueue)
    if goes_to:
        raise NotAllowed(f"Nothing can be received from {address}: its messages are forwarded to '{goes_to}' (SB-171).")
    if not EntityStatus(look.status).may_receive:
        raise EntityDisabled(str(address), look.status, "receives or settlements")


def require_sendable(address: EntityAddress, look: Any) -> None:
    if not EntityStatus(look.status).may_send:
        raise EntityDisabled(str(address), look.status, "sends")


class _Undo(Exception):
    """Ends a transaction in which a later step was refused."""


def undo() -> NoReturn:
    """Inside `all_or_none`: end the transaction, so that nothing of it is kept."""
    raise _Undo


def all_or_none(steps: Steps) -> Steps:
    """Steps in one transaction; None if they were undone."""
    try:
        return (yield Atomically(steps))
    except _Undo:
        return None
