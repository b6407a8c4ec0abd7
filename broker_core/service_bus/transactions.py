"""Transactions: several sends and settlements, all or none (SB-160 to SB-167).

Operations are checked at once and executed at the commit, in one database transaction. So an open transaction holds no resources:
its messages keep their locks (SB-163), other senders are not blocked, and it is rolled back if its process dies (SB-164).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from broker_core.common.errors import EntityNotFound, NotAllowed, ServerBusy, TransactionEnded
from broker_core.common.lock_tokens import Tokens, unique_tokens
from broker_core.common.types import Actor, EntityAddress, Right, SubQueue
from broker_core.runtime.entity_cache import forget
from broker_core.runtime.room import require_room
from broker_core.service_bus.rules.messages import Prepared
from broker_core.service_bus.rules.transactions import SECONDS_AT_MOST, check_namespace, check_scope, check_size
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import UseCase, use_case

from .configured_limits import limits
from .messages import settling
from .messages.forwarding import forward_on
from .messages.publishing import Entry, SourceMessage, columns
from .messages.sending import prepare_all, refuse_send, send
from .messages.shared import cached_entity, on_entity
from .rules import sessions
from .rules.values import Message

TRIES = 3  # attempts of a commit that deadlocks with another one


class Transaction:
    """Sends and settlements to be committed together. Created by `transaction`. As a context manager it commits at the end of the
    block, or rolls back on an error. Not thread-safe."""

    def __init__(self, via: EntityAddress | None, actor: Actor, clock: Callable[[], float]):
        self._via, self._actor, self._clock = via, actor, clock
        self._settlements: list[tuple[int, Callable[[], Steps]]] = []
        self._sends: list[tuple[int, Callable[[], Steps]]] = []
        self._addresses: list[EntityAddress] = [via] if via else []
        self._messages = 0
        self._began: float | None = None
        self._ended: str | None = None

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is not None:
            self.rollback()
        elif self._ended is None:
            self.commit()

    def send(self, address: EntityAddress, messages: Iterable[Message]) -> None:
        """Send or schedule messages; they are checked now. `commit` returns their numbers."""
        prepared = prepare_all(address, messages)
        self._actor.require(Right.SEND, address)
        via = self._via
        if via is None or _is_same(via, address):
            self._add(
                self._sends, address, len(prepared), lambda: send.steps(address, [p.message for p in prepared], actor=self._actor)
            )
        else:
            check_namespace(via, address)
            self._add(self._sends, via, len(prepared), lambda: _send_via(via, address, prepared, str(self._actor)))

    def complete(self, address: EntityAddress, tokens: Tokens) -> None:
        """As service_bus.complete."""
        self._settle(settling.complete, address, tokens)

    def abandon(self, address: EntityAddress, tokens: Tokens, properties: Mapping[str, Any] | None = None) -> None:
        """As service_bus.abandon."""
        self._settle(settling.abandon, address, tokens, properties)

    def defer(self, address: EntityAddress, tokens: Tokens, properties: Mapping[str, Any] | None = None) -> None:
        """As service_bus.defer."""
        self._settle(settling.defer, address, tokens, properties)

    def dead_letter(
        self,
        address: EntityAddress,
        tokens: Tokens,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """As service_bus.dead_letter."""
        self._settle(settling.dead_letter, address, tokens, reason, description, properties)

    def renew(self, address: EntityAddress, tokens: Tokens) -> None:
        """As service_bus.renew."""
        self._settle(settling.renew, address, tokens)

    def rollback(self) -> None:
        """Discard all operations; the messages stay locked until their locks end (SB-163)."""
        self._end("was rolled back")

    def commit(self) -> list:
        """Execute all operations. Returns their results in the order of the calls: numbers, or a SettleReport.

        If an operation fails, its error is raised (LockLost for a lost lock) and nothing is done. Raises TransactionEnded after
        rollback, commit, or two minutes (SB-162).
        """
        return _commit(self)

    async def commit_aio(self) -> list:
        """`commit`, under asyncio."""
        return await _commit.aio(self)

    @property
    def namespace(self) -> str | None:
        """The namespace of its entities; None before the first operation."""
        return self._addresses[0].namespace if self._addresses else None

    def commit_steps(self) -> Steps:
        self._check_open()
        self._end("was committed")
        for tries_left in reversed(range(TRIES)):
            try:
                answers = yield Atomically(self._all())
                break
            except ServerBusy:
                if not tries_left:
                    raise
        if self._via is not None:
            with suppress(EntityNotFound):  # deleted since the commit, with the messages to forward
                yield from forward_on([(yield from cached_entity(self._via)).id])
        return answers

    def _all(self) -> Steps:
        """Settlements run first: a transaction that holds an entity's counter must not wait for a message lock."""
        answers = {}
        for place, operation in [*self._settlements, *self._sends]:
            answers[place] = yield from operation()
        return [answers[place] for place in sorted(answers)]

    def _settle(self, use_case: UseCase, address: EntityAddress, tokens: Tokens, *details: Any) -> None:
        self._actor.require(Right.LISTEN, address)
        tokens = unique_tokens(tokens)

        def steps() -> Steps:
            return (yield from use_case.steps(address, tokens, *details, actor=self._actor)).require_all()

        self._add(self._settlements, address, len(tokens), steps)

    def _add(self, operations: list, address: EntityAddress, messages: int, operation: Callable[[], Steps]) -> None:
        self._began = self._clock() if self._began is None else self._began
        self._check_open()
        check_scope(self._addresses, address)
        check_size(self._messages + messages, limits())
        self._addresses.append(address)
        self._messages += messages
        operations.append((len(self._settlements) + len(self._sends), operation))

    def _check_open(self) -> None:
        if self._ended is None and self._began is not None and self._clock() - self._began > SECONDS_AT_MOST:
            self._end("exceeded two minutes and was rolled back")
        if self._ended is not None:
            raise TransactionEnded(self._ended)

    def _end(self, how: str) -> None:
        if self._ended is None:
            self._ended = how


