"""Connections that their process no longer refers to, or could not end in the database: recovery ends them."""

from __future__ import annotations

import weakref

from broker_core.common.types import Actor
from broker_core.runtime import processes

from .state import KIND

_unknown_before: weakref.WeakKeyDictionary[processes.Process, set[int]] = weakref.WeakKeyDictionary()


def release_forgotten(process: processes.Process) -> None:
    """Reassign connections to a dead process that were unknown in two consecutive looks: one that is being opened is known by the
    second."""
    registered = {row.id for row in process.run("connections_of", epoch=process.epoch)}
    unknown = {number for number in registered if f"{KIND} {number}" not in process.owned}
    if forgotten := unknown & _unknown_before.get(process, set()):
        process.run("reassign_to_dead_process", connection_ids=list(forgotten), label=Actor.local().name)
    _unknown_before[process] = unknown - forgotten
