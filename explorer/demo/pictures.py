"""The demonstration's storage account: a photo laboratory, where messages are delayed, leased, extended, and fail for good.

`seed` makes it, with an example in each state; `programs` keep it moving, as those of traffic.py do: a message every few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random

from broker_core import queue_storage, reads
from broker_core.common.errors import BrokerError, EntityExists
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage import GotMessage

Turns = Generator[float, None, None]
ACCOUNT = "photolab"
THUMBNAILS, POISON, MAILINGS = "thumbnails", "thumbnails-poison", "mailings"
MOST_WAITING, MOST_POISON = 100, 25
GUIDE = Actor.local("guide")
LEASE, GIVEN_UP = timedelta(seconds=20), timedelta(0)
FORMATS = ("jpeg", "png", "heic", "tiff")


def seed(account: str = ACCOUNT) -> None:
    """The account with its queues: two messages have failed for good, some wait for their time. One that is there stays."""
    try:
        queue_storage.create_account(account, "Demo: a photo lab that uses Queue Storage")
    except EntityExists:
        return
    thumbnails, mailings = EntityAddress(account, THUMBNAILS), EntityAddress(account, MAILINGS)
    queue_storage.create_queue(
        thumbnails, max_dequeue_count=3, expiry_grace=timedelta(minutes=10),
        metadata={"about": "Pictures that fail three times are moved to thumbnails-poison."},
    )  # fmt: skip
    queue_storage.create_queue(mailings, metadata={"about": "Put with a delay: mailings are invisible until they are due."})
    for name in ("holiday.tiff", "scan-0001.heic"):
        _fail(thumbnails, _picture(name, "unreadable"))
    for days in (1, 3, 6):
        text = json.dumps({"mailing": f"day {days} after the order", "to": 4711 + days})
        queue_storage.put(mailings, text, visibility_timeout=timedelta(days=days), actor=GUIDE)


def _fail(address: EntityAddress, text: str) -> None:
    """Put a message that each get gives up, until the queue has had enough of it."""
    queue_storage.put(address, text, actor=GUIDE)
    while found := queue_storage.get(address, actor=GUIDE):
        for message in found:
            _give_up(address, message, GUIDE)


def _give_up(address: EntityAddress, message: GotMessage, actor: Actor) -> None:
    with suppress(BrokerError):
        queue_storage.update(address, message.message_id, message.pop_receipt, visibility_timeout=GIVEN_UP, actor=actor)


def programs(account: str, dice: Random) -> dict[str, Callable[[], Turns]]:
    """The laboratory's programs by name."""
    return {
        "camera": partial(_upload, account, dice),
        "resizer": partial(_resize, account, dice),
        "marketing": partial(_announce, account, dice),
        "mailer": partial(_mail, account, dice),
        "janitor": partial(_tidy, account),
    }


def _upload(account: str, dice: Random) -> Turns:
    """Puts pictures; one in nine cannot be read, one in ten is of use for half a minute only."""
    address, actor, number = EntityAddress(account, THUMBNAILS), _actor("camera"), 2000
    while True:
        yield dice.uniform(4, 9)
        if _crowded(address):
            continue
        number += 1
        kind = "unreadable" if dice.random() < 1 / 9 else "fine"
        life = timedelta(seconds=30) if dice.random() < 0.1 else timedelta(days=7)
        text = _picture(f"img-{number}.{dice.choice(FORMATS)}", kind)
        queue_storage.put(address, text, time_to_live=life, actor=actor)


def _resize(account: str, dice: Random) -> Turns:
    """Gets pictures and deletes them when done. A large one takes longer, so its lease is extended; an unreadable one fails."""
    address, actor = EntityAddress(account, THUMBNAILS), _actor("resizer")
    while True:
        held = queue_storage.get(address, dice.choice((1, 1, 2)), visibility_timeout=LEASE, actor=actor)
        try:
            yield dice.uniform(2, 5)
            while held:
                if "unreadable" in held[0].text:
                    held.pop(0)  # the program crashed over it: the lease ends by itself
                    continue
                if dice.random() < 0.2:
                    held[0] = _extended(address, held[0], actor)
                    yield dice.uniform(6, 10)
                done = held.pop(0)
                queue_storage.delete(address, done.message_id, done.pop_receipt, actor=actor)
        finally:
            for message in held:
                _give_up(address, message, actor)


def _extended(address: EntityAddress, message: GotMessage, actor: Actor) -> GotMessage:
    """The message with its new receipt: the one of the get is dead."""
    found = queue_storage.update(address, message.message_id, message.pop_receipt, visibility_timeout=2 * LEASE, actor=actor)
    return replace(message, pop_receipt=found.pop_receipt)


def _announce(account: str, dice: Random) -> Turns:
    """Puts mailings for later: in half a minute to three."""
    address, actor = EntityAddress(account, MAILINGS), _actor("marketing")
    while True:
        yield dice.uniform(15, 30)
        if not _crowded(address):
            delay = timedelta(seconds=dice.randint(30, 180))
            queue_storage.put(
                address, json.dumps({"mailing": "your pictures are ready", "to": dice.randint(1000, 9999)}),
                visibility_timeout=delay, actor=actor,
            )  # fmt: skip


def _mail(account: str, dice: Random) -> Turns:
    address, actor = EntityAddress(account, MAILINGS), _actor("mailer")
    while True:
        yield dice.uniform(4, 8)
        for message in queue_storage.get(address, visibility_timeout=LEASE, actor=actor):
            queue_storage.delete(address, message.message_id, message.pop_receipt, actor=actor)


def _tidy(account: str) -> Turns:
    """Removes the oldest of the poison once there is much, as a person would who has looked at it."""
    address, actor = EntityAddress(account, POISON), _actor("janitor")
    while True:
        yield 60
        rows = reads.list_messages(address, newest_first=False, actor=actor).rows
        if len(rows) > MOST_POISON:
            queue_storage.remove(address, [row.sequence_number for row in rows[:10]], actor=actor)


def _crowded(address: EntityAddress) -> bool:
    return reads.counts(address).active > MOST_WAITING


def _picture(name: str, kind: str) -> str:
    return json.dumps({"picture": name, "wanted": ["320x240", "1280x960"], "file": kind})


def _actor(name: str) -> Actor:
    return Actor("process", name, Right.ALL)
