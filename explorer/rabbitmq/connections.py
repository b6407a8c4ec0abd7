"""The connections of a virtual host with their process, consumers and unacknowledged messages; closing one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import rabbitmq, reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.browsing import ConnectionRow, ConsumerRow, UnackedInQueue
from explorer.frames.actors import ActorConnection
from explorer.frames.shell import Act, act, notify_error, page
from explorer.live.page import Live, live

from .shared import draw, vhost_of

LEASE_IS_LATE = timedelta(0)
SECONDS = 1.0  # connections leave no event: they are looked at so often


@dataclass(frozen=True, slots=True)
class ConnectionLine:
    """A connection with its consumers. unacked: its unacknowledged messages per queue."""

    connection: ConnectionRow
    consumers: list[ConsumerRow]
    unacked: list[UnackedInQueue]

    @property
    def dom_id(self) -> str:
        return f"k-{self.connection.id}"

    @property
    def is_silent(self) -> bool:
        """Whether its process has failed to renew its lease. The next sweep checks whether the process is dead."""
        return self.connection.lease_left <= LEASE_IS_LATE


@live
@page
@require_http_methods(["GET", "POST"])
def connections(request: HttpRequest, namespace: str) -> HttpResponse:
    """GET shows the connections; POST closes one."""
    host = vhost_of(namespace, request.actor)
    if request.method == "POST":
        done = _close(request, host.name)
        if done.error:
            notify_error(request, done.error)
        return HttpResponseRedirect(request.path)
    context = {"lines": lines_of(host.name, request.actor)}
    live_parts = Live(
        {"explorer/rabbitmq/_connections_table.html": SECONDS, "explorer/_clock.html": 0.0}, refresh_seconds=SECONDS
    )
    return draw(request, "connections", host, context, place="connections", fragment="_connections_table", live=live_parts)


def lines_of(vhost: str, actor: Actor) -> list[ConnectionLine]:
    """All connections to a virtual host, the oldest first."""
    with_unacked = [row.id for row in reads.overview(vhost, include_hidden=True, actor=actor) if row.counts.locked]
    unacked, consuming = defaultdict(list), defaultdict(list)
    for count in browsing.unacked_by_queue(vhost, with_unacked, actor=actor):
        unacked[count.connection_id].append(count)
    for consumer in browsing.consumers(vhost, actor=actor):
        consuming[consumer.connection_id].append(consumer)
    return [ConnectionLine(row, consuming[row.id], unacked[row.id]) for row in browsing.connections(vhost, actor=actor)]


def of_actor(stored: str, viewer: Actor) -> list[ActorConnection]:
    """The connections of an actor to all virtual hosts, for its page."""
    hosts = sorted({row.vhost for row in browsing.connections_of(stored, actor=viewer)})
    lines = [line for host in hosts for line in lines_of(host, viewer)]
    return [_of_actor(line) for line in lines if line.connection.actor == stored]


def _of_actor(line: ConnectionLine) -> ActorConnection:
    row = line.connection
    uses = [(consumer.queue, f"channel {consumer.channel}, {consumer.tag}") for consumer in line.consumers]
    url = reverse("explorer:rabbitmq_connections", args=(row.vhost,))
    unacked = sum(count.count for count in line.unacked)
    return ActorConnection(row.name, row.vhost, url, row.opened_at, row.now, uses, unacked)


def _close(request: HttpRequest, vhost: str) -> Act:
    """Close a connection of any process: its messages are requeued, its exclusive queues deleted (RMQ-123)."""
    number = request.POST.get("connection", "")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return Act(error=InvalidArgument("connection", "is not a connection on this page"))
    name = next((row.name for row in browsing.connections(vhost, actor=request.actor) if row.id == int(number)), "")
    reason = f"Closed in Vitrine by {request.actor.name}"
    return act(
        request, "close connection", None, lambda: rabbitmq.force_close(int(number), reason, actor=request.actor),
        target=f"connection {number} {name}".strip(),
        says=lambda was_there: f"Closed connection {name or number}." if was_there else "The connection was already closed.",
    )  # fmt: skip
