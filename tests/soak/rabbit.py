"""Clients of RabbitMQ, and the virtual host they work in.

A consumer keeps its connection and channel until something ends them. A delivery is told by its queue's id, the message's number,
and how often it had come back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from broker_core import rabbitmq, reads, sweeps
from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.common.types import EventKind as Kind
from broker_core.rabbitmq import Back, Channel, Connection, Properties, Publication, ToExchange, ToQueue
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.store import connections

from .clients import BACKLOG_BREAK, MUST_LIVE_WITH, Client
from .truth import Locks

FEW, FULL = 10, 8  # how many two of the queues may have ready
DELIVERY_LIMIT = 3
POLICY_TTL = 100  # ms
IDLE = 300  # ms that some queues live unused
PATIENCE = 500  # ms after which two queues take a delivery back
REST_SECONDS = 20
QUEUES: dict[str, dict[str, Any]] = {
    "copy-1": {},
    "copy-2": {"x-max-priority": 3},
    "single": {"x-single-active-consumer": True, "x-consumer-timeout": PATIENCE},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": DELIVERY_LIMIT, "x-dead-letter-exchange": "dead"},
    "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"},
    "wait": {"x-message-ttl": 150, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"},
    "all-news": {},
    "few": {"x-max-length": FEW},
    "full": {"x-max-length": FULL, "x-overflow": "reject-publish"},
    "short": {"x-message-ttl": 100, "x-dead-letter-exchange": "dead"},
    "spent-1": {},
    "spent-2": {"x-consumer-timeout": PATIENCE},
}
FAN = ("copy-1", "copy-2", "single", "quorum")
NEWS = {"work.#": "work", "#": "all-news", "few.*": "few", "full": "full", "short": "short"}
SPENT = ("spent-1", "spent-2")
MOVED_TO = ("copy-1", "copy-2", "few", "full", "short")
KEYS = {"work.a.b": "work", "few.x": "few", "full": "full", "short": "short", "other": None}
POLICIES = (
    Policy("ttl", "^all-news$", {"message-ttl": POLICY_TTL}, "queues", 1),
    Policy("dead", "^all-news$", {"dead-letter-exchange": "dead"}, "queues", 2),
    Policy("both", "^all-news$", {"dead-letter-exchange": "dead", "message-ttl": POLICY_TTL}, "queues", 3),
    Policy("length", "^copy-1$", {"max-length": 30}, "queues", 1),
    Policy("fewer", "^few$", {"max-length": 5}, "queues", 1, True),
)

LOCKS = Locks(
    by_holder=lambda event: (
        event.kind in (Kind.COMPLETED, Kind.ABANDONED, Kind.LOCK_LOST) or event.reason in ("rejected", "delivery_limit")
    ),
    holds=(Kind.RECEIVED,),
    anyway=(Kind.DELETED,),
    own=True,
)


@dataclass(frozen=True)
class Scene:
    """A virtual host: fan-out, topics, and queues of which the dead go on."""

    namespace: str
    kinds: tuple[str, ...] = ("rabbit",)

    def address(self, path: str) -> EntityAddress:
        return EntityAddress(self.namespace, path)

    def make(self) -> None:
        rabbitmq.create_vhost(self.namespace)
        for name, kind in (("fan", "fanout"), ("news", "topic"), ("dead", "fanout")):
            rabbitmq.declare_exchange(self.namespace, name, kind)
        for name, arguments in QUEUES.items():
            rabbitmq.declare_queue(self.address(name), arguments=arguments)
        for name in FAN:
            rabbitmq.bind_queue(self.namespace, name, "fan")
        for key, name in NEWS.items():
            rabbitmq.bind_queue(self.namespace, name, "news", key)
        for name in SPENT:
            rabbitmq.bind_queue(self.namespace, name, "dead")


def copies_of(publication: Publication) -> list[str]:
    """The queues that a message is routed to and that always take it; `full` may refuse it, and others come and go."""
    match publication.exchange:
        case "fan":
            names = set(FAN)
        case "news":
            names = {"all-news"} | ({KEYS[publication.routing_key]} - {None})
        case _:
            names = {publication.routing_key}
    return sorted(names - {"full"})


@dataclass
class Session:
    """A client's connection with its channel. held: what is unacknowledged, by tag."""

    connection: Connection
    channel: Channel
    prefix: str
    held: dict[int, tuple[int, int, int]] = field(default_factory=dict)


