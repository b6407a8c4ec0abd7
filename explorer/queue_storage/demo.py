"""Queue Storage part of the demo: a photo lab whose messages are delayed, leased, extended and moved to a poison queue.

`seed` creates the account with an example in each state; `programs` send and receive a message every few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random

from broker_core import queue_storage, reads
from broker_core.common.errors import BrokerError, EntityExists
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage import GotMessage
from explorer.demo.parts import Crashed, DesignedFailure, Program, Turns

NAMESPACE = "photolab"
THUMBNAILS, POISON, MAILINGS = "thumbnails", "thumbnails-poison", "mailings"
FEWEST_WAITING, MOST_WAITING, MOST_POISON = 3, 100, 25  # the resizer leaves the fewest, so that the queue is never empty
GUIDE = Actor.local("guide")
LEASE, IMMEDIATELY = timedelta(seconds=20), timedelta(0)
FORMATS = ("jpeg", "png", "heic", "tiff")


def seed(account: str = NAMESPACE) -> None:
    """Create the account with its queues, two poison messages, some that wait and some delayed ones. An existing account is left
    as it is."""
    try:
        queue_storage.create_account(account, "A photo lab (demo)")
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
    for number in range(FEWEST_WAITING + 2):
        queue_storage.put(thumbnails, _picture(f"example-{number + 1}.jpeg", "fine"), actor=GUIDE)
    for days in (1, 3, 6):
        text = json.dumps({"mailing": f"day {days} after the order", "to": 4711 + days})
        queue_storage.put(mailings, text, visibility_timeout=timedelta(days=days), actor=GUIDE)


def _fail(address: EntityAddress, text: str) -> None:
    """Put a message and let every get fail, until it is moved to the poison queue."""
    queue_storage.put(address, text, actor=GUIDE)
    while messages := queue_storage.get(address, actor=GUIDE):
        for message in messages:
            _release(address, message, GUIDE)


def _release(address: EntityAddress, message: GotMessage, actor: Actor) -> None:
    with suppress(BrokerError):
        queue_storage.update(address, message.message_id, message.pop_receipt, visibility_timeout=IMMEDIATELY, actor=actor)


DOES = {  # each program of the photo lab
    "camera": f"puts pictures into {THUMBNAILS}",
    "resizer": f"consumes {THUMBNAILS}",
    "marketing": f"puts delayed messages into {MAILINGS}",
    "mailer": f"consumes {MAILINGS}",
    "janitor": f"removes the oldest messages of {POISON}",
}

DESIGNED = (
    DesignedFailure(POISON, "poison", "Some pictures are unreadable."),
    DesignedFailure(THUMBNAILS, "old", "The resizer leaves the last pictures."),
)


def programs(account: str, dice: Random, site: str = "") -> Mapping[str, Program]:
    """The photo lab's programs by name."""
    return {
        "camera": partial(_upload, account, dice),
        "resizer": partial(_resize, account, dice),
        "marketing": partial(_announce, account, dice),
        "mailer": partial(_mail, account, dice),
        "janitor": partial(_tidy, account),
    }


def _upload(account: str, dice: Random) -> Turns:
    """Puts pictures: one in nine is unreadable, one in ten expires after 30 s."""
    address, actor, number = EntityAddress(account, THUMBNAILS), _actor("camera"), 2000
    while True:
        yield dice.uniform(4, 9)
        if _is_full(address):
            continue
        number += 1
        kind = "unreadable" if dice.random() < 1 / 9 else "fine"
        time_to_live = timedelta(seconds=30) if dice.random() < 0.1 else timedelta(days=7)
        text = _picture(f"img-{number}.{dice.choice(FORMATS)}", kind)
        queue_storage.put(address, text, time_to_live=time_to_live, actor=actor)


def _resize(account: str, dice: Random) -> Turns:
    """Gets all pictures but the last few, and deletes them when done. Large ones take longer and need a longer lease;
    unreadable ones fail."""
    address, actor = EntityAddress(account, THUMBNAILS), _actor("resizer")
    while True:
        leased = []
        if (spare := reads.counts(address).active - FEWEST_WAITING) > 0:
            leased = queue_storage.get(address, min(spare, dice.choice((1, 1, 2))), visibility_timeout=LEASE, actor=actor)
        try:
            yield dice.uniform(2, 5)
            while leased:
                if "unreadable" in leased[0].text:
                    leased.pop(0)  # simulates a crash: the lease ends by itself
                    continue
                if dice.random() < 0.2:
                    leased[0] = _extend(address, leased[0], actor)
                    yield dice.uniform(6, 10)
                done = leased.pop(0)
                queue_storage.delete(address, done.message_id, done.pop_receipt, actor=actor)
        except Crashed:
            leased = []
            raise
        finally:
            for message in leased:
                _release(address, message, actor)


def _extend(address: EntityAddress, message: GotMessage, actor: Actor) -> GotMessage:
    """Extend the lease. Returns the message with its new pop receipt; the old one is no longer valid."""
    updated = queue_storage.update(address, message.message_id, message.pop_receipt, visibility_timeout=2 * LEASE, actor=actor)
    return replace(message, pop_receipt=updated.pop_receipt)


def _announce(account: str, dice: Random) -> Turns:
    """Puts mailings that are delayed by 30 s to 3 min."""
    address, actor = EntityAddress(account, MAILINGS), _actor("marketing")
    while True:
        yield dice.uniform(15, 30)
        if not _is_full(address):
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
    """Removes the oldest poison messages when there are more than MOST_POISON."""
    address, actor = EntityAddress(account, POISON), _actor("janitor")
    while True:
        yield 60
        rows = reads.list_messages(address, newest_first=False, actor=actor).rows
        if len(rows) > MOST_POISON:
            queue_storage.remove(address, [row.sequence_number for row in rows[:10]], actor=actor)


def _is_full(address: EntityAddress) -> bool:
    return reads.counts(address).active > MOST_WAITING


def _picture(name: str, kind: str) -> str:
    return json.dumps({"picture": name, "wanted": ["320x240", "1280x960"], "file": kind})


def _actor(name: str) -> Actor:
    return Actor("process", name, Right.ALL)
