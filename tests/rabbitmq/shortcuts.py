"""What tests of messages share: publishing in one line, reading a queue out, and looking behind it."""

from datetime import timedelta

from broker_core import namespaces, rabbitmq
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.messages import tidying
from broker_core.rabbitmq.rules.deaths import history
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.store import connections
from broker_core.store.driver import run
from tests.broker_state import entity_id

OWNER = 1_000_001  # a connection, as far as messages know it


def declare(vhost, name="q", *, type=None, **arguments):
    """A queue with x-arguments by name: message_ttl=1000."""
    address = EntityAddress(vhost, name)
    rabbitmq.declare_queue(address, type=type, arguments={f"x-{k.replace('_', '-')}": v for k, v in arguments.items()})
    return address


def policy(vhost, name="p", pattern=".*", apply_to="queues", priority=0, operator=False, **definition):
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    rabbitmq.set_policy(vhost, Policy(name, pattern, keys, apply_to, priority, operator))


def send(address, *bodies, exchange="", key=None, headers=None, **properties):
    """Publish bodies one by one."""
    return [
        rabbitmq.publish(
            address.namespace,
            [
                Publication(
                    str(body).encode(),
                    exchange,
                    address.path if key is None else key,
                    Properties(headers=headers or {}, **properties),
                )
            ],
        )[0]
        for body in bodies
    ]


def get(address, **kwargs):
    return rabbitmq.get(address, owner_id=OWNER, **kwargs)


def take(address, count=1, **kwargs):
    return rabbitmq.take(address, count, owner_id=OWNER, **kwargs)


def read_out(address):
    """The bodies that gets find until there is nothing, each removed at once."""
    results = []
    while (delivery := rabbitmq.get(address, no_ack=True)) is not None:
        results.append(text(delivery))
    return results


def text(delivery):
    return bytes(delivery.body).decode()


def texts(deliveries):
    return [text(d) for d in deliveries]


def tokens(*deliveries):
    return [d.token for d in deliveries]


def step(address, milliseconds):
    namespaces.step_clock(address.namespace, timedelta(milliseconds=milliseconds))


def expire(address):
    """What a sweep does for one queue."""
    return run(tidying.expire_head(entity_id(address)))


def count(address):
    """Ready messages, as declare-ok counts them."""
    return rabbitmq.declare_queue(address, passive=True).messages


def deaths(delivery):
    return history(delivery.properties.headers)


def present(address):
    """The numbers of the messages that are there, ready or not."""
    query = "SELECT sequence_number FROM vitrine_message WHERE entity_id = %s ORDER BY 1"
    return [row.sequence_number for row in connections.current().execute(query, [entity_id(address)])]


def ledger_agrees(address):
    """Whether the ledger says what is there: messages and bytes, in all and held (docs/design.md D9)."""
    (row,) = connections.current().execute(
        """
        WITH l AS (SELECT state, n, bytes FROM vitrine_count_base WHERE entity_id = %(id)s
                   UNION ALL SELECT state, n, bytes FROM vitrine_count_delta WHERE entity_id = %(id)s),
             m AS (SELECT count(*) AS n, coalesce(sum(size), 0) AS bytes, count(lock_token) AS held,
                          coalesce(sum(size) FILTER (WHERE lock_token IS NOT NULL), 0) AS held_bytes
                     FROM vitrine_message WHERE entity_id = %(id)s)
        SELECT (SELECT coalesce(sum(n), 0) FROM l WHERE state = 0) AS ledger_n, m.n,
               (SELECT bytes_sent FROM vitrine_entity_counter WHERE entity_id = %(id)s)
               + (SELECT coalesce(sum(bytes), 0) FROM l WHERE state = 0) AS ledger_bytes, m.bytes,
               (SELECT coalesce(sum(n), 0) FROM l WHERE state = 10) AS ledger_held, m.held,
               (SELECT coalesce(sum(bytes), 0) FROM l WHERE state = 10) AS ledger_held_bytes, m.held_bytes
          FROM m
        """,
        {"id": entity_id(address)},
    )
    assert (row.ledger_n, row.ledger_bytes, row.ledger_held, row.ledger_held_bytes) == (
        row.n,
        row.bytes,
        row.held,
        row.held_bytes,
    )
    return True
