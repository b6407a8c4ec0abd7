"""A namespace may be in a database of its own (docs/scale.md): all that concerns it happens there, nothing in the default one."""

import ast
import asyncio
import gc
import importlib
import pkgutil
import threading
import time
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db import connections as django_connections
from django.urls import reverse

import broker_core
from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus, tasks
from broker_core.common.errors import BrokerUnavailable, EntityNotFound, NotAllowed
from broker_core.common.types import EntityAddress, Family
from broker_core.models import ArchiveFile, Entity, SweepRun
from broker_core.rabbitmq.messages.publishing import Publication
from broker_core.service_bus import entities, tokens
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.http import application_at_root
from broker_core.service_bus.rules import sas
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.store.connections import Database
from broker_core.store.use_cases import UseCase
from explorer.live.feed import Feed

ALIAS = "elsewhere"
NEAR, FAR = EntityAddress("near", "orders"), EntityAddress("Far", "orders")
TABLES = ("vitrine_namespace", "vitrine_entity", "vitrine_message", "vitrine_message_event", "vitrine_count_delta")

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", ALIAS])


@pytest.fixture(scope="module", autouse=True)
def _second_database(django_db_setup, django_db_blocker):
    """An empty, migrated database of the same server, as the Django database ALIAS."""
    name = f"{connection.settings_dict['NAME']}_{ALIAS}"
    with django_db_blocker.unblock():
        server = psycopg.connect(**Database().parameters() | {"dbname": "postgres"})
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        server.execute(f"CREATE DATABASE {name}")
        django_connections.settings[ALIAS] = {**connection.settings_dict, "NAME": name}
        call_command("migrate", database=ALIAS, verbosity=0)
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        django_connections[ALIAS].close()
        del django_connections.settings[ALIAS], django_connections[ALIAS]
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        server.close()


@pytest.fixture
def two_databases(_second_database):
    connections.assign({"FAR": ALIAS})
    with psycopg.connect(**Database(ALIAS).parameters()) as server:  # of the test before: Django does not know these tables
        server.execute("TRUNCATE vitrine_message, vitrine_message_event, vitrine_count_delta")
    yield
    connections.assign({})


@pytest.fixture
def queues(two_databases):
    """A queue in each database, of the same path and, since both are empty, often of the same id."""
    for queue in (NEAR, FAR):
        namespaces.create_namespace(queue.namespace, Family.SERVICE_BUS)
        entities.create_queue(queue, dead_lettering_on_message_expiration=True)
    return NEAR, FAR


def rows(alias, table):
    with psycopg.connect(**Database(alias).parameters()) as server:
        return server.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def all_rows(alias):
    return {table: rows(alias, table) for table in TABLES}


def test_a_namespace_uses_only_its_own_database(two_databases):
    before = all_rows("default")
    namespaces.create_namespace("Far", Family.SERVICE_BUS)
    entities.create_queue(FAR)
    numbers = service_bus.send(FAR, [Message(b"1"), Message(b"2"), Message(b"3")])
    locked = service_bus.receive(FAR, 2)
    assert numbers == [1, 2, 3] and [m.body for m in locked] == [b"1", b"2"]
    assert service_bus.complete(FAR, [locked[0].lock_token]).lost == ()
    service_bus.abandon(FAR, [locked[1].lock_token])
    assert reads.counts(FAR).active == 2
    with service_bus.transaction() as unit:
        unit.send(FAR, [Message(b"4")])
    assert [m.sequence_number for m in service_bus.peek(FAR)] == [2, 3, 4]
    assert all_rows("default") == before
    assert rows(ALIAS, "vitrine_message") == 3 and rows(ALIAS, "vitrine_message_event") >= 7


async def test_asynchronous_and_combined_calls_run_in_the_namespaces_database(queues):
    before = all_rows("default")
    await asyncio.gather(*(service_bus.send.aio(FAR, [Message(b"%d" % n)]) for n in range(10)))
    waiting = asyncio.create_task(service_bus.receive.aio(FAR, 20, max_wait_seconds=5))
    locked = await waiting
    assert sorted(m.body for m in locked) == [b"%d" % n for n in range(10)]
    await asyncio.gather(*(service_bus.complete.aio(FAR, [m.lock_token]) for m in locked))
    assert all_rows("default") == before and rows(ALIAS, "vitrine_message_event") == 30


