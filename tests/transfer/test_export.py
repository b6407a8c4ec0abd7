"""An export holds everything, and its import makes everything again, or nothing."""

import base64
import io
import json
import re
import threading
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import namespaces, reads, service_bus, sweeps
from broker_core.common.errors import (
    EntityExists,
    EntityNotFound,
    InvalidArgument,
    NamespaceFull,
    NotAllowed,
    NotAuthorized,
    StorageFull,
)
from broker_core.common.typed import Typed
from broker_core.common.types import Actor, BodyKind, EntityAddress, Family, Right
from broker_core.export_format import lines as export_lines
from broker_core.export_format.lines import duration, parse_duration
from broker_core.runtime import room
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.transfer.exporting import export
from broker_core.transfer.importing import import_
from broker_core.transfer.updating import preview_import
from tests import amqp_values
from tests.broker_state import bodies, entity_id, events, ledger_agrees, now
from tests.service_bus.test_explain import play, steps_of_a_story

SECOND = timedelta(seconds=1)
ENCODED = service_bus.encode_body(BodyKind.VALUE, None)


def exported(namespace, **options):
    lines = []
    export([namespace], lines.append, **options)
    return lines


def content(lines):
    """What an export says, without when and of which namespace."""
    told = [json.loads(line) for line in lines[1:]]
    for line in told:
        line.get("namespace", {}).pop("name", None)
    return told


def copied(namespace, **options):
    """The name of a copy of a namespace, made by export and import."""
    name = f"c-{uuid.uuid4().hex[:10]}"
    import_(exported(namespace, **options), name=name)
    return name


def of_kind(lines, kind):
    return [line[kind] for line in map(json.loads, lines) if kind in line]


def test_every_kind_of_object_is_imported_as_it_was_exported(namespace, step):
    topic, plain = EntityAddress(namespace, "news"), EntityAddress(namespace, "plain")
    entities.create_queue(
        plain,
        requires_duplicate_detection=True,
        lock_duration=7 * SECOND,
        user_metadata="übrig\n",
        hidden=True,
        kept_properties={"EnableBatchedOperations": False, "EntityAvailabilityStatus": "Restoring"},
    )
    entities.create_topic(topic, default_message_time_to_live=timedelta(days=3, microseconds=17))
    rule = Rule("big", compile_filter("size > 5 AND name LIKE '%x'"), compile_action("SET sys.Label = 'big'; REMOVE name"))
    entities.create_subscription(topic.subscription("all"), rule=rule, forward_to="plain", max_delivery_count=3)
    entities.create_rule(topic.subscription("all"), Rule("by-id", CorrelationFilter(correlation_id="c", properties={"n": 5})))
    shared_access.create_policy(topic, "reader", listen=True)
    service_bus.send(plain, [Message(b"\x00\xff", message_id="once"), Message(ENCODED, body_kind=BodyKind.VALUE)])
    service_bus.send(topic, [Message(b"later", scheduled_enqueue_at=now(topic) + timedelta(hours=1))])
    service_bus.send(topic, [Message(b"copied and forwarded", properties={"size": 9, "name": "ax"})])
    service_bus.sweeps.forward_messages()
    lines = exported(namespace, with_keys=True)
    copy = copied(namespace, with_keys=True)
    assert content(exported(copy, with_keys=True)) == content(lines)
    assert {kind: len(of_kind(lines, kind)) for kind in ("entity", "rule", "policy", "seen", "message")} == {
        "entity": 3, "rule": 2, "policy": 2, "seen": 2, "message": 4,
    }  # fmt: skip
    assert [m["transfer"] for m in of_kind(lines, "message") if "transfer" in m] == [{"hops": 1}]
    assert entities.get_queue(EntityAddress(copy, "plain")).settings == entities.get_queue(plain).settings
    again = EntityAddress(copy, "news").subscription("all")
    assert entities.get_subscription(again).settings == entities.get_subscription(topic.subscription("all")).settings
    assert [r.rule for r in entities.list_rules(again)] == [r.rule for r in entities.list_rules(topic.subscription("all"))]
    assert service_bus.send(EntityAddress(copy, "plain"), [Message(b"x", message_id="once"), Message(b"y")]) == [None, 4]


