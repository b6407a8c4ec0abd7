"""Parsing and formatting of RabbitMQ's definitions.json (RMQ-378, RMQ-379).

Parsing reports every problem with its path in the file and omits invalid objects. Unsupported objects (users, permissions,
most parameters) are reported with the reason. Does not depend on what is stored: the import compares objects with existing
ones.

JSON has no argument types: a whole number is read as signedint, or as long if it does not fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from broker_core.common.errors import InvalidArgument

from . import arguments, names, policies
from .arguments import MAX_EXPIRY, ExchangeDef, QueueDef
from .errors import AmqpError, InvalidPolicy
from .exchanges import PREDECLARED, BindingDef
from .policies import Policy
from .table import encode, plain

OPERATOR_POLICY = "operator_policy"
FILE = "(file)"

_SYSTEM_TYPES = {exchange.name: str(exchange.type) for exchange in PREDECLARED}
_VERSIONS = ("rabbit_version", "rabbitmq_version", "product_name", "product_version", "rabbitmq_definition_format", "explanation")
_NOT_TAKEN = {  # by section: the member that names an entry, and why it is ignored
    "users": ("name", "Vitrine's users are its own"),
    "permissions": ("user", "Vitrine's rights are its own"),
    "topic_permissions": ("user", "Vitrine's rights are its own"),
    "global_parameters": ("name", "it is about a RabbitMQ cluster"),
}
_TTL_KEYS = ("message-ttl", "expires")


@dataclass(frozen=True, slots=True)
class Note:
    """A problem or warning about a location in the file, or why an object is ignored."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class VhostItem:
    """path, here and below: the location in the file."""

    name: str
    description: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeItem:
    vhost: str
    exchange: ExchangeDef
    path: str = ""


@dataclass(frozen=True, slots=True)
class QueueItem:
    vhost: str
    queue: QueueDef
    path: str = ""


@dataclass(frozen=True, slots=True)
class BindingItem:
    vhost: str
    binding: BindingDef
    path: str = ""


@dataclass(frozen=True, slots=True)
class PolicyItem:
    """A policy or an operator policy."""

    vhost: str
    policy: Policy
    path: str = ""


@dataclass(slots=True)
class Definitions:
    """The content of a file, in declaration order. problems: omitted objects. warnings: changed objects."""

    vhosts: list[VhostItem] = field(default_factory=list)
    policies: list[PolicyItem] = field(default_factory=list)
    queues: list[QueueItem] = field(default_factory=list)
    exchanges: list[ExchangeItem] = field(default_factory=list)
    bindings: list[BindingItem] = field(default_factory=list)
    problems: list[Note] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)
    not_taken: list[Note] = field(default_factory=list)


def parse(document: Any, *, vhost: str | None = None) -> Definitions:
    """Parse a definitions file. Raises nothing: see Definitions.problems.

    document: the file's text or its parsed JSON. vhost: for objects that name none, as in the export of one host.
    """
    if isinstance(document, str | bytes):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as exc:
            return Definitions(problems=[Note(FILE, f"is not valid JSON: {exc}")])
    return _Reader(vhost).read(document)


