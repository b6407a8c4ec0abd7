"""Every test here has the real database, and asks for virtual hosts of its own."""

import pytest

from tests.fixtures import *  # noqa: F403


@pytest.fixture
def queue(vhost):
    """The address of a new classic queue."""
    from broker_core.rabbitmq import declare_queue

    return declare_queue(EntityAddress(vhost, "q")).address  # noqa: F405


@pytest.fixture
def fresh_epoch(broker_database):
    """This process begins the test without an epoch, and no other has left one."""
    from broker_core.runtime import processes
    from broker_core.store import connections

    processes.leave_all()
    connections.current().execute("DELETE FROM vitrine_broker_process")
    yield
    processes.leave_all()


@pytest.fixture
def connection(fresh_epoch, vhost):
    """An open connection to the virtual host."""
    from broker_core.rabbitmq import connect

    with connect(vhost, "tests") as opened:
        yield opened


@pytest.fixture
def channel(connection):
    return connection.channel()
