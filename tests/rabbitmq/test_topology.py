"""Virtual hosts, exchanges and bindings; and what of them this process remembers."""

import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from broker_core import namespaces, rabbitmq
from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.models import Namespace
from broker_core.rabbitmq import Publication
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.rabbitmq.rules.table import Typed
from broker_core.rabbitmq.topology import compiled, vhosts
from broker_core.rabbitmq.topology.vhosts import lock_vhost
from broker_core.service_bus import entities
from broker_core.store import connections
from broker_core.store.driver import run
from broker_core.store.statements import SQL, call
from tests.eventually import eventually

SYSTEM = ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.rabbitmq.trace", "amq.topic"]


@pytest.fixture
def now_of(vhost):
    """The topology as it is now."""
    return lambda: run(compiled.current(vhost))


def exchanges(vhost):
    return [exchange.name for exchange in rabbitmq.list_exchanges(vhost)]


def bindings(vhost, **of):
    return [(b.source, b.destination, b.routing_key) for b in rabbitmq.list_bindings(vhost, **of)]


def make_queues(vhost, *names):
    for name in names:
        rabbitmq.declare_queue(EntityAddress(vhost, name))


def refused(code, text=None):
    return pytest.raises(AmqpError, match=text) if text is None else pytest.raises(AmqpError, match=f"^{code} - {text}$")


# Virtual hosts


def test_a_new_virtual_host_has_seven_exchanges(vhost):
    by_name = {exchange.name: exchange for exchange in rabbitmq.list_exchanges(vhost)}
    assert list(by_name) == SYSTEM
    assert all(exchange.durable and not exchange.auto_delete for exchange in by_name.values())
    assert [name for name, exchange in by_name.items() if exchange.internal] == ["amq.rabbitmq.trace"]
    assert {by_name["amq.headers"].type, by_name["amq.match"].type} == {"headers"}
    assert rabbitmq.get_vhost(vhost).family is Family.RABBITMQ


def test_virtual_hosts_are_listed_and_created_once(vhost, namespace):
    assert vhost in [host.name for host in rabbitmq.list_vhosts()]
    assert namespace not in [host.name for host in rabbitmq.list_vhosts()]
    assert rabbitmq.ensure_vhost(vhost).id == rabbitmq.get_vhost(vhost).id
    with pytest.raises(EntityExists):
        rabbitmq.create_vhost(vhost)
    with pytest.raises(NotAllowed, match="not a virtual host"):
        rabbitmq.get_vhost(namespace)


def test_a_virtual_host_without_queues_is_deleted_with_its_exchanges(vhost):
    rabbitmq.declare_exchange(vhost, "a")
    rabbitmq.bind_exchange(vhost, "a", "amq.topic", "#")
    rabbitmq.delete_vhost(vhost)
    with refused("NOT_ALLOWED", f"vhost {vhost} not found"):
        rabbitmq.declare_exchange(vhost, "a")
    rabbitmq.create_vhost(vhost)
    assert exchanges(vhost) == SYSTEM


def test_a_virtual_host_is_deleted_with_its_contents(vhost):
    """RMQ-396: what goes is told before; its connections are closed, and its name is free."""
    make_queues(vhost, "q", "other")
    rabbitmq.declare_exchange(vhost, "x")
    rabbitmq.bind_queue(vhost, "q", "x", "k")
    rabbitmq.set_policy(vhost, Policy("p", "", {"max-length": 9}))
    rabbitmq.publish(vhost, [Publication(b"", routing_key="q")] * 3)
    connection = rabbitmq.connect(vhost)
    channel = connection.channel()
    channel.declare_queue("mine", exclusive=True)
    channel.consume("other")
    assert channel.get("q") is not None
    before = rabbitmq.preview_delete_vhost(vhost)
    assert before == rabbitmq.VhostContents(queues=3, messages=3, exchanges=1, bindings=1, policies=1, connections=1)
    assert rabbitmq.delete_vhost(vhost) == before
    eventually(lambda: connection.closed)
    with pytest.raises(AmqpError, match=f"CONNECTION_FORCED - vhost '{vhost}' is deleted"):
        channel.get("q")
    for gone in (lambda: rabbitmq.declare_queue(EntityAddress(vhost, "q")), lambda: rabbitmq.connect(vhost)):
        with refused("NOT_ALLOWED", f"vhost {vhost} not found"):
            gone()
    assert vhost not in [host.name for host in rabbitmq.list_vhosts()]
    rabbitmq.create_vhost(vhost)
    assert exchanges(vhost) == SYSTEM and rabbitmq.list_queues(vhost) == [] and rabbitmq.list_policies(vhost) == []