def test_loops_and_forwards_of_sessions_are_imported(namespace):
    """SB-175, SB-176."""
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("loop"), forward_to="news", forward_dead_lettered_messages_to="news")
    entities.create_queue(EntityAddress(namespace, "q"), requires_session=True, forward_to="q")
    assert content(exported(copied(namespace))) == content(exported(namespace))


def test_imported_messages_keep_their_state(make_queue, step):
    queue = make_queue(max_delivery_count=2)
    service_bus.send(queue, [Message(str(i).encode()) for i in range(6)])
    service_bus.send(queue, [Message(b"s", scheduled_enqueue_at=now(queue) + 60 * SECOND)])
    first, second, third, fourth = service_bus.receive(queue, 4)
    service_bus.complete(queue, [first.lock_token])
    service_bus.dead_letter(queue, [second.lock_token], "Broken", "no wheels", {"shop": "north"})
    service_bus.defer(queue, [third.lock_token])
    copy = EntityAddress(copied(queue.namespace), queue.path)
    assert ledger_agrees(copy)
    assert now(copy) == now(queue)
    # 4 was locked: its lock stays with its holder, and no delivery has failed.
    assert [(m.sequence_number, m.delivery_count) for m in service_bus.receive(copy, 9)] == [(4, 0), (5, 0), (6, 0)]
    [dead] = service_bus.receive(copy.dead_letter)
    assert (dead.sequence_number, dead.dead_letter_reason, dead.properties["shop"]) == (2, "Broken", "north")
    assert bodies(service_bus.receive_deferred(copy, [3])) == ["2"]
    namespaces.step_clock(copy.namespace, 60 * SECOND)
    assert "s" in bodies(service_bus.receive(copy, 9))
    assert service_bus.send(copy, [Message(b"new")]) == [9]
    assert events(copy, 5)[0].details == {"imported": True}
    assert service_bus.complete(queue, [fourth.lock_token]).lost == ()
    assert ledger_agrees(copy)


def test_an_ended_lock_is_imported_as_a_failed_delivery(make_queue, step):
    queue = make_queue(max_delivery_count=2, lock_duration=10 * SECOND)
    service_bus.send(queue, [Message(b"x"), Message(b"y")])
    service_bus.abandon(queue, [service_bus.receive(queue)[0].lock_token])
    service_bus.receive(queue, 2)
    step(11 * SECOND)
    copy = EntityAddress(copied(queue.namespace), queue.path)
    assert [(m.sequence_number, m.delivery_count) for m in service_bus.receive(copy, 9)] == [(2, 1)]
    assert reads.counts(copy).dead_letter == 1, "the other one had failed twice"
    assert ledger_agrees(copy)


def test_sessions_are_imported_with_their_state(make_queue):
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(b"a1", session_id="a"), Message(b"B1", session_id="B"), Message(b"a2", session_id="a")])
    service_bus.set_session_state(service_bus.accept_session(queue, ""), b"\x00state")
    service_bus.set_session_state(service_bus.accept_session(queue, "a"), b"half")
    copy = EntityAddress(copied(queue.namespace), queue.path)
    assert content(exported(copy.namespace)) == content(exported(queue.namespace))
    held = service_bus.accept_session(copy, max_count=5)
    assert (held.session_id, held.state, bodies(held.messages)) == ("a", b"half", ["a1", "a2"])
    assert service_bus.accept_session(copy, "").state == b"\x00state"
    assert ledger_agrees(copy)


def test_messages_being_transferred_arrive_in_the_copy(make_queue, monkeypatch):
    via, target = make_queue(), make_queue()
    with monkeypatch.context() as patched:
        patched.setattr("broker_core.service_bus.transactions.forward_on", lambda *_: iter(()))  # died after its commit
        service_bus.send(via, [Message(b"work")])
        with service_bus.transaction(via=via) as tx:
            tx.complete(via, [service_bus.receive(via)[0].lock_token])
            tx.send(target, [Message(b"x")])
    copy = copied(via.namespace)
    service_bus.sweeps.forward_messages()
    assert bodies(service_bus.receive(EntityAddress(copy, target.path))) == ["x"]
    assert all(ledger_agrees(EntityAddress(copy, address.path)) for address in (via, target))


