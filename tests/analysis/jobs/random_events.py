"""Random histories of messages, as the broker's statements write their events: those of a receive may come before the loss of the
lock that it noticed, and a namespace's clock may be set back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa

from broker_core.common.types import EventKind as K
from broker_core.history.schema import EVENT

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
REASONS = (
    "Order 17 of 3fa85f64-5717-4562-b3fc-2c963f66afa6 failed",
    "TTLExpiredException",
    "MaxDeliveryCountExceeded",
    None,
    " a  b ",
)


class Writer:
    """Writes events with rising ids; each call of `transaction` begins another transaction."""

    def __init__(self, dice: Random):
        self.dice, self.rows = dice, []
        self.at, self.recorded_at, self.xid = NOON, NOON, 100

    def transaction(self) -> None:
        self.xid += self.dice.randint(1, 3)
        self.recorded_at += timedelta(seconds=self.dice.uniform(0.1, 60))
        step = -5 if self.dice.random() < 0.02 else self.dice.choice((0, 0.001, 1, 7, 40))
        self.at += timedelta(seconds=step)

    def write(self, entity: int, number: int, kind: K, **values: Any) -> None:
        self.rows.append(
            {
                "event_id": len(self.rows) + 1, "recorded_at": self.recorded_at, "xid": self.xid, "at": self.at,
                "entity_id": entity,
                "subqueue": 0, "sequence_number": number, "kind": int(kind), "message_id": f"m{entity}-{number}",
                "delivery_count": 0, "default_limits_own": False, "entity_time_to_live_us": self.dice.choice((None, 60_000_000)),
                **values,
            }
        )  # fmt: skip


class Message:
    """A message that goes on by a random step at a time. state: active, held, gone; in the main list or among dead letters."""

    def __init__(self, writer: Writer, entity: int, number: int):
        self.writer, self.dice, self.entity, self.number = writer, writer.dice, entity, number
        self.state, self.subqueue, self.holder = "active", 0, ""
        self.until: datetime | None = None
        self.received: list[datetime] = []
        self.enqueued = writer.at
        if self.dice.random() < 0.9:  # else its beginning is not known
            origin = self.dice.choice(((None, None, None), ("activated_from", entity, number + 10_000), ("from", entity + 1, 3)))
            self._event(
                self.dice.choice((K.SENT, K.SENT, K.SENT, K.SCHEDULED)), enqueued_at=self.enqueued,
                time_to_live_us=self.dice.choice((None, 30_000_000, 90_000_000)), session_id=self.dice.choice((None, "s1")),
                size=self.dice.randint(1, 999), link=origin[0], linked_entity_id=origin[1], linked_sequence_number=origin[2],
                actor="sender", application_properties=json.dumps({"region": ["string", self.dice.choice("ab")]}),
            )  # fmt: skip

    def _event(self, kind: K, **values: Any) -> None:
        self.writer.write(self.entity, self.number, kind, subqueue=values.pop("subqueue", self.subqueue), **values)

    def _ending(self, kind: K, **values: Any) -> None:
        times = {"first_received_at": self.received[0], "last_received_at": self.received[-1]} if self.received else {}
        self._event(kind, enqueued_at=self.enqueued, **times, **values)

    def step(self) -> None:
        if self.state == "gone":
            if self.dice.random() < 0.3:
                self._event(K.SETTLE_REFUSED, actor="late", reason="complete")
            elif self.dice.random() < 0.2 and self.last in (K.PURGED, K.RESUBMITTED):
                self._event(K.RESTORED, enqueued_at=self.enqueued, actor="operator")
                self.state = "active"
            return
        if self.state == "active" and self.subqueue == 0 and self.dice.random() < 0.1:
            self._event(K.EDITED, size=self.dice.randint(1, 999), actor="operator")
        self._receive_or_end() if self.state == "active" else self._go_on()

    def _end(self, kind: K, **values: Any) -> None:
        self.state, self.last = "gone", kind
        self._ending(kind, **values)

    def _receive_or_end(self) -> None:
        how = self.dice.random()
        if how < 0.75:
            self._receive(late=False)
        elif how < 0.8:
            self._end(K.RECEIVED_AND_DELETED, actor=self.dice.choice("ab"))
        elif how < 0.9:
            self._end(self.dice.choice((K.PURGED, K.RESUBMITTED, K.DELETED)), actor="operator")
        elif how < 0.95:
            link = {"link": "to", "linked_entity_id": 9, "linked_sequence_number": self.number}
            self._end(self.dice.choice((K.FORWARDED, K.MOVED)), reason=self.dice.choice(REASONS), **link)
        else:
            self._end(self.dice.choice((K.EXPIRED, K.DROPPED)), reason=self.dice.choice(REASONS))

    def _receive(self, *, late: bool) -> None:
        """late: it notices that the lock of the one before had ended."""
        lost = {"locked_until": self.until, "actor": self.holder, "delivery_count": len(self.received)}
        taker = self.dice.choice("abc")
        deletes = late and self.dice.random() < 0.2
        first = late and self.dice.random() < 0.5  # which event is written first
        if late and first:
            self._event(K.LOCK_LOST, **lost)
        if deletes:
            self.state, self.last = "gone", K.RECEIVED_AND_DELETED
            self._ending(K.RECEIVED_AND_DELETED, actor=taker)
        else:
            self.until = self.dice.choice((None, self.writer.at + timedelta(seconds=10)))
            self.state, self.holder = "held", taker
            if self.subqueue == 0:
                self.received.append(self.writer.at)
            self._event(K.RECEIVED, actor=taker, locked_until=self.until)
        if late and not first:
            self._event(K.LOCK_LOST, **lost)

    def _go_on(self) -> None:
        ended = self.until is not None and self.until <= self.writer.at
        how = self.dice.random()
        if ended and how < 0.6:
            self._receive(late=True)
        elif ended and how < 0.7:
            self._event(K.LOCK_LOST, locked_until=self.until, actor=self.holder)
            self.state = "active"
        elif how < 0.15 and self.until:
            self.until += timedelta(seconds=10)
            self._event(K.RENEWED, locked_until=self.until, actor=self.holder)
        elif how < 0.35:
            self._event(
                self.dice.choice((K.ABANDONED, K.RELEASED, K.DEFERRED)), actor=self.holder, delivery_count=len(self.received)
            )
            self.state = "active"
        elif how < 0.5 and self.subqueue == 0:
            self.subqueue, self.state = 1, "active"
            self._ending(K.DEAD_LETTERED, actor=self.holder, reason=self.dice.choice(REASONS), subqueue=1)
        elif how < 0.55:
            self._event(
                K.LOCK_LOST, locked_until=self.writer.at + timedelta(seconds=5), actor=self.holder
            )  # released by an operator
            self.state = "active"
        else:
            self._end(K.COMPLETED, actor=self.holder, delivery_count=len(self.received))


def random_events(seed: int, count: int) -> pa.Table:
    """About so many events of random messages of three entities, in the order of their ids."""
    dice = Random(seed)
    writer = Writer(dice)
    messages: list[Message] = []
    while len(writer.rows) < count:
        writer.transaction()
        if not messages or dice.random() < 0.25:
            messages.append(Message(writer, dice.randint(1, 3), len(messages) + 1))
        dice.choice(messages[-40:]).step()
    return pa.Table.from_pylist(writer.rows, schema=EVENT)
