"""The table of a message's life (service_bus/life.py): each line is carried out on a real queue."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from broker_core import reads, service_bus, sweeps
from broker_core.common.errors import EntityNotFound, LockLost
from broker_core.common.types import EntityAddress, EventKind, MessageState
from broker_core.service_bus import entities
from broker_core.service_bus.life import LIFE, State, Transition
from broker_core.service_bus.rules.display_state import DisplayState
from broker_core.service_bus.rules.values import LockedMessage, Message
from broker_core.service_bus.sweeps import forward_messages
from broker_core.store import connections
from tests.broker_state import entity_id, now

ROOT = Path(__file__).parents[2]
SECOND = timedelta(seconds=1)
STATES = {
    (False, DisplayState.SCHEDULED): State.SCHEDULED, (False, DisplayState.AVAILABLE): State.ACTIVE,
    (False, DisplayState.LOCKED): State.LOCKED, (False, DisplayState.DEFERRED): State.DEFERRED,
    (True, DisplayState.AVAILABLE): State.DEAD_LETTERED, (True, DisplayState.LOCKED): State.DEAD_LETTER_LOCKED,
}  # fmt: skip


class Life:
    """A queue with one message."""

    def __init__(self, make_queue: Callable, step: Callable, operation: str):
        self.step, self.make_queue = step, make_queue
        last = operation == "abandon the last delivery"
        self.queue: EntityAddress = make_queue(
            lock_duration=10 * SECOND,
            max_delivery_count=1 if last else 10,
            requires_duplicate_detection="duplicate" in operation,
            dead_lettering_on_message_expiration="with dead-lettering" in operation,
        )
        self.time_to_live = 5 * SECOND if operation.startswith("expire") else None
        self.entity_id = entity_id(self.queue)
        self.number = 0
        self.lock: LockedMessage | None = None

    def reach(self, state: State) -> None:
        """Bring the message into a state."""
        if state is State.NONE:
            return
        at = now(self.queue) + 60 * SECOND if state is State.SCHEDULED else None
        self.send(scheduled_enqueue_at=at)
        if state in (State.SCHEDULED, State.ACTIVE):
            return
        self.receive()
        if state in (State.DEFERRED, State.DEFERRED_LOCKED):
            service_bus.defer(self.queue, self.lock.lock_token)
        if state is State.DEFERRED_LOCKED:
            (self.lock,) = service_bus.receive_deferred(self.queue, [self.number])
        if state in (State.DEAD_LETTERED, State.DEAD_LETTER_LOCKED):
            service_bus.dead_letter(self.queue, self.lock.lock_token)
        if state is State.DEAD_LETTER_LOCKED:
            (self.lock,) = service_bus.receive(self.queue.dead_letter)

    def send(self, **options) -> None:
        message = Message(b"x", message_id="one", time_to_live=self.time_to_live, **options)
        (self.number,) = service_bus.send(self.queue, [message])

    def receive(self) -> None:
        (self.lock,) = service_bus.receive(self.queue)

    @property
    def place(self) -> EntityAddress:
        """The list with the message."""
        return self.queue.dead_letter if self.state.name.startswith("DEAD") else self.queue

    @property
    def state(self) -> State:
        try:
            detail = reads.message(self.queue, self.number)
        except EntityNotFound:
            return State.REMOVED
        if detail is None:
            return State.REMOVED
        row = detail.row
        if row.state is MessageState.DEFERRED and row.display_state is DisplayState.LOCKED:
            return State.DEFERRED_LOCKED
        return STATES[bool(row.subqueue), row.display_state]

    @property
    def last_event(self) -> EventKind:
        """Of the message. One that is activated gets a new number, so its last event is that of the old one."""
        rows = connections.current().execute(
            "SELECT kind FROM vitrine_message_event WHERE entity_id = %s AND sequence_number = 1 ORDER BY event_id",
            [self.entity_id],
        )
        return EventKind(rows.fetchall()[-1].kind)


def _forward(life: Life) -> None:
    entities.update_queue(life.queue, forward_to=life.make_queue().path)
    forward_messages()


def _expire(life: Life) -> None:
    life.step(6 * SECOND)
    sweeps.expire_messages(pause=lambda _: None)


def _let_the_lock_expire(life: Life) -> None:
    life.step(11 * SECOND)
    sweeps.end_locks()


def _activate(life: Life) -> None:
    life.step(61 * SECOND)
    sweeps.activate_scheduled()
    life.number = 2


def _settle_with_another_lock(life: Life) -> None:
    other = life.lock.lock_token.int ^ (uuid4().int >> 64 << 64)
    with pytest.raises(LockLost):
        service_bus.complete(life.queue, type(life.lock.lock_token)(int=other))


def _delete(life: Life) -> None:
    entities.delete_entity(life.queue)
    sweeps.remove_deleted_entities()


ALL_STATES = tuple(MessageState)
OPERATIONS: dict[str, Callable[[Life], object]] = {
    "send": Life.send,
    "send with a scheduled time": lambda life: life.send(scheduled_enqueue_at=now(life.queue) + 60 * SECOND),
    "scheduled time is reached": _activate,
    "cancel": lambda life: service_bus.cancel_scheduled(life.queue, [life.number]),
    "edit": lambda life: service_bus.edit(life.queue, life.number, body=b"edited"),
    "send a duplicate": lambda life: service_bus.send(life.queue, [Message(b"y", message_id="one")]),
    "receive (peek-lock)": lambda life: service_bus.receive(life.place),
    "receive and delete": lambda life: service_bus.receive_and_delete(life.place),
    "receive by number": lambda life: service_bus.receive_deferred(life.queue, [life.number]),
    "expire": _expire,
    "expire with dead-lettering": _expire,
    "dead-letter by an operator": lambda life: service_bus.dead_letter_unlocked(life.queue, [life.number]),
    "forward": _forward,
    "move by an operator": lambda life: service_bus.move(life.queue, [life.number], life.make_queue().path),
    "purge": lambda life: service_bus.purge(life.place, states=ALL_STATES, enqueued_before=now(life.queue) + 3600 * SECOND),
    "delete the entity": _delete,
    "renew": lambda life: service_bus.renew(life.queue, life.lock.lock_token),
    "complete": lambda life: service_bus.complete(life.place, life.lock.lock_token),
    "abandon": lambda life: service_bus.abandon(life.place, life.lock.lock_token),
    "abandon the last delivery": lambda life: service_bus.abandon(life.queue, life.lock.lock_token),
    "release": lambda life: service_bus.release(life.queue, life.lock.lock_token),
    "lock expires": _let_the_lock_expire,
    "release by an operator": lambda life: service_bus.release_locks(life.queue, [life.number]),
    "defer": lambda life: service_bus.defer(life.queue, life.lock.lock_token),
    "dead-letter": lambda life: service_bus.dead_letter(life.queue, life.lock.lock_token),
    "settle with another lock": _settle_with_another_lock,
    "resubmit": lambda life: service_bus.resubmit(life.place, [life.number]),
}


@pytest.mark.parametrize("line", LIFE, ids=lambda line: f"{line.before}: {line.operation}")
def test_an_operation_follows_its_row_of_the_table(make_queue, step, line: Transition):
    life = Life(make_queue, step, line.operation)
    life.reach(line.before)
    if line.before is not State.NONE:
        assert life.state is line.before
    OPERATIONS[line.operation](life)
    assert (life.last_event, life.state) == (line.event, line.after)


def test_every_event_of_the_statements_has_a_row_in_the_table():
    """Those of Service Bus, and of the background tasks that it shares. PUBLISHED is of a topic, RESTORED of an undo (D18)."""
    files = [*(ROOT / "broker_core/service_bus/sql").glob("*.sql"), ROOT / "broker_core/store/sql/sweep.sql"]
    statements = [text for file in files for text in re.split(r"(?m)^-- (?:name|fragment): ", file.read_text())]
    written = {
        name for text in statements if "INSERT INTO vitrine_message_event" in text for name in re.findall(r"@EVENT_(\w+)", text)
    }
    assert written - {line.event.name for line in LIFE} == {"PUBLISHED"}


def diagram() -> str:
    """The table as a state diagram of Mermaid. Operations with the same effect share an arrow."""
    return "\n".join(["stateDiagram-v2", *_arrows()])


def _arrows() -> Iterator[str]:
    operations: dict[tuple[State, State], list[str]] = {}
    for line in LIFE:
        operations.setdefault((line.before, line.after), []).append(line.operation)
    for (before, after), names in operations.items():
        yield f"    {_node(before)} --> {_node(after)}: {', '.join(names)}"


def _node(state: State) -> str:
    return "[*]" if state in (State.NONE, State.REMOVED) else state.name.lower()


def test_the_documentation_contains_the_table():
    assert diagram() in (ROOT / "docs/understanding.md").read_text()
