"""Holding RabbitMQ's messages from the browser: the person's connection, what is done with its deliveries, and how it ends."""

import pytest
from django.contrib.auth.models import Group
from django.contrib.auth.signals import user_logged_out
from django.db import OperationalError
from django.urls import reverse

from broker_core import rabbitmq, reads
from broker_core.common.types import EntityAddress, EventKind, Right
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.publishing import Publication
from broker_core.runtime import processes
from explorer.models import AuditRecord
from explorer.rabbitmq import manual_consumers
from tests.broker_state import events
from tests.eventually import eventually
from tests.html import body_of

from .conftest import FRAGMENT

pytest_plugins = ["tests.fixtures"]


class Desk:
    """A virtual host with the queues jobs, whose rejected messages go to dead, and other."""

    def __init__(self, vhost):
        self.vhost = vhost
        self.jobs, self.dead, self.other = (EntityAddress(vhost, name) for name in ("jobs", "dead", "other"))
        rabbitmq.declare_queue(
            self.jobs, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        )  # fmt: skip
        rabbitmq.declare_queue(self.dead)
        rabbitmq.declare_queue(self.other)

    def publish(self, count, queue="jobs"):
        rabbitmq.publish(self.vhost, [Publication(b"job %d" % n, routing_key=queue) for n in range(count)])

    @property
    def state(self):
        """Of jobs: how many are ready, and how many unacknowledged; how many are dead."""
        counts = reads.counts(self.jobs)
        return counts.active - counts.locked, counts.locked, reads.counts(self.dead).active

    @property
    def connections(self):
        return [row.name for row in browsing.connections(self.vhost)]

    def url(self, queue="jobs"):
        return reverse("explorer:rabbitmq_get", args=(self.vhost, queue))


@pytest.fixture
def desk(vhost, request, monkeypatch):
    """The maintenance thread runs only in tests that commit: without a commit it would not see the test's users."""
    runs_thread = "transactional_db" in request.fixturenames
    if not runs_thread:
        monkeypatch.setattr(manual_consumers, "_ensure_maintainer", lambda: None)
    yield Desk(vhost)
    for user_id, _ in list(manual_consumers._consumers):
        manual_consumers.close_all_of(user_id)
    if runs_thread:
        eventually(lambda: manual_consumers._maintainer is None, 10)


@pytest.fixture
def held(desk, as_):
    """Someone who holds the first three of four messages, with delivery tags 1 to 3 of channel 1."""
    desk.publish(4)
    client = as_("operator")
    hold(client, desk, 3)
    return client


def hold(client, desk, count, queue="jobs"):
    return client.post(desk.url(queue), {"action": "get", "count": str(count), "mode": "hold"})


def settle(client, desk, action, tag, channel=1, **more):
    return client.post(desk.url(), {"action": action, "channel": str(channel), "tag": str(tag)}, **more)


def last_act():
    return AuditRecord.objects.order_by("-pk").first()


def name_of(client):
    return f"browser session of {client.user.username}"


def test_held_messages_are_unacknowledged_on_the_users_own_connection(desk, as_):
    desk.publish(2)
    client = as_("operator")
    response = hold(client, desk, 1)
    assert response.status_code == 302 and response["Location"] == desk.url()
    assert desk.state == (1, 1, 0) and desk.connections == [name_of(client)]
    page = body_of(client.get(desk.url()))
    assert "job 0" in page and "delivery tag 1" in page and 'id="channel-1"' in page and name_of(client) in page
    assert "Got 1 message, unacknowledged" in page and "30 minutes after your last action" in page
    assert last_act().action == "hold" and last_act().target == "up to 1"
    assert 'value="hold" id="id_mode_4" required checked' in page, "the next is held, too, unless chosen otherwise"
    at = desk.url().split("/get/")[1]
    assert " (you)" in body_of(client.get(f"/messages/{at}/1"))
    assert " (you)" not in body_of(as_("viewer").get(f"/messages/{at}/1"))
    others = body_of(as_("viewer").get("/connections/"))
    assert name_of(client) in others


def test_getting_more_messages_adds_to_the_held_and_an_empty_queue_is_reported(desk, held):
    hold(held, desk, 5)
    assert desk.state == (0, 4, 0) and len(desk.connections) == 1
    hold(held, desk, 1)
    assert "No messages are ready" in body_of(held.get(desk.url()))


