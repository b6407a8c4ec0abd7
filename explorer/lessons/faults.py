"""Faults in a sandbox without a lesson: its owner kills, slows, fails or disconnects one of its receivers.

These receivers act when their button is pressed. A fault changes what they do then, as their family says (FAULTS in its module of
lessons), and ends by itself, by the sandbox's clock. A sandbox's state has, under "faults", its kind and end by receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.types import Family
from explorer import sandbox_names
from explorer.models import FaultKind, Sandbox

from . import catalog
from .lesson import Do

LASTS = timedelta(minutes=1)  # of the sandbox's clock


@dataclass(frozen=True, slots=True)
class RunningFault:
    kind: FaultKind
    until: datetime


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver of a sandbox. effects: of the faults that it can have. fault: the one that it has."""

    name: str
    effects: Mapping[FaultKind, str]
    fault: RunningFault | None

    @property
    def fault_text(self) -> str:
        """What its fault does."""
        return self.effects[self.fault.kind] if self.fault else ""


def receivers(sandbox: Sandbox, now: datetime) -> list[Receiver]:
    """The receivers of a sandbox, in the order of their buttons; none in a lesson, whose steps say what they do."""
    if sandbox.lesson:
        return []
    family = Family(sandbox.family)
    names = dict.fromkeys(do.by for step in catalog.toolbox(family).steps for do in step.do if do.by)
    effects = {kind: effect.text for kind, effect in catalog.faults_of(family).items()}
    running = _running(sandbox, now)
    return [Receiver(name, effects, running.get(name)) for name in names]


def start(sandbox: Sandbox, receiver: str, kind: str, now: datetime) -> None:
    """Start a fault, in place of one that the receiver has. Raises InvalidArgument."""
    found_receiver = _find(sandbox, receiver, now)
    if kind not in found_receiver.effects:
        raise InvalidArgument("kind", f"must be one of {', '.join(found_receiver.effects)}")
    faults = sandbox.state.setdefault("faults", {})
    faults[receiver] = {"kind": kind, "until": (now + LASTS).isoformat()}
    sandbox.save_step()


def end(sandbox: Sandbox, receiver: str, now: datetime) -> None:
    """End a fault before its time. Nothing happens if it is over. Raises InvalidArgument."""
    _find(sandbox, receiver, now)
    sandbox.state.get("faults", {}).pop(receiver, None)
    sandbox.save_step()


def with_fault(sandbox: Sandbox, do: Do, now: datetime) -> Do:
    """An action as it is performed with the fault of its receiver. Raises NotAllowed if that receiver does not run."""
    fault = _running(sandbox, now).get(do.by)
    if fault is None:
        return do
    change = catalog.faults_of(Family(sandbox.family))[fault.kind].change
    if change is None:
        raise NotAllowed(f"{do.by} is {fault.kind} for another {human(fault.until - now)}. Advance the clock, or end the fault.")
    return replace(do, arguments={**do.arguments, **change})


def kinds_by_receiver(namespace: str | None, username: str, now: datetime) -> dict[str, str]:
    """The receivers of a sandbox of this person, each with the kind of its fault; empty: it has none."""
    if not sandbox_names.may_be_one(namespace):
        return {}
    sandbox = Sandbox.objects.filter(namespace=str(namespace).lower(), owner__username=username).first()
    return (
        {receiver.name: str(receiver.fault.kind) if receiver.fault else "" for receiver in receivers(sandbox, now)}
        if sandbox
        else {}
    )


def _find(sandbox: Sandbox, receiver: str, now: datetime) -> Receiver:
    match = next((candidate for candidate in receivers(sandbox, now) if candidate.name == receiver), None)
    if match is None:
        raise InvalidArgument("receiver", f"'{receiver[:80]}' is not a receiver of this sandbox")
    return match


def _running(sandbox: Sandbox, now: datetime) -> dict[str, RunningFault]:
    stored: Mapping[str, Any] = sandbox.state.get("faults", {})
    running = {
        name: RunningFault(FaultKind(stored_fault["kind"]), datetime.fromisoformat(stored_fault["until"]))
        for name, stored_fault in stored.items()
    }
    return {name: fault for name, fault in running.items() if fault.until > now}
