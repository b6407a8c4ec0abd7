"""What needs a person: rules over the facts of entities and background tasks, with their thresholds as data. Pure.

Each finding of a rule is a problem of its own: an entity with dead letters and without a receiver has two. A problem is rising
if it is new or grows, and only then is it shown in red:

- dead letters and poison messages: more came in the last NEW_MINUTES minutes than `Thresholds.rise` times as many as usually come
  in as long a time, by the minutes of the trend before. Where none came before, the first one is new;
- all others: more messages wait than NEW_MINUTES minutes ago.

Failures that the demo is made to have are told apart by the caller (`by_design`), and are last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from broker_core.common.durations import human
from broker_core.common.types import EntityStatus
from broker_core.reads import EntityRow, Facts, Recent, TopReason
from explorer.frames import presenters
from explorer.frames.background_tasks import Task
from explorer.frames.family import pages_of
from explorer.frames.figures import at_hand

NEW_MINUTES = 5  # dead letters of the last so many minutes are new


class Severity(IntEnum):
    """How bad it is: SOON becomes worse by itself, BAD is a loss already."""

    SOON = 1
    BAD = 2


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a fact is worth a person's time.

    many_dead:    dead letters, even if none is new. old_factor: the oldest message has waited so many times as long as is usual;
    old_at_least: and at least so long. quota_share, quota_full: used share of a quota; from the second on it is bad. rise: dead
    letters rise if more came lately than so many times the usual number.
    """

    many_dead: int = 100
    old_factor: float = 10.0
    old_at_least: timedelta = timedelta(minutes=1)
    quota_share: float = 0.8
    quota_full: float = 0.95
    rise: float = 2.0


THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class Item:
    """A problem.

    rule: by name, one of RULES. headline: what is the matter; text: the reason in words. weight: the worse, the higher.
    is_rising: it is new or grows. more: how many messages came in the last NEW_MINUTES minutes. trend: the numbers behind it in
    the last minutes. reason: the most frequent one of dead letters. entity: None: it is about a background task, `name`.
    since: when it began, by the clock of the namespace; None: that is not known. by_design: why the demo has it; empty: it is a
    real one.
    """

    rule: str
    severity: Severity
    headline: str
    text: str = ""
    weight: float = 0.0
    is_rising: bool = False
    more: int = 0
    trend: tuple[int, ...] = ()
    reason: TopReason | None = None
    entity: EntityRow | None = None
    name: str = ""
    since: datetime | None = None
    by_design: str = ""

    @property
    def order(self) -> tuple:
        """Real ones before those by design, rising ones before the others, then the worst first."""
        where = str(self.entity.address) if self.entity else self.name
        return (
            bool(self.by_design), not self.is_rising, -self.severity, list(RULES).index(self.rule), -self.weight, where,
        )  # fmt: skip


class Rule(NamedTuple):
    """find: (facts, thresholds) -> what needs a person, or None. title, words: for the list of rules in Learn; words may name
    thresholds."""

    title: str
    words: str
    find: Callable[[Facts, Thresholds], Item | None]


def _arrived(changes: Iterable[int]) -> int:
    """How many came; what left since does not count against them."""
    return sum(max(0, change) for change in changes)


def _changes(numbers: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(numbers)]


def _new(numbers: Sequence[int]) -> int:
    return _arrived(_changes(numbers)[-NEW_MINUTES:])


def grows(changes: Sequence[int], limits: Thresholds = THRESHOLDS) -> bool:
    """Whether more messages came in the last NEW_MINUTES minutes than is usual. changes: how many more there were after each of
    the last minutes than before it."""
    before, new = changes[:-NEW_MINUTES], changes[-NEW_MINUTES:]
    return _arrived(new) > limits.rise * _arrived(before) / max(1, len(before)) * NEW_MINUTES


def dead_letters_grow(entity: EntityRow, recent: Recent) -> bool:
    """Whether an entity's dead letters, or what it collects of them, are new or grow."""
    return grows(recent.active_changes if pages_of(entity.family).needs_a_person(entity) else recent.dead_changes)


def _rises(numbers: Sequence[int], limits: Thresholds) -> bool:
    return grows(_changes(numbers), limits)


def _growth(numbers: tuple[int, ...]) -> int:
    """How many more there are than NEW_MINUTES minutes ago."""
    return max(0, numbers[-1] - numbers[-NEW_MINUTES - 1]) if len(numbers) > NEW_MINUTES else 0


def _dead(facts: Facts, limits: Thresholds) -> Item | None:
    if pages_of(facts.entity.family).needs_a_person(facts.entity):
        return None
    count, new, top = pages_of(facts.entity.family).counts.dead(facts.entity) or 0, _new(facts.dead), facts.reason
    if not count or (not new and count < limits.many_dead):
        return None
    return Item(
        "dead", Severity.BAD, presenters.plural(count, "dead letter"), _reason_text(top) if top else "", weight=count + 10 * new,
        is_rising=_rises(facts.dead, limits), more=new, trend=facts.dead, reason=top, entity=facts.entity,
    )  # fmt: skip


def _poison(facts: Facts, limits: Thresholds) -> Item | None:
    pages, count, new = pages_of(facts.entity.family), at_hand(facts.entity), _new(facts.active)
    if not pages.needs_a_person(facts.entity) or not count or (not new and count < limits.many_dead):
        return None
    return Item(
        "poison", Severity.BAD, presenters.plural(count, pages.texts.collected), _sentence(pages.texts.collected_why),
        weight=count + 10 * new, is_rising=_rises(facts.active, limits), more=new, trend=facts.active, entity=facts.entity,
    )  # fmt: skip