def test_the_record_of_a_deleted_virtual_host_is_not_a_virtual_host(vhost):
    """RMQ-396: also not by the name under which its history is shown."""
    make_queues(vhost, "q")
    rabbitmq.publish(vhost, [Publication(b"", routing_key="q")])
    rabbitmq.delete_vhost(vhost)
    ((kept,),) = connections.current().execute("SELECT name FROM vitrine_namespace WHERE deleted_at IS NOT NULL").fetchall()
    for attempt in (
        lambda: rabbitmq.connect(kept),
        lambda: rabbitmq.publish(kept, [Publication(b"", routing_key="q")]),
        lambda: rabbitmq.declare_queue(EntityAddress(kept, "q")),
    ):
        with refused("NOT_ALLOWED", f"vhost {re.escape(kept)} not found"):
            attempt()
    with pytest.raises(EntityNotFound):
        namespaces.get_clock(kept)


def test_a_name_like_that_of_a_deleted_virtual_host_can_be_used(vhost):
    """What is deleted gets such a name, where events name one of its queues."""
    kept = rabbitmq.get_vhost(vhost)
    make_queues(vhost, "q")
    rabbitmq.publish(vhost, [Publication(b"x", routing_key="q")])
    minutes = [datetime.now(UTC) + timedelta(minutes=n) for n in range(3)]
    taken = [f"{vhost} (deleted {minute:%Y-%m-%d %H:%M}, {kept.id})" for minute in minutes]
    for name in taken:
        rabbitmq.create_vhost(name.upper())
    rabbitmq.delete_vhost(vhost)
    buried = Namespace.objects.get(id=kept.id)
    assert buried.name in [f"{name[:-1]}, 2)" for name in taken] and buried.deleted_at
    for create in (rabbitmq.create_vhost, rabbitmq.ensure_vhost):
        with pytest.raises(InvalidArgument, match=f"^name: '{re.escape(buried.name)}' is reserved for a deleted namespace"):
            create(buried.name)
    for name in taken:
        make_queues(name, "q")
        rabbitmq.delete_vhost(name)
    assert rabbitmq.create_vhost(vhost).id != kept.id and rabbitmq.list_queues(vhost) == []


def test_rabbitmq_operations_are_refused_in_namespaces_of_another_family(namespace):
    for attempt in (
        lambda: rabbitmq.declare_queue(EntityAddress(namespace, "q")),
        lambda: rabbitmq.declare_exchange(namespace, "x"),
        lambda: rabbitmq.bind_queue(namespace, "q", "amq.topic"),
        lambda: run(compiled.current(namespace)),
    ):
        with pytest.raises(NotAllowed, match="not a virtual host"):
            attempt()


# Exchanges


def test_an_exchange_is_declared_once(vhost):
    assert rabbitmq.declare_exchange(vhost, "x", "topic", arguments={"alternate-exchange": "ae", "width": Typed("short", 7)})
    assert not rabbitmq.declare_exchange(vhost, "x", "topic", arguments={"alternate-exchange": "ae"})
    assert not rabbitmq.declare_exchange(vhost, "x", passive=True, type="bogus", durable=False)
    (exchange_x,) = (exchange for exchange in rabbitmq.list_exchanges(vhost) if exchange.name == "x")
    assert exchange_x.arguments == {"alternate-exchange": "ae", "width": 7} and exchange_x.arguments["width"].type == "short"
    assert exchange_x.effective == {"alternate_exchange": "ae"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type": "fanout"}, "inequivalent arg 'type' for exchange 'x' in vhost '{}': received 'fanout' but current is 'direct'"),
        ({"durable": False}, "inequivalent arg 'durable' for exchange 'x' in vhost '{}': received 'false' but current is 'true'"),
        (
            {"arguments": {"alternate-exchange": "y"}},
            "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '{}': "
            "received the value 'y' of type 'longstr' but current is none",
        ),
    ],
)
def test_a_different_redeclaration_is_refused_and_changes_nothing(vhost, change, text):
    rabbitmq.declare_exchange(vhost, "x")
    before = rabbitmq.list_exchanges(vhost)
    with refused("PRECONDITION_FAILED", text.format(vhost)):
        rabbitmq.declare_exchange(vhost, "x", **change)
    assert rabbitmq.list_exchanges(vhost) == before


