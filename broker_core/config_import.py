"""Creates or updates what a configuration file describes, as one transaction: all of it or nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields

from . import entities
from .semantics.emulator_config import NamespacePlan, Plan, QueuePlan
from .semantics.errors import EntityNotFound, NotAllowed
from .semantics.types import Actor, EntityAddress, QueueSettings
from .store.driver import Atomically, Steps, use_case


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one namespace or queue. did: "created", "updated" or "unchanged"; settings: (before, after)."""

    did: str
    what: str
    address: str
    settings: dict[str, tuple]


@use_case
def apply_plan(plan: Plan, *, actor: Actor | None = None) -> Steps:
    """Make namespaces and queues as planned; returns a list of Change. A setting the plan does not name takes its default.

    Queues that the plan does not name are left alone. Needs MANAGE. Raises NotAllowed for the system namespace.
    """

    def steps():
        changes = []
        for namespace in plan.namespaces:
            changes.append((yield from _namespace(namespace, actor)))
            for queue in namespace.queues:
                changes.append((yield from _queue(namespace, queue, actor)))
        return changes

    return (yield Atomically(steps()))


def _namespace(plan: NamespacePlan, actor: Actor | None) -> Steps:
    try:
        found = yield from entities.get_namespace.steps(plan.name, actor=actor)
    except EntityNotFound:
        created = yield from entities.create_namespace.steps(plan.name, actor=actor)
        return Change("created", "namespace", created.name, {})
    if found.is_system:
        raise NotAllowed(f"The namespace '{plan.name}' carries Vitrine's own work; a file cannot change it. Choose another name.")
    return Change("unchanged", "namespace", found.name, {})


def _queue(namespace: NamespacePlan, plan: QueuePlan, actor: Actor | None) -> Steps:
    address = EntityAddress(namespace.name, plan.path)
    wanted = QueueSettings(**plan.settings)
    try:
        current = (yield from entities.get_queue.steps(address, actor=actor)).settings
    except EntityNotFound:
        yield from entities.create_queue.steps(address, wanted, actor=actor)
        return Change("created", "queue", str(address), {})
    differing = _differing(current, wanted)
    if not differing:
        return Change("unchanged", "queue", str(address), {})
    yield from entities.update_queue.steps(address, actor=actor, **{name: after for name, (_, after) in differing.items()})
    return Change("updated", "queue", str(address), differing)


# Settings of Vitrine's own, which a file for the emulator cannot name and so must not reset.
_OURS = ("expiry_mode", "history_level", "hidden")


def _differing(current: QueueSettings, wanted: QueueSettings) -> dict[str, tuple]:
    names = (f.name for f in fields(QueueSettings) if f.name not in _OURS)
    return {n: (getattr(current, n), getattr(wanted, n)) for n in names if getattr(current, n) != getattr(wanted, n)}
