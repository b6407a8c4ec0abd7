"""The differences from RabbitMQ 3.10 that are meant, each with the rule that says so. Whatever else differs is a fault."""

from __future__ import annotations

from collections.abc import Callable

from .execution import Difference, expires

# In stories, by story and fact: why the core does otherwise.
IN_STORIES: dict[tuple[str, str], str] = {
    ("a_new_time_by_policy", "a message without a time"): "RMQ-902: as the guide says, it counts for what is there",
    ("a_new_time_by_policy", "a shorter time"): "RMQ-902: the same",
    ("bad_policies", "a long life"): "RMQ-918: a policy's time has the bound of an argument's",
    ("bad_policies", "apply-to"): "RMQ-371: with the types of queues that 3.12 added, and its text",
    ("bad_policies", "operator overflow"): "RMQ-203: later versions have this key",
    ("what_a_dead_letter_is", "headers"): "RMQ-912: x-last-death-*, as later versions add them",
    ("positions_in_quorum_queues", "returned apart"): "RMQ-909: each to its original place, as in classic queues",
    ("dead_letters_of_a_lower_limit", "quorum, dead-lettered"): "RMQ-930: oldest first, as in classic queues",
    ("redeclaring_queues", "timeout"): "RMQ-127: an argument since 3.12, so it is compared",
    ("bad_arguments", "queue-type 'stream'"): "RMQ-908: there are no streams",
    ("bad_arguments", "quorum: delivery-limit '5'"): "RMQ-341: checked, where 3.10 takes anything and ignores it",
}

# What scripts do not compare at all.
ALIKE = (
    "RMQ-912: x-last-death-* are there in later versions",
    "RMQ-003, RMQ-014: of a message that was got, how many are left behind it; how many are ready is looked at after a sweep",
    "RMQ-902: that a time-to-live by policy holds for what is there; these queues have retroactive_ttl off",
    "RMQ-145: which of several channels gets a message of a queue that they all consume from",
    "RMQ-908: consumers of a quorum queue, among which RabbitMQ counts who holds a message that was got",
)


def _is_about_order(d: Difference) -> bool:
    return bool(d.queues & d.quorum & d.returned)


def _lives_not(d: Difference) -> set[str]:
    """The queues it is about in which nothing may live."""
    return {name for name in d.queues if d.in_force.get(name, {}).get("message_ttl") == 0}


def _is_told_so_late(d: Difference) -> bool:
    return bool(_lives_not(d)) and any(step.given.get("definition", {}).get("message-ttl") == 0 for step in d.done)


def _is_unused_quorum(d: Difference) -> bool:
    return any(expires(step) for step in d.done) and any(
        step.given.get("arguments", {}).get("x-queue-type") == "quorum" for step in d.done
    )


def _overshoots(d: Difference) -> bool:
    return any(d.in_force.get(name, {}).get("overflow", "").startswith("reject") for name in d.quorum)


def _is_of_later_operators(d: Difference) -> bool:
    return d.step.given.get("operator", False) and d.step.given.get("definition", {}).keys() & {"overflow"} != set()


def _has_one_of_many(d: Difference) -> bool:
    return bool(d.queues & d.shared)


def _changes_two_at_once(d: Difference) -> bool:
    refuse = {name for name, found in d.in_force.items() if found.get("overflow", "").startswith("reject")}
    return d.step.what in ("policy", "delete_policy") and d.queues <= refuse


def _trims_a_quorum_queue(d: Difference) -> bool:
    """Only what arrives elsewhere may differ, not what stays in the queue that is trimmed."""
    trimmed = {name for name in d.quorum if {"max_length", "dead_letter_exchange"} <= d.in_force.get(name, {}).keys()}
    is_elsewhere = bool(trimmed and d.queues) and not d.queues & trimmed
    return d.step.what in ("policy", "delete_policy") and "result" not in d.fields and is_elsewhere


# After which a script ends: from there on the two are not in the same state.
IN_SCRIPTS: tuple[tuple[str, Callable[[Difference], bool]], ...] = (
    ("RMQ-909: what came back to a quorum queue is at its original place", _is_about_order),
    ("RMQ-203: an operator policy may say what later versions let it say", _is_of_later_operators),
    ("RMQ-093: a quorum queue that refuses takes exactly what fits, too, and no more", _overshoots),
    ("RMQ-145: of several channels that consume from a queue, another one has the message", _has_one_of_many),
    (
        "RMQ-207: a policy's keys are in force together; 3.10 trims by a new limit before it knows of a new overflow",
        _changes_two_at_once,
    ),
    (
        "RMQ-930: what a lowered limit removes from a quorum queue is dead-lettered oldest first",
        _trims_a_quorum_queue,
    ),
    ("RMQ-016: what may live for no time, by a policy, dies at once, also behind what was there before", _is_told_so_late),
    ("RMQ-045: an unused quorum queue goes at its instant, not at the next look of a process", _is_unused_quorum),
)


def why_meant(difference: Difference) -> str | None:
    """Why a difference is meant; None: it is not."""
    return next((why for why, applies in IN_SCRIPTS if applies(difference)), None)
