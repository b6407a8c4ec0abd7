"""Hot properties and sessions: what the archive keeps, the computation as tables, and the pages."""

import html
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pyarrow as pa
import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Family, Message, Right
from broker_core.history import archive as archiving
from broker_core.history import properties, schema
from broker_core.models import Entity, Namespace
from broker_core.service_bus import entities
from broker_core.store import connections
from explorer.analysis import dimensions, messages
from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import hot
from explorer.analysis.reports.scope import Range, Scope
from explorer.models import AuditRecord, Sandbox
from explorer.roles import ADMINISTRATOR, OPERATOR
from tests.eventually import eventually
from tests.html import body_of

from .conftest import NOON, a_life
from .test_pages import signed_in

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SPAN = Range(NOON, NOON + 4 * HOUR)
PAGE = "/analyses/archived-properties/"
SETTINGS = ("/settings/reports/q", "/entities/host/mail?tab=in-force")


def lives(*rows):
    return pa.Table.from_pylist([a_life(sequence_number=i) | row for i, row in enumerate(rows)], schema=schema.LIFE)


def region(name, **changes):
    return {"chosen_properties": json.dumps({"region": name})} | changes


def late(**changes):
    return {"first_received_at": NOON + MINUTE, "last_received_at": NOON + MINUTE, "ended_at": NOON + 2 * MINUTE} | changes


# What messages keep.


@pytest.mark.parametrize(
    ("keys", "application", "others", "found"),
    [
        (["region"], {"region": ["str", "eu"], "x": ["str", "y"]}, {}, {"region": "eu"}),
        (["region", "label"], {}, {"label": "new", "region": 5}, {"region": "5", "label": "new"}),
        (["region"], {"region": ["null", None]}, {"region": "no"}, {}),
        (["flag", "list"], {}, {"flag": True, "list": [1]}, {"flag": "true"}),
        (["long"], {"long": ["str", "x" * 200]}, {}, {"long": "x" * 120}),
    ],
)
def test_the_values_of_chosen_keys(keys, application, others, found):
    assert properties.values(keys, json.dumps(application), json.dumps(others)) == found
    assert properties.values(keys, None, None) == {} and properties.as_text({}) is None


@pytest.mark.parametrize("keys", [list("123456789"), ['a"b'], ["a\\b"], ["x" * 129], ["a\x00b"]])
def test_keys_that_cannot_be_kept(db, keys):
    with pytest.raises(InvalidArgument):
        properties.choose([1], keys, actor=Actor("user", "a", Right.ALL))


def test_viewers_choose_none(db):
    with pytest.raises(NotAuthorized):
        properties.choose([1], ["a"], actor=Actor("user", "a", Right.BROWSE))


def test_an_actor_with_rights_in_one_namespace_chooses_only_there(archive):
    ids = []
    for name in ("mine", "others"):
        namespaces.ensure_namespace(name)
        entities.create_queue(EntityAddress(name, "q"))
        ids.append(Entity.objects.get(namespace__name=name).pk)
    actor = Actor("user", "a", Right.ALL, namespace="mine", rights_elsewhere=Right.BROWSE)
    properties.choose(ids[:1], ["a"], actor=actor)
    for some in (ids, ids[1:]):
        with pytest.raises(NotAuthorized):
            properties.choose(some, ["b"], actor=actor)
    assert properties.chosen(ids) == {ids[0]: ["a"]}


def test_two_operators_choose_at_the_same_time(archive):
    """The second waits for the transaction of the first and then replaces its keys."""
    namespaces.ensure_namespace("reports")
    entities.create_queue(EntityAddress("reports", "q"))
    [entity_id] = Entity.objects.values_list("pk", flat=True)
    with ThreadPoolExecutor(1) as others, psycopg.connect(**connections.current_database().parameters()) as first:
        first.execute("BEGIN")
        first.execute("INSERT INTO vitrine_archived_properties VALUES (%s, '{a}')", [entity_id])
        second = others.submit(chosen_on_its_own_connection, entity_id)
        asked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        eventually(lambda: connections.current().execute(asked, [first.info.backend_pid]).fetchone()[0] == 1)
        first.execute("COMMIT")
        assert second.result() == ["b"]
    assert properties.chosen([entity_id]) == {entity_id: ["b"]}