def test_invalid_exchange_declarations_are_refused(vhost, now_of):
    before = now_of().version
    for refusal, name, more in (
        (refused("COMMAND_INVALID", "unknown exchange type 'bogus'"), "x", {"type": "bogus"}),
        (refused("ACCESS_REFUSED", r"exchange name 'amq\.foo' contains reserved prefix 'amq\.\*'"), "amq.foo", {}),
        (refused("ACCESS_REFUSED", "operation not permitted on the default exchange"), "", {}),
        (refused("ACCESS_REFUSED", "operation not permitted on the default exchange"), "", {"passive": True}),
        (refused("NOT_FOUND", f"no exchange 'x' in vhost '{vhost}'"), "x", {"passive": True}),
        (pytest.raises(InvalidArgument, match="at most 255"), "x" * 256, {}),
        (pytest.raises(InvalidArgument, match="NUL"), "x\0", {}),
        (pytest.raises(InvalidArgument, match="argument"), "x", {"arguments": {"a": object()}}),
    ):
        with refusal:
            rabbitmq.declare_exchange(vhost, name, **more)
    assert exchanges(vhost) == SYSTEM
    assert now_of().version == before
    assert not rabbitmq.declare_exchange(vhost, "amq.direct")


def test_an_exchange_can_be_deleted(vhost):
    """RMQ-308, RMQ-307"""
    rabbitmq.declare_exchange(vhost, "x")
    rabbitmq.declare_exchange(vhost, "y")
    rabbitmq.bind_exchange(vhost, "y", "x")
    with refused("PRECONDITION_FAILED", f"exchange 'x' in vhost '{vhost}' in use"):
        rabbitmq.delete_exchange(vhost, "x", if_unused=True)
    rabbitmq.delete_exchange(vhost, "y", if_unused=True)  # to be a destination is no use
    assert bindings(vhost) == []
    rabbitmq.delete_exchange(vhost, "x", if_unused=True)
    rabbitmq.delete_exchange(vhost, "x")
    assert exchanges(vhost) == SYSTEM
    with refused("ACCESS_REFUSED", f"deletion of system exchange 'amq.direct' in vhost '{vhost}' not allowed"):
        rabbitmq.delete_exchange(vhost, "amq.direct")


def test_an_auto_delete_exchange_is_deleted_with_its_last_binding(vhost):
    """RMQ-313; and so do those before it that lived by their bindings to it."""
    make_queues(vhost, "q")
    for name in ("first", "second", "third"):
        rabbitmq.declare_exchange(vhost, name, "fanout", auto_delete=True)
    rabbitmq.bind_exchange(vhost, "second", "first")
    rabbitmq.bind_exchange(vhost, "third", "second")
    rabbitmq.bind_queue(vhost, "q", "third", "a")
    rabbitmq.bind_queue(vhost, "q", "third", "b")
    rabbitmq.unbind_queue(vhost, "q", "third", "a")
    assert exchanges(vhost) == sorted([*SYSTEM, "first", "second", "third"])
    rabbitmq.delete_queue(EntityAddress(vhost, "q"))
    assert exchanges(vhost) == SYSTEM
    rabbitmq.declare_exchange(vhost, "never bound", auto_delete=True)
    rabbitmq.bind_exchange(vhost, "never bound", "amq.topic")
    rabbitmq.unbind_exchange(vhost, "never bound", "amq.topic")
    assert "never bound" in exchanges(vhost)


# Bindings


