"""The head of entity pages, which all families share: pausing, protection, the history of settings, and who receives."""

import re
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, EventKind, Right
from broker_core.rabbitmq import Publication
from broker_core.reads import Event
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.charts.changes import mark_deploy
from explorer.frames.head import pauses
from explorer.frames.receivers import summarised
from explorer.models import AuditRecord
from explorer.pages.revisions import Change, differences
from explorer.service_bus.entity import is_newest_first, tab_views
from tests.rabbitmq.shortcuts import take

from .conftest import WORKER

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def body_of(response):
    return " ".join(response.content.decode().split())


@pytest.fixture
def vhost(broker_database):
    name = f"host-{uuid.uuid4().hex[:8]}"
    rabbitmq.create_vhost(name)
    return name


@pytest.fixture
def one_of_each(namespace, account, vhost):
    """A queue of each family."""
    queue, jobs, rabbits = (EntityAddress(within, "work") for within in (namespace, account, vhost))
    entities.create_queue(queue)
    queue_storage.create_queue(jobs)
    rabbitmq.declare_queue(rabbits)
    return queue, jobs, rabbits


@pytest.mark.parametrize(
    ("status", "kinds", "words"),
    [
        ("Active", {}, ["Pause sending", "Pause receiving", "Pause both"]),
        ("SendDisabled", {}, ["Resume sending", "Pause receiving"]),
        ("ReceiveDisabled", {}, ["Pause sending", "Resume receiving"]),
        ("Disabled", {}, ["Resume sending", "Resume receiving", "Resume both"]),
        ("Active", {"receives": False}, ["Pause sending"]),
        ("SendDisabled", {"receives": False}, ["Resume sending"]),
        ("Active", {"sends": False}, ["Pause receiving"]),
        ("ReceiveDisabled", {"sends": False}, ["Resume receiving"]),
    ],
)
def test_each_status_has_the_buttons_that_change_it(status, kinds, words):
    assert [action.word for action in pauses(EntityStatus(status), **kinds)] == words


@pytest.mark.parametrize(("kind", "kinds"), [("topic", {"receives": False}), ("subscription", {"sends": False}), ("queue", {})])
def test_every_button_sets_a_status_that_the_kind_has(kind, kinds):
    from broker_core.service_bus.rules.entity_settings import STATUSES

    for status in STATUSES[EntityKind(kind)]:
        assert {action.status for action in pauses(status, **kinds)} <= set(STATUSES[EntityKind(kind)])


def test_an_operator_pauses_and_resumes_in_every_family(one_of_each, as_):
    client = as_("operator")
    for address in one_of_each:
        assert "Pause receiving" in body_of(client.get(f"/entities/{address}"))
        page = body_of(client.post(f"/pause/{address}", {"status": "ReceiveDisabled"}, follow=True))
        assert "Receiving paused" in page and "Resume receiving" in page
        assert reads.entity(address).status is EntityStatus.RECEIVE_DISABLED
        client.post(f"/pause/{address}", {"status": "Active"})
        assert reads.entity(address).status is EntityStatus.ACTIVE
    assert list(AuditRecord.objects.order_by("id").values_list("action", "target")) == [
        ("pause", "ReceiveDisabled"), ("resume", "Active"),
    ] * 3  # fmt: skip


def test_the_send_and_message_pages_of_a_paused_queue_agree_with_its_header(one_of_each, as_):
    queue, client = one_of_each[0], as_("operator")
    [number] = service_bus.send(queue, [Message(b"x")])
    entities.set_status(queue, EntityStatus.RECEIVE_DISABLED)
    assert '<span class="tag warn">Receiving paused</span>' in body_of(client.get(f"/send/{queue}"))
    assert "Resume receiving on the page of the queue." in body_of(client.get(f"/messages/{queue}/{number}"))
    assert "ReceiveDisabled" not in body_of(client.get(f"/entities/?q={queue.namespace}"))


def test_a_service_bus_board_says_active_as_its_tabs_do(one_of_each, as_):
    board = body_of(as_("viewer").get(f"/entities/{one_of_each[0]}?view=board"))
    assert "No active messages." in board and ">available<" not in board