# Publishing


def publish(client: Client) -> None:
    """Publish a batch on a channel or without one, and look whether queues with a limit keep it."""
    with _refusals_noted(client):
        batch = [_a_publication(client) for _ in range(client.dice.choice((1, 1, 3, 10)))]
        _note_sends(client, batch)
        if client.chance(0.5):
            answers = _session(client).channel.publish(batch)
        else:
            answers = rabbitmq.publish(client.scene.namespace, batch, actor=client.actor())
        made = [[*place, p.properties.message_id] for p, a in zip(batch, answers, strict=True) for place in a.queues]
        client.journal.write("accepted", ids=sorted({message_id for *_, message_id in made}), made=made)
        _look_at_limits(client, {name for name, *_ in made})
    time.sleep(client.dice.uniform(0, 8 * BACKLOG_BREAK))


def _note_sends(client: Client, batch: Sequence[Publication]) -> None:
    client.journal.write("sends", copies={p.properties.message_id: copies_of(p) for p in batch})


def _publish_one(client: Client, queue: str) -> None:
    """Without a channel."""
    unique = client.unique()
    publication = Publication(body_of(unique), "", queue, Properties(message_id=unique))
    _note_sends(client, [publication])
    rabbitmq.publish(client.scene.namespace, [publication], actor=client.actor())


def _a_publication(client: Client) -> Publication:
    dice = client.dice
    exchange = dice.choice(("fan", "news", "news", ""))
    key = {"fan": "", "news": dice.choice(sorted(KEYS)), "": dice.choice(("work", "copy-1", "few"))}[exchange]
    life = dice.choice((None, None, None, None, None, "0", "50", "60000"))
    unique = client.unique()
    properties = Properties(message_id=unique, expiration=life, priority=dice.randrange(4), headers={"n": client.count})
    return Publication(body_of(unique), exchange, key, properties)


def body_of(message_id: str) -> bytes:
    return message_id.encode() * 3


def _look_at_limits(client: Client, names: set[str]) -> None:
    """Once a publish has returned, its queue has no more than it may. What a requeue brings back may be too much for a moment: it
    is looked at again, after more was published."""
    for name in names & {"few", "full"}:
        address, most = client.scene.address(name), {"few": FEW, "full": FULL}[name]
        for _ in range(5):
            ready = rabbitmq.declare_queue(address, passive=True, actor=client.actor()).messages
            if ready <= most:
                break
            time.sleep(0.1)
            _publish_one(client, name)
        else:
            client.journal.write("crash", trace=f"{name} has {ready} messages ready after a publish; {most} are allowed")


# Consuming


def consume(client: Client) -> None:
    """Fetch some and settle, on a connection that is made when there is none."""
    with _refusals_noted(client):
        session = _session(client)
        if not session.channel.consumers:
            _begin(client, session)
        if client.chance(0.15):
            _get(client, session)
        else:
            wait = client.dice.choice((0, 0, 0.05))
            _delivered(client, session, session.channel.deliveries(client.dice.randint(1, 10), max_wait_seconds=wait))
        if client.chance(0.5):
            time.sleep(client.dice.uniform(0, 0.02))
        for _ in range(client.dice.randint(1, 4)):
            _settle(client, session)
        if client.chance(0.04):
            _leave(client, session)


def _session(client: Client) -> Session:
    if client.own is None:
        name = client.unique()
        connection = rabbitmq.connect(client.scene.namespace, actor=client.actor(name.removeprefix(client.name)))
        client.recent.append(connection.id)
        client.own = Session(connection, connection.channel(), name)
    return client.own


def _begin(client: Client, session: Session) -> None:
    """Consume from some queues, of which some come and go."""
    channel, dice = session.channel, client.dice
    channel.qos(dice.choice((1, 5, 20)), global_=False)
    fixed = [name for name in QUEUES if name != "full"]
    for name in dice.sample(fixed, 3):
        channel.consume(name, no_ack=client.chance(0.1), priority=dice.choice((None, None, 5)))
    if client.chance(0.4):
        name = f"exclusive-{session.prefix}-{client.unique()}"
        channel.declare_queue(name, exclusive=True)
        rabbitmq.bind_queue(client.scene.namespace, name, "fan", owner_id=session.connection.id, actor=client.actor())
        channel.consume(name)
    if client.chance(0.4):
        name = f"auto-{dice.randrange(3)}"
        channel.declare_queue(name, auto_delete=True)
        if client.chance(0.5):
            rabbitmq.bind_queue(client.scene.namespace, name, "fan", actor=client.actor())
        channel.consume(name, exclusive=client.chance(0.2))