def test_repeating_a_binding_changes_nothing(vhost, now_of):
    """RMQ-350: neither the order of arguments nor the spelling of an empty table makes another one."""
    make_queues(vhost, "q")
    assert rabbitmq.bind_queue(vhost, "q", "amq.headers", "k", {"a": 1, "b": "x"})
    version = now_of().version
    assert not rabbitmq.bind_queue(vhost, "q", "amq.headers", "k", {"b": "x", "a": 1})
    assert now_of().version == version
    assert rabbitmq.bind_queue(vhost, "q", "amq.headers", "k", {"a": "1", "b": "x"})
    assert rabbitmq.bind_queue(vhost, "q", "amq.headers", "k")
    assert not rabbitmq.bind_queue(vhost, "q", "amq.headers", "k", {})
    assert rabbitmq.bind_exchange(vhost, "amq.topic", "amq.headers", "k")
    assert not rabbitmq.bind_exchange(vhost, "amq.topic", "amq.headers", "k")
    assert len(rabbitmq.list_bindings(vhost, source="amq.headers")) == 4
    assert bindings(vhost, exchange="amq.topic") == [("amq.headers", "amq.topic", "k")]
    assert len(rabbitmq.list_bindings(vhost, queue="q")) == 3


def test_deleting_the_source_or_destination_deletes_the_binding(vhost):
    """RMQ-353"""
    make_queues(vhost, "q", "other")
    rabbitmq.declare_exchange(vhost, "x")
    rabbitmq.bind_queue(vhost, "q", "amq.topic", "a")
    rabbitmq.bind_queue(vhost, "q", "x", "b")
    rabbitmq.bind_queue(vhost, "other", "amq.topic", "c")
    rabbitmq.delete_exchange(vhost, "x")
    assert bindings(vhost) == [("amq.topic", "other", "c"), ("amq.topic", "q", "a")]
    rabbitmq.delete_queue(EntityAddress(vhost, "q"))
    make_queues(vhost, "q")
    assert bindings(vhost) == [("amq.topic", "other", "c")]


def test_unbinding_succeeds_even_if_objects_are_missing(vhost):
    """RMQ-354"""
    make_queues(vhost, "q")
    assert not rabbitmq.unbind_queue(vhost, "q", "amq.topic", "k")
    assert not rabbitmq.unbind_queue(vhost, "none", "amq.topic", "k")
    assert not rabbitmq.unbind_queue(vhost, "q", "none", "k")
    assert not rabbitmq.unbind_exchange(vhost, "none", "amq.topic")
    rabbitmq.bind_queue(vhost, "q", "amq.topic", "k", {"a": 1})
    assert not rabbitmq.unbind_queue(vhost, "q", "amq.topic", "k")
    assert rabbitmq.unbind_queue(vhost, "q", "amq.topic", "k", {"a": 1})
    assert bindings(vhost) == []


def test_invalid_bindings_are_refused(vhost, now_of):
    make_queues(vhost, "q")
    before = now_of().version
    no_exchange = f"no exchange 'none' in vhost '{vhost}'"
    on_default = "operation not permitted on the default exchange"
    for refusal, bind in (
        (refused("NOT_FOUND", no_exchange), lambda: rabbitmq.bind_queue(vhost, "q", "none")),
        (refused("NOT_FOUND", f"no queue 'none' in vhost '{vhost}'"), lambda: rabbitmq.bind_queue(vhost, "none", "amq.topic")),
        (
            refused("NOT_FOUND", f"no exchange 'none' in vhost '{vhost}'"),
            lambda: rabbitmq.bind_exchange(vhost, "none", "amq.topic"),
        ),
        (refused("ACCESS_REFUSED", on_default), lambda: rabbitmq.bind_queue(vhost, "q", "")),
        (refused("ACCESS_REFUSED", on_default), lambda: rabbitmq.unbind_queue(vhost, "q", "")),
        (refused("ACCESS_REFUSED", on_default), lambda: rabbitmq.bind_exchange(vhost, "", "amq.topic")),
        (
            refused(
                "PRECONDITION_FAILED",
                'Invalid x-match field value <<"bogus">>; expected all, any, all-with-x, or any-with-x',
            ),
            lambda: rabbitmq.bind_queue(vhost, "q", "amq.headers", "", {"x-match": "bogus"}),
        ),
        (pytest.raises(InvalidArgument, match="routing_key"), lambda: rabbitmq.bind_queue(vhost, "q", "amq.topic", "k" * 256)),
    ):
        with refusal:
            bind()
    assert bindings(vhost) == []
    assert now_of().version == before


