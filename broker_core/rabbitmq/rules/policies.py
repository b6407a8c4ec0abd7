"""Policies and operator policies: validation, selection, and the resulting effective settings.

Error texts are RabbitMQ's. Rules RMQ-200 to RMQ-211, RMQ-370 to RMQ-377, RMQ-904, RMQ-917, RMQ-918. Does not depend on what is
stored, and does not know how a change affects messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from broker_core.common.arguments import is_storable

from . import patterns
from .arguments import ALTERNATE_EXCHANGE, CLASSIC, MAX_EXPIRY, OVERFLOWS, QUEUE_MODES, QUEUE_VERSIONS, QUORUM, STRATEGIES
from .erlang import term
from .errors import InvalidPolicy
from .table import plain

Arguments = Mapping[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})

_LARGEST = sys.float_info.max
QUORUM_DELIVERY_LIMIT = 20  # default of quorum queues (RMQ-910)


class ObjectType(StrEnum):
    QUEUE = "queue"
    EXCHANGE = "exchange"


APPLY_TO = ("queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all")


@dataclass(frozen=True, slots=True)
class Policy:
    """A stored policy. priority: may be fractional. definition: JSON values by key."""

    name: str
    pattern: str
    definition: Mapping[str, Any]
    apply_to: str = "all"
    priority: int | float = 0
    is_operator: bool = False

    def applies_to(self, name: str, object_type: str, queue_type: str | None = None) -> bool:
        """Whether it can apply to this object: by type, by the keys the type supports, and by name (RMQ-210)."""
        if not _types_fit(self.apply_to, object_type, queue_type):
            return False
        if not _UNFIT.get(queue_type or "", frozenset()).isdisjoint(self.definition):
            return False
        return patterns.matches(self.pattern, name)


def _types_fit(apply_to: str, object_type: str, queue_type: str | None) -> bool:
    if object_type == ObjectType.EXCHANGE:
        return apply_to in ("exchanges", "all")
    return apply_to in ("queues", "all") or apply_to == f"{queue_type}_queues"


# Validation


def parse(name: str, document: Any, *, is_operator: bool = False) -> Policy:
    """A policy from its JSON form, {"pattern": .., "definition": .., "apply-to": .., "priority": ..}. Raises InvalidPolicy."""
    if not isinstance(document, Mapping):
        raise InvalidPolicy("policy", f"must be an object, not {term(document)}")
    missing = [key for key in ("pattern", "definition") if key not in document]
    if missing:
        raise InvalidPolicy(missing[0], "[" + ",".join(f"{{key_missing,{key}}}" for key in missing) + "]")
    apply_to, priority = document.get("apply-to", "all"), document.get("priority", 0)
    return check(Policy(name, document["pattern"], document["definition"], apply_to, priority, is_operator))


def check(policy: Policy) -> Policy:
    """The policy, validated. Raises InvalidPolicy for the first problem."""
    if not isinstance(policy.name, str) or not policy.name or not is_storable(policy.name) or len(policy.name.encode()) > 255:
        raise InvalidPolicy("name", f"name should be a text of 1 to 255 bytes, actually was {term(policy.name)}")
    if not isinstance(policy.is_operator, bool):
        raise InvalidPolicy("operator", f"operator should be true or false, actually was {policy.is_operator!r:.80}")
    _check_definition(policy.definition, OPERATOR_KEYS if policy.is_operator else KEYS)
    if policy.apply_to not in APPLY_TO:
        choices = ", ".join(f"'{choice}'" for choice in APPLY_TO[:-1])
        raise InvalidPolicy("apply-to", f"apply-to '{policy.apply_to}' unrecognised; should be one of: {choices}, or 'all'")
    _check_pattern(policy.pattern)
    if not _is_finite(policy.priority):
        reason = f"priority should be a number, actually was {term(policy.priority)}"
        raise InvalidPolicy("priority", reason, advice="Enter a number such as 0 or 10; the highest priority wins.")
    return policy


def _is_finite(number: Any) -> bool:
    """Whether it is a number that can be stored exactly: within the range of a double, not NaN or infinite."""
    return isinstance(number, int | float) and not isinstance(number, bool) and -_LARGEST <= number <= _LARGEST


def _check_pattern(pattern: Any) -> None:
    if not isinstance(pattern, str) or not is_storable(pattern):
        raise InvalidPolicy("pattern", f"pattern should be a binary but was {term(pattern)}")
    patterns.check(pattern)


def _check_definition(definition: Any, known: Mapping[str, _Key]) -> None:
    if not isinstance(definition, Mapping):
        raise InvalidPolicy("definition", f"parse error while reading policy: {term(definition)}")
    if not definition:
        raise InvalidPolicy("definition", "no policy provided", advice="Enter at least one value.")
    unknown = sorted(((key, value) for key, value in definition.items() if key not in known), key=lambda item: str(item[0]))
    if unknown:
        reason = f"{term(unknown)} are not recognised policy settings"
        raise InvalidPolicy("definition", reason, advice=f"Remove these keys. Accepted are: {', '.join(sorted(known))}.")
    for key, value in definition.items():
        if not known[key].accepts(value):
            raise InvalidPolicy(key, f"{term(value)} is not a valid {known[key].called}", advice=known[key].advice)


def _whole(least: int, most: int = 2**63 - 1) -> Callable[[Any], bool]:
    """most: the range of an argument of type long."""
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and least <= v <= most


def _among(*allowed: Any) -> Callable[[Any], bool]:
    return lambda v: not isinstance(v, bool) and v in allowed


def _text(value: Any) -> bool:
    return isinstance(value, str) and is_storable(value)


def _anything(value: Any) -> bool:
    """Any JSON value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of definitions. called: its name in error texts. argument: the corresponding queue argument, if any."""

    called: str
    accepts: Callable[[Any], bool]
    argument: str | None = None
    advice: str = ""


def _queue_key(key: str, called: str, accepts: Callable[[Any], bool], advice: str = "") -> tuple[str, _Key]:
    return key, _Key(called, accepts, f"x-{key}", advice)


_NOT_NEGATIVE = "Enter a whole number that is not negative."


# Keys with an effect. The upper bound of a TTL is not checked by RabbitMQ (RMQ-918).
_EFFECTIVE_KEYS = dict(
    [
        _queue_key(
            "message-ttl", "message TTL", _whole(0, MAX_EXPIRY), f"{_NOT_NEGATIVE[:-1]}: milliseconds, at most {MAX_EXPIRY}."
        ),
        _queue_key(
            "expires", "queue expiry", _whole(1, MAX_EXPIRY), f"Enter a whole number of milliseconds from 1 to {MAX_EXPIRY}."
        ),
        _queue_key("max-length", "maximum length", _whole(0), _NOT_NEGATIVE),
        _queue_key("max-length-bytes", "maximum length in bytes", _whole(0), _NOT_NEGATIVE),
        _queue_key("overflow", "overflow value", _among(*OVERFLOWS), f"Choose {', '.join(OVERFLOWS)}."),
        _queue_key("dead-letter-exchange", "dead letter exchange name", _text),
        _queue_key("dead-letter-routing-key", "dead letter routing key", _text),
        _queue_key("dead-letter-strategy", "dead letter strategy", _among(*STRATEGIES), f"Choose {' or '.join(STRATEGIES)}."),
        _queue_key("delivery-limit", "delivery limit", _whole(0), _NOT_NEGATIVE),
        _queue_key("consumer-timeout", "consumer timeout", _whole(0), _NOT_NEGATIVE),
        (ALTERNATE_EXCHANGE, _Key("alternate exchange name", _text, ALTERNATE_EXCHANGE)),
    ]
)
_MIRRORING = ("ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure")
# Keys that are accepted and stored without effect: they concern RabbitMQ's clusters, disks or streams.
_STORED_KEYS = {
    "queue-mode": _Key("queue-mode value", _among(*QUEUE_MODES), "x-queue-mode"),
    "queue-version": _Key("queue-version value", _among(*QUEUE_VERSIONS), "x-queue-version"),
    "max-in-memory-length": _Key("maximum memory in bytes", _whole(0)),
    "max-in-memory-bytes": _Key("maximum memory in bytes", _whole(0)),
    "max-age": _Key("max age", _text),
    "stream-max-segment-size-bytes": _Key("segment size", _whole(0)),
    "initial-cluster-size": _Key("cluster size", _whole(0)),
    "target-group-size": _Key("target group size", _whole(0)),
    "queue-leader-locator": _Key("queue leader locator value", _text),
    "queue-master-locator": _Key("master locator", _text),
    "federation-upstream": _Key("upstream", _text),
    "federation-upstream-set": _Key("upstream set", _text),
    **dict.fromkeys(_MIRRORING, _Key("mirroring setting", _anything)),
}
KEYS: Mapping[str, _Key] = MappingProxyType(_EFFECTIVE_KEYS | _STORED_KEYS)
# Keys of operator policies, of RabbitMQ 3.10 and later (RMQ-203).
OPERATOR_KEYS: Mapping[str, _Key] = MappingProxyType(
    {
        key: KEYS[key]
        for key in (
            *("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"),
            *("max-in-memory-length", "max-in-memory-bytes"),
            *("overflow", "queue-version", "target-group-size"),
        )
    }
)
# A policy with a key that a queue type does not support does not apply to queues of that type.
_STREAM_ONLY = ("max-age", "stream-max-segment-size-bytes", "initial-cluster-size")
_UNFIT = {
    CLASSIC: frozenset({*_STREAM_ONLY, "delivery-limit", "dead-letter-strategy"}),
    QUORUM: frozenset({*_STREAM_ONLY, "queue-mode", "queue-master-locator", *_MIRRORING}),
}

MINIMUM = frozenset(
    {
        *("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit", "consumer-timeout"),
        *("max-in-memory-length", "max-in-memory-bytes"),
    }
)
MAXIMUM = frozenset({"target-group-size"})  # between two policies


# Selection


def select(
    policies: Iterable[Policy], name: str, object_type: str, queue_type: str | None = None
) -> tuple[Policy | None, Policy | None]:
    """The user policy and the operator policy that apply to an object: each the one of highest priority (RMQ-200, RMQ-204).

    Equal priorities: the lowest name (RMQ-917).
    """
    ranked = sorted(policies, key=_rank)
    user, operator = (
        next((p for p in ranked if p.is_operator is kind and p.applies_to(name, object_type, queue_type)), None)
        for kind in (False, True)
    )
    return user, operator


def ranking(policies: Iterable[Policy], name: str, object_type: str, queue_type: str | None = None) -> list[Policy]:
    """All policies that match an object, user and operator policies, the effective ones first (RMQ-200)."""
    matching = [policy for policy in policies if policy.applies_to(name, object_type, queue_type)]
    return sorted(matching, key=_rank)


def _rank(policy: Policy) -> tuple[float, str]:
    return -policy.priority, policy.name


# Effective settings


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value for a key and its source: "argument", "policy P", "operator policy P" or "default"."""

    source: str
    value: Any
    wins: bool = False