@use_case
def _commit(transaction: Transaction) -> Steps:
    return (yield from transaction.commit_steps())


def transaction(
    *, via: EntityAddress | None = None, actor: Actor | None = None, clock: Callable[[], float] = time.monotonic
) -> Transaction:
    """A new transaction over one entity, or a topic and its subscriptions (SB-161).

    via:   allows sends to other entities of the namespace: their messages are stored in this entity with the transaction, and
           forwarded from there (SB-166). Messages that cannot be forwarded are moved to its transfer dead-letter queue; those for
           a full destination wait.
    clock: returns seconds, for the time limit of two minutes.
    """
    if via is not None and via.subqueue is not SubQueue.MAIN:
        raise NotAllowed(f"Cannot send via {via}; use its queue or topic (SB-166).")
    return Transaction(via.topic or via if via else None, actor or Actor.local(), clock)


def _send_via(via: EntityAddress, address: EntityAddress, prepared: Sequence[Prepared], actor: str) -> Steps:
    """Store messages for `address` on the transfer list of `via`. Returns their numbers there. Raises EntityNotFound (SB-166)."""
    yield from require_room(via.namespace)
    forget(address)
    destination = yield from cached_entity(address)
    if destination.requires_session:
        sessions.check_have_session(address, [p.message for p in prepared])
    origin = SourceMessage(transfer=json.dumps({"to": address.path, "hops": 0}))
    entries = [Entry(place, p, origin, SubQueue.TRANSFER) for place, p in enumerate(prepared)]

    def attempt(entity) -> Steps:
        params = columns(prepared, entries, {entity.id: list(range(1, len(entries) + 1))})
        return (yield call("deliver", entity_id=entity.id, from_id=entity.id, actor=actor, **params))

    _, rows, status = yield from on_entity(via, attempt)
    if not rows:
        refuse_send(via, status, prepared)
    return list(range(rows[0].first, rows[0].first + len(prepared)))


def _is_same(address: EntityAddress, other: EntityAddress) -> bool:
    return (address.namespace.lower(), address.path.lower()) == (other.namespace.lower(), other.path.lower())
