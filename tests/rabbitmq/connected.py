"""What tests of connections, channels and consumers share."""

from contextlib import contextmanager
from datetime import timedelta

from broker_core import namespaces
from broker_core.rabbitmq.messages.publishing import Publication, publish
from broker_core.runtime import processes
from broker_core.store import connections
from tests.eventually import eventually


def query(text, *params):
    return connections.current().execute(text, params).fetchall()


def send(queue, *bodies, **properties):
    publish(queue.namespace, [Publication(body.encode(), routing_key=queue.path, **properties) for body in bodies])


def bodies(deliveries):
    return "".join(d.body.decode() for d in deliveries)


def is_there(address):
    """Whether the queue is there, without using it."""
    text = (
        "SELECT 1 FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE n.name = %s AND path = %s"
    )
    return bool(query(text + " AND e.deleted_at IS NULL", address.namespace, address.path))


def step(vhost, milliseconds):
    """Let the virtual host's clock go on."""
    namespaces.step_clock(vhost, timedelta(milliseconds=milliseconds))


_IS_FREE = """SELECT pg_try_advisory_lock(key) AND pg_advisory_unlock(key)
                FROM (SELECT hashtextextended('vitrine epoch ' || %s::bigint, 0)) AS t(key)"""


@contextmanager
def as_another_process():
    """Inside the block this process has another epoch, as a second one would."""
    held = dict(processes._processes)
    processes._processes.clear()
    try:
        yield
    finally:
        epochs = [process.epoch for process in processes._processes.values()]
        processes.leave_all()
        for epoch in epochs:  # the server ends a session, and with it the lock, a moment after the client has closed it
            eventually(lambda epoch=epoch: query(_IS_FREE, epoch)[0][0], why=f"the lock of epoch {epoch} is free")
        processes._processes.update(held)
