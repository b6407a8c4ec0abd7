"""What needs a person: the rules over facts, and their order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.types import EntityAddress, EntityKind, EntityStatus, Family, HistoryLevel
from broker_core.reads import Capped, ClockReading, Counts, EntityRow, Facts, TopReason
from explorer.pages import attention
from explorer.pages.attention import RULES, THRESHOLDS, Severity, Task

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
CLOCK = ClockReading(NOON, NOON, 1.0, is_manual=False)
QUIET = (0,) * 30


def seconds(count):
    return timedelta(seconds=count)


def row(path="orders", *, family=Family.SERVICE_BUS, status=EntityStatus.ACTIVE, idle=None, age=None, **counts):
    """idle: seconds since the last receive; None: a receiver waits. age: seconds of the oldest message."""
    return EntityRow(
        id=1, address=EntityAddress("shop", path), kind=EntityKind.QUEUE, family=family, status=status, hidden=False,
        history_level=HistoryLevel.FULL, counts=Counts(**counts), expired_pending=Capped(0), size_bytes=0, sent_rate=0,
        completed_rate=0, oldest_active_at=None if age is None else NOON - seconds(age), consumers_waiting=idle is None,
        last_receive_at=None if idle is None else NOON - seconds(idle), clock=CLOCK, waits_for_operator=path.endswith("-poison"),
    )  # fmt: skip


def facts(entity=None, *, dead=QUIET, active=QUIET, usual=None, quota=None, reason=None, **of_row):
    return Facts(entity or row(**of_row), active, dead, None if usual is None else seconds(usual), quota, reason)


def grows(to, before=0, minutes=3):
    """`before`, and for the last minutes `to`."""
    return (before,) * (30 - minutes) + (to,) * minutes


FEW, MANY = 3, THRESHOLDS.many_dead
TABLE = {
    "a healthy queue": (facts(row(active=5, age=2), usual=3), None),
    "old dead letters, few": (facts(dead_letter=FEW, dead=(FEW,) * 30), None),
    "old dead letters, many": (facts(dead_letter=MANY, dead=(MANY,) * 30), "dead"),
    "a new dead letter": (facts(dead_letter=1, dead=grows(1)), "dead"),
    "new five minutes ago": (facts(dead_letter=1, dead=grows(1, minutes=attention.NEW_MINUTES)), "dead"),
    "new six minutes ago": (facts(dead_letter=1, dead=grows(1, minutes=attention.NEW_MINUTES + 1)), None),
    "a dead letter came, another left": (facts(dead_letter=1, dead=(*(1,) * 27, 2, 1, 1)), "dead"),
    "resubmitted": (facts(dead_letter=0, dead=(*(1,) * 27, 2, 0, 0)), None),
    "nobody receives": (facts(row(active=4, idle=61)), "receivers"),
    "received a minute ago": (facts(row(active=4, idle=60)), None),
    "never received": (facts(replace(row(active=4, idle=1), last_receive_at=None)), "receivers"),
    "all locked": (facts(row(active=4, locked=4, idle=300)), None),
    "old, ten times as usual": (facts(row(active=4, age=100), usual=10), "old"),
    "old, nine times as usual": (facts(row(active=4, age=99), usual=11), None),
    "ten times as usual, but young": (facts(row(active=4, age=59), usual=1), None),
    "old, nothing usual known": (facts(row(active=4, age=9999)), None),
    "old, and nobody receives": (facts(row(active=4, age=9999, idle=900), usual=1), "receivers"),
    "receiving disabled": (facts(row(status=EntityStatus.RECEIVE_DISABLED, active=2, idle=900)), "disabled"),
    "sending disabled": (facts(row(status=EntityStatus.SEND_DISABLED)), "disabled"),
    "79% full": (facts(quota=0.79), None),
    "80% full": (facts(quota=0.8), "quota"),
    "old poison messages": (facts(row("jobs-poison", family=Family.QUEUE_STORAGE, active=2, idle=900), active=(2,) * 30), None),
    "new poison messages": (facts(row("x-poison", family=Family.QUEUE_STORAGE, active=2, idle=900), active=grows(2)), "poison"),
    "RabbitMQ, nobody consumes": (facts(row(family=Family.RABBITMQ, active=9, idle=900)), "receivers"),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_a_rule_finds_entities_that_need_attention(case):
    known, rule = TABLE[case]
    entries = attention.attention([known])
    assert [item.rule for item in entries] == ([] if rule is None else [rule])


def test_a_problem_has_the_count_the_rate_and_the_reason():
    top = TopReason("SchemaError", "Field `vat` is missing.", 4, 7)
    [item] = attention.attention([facts(dead_letter=7, dead=grows(7, 4), reason=top)])
    assert (item.headline, item.more, item.text) == ("7 dead letters", 3, "SchemaError (4 of 7): Field `vat` is missing.")
    assert item.severity is Severity.BAD and item.reason is top


def test_each_problem_of_an_entity_is_one_entry():
    found = attention.attention([facts(row(active=4, idle=900, dead_letter=2), dead=grows(2), quota=0.9)])
    assert [(item.rule, item.headline) for item in found] == [
        ("dead", "2 dead letters"),
        ("quota", "90% of its quota"),
        ("receivers", "4 messages and no receiver"),
    ]


def each_minute(per_minute, last):
    """Dead letters that came at this rate, and in the last minute some more."""
    return (*(per_minute * minute for minute in range(29)), per_minute * 28 + last)


RISING = {
    "the first dead letter": (facts(dead_letter=1, dead=grows(1)), True),
    "the first one after old ones": (facts(dead_letter=9, dead=grows(9, 8)), True),
    "as many as usual": (facts(dead_letter=29, dead=each_minute(1, 1)), False),
    "twice as many as usual": (facts(dead_letter=34, dead=each_minute(1, 6)), False),
    "more than twice as many": (facts(dead_letter=35, dead=each_minute(1, 7)), True),
    "many old ones": (facts(dead_letter=MANY, dead=(MANY,) * 30), False),
    "new poison messages": (facts(row("x-poison", family=Family.QUEUE_STORAGE, active=2, idle=900), active=grows(2)), True),
    "poison messages as usual": (
        facts(row("x-poison", family=Family.QUEUE_STORAGE, active=29, idle=900), active=each_minute(1, 1)), False,
    ),
    "no receiver, more wait": (facts(row(active=9, idle=900), active=grows(9, 4)), True),
    "no receiver, as many wait": (facts(row(active=4, idle=900), active=(4,) * 30), False),
    "no receiver, fewer wait": (facts(row(active=4, idle=900), active=grows(4, 9)), False),
    "old, and fewer wait": (facts(row(active=4, age=9999), usual=1, active=grows(4, 9)), False),
    "paused, and more wait": (facts(row(status=EntityStatus.RECEIVE_DISABLED, active=2), active=grows(2)), True),
    "nearly full, and constant": (facts(quota=0.99), False),
}  # fmt: skip


@pytest.mark.parametrize("case", RISING)
def test_a_problem_rises_if_it_is_new_or_grows(case):
    known, is_rising = RISING[case]
    [item] = attention.attention([known])
    assert item.is_rising is is_rising


def test_the_worst_entry_is_first():
    known = [
        facts(row("waits", active=9, idle=900)),
        facts(row("few", dead_letter=1), dead=grows(1)),
        facts(row("many", dead_letter=50), dead=grows(50)),
        facts(row("full"), quota=0.99),
        facts(row("off", status=EntityStatus.DISABLED)),
        facts(row("well")),
    ]
    entries = attention.attention(known, [Task("expire messages", "last run failed"), Task("roll up", "")])
    assert [item.name or item.entity.address.path for item in entries] == [
        "many",
        "few",
        "full",
        "waits",
        "off",
        "expire messages",
    ]


def test_a_problem_that_rises_is_before_a_worse_one_that_does_not():
    known = [
        facts(row("old", dead_letter=9000), dead=(9000,) * 30),
        facts(row("waits", active=2, idle=900), active=grows(2)),
    ]
    assert [item.entity.address.path for item in attention.attention(known)] == ["waits", "old"]


def test_failures_by_design_are_last_and_say_why():
    known = [facts(row("meant", dead_letter=50), dead=grows(50)), facts(row("real", active=1, idle=900))]
    found = attention.attention(known, by_design=lambda item: "For show." if item.entity.address.path == "meant" else "")
    assert [(item.entity.address.path, item.by_design) for item in found] == [("real", ""), ("meant", "For show.")]


@pytest.mark.parametrize(
    ("problems", "designed", "at_least", "says"),
    [(0, 0, False, "All is well."), (1, 0, False, "1 problem."), (2, 6, False, "2 problems, 6 by design of the demo."),
     (0, 6, False, "No problems, 6 by design of the demo."), (1200, 0, True, "At least 1,200 problems.")],
)  # fmt: skip
def test_the_sentence_counts_real_problems_and_those_by_design(problems, designed, at_least, says):
    assert attention.sentence(problems, designed, at_least=at_least) == says


def test_every_rule_is_described():
    assert all(rule.title and rule.words.endswith(".") for rule in RULES.values())


counts = st.integers(0, 10_000)
several = st.builds(
    lambda dead, active, idle, age, usual, quota, family, path, status: facts(
        row(path, family=family, status=status, active=active, dead_letter=dead[-1], idle=idle, age=age),
        dead=tuple(dead), usual=usual, quota=quota,
    ),
    st.lists(counts, min_size=7, max_size=7), counts, st.none() | counts, st.none() | counts,
    st.none() | st.floats(0.001, 1e5), st.none() | st.floats(0, 2), st.sampled_from(Family),
    st.sampled_from(["a", "b-poison", "c"]), st.sampled_from(EntityStatus),
)  # fmt: skip


@given(st.lists(several, max_size=4))
def test_any_facts_can_be_sorted_and_entities_without_findings_are_left_out(known):
    entries = attention.attention(known)
    assert [item.order for item in entries] == sorted(item.order for item in entries)
    assert len({(id(item.entity), item.rule) for item in entries}) == len(entries)
    assert all(item.headline and item.rule in RULES for item in entries)


@given(several)
def test_more_dead_letters_never_lower_the_rank(known):
    """One more dead letter: what was listed is listed still, and not lower."""
    count = known.entity.counts.dead_letter + 1
    worse = replace(known, entity=replace(known.entity, counts=replace(known.entity.counts, dead_letter=count)),
                    dead=(*known.dead[:-1], count))  # fmt: skip
    before, after = ({item.rule: item for item in attention.attention([facts])} for facts in (known, worse))
    assert before.keys() <= after.keys()
    assert all(after[rule].order <= item.order for rule, item in before.items())


@pytest.mark.parametrize(
    ("case", "since"),
    [
        ("nobody receives", seconds(61)),
        ("never received", None),
        ("old, ten times as usual", seconds(100)),
        ("80% full", None),
    ],
)
def test_a_problem_says_since_when_it_exists_if_that_is_known(case, since):
    [item] = attention.attention([TABLE[case][0]], [])
    assert item.since == (since and NOON - since)
