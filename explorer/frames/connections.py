"""Connections as pages show them: those that broker_core/clients records, and those that a family keeps itself
(FamilyPages.connections)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from django.utils.http import urlencode

from broker_core import clients
from broker_core.clients import ClientRow, LinkRow
from broker_core.common.actors import parsed
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress

from .vocabulary import condition

EFFECT = "Waiting requests are answered with the reason, and open connections end. The client may connect again."


@dataclass(frozen=True, slots=True)
class Use:
    """What a connection does with an entity: a link, or a consumer.

    verb: "sends", "receives" or "owns". how: such as "peek-lock". name: of the link or consumer, with its channel. limit: its
    credit or prefetch, in words. unsettled: messages that it holds; None: unknown here; at_least: they are more. rate: messages a
    second; None: unknown. url: of the list in which it is shown; empty: of the entity.
    """

    address: EntityAddress
    verb: str
    how: str = ""
    name: str = ""
    limit: str = ""
    unsettled: int | None = None
    at_least: bool = False
    rate: float | None = None
    url: str = ""


@dataclass(frozen=True, slots=True)
class ConnectionLine:
    """A connection. id: unique among those of its source. name: of the client. about: what else it says of itself.

    actor, holder: as events and locks store them; holder is empty if `uses` say what it holds. since, last_at, now: by the same
    clock. is_tls, messages_per_second, bytes_per_second: None: unknown. received, delivered: messages and bytes from the client
    and to it; None: unknown. is_silent: whether its process does not respond. process: that serves it. effect: of closing it.
    """

    id: str
    name: str
    protocol: str
    actor: str
    namespace: str
    process: str
    since: datetime
    now: datetime
    uses: Sequence[Use]
    effect: str = EFFECT
    about: str = ""
    peer: str = ""
    holder: str = ""
    is_tls: bool | None = None
    is_silent: bool = False
    last_request: str = ""
    last_at: datetime | None = None
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    received: tuple[int, int] | None = None
    delivered: tuple[int, int] | None = None

    @property
    def dom_id(self) -> str:
        return f"k-{self.id}"

    @property
    def url(self) -> str:
        return reverse("explorer:connection", args=(self.id,))

    @property
    def unsettled(self) -> int | None:
        """What it holds; None: its locks say so."""
        return None if self.holder and self.last_request else sum(use.unsettled or 0 for use in self.uses)

    @property
    def words(self) -> str:
        """What a word of the filter is looked for in."""
        return " ".join([self.name, self.about, self.peer, self.actor, *(str(use.address) for use in self.uses)]).lower()


class ConnectionPages(ABC):
    """Connections that a family keeps itself, on the page of all connections. prefix: of their ids, which tells them apart from
    those of others."""

    prefix: str

    @abstractmethod
    def lines(self, viewer: Actor, *, namespace: str | None = None, of_actor: str | None = None) -> list[ConnectionLine]:
        """All, or those to a namespace, or of an actor as events store it."""

    @abstractmethod
    def close(self, line: ConnectionLine, reason: str, actor: Actor) -> bool:
        """Close one. Returns whether it was there."""


def lines(
    sources: Iterable[ConnectionPages | None], viewer: Actor, *, namespace: str | None = None, of_actor: str | None = None
) -> list[ConnectionLine]:
    """The connections of all clients, the newest first. sources: the families' (FamilyPages.connections). namespace, of_actor:
    only to this one, of this one."""
    rows = clients.clients(of_actor=of_actor, actor=viewer)
    found = [_line(row) for row in rows if namespace is None or row.namespace.lower() == namespace.lower()]
    for source in sources:
        if source is not None:
            found += source.lines(viewer, namespace=namespace, of_actor=of_actor)
    return sorted(found, key=lambda line: line.since, reverse=True)


def line_of(sources: Collection[ConnectionPages | None], connection_id: str, viewer: Actor) -> ConnectionLine | None:
    """One connection; None: it has ended."""
    if (source := _source(sources, connection_id)) is not None:
        return next((line for line in source.lines(viewer) if line.id == connection_id), None)
    row = clients.client(connection_id, actor=viewer)
    return _line(row) if row else None


def close(sources: Collection[ConnectionPages | None], line: ConnectionLine, reason: str, actor: Actor) -> bool:
    """Close a connection in whichever process it is, and tell its client the reason. Returns whether it was there. Raises
    InvalidArgument."""
    if not reason or len(reason) > clients.MOST_REASON:
        raise InvalidArgument("reason", f"is missing, or longer than {clients.MOST_REASON} characters. Enter one")
    if (source := _source(sources, line.id)) is not None:
        return source.close(line, reason, actor)
    return clients.close_client(line.id, reason, actor=actor)


def _source(sources: Iterable[ConnectionPages | None], connection_id: str) -> ConnectionPages | None:
    return next((source for source in sources if source is not None and connection_id.startswith(f"{source.prefix}-")), None)


def urls_of_holders(holders: Iterable[str | None], viewer: Actor) -> Mapping[str, str]:
    """By holder of a lock, the page of the connection that has it, or of all that may have it; without holders that are not
    connected."""
    of_clients = {holder for holder in holders if holder and parsed(holder).client}
    connected: dict[str, list[ClientRow]] = {}
    for row in clients.clients(holders=sorted(of_clients), actor=viewer) if of_clients else ():
        connected.setdefault(row.holder, []).append(row)
    return {
        holder: reverse("explorer:connection", args=(rows[0].id,)) if len(rows) == 1 else list_url("holder", holder)
        for holder, rows in connected.items()
    }


def list_url(key: str, value: str) -> str:
    """The list of the connections that match a condition."""
    return f"{reverse('explorer:connections')}?{urlencode({'q': condition(key, value)})}"


def _line(row: ClientRow) -> ConnectionLine:
    return ConnectionLine(
        id=row.id,
        name=" ".join(filter(None, (row.product, row.version))) or "unnamed client",
        about=row.description,
        protocol=row.protocol,
        peer=row.peer,
        actor=row.actor,
        holder=row.holder,
        namespace=row.namespace,
        process=row.process,
        is_tls=row.is_tls,
        since=row.since,
        now=row.now,
        last_request=row.last_request,
        last_at=row.last_at,
        messages_per_second=row.messages_per_second,
        bytes_per_second=row.bytes_per_second,
        received=(row.messages_in, row.bytes_in),
        delivered=(row.messages_out, row.bytes_out),
        uses=[_use(link, is_http=bool(row.last_request)) for link in row.links],
    )


def _use(link: LinkRow, *, is_http: bool) -> Use:
    channel = "" if link.channel is None else f"channel {link.channel}"
    return Use(
        link.address, link.direction, link.mode, ", ".join(filter(None, (channel, link.name))),
        limit="" if link.credit is None else f"credit {link.credit:,}",
        unsettled=None if is_http else link.unsettled,  # HTTP: what a client holds are its locks
        rate=link.messages_per_second,
    )  # fmt: skip
