"""What listeners say of themselves in the database: their ports, and what they refused. The explorer shows it.

A listener stores it with the epoch of its process (broker_core/runtime/processes.py), so a killed one is gone at once, and a
stopped one when its lease ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, Right
from broker_core.reads.shared import require
from broker_core.runtime import processes
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

SECONDS = 2.0  # between two looks whether something has changed
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenPort:
    """A port that a listener serves."""

    title: str
    number: int


@dataclass(frozen=True, slots=True)
class Listening:
    """ports: that are open. problems: a sentence for each port that could not be opened. refused: connections, by the reason."""

    ports: Sequence[OpenPort]
    problems: Sequence[str] = ()
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningListener:
    """A listener that runs. process: its label. since: real time."""

    process: str
    since: datetime
    listening: Listening


@use_case(namespace=WHOLE_DATABASE)
def listeners(*, actor: Actor | None = None) -> Steps[list[RunningListener]]:
    """The listeners that run, the oldest first."""
    require(actor, Right.BROWSE, "listeners")
    return [RunningListener(row.label, row.started_at, _parsed(row.listener)) for row in (yield call("read_listeners"))]


def _parsed(stored: Mapping[str, Any]) -> Listening:
    return Listening([OpenPort(**port) for port in stored["ports"]], stored["problems"], stored["refused"])


@use_case(namespace=WHOLE_DATABASE)
def _record(epoch: int, listening: Listening) -> Steps[bool]:
    return bool((yield call("record_listener", epoch=epoch, listener=json.dumps(asdict(listening)))))


async def keep_recorded(current: Callable[[], Listening]) -> None:
    """Record it until cancelled, whenever it has changed or the process has a new epoch. Waits while the database is away."""
    recorded: tuple[int, Listening] | None = None
    is_away = False
    while True:
        try:
            process, listening = await asyncio.to_thread(processes.join), current()
            if recorded != (process.epoch, listening) and await _record.aio(process.epoch, listening):
                recorded = (process.epoch, listening)
            is_away = False
        except BrokerError as problem:
            if not is_away:
                _log.warning("The state of the listener cannot be recorded: %s", problem)
            is_away = True
        except Exception:
            _log.exception("The state of the listener was not recorded")
        await asyncio.sleep(SECONDS)