def _get(client: Client, session: Session) -> None:
    """Without a consumer. Nobody gives back what was in `full`, so that it never has more than it takes."""
    name = client.dice.choice(("full", "full", *QUEUES))
    no_ack = name == "full" or client.chance(0.3)
    delivery = session.channel.get(name, no_ack=no_ack)
    if delivery is None:
        return
    _delivered(client, session, [delivery])


def _delivered(client: Client, session: Session, found: Sequence[Any]) -> None:
    locks = []
    for tagged in found:
        _check(client, tagged)
        if tagged.token is None:
            how = ["RECEIVED_AND_DELETED", "COMPLETED"]  # the latter if another process delivered it (RMQ-922)
            client.journal.write("gone", path=tagged.address.path, numbers=[tagged.number], how=how)
            continue
        place = session.channel.unacked[tagged.delivery_tag].entity_id, tagged.number, tagged.delivery_count
        session.held[tagged.delivery_tag] = place
        locks.append(str(place))
    if locks:
        client.journal.write("got", locks=locks)


def _check(client: Client, tagged: Any) -> None:
    if bytes(tagged.body) != body_of(tagged.properties.message_id):
        client.journal.write("crash", trace=f"the body of {tagged.properties.message_id} came back as {bytes(tagged.body)!r}")


def _settle(client: Client, session: Session) -> None:
    """Settle one delivery, or all up to it. One that is not settled is given back when its channel ends."""
    if not session.held:
        return
    channel, dice = session.channel, client.dice
    tag, multiple = dice.choice(list(session.held)), client.chance(0.3)
    act = dice.choices(("acked", "requeued", "rejected", "recovered", None), (60, 12, 12, 2, 14))[0]
    if act is None:
        return
    if act == "recovered":
        tags = list(session.held)
        channel.recover()
    else:
        tags = [held for held in session.held if held <= tag] if multiple else [tag]
        if act == "acked":
            channel.ack(tag, multiple=multiple)
        else:
            channel.nack(tag, multiple=multiple, requeue=act == "requeued")
    places = [session.held.pop(tag) for tag in tags]
    if act != "recovered":
        client.journal.write("settled", locks=[str(place) for place in places])
    client.journal.write("did", what=f"rabbit {act}", count=len(places))
    if how := {"acked": ["COMPLETED"], "rejected": ["DROPPED", "MOVED"]}.get(act):
        for entity, number, _ in places:
            client.journal.write("gone", path=entity, numbers=[number], how=how)


def _leave(client: Client, session: Session) -> None:
    if client.chance(0.5):
        session.channel.close()
        session.held.clear()
        session.channel = session.connection.channel()
    else:
        client.own = None
        session.connection.close()


@contextmanager
def _refusals_noted(client: Client) -> Iterator[None]:
    """A refusal that a client must live with ends its connection, as clients do; it makes another one."""
    try:
        yield
    except (AmqpError, *MUST_LIVE_WITH) as exc:
        if isinstance(exc, AmqpError) and not _must_be_lived_with(exc):
            raise
        client.journal.write("refused", by=f"{type(exc).__name__} {getattr(exc, 'reply_name', '')}".strip())
        session, client.own = client.own, None
        if session is not None:
            with suppress(BrokerError):
                session.connection.close()


def _must_be_lived_with(exc: AmqpError) -> bool:
    """The connection was ended; a queue that comes and goes is gone, or another's alone; a delivery was held for too long, or its
    acknowledgement was answered to nobody, and sent again."""
    match exc.reply_name:
        case "CONNECTION_FORCED":
            return True
        case "NOT_FOUND":
            return any(f"'{name}-" in exc.text for name in ("auto", "exclusive", "passing", "idle"))
        case "ACCESS_REFUSED":
            return "in exclusive use" in exc.text
        case "PRECONDITION_FAILED":
            return "timed out" in exc.text
    return False


