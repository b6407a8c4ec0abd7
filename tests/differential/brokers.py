"""Two brokers with the same handles: a RabbitMQ server through pika, and the core through its Python API.

What is refused is told as its code and text, so a story can compare it. After a refusal the channel is a new one.
"""

from __future__ import annotations

import base64
import html
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pika
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker, NackError, UnroutableError

from broker_core import namespaces, rabbitmq, sweeps
from broker_core.common.errors import BrokerError
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.rules.errors import AmqpError, InvalidPolicy
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.rabbitmq.rules.table import plain

from .comparison import Told

STEP = 0.05  # seconds: how finely the core's clock goes on
SETTLES_IN = 0.3  # seconds: within which the server has done what needs no waiting
NAMES = tuple(name for name in Properties.__slots__ if name not in ("headers", "header_table"))  # as pika's


@dataclass(frozen=True)
class Seen:
    """A message as a client sees it. left: ready messages, where it was got. tag: to settle it by."""

    body: str
    redelivered: bool
    exchange: str
    key: str
    properties: dict[str, Any]
    headers: dict[str, Any]
    tag: int
    left: int | None = None

    @property
    def deaths(self) -> list[list]:
        """x-death without its instants."""
        return [
            [d["queue"], d["reason"], d["count"], d["exchange"], list(d["routing-keys"]), d.get("original-expiration")]
            for d in self.headers.get("x-death", [])
        ]


class Broker(Told):
    """What stories do. Options of queues and exchanges are those of AMQP; `arguments` are tables."""

    def queue(self, name: str = "q", **arguments: Any) -> Any:
        """A durable queue with x-arguments by name."""
        return self.declare_queue(name, arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()})

    def count(self, name: str = "q") -> int | str:
        """Ready messages; the refusal where the queue is gone."""
        stored_queue = self.declare_queue(name, passive=True)
        return stored_queue if isinstance(stored_queue, str) else stored_queue[0]

    def read_out(self, name: str = "q") -> list[str]:
        results = []
        while isinstance(seen := self.get(name, no_ack=True), Seen):
            results.append(seen.body)
        return results

    def one(self, name: str = "q") -> Seen:
        seen = self.get(name, no_ack=True)
        assert isinstance(seen, Seen), seen
        return seen