@pytest.mark.parametrize(
    ("action", "tag", "state"),
    [
        ("ack", 2, (1, 2, 0)),
        ("nack", 2, (2, 2, 0)),
        ("reject", 2, (1, 2, 1)),
        ("ack-all", 2, (1, 1, 0)),
        ("nack-all", 3, (4, 0, 0)),
        ("reject-all", 2, (1, 1, 2)),
    ],
)
def test_a_delivery_is_settled_alone_or_with_all_earlier_deliveries(desk, held, action, tag, state):
    assert settle(held, desk, action, tag).status_code == 302
    assert desk.state == state
    assert last_act().action == action.removesuffix("-all") and f"delivery {tag} of channel 1" in last_act().target
    redelivered = browsing.message_facts(reads.entity(desk.jobs).id, [2]).get(2)
    if action.startswith("nack"):
        assert redelivered.redelivered and redelivered.connection is None


def test_an_htmx_request_returns_the_updated_page(desk, held):
    page = body_of(settle(held, desk, "ack", 1, headers=FRAGMENT))
    assert 'id="get"' in page and "<html" not in page and "held-1-1" not in page and "held-1-2" in page
    assert "Acknowledged 1 message." in page
    part = body_of(held.get(f"{desk.url()}?part=manual-consumer", headers=FRAGMENT))
    assert part.startswith('<section class="card" id="manual-consumer"') and "held-1-2" in part and 'id="get"' not in part


def test_a_second_settlement_is_refused_and_the_other_messages_stay_held(desk, held):
    settle(held, desk, "ack", 1)
    response = settle(held, desk, "ack", 1)
    assert response.status_code == 409 and "no longer hold delivery" in body_of(response)
    assert last_act().outcome == AuditRecord.Outcome.REFUSED
    assert desk.state == (1, 2, 0)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"action": "ack", "channel": "9", "tag": "1"}, 400),
        ({"action": "ack", "channel": "x", "tag": "-1"}, 400),
        ({"action": "eat"}, 400),
        ({"action": "ack-some", "channel": "1", "tag": "1"}, 400),
        ({"action": "consume", "prefetch": "0"}, 400),
        ({"action": "get", "count": "0", "mode": "hold"}, 400),
    ],
)
def test_invalid_requests_are_refused_and_change_nothing(desk, held, given, status):
    assert held.post(desk.url(), given).status_code == status
    assert desk.state == (1, 3, 0)


def test_the_number_of_held_messages_is_limited(desk, held, monkeypatch):
    monkeypatch.setattr(manual_consumers, "MOST_HELD", 3)
    response = hold(held, desk, 1)
    assert response.status_code == 400 and "you hold 3 messages" in body_of(response)


def test_closing_the_connection_requeues_all_messages_as_redelivered(desk, held):
    desk.publish(1, "other")
    hold(held, desk, 1, "other")
    assert "This connection also holds messages or consumers of" in body_of(held.get(desk.url()))
    held.post(desk.url(), {"action": "close"})
    assert desk.state == (4, 0, 0) and desk.connections == [] and reads.counts(desk.other).locked == 0
    page = body_of(held.get(desk.url()))
    assert "Closed your connection." in page and "You hold no messages" in page and "has ended" not in page
    facts = browsing.message_facts(reads.entity(desk.jobs).id, [1, 4])
    assert facts[1].redelivered and not facts[4].redelivered


def test_a_refusal_at_one_queue_keeps_the_messages_of_another(desk, held):
    mine = EntityAddress(desk.vhost, "in line")
    rabbitmq.declare_queue(mine, type="quorum", arguments={"x-single-active-consumer": True})
    response = hold(held, desk, 1, "in line")
    assert response.status_code == 409 and "RESOURCE_LOCKED" in body_of(response)
    assert desk.state == (1, 3, 0) and settle(held, desk, "ack", 1).status_code == 302


def test_a_consumer_gets_messages_up_to_its_prefetch_count(desk, as_):
    client = as_("operator")
    client.post(desk.url(), {"action": "consume", "prefetch": "2"})
    [consumer] = browsing.consumers(desk.vhost)
    assert (consumer.prefetch, consumer.connection, consumer.no_ack) == (2, name_of(client), False)
    assert last_act().action == "consume" and last_act().target == "prefetch 2"
    desk.publish(4)
    manual_consumers.maintain_all()
    assert desk.state == (2, 2, 0)
    assert "prefetch reached, settle one to receive more" in body_of(client.get(desk.url()))
    settle(client, desk, "ack", 1)
    assert desk.state == (1, 2, 0), "the next is there at once"
    client.post(desk.url(), {"action": "cancel", "channel": "1"})
    assert browsing.consumers(desk.vhost) == [] and desk.state == (1, 2, 0)
    assert "consumer cancelled" in body_of(client.get(desk.url()))
    settle(client, desk, "nack-all", 3)
    assert desk.state == (3, 0, 0) and "channel-1" not in body_of(client.get(desk.url()))