# Who may, and what is remembered


def test_changing_requires_the_right_to_manage_and_reading_the_right_to_browse(vhost):
    viewer, nobody = Actor("user", "vera", Right.BROWSE), Actor("user", "nina")
    address = EntityAddress(vhost, "q")
    for change in (
        lambda: rabbitmq.create_vhost("new", actor=viewer),
        lambda: rabbitmq.delete_vhost(vhost, actor=viewer),
        lambda: rabbitmq.declare_exchange(vhost, "x", actor=viewer),
        lambda: rabbitmq.delete_exchange(vhost, "x", actor=viewer),
        lambda: rabbitmq.declare_queue(address, actor=viewer),
        lambda: rabbitmq.delete_queue(address, actor=viewer),
        lambda: rabbitmq.bind_queue(vhost, "q", "amq.topic", actor=viewer),
        lambda: rabbitmq.unbind_queue(vhost, "q", "amq.topic", actor=viewer),
        lambda: rabbitmq.list_exchanges(vhost, actor=nobody),
        lambda: rabbitmq.list_bindings(vhost, actor=nobody),
        lambda: rabbitmq.list_queues(vhost, actor=nobody),
        lambda: rabbitmq.declare_queue(address, passive=True, actor=nobody),
    ):
        with pytest.raises(NotAuthorized):
            change()
    assert rabbitmq.list_queues(vhost, actor=viewer) == []


def test_the_cached_topology_has_a_version(vhost):
    make_queues(vhost, "q")
    old = run(compiled.cached(vhost))
    rabbitmq.bind_queue(vhost, "q", "amq.topic", "a.*")
    assert run(compiled.cached(vhost)) is old
    new = run(compiled.current(vhost))
    assert new.version == old.version + 1
    assert run(compiled.cached(vhost)) is run(compiled.current(vhost)) is new
    assert new.router.route("amq.topic", ["a.b"]).queues == ("q",)
    assert old.router.route("amq.topic", ["a.b"]).queues == ()
    rabbitmq.unbind_queue(vhost, "q", "amq.topic", "a.*")
    compiled.mark_outdated(vhost)
    assert run(compiled.cached(vhost)).router.route("amq.topic", ["a.b"]).queues == ()
    assert new.queues["q"].id == rabbitmq.get_queue(EntityAddress(vhost, "q")).id


def test_an_update_reads_only_changes_and_shares_unchanged_objects(vhost, now_of, monkeypatch):
    make_queues(vhost, "q", "r")
    rabbitmq.bind_queue(vhost, "q", "amq.fanout")
    before = now_of()
    monkeypatch.setitem(SQL, "topology", "a statement that nobody runs")
    make_queues(vhost, "s")
    rabbitmq.bind_queue(vhost, "s", "amq.direct", "k")
    rabbitmq.delete_queue(EntityAddress(vhost, "r"))
    after = now_of()
    assert list(after.queues) == ["q", "s"] and list(before.queues) == ["q", "r"]
    assert after.queues["q"] is before.queues["q"]
    assert (before.router.route("amq.direct", ["k"]).queues, after.router.route("amq.direct", ["k"]).queues) == ((), ("s",))
    assert after.router.route("amq.fanout", [""]).queues == ("q",)


