"""The pages about lock, limit and replay, in the words of each family, and their links to the preview of a change."""

from datetime import timedelta
from html import unescape

import pyarrow as pa
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, Message
from broker_core.history import archive as archiving
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis import simulation
from explorer.analysis.reports import replay_history
from explorer.analysis.reports.replay import ReplayForm
from explorer.analysis.survival import CannotTell
from explorer.roles import ADMINISTRATOR
from tests.html import body_of

from . import known_truth

SECOND = timedelta(seconds=1)
MANY = 32


def service_bus_queue(address):
    namespaces.ensure_namespace(address.namespace)
    namespaces.pause_clock(address.namespace)
    entities.create_queue(address, lock_duration=30 * SECOND, max_delivery_count=2)
    service_bus.send(address, [Message(b"x") for _ in range(MANY)])
    for wait, settle in ((5, service_bus.abandon), (10, service_bus.complete)):
        tokens = [message.lock_token for message in service_bus.receive(address, MANY)]
        namespaces.step_clock(address.namespace, wait * SECOND)
        settle(address, tokens)


def storage_queue(address):
    queue_storage.create_account(address.namespace)
    namespaces.pause_clock(address.namespace)
    queue_storage.create_queue(address, max_dequeue_count=2)
    for _ in range(MANY):
        queue_storage.put(address, "x")
    got = queue_storage.get(address, MANY, visibility_timeout=30 * SECOND)
    namespaces.step_clock(address.namespace, 10 * SECOND)
    queue_storage.delete_all(address, got)


def rabbitmq_queue(address):
    rabbitmq.create_vhost(address.namespace)
    namespaces.pause_clock(address.namespace)
    rabbitmq.declare_queue(address, arguments={"x-queue-type": "quorum", "x-delivery-limit": 1})
    rabbitmq.publish(address.namespace, [rabbitmq.Publication(b"x", routing_key=address.path) for _ in range(MANY)])
    with rabbitmq.connect(address.namespace) as connection, connection.channel() as channel:
        tags = [channel.get(address.path).delivery_tag for _ in range(MANY)]
        namespaces.step_clock(address.namespace, 10 * SECOND)
        for tag in tags:
            channel.ack(tag)


@pytest.fixture
def queue(archive):
    """queue(make) -> the archived queue that it made."""

    def made(make):
        address = EntityAddress(make.__name__.replace("_", ""), "jobs")
        make(address)
        archiving.archive_events()
        return Entity.objects.get(path="jobs")

    return made


FAMILIES = [
    (service_bus_queue, "lock duration", "maximum delivery count", 2),
    (storage_queue, "visibility timeout", "maximum dequeue count", 2),
    (rabbitmq_queue, "consumer timeout", "delivery limit", 1),
]


@pytest.mark.parametrize(("make", "lock", "limit", "most"), FAMILIES, ids=lambda one: getattr(one, "__name__", ""))
def test_the_pages_use_the_familys_words(report_of, queue, make, lock, limit, most):
    pk = queue(make).pk
    body = report_of("lock", queue=pk, x="8 s")
    assert f"With a {lock} of 8 s, an estimated" in body and f"Recommended {lock}:" in body and lock.capitalize() in body
    assert ("does not matter when a consumer crashes" in body) is (make is rabbitmq_queue)
    body = report_of("deliveries", queue=pk, n=1)
    assert f"With a {limit} of 1, an estimated 0.0 %" in body or make is service_bus_queue
    body = report_of("replay", queue=pk, consumers="1, 2")
    assert "32 messages replayed." in body and f"{limit} {most})" in body and "Of 2 combinations, " in body
    assert "Replay error" in body and "Do not rely" not in body


def test_a_setting_leads_to_the_preview_of_the_change(report_of, viewer, queue):
    pk = queue(service_bus_queue).pk
    body = unescape(report_of("deliveries", queue=pk))
    assert "/settings/" in body and "?max_delivery_count=1" in body
    body = unescape(report_of("replay", queue=pk, lock="40 s", deliveries="5", time_to_live="1 h"))
    [url] = {part.split('"')[0] for part in body.split('href="')[1:] if "lock_duration=" in part.split('"')[0]}
    get_user_model().objects.get().groups.add(Group.objects.get_or_create(name=ADMINISTRATOR)[0])
    shown = body_of(viewer.get(url))
    assert 'value="40 s"' in shown and 'value="1 h"' in shown and 'value="5"' in shown and "Save" in shown
    assert viewer.get(url.replace("40+s", "soon")).status_code == 400


def test_a_rabbitmq_setting_leads_to_a_policy_for_the_queue():
    from explorer.rabbitmq.policies import propose

    entity = Entity(path="a.b", namespace=Entity._meta.get_field("namespace").related_model(name="v"))
    url = propose(entity, 30 * SECOND, 3, None)
    assert "pattern=%5Ea%5C.b%24" in url and "consumer_timeout=30000" in url and "delivery_limit=3" in url
    assert propose(entity, None, None, None) == ""


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"consumers": "0"}, "consumers"),
        ({"pace": "x"}, "pace"),
        ({"pace": "nan"}, "pace"),
        ({"lock": "soon"}, "lock"),
        ({"lock": "never"}, "lock"),
        ({"deliveries": "1,2,3,4,5,6"}, "deliveries"),
    ],
)
def test_bad_values_are_refused_at_their_field(query, field):
    assert list(ReplayForm(query).errors) == [field]


def test_what_is_too_much_is_refused(report_of, queue, monkeypatch):
    pk = queue(service_bus_queue).pk
    assert "combinations; at most" in report_of("replay", queue=pk, consumers="1,2,3,4,5", prefetch="1,2,3,4,5", pace="1,2")
    monkeypatch.setattr(simulation, "MOST_STEPS", 40)
    assert "Give fewer values or a shorter range" in report_of("replay", queue=pk, consumers="1, 2")


def test_messages_with_sessions_are_not_replayed():
    lives = pa.table({"session_id": pa.array(["s", None])})
    with pytest.raises(CannotTell, match="have sessions"):
        replay_history.replayable(lives, known_truth.table([{}]), known_truth.NOON, known_truth.NOON, None)