@dataclass(frozen=True, slots=True)
class EffectiveArguments:
    """Effective settings and their sources.

    values:     by name as in entity.effective: "message_ttl", "dead_letter_exchange"; only those that are set. Includes the
    names of the policies, "policy" and "operator_policy".
    sources:    the source of each value.
    candidates: all values that were given for each key, the effective one first.
    definition: the two policies merged, without arguments: the management API's effective_policy_definition (RMQ-206).
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    candidates: dict[str, tuple[Candidate, ...]] = field(default_factory=dict)
    definition: dict[str, Any] = field(default_factory=dict)


ARGUMENT, DEFAULT = "argument", "default"
# Settings that policies cannot change (RMQ-162).
_ARGUMENTS_ONLY = {"x-max-priority": "max_priority", "x-single-active-consumer": "single_active_consumer"}


def effective_queue(
    arguments: Arguments, user: Policy | None = None, operator: Policy | None = None, *, queue_type: str = CLASSIC
) -> EffectiveArguments:
    """The effective settings of a queue (RMQ-202, RMQ-205, RMQ-904): for numbers the minimum; otherwise the argument, else the
    operator policy, else the policy. arguments: decoded and valid.

    A delivery limit below 0 means no limit (RMQ-341); a quorum queue without a setting has 20 (RMQ-910).
    """
    keys = {key: known.argument for key, known in _EFFECTIVE_KEYS.items() if key != ALTERNATE_EXCHANGE}
    effective = _merged(keys, arguments, user, operator)
    for argument, name in _ARGUMENTS_ONLY.items():
        if argument in arguments:
            _put(effective, name, [Candidate(ARGUMENT, plain(arguments[argument]), wins=True)])
    if queue_type == QUORUM and "delivery_limit" not in effective.values and "x-delivery-limit" not in arguments:
        _put(effective, "delivery_limit", [Candidate(DEFAULT, QUORUM_DELIVERY_LIMIT, wins=True)])
    return effective


def effective_exchange(arguments: Arguments, user: Policy | None = None, operator: Policy | None = None) -> EffectiveArguments:
    """The effective settings of an exchange: its alternate exchange, by argument or else by policy (RMQ-316)."""
    return _merged({ALTERNATE_EXCHANGE: ALTERNATE_EXCHANGE}, arguments, user, operator)


def merged_definition(user: Policy | None, operator: Policy | None) -> dict[str, Any]:
    """The two applicable policies, merged (RMQ-202, RMQ-203, RMQ-206)."""
    of_user, of_operator = (policy.definition if policy else NOTHING for policy in (user, operator))
    both = {key: _of_both(key, of_user[key], of_operator[key]) for key in of_user.keys() & of_operator.keys()}
    return dict(sorted({**of_user, **of_operator, **both}.items()))


def _of_both(key: str, users: Any, operators: Any) -> Any:
    if key in MINIMUM:
        return min(users, operators)
    return max(users, operators) if key in MAXIMUM else operators


def _merged(
    keys: Mapping[str, str | None], arguments: Arguments, user: Policy | None, operator: Policy | None
) -> EffectiveArguments:
    effective = EffectiveArguments(definition=merged_definition(user, operator))
    for key, argument in keys.items():
        candidates = [Candidate(ARGUMENT, plain(arguments[argument]))] if argument is not None and argument in arguments else []
        for policy, source in ((operator, "operator policy"), (user, "policy")):
            if policy and key in policy.definition:
                candidates.append(Candidate(f"{source} {policy.name}", policy.definition[key]))
        if key == "delivery-limit":
            candidates = [c for c in candidates if c.value >= 0]
        if candidates:
            _put(effective, key.replace("-", "_"), _winner_first(key, candidates))
    for policy, name in ((user, "policy"), (operator, "operator_policy")):
        if policy:
            effective.values[name] = policy.name
    return effective


def _winner_first(key: str, candidates: list[Candidate]) -> list[Candidate]:
    """candidates: in order of precedence, which applies unless the minimum does."""
    ranked = sorted(candidates, key=lambda c: c.value) if key in MINIMUM else candidates
    return [Candidate(ranked[0].source, ranked[0].value, wins=True), *ranked[1:]]


def _put(effective: EffectiveArguments, name: str, candidates: list[Candidate]) -> None:
    effective.values[name], effective.sources[name] = candidates[0].value, candidates[0].source
    effective.candidates[name] = tuple(candidates)
