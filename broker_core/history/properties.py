"""Properties of messages in the archive: an operator chooses their keys for an entity, and its lives keep their values
(explorer/analysis/jobs/chosen.py). Sends and receives do no more than without keys."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.models import ArchivedProperties, Entity

MOST_KEYS = 8  # of an entity
MOST_CHARACTERS = 128  # of a key


def chosen(entity_ids: Iterable[int]) -> dict[int, list[str]]:
    """The keys of these entities, of those that have any."""
    return dict(ArchivedProperties.objects.filter(pk__in=list(entity_ids)).values_list("entity_id", "keys"))


def all_chosen() -> dict[int, list[str]]:
    """The keys of all entities that have any."""
    return dict(ArchivedProperties.objects.values_list("entity_id", "keys"))


def choose(entity_ids: Iterable[int], keys: Iterable[str], *, actor: Actor) -> list[str]:
    """Keep the values of these keys for the messages of these entities that leave from now on. Returns the keys.

    Raises NotAuthorized without Right.OPERATE in the namespaces of the entities, and InvalidArgument.
    """
    namespaces = dict(Entity.objects.filter(pk__in=list(entity_ids)).order_by("pk").values_list("pk", "namespace__name"))
    for namespace in set(namespaces.values()) or {"entities"}:
        actor.require(Right.OPERATE, namespace)
    names = list(dict.fromkeys(key.strip() for key in keys if key.strip()))
    if len(names) > MOST_KEYS:
        raise InvalidArgument("keys", f"can be at most {MOST_KEYS}; there are {len(names)}")
    for key in names:
        if len(key) > MOST_CHARACTERS or not key.isprintable() or '"' in key or "\\" in key:
            raise InvalidArgument("keys", f"must be names of at most {MOST_CHARACTERS} characters without quotes: {key[:50]!r}")
    if names:
        ArchivedProperties.objects.bulk_create(
            (ArchivedProperties(entity_id=namespace_id, keys=names) for namespace_id in namespaces),
            update_conflicts=True, unique_fields=["entity_id"], update_fields=["keys"],
        )  # fmt: skip
    else:
        ArchivedProperties.objects.filter(pk__in=list(namespaces)).delete()
    return names
