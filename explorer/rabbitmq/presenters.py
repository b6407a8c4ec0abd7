"""Presents features of queues and exchanges, arguments, headers and deaths. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from broker_core.rabbitmq.rules import table
from broker_core.rabbitmq.rules.deaths import is_own
from explorer.rabbitmq.forms.keys import BY_ARGUMENT, BY_POLICY, KEYS, value_text

REASONS = {
    "expired": "expired",
    "rejected": "a consumer rejected it",
    "maxlen": "the queue was full",
    "delivery_limit": "its delivery limit was reached",
}


@dataclass(frozen=True, slots=True)
class Tag:
    """A feature as an abbreviation, as in RabbitMQ's management UI. title: its full text."""

    word: str
    title: str

    @property
    def name(self) -> str:
        """The full name of the abbreviation."""
        return self.title.partition(":")[0]


def legend(features: Iterable[Sequence[Tag]]) -> list[tuple[str, str]]:
    """The abbreviations in a list with their names, in order of first appearance."""
    return list({tag.word: tag.name for tags in features for tag in tags}.items())


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument or header. name: as declared. value: as text. kind: its type in a field table."""

    name: str
    value: str
    kind: str


@dataclass(frozen=True, slots=True)
class Death:
    """An entry of x-death: the queue in which a message died, the reason and count. at: of the first one; None: unknown."""

    queue: str
    reason: str
    because: str
    count: int
    exchange: str
    routing_keys: tuple[str, ...]
    at: datetime | None
    expiration: str

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.queue}: {self.because}{times}"


def queue_features(options: Mapping[str, Any], effective: Mapping[str, Any]) -> list[Tag]:
    """The features that a queue was declared with, and its effective settings from arguments and policies."""
    flags = (
        ("durable", "D", "Durable: survives a restart"),
        ("auto_delete", "AD", "Auto-delete: deleted with its last consumer"),
        ("exclusive", "Excl", "Exclusive: usable only by the connection that declared it, and deleted with it"),
        ("exact_expiry", "Exact", "Exact expiry: each message is removed as soon as it expires"),
    )
    tags = [Tag(word, title) for name, word, title in flags if options.get(name)]
    for key in KEYS:
        value = effective.get(key.effective)
        if key.tag and value is not None and value is not False:
            tags.append(Tag(key.tag, f"{key.label}: {value_text(key, value)}"))
    others = [name for name in options.get("arguments", {}) if name not in BY_ARGUMENT and name != "x-queue-type"]
    return [*tags, *([Tag("Args", f"Other arguments: {', '.join(others)}")] if others else [])]


def exchange_features(exchange: Any) -> list[Tag]:
    """Features of an object with durable, auto_delete, internal, arguments, effective."""
    tags = [
        Tag(word, title)
        for flag, word, title in (
            (exchange.durable, "D", "Durable: survives a restart"),
            (exchange.auto_delete, "AD", "Auto-delete: deleted with its last binding"),
            (exchange.internal, "I", "Internal: receives messages only from other exchanges"),
        )
        if flag
    ]
    alternate = exchange.effective.get("alternate_exchange")
    if alternate is not None:
        tags.append(Tag("AE", f"Alternate exchange: {alternate}"))
    others = [name for name in exchange.arguments if name != "alternate-exchange"]
    return [*tags, *([Tag("Args", f"Other arguments: {', '.join(others)}")] if others else [])]


def arguments(values: Mapping[str, Any]) -> list[Argument]:
    """Decoded arguments (rabbitmq.rules.table) for display, sorted by name."""
    return [Argument(name, _argument(name, value), kind) for name, (kind, value) in _typed(values)]


def _typed(values: Mapping[str, Any]) -> list[tuple[str, tuple[str, Any]]]:
    return [(name, table.typed(values[name])) for name in sorted(values)]


def _argument(name: str, value: Any) -> str:
    value = table.plain(value)
    if value is None:
        return "(present)"
    return value_text(BY_ARGUMENT.get(name), value)


def definition(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """A policy's definition: each key with its value as text and its meaning."""
    entries = [(name, BY_POLICY.get(name), value) for name, value in values.items()]
    return [(name, value_text(key, value), key.meaning if key else "") for name, key, value in entries]


def headers(stored: Mapping[str, Any]) -> list[Argument]:
    """Headers for display, without x-death, which `deaths` shows."""
    return [
        Argument(name, "(no value)" if value is None else str(table.plain(value)), kind)
        for name, (kind, value) in _typed(table.decode(stored))
        if name != "x-death"
    ]


def published_headers(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Headers as plain values, without those that the broker adds when it dead-letters a message."""
    return {name: table.plain(value) for name, value in table.decode(stored).items() if not is_own(name)}


def properties(of: Any) -> list[tuple[str, str]]:
    """The basic properties that a message has."""
    names = (field.name for field in fields(of) if field.name != "headers")
    values = [(name.replace("_", " "), getattr(of, name)) for name in names]
    return [(name, str(value)) for name, value in values if value is not None]


def deaths(stored: Any) -> list[Death]:
    """The deaths in a stored x-death header, oldest first; empty if the header has another structure."""
    if not isinstance(stored, Sequence) or len(stored) != 2 or stored[0] != "array":
        return []
    entries = table.plain(table.decode({"x-death": list(stored)})["x-death"])
    return [_death(entry) for entry in reversed(entries) if isinstance(entry, Mapping)]


def _death(entry: Mapping[str, Any]) -> Death:
    reason, count, keys = entry.get("reason"), entry.get("count"), entry.get("routing-keys")
    return Death(
        queue=str(entry.get("queue", "")),
        reason=str(reason or ""),
        because=REASONS.get(str(reason), str(reason or "unknown")),
        count=count if isinstance(count, int) else 1,
        exchange=str(entry.get("exchange", "")),
        routing_keys=tuple(map(str, keys)) if isinstance(keys, list) else (),
        at=_instant(entry.get("time")),
        expiration=str(entry.get("original-expiration") or ""),
    )


def _instant(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromtimestamp(value, UTC) if isinstance(value, int) else None
    except (OverflowError, ValueError, OSError):
        return None