def test_keys_are_exported_only_when_asked_for(namespace):
    [key] = [p.primary_key for p in shared_access.list_policies(namespace)]
    assert key not in "".join(exported(namespace))
    assert key in "".join(exported(namespace, with_keys=True))
    [new] = shared_access.list_policies(copied(namespace))
    assert new.name == shared_access.ROOT_POLICY and new.primary_key != key and len(new.primary_key) == 44


def test_a_manual_clock_continues_and_a_real_clock_stays_real(namespace):
    namespaces.step_clock(namespace, timedelta(days=400))
    assert namespaces.get_clock(copied(namespace)).now == namespaces.get_clock(namespace).now
    real = f"r-{uuid.uuid4().hex[:8]}"
    namespaces.create_namespace(real, Family.SERVICE_BUS, "with a description", tier="premium")
    copy = copied(real)
    assert not namespaces.get_clock(copy).is_manual
    assert (namespaces.get_namespace(copy).description, namespaces.get_namespace(copy).tier) == ("with a description", "premium")


def test_a_page_is_limited_by_rows_and_bytes(queue, monkeypatch):
    monkeypatch.setattr("broker_core.transfer.exporting.PAGE_MESSAGES", 3)
    monkeypatch.setattr("broker_core.transfer.exporting.PAGE_BYTES", 100)
    monkeypatch.setattr("broker_core.transfer.importing.BATCH_ROWS", 2)
    sent = [b"x" * size for size in (10, 20, 30, 400, 50, 60, 5, 5)]
    service_bus.send(queue, [Message(body) for body in sent])
    copy = EntityAddress(copied(queue.namespace), queue.path)
    assert [bytes(m.body) for m in service_bus.receive(copy, 20)] == sent


def test_entities_deleted_during_an_export_and_the_system_namespace_are_left_out(namespace, make_queue):
    gone, stays = make_queue(), make_queue()
    lines = []

    def write(line):
        if '"namespace"' in line[:14]:
            entities.delete_queue(gone)
        lines.append(line)

    assert export([namespace], write)["entities"] == 1
    assert [e["path"] for e in of_kind(lines, "entity")] == [stays.path]
    with pytest.raises(EntityNotFound):
        exported("nowhere")
    namespaces.create_namespace("own-world", Family.SERVICE_BUS, is_system=True)
    with pytest.raises(NotAllowed, match="used by Vitrine itself"):
        exported("own-world")


def test_each_entity_is_exported_as_of_one_instant(queue, monkeypatch):
    """What happens between two pages is not in the file: number 1 would be in it twice, once as a dead letter."""
    monkeypatch.setattr("broker_core.transfer.exporting.PAGE_MESSAGES", 1)
    service_bus.send(queue, [Message(b"a"), Message(b"b")])
    lines, other = [], []

    def elsewhere():
        other.append(service_bus.dead_letter(queue, [service_bus.receive(queue)[0].lock_token]))
        connections.close_all_of_this_thread()

    def write_and_change(line):
        lines.append(line)
        if not other and '"message":' in line[:11]:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join(10)

    export([queue.namespace], write_and_change)
    assert other and [(m["sequence_number"], m["list"]) for m in of_kind(lines, "message")] == [(1, "main"), (2, "main")]


def test_an_export_uses_its_own_snapshots(queue):
    with connections.callers_transaction(), pytest.raises(NotAllowed, match="outside a transaction"):
        exported(queue.namespace)


def test_an_endless_line_is_refused(monkeypatch):
    monkeypatch.setattr(export_lines, "LONGEST_LINE", 100)
    file = io.BytesIO(b"x" * 1000)
    with pytest.raises(InvalidArgument, match="line 1: is longer than 100 bytes"):
        import_(export_lines.lines_of(file))
    assert file.tell() == 101


def change(lines, kind, fields):
    """The lines with some fields of the first line of a kind changed; None removes a field."""
    lines_read, done = [], False
    for line in map(json.loads, lines):
        if kind in line and not done:
            line[kind] = {name: value for name, value in {**line[kind], **fields}.items() if value is not None}
            done = True
        lines_read.append(json.dumps(line) + "\n")
    return lines_read