def test_an_entity_without_receivers_is_shown_as_idle(one_of_each, as_):
    client = as_("viewer")
    for address in one_of_each:
        assert '<span class="idle">no ' in body_of(client.get(f"/entities/{address}")).replace(" >", ">")
    service_bus.receive(one_of_each[0], 1)
    assert "receivers active" in (page := body_of(client.get(f"/entities/{one_of_each[0]}"))) and 'class="idle"' not in page


def test_the_settings_say_that_protection_does_not_prevent_deletion_on_idle(one_of_each, as_):
    """SB-197, RMQ-040; a storage queue is never deleted on idle."""
    queue, jobs, rabbits = one_of_each
    for url, said in (
        (f"/settings/{queue}", ["auto-delete on idle"]),
        (f"/settings/{jobs}", []),
        (f"/entities/{rabbits}?tab=settings", ["expiry of unused queues (x-expires)"]),
    ):
        assert re.findall(r"Protection does not prevent ([^.]+)\.", body_of(as_("administrator").get(url))) == said


def test_a_service_bus_page_shows_the_idle_deletion_and_the_last_use(namespace, as_):
    """SB-190 to SB-193."""
    queue = entities.create_queue(EntityAddress(namespace, "brief"), auto_delete_on_idle=timedelta(minutes=5)).address
    topic = entities.create_topic(EntityAddress(namespace, "news"), auto_delete_on_idle=timedelta(minutes=5)).address
    entities.create_subscription(topic.subscription("all"))
    service_bus.send(queue, [Message()])

    def said(address):
        page = body_of(as_("viewer").get(f"/entities/{address}"))
        [text] = re.findall(r'id="idleness"[^>]*>(.*?)</div> </div>', page)
        return " ".join(re.sub(r"<[^>]+>", "", text).split())

    namespaces.step_clock(namespace, timedelta(minutes=1))
    service_bus.receive(topic.subscription("all"))
    assert said(queue) == (
        "This queue is deleted in 4:20 unless it is used; its 1 message is deleted with it. Last use: send, 1 min ago. "
        "Viewing does not count as use."
    )
    assert said(topic) == (
        "This topic is deleted in 5:20 unless it is used; its subscriptions and their messages are deleted with it. "
        "Last use: receive (subscription all), now. Viewing does not count as use."
    )
    entities.update_queue(queue, forward_to="news")
    assert "deleted after 5 min without use. Not now: it forwards its messages. Last use: change of its configuration" in said(
        queue
    )
    namespaces.step_clock(namespace, timedelta(minutes=6))
    assert said(topic).startswith("This topic is being deleted: it was not used for 5 min. Last use: ")


def test_a_viewer_cannot_pause_and_an_unknown_status_is_refused(one_of_each, as_):
    for address in one_of_each:
        page = body_of(as_("viewer").get(f"/entities/{address}"))
        assert "Pausing requires the operator role" in page and "Pause receiving" not in page
        as_("viewer").post(f"/pause/{address}", {"status": "Disabled"})
        assert as_("operator").post(f"/pause/{address}", {"status": "Asleep"}).status_code == 400
        assert reads.entity(address).status is EntityStatus.ACTIVE
    assert AuditRecord.objects.filter(outcome="refused").count() == 3


def test_an_administrator_protects_an_entity_and_deleting_is_refused(one_of_each, as_):
    client = as_("administrator")
    for address in one_of_each:
        page = body_of(client.post(f"/protect/{address}", {"protected": "yes"}, follow=True))
        assert "protected from deletion" in page and "Protected; remove the protection" in page
        assert "protected from deletion" in body_of(client.post(f"/delete/{address}", {"name": "work"}))
        assert reads.entity(address).protected
        as_("operator").post(f"/protect/{address}", {"protected": "no"})
        assert reads.entity(address).protected, "only administrators"
        client.post(f"/protect/{address}", {"protected": "no"})
        assert client.post(f"/delete/{address}", {"name": "work"}).status_code == 302


