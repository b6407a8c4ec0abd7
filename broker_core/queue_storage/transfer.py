"""Queue Storage in exports and imports. Receipts and leases are exported: without its receipt, an invisible message could not be
deleted in the copy before it becomes visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, EntityKind, Family, HoldKind, Tier
from broker_core.export_format import part
from broker_core.export_format.lines import Fields, instant, line
from broker_core.export_format.part import ImportedEntity, Item
from broker_core.queue_storage import accounts, preview, queues
from broker_core.queue_storage.rules.names import check_queue_name
from broker_core.queue_storage.rules.options import QueueOptions, as_json, check_options, effective_json
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import ServiceProperties, check, from_json
from broker_core.runtime.previews import Effect
from broker_core.store.driver import Steps
from broker_core.store.statements import call


def lines_before(namespace_id: int, with_keys: bool) -> Steps[list[str]]:
    """The account's line."""
    [row] = yield call("export_storage_account", namespace_id=namespace_id)
    keys = {name: getattr(row, name) for name in _KEYS} if with_keys else {}
    return [line(_ACCOUNT, {"properties": row.properties, **keys})]


_ACCOUNT = "storage_account"
_SERVICE = "service properties"  # what people call its line
_KEYS = ("primary_key", "secondary_key")


def _properties(content: Fields) -> ServiceProperties:
    """The service properties of an account's line. Those that were never set are missing."""
    stored = content.mapping("properties")
    try:
        ServiceProperties(**stored)  # refuses other names
        return check(from_json(stored))
    except (TypeError, KeyError, AttributeError) as exc:
        content.refuse("properties", f"are not the properties of a queue service ({exc})")


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
        access_policies=tuple(_access_policy(policy) for policy in options.inner_list("access_policies")),
    )
    options.done()
    return check_options(name, read)


def _access_policy(content: Fields) -> AccessPolicy:
    policy = AccessPolicy(content.text("id"), *(content.text(name, optional=True) for name in ("start", "expiry", "permission")))
    content.done()
    return policy


class Reader(part.Reader):
    """Checks options as the use cases do. An account whose keys are not in the file gets new ones."""

    own_lines = frozenset({_ACCOUNT})

    def __init__(self, namespace_id: int, name: str, tier: Tier):
        super().__init__(namespace_id, name, tier)
        self._has_account = False

    def line(self, kind: str, content: Fields) -> Steps[None]:
        properties = _properties(content)
        primary, secondary = (
            accounts.checked_key(name, content.text(name, optional=True)) or accounts.new_key() for name in _KEYS
        )
        content.done()
        yield from self._account(primary, secondary, properties)

    def namespace_end(self) -> Steps[None]:
        if not self._has_account:
            yield from self._account(accounts.new_key(), accounts.new_key(), ServiceProperties())

    def _account(self, primary_key: str, secondary_key: str, properties: ServiceProperties) -> Steps[None]:
        if self._has_account:
            raise InvalidArgument(_ACCOUNT, "appears twice")
        self._has_account = True
        yield from accounts.insert(self.namespace_id, primary_key, secondary_key, properties)

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
    """Changes queues and the account's properties; all settings can be changed, except that none can be hidden. The keys of the
    account stay."""

    own_lines = frozenset({_ACCOUNT})

    def item(self, kind: str, path: str, content: Fields) -> Item:
        for name in _KEYS:
            content.text(name, optional=True)
        properties = _properties(content)
        return Item(_SERVICE, "", self.namespace, {f.name: getattr(properties, f.name) for f in fields(properties)})

    def entity(self, path: str, content: Fields) -> tuple[str, dict[str, Any]]:
        kind = content.member("kind", [EntityKind.QUEUE])
        options = _options(path, content)
        values = {field.name: getattr(options, field.name) for field in fields(options)} | {"metadata": dict(options.metadata)}
        return str(kind), values | part.read_own_settings(content)

    def is_fixed(self, item: Item, name: str) -> bool:
        return name == "hidden"

    def effects(self, item: Item, changes: Mapping[str, Any], paths: frozenset[str]) -> Steps[tuple[Effect, ...]]:
        if not changes or item.kind == _SERVICE:
            return ()
        return (yield from preview.preview_options.steps(self.address(item.path), **changes, actor=self.actor)).effects

    def create(self, item: Item) -> Steps[Mapping[str, Any]]:
        part.require_not_hidden(item)
        settings = {name: value for name, value in item.values.items() if name != "hidden"}
        yield from queues.create_queue.steps(self.address(item.path), **settings, actor=self.actor)
        return {}

    def change(self, item: Item, changes: Mapping[str, Any]) -> Steps[None]:
        if item.kind == _SERVICE:
            yield from accounts.set_service_properties.steps(self.namespace, **changes, actor=self.actor)
            return
        yield from queues.update_queue.steps(self.address(item.path), **changes, actor=self.actor)
