"""The keys of the fields of RabbitMQ's lists, as data, and what meets their conditions."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.rabbitmq.rules.arguments import CLASSIC, QUORUM, STREAM
from explorer.frames.vocabulary import Key, Kind, Terms, Vocabulary

from .forms.keys import EXCHANGE_TYPES

_POLICY = Key("policy", "policy, or a part of its name")
COUNTS = ("ready", "unacked", "total", "consumers")

QUEUES = Vocabulary(
    "rabbitmq-queues", "Filter queues", "name", (
        Key("type", "type of queue", Kind.CHOICE, lambda: dict.fromkeys((CLASSIC, QUORUM, STREAM), "type")),
        _POLICY,
        *(Key(name, "number of consumers" if name == "consumers" else f"{name} messages", Kind.NUMBER, example=f"{name}>0")
          for name in COUNTS),
    ),
    example="orders type:quorum ready>0",
)  # fmt: skip
EXCHANGES = Vocabulary(
    "rabbitmq-exchanges", "Filter exchanges", "name", (
        Key("type", "type of exchange", Kind.CHOICE, lambda: dict.fromkeys(EXCHANGE_TYPES, "type")), _POLICY,
    ),
    example="orders type:topic",
)  # fmt: skip


def is_met(terms: Terms, name: str, kind: str, policies: tuple[str | None, ...], counts: Mapping[str, int]) -> bool:
    """Whether a row meets all conditions. kind: its type. policies: the names of those that apply to it. counts: its numbers by
    key."""
    names = [policy.lower() for policy in policies if policy]
    return (
        all(word.lower() in name.lower() for word in terms.words)
        and terms.get("type") in (None, kind)
        and ((part := terms.get("policy")) is None or any(part.lower() in policy for policy in names))
        and all(_is_within(count, terms.get(key)) for key, count in counts.items())
    )


def _is_within(count: int, bounds: tuple[float | None, float | None] | None) -> bool:
    lowest, highest = bounds or (None, None)
    return (lowest is None or lowest <= count) and (highest is None or count <= highest)
