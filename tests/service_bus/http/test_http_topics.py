"""Topics, subscriptions, sessions and duplicate detection as a client of the REST API meets them, over sockets."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from broker_core import namespaces, service_bus
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import CorrelationFilter, FalseFilter, Rule
from broker_core.service_bus.rules.values import Message

from .conftest import CLIENT
from .test_http_service_bus import batch, broker_properties, refused

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def topic(make_topic):
    """A topic with the subscriptions `all` and `red`, which has a filter."""
    new_topic = make_topic()
    entities.create_subscription(new_topic.address.subscription("all"))
    red = Rule("red", CorrelationFilter(subject="red"))
    entities.create_subscription(new_topic.address.subscription("red"), rule=red)
    return new_topic


def bodies(of) -> list[bytes]:
    return [message.body for message in of.stored()]


# Topics


def test_message_sent_to_a_topic_is_copied_to_matching_subscriptions(topic):
    assert topic.send(b"1", BrokerProperties='{"Label":"red","MessageId":"m"}', colour='"red"').status_code == 201
    assert topic.send(b"2").status_code == 201
    assert (bodies(topic.subscription("all")), bodies(topic.subscription("red"))) == ([b"1", b"2"], [b"1"])
    locked = topic.subscription("red").lock()
    assert (locked.status_code, locked.content, locked.headers["colour"]) == (201, b"1", '"red"')
    properties = broker_properties(locked)
    assert (properties["MessageId"], properties["Label"], properties["SequenceNumber"]) == ("m", "red", 1)


def test_batch_sent_to_a_topic_is_copied_in_order(topic):
    items = [{"Body": str(n), "BrokerProperties": {"Label": "red" if n % 2 else "blue"}} for n in range(6)]
    assert batch(topic, items).status_code == 201
    assert bodies(topic.subscription("all")) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert bodies(topic.subscription("red")) == [b"1", b"3", b"5"]


def test_batch_with_one_bad_message_reaches_no_subscription(topic):
    refused(batch(topic, [{"Body": "good"}, {"Body": "x" * (256 * 1024 + 1)}]), 403, 40300)
    assert bodies(topic.subscription("all")) == []


def test_message_that_matches_no_subscription_is_accepted(make_topic):
    topic = make_topic()
    assert topic.send().status_code == 201  # SB-014
    entities.create_subscription(topic.address.subscription("none"), rule=Rule("nothing", FalseFilter()))
    assert topic.send().status_code == 201
    assert bodies(topic.subscription("none")) == []


def test_scheduled_message_reaches_the_subscriptions_when_it_is_due(topic):
    namespace = topic.address.namespace
    namespaces.pause_clock(namespace)
    due = namespaces.get_clock(namespace).now + timedelta(minutes=5)
    assert topic.send(b"later", BrokerProperties=json.dumps({"ScheduledEnqueueTimeUtc": due.isoformat()})).status_code == 201
    assert topic.subscription("all").lock().status_code == 204
    namespaces.step_clock(namespace, timedelta(minutes=5, seconds=1))
    locked = topic.subscription("all").lock()
    assert (locked.status_code, locked.content) == (201, b"later")


def test_receiving_from_a_topic_is_refused(topic):
    for receive in (topic.lock, topic.take, topic.dead_letters.lock, topic.dead_letters.take):
        assert "one of its subscriptions" in refused(receive(), 400, 40000)


def test_concurrent_sends_to_a_topic_are_combined_and_not_lost(topic):
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda n: topic.send(str(n).encode()).status_code, range(64)))
    assert statuses == [201] * 64
    assert sorted(map(int, bodies(topic.subscription("all")))) == list(range(64))


# Subscriptions


@pytest.mark.parametrize("words", ["Subscriptions/all", "subscriptions/all", "SUBSCRIPTIONS/ALL"])
def test_subscription_is_found_in_any_casing_and_its_location_keeps_it(topic, words):
    topic.send(b"x")
    locked = topic.request("POST", f"/{words}/messages/head?timeout=0")
    token = broker_properties(locked)["LockToken"]
    assert locked.headers["location"] == f"{topic.url}/{words}/messages/1/{token}"
    assert topic.request("DELETE", locked.headers["location"]).status_code == 200
    assert bodies(topic.subscription("all")) == []


def test_copies_are_settled_independently(topic):
    every, red = topic.subscription("all"), topic.subscription("red")
    topic.send(b"x", BrokerProperties='{"Label":"red"}')
    location = every.lock().headers["location"]
    assert every.request("POST", location).status_code == 200
    assert every.request("PUT", location).status_code == 200
    again = every.lock()
    assert broker_properties(again)["DeliveryCount"] == 2
    token = broker_properties(again)["LockToken"]
    refused(red.request("DELETE", f"/messages/1/{token}"), 404, 40401)
    assert every.request("DELETE", again.headers["location"]).status_code == 200
    taken = red.take()
    assert (taken.status_code, taken.content, broker_properties(taken)["DeliveryCount"]) == (200, b"x", 1)
    assert (every.lock().status_code, red.lock().status_code) == (204, 204)


def test_dead_letters_of_a_subscription_are_its_own(topic):
    every = topic.subscription("all")
    topic.send(b"poison", BrokerProperties='{"Label":"red"}')
    service_bus.dead_letter(every.address, [service_bus.receive(every.address)[0].lock_token], "Unreadable")
    for words in ("$DeadLetterQueue", "$deadletterqueue"):
        dead = every.request("POST", f"/{words}/messages/head?timeout=0")
        assert (dead.status_code, dead.headers["DeadLetterReason"]) == (201, '"Unreadable"')
        assert f"/{words}/messages/1/" in dead.headers["location"]
        assert every.request("PUT", dead.headers["location"]).status_code == 200
    assert every.dead_letters.take().status_code == 200
    assert topic.subscription("red").dead_letters.lock().status_code == 204


def test_sending_to_a_subscription_is_refused(topic):
    """SB-013."""
    every = topic.subscription("all")
    for path in (every, every.dead_letters):
        refused(path.send(), 400, 40000)
        refused(batch(path, [{"Body": ""}]), 400, 40000)
    assert bodies(every) == []


def test_waiting_receiver_of_a_subscription_gets_a_message_sent_to_the_topic(topic):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(topic.subscription("all").lock, 10)
        topic.send(b"x")
        assert (waiting.result().status_code, waiting.result().content) == (201, b"x")


def test_unknown_topics_and_subscriptions_are_not_found(topic):
    refused(topic.subscription("nowhere").lock(), 410, 41000)
    refused(topic.request("POST", "/Subscriptions/messages/head?timeout=0"), 410, 41000)
    refused(topic.request("POST", "2/Subscriptions/all/messages/head?timeout=0", headers={}), 410, 41000)


def test_policies_of_a_topic_apply_to_its_subscriptions(topic, make_topic):
    other = make_topic("others", namespace=topic.address.namespace)
    entities.create_subscription(other.address.subscription("all"))
    listener = shared_access.create_policy(topic.address, "listener", listen=True)
    headers = {"authorization": topic.token(key=listener.primary_key, policy=listener.name)}
    receive = "/Subscriptions/ALL/messages/head?timeout=0"
    assert CLIENT.post(topic.url + receive, headers=headers).status_code == 204
    refused(CLIENT.post(other.url + receive, headers=headers), 401, 40103)
    refused(CLIENT.post(f"{topic.url}/messages", headers=headers), 401, 40105)


def test_token_for_a_topic_covers_only_its_subscriptions(topic):
    every = topic.subscription("all")
    headers = {"authorization": topic.token(topic.url)}
    assert CLIENT.post(f"{every.url}/messages/head?timeout=0", headers=headers).status_code == 204
    headers = {"authorization": topic.token(f"{topic.url}/subscriptions/red")}
    refused(CLIENT.post(f"{every.url}/messages/head?timeout=0", headers=headers), 401, 40104)


# Sessions


def test_entity_with_sessions_accepts_sends_and_refuses_receives_over_http(make_queue):
    """SB-110: there is no way to accept a session in this API. Its dead-letter queue has none (SB-102)."""
    queue = make_queue(requires_session=True)
    assert queue.send(b"x", BrokerProperties='{"SessionId":"s-1"}').status_code == 201
    for receive in (queue.lock, queue.take):
        assert "session" in refused(receive(), 400, 40000)
    (stored,) = queue.stored()
    assert (stored.session_id, stored.delivery_count) == ("s-1", 0)
    session = service_bus.accept_session(queue.address, "s-1", max_count=1)
    service_bus.dead_letter(queue.address, [session.messages[0].lock_token], "Unreadable")
    dead = queue.dead_letters.lock()
    assert (dead.status_code, broker_properties(dead)["SessionId"]) == (201, "s-1")


def test_receive_with_a_timeout_from_a_session_entity_is_refused_immediately(make_queue):
    refused(make_queue(requires_session=True).lock(30), 400, 40000)


def test_message_without_a_session_does_not_affect_other_sends(make_queue):
    """SB-008."""
    queue = make_queue(requires_session=True)
    properties = ['{"SessionId":"a"}', "{}"] * 8
    with ThreadPoolExecutor(16) as pool:
        responses = list(pool.map(lambda text: queue.send(BrokerProperties=text), properties))
    assert [response.status_code for response in responses] == [201, 400] * 8
    assert [message.session_id for message in queue.stored()] == ["a"] * 8


def test_subscription_with_sessions_refuses_receives(make_topic):
    topic = make_topic()
    entities.create_subscription(topic.address.subscription("s"), requires_session=True)
    topic.send(b"x", BrokerProperties='{"SessionId":"a"}')
    assert "session" in refused(topic.subscription("s").lock(), 400, 40000)
    assert service_bus.accept_session(topic.address.subscription("s"), max_count=1).messages[0].body == b"x"


# Duplicates


def test_duplicate_is_accepted_and_dropped(make_queue):
    """SB-131, SB-135: a sender is told nothing of it."""
    queue = make_queue(requires_duplicate_detection=True)
    for body in (b"first", b"second"):
        assert queue.send(body, BrokerProperties='{"MessageId":"m"}').status_code == 201
    assert bodies(queue) == [b"first"]
    items = [{"Body": text, "BrokerProperties": {"MessageId": text}} for text in "mnno"]
    assert batch(queue, items).status_code == 201
    assert bodies(queue) == [b"first", b"n", b"o"]


def test_duplicate_is_dropped_before_a_topics_subscriptions(make_topic):
    topic = make_topic(requires_duplicate_detection=True)
    entities.create_subscription(topic.address.subscription("all"))
    for body in (b"first", b"second"):
        assert topic.send(body, BrokerProperties='{"MessageId":"m"}').status_code == 201
    assert bodies(topic.subscription("all")) == [b"first"]


def test_concurrent_duplicates_are_stored_once(make_queue):
    queue = make_queue(requires_duplicate_detection=True)
    with ThreadPoolExecutor(16) as pool:
        sent = [pool.submit(queue.send, b"x", BrokerProperties=json.dumps({"MessageId": str(n % 10)})) for n in range(60)]
    assert {future.result().status_code for future in sent} == {201}
    assert sorted(message.message_id for message in queue.stored()) == [str(n) for n in range(10)]


# Forwarding


def test_receiving_from_a_forwarding_entity_is_refused(make_queue):
    """SB-171."""
    target = make_queue("target")
    source = make_queue("source", namespace=target.address.namespace, forward_to="target")
    assert source.send(b"x").status_code == 201
    refused(source.lock(), 400, 40000)
    assert service_bus.receive(target.address, max_wait_seconds=5)[0].body == Message(b"x").body
