"""Shared by the families' transfer modules: the base of the reader of a namespace's lines, and an entity as read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.common.types import EntityAddress, EntityKind, Family, HistoryLevel, Tier
from broker_core.namespaces.entity_columns import entity_columns
from broker_core.store.driver import Steps

from .lines import Fields, is_texts, is_typed

OWN_SETTINGS = ("history_level", "hidden")  # Vitrine's settings, common to all families


@dataclass(frozen=True, slots=True)
class Given:
    """An entity as read from its line. columns: the parameters of `create_entity` except namespace, path, kind and topic."""

    kind: EntityKind
    columns: Mapping[str, Any]
    topic_id: int | None = None
    requires_session: bool = False


class Reader:
    """Reads the lines of one namespace.

    own_lines:             the kinds of line outside any entity that only this family has; `line` reads them.
    may_expire_at_once:    whether a message may expire at the instant of enqueueing.
    holds_properties:      whether an object is valid as a message's stored broker properties.
    holds_application_properties: the same for application properties.
    """

    own_lines: frozenset[str] = frozenset()
    may_expire_at_once = False
    holds_properties = staticmethod(is_texts)
    holds_application_properties = staticmethod(is_typed)

    def __init__(self, namespace_id: int, name: str, tier: Tier):
        self.namespace_id, self.name, self.tier = namespace_id, name, tier

    def line(self, kind: str, content: Fields) -> Steps:
        """Read a line of the family's own."""
        raise NotImplementedError

    def entity(self, address: EntityAddress, content: Fields) -> Given:
        """Read the kind, settings and options of an entity from its line."""
        raise NotImplementedError

    def entity_stored(self, address: EntityAddress, given: Given, entity_id: int) -> None:
        """Called when the entity is stored and has its id."""

    def message(self, content: Fields) -> dict[str, Any]:
        """The columns of a message that only this family has."""
        return {}

    def check_encoded(self, row: Mapping[str, Any], content: Fields) -> None:
        """Refuse a body or an encoding that a front end could not have sent."""
        if row["encoded"] is not None:
            content.refuse("encoded", "must be missing: this family has no encoded messages")

    def check_message(self, row: Mapping[str, Any], given: Given, content: Fields) -> None:
        """Refuse a message in a list or state from which it could never be received."""

    def entity_end(self, entity_id: int) -> Steps:
        """Steps to run when all messages of an entity are stored and counted."""
        yield from ()

    def namespace_end(self) -> Steps:
        """Steps to run when all lines of the namespace are read."""
        yield from ()


def own_settings(row: Any) -> dict[str, Any]:
    """The exported columns of an entity whose family stores its other settings in `options`."""
    return {name: getattr(row, name) for name in OWN_SETTINGS}


def queue_of(family: Family, options: Mapping[str, Any], effective: Mapping[str, Any], content: Fields) -> Given:
    """Read a queue of a family that stores its settings in `options`; `content` has Vitrine's own settings."""
    content.member("kind", [EntityKind.QUEUE])
    settings = content.inner("settings")
    level = settings.whole("history_level", least=min(HistoryLevel), most=max(HistoryLevel))
    columns = entity_columns(family, {"history_level": HistoryLevel(level), "hidden": settings.flag("hidden")})
    settings.done()
    return Given(EntityKind.QUEUE, columns | {"options": json.dumps(options), "effective": json.dumps(effective)})


def only_main_and_active(row: Mapping[str, Any], content: Fields) -> None:
    """Refuse the lists and states that only Service Bus has."""
    if row["subqueue"]:
        content.refuse("list", "must be main")
    if row["state"]:
        content.refuse("state", "must be active")
