"""Combine concurrent calls of many connections of a process into few statements (docs/design.md D3, D12).

Calls that arrive while a statement runs go into the next one, so a single caller keeps its latency and many callers get batches.
For asyncio front ends. Only calls with the same address and actor are combined. An error of one caller never reaches another: a
failed group is split, and each call is made separately. The message of a call that was cancelled before it got it is released.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from uuid import UUID

from broker_core import service_bus as broker
from broker_core.common.errors import BrokerError, BrokerUnavailable
from broker_core.common.types import Actor, EntityAddress, LockedMessage, Message, SettleReport, StoredMessage
from broker_core.service_bus.rules import messages as service_bus
from broker_core.store import aio, connections
from broker_core.store.driver import Listening, Steps, WaitForMessages

MOST_IN_A_GROUP = 500
SECONDS_FOR_A_GROUP = 1.0  # groups are smaller if sends are slow: a topic of 2,000 subscriptions stores 2,000 copies of a message
FEWEST_IN_A_GROUP = 10  # however slow, so that a slow database gets few statements
_BODY_BYTES_LIKE_A_MESSAGE = 8192  # large bodies fill a group sooner, at some 4 MB
_SHORTEST_WAIT_SECONDS = 0.05  # avoids a busy loop for callers whose time is nearly over
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
    """Receive one message with a lock; None if there was none in this time. The message of a cancelled call is released."""
    return await _receive(broker.receive, address, max_wait_seconds, actor)


async def receive_and_delete(address: EntityAddress, *, max_wait_seconds: float = 0, actor: Actor) -> StoredMessage | None:
    """Receive and delete one message. If the call is cancelled during the deletion, the message is lost (SB-060)."""
    return await _receive(broker.receive_and_delete, address, max_wait_seconds, actor)


async def _receive(operation: Any, address: EntityAddress, max_wait_seconds: float, actor: Actor) -> Any:
    found = await _for_this_loop().receives.call((operation, address, actor), 1)
    if found is None and max_wait_seconds > 0:
        found = await _for_this_loop().waits.call((operation, address, actor), max_wait_seconds)
    return found


class Gathering:
    """Runs calls of one kind, one group at a time for each key.

    run:     gets a key and the arguments of its group, and returns an outcome (a result or an exception) for each, in order.
    size_of: what an argument adds to the size of its group. A group is as large as SECONDS_FOR_A_GROUP allows at the speed of the
             previous one, from FEWEST_IN_A_GROUP to MOST_IN_A_GROUP; a single larger argument forms its own group.
    unclaimed: called with the outcome of a cancelled call.
    """

    def __init__(
        self, run, *, size_of: Callable[[Any], int] = len, unclaimed: Callable[[Any, Any], None] = lambda key, outcome: None
    ):
        self._run, self._size_of, self._unclaimed = run, size_of, unclaimed
        self._queues: dict[Hashable, deque[tuple[Any, asyncio.Future]]] = {}
        self._workers: set[asyncio.Task] = set()

    async def call(self, key: Hashable, argument: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        if key in self._queues:
            self._queues[key].append((argument, future))
        else:
            self._queues[key] = deque([(argument, future)])
            _keep(self._workers, self._process(key))
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # the result arrived before the cancellation
                self._return_unclaimed(key, future)
            raise

    async def _process(self, key: Hashable) -> None:
        queue, most = self._queues[key], MOST_IN_A_GROUP
        try:
            while group := self._next_group(queue, most):
                began = time.monotonic()
                outcomes = await self._outcomes(key, [argument for argument, _ in group])
                most = _next_size(sum(self._size_of(argument) for argument, _ in group), time.monotonic() - began)
                for (_, future), outcome in zip(group, outcomes, strict=True):
                    self._answer(key, future, outcome)
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

    def _answer(self, key: Hashable, future: asyncio.Future, outcome: Any) -> None:
        if future.done():
            self._unclaimed(key, outcome)
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _return_unclaimed(self, key: Hashable, future: asyncio.Future) -> None:
        if future.exception() is None:
            self._unclaimed(key, future.result())


def _next_size(size: int, seconds: float) -> int:
    """The group size that should take SECONDS_FOR_A_GROUP, given that a group of this size took `seconds`."""
    wanted = size * SECONDS_FOR_A_GROUP / seconds if seconds > 0 else MOST_IN_A_GROUP
    return max(FEWEST_IN_A_GROUP, int(min(wanted, MOST_IN_A_GROUP)))


class Waiting:
    """Lets callers that wait for messages of one entity share one waiting receive; the longest waiting caller gets the next
    message."""

    def __init__(self, unclaimed: Callable[[Any, Any], None]):
        self._unclaimed = unclaimed
        self._queues: dict[Hashable, deque[_Waiter]] = {}
        self._workers: set[asyncio.Task] = set()

    async def call(self, key: Hashable, max_wait_seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), loop.time() + max_wait_seconds)
        if key in self._queues:
            self._queues[key].append(waiter)
        else:
            self._queues[key] = deque([waiter])
            _keep(self._workers, self._serve(key))
        try:
            await asyncio.wait([waiter.future], timeout=max_wait_seconds)
        except asyncio.CancelledError:
            if waiter.future.done() and waiter.future.exception() is None:
                self._unclaimed(key, waiter.future.result())
            waiter.future.cancel()
            raise
        if waiter.future.done():
            return waiter.future.result()
        waiter.future.cancel()
        return None

    async def _serve(self, key: Any) -> None:
        operation, address, actor = key
        queue = self._queues[key]
        try:
            while self._has_waiters(queue):
                seconds = max(waiter.deadline for waiter in queue) - asyncio.get_running_loop().time()
                steps = operation.steps(address, len(queue), max_wait_seconds=max(seconds, _SHORTEST_WAIT_SECONDS), actor=actor)
                with connections.of(address.namespace):
                    messages = await aio.run(_while_wanted(steps, lambda: self._has_waiters(queue)))
                for message in messages:
                    self._hand_over(key, queue, message)
        except Exception as exc:
            for waiter in self._alive(queue):
                waiter.future.set_exception(exc)
        finally:
            del self._queues[key]
            for waiter in queue:
                waiter.future.cancel()

    def _hand_over(self, key: Any, queue: deque, message: Any) -> None:
        if self._has_waiters(queue):
            queue.popleft().future.set_result(message)
        else:
            self._unclaimed(key, message)

    @staticmethod
    def _alive(queue: deque) -> list[_Waiter]:
        return [waiter for waiter in queue if not waiter.future.done()]

    def _has_waiters(self, queue: deque) -> bool:
        """Whether callers are still waiting; removes those that are not."""
        alive = self._alive(queue)
        if len(alive) < len(queue):
            queue.clear()
            queue.extend(alive)
        return bool(queue)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    future: asyncio.Future
    deadline: float  # on the loop's clock


def _while_wanted(steps: Steps, wanted: Callable[[], bool]) -> Steps:
    """The same steps, ending without messages after a wait in which the last caller was cancelled.

    Statements are never interrupted: a receive cancelled between its commit and its result would leave a message locked.
    """
    value = None
    try:
        while True:
            step = steps.send(value)
            value = yield Listening(step.entity_ids, _while_wanted(step.steps, wanted)) if isinstance(step, Listening) else step
            if isinstance(step, WaitForMessages) and not wanted():
                steps.close()
                return []
    except StopIteration as end:
        return end.value


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


async def _receive_together(key: tuple[Any, EntityAddress, Actor], ones: list[int]) -> list[Any]:
    operation, address, actor = key
    messages = await operation.aio(address, len(ones), actor=actor)
    return [*messages, *[None] * (len(ones) - len(messages))]


async def _outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except Exception as exc:
        return exc


def _release(key: tuple[Any, EntityAddress, Actor], message: Any) -> None:
    """Release the message of a disconnected receiver; no failed delivery is counted (SB-926)."""
    operation, address, actor = key
    if isinstance(message, LockedMessage):
        _keep(_for_this_loop().releases, release(address, message, actor=actor))
    elif message is not None:
        _log.warning("%s: message %d was removed for a receiver that had disconnected (SB-060)", address, message.sequence_number)


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
        self.receives = Gathering(_receive_together, size_of=lambda one: one, unclaimed=_release)
        self.waits = Waiting(_release)
        self.releases: set[asyncio.Task] = set()


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
