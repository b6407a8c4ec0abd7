"""Scenarios: what a person did in a sandbox, as a file that runs against a fresh namespace and says which expectation failed.

A scenario has the format of a lesson. A recording consists of the actions that the lesson's buttons performed (Stage.log), and of
the other events of the sandbox, from which the family derives what was done with the pages' own controls. Each action expects the
events that followed it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from broker_core import namespaces, reads
from broker_core.common.errors import BrokerError
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EventKind, Family, Right, Tier
from broker_core.reads import Event
from broker_core.store import connections
from explorer.models import Sandbox

from . import catalog, sandboxes
from .lesson import Expect, Lesson, Step, seconds
from .stage import MOST_BODY, Stage

PLAYER = Actor("process", "scenario", Right.ALL)
ARRIVALS = (EventKind.SENT, EventKind.SCHEDULED, EventKind.PUBLISHED)
_SHORTEST_STEP = timedelta(milliseconds=1)


# Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step that was run. refusal: what the broker refused, unless the step expects that. unmet: expectations that failed.
    seen: the events of the step, in words."""

    step: Step
    refusal: BrokerError | None
    unmet: Sequence[Expect]
    seen: Sequence[str]

    @property
    def failed(self) -> bool:
        return bool(self.unmet or self.refusal)


def run(scenario: Lesson, *, keep: bool = False) -> Iterator[Outcome]:
    """Run a scenario in a fresh namespace, which is deleted afterwards, up to the first step that fails. Raises BrokerError if
    what it begins with cannot be created. keep: do not delete the namespace."""
    name = f"scenario{secrets.token_hex(4)}"
    definition_of(scenario.family).create_namespace(name, scenario.title, Tier.STANDARD, PLAYER)
    try:
        with connections.of(name):
            if not scenario.load:
                namespaces.pause_clock(name, actor=PLAYER)
            stage = catalog.stage(name, scenario.family, PLAYER)
            _, refusal = stage.perform(scenario.setup)
            if refusal:
                raise refusal
            for step in scenario.steps:
                outcome = _run_step(stage, step)
                yield outcome
                if outcome.failed:
                    return
    finally:
        if not keep:
            sandboxes.delete_namespace(name, scenario.family)


def _run_step(stage: Stage, step: Step) -> Outcome:
    mark, began_at = stage.position().snapshot, stage.clock()
    _, refusal = stage.perform(step.do)
    if any(expectation.kind is EventKind.SETTLE_REFUSED for expectation in step.expect):
        refusal = None
    events = stage.events_since(mark)
    return Outcome(step, refusal, stage.unmet(step.expect, events, began_at), [_seen(event) for event in events])


def _seen(event: Event) -> str:
    return in_words(expected(event, PLAYER))


def in_words(table: Mapping[str, Any]) -> str:
    """An expectation, as in a file."""
    return ", ".join(f"{key} = {_value(value)}" for key, value in table.items())


def as_table(expectation: Expect) -> dict[str, Any]:
    """An expectation as it is written in a file."""
    if expectation.kind is not None:
        return {"event": _event(expectation.kind), **expectation.attributes}
    attributes = {
        "clock": seconds(expectation.clock) if expectation.clock else "",
        "deleted": expectation.deleted,
        "policy": expectation.policy,
        "load": expectation.load,
        **expectation.attributes,
    }
    return {key: value for key, value in attributes.items() if value}


# Record


@dataclass(slots=True)
class _Recorded:
    """A step of a recording. events: those that it expects. left_out: what somebody did after it that no action does."""

    do: list[dict[str, Any]]
    events: list[Event]
    left_out: list[Event] = field(default_factory=list)


def record(sandbox: Sandbox, actor: Actor) -> str:
    """What happened in a sandbox since it was started or reset, as a scenario's file."""
    with connections.of(sandbox.namespace):
        family = Family(sandbox.family)
        log = sandbox.state.get("log", [])
        events = catalog.stage(sandbox.namespace, family, actor).events_since(sandbox.start)
        logged = [entry["do"] for entry in log if is_setup(entry["do"])]
        setup, changes = _configured(sandbox, logged, log, events, actor)
        log = sorted([*log, *changes], key=lambda entry: entry["after"])
        memory = {"bodies": _bodies(events, log, actor)}
        steps = list(_steps(log, events, actor, family, namespaces.get_clock(sandbox.namespace, actor=actor).now, memory))
    lesson = catalog.lesson(sandbox.lesson).title if sandbox.lesson else "a sandbox"
    return written(f"Recorded in {lesson}", family, setup, steps, actor)


