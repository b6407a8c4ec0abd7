"""x-expires: a queue that nobody uses is gone, to the millisecond, with sweeps and without."""

import pytest

from broker_core import rabbitmq
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Publication
from broker_core.rabbitmq.connections import connections
from broker_core.rabbitmq.messages import delivering
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.rabbitmq.topology import queue_expiry
from broker_core.runtime import processes
from broker_core.store.driver import run
from broker_core.store.statements import call
from tests.broker_state import entity_id

from .connected import as_another_process, is_there, query, send, step


@pytest.fixture
def expiring_queue(vhost):
    """A queue that may be unused for a second."""
    return declared(vhost, 1000)


def declared(vhost, milliseconds, name="brief", **options):
    return rabbitmq.declare_queue(EntityAddress(vhost, name), arguments={"x-expires": milliseconds}, **options).address


def is_found(address):
    """Whether a use finds it; that is one."""
    try:
        rabbitmq.declare_queue(address, passive=True)
    except AmqpError as refused:
        assert refused.text == f"NOT_FOUND - no queue '{address.path}' in vhost '{address.namespace}'"
        return False
    return True


def idle():
    """What a sweep finds."""
    return [row for row in run(_ask(call("idle_entities"))) if row.family == "rabbitmq"]


def _ask(statement):
    return (yield statement)


def sweep():
    """What a sweep does. The queues it deleted."""
    return [row.path for row in idle() if run(queue_expiry.delete_idle(row))]


def test_an_unused_queue_is_deleted_with_its_messages(vhost, expiring_queue):
    other = declared(vhost, 1000, "other")
    send(expiring_queue, "a")
    step(vhost, 999)
    assert sweep() == []
    assert rabbitmq.get(other, no_ack=True) is None  # which is use
    step(vhost, 1)
    assert sweep() == ["brief"]
    assert not is_there(expiring_queue) and is_there(other)
    assert sweep() == []


def test_without_a_sweep_an_expired_queue_is_not_found(connection):
    vhost = connection.vhost
    for i, use in enumerate(("get", "consume", "declare", "declare passively", "get without a channel", "delete")):
        address = declared(vhost, 1000, f"q{i}")
        send(address, "a")
        step(vhost, 1000)
        match use:
            case "get" | "consume":
                with pytest.raises(AmqpError, match=f"^NOT_FOUND - no queue 'q{i}'"):
                    getattr(connection.channel(), use)(address.path)
            case "get without a channel":
                with pytest.raises(AmqpError, match=f"^NOT_FOUND - no queue 'q{i}'"):
                    rabbitmq.get(address, no_ack=True)
            case "declare":
                assert rabbitmq.declare_queue(address, arguments={"x-expires": 5}).created  # it need not be equivalent
            case "declare passively":
                assert not is_found(address)
            case "delete":
                continue
        assert is_there(address) == (use == "declare"), use


@pytest.mark.parametrize("use", ["get", "get nothing", "declare", "declare passively", "declare quorum"])
def test_gets_and_declarations_restart_the_expiry(vhost, use):
    kind = "quorum" if use == "declare quorum" else "classic"
    address = declared(vhost, 1000, type=kind)
    if use == "get":
        send(address, "a", "b", "c")
    for _ in range(3):
        step(vhost, 700)
        match use:
            case "get" | "get nothing":
                assert (rabbitmq.get(address, no_ack=True) is None) == (use == "get nothing")
            case "declare passively":
                assert is_found(address)
            case _:
                assert not rabbitmq.declare_queue(address, type=kind, arguments={"x-expires": 1000}).created
        assert sweep() == []
    step(vhost, 999)
    assert sweep() == []
    step(vhost, 1)
    assert sweep() == ["brief"]


def test_publishing_binding_purging_browsing_and_unacked_messages_do_not_restart_the_expiry(connection):
    vhost = connection.vhost
    addresses = {use: declared(vhost, 1000, use) for use in ("publish", "bind", "purge", "look", "hold")}
    send(addresses["hold"], "a")
    assert connection.channel().get("hold").body == b"a"
    step(vhost, 500)
    send(addresses["publish"], "a")
    rabbitmq.bind_queue(vhost, "bind", "amq.direct", "key")
    rabbitmq.unbind_queue(vhost, "bind", "amq.direct", "key")
    rabbitmq.purge_queue(addresses["purge"])
    assert rabbitmq.get_queue(addresses["look"]).name == "look"
    rabbitmq.list_queues(vhost)
    step(vhost, 499)
    assert sweep() == []
    step(vhost, 1)
    assert set(sweep()) == set(addresses)
    assert not any(map(is_there, addresses.values()))


def test_consumers_keep_a_queue_and_its_expiry_starts_when_the_last_one_ends(connection):
    vhost = connection.vhost
    address = declared(vhost, 1000)
    first, second = connection.channel(), connection.channel()
    first.consume("brief", tag="t")
    second.consume("brief")
    step(vhost, 5000)
    assert sweep() == [] and is_there(address)
    first.cancel("t")
    step(vhost, 5000)
    assert sweep() == []
    second.close()
    step(vhost, 700)
    assert sweep() == []
    step(vhost, 299)
    assert sweep() == []
    step(vhost, 1)
    assert sweep() == ["brief"]


