"""The route of a message published to a topic, and a replay of recent messages with a draft of a rule. Nothing is changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from broker_core.common.errors import EntityNotFound, FilterEvaluationError, InvalidArgument
from broker_core.common.routes import Comparison, Rerouted, RouteStep, StepKind, Verdict, compare
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, Right
from broker_core.reads.entities import now
from broker_core.reads.shared import require
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .entities import get_entity, get_subscription, get_topic, list_subscriptions
from .entities.kinds import Subscription, Topic
from .messages.reading import rules_of
from .rules.amqp.properties import decode_properties
from .rules.filters import MessageView, Rule
from .rules.forwarding import Destination, why_not_forward
from .rules.matching import Copy, RuleIndex, SubscriptionRules
from .rules.messages import prepare
from .rules.values import JSON_PROPERTIES, Message

WINDOW_SECONDS = 3600
MOST_MESSAGES = 10_000  # that are replayed
MOST_EVENTS, RECENT_EVENTS = 300_000, 50_000  # examined to find them; to find some of them
MOST_PUBLICATIONS = 50  # in a route: with forwards in a circle, each may lead to several others
TEXTS = ("subject", "correlation_id", "message_id", "session_id", "content_type", "to", "reply_to", "reply_to_session_id")


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message published to a topic, as recorded, without its body. at: the namespace's clock. copies: that it had then."""

    number: int
    at: datetime
    message: Message
    copies: int


@dataclass(frozen=True, slots=True)
class RuleDraft:
    """A change of a rule. replaces: the name of the rule that it replaces; rule: None: that rule is deleted."""

    subscription: EntityAddress
    replaces: str | None
    rule: Rule | None


class CopyPlace(NamedTuple):
    """Where a copy is stored: a subscription, or its dead-letter queue."""

    subscription: EntityAddress
    is_dead: bool = False

    def __str__(self) -> str:
        return f"{self.subscription}{'/$DeadLetterQueue' if self.is_dead else ''}"


@dataclass(frozen=True, slots=True)
class RuleReplay:
    """Recent messages of a topic, routed by its rules and by a draft. capped: there were more messages."""

    comparison: Comparison[CopyPlace, int]
    capped: bool


@use_case
def published_messages(
    topic: EntityAddress, *, limit: int = 20, max_events: int = RECENT_EVENTS, actor: Actor | None = None
) -> Steps[list[PublishedMessage]]:
    """The newest messages published to a topic in the last WINDOW_SECONDS of real time, newest first, among the newest max_events
    events of all entities.

    Properties of more than 4 KB are not recorded, and missing here. Raises EntityNotFound, InvalidArgument.
    """
    require(actor, Right.BROWSE, topic)
    stored_topic = yield from get_topic.steps(topic, actor=actor)
    rows = yield call("read_published", entity_id=stored_topic.id, seconds=WINDOW_SECONDS, max_events=max_events, max_count=limit)
    return [PublishedMessage(row.sequence_number, row.at, _message(row), row.copies) for row in rows]


@use_case
def replay_rules(topic: EntityAddress, draft: RuleDraft, *, actor: Actor | None = None) -> Steps[RuleReplay]:
    """Route the messages of the last hour by the topic's rules as they are, and with the draft. Forwarding is not followed.

    Raises EntityNotFound, also for a rule that does not exist.
    """
    published = yield from published_messages.steps(topic, limit=MOST_MESSAGES + 1, max_events=MOST_EVENTS, actor=actor)
    existing = yield from _rules(topic, actor)
    drafted = [_drafted(subscription, rules, draft) for subscription, rules in existing]
    messages = published[:MOST_MESSAGES]
    return RuleReplay(compare(_rerouted(messages, existing, drafted)), len(published) > MOST_MESSAGES)


@use_case
def route(topic: EntityAddress, message: Message, *, actor: Actor | None = None) -> Steps[list[RouteStep]]:
    """What would happen to a message published to a topic now: each rule, copy and forward, with its reason (SB-170, SB-211).

    topic: also a subscription, to see only its part. Duplicate detection and the space left are not considered.
    """
    require(actor, Right.BROWSE, topic)
    size = prepare(message).size
    walk = _Walk((yield from now.steps(topic.namespace, actor=actor)).now, actor)
    if topic.topic is None:
        return (yield from walk.topic((yield from get_topic.steps(topic, actor=actor)), message, size, 0, 0))
    subscription = yield from get_subscription.steps(topic, actor=actor)
    stored = yield from rules_of.steps([subscription.id], actor=actor)
    return (yield from walk.subscription(subscription, [entry.rule for entry in stored.get(subscription.id, [])], message, 0, 0))