BAD = [
    ("message", {"body": None, "body_base64": "###"}, r"line \d+: message.body_base64: is not valid base64"),
    ("message", {"body": None}, r"message.body: is missing"),
    ("message", {"state": "gone"}, r"message.state: 'gone' must be one of active, deferred, scheduled"),
    ("message", {"state": "scheduled"}, r"message.scheduled_enqueue_at: is required"),
    ("message", {"list": "dead_letter"}, r"message.dead_lettered_at: is required"),
    ("message", {"enqueued_at": "yesterday"}, r"message.enqueued_at: 'yesterday' must be a timestamp"),
    ("message", {"enqueued_at": "2026-13-01T00:00:00Z"}, r"message.enqueued_at: is not a valid timestamp"),
    ("message", {"expires_at": "2001-01-01T00:00:00Z"}, r"message.expires_at: must come after enqueued_at"),
    ("message", {"time_to_live": "5 minutes"}, r"message.time_to_live: '5 minutes' must be a duration"),
    ("message", {"sequence_number": 99}, r"message.sequence_number: must be below the entity's next_number, 3"),
    ("message", {"sequence_number": 2}, r"message.sequence_number: must increase"),
    ("message", {"sequence_number": True}, r"message.sequence_number: True must be a whole number"),
    ("message", {"message_id": "a\x00b"}, r"message.message_id: .* must be text that can be stored"),
    ("message", {"application_properties": {"n": 5}}, r"message.application_properties: .* must be an object"),
    ("message", {"properties": {"subject": "\ud800"}}, r"message.properties: .* must be an object"),
    ("message", {"colour": "red"}, r"message.colour: is not a known field"),
    ("entity", {"settings": {"max_delivery_count": 0}}, r"line \d+: entity: max_delivery_count: .*0"),
    ("entity", {"settings": {"lock_duration": "long"}}, r"entity.settings.lock_duration: 'long' must be a duration"),
    ("entity", {"settings": {"speed": 5}}, r"line \d+: entity: speed"),
    ("entity", {"path": "a//b"}, r"line \d+: entity: path"),
    ("entity", {"kind": "subscription"}, r"entity.path: .* refers to a topic that does not precede it"),
    ("entity", {"celery_bindings": [["x"]]}, r"entity.celery_bindings: must be pairs"),
    ("entity_end", {"messages": 1}, r"entity_end.messages: the file contains 2"),
    ("end", {"messages": 7}, r"end.messages: the file contains 2"),
    ("namespace", {"name": "5"}, r"line 2: namespace: namespace: '5'"),
    ("namespace", {"tier": "gold"}, r"namespace.tier: 'gold' must be one of basic, standard, premium"),
    ("policy", {"name": "?"}, r"line 3: policy: policy: "),
    ("vitrine-export", {"version": 4}, r"version: 4 must be one of 1, 2, 3"),
    ("namespace", {"family": "kafka"}, r"namespace.family: 'kafka' must be one of service_bus, queue_storage, rabbitmq"),
]


@pytest.mark.parametrize(("kind", "fields", "refusal"), BAD)
def test_a_bad_line_is_reported_and_nothing_is_stored(queue, kind, fields, refusal):
    service_bus.send(queue, [Message(b"x"), Message(b"y")])
    name = f"n-{uuid.uuid4().hex[:8]}"
    lines = [line.replace(f'"name":"{queue.namespace}"', f'"name":"{name}"') for line in exported(queue.namespace)]
    with pytest.raises(InvalidArgument, match=refusal):
        import_(change(lines, kind, fields))
    with pytest.raises(EntityNotFound):
        namespaces.get_namespace(name)
    assert import_(lines) == {"namespaces": [name], "entities": 1, "messages": 2}


