"""Match messages against the rules of a topic's subscriptions, and make the copies (SB-211 to SB-218, SB-008).

The rules of all subscriptions are grouped once by how they are decided: always, by a lookup, or by evaluating a SQL filter. So
the cost of a message depends on the filters that could match it, and hardly on the number of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_core.common.errors import FilterEvaluationError
from broker_core.service_bus.rules.filters.correlation import key_reader

from .filters import CorrelationFilter, MessageView, Rule
from .limits import STRICT
from .values import Message

FILTER_EXCEPTION = "FilterException"
SESSION_ID_IS_NULL = "Session ID is null."
SESSION_ID_IS_NULL_DESCRIPTION = "Session enabled entity doesn't allow a message whose session identifier is null."


@dataclass(frozen=True, slots=True)
class SubscriptionRules:
    """The rules and relevant settings of a subscription. entity_id: unique in an index."""

    entity_id: int
    requires_session: bool
    dead_letter_filter_errors: bool
    rules: Sequence[Rule]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that differs from the message: changed by an action, or to be dead-lettered, or both.

    message:   the given object itself if no action changed it.
    rule_name: the rule that changed it, or whose filter or action failed; None if it was no single rule.
    """

    entity_id: int
    message: Message
    rule_name: str | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None


class Matches(NamedTuple):
    """plain: ids of the subscriptions that get the message unchanged, without duplicates, unordered. changed: the other
    copies."""

    plain: Sequence[int]
    changed: Sequence[Copy]


class RuleIndex:
    """An immutable index of the rules of all subscriptions of a topic."""

    def __init__(self, subscriptions: Iterable[SubscriptionRules]):
        subscriptions = tuple(subscriptions)
        self._with_sessions = frozenset(s.entity_id for s in subscriptions if s.requires_session)
        builder = _Builder(subscriptions)
        self._always, self._certain = tuple(builder.always), tuple(builder.certain)
        self._lookups = tuple(builder.lookups.values())
        self._queries = tuple(builder.queries_by_leading())
        self._all_plain = Matches(self._always, ())

    def match(self, message: Message, **seen: Any) -> Matches:
        """The copies of a message. seen: keyword arguments of MessageView.of: sequence_number, enqueued_at, size ...

        A subscription gets one plain copy if any of its rules without an action matches (SB-211), and one more for each rule with
        an action that does (SB-212). If one of its filters or actions fails, it gets the message once in its dead-letter queue
        in place of all that, or nothing (SB-218, SB-F19).
        """
        if not (self._lookups or self._queries or self._certain):
            matches = self._all_plain
        else:
            matches = self._decide(message, MessageView.of(message, **seen))
        if message.session_id is None and self._with_sessions:
            return self._with_required_sessions(matches, message)
        return matches

    def _decide(self, message: Message, view: MessageView) -> Matches:
        plain: set[int] = set()
        hits = list(self._certain)
        for lookup in self._lookups:
            entry = lookup.entries.get(lookup.read(view))
            if entry is not None:
                plain.update(entry.subscriptions)
                hits += entry.hits
        failures = self._evaluate_queries(view, hits)
        changed = _changed_copies(hits, failures, message, view)
        plain.update(hit.subscription.entity_id for hit in hits if hit.rule.action is None and hit.subscription not in failures)
        changed += [failure.copy(message) for s, failure in failures.items() if s.dead_letter_filter_errors]
        return Matches((*self._always, *plain) if plain else self._always, changed)

    def _evaluate_queries(self, view: MessageView, hits: list[_Hit]) -> dict[_Subscription, _Failure]:
        """Evaluate each SQL filter that could match once; add the matching rules to `hits`, and return the failures."""
        failures: dict[_Subscription, _Failure] = {}
        for group in self._queries:
            for query in group.candidates(view):
                try:
                    if query.matches(view):
                        hits += query.hits
                except FilterEvaluationError as exc:
                    for hit in query.hits:
                        _record_failure(failures, hit, str(exc))
        return failures

    def _with_required_sessions(self, matches: Matches, message: Message) -> Matches:
        """Dead-letter copies without a session id in subscriptions that require sessions (SB-008)."""
        bound = self._with_sessions
        plain = [entity_id for entity_id in matches.plain if entity_id not in bound]
        changed = [_without_session(copy) if copy.entity_id in bound else copy for copy in matches.changed]
        changed += [_without_session(Copy(entity_id, message)) for entity_id in matches.plain if entity_id in bound]
        return Matches(plain, changed)


def _without_session(copy: Copy) -> Copy:
    """The copy for a subscription with sessions: dead-lettered, unless an action set a session id or it is dead-lettered
    already."""
    if copy.message.session_id is not None or copy.dead_letter_reason is not None:
        return copy
    return Copy(copy.entity_id, copy.message, copy.rule_name, SESSION_ID_IS_NULL, SESSION_ID_IS_NULL_DESCRIPTION)