def chosen_on_its_own_connection(entity_id):
    try:
        return properties.choose([entity_id], ["b"], actor=Actor("user", "a", Right.ALL))
    finally:
        connection.close()


@pytest.fixture
def kept(archive):
    """kept(path) -> the chosen properties of the messages that left, oldest first."""
    namespaces.ensure_namespace("reports")

    def read(path: str) -> list:
        archiving.archive_events()
        entity_id = Entity.objects.get(path=path).pk
        columns = ["sequence_number", "subqueue", "chosen_properties"]
        found = messages._lives([entity_id], NOON - 9999 * HOUR, NOON + 99_999 * HOUR, columns)
        rows = sorted(found.to_pylist(), key=lambda row: row["sequence_number"])
        return [json.loads(row["chosen_properties"] or "null") for row in rows if row["subqueue"] == 0]

    return read


def choose(*paths):
    ids = [Entity.objects.get(path=path).pk for path in paths]
    properties.choose(ids, [" region", "subject", "", "region"], actor=Actor("user", "a", Right.ALL))


def finish(address):
    service_bus.complete(address, [message.lock_token for message in service_bus.receive(address, 10)])


def test_a_queues_lives_keep_them_also_of_messages_that_were_sent_before_the_slice(kept):
    address, other = EntityAddress("reports", "q"), EntityAddress("reports", "other")
    for one in (address, other):
        entities.create_queue(one)
        service_bus.send(one, [Message(b"x", properties={"region": "eu", "n": 1}, subject="new"), Message(b"x")])
    archiving.archive_events()
    choose("q")
    for one in (address, other):
        finish(one)
    assert kept("q") == [{"region": "eu", "subject": "new"}, None]
    assert kept("other") == [None, None], "nobody chose keys for it"


def test_copies_have_those_of_what_they_were_made_from(kept):
    topic = EntityAddress("reports", "t")
    entities.create_topic(topic)
    entities.create_subscription(EntityAddress("reports", "t/Subscriptions/s"))
    service_bus.send(topic, [Message(b"x", properties={"region": "us"})])
    archiving.archive_events()
    choose("t/Subscriptions/s")
    finish(EntityAddress("reports", "t/Subscriptions/s"))
    assert kept("t/Subscriptions/s") == [{"region": "us"}]


def test_rabbitmq_keeps_headers_and_properties(kept):
    rabbitmq.create_vhost("host")
    queue = EntityAddress("host", "mail")
    rabbitmq.declare_queue(queue)
    sent = rabbitmq.Publication(b"x", routing_key="mail", properties=rabbitmq.Properties(headers={"region": "eu"}, type="new"))
    rabbitmq.publish("host", [sent])
    properties.choose([Entity.objects.get(path="mail").pk], ["type", "region"], actor=Actor("user", "a", Right.ALL))
    rabbitmq.get(queue, no_ack=True)
    assert kept("mail") == [{"type": "new", "region": "eu"}]


# Values.


def test_dimensions():
    found = lives({"size": 512}, {"size": 1023}, {"size": 0}, {"size": None}, {"time_to_live_in_force_us": 90_000_000})
    assert dimensions.values(found, "size").to_pylist() == ["512", "512", "1", None, "64"]
    assert dimensions.values(found, "time-to-live").to_pylist()[-1] == "90000000"
    assert (dimensions.text("size", "512"), dimensions.text("time-to-live", "90000000")) == ("512 to 1,023 bytes", "1 min 30 s")
    found = lives(region("eu"), region("us"), {}, region("eu"))
    assert dimensions.values(found, "property:region").to_pylist() == ["eu", "us", None, "eu"]
    assert dimensions.values(found, "property:other").null_count == 4


