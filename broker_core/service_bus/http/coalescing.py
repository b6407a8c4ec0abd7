"""Combine concurrent calls of many connections of a process into few statements (docs/design.md D3, D12).

Calls that arrive while a statement runs go into the next one, so a single caller keeps its latency and many callers get batches.
For asyncio front ends. Only calls with the same address and actor are combined. An error of one caller never reaches another: a
failed group is split, and each call is made separately. Receives are combined by the process's dispatchers (runtime.dispatcher).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any
from uuid import UUID

from broker_core import service_bus as broker
from broker_core.common.errors import BrokerError, BrokerUnavailable
from broker_core.common.types import Actor, EntityAddress, LockedMessage, Message, SettleReport, StoredMessage
from broker_core.service_bus.rules import messages as service_bus

MOST_IN_A_GROUP = 500
SECONDS_FOR_A_GROUP = 1.0  # groups are smaller if sends are slow: a topic of 2,000 subscriptions stores 2,000 copies of a message
FEWEST_IN_A_GROUP = 10  # however slow, so that a slow database gets few statements
_BODY_BYTES_LIKE_A_MESSAGE = 8192  # large bodies fill a group sooner, at some 4 MB
_LEAST_SECONDS = 0.001  # a receive that may wait is combined with others
_log = logging.getLogger(__name__)


async def send(address: EntityAddress, messages: Sequence[Message], *, actor: Actor) -> list[int | None]:
    """As service_bus.send: store all of `messages` or none; returns sequence numbers, None for a dropped duplicate."""
    for message in messages:
        service_bus.prepare(message)  # an invalid message never gets into a group
    return await _for_this_loop().sends.call((address, replace(actor, holder="")), messages)


async def complete(address: EntityAddress, tokens: Sequence[UUID], *, actor: Actor) -> SettleReport:
    """As service_bus.complete."""
    return await _for_this_loop().completes.call((address, replace(actor, holder="")), tokens)


async def receive(address: EntityAddress, *, max_wait_seconds: float = 0, actor: Actor) -> LockedMessage | None:
    """Receive one message with a lock; None if there was none in this time. Calls of the process are combined by its dispatcher,
    also those that do not wait. The message of a cancelled call is released."""
    found = await broker.receive.aio(address, max_wait_seconds=max(max_wait_seconds, _LEAST_SECONDS), actor=actor)
    return found[0] if found else None


async def receive_and_delete(address: EntityAddress, *, max_wait_seconds: float = 0, actor: Actor) -> StoredMessage | None:
    """Receive and delete one message. If the call is cancelled during the deletion, the message is lost (SB-060)."""
    found = await broker.receive_and_delete.aio(address, max_wait_seconds=max(max_wait_seconds, _LEAST_SECONDS), actor=actor)
    return found[0] if found else None


class Gathering:
    """Runs calls of one kind, one group at a time for each key.

    run:     gets a key and the arguments of its group, and returns an outcome (a result or an exception) for each, in order.
    size_of: what an argument adds to the size of its group. A group is as large as SECONDS_FOR_A_GROUP allows at the speed of the
             previous one, from FEWEST_IN_A_GROUP to MOST_IN_A_GROUP; a single larger argument forms its own group.
    """

    def __init__(self, run, *, size_of: Callable[[Any], int] = len):
        self._run, self._size_of = run, size_of
        self._queues: dict[Hashable, deque[tuple[Any, asyncio.Future]]] = {}
        self._workers: set[asyncio.Task] = set()

    async def call(self, key: Hashable, argument: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        if key in self._queues:
            self._queues[key].append((argument, future))
        else:
            self._queues[key] = deque([(argument, future)])
            _keep(self._workers, self._process(key))
        return await future

    async def _process(self, key: Hashable) -> None:
        queue, most = self._queues[key], MOST_IN_A_GROUP
        try:
            while group := self._next_group(queue, most):
                began = time.monotonic()
                outcomes = await self._outcomes(key, [argument for argument, _ in group])
                most = _next_size(sum(self._size_of(argument) for argument, _ in group), time.monotonic() - began)
                for (_, future), outcome in zip(group, outcomes, strict=True):
                    self._answer(future, outcome)
        finally:
            del self._queues[key]
            for _, future in queue:
                future.cancel()

    def _next_group(self, queue: deque, most: int) -> list[tuple[Any, asyncio.Future]]:
        group: list[tuple[Any, asyncio.Future]] = []
        size = 0
        while queue and (not group or size + self._size_of(queue[0][0]) <= most):
            argument, future = queue.popleft()
            if not future.done():
                group.append((argument, future))
                size += self._size_of(argument)
        return group

    async def _outcomes(self, key: Hashable, arguments: list) -> Sequence[Any]:
        try:
            return await self._run(key, arguments)
        except Exception as exc:
            return [exc] * len(arguments)

    @staticmethod
    def _answer(future: asyncio.Future, outcome: Any) -> None:
        if future.done():  # the call was cancelled
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _next_size(size: int, seconds: float) -> int:
    """The group size that should take SECONDS_FOR_A_GROUP, given that a group of this size took `seconds`."""
    wanted = size * SECONDS_FOR_A_GROUP / seconds if seconds > 0 else MOST_IN_A_GROUP
    return max(FEWEST_IN_A_GROUP, int(min(wanted, MOST_IN_A_GROUP)))


def _weight(messages: Sequence[Message]) -> int:
    return sum(1 + len(message.body) // _BODY_BYTES_LIKE_A_MESSAGE for message in messages)


async def _send_together(key: tuple[EntityAddress, Actor], batches: list[Sequence[Message]]) -> list[Any]:
    address, actor = key
    try:
        numbers = iter(await broker.send.aio(address, [message for batch in batches for message in batch], actor=actor))
        return [list(islice(numbers, len(batch))) for batch in batches]
    except BrokerUnavailable:  # the outcome is unknown; sending again could store the group twice
        raise
    except BrokerError:
        if len(batches) == 1:
            raise
    return [await _outcome(broker.send.aio(address, batch, actor=actor)) for batch in batches]


async def _complete_together(key: tuple[EntityAddress, Actor], groups: list[Sequence[UUID]]) -> list[Any]:
    address, actor = key
    report = await broker.complete.aio(address, [token for tokens in groups for token in tokens], actor=actor)
    settled = dict(report.settled)
    return [_share(tokens, settled, report) for tokens in groups]


def _share(tokens: Sequence[UUID], settled: dict[UUID, int], report: SettleReport) -> SettleReport:
    """One caller's part of the report; a token given by two callers was settled by the first of them (SB-071)."""
    held = {token: settled.pop(token) for token in tokens if token in settled}
    lost = tuple(token for token in dict.fromkeys(tokens) if token not in held)
    return SettleReport(tuple(held.items()), lost, lost_sessions=tuple(t for t in report.lost_sessions if t[0] in lost))


async def _outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except Exception as exc:
        return exc


async def release(address: EntityAddress, message: LockedMessage, *, actor: Actor) -> None:
    """Release a locked message. Errors are only logged, since the lock ends by itself."""
    try:
        await broker.release.aio(address, [message.lock_token], actor=actor)
    except BrokerError as exc:
        _log.warning("%s: message %d stays locked until %s: %s", address, message.sequence_number, message.locked_until, exc)


class _Gatherings:
    """The gatherings of one event loop."""

    def __init__(self):
        self.sends = Gathering(_send_together, size_of=_weight)
        self.completes = Gathering(_complete_together)


_gatherings: dict[asyncio.AbstractEventLoop, _Gatherings] = {}


def _for_this_loop() -> _Gatherings:
    loop = asyncio.get_running_loop()
    if loop not in _gatherings:
        for closed in [other for other in _gatherings if other.is_closed()]:
            del _gatherings[closed]
        _gatherings[loop] = _Gatherings()
    return _gatherings[loop]


def _keep(tasks: set[asyncio.Task], work: Any) -> None:
    """Start a task and keep a reference to it; the event loop keeps only a weak one."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
