"""Random calls of the use cases of all families, one after another, in namespaces whose clocks stand until they are stepped."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

from broker_core import namespaces, queue_storage, rabbitmq, service_bus, sweeps
from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, Family, MessageState, Right
from broker_core.operations import Kind, Operation
from broker_core.rabbitmq import Back, Connection, Properties, Publication, ToExchange, ToQueue
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer import operations
from tests.broker_state import entity_id

SECOND = timedelta(seconds=1)
REGIONS = ("north", "south", "a 'quoted' one", "")
REASONS = (
    None,
    "Order 17 of 3fa85f64-5717-4562-b3fc-2c963f66afa6 failed",
    "TTLExpiredException",
    " a  b ",
    "x" * 150,
    "٣ Zeilen",
)
OPERATOR = Actor("user", "olga", Right.ALL)
WORKERS = tuple(Actor("process", f"worker-{n}", Right.ALL) for n in range(3))
REMEMBERED = 60  # receipts that a namespace's clients remember; the others are lost
KEYS = ("region", "number", "subject")  # properties whose values are kept for some entities


class Calls:
    """The calls of a namespace. acts: what is done, with weights. receipts: of messages that were received, also old ones."""

    family: ClassVar[Family]
    acts: ClassVar[Mapping[str, int]]
    tabs: ClassVar[Sequence[str]]

    def __init__(self, namespace: str, dice: random.Random):
        self.namespace, self.dice, self.made = namespace, dice, Counter[str]()
        self.receipts: deque[Any] = deque(maxlen=REMEMBERED)
        self.begun: deque[Operation] = deque(maxlen=12)
        self.count = 0
        self.make()
        namespaces.pause_clock(namespace)

    def make(self) -> None:
        """Create the namespace and its entities."""
        raise NotImplementedError

    def queues(self) -> Sequence[str]:
        """Those that operators work on."""
        raise NotImplementedError

    def one(self) -> None:
        """The next call. A refusal is as good as another answer."""
        common = {"time": 12, "sweep": 3, "operation": 3, "undo": 3}
        acts = {**self.acts, **common}
        name = self.dice.choices(list(acts), list(acts.values()))[0]
        try:
            getattr(self, name)()
        except BrokerError:
            self.made[f"{name} refused"] += 1
        else:
            self.made[name] += 1

    def address(self, path: str) -> EntityAddress:
        return EntityAddress(self.namespace, path)

    def worker(self) -> Actor:
        return self.dice.choice(WORKERS)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def seconds(self, *choices: float | None) -> timedelta | None:
        chosen = self.dice.choice(choices)
        return None if chosen is None else chosen * SECOND

    def receipt(self) -> Any:
        """A receipt that is remembered, mostly a new one, which the caller does not keep."""
        if not self.receipts:
            raise BrokerError("nothing was received")
        place = len(self.receipts) - 1 - min(int(self.dice.expovariate(0.2)), len(self.receipts) - 1)
        found = self.receipts[place]
        if self.chance(0.9):
            del self.receipts[place]
        return found

    def now(self) -> Any:
        return namespaces.get_clock(self.namespace).now

    def time(self) -> None:
        namespaces.step_clock(self.namespace, self.dice.choice((0.001, 1, 4, 11, 25, 25, 70)) * SECOND)

    def sweep(self) -> None:
        self.dice.choice((
            lambda: sweeps.follow_clock(self.namespace), lambda: sweeps.end_locks(namespace=self.namespace),
            lambda: sweeps.expire_messages(namespace=self.namespace, pause=lambda _: None),
            lambda: sweeps.activate_scheduled(namespace=self.namespace), service_bus.sweeps.forward_messages,
            sweeps.remove_deleted_entities, sweeps.advance_heads, sweeps.roll_up_counts,
        ))()  # fmt: skip

    def numbers_of(self, path: str, most: int = 6) -> list[int]:
        """Of some messages that are there, ready or not."""
        query = "SELECT sequence_number FROM vitrine_message WHERE entity_id = %s ORDER BY 1"
        rows = connections.current().execute(query, [entity_id(self.address(path))]).fetchall()
        chosen = [row.sequence_number for row in rows]
        return self.dice.sample(chosen, min(len(chosen), self.dice.randint(1, most)))

    def operation(self) -> None:
        """An operator's, over some messages of a list."""
        kind = self.dice.choice((Kind.PURGE, Kind.DISCARD, Kind.ARCHIVE, Kind.RESUBMIT, Kind.MOVE, Kind.RELEASE))
        path = self.dice.choice(self.queues())
        numbers = self.numbers_of(path)
        chosen = operations.selection(self.address(path), self.family, self.dice.choice(self.tabs), numbers=numbers)
        self.begun.append(operations.start(kind, chosen, actor=OPERATOR, options=self.moved_to(kind)))

    def moved_to(self, kind: Kind) -> dict[str, Any]:
        return {"to": self.dice.choice(self.queues())} if kind is Kind.MOVE else {}

    def undo(self) -> None:
        if self.begun:
            operation = self.begun.pop() if self.chance(0.7) else self.begun.popleft()
            operations.change(operation, "undo", actor=OPERATOR)