def test_messages_are_delivered_to_a_consumer_without_an_open_page(transactional_db, desk, as_):
    client = as_("operator")
    client.post(desk.url(), {"action": "consume", "prefetch": "1"})
    desk.publish(1)
    eventually(lambda: desk.state == (0, 1, 0), 10)


def test_an_exclusive_consumer_excludes_other_users(desk, as_):
    first, second = as_("operator"), as_("operator")
    first.post(desk.url(), {"action": "consume", "prefetch": "1", "exclusive": "on"})
    response = second.post(desk.url(), {"action": "consume", "prefetch": "1"})
    assert response.status_code == 409 and "exclusive use" in body_of(response)
    assert "exclusive" in body_of(first.get(desk.url()))
    first.post(desk.url(), {"action": "close"})
    assert second.post(desk.url(), {"action": "consume", "prefetch": "1"}).status_code == 302


def test_the_second_single_active_consumer_is_on_standby(desk, as_):
    first, second = as_("operator"), as_("operator")
    rabbitmq.declare_queue(EntityAddress(desk.vhost, "line"), arguments={"x-single-active-consumer": True})
    for client in (first, second):
        client.post(desk.url("line"), {"action": "consume", "prefetch": "1"})
    assert "Standby: another consumer is active." in body_of(second.get(desk.url("line")))
    assert "Standby" not in body_of(first.get(desk.url("line")))


def test_two_browsers_of_a_user_share_one_connection(desk, held, as_):
    other = type(held)()
    other.force_login(held.user)
    assert "held-1-3" in body_of(other.get(desk.url()))
    hold(other, desk, 1)
    assert len(desk.connections) == 1 and desk.state == (0, 4, 0)


def test_signing_out_requeues_all_held_messages(desk, held):
    held.post("/sign-out/")
    assert desk.state == (4, 0, 0) and desk.connections == []


def demoted(user):
    user.groups.set([Group.objects.get_or_create(name="viewer")[0]])


def deactivated(user):
    type(user).objects.filter(pk=user.pk).update(is_active=False)


def deleted(user):
    type(user).objects.filter(pk=user.pk).delete()


@pytest.mark.parametrize("withdraw", [demoted, deactivated, deleted])
def test_losing_the_right_to_receive_requeues_all_messages_and_ends_deliveries(desk, held, withdraw):
    held.post(desk.url("other"), {"action": "consume", "prefetch": "2"})
    withdraw(held.user)
    desk.publish(1, "other")
    manual_consumers.maintain_all()
    assert desk.state == (4, 0, 0) and desk.connections == [] and browsing.consumers(desk.vhost) == []
    counts = reads.counts(desk.other)
    assert (counts.active, counts.locked) == (1, 0)
    assert [event.kind for event in events(desk.other)] == [EventKind.SENT], "it was never delivered"


def test_a_demoted_user_sees_why_the_connection_was_closed(desk, held):
    demoted(held.user)
    manual_consumers.maintain_all()
    page = body_of(held.get(desk.url()))
    assert "Your connection was closed: you no longer have permission to receive messages. Its messages were requeued" in page


def test_a_changed_role_applies_to_an_open_connection(desk, as_):
    client = as_("administrator")
    desk.publish(1)
    hold(client, desk, 1)
    client.user.groups.set([Group.objects.get_or_create(name="operator")[0]])
    manual_consumers.maintain_all()
    consumer = manual_consumers.find(client.user.pk, desk.vhost)
    assert consumer.held_count == 1 and Right.MANAGE not in consumer.connection.actor.rights
    assert consumer.connection.actor.name == client.user.username


def test_a_consumer_stops_by_itself_when_the_role_is_withdrawn(transactional_db, desk, as_):
    client = as_("operator")
    client.post(desk.url(), {"action": "consume", "prefetch": "5"})
    desk.publish(1)
    eventually(lambda: desk.state == (0, 1, 0), 10)
    demoted(client.user)
    eventually(lambda: desk.state == (1, 0, 0) and desk.connections == [], 10)