def _configured(
    sandbox: Sandbox, logged: list[dict[str, Any]], log: Sequence[Mapping[str, Any]], events: Sequence[Event], actor: Actor
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What a scenario begins with, and the changes of settings with the pages' controls, as entries of the log. Entities that no
    logged action created begin as they are now."""
    family = Family(sandbox.family)
    created = {_created(do) for do in logged}
    setup = logged + [do for do in catalog.configuration(sandbox.namespace, family, actor) if _created(do) not in created]
    changes = []
    for row in reads.overview(namespace=sandbox.namespace, include_hidden=True, actor=actor):
        if ("create", row.address.path.lower()) not in created:
            continue
        for revision in reads.revisions(row.address, actor=actor)[-2::-1]:
            do = catalog.change(family, row, revision.columns)
            if do and not any(entry["began"] <= revision.at.isoformat() <= entry["ended"] for entry in log if "began" in entry):
                before = [event for event in events if event.recorded_at <= revision.at]
                after = before[-1].event_id if before else 0
                at = before[-1].at if before else namespaces.get_clock(sandbox.namespace, actor=actor).now
                changes.append({"do": do, "after": after, "until": after, "at": at.isoformat()})
    return setup, changes


def _created(do: Mapping[str, Any]) -> tuple[str, str]:
    """What an action creates, so that two that create the same are recognized."""
    action = str(do["action"])
    if action in ("create_queue", "declare_queue", "create_topic"):
        return "create", str(do.get("queue", do.get("topic"))).lower()
    names = (str(do.get(key, "")) for key in ("topic", "name", "subscription", "queue", "exchange", "key"))
    return action, "/".join(names).lower()


def _bodies(events: Sequence[Event], log: Sequence[Mapping[str, Any]], actor: Actor) -> dict[str, bytes]:
    """The bodies of the messages that no logged action sent, by message, as far as they are still there."""
    bodies: dict[str, bytes] = {}
    for event in events:
        is_logged = any(entry["after"] < event.event_id <= entry["until"] for entry in log)
        if event.kind in ARRIVALS and event.address and not is_logged:
            with suppress(BrokerError):
                if body := reads.body(event.address.main, event.sequence_number, length=MOST_BODY + 1, actor=actor):
                    bodies[f"{event.entity_id}#{event.sequence_number}"] = body.content + b"x" * (body.total - len(body.content))
    return bodies


def is_setup(do: Mapping[str, Any]) -> bool:
    """Whether an action creates what a scenario begins with."""
    return str(do["action"]).startswith(("create_", "declare_", "bind"))


def _steps(
    log: Sequence[Mapping[str, Any]], events: Sequence[Event], actor: Actor, family: Family, ended_at: datetime,
    memory: dict[str, Any],
) -> Iterator[_Recorded]:  # fmt: skip
    """The logged actions and the other events, in their order. The clock is advanced where it was."""
    derive = catalog.derive(family)
    now: datetime | None = None
    pending = list(events)
    for entry in [*log, None]:
        until = entry["after"] if entry else pending[-1].event_id if pending else 0
        before = [event for event in pending if event.event_id <= until]
        yield from _derived(before, derive, actor, memory, now)
        now = before[-1].at if before else now
        if entry is None:
            if now is not None and ended_at - now >= _SHORTEST_STEP:
                yield _Recorded([{"action": "advance", "by": seconds(ended_at - now)}], [])
            return
        own = [event for event in pending if until < event.event_id <= entry["until"]]
        pending = [event for event in pending if event.event_id > entry["until"]]
        at, do = datetime.fromisoformat(entry["at"]), entry["do"]
        if now is not None and do["action"] != "advance" and at - now >= _SHORTEST_STEP:
            yield _Recorded([{"action": "advance", "by": seconds(at - now)}], [])
        now = at
        if not is_setup(do):
            yield _Recorded([do], own)
        for event in own:
            derive(event, actor, memory)  # so that it knows what was received


def _derived(
    events: Sequence[Event], derive: catalog.Derive, actor: Actor, memory: dict[str, Any], now: datetime | None
) -> Iterator[_Recorded]:
    """Steps from events that no logged action caused. Effects belong to the step before. A step without actions has what is left
    out before the first one."""
    recorded: list[_Recorded] = []
    for event in events:
        if now is not None and event.at - now >= _SHORTEST_STEP:
            recorded.append(_Recorded([{"action": "advance", "by": seconds(event.at - now)}], []))
        now = event.at
        do = derive(event, actor, memory)
        if do:
            recorded.append(_Recorded(do, [*_before(recorded, event), event]))
        elif do is None:
            recorded = recorded or [_Recorded([], [])]
            recorded[-1].left_out.append(event)
        elif recorded:
            recorded[-1].events.append(event)
    yield from recorded


def _before(recorded: Sequence[_Recorded], event: Event) -> list[Event]:
    """The events of the same action that came before one, out of the steps before: the arrivals of a message's copies, and a
    receive that is recorded with the settlement."""
    message = event.entity_id, event.sequence_number
    early: list[Event] = []
    for step in recorded:
        copies = [
            arrival
            for arrival in step.events
            if arrival.kind in ARRIVALS and event.kind.is_terminal and _source(arrival) == message
        ]
        receives = [
            skipped
            for skipped in step.left_out
            if skipped.kind is EventKind.RECEIVED and (skipped.entity_id, skipped.sequence_number) == message
        ]
        step.events = [other for other in step.events if other not in copies]
        step.left_out = [other for other in step.left_out if other not in receives]
        early += copies + receives
    return early


def _source(event: Event) -> tuple[int, int | None] | None:
    """The message from which an arriving one was created."""
    return (event.other.entity_id, event.other.sequence_number) if event.other else None


def expected(event: Event, actor: Actor) -> dict[str, Any]:
    """What a scenario expects of an event."""
    table: dict[str, Any] = {"event": _event(event.kind)}
    if event.address:
        table["queue"] = event.address.path
    table["number"] = event.sequence_number
    if event.reason:
        table["reason"] = event.reason
    if event.delivery_count and event.kind in (EventKind.ABANDONED, EventKind.LOCK_LOST, EventKind.DEAD_LETTERED):
        table["count"] = event.delivery_count
    kind, _, name = (event.actor or "").partition(":")
    if kind == "process" and event.actor != str(actor) and event.kind is EventKind.RECEIVED:
        table["by"] = name
    return table


def _event(kind: EventKind) -> str:
    return kind.name.lower().replace("_", " ")


# Write


def written(title: str, family: Family, setup: Iterable[Mapping[str, Any]], steps: Iterable[_Recorded], actor: Actor) -> str:
    return _written(title, family, setup, [line for step in steps for line in _lines(step, actor)])


def written_load(title: str, family: Family, setup: Iterable[Mapping[str, Any]], load: Mapping[str, Any], say: str) -> str:
    """A scenario that puts a load on a queue. load: the action."""
    expect = {"load": "sent", "times": 1}
    step = [f"title = {_value(title)}", f"say = {_value(say)}", f"do = {_value(load)}", f"expect = {_value(expect)}"]
    return _written(title, family, setup, ["[[step]]", *step, ""], load["queue"])


def _written(title: str, family: Family, setup: Iterable[Mapping[str, Any]], steps: Iterable[str], load: str = "") -> str:
    lines = [f"title = {_value(title)}", f"family = {_value(str(family))}", *([f"load = {_value(load)}"] if load else []), ""]
    for action in setup:
        lines += ["[[setup]]", *(f"{_key(key)} = {_value(value)}" for key, value in _ordered(action).items()), ""]
    return "\n".join([*lines, *steps])


def _lines(step: _Recorded, actor: Actor) -> list[str]:
    recorded = _recorded(step, actor) if step.do else []
    return [*recorded, *(f"# not recorded: {in_words(expected(event, actor))}" for event in step.left_out), ""]


def _recorded(step: _Recorded, actor: Actor) -> list[str]:
    """The lines of a step."""
    names = " and ".join(dict.fromkeys(str(do["action"]).replace("_", " ") for do in step.do))
    do = [_ordered(action) for action in step.do]
    lines = ["[[step]]", f"title = {_value(names.capitalize())}", f"say = {_value(_say_text(step))}"]
    lines.append(f"do = {_value(do[0] if len(do) == 1 else do)}")
    if step.events:
        lines += ["expect = [", *(f"  {_value(expected(event, actor))}," for event in step.events), "]"]
    return lines


def _ordered(do: Mapping[str, Any]) -> dict[str, Any]:
    """An action with its name first, then who performs it."""
    return {key: do[key] for key in sorted(do, key=lambda key: (key != "action", key != "as", key != "queue"))}


def _say_text(step: _Recorded) -> str:
    count = len(step.events)
    return f"Recorded with {count} event{'' if count == 1 else 's'}." if count else "Recorded."


def _value(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(element)}" for key, element in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    # Texts, numbers and booleans are written as in JSON, but TOML has no DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)