async def test_combined_calls_to_queues_of_the_same_id_stay_separate(queues):
    calls = [service_bus.send.aio(queue, [Message(queue.namespace.encode())]) for queue in queues for _ in range(10)]
    await asyncio.gather(*calls)
    assert [{m.body for m in service_bus.peek(queue)} for queue in queues] == [{b"near"}, {b"Far"}]


def test_a_waiting_receive_is_woken_by_a_send_in_its_database(queues):
    results = []
    waiting = threading.Thread(target=lambda: results.extend(service_bus.receive(FAR, max_wait_seconds=20)))
    waiting.start()
    service_bus.send(FAR, [Message(b"1")])
    waiting.join(20)
    assert [m.body for m in results] == [b"1"]


def test_queues_of_the_same_id_in_two_databases_are_never_mixed_up(queues):
    service_bus.send(NEAR, [Message(b"near")])
    service_bus.send(FAR, [Message(b"far")] * 2)
    assert [m.body for m in service_bus.receive(NEAR, 5)] == [b"near"]
    assert [m.body for m in service_bus.receive_from([FAR], 5)] == [b"far"] * 2
    assert (reads.counts(NEAR).locked, reads.counts(FAR).locked) == (1, 2)


def test_sweeps_run_in_each_database_and_are_recorded_there(queues):
    for queue in queues:
        namespaces.pause_clock(queue.namespace)
        service_bus.send(queue, [Message(b"short", time_to_live=timedelta(seconds=5))])
        namespaces.step_clock(queue.namespace, timedelta(seconds=5))
    assert tasks.expire_messages() == {"default": {"expired": 1}, ALIAS: {"expired": 1}}
    assert [m.body for m in service_bus.peek(FAR.dead_letter)] == [b"short"]
    assert [SweepRun.objects.using(alias).latest("id").name for alias in ("default", ALIAS)] == ["expire_messages"] * 2


def test_a_sweep_that_fails_in_one_database_runs_in_the_others(queues, monkeypatch):
    from broker_core.sweeps import runs

    def broken():
        if connections.current_database().alias == "default":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runs.recorded_in_each_database("broken", broken)
    assert SweepRun.objects.using("default").latest("id").error == "ZeroDivisionError: "
    assert SweepRun.objects.using(ALIAS).latest("id").error == ""


def test_the_archive_of_each_database_has_its_own_folder(queues, settings, tmp_path):
    settings.ARCHIVE_URL = str(tmp_path)
    for queue in queues:
        service_bus.send(queue, [Message(b"1")])
        assert service_bus.receive_and_delete(queue)
    assert {outcome["slices"] for outcome in tasks.archive_events().values()} == {1}
    for alias, folder in (("default", tmp_path), (ALIAS, tmp_path / "databases" / ALIAS)):
        paths = list(ArchiveFile.objects.using(alias).values_list("path", flat=True))
        assert paths and all((folder / path).is_file() for path in paths)


def test_lists_of_all_namespaces_combine_the_databases(queues):
    service_bus.send(FAR, [Message(b"1", message_id="far-away")])
    assert [n.name for n in namespaces.list_namespaces() if not n.is_system] == ["Far", "near"]
    assert [row.address for row in reads.overview() if row.address.path == "orders"] == [FAR, NEAR]
    assert {row.address for row in entities.list_queues()} >= {FAR, NEAR}
    assert {name.address for name in reads.names("orders").matches} == {FAR, NEAR}
    assert [match.address for match in reads.find("far-away").matches] == [FAR]
    with connections.of("far"):  # where an id says nothing of its namespace
        assert len(reads.timeline(reads.entity(FAR).id, 1)) == 1
        assert list(Entity.objects.filter(path="orders").values_list("namespace__name", flat=True)) == ["Far"]