def test_the_value_that_fails_more_is_found():
    """40 of region eu, of which half fail; 200 others, of which one does; 10 of region ca fail, which are too few."""
    rows = [region("eu", outcome=outcomes.DEAD_LETTERED if i % 2 else outcomes.COMPLETED) for i in range(40)]
    rows += [region("us", deliveries=2 if i == 0 else 1) for i in range(200)]
    rows += [region("ca", outcome=outcomes.EXPIRED) for _ in range(10)]
    table = hot.judged(lives(*rows))
    found = hot.by_value(table, dimensions.by_key(table))
    assert {one.value: (one.messages, one.failed, one.others, one.others_failed) for one in found} == {
        "eu": (40, 20, 210, 11), "us": (200, 1, 50, 30), "ca": (10, 10, 240, 21),
    }  # fmt: skip
    [eu] = hot.standing_out(found, "failed")
    assert eu.value == "eu" and not hot.standing_out(found, "slow")
    assert hot.sentence(found, {1: "q"}).startswith(
        "Messages with region eu failed more often: 50.0\xa0% (35.2\xa0% to 64.8\xa0%), "
    )
    assert "No value" in hot.sentence([one for one in found if one.value != "eu"], {1: "q"})


def test_the_value_that_waits_longer_is_found_in_its_queue():
    """The other queue is slow as a whole, which is not its region's doing."""
    rows = [region("eu", **late()) for _ in range(35)] + [region("us") for _ in range(400)]
    rows += [region("eu" if i % 2 else "us", entity_id=2, **late()) for i in range(200)]
    table = hot.judged(lives(*rows))
    found = hot.standing_out(hot.by_value(table, dimensions.by_key(table)), "slow")
    assert [(one.entity_id, one.value, one.slow) for one in found] == [(1, "eu", 35)]


def test_a_message_that_was_never_received_waited_until_it_left():
    never = {"first_received_at": None, "last_received_at": None, "outcome": outcomes.EXPIRED, "ended_at": NOON + HOUR}
    judged = hot.judged(lives(never, *({} for _ in range(20))))
    assert (judged["wait_us"][0].as_py(), judged["slow"].to_pylist()) == (3_600_000_000, [1] + [0] * 20)


def test_nothing_is_known_of_messages_without_times():
    unknown = {"entity_id": 2, "enqueued_at": None, "first_received_at": None}
    assert hot.judged(lives({}, unknown))["slow"].to_pylist() == [0, None] and not hot.judged(lives()).num_rows


def test_only_the_most_frequent_values_become_objects(monkeypatch):
    """Each of 1,000 messages has a session of its own; two queues have one more that is frequent."""
    rows = [{"session_id": f"s{i:03}", "entity_id": 1 + i % 2} for i in range(1000)]
    rows += [{"session_id": "busy", "entity_id": 1 + i % 2} for i in range(20)]
    table = hot.judged(lives(*rows))
    counted = hot._counted(table.append_column("value", table["session_id"]), ["entity_id", "value"])
    assert [(row["entity_id"], row["value"], row["messages"]) for row in hot.most_frequent(counted, 3).to_pylist()] == [
        (1, "busy", 10), (1, "s000", 1), (1, "s002", 1), (2, "busy", 10), (2, "s001", 1), (2, "s003", 1),
    ]  # fmt: skip
    monkeypatch.setattr(hot, "MOST_VALUES", 3)
    assert len(hot.by_value(table, [("session", table["session_id"])])) == 6


def test_properties_are_decoded_once_for_all_keys(monkeypatch):
    found, decoded = lives(*({"chosen_properties": json.dumps({"a": str(i % 3), "b": "x"})} for i in range(30))), []
    monkeypatch.setattr(dimensions.json, "loads", lambda text, loads=json.loads: decoded.append(text) or loads(text))
    columns = dict(dimensions.by_key(found))
    assert list(columns) == ["property:a", "property:b", "session", "size", "time-to-live"] and len(decoded) == 3
    assert columns["property:a"].to_pylist() == ["0", "1", "2"] * 10


# Sessions.


