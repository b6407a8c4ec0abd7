"""Routing through exchanges and their bindings (RMQ-300 to RMQ-317, RMQ-350 to RMQ-352).

A Router represents one state of a virtual host's exchanges, bindings and queues and is immutable; the Router of a later state
shares unchanged parts with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from . import errors
from .arguments import ExchangeDef
from .names import DEFAULT_EXCHANGE, DEFAULT_VHOST
from .routing import MATCHERS, Destination, Matcher
from .table import encode

__all__ = ["PREDECLARED", "BindingDef", "ExchangeDef", "ExchangeType", "Routed", "Router", "properties_key"]


class ExchangeType(StrEnum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


# The exchanges of a new virtual host (RMQ-300).
PREDECLARED = (
    ExchangeDef(DEFAULT_EXCHANGE, ExchangeType.DIRECT),
    ExchangeDef("amq.direct", ExchangeType.DIRECT),
    ExchangeDef("amq.fanout", ExchangeType.FANOUT),
    ExchangeDef("amq.topic", ExchangeType.TOPIC),
    ExchangeDef("amq.headers", ExchangeType.HEADERS),
    ExchangeDef("amq.match", ExchangeType.HEADERS),
    ExchangeDef("amq.rabbitmq.trace", ExchangeType.TOPIC, internal=True),
)


@dataclass(frozen=True, slots=True)
class BindingDef:
    """A binding, identified by all its fields (RMQ-350)."""

    source: str
    destination: str
    destination_is_queue: bool = True
    routing_key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Routed(NamedTuple):
    """queues: distinct names, sorted. missing: exchanges on the route that do not exist."""

    queues: tuple[str, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Exchange:
    definition: ExchangeDef
    matcher: Matcher
    alternate: frozenset[Destination]


class Router:
    """Exchanges with their bindings. queue_names: of all queues, for the default exchange (RMQ-305).

    A binding with a missing end is ignored; the default exchange always exists.
    """

    def __init__(
        self,
        exchanges: Iterable[ExchangeDef],
        bindings: Iterable[BindingDef],
        queue_names: Collection[str],
        vhost: str = DEFAULT_VHOST,
    ):
        self._vhost = vhost
        self._queues = queue_names
        self._exchanges = {e.name: _prepared(e) for e in exchanges if e.name != DEFAULT_EXCHANGE}
        for binding in bindings:
            self._add(binding)

    def __contains__(self, exchange: str) -> bool:
        return exchange == DEFAULT_EXCHANGE or exchange in self._exchanges

    def route(
        self, exchange: str, routing_keys: Sequence[str], headers: Mapping[str, Any] | None = None, *, by_broker: bool = False
    ) -> Routed:
        """The distinct queues a publication is routed to (RMQ-314, RMQ-315).

        headers:   decoded, see table.py; the routing keys include those of CC and BCC (see messages.keys_of).
        by_broker: published by the broker, as dead letters are: missing exchanges route to nothing, and internal ones are
        allowed.
        Raises AmqpError for a missing or internal exchange (RMQ-309, RMQ-312).
        """
        if not by_broker:
            self._check_open(exchange)
        if exchange == DEFAULT_EXCHANGE:
            return Routed(tuple(sorted({key for key in routing_keys if key in self._queues})))
        queues: set[str] = set()
        missing: list[str] = []
        seen, todo = {exchange}, [exchange]
        while todo:
            name = todo.pop()
            known = self._exchanges.get(name)
            if known is None:
                missing.append(name)
                continue
            for destination in known.matcher.match(routing_keys, headers or {}) or known.alternate:
                if destination.is_queue:
                    queues.add(destination.name)
                elif destination.name not in seen:
                    seen.add(destination.name)
                    todo.append(destination.name)
        return Routed(tuple(sorted(queues)), tuple(missing))

    def changed(
        self,
        exchanges: Mapping[str, ExchangeDef | None],
        lost: Collection[BindingDef],
        new: Collection[BindingDef],
        queue_names: Collection[str],
    ) -> Router:
        """The Router of a later state; this one is not changed.

        exchanges: changed exchanges by name, None for a deleted one. lost: removed bindings of this router, including all
        those of a deleted end. queue_names: of all queues.
        """
        later = copy(self)
        later._queues, later._exchanges = queue_names, dict(self._exchanges)
        for name in {binding.source for binding in (*lost, *new)} & self._exchanges.keys():
            known = self._exchanges[name]
            later._exchanges[name] = replace(known, matcher=known.matcher.copy())
        for binding in lost:
            matcher = later._exchanges[binding.source].matcher
            matcher.remove(_destination(binding), binding.routing_key, binding.arguments)
        for name, exchange in exchanges.items():
            before = later._exchanges.get(name)
            if exchange is not None:
                later._exchanges[name] = _prepared(exchange, before)
            elif before is not None:
                del later._exchanges[name]
        for binding in new:
            later._add(binding)
        return later

    def _check_open(self, exchange: str) -> None:
        if exchange == DEFAULT_EXCHANGE:
            return
        known = self._exchanges.get(exchange)
        if known is None:
            raise errors.not_found_exchange(self._vhost, exchange)
        if known.definition.internal:
            raise errors.internal_exchange(self._vhost, exchange)

    def _add(self, binding: BindingDef) -> None:
        ends = self._queues if binding.destination_is_queue else self._exchanges
        if binding.source in self._exchanges and binding.destination in ends:
            self._exchanges[binding.source].matcher.add(_destination(binding), binding.routing_key, binding.arguments)


def _destination(binding: BindingDef) -> Destination:
    return Destination(binding.destination, binding.destination_is_queue)


def _prepared(exchange: ExchangeDef, before: _Exchange | None = None) -> _Exchange:
    """before: the exchange that had the name until now; if it is a different exchange, its bindings have been removed."""
    alternate = exchange.alternate_exchange
    destinations = frozenset() if alternate is None else frozenset([Destination(alternate, False)])
    if before is not None and before.definition.type == exchange.type:
        return _Exchange(exchange, before.matcher, destinations)
    return _Exchange(exchange, MATCHERS[exchange.type](), destinations)


def properties_key(routing_key: str, arguments: Mapping[str, Any]) -> str:
    """Identifies a binding among those with the same source and destination (RMQ-351)."""
    if not arguments:
        return routing_key or "~"
    stored = json.dumps(encode(arguments), sort_keys=True, separators=(",", ":"))
    return f"{routing_key}~{hashlib.sha256(stored.encode()).hexdigest()[:22]}"