class ServiceBusCalls(Calls):
    family = Family.SERVICE_BUS
    tabs = ("active", "dead-letter", "dead-letter", "all", "scheduled", "deferred")
    acts: ClassVar = {
        "send": 20, "schedule": 4, "cancel": 2, "receive": 26, "take": 4, "settle": 26, "renew": 6, "deferred": 5, "resubmit": 4,
        "locks": 3, "move": 2, "bury": 2, "edit": 3, "purge": 1, "sessions": 8, "change": 1, "passing": 1,
    }  # fmt: skip
    plain: ClassVar = ("work", "brief", "front", "once", "bad", "low")
    subscriptions: ClassVar = ("all", "reds", "onward")

    def make(self) -> None:
        namespaces.create_namespace(self.namespace, Family.SERVICE_BUS)
        lock: dict[str, Any] = {"lock_duration": 20 * SECOND}
        entities.create_queue(self.address("work"), max_delivery_count=3, dead_lettering_on_message_expiration=True, **lock)
        entities.create_queue(self.address("brief"), default_message_time_to_live=40 * SECOND, max_delivery_count=2, **lock)
        entities.create_queue(self.address("front"), forward_to="work", **lock)
        once: dict[str, Any] = {"requires_duplicate_detection": True, "forward_dead_lettered_messages_to": "brief"}
        entities.create_queue(self.address("once"), max_delivery_count=1, **once, **lock)
        entities.create_queue(self.address("talks"), requires_session=True, max_delivery_count=3, **lock)
        entities.create_queue(self.address("bad"), forward_dead_lettered_messages_to="talks", max_delivery_count=1, **lock)
        entities.create_queue(self.address("low"), max_delivery_count=9, **lock)
        self._make_topic(lock)

    def _make_topic(self, lock: dict[str, Any]) -> None:
        from broker_core.service_bus.rules.filters.rules import Rule
        from broker_core.service_bus.rules.filters.sql import compile_filter

        topic = self.address("topic")
        entities.create_topic(topic, default_message_time_to_live=90 * SECOND)
        entities.create_subscription(topic.subscription("all"), max_delivery_count=3, **lock)
        reds = Rule("r", compile_filter("region = 'north'"))
        entities.create_subscription(topic.subscription("reds"), rule=reds, default_message_time_to_live=30 * SECOND, **lock)
        entities.create_subscription(topic.subscription("onward"), forward_to="work", **lock)

    def queues(self) -> Sequence[str]:
        return (*self.plain, "talks", *(f"topic/Subscriptions/{name}" for name in self.subscriptions))

    def _list(self) -> EntityAddress:
        """One that can be received from without a session."""
        names = [name for name in self.queues() if name not in ("talks", "front", "topic/Subscriptions/onward")]
        address = self.address(self.dice.choice(names))
        return address.dead_letter if self.chance(0.15) else address

    def _message(self, path: str, **more: Any) -> Message:
        self.count += 1
        number = self.dice.randrange(5) if path == "once" else self.count
        session = self.dice.choice(("s1", "s2", "s3")) if path == "talks" else None
        properties = {"region": self.dice.choice(REGIONS), "number": number} if self.chance(0.8) else {}
        return Message(
            b"x" * self.dice.randrange(30), message_id=f"{path}-{number}", session_id=session, properties=properties,
            time_to_live=self.seconds(None, None, 20, 60, 600), subject=self.dice.choice((None, "news")), **more,
        )  # fmt: skip

    def send(self) -> None:
        path = self.dice.choice((*self.plain, "talks", "topic", "topic"))
        messages = [self._message(path) for _ in range(self.dice.choice((1, 1, 2, 4)))]
        service_bus.send(self.address(path), messages, actor=self.worker())

    def schedule(self) -> None:
        path, at = self.dice.choice((*self.plain, "talks", "topic")), self.now()
        due = [at + self.dice.choice((0, 5, 30, 200)) * SECOND for _ in range(self.dice.choice((1, 2)))]
        service_bus.send(
            self.address(path), [self._message(path, scheduled_enqueue_at=instant) for instant in due], actor=self.worker()
        )

    def cancel(self) -> None:
        address = self.address(self.dice.choice((*self.plain, "topic")))
        scheduled = [m for m in service_bus.peek(address, max_count=1000) if m.state is MessageState.SCHEDULED]
        if scheduled:
            service_bus.cancel_scheduled(address, [self.dice.choice(scheduled).sequence_number], actor=self.worker())

    def receive(self) -> None:
        address, actor = self._list(), self.worker()
        messages = service_bus.receive(address, self.dice.randint(1, 4), actor=actor)
        self.receipts.extend((message.address, message.lock_token, actor) for message in messages)

    def take(self) -> None:
        service_bus.receive_and_delete(self._list(), self.dice.randint(1, 3), actor=self.worker())

    def settle(self) -> None:
        address, token, actor = self.receipt()
        how = self.dice.choices(("complete", "abandon", "dead_letter", "defer", "release"), (40, 25, 15, 12, 8))[0]
        more = {"reason": self.dice.choice(REASONS)} if how == "dead_letter" else {}
        getattr(service_bus, how)(address, [token], actor=actor if self.chance(0.9) else self.worker(), **more)

    def renew(self) -> None:
        address, token, actor = self.receipt()
        service_bus.renew(address, [token], actor=actor)
        self.receipts.append((address, token, actor))

    def deferred(self) -> None:
        address, actor = self._list(), self.worker()
        found = [m for m in service_bus.peek(address, max_count=1000) if m.state is MessageState.DEFERRED]
        if found:
            got = service_bus.receive_deferred(address, [self.dice.choice(found).sequence_number], actor=actor)
            self.receipts.extend((message.address, message.lock_token, actor) for message in got)

    def resubmit(self) -> None:
        address = self.address(self.dice.choice(self.queues())).dead_letter
        numbers = [m.sequence_number for m in service_bus.peek(address, max_count=20)]
        service_bus.resubmit(address, self.dice.sample(numbers, min(len(numbers), 3)), actor=OPERATOR)

    def locks(self) -> None:
        path = self.dice.choice(self.queues())
        address = self.address(path).dead_letter if self.chance(0.2) else self.address(path)
        if self.chance(0.15):
            service_bus.drop_locks(self.address(path), actor=OPERATOR)
        elif path == "talks":
            service_bus.release_session(address, "s1", reason="by hand", actor=OPERATOR)
        else:
            service_bus.release_locks(address, self.numbers_of(path), reason=self.dice.choice(REASONS), actor=OPERATOR)

    def move(self) -> None:
        path, to = self.dice.choice(self.queues()), self.dice.choice((*self.plain, "talks", "topic"))
        address = self.address(path).dead_letter if self.chance(0.3) else self.address(path)
        service_bus.move(address, self.numbers_of(path), to, actor=OPERATOR)

    def bury(self) -> None:
        path = self.dice.choice(self.queues())
        service_bus.dead_letter_unlocked(self.address(path), self.numbers_of(path), self.dice.choice(REASONS), actor=OPERATOR)

    def edit(self) -> None:
        path = self.dice.choice(self.queues())
        for number in self.numbers_of(path, 1):
            body, properties = self.dice.choice(((b"edited" * 5, None), (b"", {}), (None, {"edited": True})))
            service_bus.edit(self.address(path), number, body=body, properties=properties, actor=OPERATOR)

    def purge(self) -> None:
        address = self._list()
        if self.chance(0.5):
            service_bus.purge(address, sequence_numbers=self.numbers_of(address.path), actor=OPERATOR)
        else:
            service_bus.delete_batch(address, self.dice.randint(1, 5), actor=OPERATOR)

    def sessions(self) -> None:
        """Hold a session and settle some of its messages in order, or lose its lock."""
        address, actor = self.address("talks"), Actor("process", f"session-{self.dice.randrange(3)}", Right.ALL)
        session = service_bus.accept_session(address, max_count=self.dice.choice((0, 2)), actor=actor)
        held = [*session.messages, *service_bus.receive_from_session(session, self.dice.randint(1, 3), actor=actor)]
        if self.chance(0.3):
            session = service_bus.renew_session(session, actor=actor)
        if self.chance(0.3):
            self.time()
        for receipt in held:
            how = self.dice.choice(("complete", "complete", "abandon", "defer", "dead_letter", None))
            if how:
                getattr(service_bus, how)(address, [receipt.lock_token], actor=actor)
        if self.chance(0.2):
            service_bus.receive_and_delete_from_session(session, 2, actor=actor)
        if self.chance(0.7):
            service_bus.close_session(session, actor=actor)

    def change(self) -> None:
        entities.update_queue(self.address("brief"), default_message_time_to_live=self.dice.choice((15, 40, 300)) * SECOND)

    def passing(self) -> None:
        """A queue that is deleted with its messages, some of them received."""
        address = self.address("passing")
        entities.create_queue(address, lock_duration=20 * SECOND)
        service_bus.send(address, [self._message("passing") for _ in range(3)], actor=self.worker())
        service_bus.receive(address, 1, actor=self.worker())
        entities.delete_queue(address)