# Replay


def _message(row: Any) -> Message:
    known = {name: row.properties[name] for name in JSON_PROPERTIES if name in (row.properties or {})}
    properties = decode_properties(row.application_properties or {})
    return Message(message_id=row.message_id, session_id=row.session_id, properties=properties, **known)


def _rules(topic: EntityAddress, actor: Actor | None) -> Steps[list[tuple[Subscription, list[Rule]]]]:
    subscriptions = yield from list_subscriptions.steps(topic, actor=actor)
    stored = yield from rules_of.steps([subscription.id for subscription in subscriptions], actor=actor)
    return [(subscription, [entry.rule for entry in stored.get(subscription.id, [])]) for subscription in subscriptions]


def _drafted(subscription: Subscription, rules: list[Rule], draft: RuleDraft) -> tuple[Subscription, list[Rule]]:
    if subscription.address != draft.subscription:
        return subscription, rules
    remaining = [rule for rule in rules if draft.replaces is None or rule.name.lower() != draft.replaces.lower()]
    if draft.replaces is not None and len(remaining) == len(rules):
        raise EntityNotFound(f"{subscription.address}/Rules/{draft.replaces}")
    if draft.rule is not None and any(rule.name.lower() == draft.rule.name.lower() for rule in remaining):
        raise InvalidArgument("name", f"'{draft.rule.name}' is the name of another rule of this subscription")
    return subscription, [*remaining, *([draft.rule] if draft.rule else [])]


def _index(subscriptions: Sequence[tuple[Subscription, list[Rule]]]) -> RuleIndex:
    return RuleIndex(
        SubscriptionRules(
            subscription.id,
            subscription.settings.requires_session,
            subscription.settings.dead_lettering_on_filter_evaluation_exceptions,
            rules,
        )
        for subscription, rules in subscriptions
    )


def _rerouted(messages: Sequence[PublishedMessage], existing: Sequence, drafted: Sequence) -> Iterator[Rerouted[int]]:
    names = {subscription.id: subscription.address for subscription, _ in existing}
    before, after = _index(existing), _index(drafted)
    for message in messages:
        old, new = (index.match(message.message, enqueued_at=message.at, new_id=uuid4) for index in (before, after))
        yield Rerouted(message.number, _places(old, names), _places(new, names))


def _places(matched: Any, names: dict[int, EntityAddress]) -> dict[CopyPlace, list[Any]]:
    """The copies of a message, each as what an action changed; None: an unchanged copy."""
    copies: dict[CopyPlace, list[Any]] = defaultdict(list)
    for entity_id in matched.plain:
        copies[CopyPlace(names[entity_id])].append(None)
    for copy in matched.changed:
        copies[CopyPlace(names[copy.entity_id], copy.dead_letter_reason is not None)].append(_content(copy))
    return copies


def _content(copy: Copy) -> Any:
    message = copy.message
    return [getattr(message, name) for name in TEXTS], message.properties, message.time_to_live, copy.dead_letter_reason


# The route of one message