def _of_backlog(
    facts: Facts, rule: str, headline: str, text: str, weight: float, severity: Severity = Severity.SOON,
    since: datetime | None = None,
) -> Item:  # fmt: skip
    """A problem that rises if more messages wait than before."""
    more = _growth(facts.active)
    return Item(
        rule, severity, headline, text, weight=weight, is_rising=more > 0, more=more, trend=facts.active, entity=facts.entity,
        since=since,
    )  # fmt: skip


def _neglected(facts: Facts, limits: Thresholds) -> Item | None:
    entity, count = facts.entity, at_hand(facts.entity)
    if not presenters.is_neglected(entity):
        return None
    last = entity.last_receive_at
    text = "Nothing was received yet." if last is None else f"Last receive {presenters.age_in_words(entity.clock.now - last)}."
    return _of_backlog(facts, "receivers", f"{presenters.plural(count, 'message')} and no receiver", text, count, since=last)


def _old(facts: Facts, limits: Thresholds) -> Item | None:
    age, usual = facts.entity.oldest_active_age, facts.usual_wait
    if age is None or not usual or pages_of(facts.entity.family).needs_a_person(facts.entity):
        return None
    if age < limits.old_at_least or age < usual * limits.old_factor or presenters.is_neglected(facts.entity):
        return None
    times = age / usual
    text = f"{times:,.0f} times the usual wait of {human(_rounded(usual))}."
    return _of_backlog(
        facts, "old", f"Oldest message waits {presenters.age(age)}", text, times, since=facts.entity.oldest_active_at
    )


_STATUS = {
    EntityStatus.DISABLED: "Sends and receives are refused",
    EntityStatus.SEND_DISABLED: "Sends are refused",
    EntityStatus.RECEIVE_DISABLED: "Receives are refused",
}


def _disabled(facts: Facts, limits: Thresholds) -> Item | None:
    if (status_text := _STATUS.get(facts.entity.status)) is None:
        return None
    waiting = at_hand(facts.entity) if facts.entity.holds_messages else 0
    text = f"{status_text}, {presenters.plural(waiting, 'message')} waiting." if waiting else f"{status_text}."
    return _of_backlog(facts, "disabled", presenters.STATUS_WORDS[facts.entity.status], text, waiting)


def _quota(facts: Facts, limits: Thresholds) -> Item | None:
    used = facts.quota_share
    if used is None or used < limits.quota_share:
        return None
    severity = Severity.BAD if used >= limits.quota_full else Severity.SOON
    is_full = "Full: new messages are refused or push out old ones."
    text = is_full if used >= 1 else "When it is full, messages are refused or dropped."
    return _of_backlog(facts, "quota", f"{min(used, 9.99):.0%} of its quota", text, used, severity)


def _reason_text(top: TopReason) -> str:
    share = f" ({top.count:,} of {top.of:,})" if top.count < top.of else ""
    return _sentence(f"{top.reason}{share}: {top.description}" if top.description else f"{top.reason}{share}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _rounded(wait: timedelta) -> timedelta:
    """To whole seconds, or to tenths if it is short."""
    return timedelta(seconds=round(wait.total_seconds(), 1 if wait < timedelta(seconds=10) else 0)) or timedelta(seconds=0.1)


RULES = {
    "dead": Rule(
        "Dead letters", f"There are new ones in the last {NEW_MINUTES} minutes, or {THRESHOLDS.many_dead} or more in all.", _dead
    ),
    "poison": Rule(
        "Poison queue filling",
        "A poison queue, or a RabbitMQ queue that only collects dead letters, got messages in the last "
        f"{NEW_MINUTES} minutes, or holds {THRESHOLDS.many_dead} or more.", _poison,
    ),
    "quota": Rule(
        "Near its quota",
        f"{THRESHOLDS.quota_share:.0%} of its size or length is used; from {THRESHOLDS.quota_full:.0%} on it is bad.", _quota,
    ),
    "receivers": Rule(
        "No receiver", "Messages are available, and no receiver has asked for one within the last minute.", _neglected
    ),
    "old": Rule(
        "Oldest message over the usual",
        f"The oldest message is older than {human(THRESHOLDS.old_at_least)} and has waited {THRESHOLDS.old_factor:.0f} times as "
        "long as messages did on average in the last hour.", _old,
    ),
    "disabled": Rule("Paused", "Sending, receiving or both are paused.", _disabled),
    "task": Rule(
        "Background task late", "It has not run for twice its interval, or its last run failed.", lambda facts, limits: None
    ),
}  # fmt: skip


def attention(
    facts: Iterable[Facts], tasks: Iterable[Task] = (), limits: Thresholds = THRESHOLDS, *,
    by_design: Callable[[Item], str] = lambda item: "",
) -> list[Item]:  # fmt: skip
    """The problems, in their order. by_design: (problem) -> why the demo has it; empty: it is a real one."""
    found = [item for entity_facts in facts for rule in RULES.values() if (item := rule.find(entity_facts, limits))]
    late = [
        Item("task", Severity.SOON, "Background task late", _sentence(task.lateness), name=task.name, weight=1.0)
        for task in tasks
        if task.lateness
    ]
    marked = [replace(item, by_design=by_design(item)) for item in found]
    return sorted(marked + late, key=lambda item: item.order)


def sentence(problems: int, designed: int = 0, *, at_least: bool = False) -> str:
    """The health of the broker in one sentence. designed: failures that the demo is made to have."""
    if not problems and not designed:
        return "All is well."
    count = presenters.plural(problems, "problem") if problems else "No problems"
    count = f"At least {count}" if at_least and problems else count
    return f"{count}, {designed:,} by design of the demo." if designed else f"{count}."