OF_NEAR, OF_FAR, OF_QUEUE, OF_TWO, OF_THREE = (f"key-of-{whose}" for whose in ("near", "far", "queue", "two", "three"))
HOSTS = [  # host, policy, key, the namespace whose key it is, or what the refusal says
    ("localhost:5672", "app", OF_NEAR, "near"),
    ("localhost:5672", "app", OF_FAR, "Far"),
    ("127.0.0.1:5672", "app", OF_FAR, "Far"),
    ("[::1]:5672", "app", OF_NEAR, "near"),
    ("broker.example.org", "APP", OF_FAR, "Far"),
    ("far.localhost:5672", "app", OF_FAR, "Far"),
    ("FAR.example.org", "app", OF_FAR, "Far"),
    ("near", "app", OF_NEAR, "near"),
    ("near.localhost", "app", OF_FAR, "Check the policy name"),
    ("far.localhost", "app", OF_NEAR, "Check the policy name"),
    ("localhost", "app", "another-key", "Check the policy name"),
    ("localhost", "none", OF_FAR, "Check the policy name"),
    ("localhost", "both", OF_TWO, "Name the namespace in the host"),
    ("near.localhost", "both", OF_TWO, "near"),
    ("far.localhost", "both", OF_TWO, "Far"),
    ("localhost", "all", OF_THREE, "sbemulatorns"),
    ("far.localhost", "all", OF_THREE, "Far"),
    ("localhost", "reader", OF_QUEUE, "Far"),
    ("far.localhost", "reader", OF_QUEUE, "Far"),
    ("near.localhost", "reader", OF_QUEUE, "Check the policy name"),
]


@pytest.fixture
def policies(queues):
    """Policies whose keys say where they are, in both databases."""
    namespaces.create_namespace("sbemulatorns", Family.SERVICE_BUS)
    created: list[tuple[shared_access.Scope, str, str]] = [
        ("near", "app", OF_NEAR), ("Far", "app", OF_FAR), (FAR, "reader", OF_QUEUE),
        ("near", "both", OF_TWO), ("Far", "both", OF_TWO),
        ("near", "all", OF_THREE), ("Far", "all", OF_THREE), ("sbemulatorns", "all", OF_THREE),
    ]  # fmt: skip
    for scope, name, key in created:
        shared_access.create_policy(scope, name, manage=True, secondary_key=key)
    tokens._cached.clear()


@pytest.mark.parametrize("by_token", [True, False])
async def test_a_host_or_else_the_key_says_which_namespace_is_meant(policies, by_token):
    for _ in range(2):  # the second time from what is kept
        for host, name, key, expected in HOSTS:
            try:
                if by_token:
                    token = sas.sign(f"sb://{host}/orders", name, key, int(time.time()) + 60)
                    verified = await tokens.verify_token(token, host=host, path="/orders", entity="orders")
                else:
                    verified = await tokens.verify_key(name, key, host=host)
            except sas.TokenRefused as refused:
                assert expected in str(refused), (host, name, key)
            else:
                assert verified.namespace == expected, (host, name, key)


@pytest.mark.parametrize("host", ["localhost", "far.localhost"])
async def test_a_namespace_that_was_left_behind_in_another_database_gives_no_access(policies, host):
    with connections.using(connections.DEFAULT):
        await asyncio.to_thread(namespaces.create_namespace, "Far", Family.SERVICE_BUS)
        await asyncio.to_thread(shared_access.create_policy, "Far", "old", manage=True, secondary_key=OF_THREE)
    with pytest.raises(sas.TokenRefused):
        await tokens.verify_key("old", OF_THREE, host=host)
    assert (await tokens.verify_key("app", OF_FAR, host=host)).namespace == "Far"


async def test_a_policy_of_an_entity_is_found_only_where_it_applies(policies):
    for entity, is_found in (("ORDERS", True), ("other", False), ("", False), (None, True)):
        try:
            assert is_found == ((await tokens.verify_key("reader", OF_QUEUE, entity=entity)).policy.path == "orders"), entity
        except sas.TokenRefused:
            assert not is_found, entity