def test_the_consumers_of_a_dead_process_no_longer_prevent_expiry(connection):
    vhost = connection.vhost
    address = declared(vhost, 1000)
    with as_another_process():
        rabbitmq.connect(vhost).channel().consume("brief")
    step(vhost, 5000)
    assert sweep() == []
    connections.recover_dead()
    step(vhost, 999)
    assert sweep() == [] and is_there(address)
    step(vhost, 1)
    assert sweep() == ["brief"]


def test_acknowledging_a_delivery_of_an_expired_queue_is_silent(connection):
    address = declared(connection.vhost, 1000)
    send(address, "a", "b", "c")
    channel = connection.channel()
    for _ in range(3):
        channel.get("brief")
    step(connection.vhost, 1000)
    assert sweep() == ["brief"]
    channel.ack(1)
    channel.nack(2)
    channel.reject(3, requeue=False)


def test_connecting_does_not_restart_the_expiry(fresh_epoch, vhost):
    """RMQ-047: be it the first, or the only one for a while, as a script that is run now and then."""
    address = declared(vhost, 1000)
    for _ in range(4):
        with rabbitmq.connect(vhost) as connection:
            connection.channel().publish([Publication(b"", routing_key="brief")])
        processes.leave_all()
        step(vhost, 250)
    assert sweep() == ["brief"]
    assert not is_there(address)


@pytest.mark.parametrize(("beyond", "goes"), [(60_000, False), (-1, True)])
def test_a_restart_of_the_database_restarts_the_expiry(vhost, beyond, goes):
    """RMQ-047: as where a node of RabbitMQ starts. Only a clock that shows real time knows when that was."""
    [(uptime,)] = query("SELECT ceil(1000 * extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()))::bigint")
    lively = f"lively {vhost}"
    rabbitmq.create_vhost(lively)
    address = declared(lively, max(1, uptime + beyond))
    never_used = "UPDATE vitrine_entity_activity SET last_activity_at = '2020-01-01' WHERE entity_id = %s RETURNING 1"
    query(never_used, entity_id(address))
    assert ("brief" in sweep()) is goes
    assert is_there(address) is not goes


def test_a_policy_counts_from_its_application(vhost):
    address = rabbitmq.declare_queue(EntityAddress(vhost, "idle")).address
    step(vhost, 60_000)
    rabbitmq.set_policy(vhost, Policy("brief", "^idle$", {"expires": 1000}, apply_to="queues"))
    step(vhost, 500)
    assert sweep() == []
    step(vhost, 500)
    assert sweep() == ["idle"]
    assert not is_there(address)


@pytest.mark.parametrize(("argument", "policy"), [(4000, 1000), (1000, 4000)])
def test_the_lower_expiry_of_argument_and_policy_applies(vhost, argument, policy):
    address = declared(vhost, argument)
    rabbitmq.set_policy(vhost, Policy("brief", "", {"expires": policy}, apply_to="queues"))
    step(vhost, 999)
    assert sweep() == []
    step(vhost, 1)
    assert sweep() == ["brief"]
    assert not is_there(address)


def test_an_auto_delete_queue_is_deleted_by_whichever_comes_first(connection):
    vhost = connection.vhost
    never_used = declared(vhost, 700, "never", auto_delete=True)
    step(vhost, 700)
    assert sweep() == ["never"]
    assert not is_there(never_used)
    used = declared(vhost, 700, "used", auto_delete=True)
    channel = connection.channel()
    channel.consume("used")
    channel.close()
    assert not is_there(used)


def test_an_expired_queue_dead_letters_nothing_and_its_bindings_are_deleted(vhost):
    dead = rabbitmq.declare_queue(EntityAddress(vhost, "dead")).address
    arguments = {"x-expires": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    address = rabbitmq.declare_queue(EntityAddress(vhost, "brief"), arguments=arguments).address
    rabbitmq.bind_queue(vhost, "brief", "amq.direct", "key")
    send(address, "a")
    step(vhost, 1000)
    assert sweep() == ["brief"]
    assert rabbitmq.declare_queue(dead, passive=True).messages == 0
    assert query("SELECT 1 FROM vitrine_binding WHERE routing_key = 'key'") == []


def test_a_queue_used_again_before_the_sweep_is_kept(vhost, expiring_queue):
    step(vhost, 1000)
    (row,) = idle()
    rabbitmq.declare_queue(expiring_queue, arguments={"x-expires": 1000})  # a new one: the old one was gone
    assert not run(queue_expiry.delete_idle(row))
    assert is_there(expiring_queue)


def test_the_last_use_is_written_only_for_queues_that_can_expire(vhost, queue):
    step(vhost, 60_000)
    delivering.get(queue, no_ack=True)
    rabbitmq.declare_queue(queue, passive=True)
    text = "SELECT e.now - a.last_activity_at AS age FROM vitrine_entity_now AS e JOIN vitrine_entity_activity AS a"
    (row,) = query(text + " ON a.entity_id = e.id WHERE e.path = 'q'")
    assert row.age.total_seconds() == 60