class StorageCalls(Calls):
    family = Family.QUEUE_STORAGE
    tabs = ("all", "all", "leased")
    acts: ClassVar = {
        "put": 22, "get": 28, "delete": 18, "delete_all": 5, "update": 18, "release": 4, "remove": 3, "requeue": 4, "move": 3,
        "edit": 3, "clear": 1,
    }  # fmt: skip

    def make(self) -> None:
        queue_storage.create_account(self.namespace)
        queue_storage.create_queue(self.address("jobs"), max_dequeue_count=3)
        queue_storage.create_queue(self.address("plain"))
        queue_storage.create_queue(self.address("strict"), strict_visibility=True, max_dequeue_count=2)
        queue_storage.create_queue(self.address("jobs-poison"))
        queue_storage.create_queue(self.address("strict-poison"))

    def queues(self) -> Sequence[str]:
        return ("jobs", "plain", "strict", "jobs-poison", "strict-poison")

    def _queue(self) -> EntityAddress:
        return self.address(self.dice.choice(("jobs", "jobs", "plain", "strict", "jobs-poison")))

    def put(self) -> None:
        address, actor = self._queue(), self.worker()
        values: dict[str, Any] = {
            "visibility_timeout": self.seconds(0, 0, 0, 15), "time_to_live": self.seconds(None, 30, 120), "actor": actor
        }  # fmt: skip
        made = queue_storage.put_all(address, ["x" * self.dice.randrange(1, 9)] * self.dice.choice((1, 1, 3)), **values)
        if self.chance(0.1):
            self.receipts.append((address, made[0].message_id, made[0].pop_receipt, actor))

    def get(self) -> None:
        address, actor = self._queue(), self.worker()
        got = queue_storage.get(
            address, self.dice.randint(1, 4), visibility_timeout=self.dice.choice((3, 12, 40)) * SECOND, actor=actor
        )
        self.receipts.extend((address, message.message_id, message.pop_receipt, actor) for message in got)

    def delete(self) -> None:
        address, message, receipt, actor = self.receipt()
        queue_storage.delete(address, message, receipt, actor=actor)

    def delete_all(self) -> None:
        chosen = [self.receipt() for _ in range(self.dice.randint(1, 3))]
        address = chosen[0][0]
        queue_storage.delete_all(address, [receipt[1:3] for receipt in chosen if receipt[0] == address], actor=self.worker())

    def update(self) -> None:
        address, message, receipt, actor = self.receipt()
        hidden, text = self.dice.choice((0, 0, 10, 40)) * SECOND, self.dice.choice((None, "y"))
        new = queue_storage.update(address, message, receipt, visibility_timeout=hidden, text=text, actor=actor)
        self.receipts.append((address, message, new.pop_receipt, actor))

    def release(self) -> None:
        path = self.dice.choice(self.queues())
        queue_storage.release(self.address(path), self.numbers_of(path), reason=self.dice.choice(REASONS), actor=OPERATOR)

    def edit(self) -> None:
        path = self.dice.choice(self.queues())
        for number in self.numbers_of(path, 1):
            queue_storage.edit(self.address(path), number, text=self.dice.choice(("", "edited")), actor=OPERATOR)

    def remove(self) -> None:
        path = self.dice.choice(self.queues())
        queue_storage.remove(self.address(path), self.numbers_of(path, 2), actor=OPERATOR)

    def requeue(self) -> None:
        path = self.dice.choice(("jobs-poison", "strict-poison"))
        queue_storage.requeue_poison(self.address(path), self.numbers_of(path), actor=OPERATOR)

    def move(self) -> None:
        path = self.dice.choice(self.queues())
        queue_storage.move(self.address(path), self.numbers_of(path), self.dice.choice((None, *self.queues())), actor=OPERATOR)

    def clear(self) -> None:
        queue_storage.clear(self.address("plain"), actor=OPERATOR)