class _Reader:
    """Parses one document."""

    def __init__(self, vhost: str | None):
        self.vhost = vhost
        self.definitions = Definitions()
        self.seen: dict[tuple, str] = {}
        self.types: dict[tuple[str, str], str] = {}  # of exchanges, by virtual host and name

    def read(self, document: Any) -> Definitions:
        if not isinstance(document, Mapping):
            self._problem(FILE, "must be a JSON object")
            return self.definitions
        readers: dict[str, Callable[[Mapping, str], None]] = {
            "vhosts": self._vhost,
            "parameters": self._parameter,
            "policies": self._policy,
            "queues": self._queue,
            "exchanges": self._exchange,
            "bindings": self._binding,
        }
        for section, reader in readers.items():
            for item, path in self._items(document, section):
                try:
                    reader(item, path)
                except _Skip as skip:
                    self._problem(skip.path, skip.text)
        for section, (name, why) in _NOT_TAKEN.items():
            for item, path in self._items(document, section):
                self.definitions.not_taken.append(Note(path, f"{item.get(name)!r} was ignored: {why}"))
        for key in document.keys() - readers.keys() - _NOT_TAKEN.keys() - set(_VERSIONS):
            self.definitions.warnings.append(Note(str(key), "is unknown and was ignored"))
        return self.definitions

    def _vhost(self, item: Mapping, path: str) -> None:
        name = self._text(item, path, "name")
        try:
            names.check_vhost_name(name)
        except InvalidArgument as exc:
            raise _Skip(f"{path}.name", exc.problem) from exc
        self._once(path, "virtual host", name)
        description = item.get("description")
        self.definitions.vhosts.append(VhostItem(name, description if isinstance(description, str) else "", path))

    def _queue(self, item: Mapping, path: str) -> None:
        vhost, name = self._vhost_of(item, path), self._name(item, path)
        queue_arguments = self._arguments(item, path)
        durable = self._flag(item, path, "durable", True)
        auto_delete = self._flag(item, path, "auto_delete", False)
        requested_type = self._text(item, path, "type") if "type" in item else None
        try:
            names.check_new_queue_name(name)
            kind = arguments.check_queue(
                vhost,
                name,
                type=requested_type,
                durable=durable,
                exclusive=False,
                auto_delete=auto_delete,
                arguments=queue_arguments,
            )
        except AmqpError as exc:
            raise _Skip(_path_of(path, exc), exc.text) from exc
        self._once(path, "queue", vhost, name)
        queue = QueueDef(name, kind, durable, auto_delete, arguments=queue_arguments)
        self.definitions.queues.append(QueueItem(vhost, queue, path))

    def _exchange(self, item: Mapping, path: str) -> None:
        vhost, name = self._vhost_of(item, path), self._name(item, path)
        exchange_arguments, kind = self._arguments(item, path), self._text(item, path, "type")
        try:
            arguments.check_exchange(vhost, name, kind, exchange_arguments, exists=name in _SYSTEM_TYPES)
        except AmqpError as exc:
            raise _Skip(_path_of(path, exc), exc.text) from exc
        durable, auto_delete = self._flag(item, path, "durable", True), self._flag(item, path, "auto_delete", False)
        internal = self._flag(item, path, "internal", False)
        self._once(path, "exchange", vhost, name)
        self.types[vhost, name] = kind
        self.definitions.exchanges.append(
            ExchangeItem(vhost, ExchangeDef(name, kind, durable, auto_delete, internal, exchange_arguments), path)
        )

    def _binding(self, item: Mapping, path: str) -> None:
        vhost = self._vhost_of(item, path)
        source, destination = self._text(item, path, "source"), self._text(item, path, "destination")
        to = self._text(item, path, "destination_type") if "destination_type" in item else "queue"
        if to not in ("queue", "exchange"):
            raise _Skip(f"{path}.destination_type", f"{to!r} must be 'queue' or 'exchange'")
        key = self._text(item, path, "routing_key") if "routing_key" in item else ""
        binding_arguments = self._arguments(item, path)
        try:
            arguments.check_not_default_exchange(source)
            kind = self.types.get((vhost, source)) or _SYSTEM_TYPES.get(source)
            if kind:
                arguments.check_binding_arguments(kind, binding_arguments)
        except AmqpError as exc:
            raise _Skip(f"{path}.arguments" if source else f"{path}.source", exc.text) from exc
        self.definitions.bindings.append(
            BindingItem(vhost, BindingDef(source, destination, to == "queue", key, binding_arguments), path)
        )

    def _parameter(self, item: Mapping, path: str) -> None:
        component = self._text(item, path, "component")
        if component == OPERATOR_POLICY:
            self._add_policy(item, item.get("value"), path, f"{path}.value", is_operator=True)
        else:
            self.definitions.not_taken.append(
                Note(path, f"the parameter {item.get('name')!r} was ignored: Vitrine has no {component!r}")
            )

    def _policy(self, item: Mapping, path: str) -> None:
        rest = {key: value for key, value in item.items() if key not in ("vhost", "name")}
        self._add_policy(item, rest, path, path, is_operator=False)

    def _add_policy(self, item: Mapping, value: Any, path: str, inside: str, *, is_operator: bool) -> None:
        vhost, name = self._vhost_of(item, path), self._text(item, path, "name")
        try:
            policy = policies.parse(name, self._clamped(value, inside), is_operator=is_operator)
        except InvalidPolicy as exc:
            raise _Skip(_path_of_policy(path, inside, exc.field), exc.reason) from exc
        self._once(path, "operator policy" if is_operator else "policy", vhost, name)
        self.definitions.policies.append(PolicyItem(vhost, policy, path))

    def _clamped(self, value: Any, path: str) -> Any:
        """RabbitMQ does not check an upper bound of these: a file may exceed the limit (RMQ-918)."""
        definition = value.get("definition") if isinstance(value, Mapping) else None
        if not isinstance(definition, Mapping):
            return value
        changed = {key: MAX_EXPIRY for key in _TTL_KEYS if isinstance(n := definition.get(key), int) and n > MAX_EXPIRY}
        for key in changed:
            text = f"{definition[key]} is lowered to {MAX_EXPIRY}, which is ten years"
            self.definitions.warnings.append(Note(f"{path}.definition.{key}", text))
        return {**value, "definition": {**definition, **changed}}

    # Members

    def _items(self, document: Mapping, section: str) -> Iterable[tuple[Mapping, str]]:
        items = document.get(section, [])
        if not isinstance(items, list):
            self._problem(section, "must be a list")
            return
        for i, item in enumerate(items):
            path = f"{section}[{i}]"
            if isinstance(item, Mapping):
                yield item, path
            else:
                self._problem(path, "must be an object")

    def _vhost_of(self, item: Mapping, path: str) -> str:
        if "vhost" not in item and self.vhost is not None:
            return self.vhost
        return self._text(item, path, "vhost")

    def _name(self, item: Mapping, path: str) -> str:
        name = self._text(item, path, "name")
        try:
            cleaned = names.clean(name)
        except InvalidArgument as exc:
            raise _Skip(f"{path}.name", exc.problem) from exc
        if not cleaned:
            raise _Skip(f"{path}.name", "must not be empty")
        return cleaned

    def _text(self, item: Mapping, path: str, member: str) -> str:
        value = item.get(member)
        if not isinstance(value, str):
            raise _Skip(f"{path}.{member}", "is missing" if member not in item else f"must be a string, not {value!r}")
        if "\x00" in value:
            raise _Skip(f"{path}.{member}", "contains a NUL character, which cannot be stored")
        return value

    @staticmethod
    def _flag(item: Mapping, path: str, member: str, default: bool) -> bool:
        value = item.get(member, default)
        if not isinstance(value, bool):
            raise _Skip(f"{path}.{member}", f"must be true or false, not {value!r}")
        return value

    @staticmethod
    def _arguments(item: Mapping, path: str) -> dict[str, Any]:
        value = item.get("arguments", {})
        if value == []:  # RabbitMQ's HTTP API writes an empty table as a list
            value = {}
        if not isinstance(value, Mapping):
            raise _Skip(f"{path}.arguments", f"must be an object, not {value!r}")
        try:
            encode(value, "argument")
        except InvalidArgument as exc:
            raise _Skip(f"{path}.arguments", str(exc)) from exc
        return dict(value)

    def _once(self, path: str, *identity: str) -> None:
        first = self.seen.setdefault(identity, path)
        if first != path:
            raise _Skip(path, f"the {identity[0]} {identity[-1]!r} appears twice, first at {first}")

    def _problem(self, path: str, text: str) -> None:
        self.definitions.problems.append(Note(path, text))


