"""Finds entities by name, for suggestions; without counts, so it is fast with very many entities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from broker_core.common.types import Actor, EntityAddress, EntityKind, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import require

MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class Name:
    """An entity's id and address."""

    id: int
    address: EntityAddress


@dataclass(frozen=True, slots=True)
class Names:
    """Names found, at most as many as requested of each database. more: whether there are others."""

    matches: tuple[Name, ...]
    more: bool


def _joined(results: list[Names]) -> Names:
    return Names(tuple(chain.from_iterable(result.matches for result in results)), any(result.more for result in results))


@use_case(combine=_joined)
def names(
    part: str = "",
    *,
    namespace: str | None = None,
    kinds: Iterable[EntityKind] = tuple(EntityKind),
    limit: int = MOST_NAMES,
    except_namespaces: Iterable[str] = (),
    actor: Actor | None = None,
) -> Steps[Names]:
    """Entities of these kinds whose name contains `part` (case-insensitive); names that begin with it come first.

    If a namespace is given, the name is the path. Otherwise it is "namespace/path", and Vitrine's own entities are excluded.
    Hidden entities are included. except_namespaces: their entities are left out.
    """
    require(actor, Right.BROWSE, namespace or "all namespaces")
    rows = yield call(
        "read_names", part=part, namespace=namespace, kinds=[str(kind) for kind in kinds], max_count=limit + 1,
        except_namespaces=[name.lower() for name in except_namespaces],
    )  # fmt: skip
    return Names(tuple(Name(row.id, EntityAddress(row.namespace_name, row.path)) for row in rows[:limit]), len(rows) > limit)
