"""The connections to virtual hosts, for the page of all connections: their channels, consumers and exclusive queues, and closing
one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from broker_core import rabbitmq, reads
from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.browsing import ConnectionRow, ConsumerRow, UnackedInQueue
from broker_core.store import connections
from explorer.frames.connections import ConnectionLine, ConnectionPages, Use, list_url
from explorer.frames.shell import page

from .shared import vhost_of

LEASE_IS_LATE = timedelta(0)
EFFECT = "Its unacknowledged messages are requeued, its exclusive queues are deleted, and its client gets the reason."


class RabbitConnections(ConnectionPages):
    """Connections that programs open with rabbitmq.connect."""

    prefix = "rabbitmq"

    def lines(self, viewer: Actor, *, namespace: str | None = None, of_actor: str | None = None) -> list[ConnectionLine]:
        rows = browsing.connections_of(of_actor, actor=viewer)
        hosts = dict.fromkeys(row.vhost for row in rows if namespace is None or row.vhost.lower() == namespace.lower())
        return [line for host in hosts for line in _lines_of(host, [row for row in rows if row.vhost == host], viewer)]

    def close(self, line: ConnectionLine, reason: str, actor: Actor) -> bool:
        number = int(line.id.split("-")[1])
        with connections.of(line.namespace):  # the same number may be used in another database
            return rabbitmq.force_close(number, reason, actor=actor)


@page
@require_GET
def of_vhost(request: HttpRequest, namespace: str) -> HttpResponse:
    """Lead to the connections to a virtual host."""
    return HttpResponseRedirect(list_url("namespace", vhost_of(namespace, request.actor).name))


def _lines_of(vhost: str, rows: Iterable[ConnectionRow], viewer: Actor) -> list[ConnectionLine]:
    """These connections to a virtual host."""
    with_unacked = [row.id for row in reads.overview(vhost, include_hidden=True, actor=viewer) if row.counts.locked]
    unacked, consuming = defaultdict(list), defaultdict(list)
    for count in browsing.unacked_by_queue(vhost, with_unacked, actor=viewer):
        unacked[count.connection_id].append(count)
    for consumer in browsing.consumers(vhost, actor=viewer):
        consuming[consumer.connection_id].append(consumer)
    return [_line(row, _uses(row, consuming[row.id], unacked[row.id])) for row in rows]


def _line(row: ConnectionRow, uses: list[Use]) -> ConnectionLine:
    alias = connections.database_of(row.vhost).alias
    return ConnectionLine(
        id=f"rabbitmq-{row.id}" + ("" if alias == connections.DEFAULT.alias else f"-{alias}"),
        name=row.name,
        protocol="RabbitMQ, Python API",
        actor=row.actor,
        namespace=row.vhost,
        process=row.process,
        since=row.opened_at,
        now=row.now,
        uses=uses,
        effect=EFFECT,
        is_silent=row.lease_left <= LEASE_IS_LATE,
    )


def _uses(row: ConnectionRow, consumers: Iterable[ConsumerRow], unacked: Iterable[UnackedInQueue]) -> list[Use]:
    """The consumers, the queues from which it holds messages that it got, and its exclusive queues. Unacknowledged messages are
    counted by queue: those of several consumers of a queue are shown with the first of them."""
    held = {count.queue: count for count in unacked}
    uses = [_consumer(consumer, held.pop(consumer.queue, None)) for consumer in consumers]
    uses += [_use_of_held(count) for count in held.values()]
    return uses + [Use(EntityAddress(row.vhost, name), "owns", "exclusive") for name in row.owned]


def _consumer(consumer: ConsumerRow, held: UnackedInQueue | None) -> Use:
    return Use(
        consumer.queue,
        "receives",
        "automatic acknowledgement" if consumer.no_ack else "manual acknowledgement",
        f"channel {consumer.channel}, {consumer.tag}",
        limit=f"prefetch {consumer.prefetch:,}" if consumer.prefetch else "no prefetch limit",
        unsettled=held.count if held else 0,
        at_least=bool(held and held.at_least),
        url=_tab(consumer.queue, "unacked" if held else "consumers"),
    )


def _use_of_held(count: UnackedInQueue) -> Use:
    return Use(
        count.queue, "receives", "manual acknowledgement", "get", unsettled=count.count, at_least=count.at_least,
        url=_tab(count.queue, "unacked"),
    )  # fmt: skip


def _tab(queue: EntityAddress, tab: str) -> str:
    return f"{reverse('explorer:entity', args=(queue.namespace, queue.path))}?tab={tab}"