class RabbitCalls(Calls):
    family = Family.RABBITMQ
    tabs = ("messages",)
    acts: ClassVar = {
        "publish": 22, "take": 14, "get": 8, "consume": 10, "settle": 30, "leave": 4, "move": 4, "edit": 3, "purge": 1,
        "policy": 2, "passing": 1,
    }  # fmt: skip
    arguments: ClassVar[Mapping[str, dict[str, Any]]] = {
        "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"},
        "wait": {"x-message-ttl": 15_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"},
        "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": "dead"},
        "few": {"x-max-length": 3, "x-dead-letter-exchange": "dead"},
        "urgent": {"x-max-priority": 3, "x-message-ttl": 60_000},
        "patient": {"x-consumer-timeout": 30_000},
        "plain": {},
        "spent": {},
    }

    def make(self) -> None:
        rabbitmq.create_vhost(self.namespace)
        for name, kind in (("fan", "fanout"), ("dead", "fanout")):
            rabbitmq.declare_exchange(self.namespace, name, kind)
        for name, arguments in self.arguments.items():
            rabbitmq.declare_queue(self.address(name), arguments=arguments)
        for name in ("work", "quorum", "plain"):
            rabbitmq.bind_queue(self.namespace, name, "fan")
        rabbitmq.bind_queue(self.namespace, "spent", "dead")
        self.connection: Connection | None = None
        self.channel: Any = None

    def queues(self) -> Sequence[str]:
        return tuple(self.arguments)

    def moved_to(self, kind: Kind) -> dict[str, Any]:
        return {"to": {"queue": self.dice.choice(self.queues())}} if kind is Kind.MOVE else {}

    def _queue(self) -> EntityAddress:
        return self.address(self.dice.choice(self.queues()))

    def _publication(self) -> Publication:
        self.count += 1
        exchange, key = ("fan", "") if self.chance(0.3) else ("", self.dice.choice(self.queues()))
        headers = {"region": self.dice.choice(REGIONS), "number": self.count} if self.chance(0.7) else {}
        life = self.dice.choice((None, None, None, "0", "20000", "90000"))
        more: dict[str, Any] = {"message_id": f"r{self.count}", "priority": self.dice.randrange(4), "expiration": life}
        return Publication(b"x" * self.dice.randrange(30), exchange, key, Properties(headers=headers, **more))

    def publish(self) -> None:
        batch = [self._publication() for _ in range(self.dice.choice((1, 1, 2, 4)))]
        rabbitmq.publish(self.namespace, batch, actor=self.worker())

    def _owner(self) -> int:
        return self._channel().connection.id

    def _channel(self) -> Any:
        if self.connection is None:
            self.connection = rabbitmq.connect(self.namespace, actor=self.worker())
            self.channel = self.connection.channel()
        return self.channel

    def take(self) -> None:
        address, actor = self._queue(), self.worker()
        got = rabbitmq.take(address, self.dice.randint(1, 4), owner_id=self._owner(), actor=actor)
        self.receipts.extend((address, delivery.token, actor) for delivery in got)

    def get(self) -> None:
        address, actor, at_once = self._queue(), self.worker(), self.chance(0.4)
        got = rabbitmq.get(address, no_ack=at_once, owner_id=None if at_once else self._owner(), actor=actor)
        if got is not None and got.token is not None:
            self.receipts.append((address, got.token, actor))

    def consume(self) -> None:
        """By a consumer of the connection, which settles some of what it gets and keeps the rest."""
        try:
            channel = self._channel()
            if not channel.consumers:
                for name in self.dice.sample(self.queues(), 2):
                    channel.consume(name, no_ack=self.chance(0.2))
            for delivery in channel.deliveries(self.dice.randint(1, 4)):
                how = self.dice.choice(("ack", "ack", "nack", "reject", None))
                if how and delivery.token is not None:
                    getattr(channel, how)(delivery.delivery_tag)
        except BrokerError:
            self._drop()
            raise

    def settle(self) -> None:
        address, token, actor = self.receipt()
        how = self.dice.choices(("acknowledge", "requeue", "reject"), (50, 30, 20))[0]
        getattr(rabbitmq, how)(address, [token], actor=actor)

    def edit(self) -> None:
        path = self.dice.choice(self.queues())
        for number in self.numbers_of(path, 1):
            body, headers = self.dice.choice(((b"edited" * 5, None), (b"", {}), (None, {"edited": True})))
            rabbitmq.edit(self.address(path), number, body=body, headers=headers, actor=OPERATOR)

    def leave(self) -> None:
        """End the connection: what it holds returns."""
        if self.connection is not None and self.chance(0.3):
            rabbitmq.force_close(self.connection.id, actor=OPERATOR)
            rabbitmq.end_connections()
        self._drop()

    def _drop(self) -> None:
        connection, self.connection, self.channel = self.connection, None, None
        if connection is not None:
            with suppress(BrokerError):
                connection.close()

    def move(self) -> None:
        path = self.dice.choice(("spent", *self.queues()))
        to = self.dice.choice((Back(), Back(first=True), ToQueue(self.dice.choice(self.queues())), ToExchange("fan")))
        rabbitmq.move(self.address(path), to, self.numbers_of(path), actor=OPERATOR)

    def purge(self) -> None:
        rabbitmq.purge_queue(self._queue(), actor=OPERATOR)

    def policy(self) -> None:
        from broker_core.rabbitmq.rules.policies import Policy

        if self.chance(0.5):
            rabbitmq.set_policy(self.namespace, Policy("ttl", "^plain$", {"message-ttl": 25_000}, "queues", 1), actor=OPERATOR)
        else:
            rabbitmq.delete_policy(self.namespace, "ttl", False, actor=OPERATOR)

    def passing(self) -> None:
        address = self.address("passing")
        rabbitmq.declare_queue(address)
        rabbitmq.publish(self.namespace, [Publication(b"x", "", "passing")] * 3, actor=self.worker())
        rabbitmq.take(address, 1, owner_id=self._owner(), actor=self.worker())
        rabbitmq.delete_queue(address)


FAMILIES: Mapping[str, Callable[[str, random.Random], Calls]] = {
    "servicebus": ServiceBusCalls, "storage": StorageCalls, "rabbit": RabbitCalls,
}  # fmt: skip
