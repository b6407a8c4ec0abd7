"""Export and import of a virtual host: exchanges and policies before its queues, bindings after them.

The effective settings of queues and exchanges are recomputed. Excluded: connections, consumers and exclusive queues, which end
with their connection; whether an auto-delete queue had a consumer, so that the copy waits for its first one; and the last use
of a queue, whose expiry restarts as after a node restart (RMQ-047). An unacknowledged message is exported as ready and marked
as redelivered in the copy (RMQ-123), which does not count as a failed delivery. Length limits are not enforced during an
import.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.export_format import part
from broker_core.export_format.lines import Fields, instant, line
from broker_core.export_format.part import ImportedEntity, Item
from broker_core.rabbitmq import policy_preview
from broker_core.rabbitmq.messages.placing import BLIND_KEYS
from broker_core.rabbitmq.policies import apply_policies, set_policy, set_queue_option
from broker_core.rabbitmq.rules.exchanges import PREDECLARED, ExchangeDef
from broker_core.rabbitmq.topology.bindings import bind_exchange, bind_queue
from broker_core.rabbitmq.topology.effective import of_queue, queue_columns
from broker_core.rabbitmq.topology.exchanges import declare_exchange
from broker_core.rabbitmq.topology.queues import declare_queue
from broker_core.rabbitmq.topology.vhosts import LockedVhost, topology_changed
from broker_core.runtime.previews import Effect
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .rules import arguments as checks
from .rules import names, policies, table, wire_table

_PREDECLARED = {exchange.name: exchange for exchange in PREDECLARED if exchange.name}
_ROUTED_BY = ("exchange", "routing_key")
_OPTIONS = ("durable", "auto_delete", "type", "arguments", "retroactive_ttl", "exact_expiry")


def lines_before(namespace_id: int, with_keys: bool) -> Steps:
    lines = [line("exchange", _exchange(row)) for row in (yield call("export_exchanges", namespace_id=namespace_id))]
    for row in (yield call("policies_of", namespace_id=namespace_id)):
        lines.append(line("rabbitmq_policy", {name: getattr(row, name) for name in _POLICY}))
    return lines


def lines_after(namespace_id: int, entity_ids: list[int]) -> Steps[list[str]]:
    """Bindings between exchanges, and to the exported queues."""
    rows = yield call("export_bindings", namespace_id=namespace_id, entity_ids=entity_ids)
    return [line("binding", _binding(row)) for row in rows]


def described(row: Any) -> dict[str, Any]:
    options = {name: row.options[name] for name in _OPTIONS}
    return {"settings": part.own_settings(row), "options": options, "last_activity_at": None, "last_receive_at": None}


def message_fields(row: Any) -> dict[str, Any]:
    return {"priority": row.priority}


_POLICY = ("name", "is_operator", "pattern", "apply_to", "priority", "definition")


def _exchange(row: Any) -> dict[str, Any]:
    lines = {name: getattr(row, name) for name in ("name", "type", "durable", "auto_delete", "internal", "arguments")}
    return {**lines, "created_at": instant(row.created_at)}


def _binding(row: Any) -> dict[str, Any]:
    to_queue = row.queue is not None
    return {
        "source": row.source,
        "destination": row.queue if to_queue else row.exchange,
        "destination_type": "queue" if to_queue else "exchange",
        "routing_key": row.routing_key,
        "arguments": row.arguments,
    }


def _is_table(value: Any) -> bool:
    """Whether it is a stored field table."""
    try:
        return isinstance(value, dict) and table.encode(table.decode(value)) == value
    except (BrokerError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return False


def _is_properties(value: dict) -> bool:
    """Whether these are stored properties: strings, numbers and BCC keys, with exchange and routing key."""
    routed = all(isinstance(value.get(name), str) for name in _ROUTED_BY)
    blind = value.get(BLIND_KEYS, [])
    has_texts = isinstance(blind, list) and all(isinstance(key, str) for key in blind)
    return routed and has_texts and all(isinstance(v, (str, int, float)) for name, v in value.items() if name != BLIND_KEYS)


class Reader(part.Reader):
    """Imports a virtual host; validates exchanges, policies and queues as their use cases do."""

    own_lines = frozenset({"exchange", "rabbitmq_policy", "binding"})
    may_expire_at_once = True  # RMQ-016
    holds_properties = staticmethod(_is_properties)
    holds_application_properties = staticmethod(_is_table)

    def __init__(self, namespace_id: int, name: str, tier: Any):
        super().__init__(namespace_id, name, tier)
        self.exchanges: set[str] = set()
        self.policies: list[policies.Policy] = []
        self.has_priorities = False  # of the current queue

    def line(self, kind: str, content: Fields) -> Steps:
        readers: dict[str, Callable[[Fields], Steps]] = {
            "exchange": self._exchange,
            "rabbitmq_policy": self._policy,
            "binding": self._binding,
        }
        yield from readers[kind](content)
        content.done()

    def entity(self, address: EntityAddress, content: Fields) -> ImportedEntity:
        if not address.path or names.clean(address.path) != address.path:
            content.refuse("path", f"{address.path!r} is not a valid queue name")
        options = self._options(address.path, content.inner("options"))
        self.has_priorities = int(options["arguments"].get("x-max-priority", (None, 0))[1]) > 0
        columns = queue_columns(options, of_queue(address.path, options, self.policies))
        imported = part.queue_of(Family.RABBITMQ, options, columns.pop("effective"), content)
        del columns["options"]
        return replace(imported, columns={**imported.columns, **columns})

    def message(self, content: Fields) -> dict[str, Any]:
        return {"priority": content.whole("priority", optional=True, least=0, most=255)}

    def check_encoded(self, row: Mapping[str, Any], content: Fields) -> None:
        try:
            wire_table.decode(row["encoded"] or b"")
        except InvalidArgument as exc:
            content.refuse("encoded", exc.problem)

    def check_message(self, row: Mapping[str, Any], entity: ImportedEntity, content: Fields) -> None:
        part.only_main_and_active(row, content)
        if row["properties"] is None:
            content.refuse("properties", "is missing: every message has an exchange and a routing key")
        if self.has_priorities and row["priority"] is None:
            content.refuse("priority", "is required for a priority queue")

    def namespace_end(self) -> Steps:
        """Add predeclared exchanges that the file lacks, and compute the effective settings."""
        for name, exchange in _PREDECLARED.items():
            if name not in self.exchanges:
                yield from self._insert_exchange(exchange, None)
        yield from apply_policies(LockedVhost(self.namespace_id, self.name))
        yield from topology_changed(self.namespace_id)

    def _options(self, name: str, options: Fields) -> dict[str, Any]:
        durable, auto_delete = options.flag("durable"), options.flag("auto_delete")
        stored = _table("arguments", options)
        ours = {flag: options.flag(flag) for flag in ("retroactive_ttl", "exact_expiry")}
        type = options.text("type")
        options.done()
        arguments = table.decode(stored)
        checks.check_queue(
            self.name, name, type=type, durable=durable, exclusive=False, auto_delete=auto_delete, arguments=arguments
        )
        fixed = {"durable": durable, "auto_delete": auto_delete, "exclusive": False, "type": type, "arguments": stored}
        return {**fixed, **ours, "had_consumer": False}

    def _exchange(self, content: Fields) -> Steps:
        name = content.text("name")
        exchange = ExchangeDef(
            name,
            content.text("type"),
            durable=content.flag("durable"),
            auto_delete=content.flag("auto_delete"),
            internal=content.flag("internal"),
            arguments=_table("arguments", content),
        )
        checks.check_exchange(self.name, name, exchange.type, table.decode(exchange.arguments), exists=name in _PREDECLARED)
        if names.clean(name) != name:
            content.refuse("name", f"{name!r} is not a valid exchange name")
        if name in _PREDECLARED and exchange.type != _PREDECLARED[name].type:
            content.refuse("type", f"'{name}' is of the type {_PREDECLARED[name].type}")
        if name in self.exchanges:
            content.refuse("name", f"'{name}' appears twice")
        yield from self._insert_exchange(exchange, content.instant("created_at"))

    def _insert_exchange(self, exchange: ExchangeDef, created_at: Any) -> Steps:
        yield call(
            "import_exchange",
            namespace_id=self.namespace_id,
            name=exchange.name,
            type=str(exchange.type),
            durable=exchange.durable,
            auto_delete=exchange.auto_delete,
            internal=exchange.internal,
            arguments=json.dumps(exchange.arguments),
            created_at=created_at,
        )
        self.exchanges.add(exchange.name)

    def _policy(self, content: Fields) -> Steps:
        policy = _read_policy(content)
        self.policies.append(policy)
        (row,) = yield call(
            "put_policy",
            namespace_id=self.namespace_id,
            name=policy.name,
            is_operator=policy.is_operator,
            pattern=policy.pattern,
            apply_to=str(policy.apply_to),
            priority=policy.priority,
            definition=json.dumps(policy.definition),
        )
        if not row.created:
            content.refuse("name", f"'{policy.name}' appears twice")

    def _binding(self, content: Fields) -> Steps:
        source, destination = content.text("source"), content.text("destination")
        to_queue = content.one_of("destination_type", ("queue", "exchange")) == "queue"
        rest = content.text("routing_key"), table.decode(_table("arguments", content))
        bind = (
            bind_queue.steps(self.name, destination, source, *rest)
            if to_queue
            else bind_exchange.steps(self.name, destination, source, *rest)
        )
        if not (yield from bind):
            content.refuse("destination", "repeats a binding of an earlier line")


def _read_policy(content: Fields) -> policies.Policy:
    policy = policies.Policy(
        name=content.text("name"),
        pattern=content.text("pattern"),
        apply_to=content.text("apply_to"),
        priority=content.number("priority", least=-1e9),
        definition=content.mapping("definition"),
        is_operator=content.flag("is_operator"),
    )
    policies.check(policy)
    return policy


def _table(name: str, content: Fields) -> dict[str, Any]:
    """A stored field table."""
    table = content.mapping(name)
    if not _is_table(table):
        content.refuse(name, "must be a table of [type, text] pairs")
    return table


EXCHANGE, POLICY, OPERATOR_POLICY, BINDING = "exchange", "policy", "operator policy", "binding"
ARGUMENT, DEFINITION = "argument ", "definition "  # prefixes of the names of settings
_FLAGS = ("durable", "auto_delete")
_CHANGEABLE = ("retroactive_ttl", "exact_expiry")


class Updater(part.Updater):
    """Changes policies and Vitrine's options of queues, and declares what is missing. Exchanges, bindings and the arguments of
    queues are fixed."""

    own_lines = Reader.own_lines

    def key(self, item: Item) -> tuple:
        """Names are case-sensitive."""
        return item.kind, item.path, item.name

    def entity(self, path: str, content: Fields) -> tuple[str, dict[str, Any]]:
        kind = content.member("kind", [EntityKind.QUEUE])
        options = content.inner("options")
        flags = {name: options.flag(name) for name in (*_FLAGS, *_CHANGEABLE)}
        values = {"type": options.text("type"), **flags, **_arguments(options)}
        options.done()
        return str(kind), values | part.read_own_settings(content)

    def item(self, kind: str, path: str, content: Fields) -> Item:
        if kind == "exchange":
            name = content.text("name")
            content.instant("created_at")
            flags = {flag: content.flag(flag) for flag in (*_FLAGS, "internal")}
            return Item(EXCHANGE, "", name, {"type": content.text("type"), **flags, **_arguments(content)})
        if kind == "rabbitmq_policy":
            policy = _read_policy(content)
            values = {"pattern": policy.pattern, "apply_to": policy.apply_to, "priority": policy.priority}
            definition = {DEFINITION + key: value for key, value in policy.definition.items()}
            return Item(OPERATOR_POLICY if policy.is_operator else POLICY, "", policy.name, values | definition)
        source, destination = content.text("source"), content.text("destination")
        to = content.one_of("destination_type", ("queue", "exchange"))
        key, arguments = content.text("routing_key"), _table("arguments", content)
        name = f"{source} → {to} {destination}, key {key!r}" + (
            f", arguments {json.dumps(arguments, sort_keys=True)}" if arguments else ""
        )
        ends = {"source": source, "destination": destination, "to": to, "routing_key": key}
        return Item(BINDING, "", name, ends | {"arguments": table.decode(arguments)})

    def is_fixed(self, item: Item, name: str) -> bool:
        return item.kind == EXCHANGE or (item.kind == EntityKind.QUEUE and name not in _CHANGEABLE)

    def effects(self, item: Item, changes: Mapping[str, Any], paths: frozenset[str]) -> Steps[tuple[Effect, ...]]:
        """Those of each policy by itself, before others are changed."""
        if item.kind not in (POLICY, OPERATOR_POLICY):
            return ()
        preview = yield from policy_preview.preview_policy.steps(self.namespace, _as_policy(item), actor=self.actor)
        return tuple(effect for queue in preview.queues for effect in queue.effects)

    def create(self, item: Item) -> Steps[Mapping[str, Any]]:
        values, arguments = item.values, _with_prefix(ARGUMENT, item.values)
        if item.kind == EXCHANGE:
            flags = {name: values[name] for name in (*_FLAGS, "internal")}
            yield from declare_exchange.steps(
                self.namespace, item.name, values["type"], **flags, arguments=arguments, actor=self.actor
            )
        elif item.kind == BINDING:
            bind = bind_queue if values["to"] == "queue" else bind_exchange
            ends = values["destination"], values["source"], values["routing_key"], values["arguments"]
            yield from bind.steps(self.namespace, *ends, actor=self.actor)
        elif item.kind == EntityKind.QUEUE:
            part.require_not_hidden(item)
            flags = {name: values[name] for name in ("type", *_FLAGS, "history_level")}
            yield from declare_queue.steps(self.address(item.path), **flags, arguments=arguments, actor=self.actor)
            return {name: values[name] for name in _CHANGEABLE}
        else:
            yield from set_policy.steps(self.namespace, _as_policy(item), actor=self.actor)
        return {}

    def change(self, item: Item, changes: Mapping[str, Any]) -> Steps[None]:
        if item.kind == EntityKind.QUEUE:
            yield from set_queue_option.steps(self.address(item.path), **changes, actor=self.actor)
        else:
            yield from set_policy.steps(self.namespace, _as_policy(item), actor=self.actor)


def _arguments(content: Fields) -> dict[str, Any]:
    return {ARGUMENT + name: value for name, value in table.decode(_table("arguments", content)).items()}


def _with_prefix(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _as_policy(item: Item) -> policies.Policy:
    fields = {name: item.values[name] for name in ("pattern", "apply_to", "priority")}
    definition = _with_prefix(DEFINITION, item.values)
    return policies.Policy(name=item.name, definition=definition, is_operator=item.kind == OPERATOR_POLICY, **fields)
