"""Clients of Queue Storage, and the queues they work on. Each text begins with what no other message has."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from broker_core import queue_storage, sweeps
from broker_core.common.types import EntityAddress
from broker_core.common.types import EventKind as Kind
from broker_core.queue_storage import GotMessage
from broker_core.queue_storage.rules.errors import (
    InvalidQueryParameterValue,
    MessageNotFound,
    PopReceiptMismatch,
    QueueNotFound,
)

from .clients import BACKLOG_BREAK, Client
from .truth import Locks

LEASE = timedelta(seconds=1)  # the shortest
LIFE = timedelta(seconds=1)
GRACE = timedelta(milliseconds=200)
TRIES = 3
POISON = "tries-poison"
REFUSALS = (MessageNotFound, PopReceiptMismatch, InvalidQueryParameterValue)
# A receipt counts until there is a newer one, whatever is locked; only gets and moves need a message that is visible.
LOCKS = Locks(
    by_holder=lambda event: False,
    holds=(Kind.RECEIVED, Kind.RENEWED),
    anyway=(Kind.RENEWED, Kind.ABANDONED, Kind.RELEASED, Kind.COMPLETED, Kind.EXPIRED, Kind.PURGED),
)


@dataclass(frozen=True)
class Scene:
    """An account: a queue, one whose messages are tried a few times, and one whose messages live shortly and strictly."""

    namespace: str
    kinds: tuple[str, ...] = ("storage",)
    queues: tuple[str, ...] = ("work", "tries", "brief")

    def address(self, path: str) -> EntityAddress:
        return EntityAddress(self.namespace, path)

    def make(self) -> None:
        """Create everything but the poison queue, which the broker makes when it needs it."""
        queue_storage.create_account(self.namespace)
        queue_storage.create_queue(self.address("work"), expiry_grace=GRACE)
        queue_storage.create_queue(self.address("tries"), max_dequeue_count=TRIES, expiry_grace=GRACE)
        queue_storage.create_queue(self.address("brief"), strict_visibility=True, expiry_grace=GRACE)


def put(client: Client) -> None:
    """Put one message or several, some delayed, some that live shortly."""
    dice = client.dice
    path = dice.choice(client.scene.queues)
    texts = [_a_text(client.unique(), dice) for _ in range(dice.choice((1, 1, 5, 20)))]
    delay = timedelta(seconds=dice.uniform(0, 0.5)) if client.chance(0.2) else timedelta(0)
    life = LIFE if path == "brief" or client.chance(0.1) else None
    values: dict[str, Any] = {"visibility_timeout": delay, "time_to_live": life, "actor": client.actor()}
    client.journal.write("puts", path=path, count=len(texts))
    address = client.scene.address(path)
    if len(texts) == 1:
        made = [queue_storage.put(address, texts[0], **values)]
    else:
        made = queue_storage.put_all(address, texts, **values)
    made_ids = [[path, m.sequence_number, str(m.message_id)] for m in made]
    client.journal.write("accepted", ids=[message_id for *_, message_id in made_ids], made=made_ids)
    client.journal.write("got", locks=[str(m.pop_receipt) for m in made])
    client.recent.append((address, made[0]))
    time.sleep(dice.uniform(0, 4 * BACKLOG_BREAK))


def _a_text(unique: str, dice: random.Random) -> str:
    return f"{unique}|{'x' * dice.randrange(40)}"


def get(client: Client) -> None:
    """Get some, keep them for a while, some past the end of their lease, and settle."""
    path = client.dice.choice((*client.scene.queues, "tries", POISON))
    address, count = client.scene.address(path), client.dice.randint(1, 32) if client.chance(0.2) else client.dice.randint(1, 4)
    try:
        held = queue_storage.get(address, count, visibility_timeout=LEASE, actor=client.actor())
    except QueueNotFound:
        return _not_there(path)
    if not held:
        time.sleep(BACKLOG_BREAK)
        return None
    client.journal.write("got", locks=[str(m.pop_receipt) for m in held])
    client.recent.extend((address, m) for m in held)
    if client.chance(0.04):
        time.sleep(client.dice.uniform(0.9, 1.2) * LEASE.total_seconds())
    else:
        time.sleep(client.dice.uniform(0, 0.02))
    while held:
        some = [held.pop() for _ in range(min(len(held), client.dice.randint(1, 4)))]
        _settle(client, address, some)
    return None


def _not_there(path: str) -> None:
    if path != POISON:
        raise AssertionError(f"the queue {path} is gone")


def _settle(client: Client, address: EntityAddress, messages: list[Any]) -> None:
    act = client.dice.choices(("delete", "delete_all", "update", "forget"), (45, 20, 25, 10))[0]
    if address.path == "tries" and client.chance(0.4):
        act = client.dice.choice(("update", "forget"))
    if act == "delete_all":
        report = queue_storage.delete_all(address, messages, actor=client.actor())
        for message in messages:
            if message.message_id in report.deleted:
                _deleted(client, address, message.sequence_number, message.pop_receipt)
            else:
                _late(client)
    elif act != "forget":
        for message in messages:
            _delete(client, address, message) if act == "delete" else _update(client, address, message)


def _deleted(client: Client, address: EntityAddress, number: int, receipt: Any) -> None:
    client.journal.write("settled", locks=[str(receipt)])
    client.journal.write("gone", path=address.path, numbers=[number], how=["COMPLETED"])


def _late(client: Client) -> None:
    client.journal.write("did", what="storage late receipts", count=1)


def _delete(client: Client, address: EntityAddress, message: Any, receipt: Any = None) -> None:
    receipt = receipt or message.pop_receipt
    try:
        queue_storage.delete(address, message.message_id, receipt, actor=client.actor())
    except REFUSALS:
        _late(client)
    else:
        _deleted(client, address, message.sequence_number, receipt)


def _update(client: Client, address: EntityAddress, message: Any) -> None:
    """Extend the lease, or end it, perhaps with another text; then delete it under the new receipt, perhaps."""
    timeout = client.dice.choice((timedelta(0), timedelta(seconds=0.3), LEASE))
    text = None
    if isinstance(message, GotMessage) and client.chance(0.4):
        text = _a_text(message.text.partition("|")[0], client.dice)
    try:
        new = queue_storage.update(
            address, message.message_id, message.pop_receipt, visibility_timeout=timeout, text=text, actor=client.actor()
        )
    except REFUSALS:
        return _late(client)
    client.journal.write("settled", locks=[str(message.pop_receipt)])
    client.journal.write("got", locks=[str(new.pop_receipt)])
    return _delete(client, address, message, new.pop_receipt) if client.chance(0.5) else None


def meddle(client: Client) -> None:
    """Cross those who hold messages, with receipts that may be theirs or older; and do what operators do."""
    if client.recent and client.chance(0.5):
        address, message = client.recent[client.dice.randrange(len(client.recent))]
        _delete(client, address, message) if client.chance(0.3) else _update(client, address, message)
        return
    path = client.dice.choice((*client.scene.queues, POISON, POISON))
    address = client.scene.address(path)
    try:
        numbers = [m.sequence_number for m in queue_storage.peek(address, 8, actor=client.actor())]
        _operate(client, address, numbers)
    except QueueNotFound:
        _not_there(path)
    time.sleep(client.dice.uniform(0, 0.05))


def _operate(client: Client, address: EntityAddress, numbers: list[int]) -> None:
    own = [m.sequence_number for where, m in list(client.recent) if where == address]
    act = client.dice.choices(("requeue", "release", "remove", "clear"), (60, 30, 8, 2))[0]
    if act == "clear":
        client.journal.write("did", what="storage messages cleared", count=queue_storage.clear(address, actor=client.actor()))
    elif act == "remove":
        done = queue_storage.remove(address, numbers[:2] + own[:1], actor=client.actor())
        client.journal.write("gone", path=address.path, numbers=done, how=["PURGED"])
    elif act == "release":
        queue_storage.release(address, own, actor=client.actor())
    elif address.path == POISON and numbers:
        queue_storage.requeue_poison(address, numbers + own, time_to_live=None, actor=client.actor())


ACTS = {"sender": put, "receiver": get, "meddler": meddle}


def drain(scene: Scene) -> None:
    """Get and delete what there is now; what has expired or was tried too often goes by the sweep."""
    sweeps.expire_messages()
    for path in (*scene.queues, POISON):
        address = scene.address(path)
        try:
            while held := queue_storage.get(address, 32, visibility_timeout=LEASE):
                queue_storage.delete_all(address, held)
        except QueueNotFound:
            _not_there(path)