class Real(Broker):
    """The server. A virtual host of its own."""

    def __init__(self, server: Any, vhost: str, *, is_new: bool = True, settles_in: float = SETTLES_IN):
        super().__init__()
        self.server, self.vhost, self.settles_in = server, vhost, settles_in
        if is_new:
            self._api("PUT", f"/vhosts/{quote(vhost, '')}", {})
            self._api("PUT", f"/permissions/{quote(vhost, '')}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
        self._connection: Any = None
        self._channels: dict[str, Any] = {}
        self._received: dict[str, list[Seen]] = {}

    def another(self) -> Real:
        """A client with a connection of its own to the same virtual host."""
        return Real(self.server, self.vhost, is_new=False, settles_in=self.settles_in)

    def disconnect(self) -> None:
        if self._connection and self._connection.is_open:
            with suppress(AMQPConnectionError):  # what was wrong is told by the server only now
                self._connection.close()

    def close(self) -> None:
        self.disconnect()
        self._api("DELETE", f"/vhosts/{quote(self.vhost, '')}")

    def wait(self, seconds: float) -> None:
        if self._connection and self._connection.is_open:
            self._connection.process_data_events(0)
        time.sleep(seconds)

    # Topology

    def declare_queue(self, name: str, *, passive=False, durable=True, exclusive=False, auto_delete=False, arguments=None) -> Any:
        outcome = self._try(
            lambda channel: channel.queue_declare(
                name, passive=passive, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments or None
            )
        )
        return outcome if isinstance(outcome, str) else (outcome.method.message_count, outcome.method.consumer_count)

    def named_by_server(self) -> str:
        return self._channel("main").queue_declare("", durable=True).method.queue

    def delete_queue(self, name: str, **conditions: bool) -> Any:
        outcome = self._try(lambda channel: channel.queue_delete(name, **conditions))
        return outcome if isinstance(outcome, str) else outcome.method.message_count

    def purge(self, name: str = "q") -> Any:
        outcome = self._try(lambda channel: channel.queue_purge(name))
        return outcome if isinstance(outcome, str) else outcome.method.message_count

    def exchange(self, name: str, type: str = "direct", *, arguments=None, **flags: bool) -> str:
        return self._done(lambda c: c.exchange_declare(name, type, arguments=arguments, **{"durable": True, **flags}))

    def delete_exchange(self, name: str, if_unused: bool = False) -> str:
        return self._done(lambda channel: channel.exchange_delete(name, if_unused=if_unused))

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Mapping | None = None) -> str:
        return self._done(lambda channel: channel.queue_bind(queue, exchange, key, arguments=arguments))

    def unbind(self, queue: str, exchange: str, key: str = "", arguments: Mapping | None = None) -> str:
        return self._done(lambda channel: channel.queue_unbind(queue, exchange, key, arguments=arguments))

    def bind_exchange(self, destination: str, source: str, key: str = "", arguments: Mapping | None = None) -> str:
        return self._done(lambda channel: channel.exchange_bind(destination, source, key, arguments=arguments))

    def unbind_exchange(self, destination: str, source: str, key: str = "", arguments: Mapping | None = None) -> str:
        return self._done(lambda channel: channel.exchange_unbind(destination, source, key, arguments=arguments))

    def policy(self, name: str, definition: Mapping, *, pattern=".*", apply_to="queues", priority=0, operator=False) -> str:
        body = {"pattern": pattern, "definition": definition, "apply-to": apply_to, "priority": priority}
        return self._policy("PUT", name, operator, body)

    def delete_policy(self, name: str, operator: bool = False) -> str:
        return self._policy("DELETE", name, operator)

    def _policy(self, method: str, name: str, operator: bool, body: Any = None) -> str:
        kind = "operator-policies" if operator else "policies"
        response = self._api(method, f"/{kind}/{quote(self.vhost, '')}/{name}", body)
        time.sleep(self.settles_in)
        if not response:
            return "done"
        text = " ".join(html.unescape(response).replace("Validation failed", "").split())
        return re.sub(r", (?=[0-9]+\}|\{)", ",", text)  # where Erlang broke the line

    # Messages

    def publish(self, body: str, exchange: str = "", key: str = "q", *, headers=None, mandatory=False, **properties: Any) -> str:
        """ack, nack, returned, or the refusal."""
        channel = self._channel("publishing", confirm=True)
        try:
            channel.basic_publish(
                exchange, key, body.encode(), pika.BasicProperties(headers=headers, **properties), mandatory=mandatory
            )
        except UnroutableError:
            return "returned"
        except NackError:
            return "nack"
        except (ChannelClosedByBroker, ConnectionClosedByBroker) as refused:
            return f"{refused.reply_code} {refused.reply_text}"
        return "ack"

    def get(self, name: str = "q", *, no_ack: bool = False, on: str = "main") -> Any:
        """on: which channel it is got on, and so settled on."""
        outcome = self._try(lambda channel: channel.basic_get(name, auto_ack=no_ack), on)
        if isinstance(outcome, str) or outcome[0] is None:
            return outcome if isinstance(outcome, str) else None
        return _seen(*outcome)

    def ack(self, tag: int, *, multiple: bool = False, on: str = "main") -> str:
        return self._settled(lambda channel: channel.basic_ack(tag, multiple=multiple), on)

    def nack(self, tag: int, *, requeue: bool, multiple: bool = False, on: str = "main") -> str:
        return self._settled(lambda channel: channel.basic_nack(tag, multiple=multiple, requeue=requeue), on)

    def reject(self, tag: int, *, requeue: bool, on: str = "main") -> str:
        return self._settled(lambda channel: channel.basic_reject(tag, requeue=requeue), on)

    def _settled(self, call: Any, on: str) -> str:
        def wait(channel: Any) -> None:
            call(channel)
            channel.basic_qos()  # what is asked after it is answered after it
            time.sleep(self.settles_in)

        return self._done(wait, on)

    def recover(self, on: str = "main") -> None:
        self._channel(on).basic_recover(requeue=True)
        time.sleep(self.settles_in)

    # Consumers, each on its own channel, named by its tag, unless it is told on which

    def consume(
        self, tag: str, queue: str = "q", *, prefetch=0, no_ack=False, exclusive=False, arguments=None, on: str = ""
    ) -> str:
        channel = self._channel(on or tag)
        inbox = self._received.setdefault(tag, [])

        def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
            inbox.append(_seen(method, properties, body))

        try:
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume(queue, on_message, auto_ack=no_ack, exclusive=exclusive, consumer_tag=tag, arguments=arguments)
        except (ChannelClosedByBroker, ConnectionClosedByBroker) as refused:
            return f"{refused.reply_code} {refused.reply_text}"
        return "done"

    def received(self, tag: str) -> list[Seen]:
        """What the consumer got since it was last asked."""
        inbox = self._received[tag]
        seen, quiet_from = 0, time.monotonic()
        while time.monotonic() - quiet_from < SETTLES_IN:
            self._connection.process_data_events(0.05)
            if len(inbox) > seen:
                seen, quiet_from = len(inbox), time.monotonic()
        deliveries, inbox[:] = list(inbox), []
        return deliveries

    def arrived(self, tag: str) -> list[Seen]:
        """What the consumer got since it was last asked, as far as it is here already."""
        deliveries, inbox = list(self._received.get(tag, ())), self._received.get(tag, [])
        inbox.clear()
        return deliveries

    def listen(self) -> None:
        """Take in what the server has sent."""
        if self._connection is not None and self._connection.is_open:
            self._connection.process_data_events(0)

    def settle(self, tag: str, delivery_tag: int, how: str = "ack") -> None:
        """how: ack, requeue, reject."""
        channel = self._channel(tag)
        if how == "ack":
            channel.basic_ack(delivery_tag)
        else:
            channel.basic_nack(delivery_tag, requeue=how == "requeue")
        time.sleep(self.settles_in)

    def cancel(self, tag: str, on: str = "") -> None:
        self._channel(on or tag).basic_cancel(tag)

    def close_channel(self, tag: str) -> None:
        self._channel(tag).close()
        time.sleep(self.settles_in)

    def is_open(self, channel: str) -> bool:
        return channel in self._channels and self._channels[channel].is_open

    # Inside

    def _channel(self, name: str, confirm: bool = False) -> Any:
        if self._connection is None or not self._connection.is_open:
            parameters = pika.ConnectionParameters(
                "127.0.0.1", self.server.port, self.vhost, heartbeat=0, blocked_connection_timeout=10, socket_timeout=10
            )
            self._connection = pika.BlockingConnection(parameters)
        channel = self._channels.get(name)
        if channel is None or not channel.is_open:
            channel = self._channels[name] = self._connection.channel()
            if confirm:
                channel.confirm_delivery()
        return channel

    def _try(self, call: Any, on: str = "main") -> Any:
        try:
            return call(self._channel(on))
        except (ChannelClosedByBroker, ConnectionClosedByBroker) as refused:
            return f"{refused.reply_code} {refused.reply_text}"

    def _done(self, call: Any, on: str = "main") -> str:
        outcome = self._try(call, on)
        return outcome if isinstance(outcome, str) else "done"

    def _api(self, method: str, path: str, body: Any = None) -> str | None:
        """The reason of a refusal."""
        headers = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(f"{self.server.http}/api{path}", data, headers, method=method), timeout=30):
                return None
        except HTTPError as refused:
            return json.loads(refused.read() or b'{"reason": "none"}')["reason"]