def test_a_session_is_stalled_while_messages_wait_and_none_leaves():
    at = [(NOON, NOON + MINUTE), (NOON + 10 * MINUTE, NOON + 20 * MINUTE), (NOON + 12 * MINUTE, NOON + 21 * MINUTE)]
    assert [(since - NOON, until - NOON) for since, until in hot.spells(at)] == [
        (0 * MINUTE, MINUTE), (10 * MINUTE, 20 * MINUTE), (20 * MINUTE, 21 * MINUTE),
    ]  # fmt: skip


def test_sessions_that_stalled_and_hot_ones():
    rows = [{"session_id": "hot", "enqueued_at": NOON + i * SECOND} for i in range(40)]
    rows += [{"session_id": name} for name in "abcdef"]
    rows += [{"session_id": "stuck", "enqueued_at": NOON + i * MINUTE, "ended_at": NOON + HOUR + i * SECOND} for i in range(3)]
    found = hot.by_session(hot.judged(lives(*rows, {})), SPAN)
    assert (found[0].name, found[0].messages, found[0].still, found[0].since) == ("stuck", 3, HOUR, NOON)
    assert found[0].spells == ((NOON, NOON + HOUR),) and hot._covered(found[0].spells).shares(SPAN) == [1, 0, 0, 0]
    assert hot.session_sentence(found) == (
        "Session stuck stalled longest: 1 h from 2026-03-01 12:00. Session hot has most messages, 81.6\xa0% of its queue's."
    )
    assert hot.session_sentence([]) == ""


def test_sessions_with_one_name_in_two_queues_are_drawn_and_linked_apart():
    namespace = Namespace(name="reports")
    queues = [Entity(pk=1, path="q", namespace=namespace, deleted_at=NOON), Entity(pk=2, path="q", namespace=namespace)]
    scope = Scope(queues, namespace, True, SPAN, SPAN.end)
    rows = [{"session_id": "a", "entity_id": one.pk, "enqueued_at": NOON, "ended_at": NOON + HOUR} for one in queues]
    [section] = hot._sessions(scope, hot.by_session(hot.judged(lives(*rows)), SPAN))
    assert [one.text for one in section.figures[0].charts[0].chart.y_ticks] == ["a", "a"]
    assert {row[-1].url for row in section.table.rows} == {"/messages/reports/q/0?of=1", "/messages/reports/q/1"}


# The pages.


@pytest.fixture
def shop(archive):
    """A queue with sessions: of 40 messages of region eu, half are dead-lettered; 60 of region us are completed."""
    address = EntityAddress("reports", "q")
    namespaces.ensure_namespace("reports")
    namespaces.pause_clock("reports")
    entities.create_queue(address)
    choose("q")
    regions = ["eu"] * 40 + ["us"] * 60
    service_bus.send(address, [Message(b"x", properties={"region": one}) for one in regions])
    received = service_bus.receive(address, 100)
    service_bus.dead_letter(address, [one.lock_token for one in received[:20]])
    service_bus.complete(address, [one.lock_token for one in received[20:]])
    archiving.archive_events()
    return Entity.objects.get(path="q")


def test_the_report_names_the_value_and_leads_to_its_messages(viewer, report_of, shop):
    body = report_of("properties", queue=shop.pk, compare="before")
    assert "Messages with region eu failed more often: 50.0 % (" in body and "there were no messages with region eu" in body
    assert "Which values fail more often" in body and "Change the properties" in body
    link = body.split("key=property%3Aregion&amp;value=eu")[0].rsplit('href="', 1)[1] + "key=property%3Aregion&value=eu"
    listed = body_of(viewer.get(link.replace("&amp;", "&")))
    assert "with region eu" in listed and "40 messages" in listed
    assert viewer.get(link.replace("&amp;", "&").replace("property%3Aregion", "colour")).status_code == 404


def test_too_many_different_properties_are_refused(report_of, shop, monkeypatch):
    monkeypatch.setattr(hot, "MOST_TEXTS", 1)
    assert "2 different combinations of properties; at most 1 are compared" in report_of("properties", queue=shop.pk)


