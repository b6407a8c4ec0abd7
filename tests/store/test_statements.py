"""Each statement is sound against the migrated schema, and the head bound holds in the race that once broke it."""

import re
import threading

import psycopg
import pytest
from psycopg._queries import PostgresQuery, _query2pg
from psycopg.adapt import Transformer

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family, SubQueue
from broker_core.management.commands.show_sql import PLANNED, plan_of
from broker_core.runtime.pacing import advance_head
from broker_core.service_bus import entities
from broker_core.service_bus.messages.shared import entity_id_of
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.store.driver import run
from broker_core.store.statements import PACKAGE, SQL, call, load
from tests.broker_state import ledger_agrees


@pytest.mark.parametrize("name", [name for name in sorted(SQL) if PLANNED.match(SQL[name])])  # those that EXPLAIN takes
def test_every_statement_can_be_planned(db, name):
    assert plan_of(name)


def test_each_statement_has_a_description():
    bare = []
    for file in PACKAGE.glob("*/sql/*.sql"):
        bare += re.findall(r"^-- name: (\w+)\n(?!-- [A-Z])", file.read_text(), re.MULTILINE)
    assert bare == []


def test_a_family_uses_no_fragment_of_another():
    """A family's folder can be removed: statements include only fragments of their own family and of `store`."""
    owners: dict[str, str] = {}
    includes: list[tuple[str, str]] = []
    for file in PACKAGE.glob("*/sql/*.sql"):
        owner, text = file.relative_to(PACKAGE).parts[0], file.read_text()
        owners |= dict.fromkeys(re.findall(r"^-- fragment: (\w+)", text, re.MULTILINE), owner)
        includes += [(owner, fragment) for fragment in re.findall(r"-- include: (\w+)", text)]
    assert {(user, fragment) for user, fragment in includes if owners[fragment] not in (user, "store")} == set()


def test_the_numbers_in_statements_have_names():
    """A column of an enum is never compared with, or set to, a bare number."""
    bare = re.compile(r"\b(subqueue|state|kind|op|hold_kind|history_level|body_kind) *(=|<>|<=?|>=?|IN \(|= ANY \('\{) *\d")
    numbers = [
        f"{file.name}: {line}"
        for file in PACKAGE.glob("*/sql/*.sql")
        for line in file.read_text().splitlines()
        if bare.search(line)
    ]
    assert numbers == []


def test_a_name_is_replaced_by_the_number_of_its_enum(tmp_path):
    (tmp_path / "a.sql").write_text(
        "-- name: all\nSELECT '{@SUBQUEUE_MAIN,@STATE_SCHEDULED}', @LEDGER_LOCKED + @OP_SENT, @EVENT_MOVED;\n"
    )
    assert load(tmp_path.glob("*.sql")) == {"all": "SELECT '{0,2}', 10 + 1, 22"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("-- name: bad\nSELECT\n  @STATE_ACTIV", r"a\.sql:3: unknown name @STATE_ACTIV; .*@STATE_ACTIVE, @STATE_DEFERRED"),
        ("-- fragment: bad\n@STAT_ACTIVE", r"a\.sql:2: unknown name @STAT_ACTIVE; .*@STATE_\.\.\."),
        ("-- name: bad\nSELECT\n  -- include: nothing\n", "statement 'bad' includes 'nothing'"),
        ("-- name: bad\nSELECT 1\n-- name: bad\nSELECT 2", "name 'bad' is defined twice"),
    ],
)
def test_an_invalid_file_is_refused_on_load(tmp_path, text, error):
    (tmp_path / "a.sql").write_text(text)
    with pytest.raises(ValueError, match=error):
        load(tmp_path.glob("*.sql"))


def test_an_unknown_statement_is_named():
    with pytest.raises(KeyError, match="nonsense"):
        call("nonsense")


