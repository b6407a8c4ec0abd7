"""What an analysis is about: a queue or subscription, or all of a namespace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from broker_core.models import Entity, Namespace


@dataclass(frozen=True, slots=True)
class Subject:
    """entities: the queues and subscriptions, of one namespace. is_whole: they are all of it."""

    entities: Sequence[Entity]
    namespace: Namespace
    is_whole: bool

    @property
    def name(self) -> str:
        return f"all queues of {self.namespace.name}" if self.is_whole else str(self.entities[0])

    @property
    def ids(self) -> list[int]:
        return [entity.pk for entity in self.entities]

    @property
    def paths(self) -> dict[int, str]:
        return {entity.pk: entity.path for entity in self.entities}

    @property
    def query(self) -> dict[str, Any]:
        """The parameters of a URL that name it."""
        return {"namespace": self.namespace.name} if self.is_whole else {"queue": self.entities[0].pk}

    @property
    def url_query(self) -> str:
        return urlencode(self.query)
