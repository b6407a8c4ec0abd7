"""Queue Storage in exports and imports. Receipts and leases are exported: without its receipt, an invisible message could not be
deleted in the copy before it becomes visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

from broker_core.common.types import EntityAddress, EntityKind, Family, HoldKind
from broker_core.export_format import part
from broker_core.export_format.lines import Fields, instant
from broker_core.export_format.part import ImportedEntity, Item
from broker_core.queue_storage import preview, queues
from broker_core.queue_storage.rules.names import check_queue_name
from broker_core.queue_storage.rules.options import QueueOptions, as_json, check_options, effective_json
from broker_core.runtime.previews import Effect
from broker_core.store.driver import Steps
from broker_core.store.statements import call


def lines_before(namespace_id: int) -> Steps:
    yield from ()
    return []


def lines_after(namespace_id: int, entity_ids: list[int]) -> Steps:
    yield from ()
    return []


def described(row: Any) -> dict[str, Any]:
    return {"settings": part.own_settings(row), "options": row.options}


def message_fields(row: Any) -> dict[str, Any]:
    return {
        "pop_receipt": str(row.lock_token),
        "visible_at": instant(row.visible_at),
        "hold": HoldKind(row.hold_kind).name.lower() if row.hold_kind else None,
        "held_since": instant(row.held_since),
        "held_by": row.locked_by,
        "renewals": row.renewals,
    }


def _options(name: str, content: Fields) -> QueueOptions:
    check_queue_name(name)
    options = content.inner("options")
    read = QueueOptions(
        metadata=options.mapping("metadata"),
        max_dequeue_count=options.whole("max_dequeue_count", optional=True),
        poison_queue=options.text("poison_queue", optional=True),
        expiry_grace=timedelta(seconds=options.number("expiry_grace")),
        strict_visibility=options.flag("strict_visibility"),
    )
    options.done()
    return check_options(name, read)


class Reader(part.Reader):
    """Checks options as the use cases do."""

    def entity(self, address: EntityAddress, content: Fields) -> ImportedEntity:
        options = _options(address.path, content)
        return part.queue_of(Family.QUEUE_STORAGE, as_json(options), effective_json(address.path, options), content)

    def message(self, content: Fields) -> dict[str, Any]:
        hold = content.member("hold", HoldKind, optional=True)
        return {
            "lock_token": content.uuid("pop_receipt"),
            "visible_at": content.instant("visible_at"),
            "hold_kind": hold and int(hold),
            "held_since": content.instant("held_since", optional=True),
            "locked_by": content.text("held_by", optional=True),
            "renewals": content.whole("renewals", optional=True, least=0, most=2**31 - 1),
        }

    def check_message(self, row: Mapping[str, Any], entity: ImportedEntity, content: Fields) -> None:
        part.only_main_and_active(row, content)

    def entity_end(self, entity_id: int) -> Steps:
        yield call("import_finish_queue_storage", entity_id=entity_id)


class Updater(part.Updater):
    """Changes queues; all their settings can be changed, except that none can be hidden."""

    def entity(self, path: str, content: Fields) -> tuple[str, dict[str, Any]]:
        kind = content.member("kind", [EntityKind.QUEUE])
        options = _options(path, content)
        values = {field.name: getattr(options, field.name) for field in fields(options)} | {"metadata": dict(options.metadata)}
        return str(kind), values | part.read_own_settings(content)

    def is_fixed(self, item: Item, name: str) -> bool:
        return name == "hidden"

    def effects(self, item: Item, changes: Mapping[str, Any], paths: frozenset[str]) -> Steps[tuple[Effect, ...]]:
        if not changes:
            return ()
        return (yield from preview.preview_options.steps(self.address(item.path), **changes, actor=self.actor)).effects

    def create(self, item: Item) -> Steps[Mapping[str, Any]]:
        part.require_not_hidden(item)
        settings = {name: value for name, value in item.values.items() if name != "hidden"}
        yield from queues.create_queue.steps(self.address(item.path), **settings, actor=self.actor)
        return {}

    def change(self, item: Item, changes: Mapping[str, Any]) -> Steps[None]:
        yield from queues.update_queue.steps(self.address(item.path), **changes, actor=self.actor)