# Operating


def meddle(client: Client) -> None:
    """What operators do meanwhile: policies, queues that come and go, purges, moves, connections that are closed for others."""
    with _refusals_noted(client):
        vhost, dice = client.scene.namespace, client.dice
        act = dice.choices(("policy", "idle", "topology", "purge", "move", "close"), (36, 26, 13, 3, 12, 10))[0]
        if act == "policy":
            policy = dice.choice(POLICIES)
            if client.chance(0.5):
                rabbitmq.set_policy(vhost, policy, actor=client.actor())
            else:
                rabbitmq.delete_policy(vhost, policy.name, policy.is_operator, actor=client.actor())
        elif act == "idle":
            _an_idle_queue(client)
        elif act == "topology":
            _change_topology(client)
        elif act == "purge":
            name = dice.choice(list(QUEUES))
            count = rabbitmq.purge_queue(client.scene.address(name), actor=client.actor())
            client.journal.write("did", what="rabbit messages purged", count=count)
        elif act == "move":
            _move(client)
        elif client.recent:
            done = rabbitmq.force_close(client.recent.popleft(), actor=client.actor())
            client.journal.write("did", what="connections closed for others", count=done)
    time.sleep(client.dice.uniform(0.05, 0.3))


def _move(client: Client) -> None:
    """Some or all of the dead go back, or to a queue that may have no room for them."""
    dice, address = client.dice, client.scene.address(client.dice.choice(SPENT))
    to = dice.choice((Back(), Back(first=True), ToQueue(dice.choice(MOVED_TO)), ToExchange("fan")))
    numbers = None
    if client.chance(0.3):
        page = reads.list_messages(address, limit=20, newest_first=False, actor=client.actor())
        numbers = [row.sequence_number for row in page.rows]
    moved = rabbitmq.move(address, to, numbers, actor=client.actor())
    client.journal.write("did", what="rabbit messages moved", count=moved.count)


def _an_idle_queue(client: Client) -> None:
    """A queue that nobody uses from now on: it goes with what is in it."""
    name = f"idle-{client.unique()}"
    address = client.scene.address(name)
    rabbitmq.declare_queue(address, arguments={"x-expires": IDLE}, actor=client.actor())
    _publish_one(client, name)


def _change_topology(client: Client) -> None:
    """An exchange and a queue between others, bound, and deleted again by whoever comes next."""
    vhost, which = client.scene.namespace, client.dice.randrange(3)
    exchange, queue = f"passing-{which}", f"passing-{which}"
    if client.chance(0.5):
        rabbitmq.declare_exchange(vhost, exchange, "fanout", actor=client.actor())
        rabbitmq.declare_queue(client.scene.address(queue), actor=client.actor())
        rabbitmq.bind_exchange(vhost, exchange, "fan", actor=client.actor())
        rabbitmq.bind_queue(vhost, queue, exchange, actor=client.actor())
    else:
        rabbitmq.delete_exchange(vhost, exchange, actor=client.actor())
        rabbitmq.delete_queue(client.scene.address(queue), actor=client.actor())


ACTS = {"sender": publish, "receiver": consume, "meddler": meddle}

# The rest


def come_to_rest(scene: Scene) -> None:
    """All clients are dead: what they held is free, and what was theirs alone is gone, as soon as somebody has looked."""
    query = (
        "SELECT count(*) AS n FROM vitrine_connection AS c JOIN vitrine_namespace AS n ON n.id = c.namespace_id WHERE n.name = %s"
    )
    ends_at = time.monotonic() + REST_SECONDS
    while time.monotonic() < ends_at:
        rabbitmq.end_connections()
        if not connections.current().execute(query, [scene.namespace]).fetchone().n:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("connections of processes that are dead are still there")
    time.sleep(IDLE / 1000)
    sweeps.delete_idle_entities()
    for policy in POLICIES:
        rabbitmq.delete_policy(scene.namespace, policy.name, policy.is_operator)


def drain(scene: Scene) -> None:
    """Take what is ready now, queue by queue, and forget the messages of queues that are gone."""
    for queue in rabbitmq.list_queues(scene.namespace):
        while rabbitmq.get(scene.address(queue.name), no_ack=True) is not None:
            pass
    sweeps.remove_deleted_entities()