def _changed_copies(hits: list[_Hit], failures: dict[_Subscription, _Failure], message: Message, view: MessageView) -> list[Copy]:
    """The copies made by actions. A failing action is added to `failures` and discards all copies of its subscription."""
    copies: list[tuple[_Subscription, Copy]] = []
    for hit in sorted((hit for hit in hits if hit.rule.action is not None), key=lambda hit: hit.order):
        subscription = hit.subscription
        if subscription in failures:
            continue
        try:
            copies.append((subscription, Copy(subscription.entity_id, hit.rule.copy(message, view), hit.rule.name)))
        except FilterEvaluationError as exc:
            _record_failure(failures, hit, str(exc))
    return [copy for subscription, copy in copies if subscription not in failures]


def _record_failure(failures: dict[_Subscription, _Failure], hit: _Hit, problem: str) -> None:
    """Record a failure; of several in one subscription, that of the first rule is kept."""
    known = failures.get(hit.subscription)
    if known is None or hit.order < known.hit.order:
        failures[hit.subscription] = _Failure(hit, problem)


# Parts of an index


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    """Compared by identity, since it is a dictionary key on the hot path."""

    entity_id: int
    dead_letter_filter_errors: bool


class _Hit(NamedTuple):
    """A matching rule, with its subscription and its position among the subscription's rules."""

    subscription: _Subscription
    rule: Rule
    order: int


class _Failure(NamedTuple):
    hit: _Hit
    problem: str

    def copy(self, message: Message) -> Copy:
        name = self.hit.rule.name
        description = f"Rule {name!r}: {self.problem}"[: STRICT.dead_letter_text]
        return Copy(self.hit.subscription.entity_id, message, name, FILTER_EXCEPTION, description)


@dataclass(slots=True)
class _Entry:
    """The matches of a lookup. subscriptions: those that get a plain copy regardless of their other rules."""

    subscriptions: set[int] = field(default_factory=set)
    hits: list[_Hit] = field(default_factory=list)


@dataclass(slots=True)
class _Lookup:
    """All correlation filters that compare the same properties."""

    read: Callable[[MessageView], Any]
    entries: dict[Any, _Entry] = field(default_factory=dict)


@dataclass(slots=True)
class _Query:
    """A SQL filter, with all rules that use it."""

    matches: Callable[[MessageView], bool | None]
    hits: list[_Hit] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """SQL filters that start by comparing the same property with a string (rules/filters/sql.py, Leading); without `read`, all
    others."""

    read: Callable[[MessageView], Any] | None = None
    all: list[_Query] = field(default_factory=list)
    by_text: dict[str, list[_Query]] = field(default_factory=dict)

    def candidates(self, view: MessageView) -> list[_Query] | tuple[()]:
        """The filters that could match. A string value decides; any other may be Unknown or an error, so all are evaluated."""
        if self.read is None:
            return self.all
        value = self.read(view)
        return self.by_text.get(value, ()) if value.__class__ is str else self.all


class _Builder:
    """Groups the rules.

    always:  subscriptions that get a plain copy of every message.
    certain: rules that match every message, of subscriptions with other rules that can change the result.
    """

    def __init__(self, subscriptions: Sequence[SubscriptionRules]):
        self.always: list[int] = []
        self.certain: list[_Hit] = []
        self.lookups: dict[Any, _Lookup] = {}
        self._queries: dict[Any, tuple[Any, _Query]] = {}
        for subscription in subscriptions:
            if _is_unconditional(subscription):
                self._add_unconditional(subscription)
            else:
                self._add(subscription)

    def _add_unconditional(self, subscription: SubscriptionRules) -> None:
        if any(rule.filter.always for rule in subscription.rules):
            self.always.append(subscription.entity_id)
            return
        for rule in subscription.rules:
            if isinstance(rule.filter, CorrelationFilter):
                self._entry(rule.filter).subscriptions.add(subscription.entity_id)

    def _add(self, subscription: SubscriptionRules) -> None:
        owner = _Subscription(subscription.entity_id, subscription.dead_letter_filter_errors)
        for order, rule in enumerate(subscription.rules):
            hit = _Hit(owner, rule, order)
            if rule.filter.always:
                self.certain.append(hit)
            elif isinstance(rule.filter, CorrelationFilter):
                self._entry(rule.filter).hits.append(hit)
            elif rule.filter.always is None:
                known = self._queries.setdefault(rule.filter.key, (rule.filter.leading, _Query(rule.filter.matches)))
                known[1].hits.append(hit)

    def _entry(self, filter: CorrelationFilter) -> _Entry:
        lookup = self.lookups.get(filter.compared)
        if lookup is None:
            lookup = self.lookups[filter.compared] = _Lookup(key_reader(*filter.compared))
        return lookup.entries.setdefault(filter.key, _Entry())

    def queries_by_leading(self) -> Iterator[_Group]:
        groups: dict[str | None, _Group] = {}
        for leading, query in self._queries.values():
            group = groups.setdefault(leading and leading.property, _Group(leading and leading.read))
            group.all.append(query)
            if leading:
                group.by_text.setdefault(leading.text, []).append(query)
        yield from groups.values()


def _is_unconditional(subscription: SubscriptionRules) -> bool:
    """Whether no rule of the subscription has an action or can fail."""
    return all(
        rule.action is None and (rule.filter.always is not None or isinstance(rule.filter, CorrelationFilter))
        for rule in subscription.rules
    )