@pytest.mark.parametrize(
    ("damage", "refusal"),
    [
        (lambda lines: [], "line 1: is not the header"),
        (lambda lines: lines[1:], "line 1: is not the header"),
        (lambda lines: lines[:-1], "file: is incomplete"),
        (lambda lines: [line for line in lines if '"entity_end"' not in line], "is incomplete"),
        (lambda lines: [line for line in lines if '{"entity":' not in line], "is outside any entity"),
        (lambda lines: [line for line in lines if '{"namespace":' not in line], "is outside any namespace"),
        (lambda lines: [*lines, lines[1]], "follows the end of the export"),
        (lambda lines: [lines[0], "{]", *lines[1:]], "line 2: is not valid JSON"),
        (lambda lines: [lines[0], '{"a": 1}', *lines[1:]], "line 2: must be an object with one member"),
        (lambda lines: [lines[0], "[" * 100_000, *lines[1:]], "line 2: is not valid JSON"),
        (lambda lines: [lines[0], lines[1], '{"thing": {}}', *lines[2:]], "line 3: 'thing' is not a valid kind of export line"),
        (lambda lines: [x for line in lines for x in ([line, line] if '"message":' in line[:11] else [line])], "must increase"),
    ],
)
def test_a_damaged_file_is_refused(queue, damage, refusal):
    service_bus.send(queue, [Message(b"x")])
    with pytest.raises(InvalidArgument, match=refusal):
        import_(damage(exported(queue.namespace)), name="damaged")
    with pytest.raises(EntityNotFound):
        namespaces.get_namespace("damaged")


def test_a_file_of_the_first_version_is_imported(broker_database):
    """Written by the code of that time."""
    lines = (Path(__file__).parent / "export_of_version_1.jsonl").read_text().splitlines(keepends=True)
    name = f"v1-{uuid.uuid4().hex[:8]}"
    assert import_(lines, name=name) == {"namespaces": [name], "entities": 3, "messages": 3}
    told = content(exported(name))
    assert (told[0]["namespace"].pop("family"), told[0]["namespace"].pop("behaviour")) == ("service_bus", "convenient")
    written = content(lines)
    for message in (line["message"] for line in written if "message" in line):
        raw = base64.b64decode(message["body"])  # of all messages, at that time
        if raw.isascii():
            message["body"] = raw.decode()
        else:
            message["body_base64"] = message.pop("body")
    assert told == written
    assert service_bus.accept_session(EntityAddress(name, "orders"), "a").state == b"half"
    [received] = service_bus.receive(EntityAddress(name, "news").subscription("all"))
    assert (bytes(received.body), received.subject) == (b"\x00\xff", "s")


def test_the_tier_limits_apply_to_a_copy(namespace):
    entities.create_topic(EntityAddress(namespace, "news"))
    lines = change(exported(namespace), "namespace", {"tier": "basic"})
    with pytest.raises(InvalidArgument, match="line 4: entity.kind: a namespace of the tier basic has no topics"):
        import_(lines, name="basic-copy")


def test_an_existing_namespace_is_refused_and_importing_requires_a_right(queue):
    with pytest.raises(EntityExists):
        import_(exported(queue.namespace))
    with pytest.raises(NotAuthorized):
        import_(exported(queue.namespace), name="other", actor=Actor("user", "eve", Right.OPERATE))
    with pytest.raises(NotAuthorized):
        exported(queue.namespace, actor=Actor("user", "eve", Right.MANAGE))


def test_the_commands_export_and_import_a_file(queue, tmp_path, capsys):
    service_bus.send(queue, [Message(b"x")])
    call_command("export_vitrine", queue.namespace)
    text = capsys.readouterr().out
    file = tmp_path / "all.jsonl"
    file.write_text(text)
    name = f"f-{uuid.uuid4().hex[:8]}"
    call_command("import_vitrine", str(file), rename=name)
    assert f"imported {name}: 1 entity, 1 message" in capsys.readouterr().out
    assert bodies(service_bus.receive(EntityAddress(name, queue.path))) == ["x"]
    with pytest.raises(CommandError, match=f"'{name}' already exists.*--as NAME.*--update.* Nothing was stored"):
        call_command("import_vitrine", str(file), rename=name)
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("import_vitrine", str(tmp_path / "missing"))


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=365_000)))
def test_durations_round_trip_to_the_microsecond(found):
    assert parse_duration(duration(found), "x") == found