def test_the_head_never_passes_a_message_that_is_being_moved_in(broker_database):
    """Raising the bound waits for whoever moves a message below it, then looks with a new snapshot."""
    namespaces.create_namespace("head-race", Family.SERVICE_BUS)
    queue = EntityAddress("head-race", "q")
    entities.create_queue(queue)
    service_bus.send(queue, [Message(b"a"), Message(b"b"), Message(b"c")])
    first, second, third = service_bus.receive(queue, 3)
    service_bus.dead_letter(queue, [third.lock_token])
    entity_id = run(entity_id_of(queue))
    mover = connections.Database().parameters()
    with psycopg.connect(**mover) as other:
        with other.transaction():
            # another process dead-letters number 1 and has not committed yet
            tokens, numbers = [first.lock_token], [1]
            params = {"entity_id": entity_id, "subqueue": 0, "tokens": tokens, "numbers": numbers, "actor": "t"}
            other.execute(SQL["dead_letter"], params | {"reason": None, "description": None, "properties": None})
            racer = threading.Thread(target=_advance, args=(entity_id,))
            racer.start()
            racer.join(0.3)
        racer.join(10)
    assert not racer.is_alive()
    assert [m.sequence_number for m in service_bus.receive(queue.dead_letter, 5)] == [1, 3]
    assert second.sequence_number == 2


def _advance(entity_id):
    run(advance_head(entity_id, SubQueue.DEAD_LETTER))
    connections.close_all_of_this_thread()


def test_a_message_renewed_while_it_is_settled_is_settled(broker_database):
    """A renewal that commits while a settlement waits for it leaves a version of the row that its snapshot cannot see."""
    namespaces.create_namespace("settle-race", Family.SERVICE_BUS)
    queue = EntityAddress("settle-race", "q")
    entities.create_queue(queue)
    for settle in (
        service_bus.complete,
        service_bus.abandon,
        service_bus.defer,
        service_bus.dead_letter,
        service_bus.release,
        service_bus.renew,
    ):
        service_bus.send(queue, [Message(b"a")])
        (message,) = service_bus.receive(queue, 1)
        report = _while_it_is_renewed(message, lambda settle=settle, message=message: settle(queue, [message.lock_token]))
        assert [token for token, _ in report.settled] == [message.lock_token], settle
        assert ledger_agrees(queue), settle
        if settle in (service_bus.complete, service_bus.defer, service_bus.dead_letter):
            assert service_bus.receive(queue, 1) == [], settle
        else:
            service_bus.purge(queue)
            held = service_bus.receive(queue, 1)
            service_bus.complete(queue, [m.lock_token for m in held] or [message.lock_token])


def _while_it_is_renewed(message, action):
    """Run `action` in a thread while another connection has renewed the message's lock and not committed yet."""
    params = {"entity_id": run(entity_id_of(message.address)), "subqueue": 0, "actor": "t"}
    params |= {"tokens": [message.lock_token], "numbers": [message.sequence_number]}
    reports = []

    def act():
        reports.append(action())
        connections.close_all_of_this_thread()

    with psycopg.connect(**connections.Database().parameters()) as other, other.transaction():
        other.execute(SQL["renew"], params)
        racer = threading.Thread(target=act)
        racer.start()
        racer.join(0.3)
        assert racer.is_alive()
    racer.join(10)
    return reports[0]


def test_the_client_library_caches_every_statement(broker_database):
    """The name it is set by is private: when a new version of psycopg has another one, this tells."""
    longest = max(SQL.values(), key=len)
    assert len(longest) > 4096
    for _ in range(2):
        PostgresQuery(Transformer()).convert(longest, dict.fromkeys(re.findall(r"%\((\w+)\)", longest)))
    before = _query2pg.cache_info().hits
    PostgresQuery(Transformer()).convert(longest, dict.fromkeys(re.findall(r"%\((\w+)\)", longest)))
    assert _query2pg.cache_info().hits == before + 1


def test_an_entity_is_found_by_its_index_in_small_tables(broker_database):
    """With the server's own settings the planner would know nothing of the first fifty, and read them all each time."""
    connection = connections.current()
    ((options,),) = connection.execute("SELECT reloptions FROM pg_class WHERE relname = 'vitrine_entity'").fetchall()
    threshold = int(dict(option.split("=") for option in options)["autovacuum_analyze_threshold"])
    namespaces.create_namespace("statistics", Family.SERVICE_BUS)
    for n in range(threshold + 5):
        entities.create_queue(EntityAddress("statistics", f"q{n}"))
    with connection.transaction(force_rollback=True):
        connection.execute("ANALYZE vitrine_entity")  # what the server does by itself then
        plan = [row[0] for row in connection.execute("EXPLAIN SELECT now FROM vitrine_entity_now WHERE id = 1")]
    assert "Index Scan using vitrine_entity_pkey on vitrine_entity" in "\n".join(plan)