@pytest.mark.parametrize(
    "untold",
    [
        "DELETE FROM vitrine_topology_change WHERE version = (SELECT max(version) FROM vitrine_topology_change)",
        "DELETE FROM vitrine_topology_change WHERE version < (SELECT max(version) FROM vitrine_topology_change)",
        "UPDATE vitrine_namespace SET topology_version = nextval('vitrine_topology_version')",
        "UPDATE vitrine_topology_change SET previous = previous - 1",
    ],
)
def test_without_recorded_changes_the_whole_topology_is_read(vhost, now_of, untold):
    """Told ones are pruned and lost in a crash, and whoever raises a version without a word has changed who knows what."""
    make_queues(vhost, "q")
    now_of()
    make_queues(vhost, "r")
    rabbitmq.bind_queue(vhost, "q", "amq.fanout")
    connections.current().execute(untold)
    connections.current().execute("DELETE FROM vitrine_binding")  # which nobody is told
    assert list(now_of().queues) == ["q", "r"]
    assert now_of().router.route("amq.fanout", [""]).queues == ()


def test_a_large_change_is_not_recorded_in_detail(vhost, now_of, monkeypatch):
    make_queues(vhost, "q", "r")
    now_of()
    monkeypatch.setattr(vhosts, "MOST_ITEMIZED", 1)
    rabbitmq.set_policy(vhost, Policy("p", "", {"max-length": 1}, apply_to="queues"))
    told = "SELECT count(*) AS n FROM vitrine_topology_change WHERE version = %s"
    assert connections.current().execute(told, [now_of().version]).fetchone().n == 0
    assert [queue.effective["max_length"] for queue in now_of().queues.values()] == [1, 1]


def test_recorded_topology_changes_are_pruned(vhost, now_of):
    make_queues(vhost, "q")
    connections.current().execute("SELECT setval('vitrine_topology_version', nextval('vitrine_topology_version') + 1000)")
    make_queues(vhost, "r")
    kept = connections.current().execute("SELECT version FROM vitrine_topology_change").fetchall()
    assert [row.version for row in kept if row.version < now_of().version - 1000] == []
    assert kept != []


def test_a_recreated_virtual_host_does_not_use_the_old_cache(vhost, now_of):
    make_queues(vhost, "q")
    before = now_of()
    rabbitmq.delete_vhost(vhost)
    rabbitmq.create_vhost(vhost)
    compiled._compiled[compiled._key(vhost)] = before
    assert not now_of().queues


def test_the_topology_routes_as_it_was_declared(vhost, now_of):
    make_queues(vhost, "q", "r", "s")
    rabbitmq.declare_exchange(vhost, "x", "fanout", internal=True, arguments={"alternate-exchange": "amq.fanout"})
    rabbitmq.declare_exchange(vhost, "y", "direct", arguments={"alternate-exchange": "amq.fanout"})
    rabbitmq.bind_exchange(vhost, "x", "amq.direct", "k")
    rabbitmq.bind_queue(vhost, "q", "x")
    rabbitmq.bind_queue(vhost, "r", "amq.headers", "", {"n": 1, "x-match": "all"})
    rabbitmq.bind_queue(vhost, "s", "amq.fanout")
    router = now_of().router
    assert router.route("amq.direct", ["k"]).queues == ("q",)
    assert router.route("", ["r"]).queues == ("r",)
    assert router.route("amq.headers", [""], {"n": 1}).queues == ("r",)
    assert router.route("amq.headers", [""], {"n": "1"}).queues == ()
    assert router.route("y", ["unbound"]).queues == ("s",)
    with refused("ACCESS_REFUSED", f"cannot publish to internal exchange 'x' in vhost '{vhost}'"):
        router.route("x", ["k"])


def test_names_are_case_sensitive(vhost):
    make_queues(vhost, "orders", "Orders")
    rabbitmq.bind_queue(vhost, "Orders", "amq.fanout")
    assert bindings(vhost) == [("amq.fanout", "Orders", "")]
    rabbitmq.delete_queue(EntityAddress(vhost, "orders"))
    assert [queue.name for queue in rabbitmq.list_queues(vhost)] == ["Orders"]


def test_generic_use_cases_refuse_to_change_virtual_hosts(vhost):
    make_queues(vhost, "q")
    with pytest.raises(NotAllowed, match="family"):
        entities.delete_queue(EntityAddress(vhost, "q"))
    with pytest.raises(NotAllowed):
        entities.create_queue(EntityAddress(vhost, "other"))


