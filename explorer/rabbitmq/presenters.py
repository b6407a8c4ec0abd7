"""How a virtual host's facts are put for a reader: features in short words, arguments, deaths. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from broker_core.rabbitmq.rules import table
from explorer.rabbitmq.forms.keys import BY_ARGUMENT, BY_POLICY, KEYS, shown

REASONS = {
    "expired": "expired",
    "rejected": "a consumer rejected it",
    "maxlen": "the queue was full",
    "delivery_limit": "its delivery limit was reached",
}


@dataclass(frozen=True, slots=True)
class Tag:
    """A feature in a short word, as RabbitMQ's own lists have it; `title` says it in full."""

    word: str
    title: str

    @property
    def name(self) -> str:
        """What the short word stands for."""
        return self.title.partition(":")[0]


def legend(features: Iterable[Sequence[Tag]]) -> list[tuple[str, str]]:
    """Each short word among a list's features with what it stands for, as they first come."""
    return list({tag.word: tag.name for tags in features for tag in tags}.items())


@dataclass(frozen=True, slots=True)
class Argument:
    """name: as declared. value: for a reader; kind: its type in a field table."""

    name: str
    value: str
    kind: str


@dataclass(frozen=True, slots=True)
class Death:
    """An entry of x-death: from which queue a message died, why, and how often. at: of the first time; None: it tells none."""

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
    """What a queue is declared as and what is in force for it, whether by argument or policy."""
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
            tags.append(Tag(key.tag, f"{key.label}: {shown(key, value)}"))
    others = [name for name in options.get("arguments", {}) if name not in BY_ARGUMENT and name != "x-queue-type"]
    return [*tags, *([Tag("Args", f"Other arguments: {', '.join(others)}")] if others else [])]


def exchange_features(exchange: Any) -> list[Tag]:
    """exchange: with durable, auto_delete, internal, arguments, effective."""
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
    """Arguments (decoded, see rabbitmq.rules.table) for a reader, by name."""
    return [Argument(name, _argument(name, value), kind) for name, (kind, value) in _typed(values)]


def _typed(values: Mapping[str, Any]) -> list[tuple[str, tuple[str, Any]]]:
    return [(name, table.typed(values[name])) for name in sorted(values)]


def _argument(name: str, value: Any) -> str:
    value = table.plain(value)
    if value is None:
        return "(present)"
    return shown(BY_ARGUMENT.get(name), value)


def definition(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """A policy's definition: each key, its value for a reader, and what it means."""
    found = [(name, BY_POLICY.get(name), value) for name, value in values.items()]
    return [(name, shown(key, value), key.meaning if key else "") for name, key, value in found]


def headers(stored: Mapping[str, Any]) -> list[Argument]:
    """Headers as published, without what `deaths` shows."""
    return [
        Argument(name, "(no value)" if value is None else str(table.plain(value)), kind)
        for name, (kind, value) in _typed(table.decode(stored))
        if name != "x-death"
    ]


def published_headers(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Headers as plain values, without those that the broker adds to dead letters."""
    own = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count")
    return {name: table.plain(value) for name, value in table.decode(stored).items() if not name.startswith(own)}


def properties(of: Any) -> list[tuple[str, str]]:
    """A message's basic properties, present ones only, by name."""
    names = (field.name for field in fields(of) if field.name != "headers")
    found = [(name.replace("_", " "), getattr(of, name)) for name in names]
    return [(name, str(value)) for name, value in found if value is not None]


def deaths(stored: Any) -> list[Death]:
    """The x-death header as stored: oldest death first. A header that has another shape is no list of deaths."""
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