async def test_requests_to_one_port_work_in_the_database_of_their_key(policies):
    before, base = all_rows("default"), "http://localhost:5300"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application_at_root), base_url=base) as client:
        headers = {"authorization": sas.sign(f"{base}/orders", "app", OF_FAR, int(time.time()) + 60)}
        assert (await client.post("/orders/messages", content=b"1", headers=headers)).status_code == 201
        locked = await client.post("/orders/messages/head?timeout=0", headers=headers)
        assert (await client.delete(locked.headers["location"], headers=headers)).status_code == 200
    assert all_rows("default") == before and rows(ALIAS, "vitrine_message_event") == 3


async def test_what_keys_of_both_databases_opened_ends_with_them(policies, monkeypatch):
    monkeypatch.setattr(tokens, "CHECK_SECONDS", 0.02)
    near, far = [await tokens.verify_key("app", key) for key in (OF_NEAR, OF_FAR)]
    with tokens.watched(near) as near_ended, tokens.watched(far) as far_ended:
        await asyncio.to_thread(shared_access.regenerate_key, "Far", "app", which="secondary")
        assert "replaced" in str(await far_ended) and not near_ended.done()
        await asyncio.to_thread(shared_access.delete_policy, "near", "app")
        assert "deleted" in str(await near_ended)


async def test_a_key_in_a_database_that_responds_ends_what_it_opened_while_another_one_is_away(policies, monkeypatch):
    monkeypatch.setattr(tokens, "CHECK_SECONDS", 0.02)
    stored = shared_access.stored_policies.aio

    async def stored_here(ids):
        if connections.current_database() == connections.DEFAULT:
            raise BrokerUnavailable("away")
        return await stored(ids)

    monkeypatch.setattr(shared_access.stored_policies, "aio", stored_here)
    near, far = [await tokens.verify_key("app", key) for key in (OF_NEAR, OF_FAR)]
    with tokens.watched(near) as near_ended, tokens.watched(far) as far_ended:
        await asyncio.to_thread(shared_access.delete_policy, "near", "app")
        await asyncio.to_thread(shared_access.delete_policy, "Far", "app")
        assert "deleted" in str(await asyncio.wait_for(far_ended, 10)) and not near_ended.done()


def test_pages_show_each_namespace_from_its_database(queues, client, person):
    client.force_login(person())
    service_bus.send(NEAR, [Message(b"1", message_id="in-near")])
    service_bus.send(FAR, [Message(b"1", message_id="in-far", subject="of the far queue")])
    service_bus.receive_and_delete(NEAR)
    overview = client.get(reverse("explorer:entities")).content.decode()
    assert f"entities/{NEAR}" in overview and f"entities/{FAR}" in overview
    by_size = client.get(reverse("explorer:entities"), {"sort": "-sent"}).content.decode()
    assert f"entities/{NEAR}" in by_size and f"entities/{FAR}" in by_size
    assert "of the far queue" in client.get(f"/entities/{FAR}?tab=active").content.decode()
    message = client.get(f"/messages/{FAR}/1").content.decode()  # with its timeline, which is read by the entity's id
    assert "in-far" in message and "in-near" not in message and "received and deleted" not in message.lower()
    assert "received and deleted" in client.get(f"/messages/{NEAR}/1").content.decode().lower()


async def test_the_live_feed_follows_the_events_of_each_database(queues):
    from channels.db import database_sync_to_async

    def read():
        feed = Feed()
        watched = [reads.entity(queue) for queue in queues]
        feed._news(watched)
        service_bus.send(FAR, [Message(b"1")])
        return watched, feed._news(watched)

    (near, far), news = await database_sync_to_async(read)()
    assert set(news[Database(ALIAS)].latest[far.id]) == {1}
    assert news[Database()].latest.get(near.id) is None


