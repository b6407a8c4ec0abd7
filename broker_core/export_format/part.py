"""Shared by the families' transfer modules: the bases of the reader and the updater of a namespace, and what they read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker_core.common.errors import NotAllowed
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, HistoryLevel, Tier
from broker_core.namespaces.entity_columns import entity_columns
from broker_core.runtime.previews import Effect
from broker_core.store.driver import Steps

from .lines import Fields, is_texts

OWN_SETTINGS = ("history_level", "hidden")  # Vitrine's settings, common to all families


@dataclass(frozen=True, slots=True)
class ImportedEntity:
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
    holds_application_properties = staticmethod(lambda value: not value)  # a family without them exports none

    def __init__(self, namespace_id: int, name: str, tier: Tier):
        self.namespace_id, self.name, self.tier = namespace_id, name, tier

    def line(self, kind: str, content: Fields) -> Steps:
        """Read a line of the family's own."""
        raise NotImplementedError

    def entity(self, address: EntityAddress, content: Fields) -> ImportedEntity:
        """Read the kind, settings and options of an entity from its line."""
        raise NotImplementedError

    def entity_stored(self, address: EntityAddress, entity: ImportedEntity, entity_id: int) -> None:
        """Called when the entity is stored and has its id."""

    def message(self, content: Fields) -> dict[str, Any]:
        """The columns of a message that only this family has."""
        return {}

    def check_encoded(self, row: Mapping[str, Any], content: Fields) -> None:
        """Refuse a body or an encoding that a front end could not have sent."""
        if row["encoded"] is not None:
            content.refuse("encoded", "must be missing: this family has no encoded messages")

    def check_message(self, row: Mapping[str, Any], entity: ImportedEntity, content: Fields) -> None:
        """Refuse a message in a list or state from which it could never be received."""

    def entity_end(self, entity_id: int) -> Steps:
        """Steps to run when all messages of an entity are stored and counted."""
        yield from ()

    def namespace_end(self) -> Steps:
        """Steps to run when all lines of the namespace are read."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Item:
    """An object of a namespace's configuration. path: of the entity that it is, or belongs to; empty: none. name: empty for an
    entity. values: its settings by name. line: its number in the file. secrets: what it is created with, and is neither compared
    nor shown."""

    kind: str
    path: str
    name: str
    values: Mapping[str, Any]
    line: int = 0
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} '{self.name or self.path}'" + (f" of '{self.path}'" if self.name and self.path else "")


class Updater:
    """Changes the configuration of an existing namespace through the family's use cases.

    own_lines: the kinds of line, besides entities, that `item` reads.
    """

    own_lines: frozenset[str] = frozenset()

    def __init__(self, namespace: str, actor: Actor):
        self.namespace, self.actor = namespace, actor

    def address(self, path: str) -> EntityAddress:
        return EntityAddress(self.namespace, path)

    def key(self, item: Item) -> tuple:
        """What identifies an object. Paths and names are case-insensitive."""
        return item.kind, item.path.lower(), item.name.lower()

    def entity(self, path: str, content: Fields) -> tuple[str, dict[str, Any]]:
        """The kind and the settings of an entity's line."""
        raise NotImplementedError

    def item(self, kind: str, path: str, content: Fields) -> Item:
        """An object of another kind of line; path: of the entity that contains the line."""
        raise NotImplementedError

    def is_same(self, name: str, before: Any, after: Any) -> bool:
        return before == after

    def label(self, name: str) -> str:
        """A setting's name in an error."""
        return name

    def is_fixed(self, item: Item, name: str) -> bool:
        """Whether a setting cannot be changed after creation."""
        return False

    def effects(self, item: Item, changes: Mapping[str, Any], paths: frozenset[str]) -> Steps[tuple[Effect, ...]]:
        """The effects of creating or changing an object on existing messages. paths: the present entities, in lower case."""
        yield from ()
        return ()

    def create(self, item: Item) -> Steps[Mapping[str, Any]]:
        """Create an object. Returns settings that can only be set when all objects exist."""
        raise NotImplementedError

    def change(self, item: Item, changes: Mapping[str, Any]) -> Steps[None]:
        """Change these settings of an object; `item` has all its settings after the change."""
        raise NotImplementedError


def read_own_settings(content: Fields) -> dict[str, Any]:
    """The inverse of own_settings."""
    settings = content.inner("settings")
    level = settings.whole("history_level", least=min(HistoryLevel), most=max(HistoryLevel))
    columns = {"history_level": HistoryLevel(level), "hidden": settings.flag("hidden")}
    settings.done()
    return columns


def require_not_hidden(item: Item) -> None:
    if item.values["hidden"]:
        raise NotAllowed(f"'{item.path}' cannot be hidden: only Service Bus entities have this setting.")


def own_settings(row: Any) -> dict[str, Any]:
    """The exported columns of an entity whose family stores its other settings in `options`."""
    return {name: getattr(row, name) for name in OWN_SETTINGS}


def queue_of(family: Family, options: Mapping[str, Any], effective: Mapping[str, Any], content: Fields) -> ImportedEntity:
    """Read a queue of a family that stores its settings in `options`; `content` has Vitrine's own settings."""
    content.member("kind", [EntityKind.QUEUE])
    columns = entity_columns(family, read_own_settings(content))
    return ImportedEntity(EntityKind.QUEUE, columns | {"options": json.dumps(options), "effective": json.dumps(effective)})


def only_main_and_active(row: Mapping[str, Any], content: Fields) -> None:
    """Refuse the lists and states that only Service Bus has."""
    if row["subqueue"]:
        content.refuse("list", "must be main")
    if row["state"]:
        content.refuse("state", "must be active")
