"""Service Bus in exports and imports: settings of the three kinds, topics before their subscriptions. Locks are not exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import BodyKind, EntityAddress, EntityKind, MessageState, SubQueue, Tier
from broker_core.export_format import part
from broker_core.export_format.lines import Fields, duration, parse_duration
from broker_core.export_format.part import ImportedEntity, Item
from broker_core.runtime.previews import Effect
from broker_core.service_bus.entities.kinds import as_parameters, from_row
from broker_core.service_bus.rules.entity_settings import (
    DURATIONS,
    FIXED,
    FORWARDS,
    KEPT,
    MAY_BE_NEVER,
    SERVICE_NAMES,
    SETTINGS_OF,
    check_path,
    check_subscription_name,
    default_settings,
    new_settings,
    values_of,
)
from broker_core.service_bus.rules.filters import DEFAULT_RULE_NAME, rule_from_json, rule_to_json
from broker_core.service_bus.rules.kept_properties import FIXED_KEPT, KEPT_OF, check_kept, effective_kept
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from . import entities, preview
from .configured_limits import limits
from .entities import shared_access
from .rules import amqp_messages
from .rules.amqp.properties import decode_properties, encode_properties
from .rules.amqp.sections import AmqpSections


def lines_before(namespace_id: int, with_keys: bool) -> Steps:
    yield from ()
    return []


def lines_after(namespace_id: int, entity_ids: list[int]) -> Steps:
    yield from ()
    return []


def described(row: Any) -> dict[str, Any]:
    """The settings of the entity's kind."""
    settings = {name: _setting(value) for name, value in values_of(from_row(row).settings).items()}
    return {"settings": {name: value for name, value in settings.items() if value not in (None, {})}}


def message_fields(row: Any) -> dict[str, Any]:
    return {}


def _setting(value: Any) -> Any:
    return duration(value) if hasattr(value, "total_seconds") else value


def _is_typed(value: dict) -> bool:
    """Whether it maps names to [type, text], as rules.amqp.properties stores them."""
    try:
        return encode_properties(decode_properties(value)) == value
    except (BrokerError, ValueError, TypeError, AttributeError, ArithmeticError):
        return False


class Reader(part.Reader):
    """Keeps the topics read so far, and the limits of the tier."""

    holds_application_properties = staticmethod(_is_typed)

    def __init__(self, namespace_id: int, name: str, tier: Tier):
        super().__init__(namespace_id, name, tier)
        self.limits = limits(tier)
        self.topics: dict[str, int] = {}

    def entity(self, address: EntityAddress, content: Fields) -> ImportedEntity:
        kind = content.member("kind", EntityKind)
        topic_id = self._topic_of(address, kind, content)
        values = content.mapping("settings")
        read = {n: parse_duration(v, f"{content.where}.settings.{n}") if n in DURATIONS else v for n, v in values.items()}
        settings = new_settings(kind, {"default_message_time_to_live": None, "auto_delete_on_idle": None, **read}, self.limits)
        return ImportedEntity(kind, as_parameters(settings), topic_id, getattr(settings, "requires_session", False))

    def entity_stored(self, address: EntityAddress, entity: ImportedEntity, entity_id: int) -> None:
        if entity.kind is EntityKind.TOPIC:
            self.topics[address.path.lower()] = entity_id

    def check_encoded(self, row: Mapping[str, Any], content: Fields) -> None:
        try:
            amqp_messages.check_body(BodyKind(row["body_kind"]), row["body"])
        except InvalidArgument as exc:
            content.refuse("body", exc.problem)
        try:
            AmqpSections.parse(row["encoded"] or b"")
        except InvalidArgument as exc:
            content.refuse("encoded", exc.problem)

    def check_message(self, row: Mapping[str, Any], entity: ImportedEntity, content: Fields) -> None:
        if row["subqueue"] != SubQueue.MAIN:
            return
        if entity.kind is EntityKind.TOPIC and row["state"] != MessageState.SCHEDULED:
            content.refuse("state", "must be scheduled: a topic stores only scheduled messages")
        if entity.requires_session and row["session_id"] is None:
            content.refuse("session_id", "is required: the entity requires sessions")

    def entity_end(self, entity_id: int) -> Steps:
        yield call("import_finish_service_bus", entity_id=entity_id)

    def _topic_of(self, address: EntityAddress, kind: EntityKind, content: Fields) -> int | None:
        if kind is not EntityKind.QUEUE and not self.limits.topics:
            content.refuse("kind", f"a namespace of the tier {self.limits.tier} has no topics")
        if kind is not EntityKind.SUBSCRIPTION:
            check_path(address.path)
            return None
        topic = address.topic
        if topic is None or topic.path.lower() not in self.topics:
            content.refuse("path", f"'{address.path}' refers to a topic that does not precede it")
        check_subscription_name(address.name)
        return self.topics[topic.path.lower()]


def policy_keys(content: Fields) -> tuple[str | None, str | None]:
    """The keys in the line of a shared-access policy; None: the policy gets a new one. Raises InvalidArgument."""
    return _policy_key("primary_key", content), _policy_key("secondary_key", content)