def test_a_missing_virtual_host_is_refused(broker_database):
    for attempt in (
        lambda: rabbitmq.declare_queue(EntityAddress("nope", "q")),
        lambda: rabbitmq.delete_queue(EntityAddress("nope", "q")),
        lambda: rabbitmq.bind_queue("nope", "q", "amq.topic"),
        lambda: run(compiled.cached("nope")),
        lambda: run(lock_vhost("nope")),
    ):
        with refused("NOT_ALLOWED", "vhost nope not found"):
            attempt()


def whole(vhost):
    """The topology as read from nothing."""

    def steps():
        return compiled._loaded((yield call("topology", vhost=vhost))[0])

    return run(steps())


def contents(known):
    """All that a topology says, and where it routes to."""
    routes = [known.router.route(name, ["", "k"], by_broker=True) for name in ("x", "y", "amq.fanout")]
    return known._replace(router=None), sorted(known.router._exchanges), routes


def test_a_topology_updated_during_changes_agrees_with_a_full_read(vhost):
    """Of every version that is seen both ways, by the steps to it and from nothing, the same is seen."""
    done, compared = threading.Event(), []

    def watch():
        while not done.is_set():
            cached, other = run(compiled.current(vhost)), whole(vhost)
            if cached.version == other.version:
                compared.append(contents(cached) == contents(other))
        connections.close_all_of_this_thread()

    with ThreadPoolExecutor(5) as threads:
        watchers = [threads.submit(watch) for _ in range(2)]
        list(threads.map(lambda seed: change_at_random(vhost, seed), range(3)))
        done.set()
        for watcher in watchers:
            watcher.result()
    assert compared and all(compared)
    assert contents(run(compiled.current(vhost))) == contents(whole(vhost))


def change_at_random(vhost, seed):
    """Declare, bind and delete a few names; who is late is refused."""
    chance = random.Random(seed)
    for _ in range(40):
        queue, exchange = chance.choice("qr"), chance.choice("xy")
        with suppress(AmqpError):
            match chance.randrange(6):
                case 0:
                    rabbitmq.declare_queue(EntityAddress(vhost, queue))
                case 1:
                    rabbitmq.declare_exchange(vhost, exchange, auto_delete=True)
                case 2 | 3:
                    rabbitmq.bind_queue(vhost, queue, exchange)
                case 4:
                    rabbitmq.delete_queue(EntityAddress(vhost, queue))
                case 5:
                    rabbitmq.unbind_queue(vhost, queue, exchange)
    connections.close_all_of_this_thread()


def test_concurrent_topology_changes_leave_no_dangling_bindings(vhost):
    """Declaring, binding and deleting the same names at once: who is late is refused, and nothing is bound to what is gone."""
    before = run(compiled.current(vhost)).version
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: change_at_random(vhost, seed), range(4)))
    assert run(compiled.current(vhost)).version > before
    loose = """SELECT count(*) FROM vitrine_binding AS b JOIN vitrine_entity AS e ON e.id = b.queue_id
                WHERE e.deleted_at IS NOT NULL"""
    assert connections.current().execute(loose).fetchone()[0] == 0
    there = {queue.name for queue in rabbitmq.list_queues(vhost)}
    assert {destination for _, destination, _ in bindings(vhost)} <= there
    assert set(run(compiled.current(vhost)).queues) == there


def test_publishing_does_not_wait_for_a_change_of_the_topology(vhost):
    """The host's row is held by who changes it; publishing only reads it."""
    make_queues(vhost, "q")
    with connections.current().transaction():
        connections.current().execute(SQL["lock_vhost"], {"vhost": vhost})
        with ThreadPoolExecutor(1) as thread:
            publication = rabbitmq.Publication(b"a", routing_key="q")
            (published,) = thread.submit(lambda: rabbitmq.publish(vhost, [publication])).result(timeout=20)
            thread.submit(connections.close_all_of_this_thread).result()
    assert published.queues == (("q", 1),)


def test_a_virtual_host_is_not_deleted_without_its_exchanges(vhost):
    with pytest.raises(NotAllowed, match="delete_vhost"):
        namespaces.delete_namespace(vhost)
    assert len(rabbitmq.list_exchanges(vhost)) > 1
