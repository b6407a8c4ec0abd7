"""What the use cases share: finding the entity behind an address, and refusing what cannot be done there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker_core.semantics.errors import EntityDisabled, EntityNotFound, InvalidArgument
from broker_core.semantics.types import EntityAddress, EntityKind, EntityStatus
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call


class Known(NamedTuple):
    """What never changes about an entity, so it can be remembered."""

    id: int
    kind: EntityKind
    requires_session: bool
    requires_duplicate_detection: bool


_known: dict[tuple[connections.Database, str, str], Known] = {}


def _key(address: EntityAddress):
    return connections.current_database(), address.namespace.lower(), address.path.lower()


def forget(address: EntityAddress) -> None:
    _known.pop(_key(address), None)


def forget_some(addresses: Sequence[EntityAddress]) -> None:
    """Ids are looked up again now and then, so that a queue deleted and made anew is found by those who only poll."""
    if time.monotonic() - _forgotten.get("at", 0) > 5:
        _forgotten["at"] = time.monotonic()
        for address in addresses:
            forget(address)


_forgotten: dict[str, float] = {}


def known(address: EntityAddress) -> Steps:
    """What is known of the entity behind an address, remembered: ids are never used again. Raises EntityNotFound."""
    key = _key(address)
    if key not in _known:
        rows = yield call("find_entity", namespace=address.namespace, path=address.path)
        if not rows:
            raise EntityNotFound(str(address))
        _known[key] = Known(rows[0].id, EntityKind(rows[0].kind), rows[0].requires_session, rows[0].requires_duplicate_detection)
    return _known[key]


def entity_id_of(address: EntityAddress) -> Steps:
    """The id behind an address. Raises EntityNotFound."""
    return (yield from known(address)).id


def on(address: EntityAddress, name: str | Callable[[Known], str], **params: Any) -> Steps:
    """Run a statement on an entity. Returns its id, the rows, and, if there are none, a look at the entity.

    name: of the statement, or a function that chooses it, or refuses, by what is known of the entity. An id remembered from an
    entity deleted since is looked up once more. Raises EntityNotFound.
    """
    for _ in range(2):
        remembered = _key(address) in _known
        entity = yield from known(address)
        entity_id, statement = entity.id, name if isinstance(name, str) else name(entity)
        rows = yield call(statement, entity_id=entity_id, subqueue=address.subqueue, **params)
        if rows:
            return entity_id, rows, None
        look = yield call("look", entity_id=entity_id)
        if look:
            return entity_id, [], look[0]
        forget(address)
        if not remembered:
            break
    raise EntityNotFound(str(address))


def whole_numbers(sequence_numbers: Sequence[int]) -> list[int]:
    numbers = list(dict.fromkeys(sequence_numbers))
    for number in numbers:
        if not isinstance(number, int) or not 0 <= number < 2**63:
            raise InvalidArgument("sequence_number", f"{number!r} is no whole number from 0 to 2^63 - 1")
    return numbers


def require_count(name: str, count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise InvalidArgument(name, f"{count!r} is no whole number from 1 on")


def require_receivable(address: EntityAddress, look: Any) -> None:
    if not EntityStatus(look.status).may_receive:
        raise EntityDisabled(str(address), look.status, "receives or settlements")


def require_sendable(address: EntityAddress, look: Any) -> None:
    if not EntityStatus(look.status).may_send:
        raise EntityDisabled(str(address), look.status, "sends")