def test_an_operator_chooses_keys(client, shop):
    operator = signed_in(client, OPERATOR)
    body = body_of(operator.get(PAGE, {"queue": shop.pk}))
    assert "region\nsubject</textarea>" in body and "Save keys" in body
    response = operator.post(f"{PAGE}?queue={shop.pk}", {"keys": "tier\r\n\r\nregion"})
    assert response.status_code == 302 and properties.chosen([shop.pk]) == {shop.pk: ["tier", "region"]}
    refused = operator.post(f"{PAGE}?queue={shop.pk}", {"keys": "\n".join("abcdefghi")})
    assert refused.status_code == 400 and "at most 8" in body_of(refused)
    operator.post(f"{PAGE}?namespace=reports", {"keys": ""})
    assert properties.chosen([shop.pk]) == {}
    assert AuditRecord.objects.filter(action="choose archived properties", outcome="done").count() == 2


def test_a_person_chooses_keys_in_their_own_sandbox(viewer, shop):
    namespaces.ensure_namespace("learn-own")
    entities.create_queue(EntityAddress("learn-own", "q"))
    own = Entity.objects.get(namespace__name="learn-own")
    Sandbox.objects.create(namespace="learn-own", owner=get_user_model().objects.get(), lesson="", family="service_bus")
    for queue, keys in ((own, {own.pk: ["tier"]}), (shop, {shop.pk: ["region", "subject"]})):
        viewer.post(f"{PAGE}?queue={queue.pk}", {"keys": "tier"})
        assert properties.chosen([queue.pk]) == keys


def test_the_settings_of_each_family_lead_to_the_keys_and_back(client, shop):
    rabbitmq.create_vhost("host")
    rabbitmq.declare_queue(EntityAddress("host", "mail"))
    namespaces.ensure_namespace("account", family=Family.QUEUE_STORAGE)
    queue_storage.create_queue(EntityAddress("account", "jobs"))
    admin = signed_in(client, ADMINISTRATOR)
    assert "Archived properties" not in body_of(admin.get("/settings/account/jobs"))  # its messages have none
    for page, said in zip(SETTINGS, ("Change archived properties", "Choose archived properties"), strict=True):
        body = body_of(admin.get(page))
        assert said in body
        link = html.unescape(body.split(said)[0].rsplit('href="', 1)[1].split('"')[0])
        assert f'href="{html.escape(page)}">Cancel' in body_of(admin.get(link))
        assert admin.post(link, {"keys": "tier"}).url == page
    assert properties.chosen([shop.pk]) == {shop.pk: ["tier"]}
    elsewhere = admin.post(f"{PAGE}?queue={shop.pk}&back=https://example.org/", {"keys": "tier"})
    assert elsewhere.url.startswith("/analyses/")


def test_a_viewer_reads_the_keys(viewer, shop):
    assert "requires the operator role" in body_of(viewer.get(PAGE, {"queue": shop.pk}))
    viewer.post(f"{PAGE}?queue={shop.pk}", {"keys": "x"})
    assert properties.chosen([shop.pk]) == {shop.pk: ["region", "subject"]}
    assert viewer.get(PAGE).status_code == 404


def test_storage_queues_have_no_properties(viewer, report_of, archive):
    from broker_core import queue_storage

    namespaces.create_namespace("jobs", family=Family.QUEUE_STORAGE)
    queue_storage.create_queue(EntityAddress("jobs", "work"))
    queue = Entity.objects.get(path="work")
    assert "Choose properties" not in report_of("properties", queue=queue.pk)
    assert viewer.get(PAGE, {"queue": queue.pk}).status_code == 404


def test_the_region_that_fails_more_in_generated_history_is_found(report_of, archive):
    from broker_core.history import generation, load

    address = EntityAddress("reports", "made")
    namespaces.ensure_namespace("reports")
    entities.create_queue(address)
    queue = Entity.objects.get(path="made")
    until = namespaces.get_clock("reports").now
    generation.generate([queue], messages=6000, days=0.9, until=until)
    body = report_of("properties", queue=queue.pk)
    assert f"Messages with region {load.HOT} failed more often" in body and "No value" not in body