def _policy_key(name: str, content: Fields) -> str | None:
    try:
        return shared_access.checked_key(name, content.text(name, optional=True))
    except InvalidArgument as exc:
        content.refuse(name, exc.problem)


_KEYS = ("primary_key", "secondary_key")
RULE, POLICY = "rule", "shared-access policy"
_CREATE: Mapping[str, Any] = {
    EntityKind.QUEUE: entities.create_queue,
    EntityKind.TOPIC: entities.create_topic,
    EntityKind.SUBSCRIPTION: entities.create_subscription,
}


def _arguments(item: Item, values: Mapping[str, Any]) -> dict[str, Any]:
    """These values of an entity as arguments of the use cases, which change all kept properties at once."""
    kept = {name: item.values[name] for name in KEPT_OF[EntityKind(item.kind)]}
    settings = {name: value for name, value in values.items() if name not in kept}
    return settings if len(settings) == len(values) else settings | {KEPT: kept}


class Updater(part.Updater):
    """Changes entities, rules and shared-access policies. Kept properties are compared one by one, like settings. A new
    subscription gets the rules of the file only; a new policy gets the keys of the file, if it has some, and those of existing
    policies stay."""

    own_lines = frozenset({"rule", "policy"})

    def entity(self, path: str, content: Fields) -> tuple[str, dict[str, Any]]:
        kind = content.member("kind", EntityKind)
        values = content.mapping("settings")
        for name in values:
            if name not in SETTINGS_OF[kind]:
                content.refuse("settings", f"'{name}' is not a setting of a {kind}")
        read = {n: parse_duration(v, f"{content.where}.settings.{n}") if n in DURATIONS else v for n, v in values.items()}
        settings = default_settings(kind) | {n: None for n in MAY_BE_NEVER if n in SETTINGS_OF[kind]} | read
        try:
            kept = check_kept(kind, settings.pop(KEPT))
        except InvalidArgument as exc:
            content.refuse("settings", f"{KEPT}: {exc}")
        return str(kind), settings | effective_kept(kind, kept)

    def item(self, kind: str, path: str, content: Fields) -> Item:
        name = content.text("name")
        if kind == "policy":
            rights = {right: content.flag(right) for right in ("send", "listen", "manage")}
            return Item(POLICY, path, name, rights, secrets=dict(zip(_KEYS, policy_keys(content), strict=True)))
        content.instant("created_at")
        rule = rule_to_json(
            rule_from_json({"name": name, "filter": content.mapping("filter"), "action": content.value("action")})
        )
        return Item(RULE, path, name, {"filter": rule["filter"], "action": rule["action"]})

    def key(self, item: Item) -> tuple:
        """A queue, a topic and a subscription share their names."""
        kind = "" if item.kind in _CREATE else item.kind
        return kind, item.path.lower(), item.name.lower()

    def is_same(self, name: str, before: Any, after: Any) -> bool:
        if name in FORWARDS and before and isinstance(after, str):
            return before.lower() == after.lower()
        return before == after

    def label(self, name: str) -> str:
        return SERVICE_NAMES.get(name, name)

    def is_fixed(self, item: Item, name: str) -> bool:
        return item.kind in _CREATE and name in (*FIXED, *FIXED_KEPT)

    def effects(self, item: Item, changes: Mapping[str, Any], paths: frozenset[str]) -> Steps[tuple[Effect, ...]]:
        """A forward to an entity that does not exist yet has no effect on messages before the import."""
        known = {n: v for n, v in changes.items() if n not in FORWARDS or v is None or str(v).lower() in paths}
        if item.kind not in _CREATE or not known:
            return ()
        arguments = _arguments(item, known)
        return (yield from preview.preview.steps(self.address(item.path), **arguments, actor=self.actor)).effects

    def create(self, item: Item) -> Steps[Mapping[str, Any]]:
        address = self.address(item.path)
        if item.kind == POLICY:
            yield from shared_access.create_policy.steps(
                address if item.path else self.namespace, item.name, **item.values, **item.secrets, actor=self.actor
            )
            return {}
        if item.kind == RULE:
            yield from entities.create_rule.steps(address, self._rule(item), actor=self.actor)
            return {}
        forwards = {name: value for name, value in item.values.items() if name in FORWARDS and value is not None}
        settings = _arguments(item, {name: value for name, value in item.values.items() if name not in FORWARDS})
        yield from _CREATE[item.kind].steps(address, **settings, actor=self.actor)
        if item.kind == EntityKind.SUBSCRIPTION:
            yield from entities.delete_rule.steps(address, DEFAULT_RULE_NAME, actor=self.actor)
        return forwards

    def change(self, item: Item, changes: Mapping[str, Any]) -> Steps[None]:
        address = self.address(item.path)
        if item.kind == POLICY:
            scope = address if item.path else self.namespace
            yield from shared_access.update_policy.steps(scope, item.name, **item.values, actor=self.actor)
        elif item.kind == RULE:
            yield from entities.update_rule.steps(address, self._rule(item), actor=self.actor)
        else:
            yield from entities.update_entity.steps(address, **_arguments(item, changes), actor=self.actor)

    @staticmethod
    def _rule(item: Item) -> Any:
        return rule_from_json({"name": item.name, **item.values})