def _seen(method: Any, properties: Any, body: bytes) -> Seen:
    present = {name: getattr(properties, name) for name in NAMES if getattr(properties, name) is not None}
    return Seen(
        body.decode(),
        method.redelivered,
        method.exchange,
        method.routing_key,
        present,
        properties.headers or {},
        method.delivery_tag,
        getattr(method, "message_count", None),
    )


class Core(Broker):
    """The core, with a virtual host of its own whose clock goes on only as a story waits."""

    def __init__(self, vhost: str, *, is_new: bool = True):
        super().__init__()
        self.vhost = vhost
        if is_new:
            rabbitmq.create_vhost(vhost)
            namespaces.pause_clock(vhost)
        self._connection: Any = None
        self._channels: dict[str, Any] = {}

    def another(self) -> Core:
        """A client with a connection of its own to the same virtual host."""
        return Core(self.vhost, is_new=False)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        self.disconnect()

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            namespaces.step_clock(self.vhost, timedelta(seconds=STEP))
            sweeps.expire_messages()
            sweeps.delete_idle_entities()

    # Topology

    def declare_queue(self, name: str, **options: Any) -> Any:
        stored_queue = self._try(lambda channel: channel.declare_queue(name, **options))
        return stored_queue if isinstance(stored_queue, str) else (stored_queue.messages, stored_queue.consumers)

    def named_by_server(self) -> str:
        return self._channel("main").declare_queue("").address.path

    def delete_queue(self, name: str, **conditions: bool) -> Any:
        return self._try(lambda channel: channel.delete_queue(name, **conditions))

    def purge(self, name: str = "q") -> Any:
        return self._try(lambda channel: rabbitmq.purge_queue(channel.address(name), owner_id=channel.connection.id))

    def exchange(self, name: str, type: str = "direct", **options: Any) -> str:
        return self._done(lambda _: rabbitmq.declare_exchange(self.vhost, name, type, **options))

    def delete_exchange(self, name: str, if_unused: bool = False) -> str:
        return self._done(lambda _: rabbitmq.delete_exchange(self.vhost, name, if_unused))

    def bind(self, *args: Any) -> str:
        return self._done(lambda c: rabbitmq.bind_queue(self.vhost, *args, owner_id=c.connection.id))

    def unbind(self, *args: Any) -> str:
        return self._done(lambda c: rabbitmq.unbind_queue(self.vhost, *args, owner_id=c.connection.id))

    def bind_exchange(self, *args: Any) -> str:
        return self._done(lambda _: rabbitmq.bind_exchange(self.vhost, *args))

    def unbind_exchange(self, *args: Any) -> str:
        return self._done(lambda _: rabbitmq.unbind_exchange(self.vhost, *args))

    def policy(self, name: str, definition: Mapping, *, pattern=".*", apply_to="queues", priority=0, operator=False) -> str:
        policy = Policy(name, pattern, definition, apply_to, priority, operator)
        try:
            rabbitmq.set_policy(self.vhost, policy)
        except InvalidPolicy as refused:
            return refused.reason
        return "done"

    def delete_policy(self, name: str, operator: bool = False) -> str:
        return self._done(lambda _: rabbitmq.delete_policy(self.vhost, name, operator))

    # Messages

    def publish(self, body: str, exchange: str = "", key: str = "q", *, headers=None, mandatory=False, **properties: Any) -> str:
        publication = Publication(body.encode(), exchange, key, Properties(headers=headers or {}, **properties), mandatory)
        outcome = self._try(lambda channel: channel.publish([publication])[0], "publishing")
        if isinstance(outcome, str):
            return outcome
        return "returned" if mandatory and outcome.unroutable else "nack" if outcome.refused else "ack"

    def get(self, name: str = "q", *, no_ack: bool = False, on: str = "main") -> Any:
        outcome = self._try(lambda channel: channel.get(name, no_ack=no_ack), on)
        return outcome if isinstance(outcome, str) or outcome is None else _as_seen(outcome)

    def ack(self, tag: int, *, on: str = "main", **options: bool) -> str:
        return self._done(lambda channel: channel.ack(tag, **options), on)

    def nack(self, tag: int, *, on: str = "main", **options: bool) -> str:
        return self._done(lambda channel: channel.nack(tag, **options), on)

    def reject(self, tag: int, *, requeue: bool, on: str = "main") -> str:
        return self._done(lambda channel: channel.reject(tag, requeue=requeue), on)

    def recover(self, on: str = "main") -> None:
        self._channel(on).recover()

    # Consumers

    def consume(self, tag: str, queue: str = "q", *, prefetch=0, on: str = "", **options: Any) -> str:
        def begin(channel: Any) -> str:
            channel.qos(prefetch)
            channel.consume(queue, tag=tag, **options)
            return "done"

        return self._try(begin, on or tag)

    def received(self, tag: str) -> list[Seen]:
        return [_as_seen(delivery) for delivery in self._channel(tag).deliveries(1000)]

    def arrived_on(self, channel: str) -> dict[str, list[Seen]]:
        """What the consumers of a channel got since they were last asked, by tag; nothing where it is closed."""
        results: dict[str, list[Seen]] = {}
        if self.is_open(channel):
            for delivery in self._channel(channel).deliveries(1000):
                results.setdefault(delivery.consumer_tag, []).append(_as_seen(delivery))
        return results

    def settle(self, tag: str, delivery_tag: int, how: str = "ack") -> None:
        channel = self._channel(tag)
        if how == "ack":
            channel.ack(delivery_tag)
        else:
            channel.nack(delivery_tag, requeue=how == "requeue")

    def cancel(self, tag: str, on: str = "") -> None:
        self._channel(on or tag).cancel(tag)

    def close_channel(self, tag: str) -> None:
        self._channel(tag).close()

    def is_open(self, channel: str) -> bool:
        return channel in self._channels and self._channels[channel].is_open

    # Inside

    def _channel(self, name: str) -> Any:
        if self._connection is None or self._connection.closed is not None:
            self._connection = rabbitmq.connect(self.vhost, "stories")
            self._channels.clear()
        if name not in self._channels or not self._channels[name].is_open:
            self._channels[name] = self._connection.channel()
        return self._channels[name]

    def _try(self, call: Any, channel: str = "main") -> Any:
        try:
            return call(self._channel(channel))
        except AmqpError as refused:
            return f"{refused.reply_code} {refused.text}"
        except BrokerError as refused:
            return f"{type(refused).__name__} {refused}"

    def _done(self, call: Any, channel: str = "main") -> str:
        outcome = self._try(call, channel)
        return outcome if isinstance(outcome, str) else "done"


def _as_seen(delivery: Any) -> Seen:
    properties = delivery.properties
    present = {name: getattr(properties, name) for name in NAMES if getattr(properties, name) is not None}
    return Seen(
        bytes(delivery.body).decode(),
        delivery.redelivered,
        delivery.exchange,
        delivery.routing_key,
        present,
        plain(properties.headers),
        delivery.delivery_tag,
        delivery.message_count,
    )