def test_no_messages_are_delivered_while_rights_cannot_be_checked(desk, as_, monkeypatch):
    client = as_("operator")
    client.post(desk.url(), {"action": "consume", "prefetch": "5"})
    desk.publish(1)

    def fail(user_ids):
        raise OperationalError("no database")

    with monkeypatch.context() as broken:
        broken.setattr(manual_consumers, "actors_now", fail)
        with pytest.raises(OperationalError):
            manual_consumers.maintain_all()
    assert desk.state == (1, 0, 0) and desk.connections == [name_of(client)]
    manual_consumers.maintain_all()
    assert desk.state == (0, 1, 0)


def test_signing_out_ends_a_connection_in_another_process(desk, held):
    manual_consumers._consumers.clear()  # this process never had it
    held.post("/sign-out/")
    assert desk.state == (4, 0, 0) and desk.connections == []


def test_a_sign_out_without_a_user_or_session_is_accepted(rf, db):
    user_logged_out.send(sender=None, request=rf.get("/"), user=None)


def test_messages_of_a_dead_process_are_requeued_and_the_page_says_so_once(desk, held):
    processes.leave_all()
    page = held.get(desk.url())
    assert page.status_code == 200 and "Your connection was closed" in body_of(page)
    assert desk.state == (4, 0, 0)
    assert "Your connection was closed" not in body_of(held.get(desk.url()))


def test_after_a_restart_the_page_shows_what_happened_to_the_connection(desk, held):
    manual_consumers._consumers.clear()
    processes.leave_all()
    page = held.get(desk.url())
    assert page.status_code == 200 and "its process has stopped" in body_of(page)
    assert desk.state == (4, 0, 0), "whoever looks ends what the dead held"
    response = settle(held, desk, "ack", 1)
    assert response.status_code == 409 and "Your connection is closed" in body_of(response)


def test_a_connection_of_another_process_is_shown_and_can_be_closed(desk, held):
    kept = dict(manual_consumers._consumers)
    manual_consumers._consumers.clear()
    page = body_of(held.get(desk.url()))
    assert "belongs to another process" in page and "3 messages of this queue" in page
    for response in (hold(held, desk, 1), settle(held, desk, "ack", 1)):
        assert response.status_code == 409 and "belongs to another process" in body_of(response)
    assert desk.state == (1, 3, 0)
    held.post(desk.url(), {"action": "close-elsewhere"})
    assert desk.state == (4, 0, 0) and kept
    assert "has ended" not in body_of(held.get(desk.url()))


def test_an_idle_connection_is_closed(desk, held, monkeypatch):
    monkeypatch.setattr(manual_consumers, "IDLE_MINUTES", 0)
    manual_consumers.maintain_all()
    assert desk.state == (4, 0, 0) and desk.connections == []
    assert "was closed: it was not used for 0 minutes." in body_of(held.get(desk.url()))


def test_the_user_who_closed_the_connection_is_named(desk, held, as_):
    [row] = browsing.connections(desk.vhost)
    rabbitmq.force_close(row.id, "Closed in Vitrine by the warden")
    manual_consumers.maintain_all()
    eventually(lambda: manual_consumers.find(held.user.pk, desk.vhost) is None, 10)
    assert "was closed: Closed in Vitrine by the warden. Its messages were requeued" in body_of(held.get(desk.url()))


def test_a_queue_that_is_deleted_ends_its_consumer(desk, held):
    held.post(desk.url("other"), {"action": "consume", "prefetch": "1"})
    rabbitmq.delete_queue(desk.other)
    consumer = manual_consumers.find(held.user.pk, desk.vhost)
    for channel in consumer.channels("other"):
        channel.amqp_channel.refreshed_at = 0.0
    manual_consumers.maintain_all()
    for _ in range(2):
        assert "The consumer of other was cancelled: the queue was deleted." in body_of(held.get(desk.url())), (
            "until the next act"
        )
    assert desk.state == (1, 3, 0)


def test_a_viewer_can_neither_get_nor_consume_messages(desk, as_):
    desk.publish(1)
    client = as_("viewer")
    assert hold(client, desk, 1).status_code == 403
    assert client.post(desk.url(), {"action": "consume", "prefetch": "1"}).status_code == 403
    assert client.post(desk.url(), {"action": "close"}).status_code == 403
    assert desk.state == (1, 0, 0) and desk.connections == []
    assert client.get(desk.url()).status_code == 403
