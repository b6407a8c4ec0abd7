"""Receiving together with the other calls of this process that wait for the same list (runtime.dispatcher)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker_core.common.arguments import is_storable
from broker_core.common.types import Actor, EntityAddress
from broker_core.runtime.dispatcher import Receive, Release, Waiter, wait_in_turn
from broker_core.runtime.waiting import poll_for_messages
from broker_core.runtime.wake_ups import WatchedList
from broker_core.store import connections
from broker_core.store.driver import Steps

from .shared import entity_id_of


class Receiver(Waiter):
    """A call that waits for messages or a session of an entity."""

    __slots__ = ("actor", "address")

    def __init__(self, address: EntityAddress, actor: Actor, max_count: int, asked: Any = None):
        super().__init__(actor.holder_label, max_count, asked)
        self.address, self.actor = address, actor


def receive_or_wait(
    receiver: Receiver,
    max_wait_seconds: float,
    receive: Receive,
    release: Release,
    watched: Callable[[int], WatchedList],
    *,
    mode: str,
    passes_on: bool = False,
) -> Steps[list]:
    """What `receive` gives the receiver, after waiting at most so long.

    watched: the list of an entity, by its id. mode, receive, release, passes_on: see runtime.dispatcher.
    """

    def alone() -> Steps[list]:
        return [message for _, message in (yield from receive(receiver, [receiver])).assignments]

    if max_wait_seconds <= 0 or not is_storable(receiver.holder):
        return (yield from alone())
    if connections.in_callers_transaction():  # only this thread sees what the transaction has written
        return (yield from poll_for_messages(alone, (), max_wait_seconds))
    deadline, has_ended = time.monotonic() + max_wait_seconds, False
    while not has_ended:
        watched_list = watched((yield from entity_id_of(receiver.address)))
        left = deadline - time.monotonic()
        has_ended = yield from wait_in_turn(receiver, watched_list, mode, receive, release, left, passes_on=passes_on)
    return receiver.received