def test_the_history_of_settings_shows_changes_and_actors(one_of_each, as_):
    queue, jobs, rabbits = one_of_each
    client = as_("administrator")
    entities.update_queue(queue, max_delivery_count=4, actor=WORKER)
    queue_storage.update_queue(jobs, max_dequeue_count=7, actor=WORKER)
    rabbitmq.set_queue_option(rabbits, exact_expiry=True, actor=WORKER)
    for address, name, after in ((queue, "MaxDeliveryCount", "4"), (jobs, "Max dequeue count", "7"), (rabbits, "expire", "yes")):
        page = client.get(f"/revisions/{address}")
        newest, first = page.context["lines"]
        [change] = newest.changes
        assert name.lower() in change.name.lower() and change.after == after and newest.actor == "process:worker"
        assert first.is_first and newest.is_current and (newest.number, first.number) == (2, 1)


def test_earlier_settings_are_restored_through_the_preview(one_of_each, as_):
    queue, jobs, _ = one_of_each
    client = as_("administrator")
    service_bus.send(queue, [Message(b"x")])
    entities.update_queue(queue, default_message_time_to_live=timedelta(days=3), max_delivery_count=4)
    queue_storage.update_queue(jobs, max_dequeue_count=7)
    for address, field, was in ((queue, "max_delivery_count", 10), (jobs, "max_dequeue_count", None)):
        first = reads.revisions(address)[-1]
        shown = client.get(f"/settings/{address}?revision={first.id}")
        previewed = shown.context["previewed"]
        assert previewed.before != previewed.after and shown.context["form"][field].initial == was
        form = shown.context["form"]
        values = {name: form[name].value() for name in form.fields}
        values = {name: "" if value is None else value for name, value in values.items() if value is not False}
        done = client.post(f"/settings/{address}", {**values, "token": shown.context["previewed"].token})
        assert done.status_code == 302, done.context and done.context["form"].errors
        assert reads.revisions(address)[0].columns == first.columns
    assert client.get(f"/settings/{queue}?revision=0").status_code == 400


