"""What needs a person: rules over the facts of entities and background tasks, with their thresholds as data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from broker_core.common.durations import human
from broker_core.common.types import EntityStatus
from broker_core.reads import EntityRow, Facts, TopReason
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
    old_at_least: and at least so long. quota_share, quota_full: used share of a quota; from the second on it is bad.
    """

    many_dead: int = 100
    old_factor: float = 10.0
    old_at_least: timedelta = timedelta(minutes=1)
    quota_share: float = 0.8
    quota_full: float = 0.95


THRESHOLDS = Thresholds()


class Share(NamedTuple):
    """A bar: parts of 1, the first in full colour. label, text: at its left and right."""

    label: str
    text: str
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """Something that needs a person.

    rule: by name, one of RULES. headline, aside: what is the matter; text: the reason in words. weight: the worse, the higher.
    trend: the numbers behind it in the last minutes. entity: None: it is about a background task, `name`.
    """

    rule: str
    severity: Severity
    headline: str
    aside: str = ""
    text: str = ""
    weight: float = 0.0
    share: Share | None = None
    trend: tuple[int, ...] = ()
    entity: EntityRow | None = None
    name: str = ""
    also: tuple[str, ...] = field(default=())

    @property
    def order(self) -> tuple:
        """Worst first."""
        where = str(self.entity.address) if self.entity else self.name
        return (-self.severity, list(RULES).index(self.rule), -self.weight, where)


class Rule(NamedTuple):
    """find: (facts, thresholds) -> what needs a person, or None. title, words: for the list of rules in Learn; words may name
    thresholds."""

    title: str
    words: str
    find: Callable[[Facts, Thresholds], Item | None]


def _grown(numbers: tuple[int, ...]) -> int:
    """How many came in the last NEW_MINUTES minutes; what left since does not count against them."""
    return sum(max(0, after - before) for before, after in pairwise(numbers[-NEW_MINUTES - 1 :]))


def _dead(facts: Facts, limits: Thresholds) -> Item | None:
    if pages_of(facts.entity.family).needs_a_person(facts.entity):
        return None
    count, new, top = pages_of(facts.entity.family).counts.dead(facts.entity) or 0, _grown(facts.dead), facts.reason
    if not count or (not new and count < limits.many_dead):
        return None
    return Item(
        "dead", Severity.BAD, presenters.plural(count, "dead letter"), _new(new), top.description.rstrip(".") if top else "",
        weight=count + 10 * new, share=_of_reasons(top), trend=facts.dead, entity=facts.entity,
    )  # fmt: skip


def _poison(facts: Facts, limits: Thresholds) -> Item | None:
    pages, count, new = pages_of(facts.entity.family), at_hand(facts.entity), _grown(facts.active)
    if not pages.needs_a_person(facts.entity) or not count or (not new and count < limits.many_dead):
        return None
    return Item(
        "poison", Severity.BAD, presenters.plural(count, pages.texts.collected), _new(new), pages.texts.collected_why,
        weight=count + 10 * new, trend=facts.active, entity=facts.entity,
    )  # fmt: skip


def _neglected(facts: Facts, limits: Thresholds) -> Item | None:
    entity, count = facts.entity, at_hand(facts.entity)
    if not presenters.is_neglected(entity):
        return None
    last = entity.last_receive_at
    idle = None if last is None else entity.clock.now - last
    text = "no receiver yet" if idle is None else f"no receivers for {presenters.age(idle)}"
    ago = "never" if idle is None else presenters.age_in_words(idle)
    return Item(
        "receivers", Severity.SOON, f"{presenters.plural(count, 'message')} waiting", "", text, weight=count,
        share=Share("Last receive", ago, ()), trend=facts.active, entity=entity,
    )  # fmt: skip


def _old(facts: Facts, limits: Thresholds) -> Item | None:
    age, usual = facts.entity.oldest_active_age, facts.usual_wait
    if age is None or not usual or pages_of(facts.entity.family).needs_a_person(facts.entity):
        return None
    if age < limits.old_at_least or age < usual * limits.old_factor or presenters.is_neglected(facts.entity):
        return None
    times = age / usual
    return Item(
        "old", Severity.SOON, f"Oldest message {presenters.age(age)}", "", f"messages usually wait {human(_rounded(usual))}",
        weight=times, share=Share("Usual wait", f"× {times:,.0f}", (usual / age,)), trend=facts.active, entity=facts.entity,
    )  # fmt: skip


_STATUS = {
    EntityStatus.DISABLED: "sends and receives are refused",
    EntityStatus.SEND_DISABLED: "sends are refused",
    EntityStatus.RECEIVE_DISABLED: "receives are refused",
}


def _disabled(facts: Facts, limits: Thresholds) -> Item | None:
    if (status_text := _STATUS.get(facts.entity.status)) is None:
        return None
    waiting = at_hand(facts.entity) if facts.entity.holds_messages else 0
    aside = f", {presenters.plural(waiting, 'message')} waiting" if waiting else ""
    words = presenters.STATUS_WORDS[facts.entity.status]
    return Item("disabled", Severity.SOON, words, aside, status_text, weight=waiting, trend=facts.active, entity=facts.entity)


def _quota(facts: Facts, limits: Thresholds) -> Item | None:
    used = facts.quota_share
    if used is None or used < limits.quota_share:
        return None
    severity = Severity.BAD if used >= limits.quota_full else Severity.SOON
    text = (
        "full: new messages are refused or push out old ones" if used >= 1 else "when it is full, messages are refused or dropped"
    )
    return Item(
        "quota", severity, f"{min(used, 9.99):.0%} of its quota", "", text, weight=used,
        share=Share("Quota", f"{min(used, 9.99):.0%}", (min(used, 1.0),)), trend=facts.active, entity=facts.entity,
    )  # fmt: skip


def _new(count: int) -> str:
    return f", +{count:,} in {NEW_MINUTES} min" if count else ""


def _of_reasons(top: TopReason | None) -> Share | None:
    if top is None:
        return None
    remainder = 1 - top.count / top.of
    return Share(
        top.reason,
        f"{top.count / top.of:.0%} · {top.count:,} of {top.of:,}",
        (top.count / top.of, remainder) if remainder else (1.0,),
    )


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
        "No receivers", "Messages are available, and no receiver has asked for one within the last minute.", _neglected
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


def attention(facts: Iterable[Facts], tasks: Iterable[Task] = (), limits: Thresholds = THRESHOLDS) -> list[Item]:
    """What needs a person, worst first: of an entity its worst item, which names the others."""
    worst = []
    for entity_facts in facts:
        items = sorted(
            (item for rule in RULES.values() if (item := rule.find(entity_facts, limits))), key=lambda item: item.order
        )
        if items:
            worst.append(_with_others(items))
    worst += [
        Item("task", Severity.SOON, "Late", "", task.lateness, name=task.name, weight=1.0) for task in tasks if task.lateness
    ]
    return sorted(worst, key=lambda item: item.order)


def _with_others(items: list[Item]) -> Item:
    first, *others = items
    return Item(
        first.rule, first.severity, first.headline, first.aside, first.text, first.weight, first.share, first.trend, first.entity,
        first.name, tuple(_decapitalized(other.headline) for other in others),
    )  # fmt: skip


def _decapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


def sentence(count: int, *, at_least: bool = False) -> str:
    """The health of the broker in one sentence."""
    if not count:
        return "All is well."
    if at_least:
        return f"At least {count:,} things need you."
    return "1 thing needs you." if count == 1 else f"{count:,} things need you."