class _Walk:
    """Follows a message from topic to topic. now: the namespace's clock. hops: how often the message was forwarded before."""

    def __init__(self, now: datetime, actor: Actor | None):
        self._now, self._actor, self._publications = now, actor, 0

    def topic(self, topic: Topic, message: Message, size: int, depth: int, hops: int) -> Steps[list[RouteStep]]:
        step = RouteStep(depth, StepKind.TOPIC, topic.address.path, Verdict.PASSES, address=topic.address)
        largest = topic.settings.max_message_size_in_kilobytes * 1024
        if topic.settings.status is not EntityStatus.ACTIVE:
            return [step._replace(verdict=Verdict.REFUSED, reason=f"Its status is {topic.settings.status}.")]
        if size > largest:
            reason = f"The message has {size:,} bytes; at most {largest:,} are allowed."
            return [step._replace(verdict=Verdict.REFUSED, reason=reason)]
        self._publications += 1
        if self._publications > MOST_PUBLICATIONS:
            reason = f"What follows is not shown: the route has more than {MOST_PUBLICATIONS} publications."
            return [step._replace(reason=reason)]
        subscriptions = yield from _rules(topic.address, self._actor)
        if not subscriptions:
            return [step._replace(verdict=Verdict.DROPPED, reason="The topic has no subscriptions.")]
        steps = [step]
        for subscription, rules in subscriptions:
            steps += yield from self.subscription(subscription, rules, message, depth + 1, hops)
        return steps

    def subscription(self, source: Subscription, rules: list[Rule], message: Message, depth: int, hops: int) -> Steps:
        """Each rule of the subscription, and the copies that it gets."""
        view = MessageView.of(message, enqueued_at=self._now, new_id=uuid4)
        matched = _index([(source, rules)]).match(message, enqueued_at=self._now, new_id=uuid4)
        step = RouteStep(depth, StepKind.SUBSCRIPTION, source.address.name, Verdict.PASSES, address=source.address)
        decided = [_evaluated(rule, view, depth + 1) for rule in rules]
        copies = [Copy(entity_id, message) for entity_id in matched.plain] + list(matched.changed)
        if not copies:
            reason = "No rule matches." if rules else "It has no rules."
            return [step._replace(verdict=Verdict.NO_COPY, reason=reason), *decided]
        steps = [step, *decided]
        for copy in copies:
            steps += yield from self._copy(source, copy, message, depth + 1, hops)
        return steps

    def _copy(self, subscription: Subscription, copy: Copy, message: Message, depth: int, hops: int) -> Steps[list[RouteStep]]:
        by = f"Modified by rule {copy.rule_name}." if copy.rule_name and not copy.dead_letter_reason else ""
        step = RouteStep(
            depth,
            StepKind.QUEUE,
            subscription.address.name,
            Verdict.STORED,
            by,
            subscription.address,
            tuple(changes(message, copy.message)),
        )
        if copy.dead_letter_reason is not None:
            return [_dead(step, subscription, copy.dead_letter_reason, copy.dead_letter_description or "")]
        if subscription.settings.forward_to is None:
            return [step]
        return (yield from self._forward(subscription, subscription.settings.forward_to, copy.message, step, hops))

    def _forward(self, source: Subscription, path: str, message: Message, step: RouteStep, hops: int) -> Steps[list[RouteStep]]:
        target = yield from self._target(EntityAddress(source.address.namespace, path))
        destination = target and Destination(
            target.address.path,
            target.kind,
            target.settings.status,
            getattr(target.settings, "requires_session", False),
            target.settings.max_message_size_in_kilobytes * 1024,
        )
        size = prepare(message).size
        if refused := why_not_forward(hops, message.session_id, path, destination, size):
            return [_dead(step, source, refused.reason, refused.description)]
        on = step._replace(verdict=Verdict.PASSES, reason=f"{step.reason} Forwards to {target.address.path}.".strip())
        if target.kind is EntityKind.TOPIC:
            return [on, *(yield from self.topic(target, message, size, step.depth + 1, hops + 1))]
        return [on, RouteStep(step.depth + 1, StepKind.QUEUE, target.address.path, Verdict.STORED, address=target.address)]

    def _target(self, address: EntityAddress) -> Steps[Any]:
        """The entity that messages are forwarded to; None: it does not exist."""
        try:
            return (yield from get_entity.steps(address, actor=self._actor))
        except EntityNotFound:
            return None


def _dead(step: RouteStep, source: Subscription, reason: str, description: str) -> RouteStep:
    on = source.settings.forward_dead_lettered_messages_to
    parts = [
        f"{reason.rstrip('.')}: {description}" if description else reason,
        f"Dead letters are forwarded to {on}." if on else "",
    ]
    return step._replace(verdict=Verdict.DEAD, reason=" ".join(part for part in parts if part))


def _evaluated(rule: Rule, view: MessageView, depth: int) -> RouteStep:
    try:
        matches = bool(rule.filter.matches(view))
    except FilterEvaluationError as exc:
        return RouteStep(depth, StepKind.RULE, rule.name, Verdict.FAILS, str(exc), subject=rule)
    return RouteStep(depth, StepKind.RULE, rule.name, Verdict.MATCHES if matches else Verdict.NO_MATCH, subject=rule)


def changes(before: Message, after: Message) -> Iterator[str]:
    """What an action changed, one line per property: "name: before → after"."""
    for name in TEXTS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name}: {_formatted(old)} → {_formatted(new)}"
    for name in dict.fromkeys([*before.properties, *after.properties]):
        if name not in after.properties:
            yield f"{name}: removed"
        elif name not in before.properties:
            yield f"{name}: {_formatted(after.properties[name])} (new)"
        elif before.properties[name] != after.properties[name]:
            yield f"{name}: {_formatted(before.properties[name])} → {_formatted(after.properties[name])}"


def _formatted(value: Any) -> str:
    return "nothing" if value is None else str(getattr(value, "value", value))