def test_differences_are_sorted_by_name_and_show_none_for_missing_values():
    assert differences({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == (
        Change("a", "1", "none"), Change("b", "2", "3"), Change("c", "none", "4"),
    )  # fmt: skip


def event(event_id, kind, number, actor):
    return Event(event_id, NOON, NOON + timedelta(seconds=event_id), 1, None, number, kind, None, 0, None, actor, None)


def test_without_traffic_the_chart_shows_a_placeholder(namespace, as_):
    queue = entities.create_queue(EntityAddress(namespace, "still")).address
    head = body_of(as_("viewer").get(f"/entities/{queue}")).partition('id="tabs"')[0]
    assert head.count('<svg class="spark" viewBox="-28 -6 252 60"') == 1
    assert 'aria-label="No traffic in the last 30 minutes"' in head and "30 min ago" in head


def test_a_settlement_counts_for_the_receiver_of_the_message():
    receivers = summarised(
        [],
        [
            event(4, EventKind.COMPLETED, 8, "process:b"),
            event(3, EventKind.ABANDONED, 7, "process:a"),
            event(2, EventKind.RECEIVED, 7, "worker 1"),
            event(1, EventKind.RECEIVED, 6, "worker 1"),
        ],
    )
    assert [(receiver.actor.name, receiver.received, receiver.completed, receiver.failed) for receiver in receivers] == [
        ("b", 0, 1, 0), ("worker 1", 2, 0, 1),
    ]  # fmt: skip


def test_a_key_is_one_receiver_with_and_without_the_address_of_its_client():
    receivers = summarised([], [event(2, EventKind.COMPLETED, 7, "key:app"), event(1, EventKind.RECEIVED, 6, "key:app@10.0.0.7")])
    assert [(receiver.actor.name, receiver.received, receiver.completed) for receiver in receivers] == [("app", 1, 1)]


def test_receivers_are_listed_with_the_messages_they_hold(shop, jobs, as_):
    page = body_of(as_("viewer").get(f"/entities/{shop}?tab=receivers"))
    assert "worker</a>" in page and 'href="?tab=locked">1<' in page
    page = body_of(as_("viewer").get(f"/entities/{jobs}?tab=receivers"))
    assert "worker</a>" in page and 'href="?tab=leased">2<' in page


def test_the_counts_of_the_tabs_add_up_to_the_messages_in_the_queue(shop):
    counts = {view.slug: view.count for view in tab_views(reads.entity(shop), "all")}
    assert counts["all"] == counts["active"] + counts["locked"] + counts["scheduled"] + counts["deferred"] == 5
    assert len(reads.list_messages(shop, reads.Tab.ALL).rows) == 5


def test_scheduled_messages_are_sorted_by_due_time(shop, as_):
    assert is_newest_first("active", "") and not is_newest_first("scheduled", "") and is_newest_first("scheduled", "newest")
    for minutes in (20, 5, 10):
        later = datetime.now(UTC) + timedelta(minutes=minutes)
        service_bus.send(shop, [Message(b"x", scheduled_enqueue_at=later)])
    rows = as_("viewer").get(f"/entities/{shop}?tab=scheduled").context["page"].rows
    assert [row.scheduled_enqueue_at for row in rows] == sorted(row.scheduled_enqueue_at for row in rows) and len(rows) == 4
    numbers = [row.sequence_number for row in rows]
    assert numbers != sorted(numbers)
    page = body_of(as_("viewer").get(f"/messages/{shop}/{numbers[1]}?tab=scheduled"))
    assert (
        f'rel="prev" href="/messages/{shop}/{numbers[0]}?' in page and f'rel="next" href="/messages/{shop}/{numbers[2]}?' in page
    )
    assert 'rel="next"' not in body_of(as_("viewer").get(f"/messages/{shop}/{numbers[3]}?tab=scheduled"))


def test_the_history_is_filtered_by_outcome_id_and_actor(shop, as_):
    client = as_("viewer")
    for query, found in (("outcome:completed", True), ("outcome:purged", False), ("order-1", True), ("order-9", False),
                         ("by:process:worker", True), ("by:worker", True), ("by:user:worker", False)):  # fmt: skip
        rows = client.get(f"/entities/{shop}?tab=history&q={query}").context["events"].rows
        assert (1 in [row.sequence_number for row in rows]) is found, query
    assert client.get(f"/entities/{shop}?tab=history&q=outcome:lost").status_code == 400


def test_pages_of_queues_for_dead_letters_say_so(jobs, vhost, as_):
    assert "1 dead letter of jobs" in body_of(as_("viewer").get(f"/entities/{jobs}-poison"))
    dead = EntityAddress(vhost, "dead")
    rabbitmq.declare_queue(dead)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    rabbitmq.declare_queue(EntityAddress(vhost, "q"), arguments=arguments)
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", routing_key="q")])
    held = rabbitmq.get(EntityAddress(vhost, "q"), owner_id=1_000_001)
    rabbitmq.reject(EntityAddress(vhost, "q"), [held.token])
    assert "1 dead letter" in body_of(as_("viewer").get(f"/entities/{dead}"))
    assert "1 dead letter" not in body_of(as_("viewer").get(f"/entities/{EntityAddress(vhost, 'q')}"))


def oldest_in(page):
    """What the status menu says of the oldest messages: word -> (URL of the list, text)."""
    menu = page.partition('id="oldest-messages"')[2].partition('id="effective-settings"')[0]
    found = re.findall(r'<dt ?> ?<a href="([^"]+)">([^<]+)</a>.*?<dd ?>(.*?)</dd>', menu)
    return {word: (url.replace("&amp;", "&"), " ".join(re.sub(r"<[^>]+>", " ", text).split())) for url, word, text in found}


def test_the_status_menu_shows_the_oldest_message_of_each_state_in_the_words_of_the_family(one_of_each, as_):
    queue, jobs, rabbits = one_of_each
    client, due = as_("viewer"), reads.now(queue.namespace).now + timedelta(hours=2)
    for address in one_of_each:
        assert 'id="oldest-messages"' in (page := body_of(client.get(f"/entities/{address}"))) and oldest_in(page) == {}
    namespaces.pause_clock(jobs.namespace)
    namespaces.pause_clock(rabbits.namespace)
    service_bus.send(queue, [Message(message_id=str(n)) for n in range(4)] + [Message(scheduled_enqueue_at=due)])
    bad, later, _ = service_bus.receive(queue, 3)
    service_bus.dead_letter(queue, [bad.lock_token], "Broken")
    service_bus.defer(queue, [later.lock_token])
    queue_storage.put_all(jobs, ["one", "two"])
    queue_storage.put(jobs, "three", visibility_timeout=timedelta(minutes=10))
    queue_storage.get(jobs, 1, visibility_timeout=timedelta(minutes=10))
    rabbitmq.publish(rabbits.namespace, [rabbitmq.Publication(b"x", routing_key="work")] * 2)
    take(rabbits, 1)
    for address in one_of_each:
        namespaces.step_clock(address.namespace, timedelta(seconds=20))
    assert oldest_in(body_of(client.get(f"/entities/{queue}"))) == {
        "active": ("?tab=active&order=oldest&m=4", "20 s since enqueued"),
        "locked": ("?tab=locked&order=oldest&m=3", "20 s since received"),
        "scheduled": ("?tab=scheduled&m=5", "1:59:40 until due"),
        "deferred": ("?tab=deferred&order=oldest&m=2", "20 s since enqueued"),
        "dead letters": ("?tab=dead-letter&order=oldest&m=1", "20 s since dead-lettered"),
    }
    leased, visible, delayed = (row.sequence_number for row in reads.list_messages(jobs, newest_first=False).rows)
    assert oldest_in(body_of(client.get(f"/entities/{jobs}"))) == {
        "visible": (f"?tab=visible&order=oldest&m={visible}", "20 s since enqueued"),
        "delayed": (f"?tab=delayed&order=oldest&m={delayed}", "9:40 until due"),
        "leased": (f"?tab=leased&order=oldest&m={leased}", "20 s since received"),
    }
    assert oldest_in(body_of(client.get(f"/entities/{rabbits}"))) == {
        "ready": ("?tab=ready&m=2", "20 s since enqueued"), "unacked": ("?tab=unacked&m=1", "20 s since received"),
    }  # fmt: skip
    for address in one_of_each:
        page = body_of(client.get(f"/entities/{address}"))
        for url, _ in oldest_in(page).values():
            number = url.rpartition("=")[2]
            opened = client.get(f"/entities/{address}{url}")
            assert opened.status_code == 200 and opened.context["page"].rows[0].sequence_number == int(number), url
            assert opened.context["pane"] is not None


def test_an_exchange_and_an_empty_topic_have_no_oldest_messages(one_of_each, as_):
    queue, _, rabbits = one_of_each
    topic = entities.create_topic(EntityAddress(queue.namespace, "news")).address
    exchange = reverse("explorer:rabbitmq_exchange", args=(rabbits.namespace, "amq.topic"))
    for url in (f"/entities/{topic}", exchange):
        assert "oldest-messages" not in body_of(as_("viewer").get(url))


def test_the_chart_of_the_head_marks_the_newest_deploys_of_the_namespace(one_of_each, as_):
    queue, stored, rabbits = one_of_each
    service_bus.send(queue, [Message(b"x")])
    queue_storage.put(stored, "x")
    rabbitmq.publish(rabbits.namespace, [Publication(b"x", routing_key=rabbits.path)])
    deployer = Actor("user", "ada", Right.ALL)
    for name in ("first", "second 2", "third", "fourth"):
        mark_deploy(name, {address.namespace for address in one_of_each}, actor=deployer)
    for address in one_of_each:
        page = body_of(as_("viewer").get(f"/entities/{address}"))
        assert page.count('class="deploy"') == 3 and "; deploy second 2 at " in page and "deploy first" not in page
