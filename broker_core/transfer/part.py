"""What the parts share: the reader of one namespace's lines, and an entity as its line gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.common.types import EntityAddress, EntityKind, Family, HistoryLevel, Tier
from broker_core.namespaces.entity_columns import entity_columns
from broker_core.store.driver import Steps

from .lines import Fields, is_texts, is_typed

OWN_SETTINGS = ("history_level", "hidden")  # Vitrine's, which the entities of every family have


@dataclass(frozen=True, slots=True)
class Given:
    """An entity as its line gives it. columns: what `create_entity` takes besides its place."""

    kind: EntityKind
    columns: Mapping[str, Any]
    topic_id: int | None = None
    requires_session: bool = False


class Reader:
    """Reads the lines of one namespace.

    own_lines:             the kinds of line, outside any entity, that `line` takes.
    may_expire_at_once:    whether a message's life may end in the instant in which it entered.
    holds_properties:      whether an object can be a message's broker properties, as the family stores them.
    holds_application_properties: the same for its application properties.
    """

    own_lines: frozenset[str] = frozenset()
    may_expire_at_once = False
    holds_properties = staticmethod(is_texts)
    holds_application_properties = staticmethod(is_typed)

    def __init__(self, namespace_id: int, name: str, tier: Tier):
        self.namespace_id, self.name, self.tier = namespace_id, name, tier

    def line(self, kind: str, content: Fields) -> Steps:
        """A line of the family's own."""
        raise NotImplementedError

    def entity(self, address: EntityAddress, content: Fields) -> Given:
        """An entity before it is stored: takes kind, settings and options from its line."""
        raise NotImplementedError

    def entity_stored(self, address: EntityAddress, given: Given, entity_id: int) -> None:
        """The entity has got its id."""

    def message(self, content: Fields) -> dict[str, Any]:
        """The columns of a message that only this family has."""
        return {}

    def check_message(self, row: Mapping[str, Any], given: Given, content: Fields) -> None:
        """Refuse a message that would lie where nothing ever takes it from."""

    def entity_end(self, entity_id: int) -> Steps:
        """All messages of an entity are stored and counted."""
        yield from ()

    def namespace_end(self) -> Steps:
        """All lines of the namespace were read."""
        yield from ()


def own_settings(row: Any) -> dict[str, Any]:
    """What is told of an entity's columns where its family keeps all else in its options."""
    return {name: getattr(row, name) for name in OWN_SETTINGS}


def queue_of(family: Family, options: Mapping[str, Any], effective: Mapping[str, Any], content: Fields) -> Given:
    """A queue of a family that keeps its settings in its options; `content` has Vitrine's own settings."""
    content.member("kind", [EntityKind.QUEUE])
    settings = content.inner("settings")
    level = settings.whole("history_level", least=min(HistoryLevel), most=max(HistoryLevel))
    columns = entity_columns(family, {"history_level": HistoryLevel(level), "hidden": settings.flag("hidden")})
    settings.done()
    return Given(EntityKind.QUEUE, columns | {"options": json.dumps(options), "effective": json.dumps(effective)})


def only_main_and_active(row: Mapping[str, Any], content: Fields) -> None:
    """Refuse what only Service Bus has: other lists, other states."""
    if row["subqueue"]:
        content.refuse("list", "must be main")
    if row["state"]:
        content.refuse("state", "must be active")
