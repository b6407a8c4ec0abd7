"""What an analysis is about: a queue or subscription, or all of a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self
from urllib.parse import urlencode

from django.urls import reverse

from broker_core.models import Entity, Namespace
from explorer.frames.family import FamilyPages, pages_of


@dataclass(frozen=True)
class Subject:
    """entities: the queues and subscriptions, of one namespace. is_whole: they are all of it."""

    entities: Sequence[Entity]
    namespace: Namespace
    is_whole: bool

    @property
    def name(self) -> str:
        return f"all queues of {self.namespace.name}" if self.is_whole else str(self.entities[0])

    @property
    def family(self) -> FamilyPages:
        return pages_of(self.namespace.family)

    @cached_property
    def ids(self) -> list[int]:
        return [entity.pk for entity in self.entities]

    @cached_property
    def paths(self) -> dict[int, str]:
        return {entity.pk: entity.path for entity in self.entities}

    @cached_property
    def by_id(self) -> dict[int, Entity]:
        return {entity.pk: entity for entity in self.entities}

    def with_entities(self, ids: Iterable[int | None]) -> Self:
        """The same with other entities of the namespace, for their names. Deleted ones that are forgotten are left out."""
        missing = {entity_id for entity_id in ids if entity_id is not None} - self.by_id.keys()
        if not missing:
            return self
        others = Entity.objects.filter(pk__in=missing, namespace=self.namespace).order_by("pk")
        return replace(self, entities=[*self.entities, *others])

    def message_url(self, entity_id: int, sequence_number: int) -> str:
        """The page of a message of one of the entities. That of a deleted one says of which: another may have its name."""
        entity = self.by_id[entity_id]
        url = reverse("explorer:message", args=(self.namespace.name, entity.path, sequence_number))
        return f"{url}?of={entity_id}" if entity.deleted_at else url

    @property
    def query(self) -> dict[str, Any]:
        """The parameters of a URL that name it."""
        return {"namespace": self.namespace.name} if self.is_whole else {"queue": self.entities[0].pk}

    @property
    def url_query(self) -> str:
        return urlencode(self.query)