TYPED = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary(max_size=20), st.uuids(),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC)).map(lambda d: d.replace(microsecond=0)),
    st.integers(0, 255).map(lambda n: Typed("ubyte", n)),
)  # fmt: skip
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
MESSAGES = st.builds(
    Message, body=st.binary(max_size=200), message_id=TEXT, correlation_id=TEXT, subject=TEXT, reply_to=TEXT,
    time_to_live=st.none() | st.timedeltas(SECOND, timedelta(days=4000)),
    properties=st.dictionaries(st.text("abcdefgh.", min_size=1, max_size=8), TYPED, max_size=4),
) | amqp_values.messages().map(service_bus.read_message)  # fmt: skip


@settings(max_examples=25)
@given(sent=st.lists(MESSAGES, max_size=5), story=steps_of_a_story, dead_lettering=st.booleans())
def test_the_import_of_an_export_gives_an_equal_export(broker_database, sent, story, dead_lettering):
    namespace = f"e-{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    namespaces.pause_clock(namespace)
    queue = EntityAddress(namespace, "q")
    options = {"lock_duration": 20 * SECOND, "max_delivery_count": 2, "dead_lettering_on_message_expiration": dead_lettering}
    entities.create_queue(queue, **options)
    service_bus.send(queue, sent)
    play(queue, story)
    lines = exported(namespace)
    copy = EntityAddress(copied(namespace), "q")
    again = exported(copy.namespace)
    assert content(again) == content(lines)
    assert stored(copy) == stored(queue)
    assert ledger_agrees(copy)
    # Both go on alike, once nobody holds anything any more.
    for address in (queue, copy):
        namespaces.step_clock(address.namespace, 3600 * SECOND)
        sweeps.end_locks()
        sweeps.expire_messages(pause=lambda _: None)
    held = {r["sequence_number"] for r in locked_once(lines)}
    assert received(copy, held) == received(queue, held)


def locked_once(lines):
    return [m for m in of_kind(lines, "message") if "last_received_at" in m]


def received(queue, but):
    """What can be received, but those that may have been held when they were exported: the copy holds no locks."""
    return [(m.sequence_number, m.delivery_count, bytes(m.body), m.raw_application_properties)
            for m in service_bus.receive(queue, 50) if m.sequence_number not in but]  # fmt: skip


def stored(queue):
    """Every column of every message as text, but its entity and its lock, and what follows from an ended lock."""
    rows = connections.current().execute(
        "SELECT to_jsonb(m) - '{entity_id,locked_until,locked_by,lock_token,delivery_count}'::text[] FROM vitrine_message AS m"
        " WHERE entity_id = %s ORDER BY subqueue, state, sequence_number",
        [entity_id(queue)],
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize("is_manual", [False, True])
def test_an_entity_of_an_old_export_is_not_deleted_on_idle_at_its_import(broker_database, is_manual):
    """SB-190: idleness begins with the import, except with a manual clock, which continues from the exported time."""
    namespace, name = f"e-{uuid.uuid4().hex[:10]}", f"c-{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    if is_manual:
        namespaces.pause_clock(namespace)
    entities.create_queue(EntityAddress(namespace, "brief"), auto_delete_on_idle=timedelta(minutes=5))
    lines = [re.sub(r'"last_activity_at":"\d{4}', '"last_activity_at":"2020', line) for line in exported(namespace)]
    import_(lines, name=name)
    assert sweeps.delete_idle_entities(namespace=name) == ({"deleted": [f"{name}/brief"]} if is_manual else {})


def test_an_import_needs_the_reserve_of_the_disk(queue, full_disk):
    service_bus.send(queue, [Message(b"x")])
    lines = exported(queue.namespace)
    full_disk(60 * 2**20)
    with pytest.raises(StorageFull, match="40 MB more are free"):
        import_(lines, name="copy")
    with pytest.raises(StorageFull):
        preview_import(lines, name="copy")
    full_disk(10**9)
    assert import_(lines, name="copy")["messages"] == 1


def test_a_namespace_over_its_maximum_size_is_restored_as_it_was(queue, fresh_room_check):
    service_bus.send(queue, [Message(b"x" * 200_000) for _ in range(6)])
    namespaces.update_namespace(queue.namespace, max_size_in_megabytes=1)
    lines = exported(queue.namespace)
    assert import_(lines, name="copy")["messages"] == 6
    room.forget_rooms()
    with pytest.raises(NamespaceFull):
        service_bus.send(EntityAddress("copy", queue.path), [Message()])