class _Skip(Exception):
    """An object that is omitted."""

    def __init__(self, path: str, text: str):
        super().__init__(text)
        self.path, self.text = path, text


def _path_of(path: str, error: AmqpError) -> str:
    if error.argument is not None:
        return f"{path}.arguments.{error.argument}"
    return f"{path}.type" if error.reply_name == "COMMAND_INVALID" else path


def _path_of_policy(path: str, inside: str, field: str) -> str:
    """field: as in InvalidPolicy. inside: the path of everything but the name."""
    if field in ("name", "policy"):
        return f"{path}.name" if field == "name" else inside
    is_member = field in ("pattern", "priority", "apply-to", "definition")
    return f"{inside}.{field}" if is_member else f"{inside}.definition.{field}"


# Writing


def format(definitions: Definitions, *, vhost: str | None = None, versions: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON of a definitions file. vhost: export only this host, whose objects then do not name it; None: all hosts.

    Excludes, as RabbitMQ does, exclusive queues, the default exchange, exchanges named `amq.`, and bindings of excluded
    objects. versions: members such as "rabbitmq_version".
    """

    def is_included(item: Any) -> bool:
        return vhost is None or item.vhost == vhost

    def named(item: Any) -> dict[str, str]:
        return {} if vhost is not None else {"vhost": item.vhost}

    queues = [item for item in definitions.queues if is_included(item) and item.queue.owner_id is None]
    exclusive = {(item.vhost, item.queue.name) for item in definitions.queues if item.queue.owner_id is not None}
    document: dict[str, Any] = dict(versions or {})
    if vhost is None:
        document |= {"users": [], "vhosts": [_vhost_json(item) for item in definitions.vhosts], "permissions": []}
        document |= {"topic_permissions": [], "global_parameters": []}
    owned = [item for item in definitions.policies if is_included(item)]
    document["parameters"] = [_operator_json(item) for item in owned if item.policy.is_operator]
    document["policies"] = [_policy_json(item) for item in owned if not item.policy.is_operator]
    document["queues"] = [_queue_json(item.queue) | named(item) for item in queues]
    document["exchanges"] = [
        _exchange_json(item.exchange) | named(item)
        for item in definitions.exchanges
        if is_included(item) and item.exchange.name and not item.exchange.name.startswith(names.RESERVED)
    ]
    document["bindings"] = [
        _binding_json(item.binding) | named(item)
        for item in definitions.bindings
        if is_included(item)
        and item.binding.source
        and not (item.binding.destination_is_queue and (item.vhost, item.binding.destination) in exclusive)
    ]
    return document


def _vhost_json(item: VhostItem) -> dict[str, Any]:
    return {"name": item.name} | ({"description": item.description} if item.description else {})


def _queue_json(queue: QueueDef) -> dict[str, Any]:
    queue_arguments = _json(queue.arguments)
    if queue.type != arguments.queue_type(None, queue.arguments):
        queue_arguments["x-queue-type"] = queue.type
    return {"name": queue.name, "durable": queue.durable, "auto_delete": queue.auto_delete, "arguments": queue_arguments}


def _exchange_json(exchange: ExchangeDef) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "type": str(exchange.type),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": _json(exchange.arguments),
    }


def _binding_json(binding: BindingDef) -> dict[str, Any]:
    return {
        "source": binding.source,
        "destination": binding.destination,
        "destination_type": "queue" if binding.destination_is_queue else "exchange",
        "routing_key": binding.routing_key,
        "arguments": _json(binding.arguments),
    }


def _policy_json(item: PolicyItem) -> dict[str, Any]:
    return {"vhost": item.vhost, "name": item.policy.name, **_policy_value(item.policy)}


def _operator_json(item: PolicyItem) -> dict[str, Any]:
    value = _policy_value(item.policy)
    return {"component": OPERATOR_POLICY, "vhost": item.vhost, "name": item.policy.name, "value": value}


def _policy_value(policy: Policy) -> dict[str, Any]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": dict(policy.definition),
    }


def _json(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table as JSON: timestamps as seconds, bytes as text, decimals as numbers, numbers that are not finite as text."""
    return {name: _json_value(value) for name, value in plain(table).items()}


def _json_value(value: Any) -> Any:
    match value:
        case datetime():
            return int(value.timestamp())
        case bytes():
            return value.decode("latin-1")
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal():
            return float(value)
        case dict():
            return {name: _json_value(v) for name, v in value.items()}
        case list():
            return [_json_value(v) for v in value]
    return value