def test_the_other_families_use_the_namespaces_database(two_databases):
    connections.assign({"far-host": ALIAS, "faraccount": ALIAS})
    before = all_rows("default")
    rabbitmq.create_vhost("far-host")
    address = EntityAddress("far-host", "work")
    rabbitmq.declare_queue(address)
    rabbitmq.publish("far-host", [Publication(b"job", "", "work")])
    with rabbitmq.connect("far-host") as opened:
        channel = opened.channel()
        channel.consume("work")
        (delivery,) = channel.deliveries(max_wait_seconds=5)
        channel.ack(delivery.delivery_tag)
    queue_storage.create_account("faraccount")
    queue_storage.create_queue(EntityAddress("faraccount", "work"))
    queue_storage.put(EntityAddress("faraccount", "work"), "text")
    assert [m.text for m in queue_storage.get(EntityAddress("faraccount", "work"))] == ["text"]
    assert all_rows("default") == before


def test_no_transaction_spans_two_databases(queues):
    with transaction.atomic(), connections.callers_transaction():
        service_bus.send(NEAR, [Message(b"1")])
        with pytest.raises(NotAllowed, match="'Far' is in the database 'elsewhere', but the open transaction is in 'default'"):
            service_bus.send(FAR, [Message(b"1")])
    with transaction.atomic(ALIAS), connections.callers_transaction(ALIAS):
        service_bus.send(FAR, [Message(b"2")])
    assert [m.body for m in service_bus.peek(FAR)] == [b"2"]
    with pytest.raises(NotAllowed, match="Run one operation for each database"):
        service_bus.receive_from([NEAR, FAR])


def test_a_selected_database_applies_to_all_namespaces_of_the_block(queues):
    with connections.using(Database()):
        with pytest.raises(EntityNotFound):
            service_bus.send(FAR, [Message(b"1")])
        assert connections.databases() == (Database(),)


def test_an_unknown_database_is_refused_by_name(two_databases):
    with pytest.raises(ValueError, match="'orders' into 'nowhere', which is not in DATABASES. Use one of default, elsewhere"):
        connections.assign({"orders": "nowhere"})


# The seam: nothing goes round it


def test_every_use_case_declares_its_namespace_parameter():
    for module in pkgutil.walk_packages(broker_core.__path__, "broker_core."):
        if ".migrations" not in module.name:
            importlib.import_module(module.name)
    found = [
        candidate
        for candidate in gc.get_objects()
        if type(candidate) is UseCase and candidate.__module__.startswith("broker_core.")
    ]
    silent = {f"{use_case.__module__}.{use_case.__qualname__}" for use_case in found if use_case.namespace_parameter is None}
    assert len(found) > 150
    assert not silent, "declare the namespace's parameter, or WHOLE_DATABASE, with @use_case(namespace=...)"


# Modules that may open connections or run steps themselves, and how they choose the database.
DIRECT = {
    "broker_core/celery_transport/channel.py",  # `using` the database of its connection
    *(f"broker_core/clients/{name}.py" for name in ("closing", "reading", "recording")),  # `using` the default one
    "broker_core/history/archive.py",  # `connected`, in the current database: a sweep sets it
    "broker_core/management/commands/show_sql.py",  # any database: it explains statements
    "broker_core/runtime/wake_ups.py",  # `using` its database
    "broker_core/rabbitmq/connections/incoming_deliveries.py",  # `using` the database of its process
    "broker_core/runtime/processes.py",  # one epoch for each database
    "explorer/site/embedded_postgres/server.py",  # starts the server
}


def test_no_other_module_connects_or_runs_steps():
    """Reads the source: psycopg.connect, connections.current(), Database.parameters(), driver.run and aio.run."""
    root = Path(broker_core.__path__[0]).parent
    files = [file for package in ("broker_core", "explorer") for file in (root / package).rglob("*.py")]
    outside = [file for file in files if file.parent.name != "store"]
    assert {str(file.relative_to(root)) for file in outside if _connects(ast.parse(file.read_text()))} == DIRECT


def _connects(tree):
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {(node.module, name.name) for node in imports for name in node.names}
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return bool(
        imported & {("broker_core.store.driver", "run"), ("broker_core.store.connections", "current")}
        or called & {"psycopg.connect", "psycopg.AsyncConnection.connect", "connections.current", "driver.run", "aio.run"}
        or any(name.endswith(("atabase.parameters", "atabase().parameters")) for name in called)
    )
