"""Reads the clients that are connected to any process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.types import Actor, EntityAddress, Right, SubQueue
from broker_core.store import connections, driver
from broker_core.store.driver import Steps
from broker_core.store.statements import call

MOST_CLIENTS = 2_000


@dataclass(frozen=True, slots=True)
class LinkRow:
    """What a client does with an entity (wire/clients.py). messages_per_second: an average of some seconds."""

    number: int
    address: EntityAddress
    direction: str
    mode: str
    credit: int | None
    unsettled: int
    messages: int
    messages_per_second: float
    channel: int | None
    name: str


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client (wire/clients.py). id: for close_client. since, last_at, now: real time. process: that serves it."""

    id: str
    protocol: str
    peer: str
    port: int
    is_tls: bool
    product: str
    version: str
    description: str
    actor: str
    holder: str
    namespace: str
    since: datetime
    last_at: datetime
    last_request: str
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    messages_per_second: float
    bytes_per_second: float
    process: str
    now: datetime
    links: tuple[LinkRow, ...]


def parsed_id(text: str) -> tuple[int, int] | None:
    """The epoch and the number of an id; None: it is none."""
    parts = text.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def clients(*, of_actor: str | None = None, holders: Sequence[str] | None = None, actor: Actor | None = None) -> list[ClientRow]:
    """The clients, the newest first; at most MOST_CLIENTS. of_actor: as events store it. holders: as locks store them."""
    with connections.using(connections.DEFAULT):
        return driver.run(_clients(None, None, of_actor, holders, actor=actor))


def client(client_id: str, *, actor: Actor | None = None) -> ClientRow | None:
    """A client; None: it is not connected."""
    if (key := parsed_id(client_id)) is None:
        return None
    with connections.using(connections.DEFAULT):
        return next(iter(driver.run(_clients(*key, None, None, actor=actor))), None)


def _clients(
    epoch: int | None, number: int | None, of_actor: str | None, holders: Sequence[str] | None, *, actor: Actor | None
) -> Steps[list[ClientRow]]:
    (actor or Actor.local()).require(Right.BROWSE, "the connections")
    rows = yield call(
        "read_clients", epoch=epoch, number=number, actor=of_actor, holders=None if holders is None else list(holders),
        max_count=MOST_CLIENTS,
    )  # fmt: skip
    links: defaultdict[tuple[int, int], list[LinkRow]] = defaultdict(list)
    if rows:
        of = {"epochs": [row.epoch for row in rows], "numbers": [row.number for row in rows]}
        for row in (yield call("read_client_links", **of)):
            links[row.epoch, row.client].append(_link(row))
    return [_client(row, links[row.epoch, row.number]) for row in rows]


def _client(row: Any, links: Iterable[LinkRow]) -> ClientRow:
    names = [name for name in ClientRow.__slots__ if name not in ("id", "links")]
    return ClientRow(id=f"{row.epoch}-{row.number}", links=tuple(links), **{name: getattr(row, name) for name in names})


def _link(row: Any) -> LinkRow:
    return LinkRow(
        row.number, EntityAddress(row.namespace, row.path, SubQueue(row.subqueue)), row.direction, row.mode, row.credit,
        row.unsettled, row.messages, row.messages_per_second, row.channel, row.name,
    )  # fmt: skip
