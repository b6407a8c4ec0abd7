"""The REST API as a client meets it: httpx against a real server, over sockets, on a real database."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4
from xml.etree import ElementTree

import httpx
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import MessageState
from broker_core.service_bus import entities, http_requests
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.http.request import MAX_BODY_BYTES
from broker_core.service_bus.rules import sas
from broker_core.service_bus.rules.values import Message
from broker_core.wire.failed_authentications import FailedAuthentications
from tests.broker_state import has_waiting_receiver
from tests.eventually import eventually

from ..rules.test_sas import javascript_recipe, python_recipe
from .conftest import CLIENT

pytestmark = pytest.mark.django_db(transaction=True)

EVERY_BYTE = bytes(range(256))
KILOBYTE = 1024


def broker_properties(response: httpx.Response) -> dict:
    return json.loads(response.headers["BrokerProperties"])


def refused(response: httpx.Response, status: int, sub_code: int) -> str:
    """Check a refusal's document and headers; its detail."""
    assert response.status_code == status, response.text
    document = ElementTree.fromstring(response.content)
    assert document.findtext("Code") == str(status)
    detail = document.findtext("Detail")
    assert detail.startswith(f"SubCode={sub_code}. ")
    assert f"TrackingId:{response.headers['vitrine-tracking-id']}" in detail
    assert response.headers["vitrine-retryable"] == ("true" if "You can retry" in detail else "false")
    return detail


# Messages there and back


@pytest.mark.parametrize("body", [b"", b"\x00", EVERY_BYTE, EVERY_BYTE * 1023], ids=["empty", "1 byte", "every byte", "255 KB"])
def test_body_is_returned_byte_for_byte(queue, body):
    assert (queue.send(body).status_code, queue.send(body).status_code) == (201, 201)
    locked, taken = queue.lock(), queue.take()
    assert (locked.status_code, locked.content) == (201, body)
    assert (taken.status_code, taken.content) == (200, body)


def test_message_over_the_limit_of_its_queue_is_refused(queue):
    assert "262,144" in refused(queue.send(b"x" * (256 * KILOBYTE + 1)), 403, 40300)
    assert queue.stored() == []


@pytest.mark.parametrize("chunked", [False, True])
def test_body_over_the_limit_of_http_is_refused_while_it_streams(queue, chunked):
    size = 3 * MAX_BODY_BYTES
    content = (b"x" * 65536 for _ in range(size // 65536)) if chunked else b"x" * size
    response = CLIENT.post(f"{queue.url}/messages", headers=queue.headers(), content=content)
    refused(response, 413, 41300)
    assert queue.stored() == []


def test_properties_of_every_kind_are_returned(queue):
    sent = {
        "MessageId": "m-1",
        "CorrelationId": "c",
        "SessionId": "s",
        "PartitionKey": "s",
        "Label": "größe",
        "ReplyTo": "r",
        "ReplyToSessionId": "rs",
        "To": "t",
        "ViaPartitionKey": "v",
        "TimeToLive": 90.5,
    }
    custom = {
        "colour": '"red"',
        "quoted-number": '"5"',
        "count": "5",
        "big": "9223372036854775807",
        "ratio": "0.25",
        "urgent": "true",
        "nothing": "null",
        "due": '"Sun, 06 Nov 1994 08:49:37 GMT"',
        "bare": "High",
        "with_underscore": "1",
    }
    headers = {"BrokerProperties": json.dumps(sent), "content-type": "text/plain; charset=utf-8"} | custom
    assert queue.send(b"x", **headers).is_success
    (stored,) = queue.stored()
    assert stored.raw_application_properties == {
        "colour": ["string", "red"],
        "quoted-number": ["string", "5"],
        "count": ["int", "5"],
        "big": ["long", "9223372036854775807"],
        "ratio": ["double", "0.25"],
        "urgent": ["boolean", "true"],
        "nothing": ["null", None],
        "due": ["timestamp", "1994-11-06T08:49:37+00:00"],
        "bare": ["string", "High"],
        "with_underscore": ["int", "1"],
    }
    response = queue.lock()
    answered = broker_properties(response)
    assert {key: answered[key] for key in sent} == sent
    assert (answered["DeliveryCount"], answered["SequenceNumber"], answered["State"]) == (1, 1, "Active")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert {name: response.headers[name] for name in custom} == custom | {"bare": '"High"'}


def test_property_whose_name_is_not_a_header_name_is_not_lost(queue):
    service_bus.send(queue.address, [Message(b"x", properties={"Größe": 5, "Date": "x"})])
    assert json.loads(queue.take().headers["vitrine-properties"]) == {"Größe": 5, "Date": "x"}
    assert queue.send(b"x", **{"Vitrine-Properties": '{"Gr\\u00f6\\u00dfe":5,"Case":"Kept"}'}).is_success
    assert queue.stored()[0].properties == {"Größe": 5, "Case": "Kept"}


def test_message_sent_by_python_equals_message_sent_by_http(queue):
    service_bus.send(
        queue.address, [Message(b"x", subject="s", properties={"when": datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)})]
    )
    response = queue.take()
    assert broker_properties(response)["Label"] == "s"
    assert response.headers["when"] == '"Sun, 06 Nov 1994 08:49:37 GMT"'


# Batches


def batch(queue, items, content_type: str = "application/vnd.microsoft.servicebus.json"):
    return queue.send(json.dumps(items).encode(), **{"content-type": content_type, "ignored": "1"})


def test_batch_is_stored_in_order(queue):
    items = [
        {"Body": "first", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {"Body": "AP8=", "IsBodyBase64": True, "UserProperties": {"Priority": "Low", "n": 5}},
    ]
    assert batch(queue, items).status_code == 201
    first, second = queue.stored()
    assert (first.body, first.subject, first.time_to_live, first.properties) == (b"first", "M1", timedelta(seconds=40), {})
    assert (second.body, second.properties) == (b"\x00\xff", {"Priority": "Low", "n": 5})


@pytest.mark.parametrize(
    ("item", "status", "says"),
    [
        ({"Body": 5}, 400, "[1].Body"),
        ({"Body": "", "BrokerProperties": {"TimeToLive": -1}}, 400, "[1].BrokerProperties.TimeToLive"),
        ({"Body": "", "BrokerProperties": {"MessageId": "x" * 129}}, 400, "message_id"),
        ({"Body": "", "BrokerProperties": {"SessionId": "a", "PartitionKey": "b"}}, 400, "session_id"),
        ({"Body": "x" * (256 * KILOBYTE + 1)}, 403, "262,144"),
        ({"Body": "", "UserProperties": {"big": "x" * 40_000}}, 403, "big"),
    ],
)
def test_batch_with_one_bad_message_stores_nothing(queue, item, status, says):
    response = batch(queue, [{"Body": "good"}, item, {"Body": "good"}])
    assert says in refused(response, status, {400: 40000, 403: 40300}[status])
    assert queue.stored() == []


def test_batch_with_a_charset_is_refused_instead_of_sent_as_one_message(queue):
    refused(batch(queue, [{"Body": ""}], "application/vnd.microsoft.servicebus.json; charset=utf-8"), 400, 40000)
    assert queue.stored() == []


def test_bad_message_among_concurrent_sends_does_not_affect_the_others(queue):
    bodies = [b"good"] * 15 + [b"x" * (256 * KILOBYTE + 1)]
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda body: queue.send(body).status_code, bodies))
    assert statuses == [201] * 15 + [403]
    assert [message.sequence_number for message in queue.stored()] == list(range(1, 16))


# Scheduling, dead letters, paths


def test_scheduled_message_is_available_when_it_is_due(queue):
    namespaces.pause_clock(queue.address.namespace)
    due = namespaces.get_clock(queue.address.namespace).now + timedelta(minutes=5)
    assert queue.send(b"later", BrokerProperties=json.dumps({"ScheduledEnqueueTimeUtc": due.isoformat()})).status_code == 201
    assert queue.lock().status_code == 204
    assert queue.stored()[0].state is MessageState.SCHEDULED
    namespaces.step_clock(queue.address.namespace, timedelta(minutes=5, seconds=1))
    response = queue.lock()
    assert (response.status_code, response.content) == (201, b"later")
    assert broker_properties(response)["SequenceNumber"] == 2  # appended anew (SB-047)


def test_dead_letters_are_received_and_settled_with_their_reason(make_queue):
    queue = make_queue(max_delivery_count=1)
    queue.send(b"poison")
    assert queue.request("PUT", queue.lock().headers["location"]).status_code == 200
    assert queue.lock().status_code == 204
    dead = queue.dead_letters.lock()
    assert (dead.status_code, dead.content, dead.headers["DeadLetterReason"]) == (201, b"poison", '"MaxDeliveryCountExceeded"')
    assert dead.headers["DeadLetterErrorDescription"].startswith('"Message could not be consumed')
    assert broker_properties(dead)["DeliveryCount"] == 1
    assert "$DeadLetterQueue/messages/1/" in dead.headers["location"]
    assert queue.request("DELETE", dead.headers["location"]).status_code == 200
    assert queue.dead_letters.lock().status_code == 204
    assert "dead-lettering" in refused(queue.dead_letters.send(), 400, 40000)


@pytest.mark.parametrize("path", ["a/b/orders", "messages", "head", "a/messages/b", "with.dots-and_more"])
def test_paths_may_contain_slashes_and_words_of_the_api(make_queue, path):
    queue = make_queue(path)
    assert queue.send().status_code == 201
    locked = queue.lock()
    assert locked.status_code == 201
    assert queue.request("DELETE", locked.headers["location"]).status_code == 200


def test_location_has_the_host_of_the_request(queue):
    queue.send()
    port = httpx.URL(queue.site).port
    token = queue.token(f"http://some.name/servicebus/{queue.address}")
    headers = {"authorization": token, "host": f"some.name:{port}"}
    locked = CLIENT.post(f"{queue.url}/messages/head?timeout=0", headers=headers)
    properties = broker_properties(locked)
    expected = f"http://some.name:{port}/servicebus/{queue.address}/messages/1/{properties['LockToken']}"
    assert locked.headers["location"] == expected


@pytest.mark.parametrize("message_id", ["1", "my-id", "my%2Fid"])
def test_lock_is_found_by_its_token_with_any_message_id(queue, message_id):
    queue.send(b"x", BrokerProperties='{"MessageId":"my-id"}')
    token = broker_properties(queue.lock())["LockToken"]
    assert queue.request("DELETE", f"/messages/{message_id}/{token}").status_code == 200
    assert queue.stored() == []


# Locks


def test_second_complete_is_refused_as_lock_lost(queue):
    queue.send()
    location = queue.lock().headers["location"]
    assert queue.request("DELETE", location).status_code == 200
    assert queue.stored() == []
    for method in ("DELETE", "PUT", "POST"):
        refused(queue.request(method, location), 404, 40401)


def test_unlock_counts_as_a_failed_delivery(queue):
    queue.send()
    assert queue.request("PUT", queue.lock().headers["location"]).status_code == 200
    again = queue.lock()
    assert (again.status_code, broker_properties(again)["DeliveryCount"]) == (201, 2)


def test_lock_that_ends_while_the_client_works_is_lost(queue):
    namespaces.pause_clock(queue.address.namespace)
    queue.send()
    location = queue.lock().headers["location"]
    namespaces.step_clock(queue.address.namespace, timedelta(seconds=61))
    assert "It expired" in refused(queue.request("DELETE", location), 404, 40401)
    again = queue.lock()
    assert (again.status_code, broker_properties(again)["DeliveryCount"]) == (201, 2)
    refused(queue.request("DELETE", location), 404, 40401)  # the old token against the new lock
    assert queue.request("DELETE", again.headers["location"]).status_code == 200


def test_renewed_lock_lasts_longer(queue):
    namespaces.pause_clock(queue.address.namespace)
    queue.send()
    locked = queue.lock()
    namespaces.step_clock(queue.address.namespace, timedelta(seconds=50))
    renewed = queue.request("POST", locked.headers["location"])
    assert renewed.status_code == 200
    assert broker_properties(renewed)["LockedUntilUtc"] != broker_properties(locked)["LockedUntilUtc"]
    namespaces.step_clock(queue.address.namespace, timedelta(seconds=50))
    assert queue.lock().status_code == 204
    assert queue.request("DELETE", locked.headers["location"]).status_code == 200


def test_foreign_and_malformed_lock_tokens_are_refused(make_queue):
    mine, other = make_queue(namespace="locks-a"), make_queue("other", namespace="locks-a")
    mine.send()
    token = broker_properties(mine.lock())["LockToken"]
    refused(other.request("DELETE", f"/messages/1/{token}"), 404, 40401)
    refused(mine.request("DELETE", f"/messages/1/{uuid4()}"), 404, 40401)
    assert "lock token" in refused(mine.request("DELETE", "/messages/1/nonsense"), 400, 40000)
    assert mine.request("DELETE", f"/messages/1/{token}").status_code == 200


# Receiving


def test_concurrent_receivers_get_different_messages(queue):
    service_bus.send(queue.address, [Message(bytes([n])) for n in range(60)])
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: queue.lock(), range(60)))
    assert {response.status_code for response in responses} == {201}
    assert sorted(response.content for response in responses) == [bytes([n]) for n in range(60)]
    with ThreadPoolExecutor(8) as pool:
        settled = list(pool.map(lambda response: queue.request("DELETE", response.headers["location"]).status_code, responses))
    assert settled == [200] * 60
    assert queue.stored() == []


def test_empty_queue_returns_204_immediately_or_after_the_timeout(queue):
    began = time.monotonic()
    assert queue.lock(0).status_code == 204
    assert time.monotonic() - began < 1
    began = time.monotonic()
    assert queue.lock(0.3).status_code == 204
    assert 0.25 < time.monotonic() - began < 2


@pytest.mark.parametrize("method", ["lock", "take"])
def test_waiting_receive_is_woken_by_a_message(queue, method):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(getattr(queue, method), 30)
        eventually(lambda: has_waiting_receiver(queue.address))
        began = time.monotonic()
        service_bus.send(queue.address, [Message(b"now")])
        response = waiting.result(10)
    assert response.content == b"now"
    assert time.monotonic() - began < 1.5


def test_many_waiting_receivers_share_the_messages(queue):
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(queue.take, 2) for _ in range(10)]
        eventually(lambda: has_waiting_receiver(queue.address))
        service_bus.send(queue.address, [Message(bytes([n])) for n in range(6)])
        responses = [future.result(15) for future in waiting]
    assert sorted(response.status_code for response in responses) == [200] * 6 + [204] * 4
    assert sorted(response.content for response in responses if response.content) == [bytes([n]) for n in range(6)]


def raw_receive(queue, timeout: int) -> socket.socket:
    """A peek-lock over a bare socket, so that the client can vanish."""
    url = httpx.URL(f"{queue.url}/messages/head?timeout={timeout}")
    connection = socket.create_connection((url.host, url.port))
    lines = [
        f"POST {url.raw_path.decode()} HTTP/1.1",
        f"Host: {url.host}",
        f"Authorization: {queue.token()}",
        "Content-Length: 0",
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    return connection


def test_message_is_not_delivered_to_a_disconnected_receiver(queue):
    connection = raw_receive(queue, 60)
    eventually(lambda: has_waiting_receiver(queue.address))
    connection.close()
    service_bus.send(queue.address, [Message(b"x")])
    response = queue.lock(5)
    assert (response.status_code, broker_properties(response)["DeliveryCount"]) == (201, 1)


def test_client_that_disconnects_at_any_moment_leaves_no_message_locked(queue):
    """Send and hang up at the same time, often: whoever comes next gets the message, and no delivery was counted."""
    for _ in range(20):
        connection = raw_receive(queue, 60)
        eventually(lambda: has_waiting_receiver(queue.address))
        sender = threading.Thread(target=service_bus.send, args=(queue.address, [Message(b"x")]))
        sender.start()
        connection.close()
        sender.join()
        response = queue.lock(5)
        assert (response.status_code, broker_properties(response)["DeliveryCount"]) == (201, 1)
        assert queue.request("DELETE", response.headers["location"]).status_code == 200


@pytest.mark.parametrize("timeout", ["-1", "soon", "1e9"])
def test_timeout_out_of_range_is_refused(queue, timeout):
    assert "timeout" in refused(queue.lock(timeout), 400, 40000)


# Tokens and rights


@pytest.mark.parametrize("recipe", [python_recipe, javascript_recipe])
def test_tokens_created_by_the_common_recipes_are_accepted(queue, recipe):
    token = recipe(queue.url, queue.policy, queue.key, int(time.time()) + 60)
    assert CLIENT.post(f"{queue.url}/messages", headers={"authorization": token}).status_code == 201


def test_missing_tokens_and_other_schemes_are_refused(queue):
    assert "no token" in refused(CLIENT.post(f"{queue.url}/messages"), 401, 40100)
    response = CLIENT.post(f"{queue.url}/messages", headers={"authorization": "Bearer abc"})
    assert "Bearer" in refused(response, 401, 40100)
    assert response.headers["www-authenticate"] == "SharedAccessSignature"


def test_wrong_expired_and_foreign_tokens_are_refused(make_queue):
    queue, other = make_queue(), make_queue("orders2")
    for token, sub_code, says in [
        (queue.token(key="wrong"), 40103, "signature"),
        (queue.token(policy="nobody"), 40103, "'nobody'"),
        (other.token(queue.url), 40103, "signature"),
        (queue.token(seconds=-5), 40106, "expired at"),
        (queue.token(queue.url + "2"), 40104, "orders2"),
        (queue.token(f"http://elsewhere/servicebus/{queue.address}"), 40104, "elsewhere"),
    ]:
        response = CLIENT.post(f"{queue.url}/messages", headers={"authorization": token})
        assert says in refused(response, 401, sub_code)
    assert queue.stored() == []


@pytest.fixture
def published(queue, monkeypatch):
    """An entity whose namespace has a policy with the key that everybody knows."""
    monkeypatch.setattr(shared_access, "new_key", lambda: sas.PUBLISHED_KEY)
    return replace(queue, key=shared_access.regenerate_key(queue.address.namespace, queue.policy).primary_key)


def test_the_published_key_is_accepted_only_from_this_machine_and_not_from_pages(published, settings):
    host = published.site.removeprefix("http://")
    assert published.send().status_code == 201
    for headers in ({"origin": published.site}, {"sec-fetch-site": "cross-site"}):
        assert "Web pages" in refused(published.send(**headers), 403, 40302)
    elsewhere = published.token(f"http://evil.example/servicebus/{published.address}")
    response = published.send(host=host.replace("127.0.0.1", "evil.example"), authorization=elsewhere)
    assert "ALLOWED_HOSTS" in refused(response, 403, 40302)
    settings.WELL_KNOWN_KEYS = "off"
    assert "WELL_KNOWN_KEYS" in refused(published.send(), 403, 40302)
    own = replace(published, key=shared_access.get_policy(published.address.namespace, published.policy).secondary_key)
    assert own.send(origin="http://evil.example").status_code == 201
    assert len(published.stored()) == 2


def test_an_address_with_many_failed_authentications_is_refused_for_a_while(queue, monkeypatch, settings):
    settings.FAILED_AUTHENTICATIONS, settings.FAILED_AUTHENTICATION_DELAY_SECONDS = 3, 1
    waits = []

    async def wait(seconds):
        waits.append(seconds)

    monkeypatch.setattr(http_requests, "failed_authentications", FailedAuthentications(lambda: 1000.0, wait))
    for token in ("", "Bearer abc", queue.token(key="wrong"), queue.token(seconds=-5), queue.token(policy="nobody")):
        assert CLIENT.post(f"{queue.url}/messages", headers={"authorization": token}).status_code == 401
    assert waits == [1, 1, 1]  # not of what is no token
    response = queue.send()
    assert "refused for another 60 s" in refused(response, 429, 42900)
    assert response.headers["retry-after"] == "60"
    assert queue.stored() == []


def as_written(queue, path: str, token: str) -> int:
    """The status of an empty POST to a path that no client has normalised."""
    connection = http.client.HTTPConnection(queue.site.removeprefix("http://"), timeout=20)
    connection.request("POST", path, headers={"authorization": token})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/%73ervicebus/{plain}/servicebus/{race}/messages", 410),
        ("/%73ervicebus/{plain}/servicebus/{race}/messages/head?timeout=0", 410),
        ("/servicebus/{plain}/servicebus/{race}/messages", 410),
        ("/servicebus/{plain}/../h-race/messages", 400),
        ("/servicebus/{plain}/%2e%2e/h-race/messages", 400),
        ("/servicebus/{plain}%2F..%2fh-race/messages", 400),
        ("/servicebus/{plain}//h-race/messages", 400),
        ("//servicebus/{race}/messages", 404),
        ("/servicebus%2F{race}/messages", 404),
        ("/servicebus/{namespace}%2Fh-race/q/messages", 400),
        ("/servicebus/{namespace}/h-%72ace/messages", 401),
        ("/servicebus/{namespace}/H-RACE/messages", 401),
        ("/servicebus/{namespace}/h-plain%252F..%252Fh-race/messages", 401),
        ("/servicebus/{namespace}/h-%70lain/messages", 201),
        ("/%73ervicebus/{namespace}/H-Plain/messages", 201),
    ],
)
def test_token_for_a_queue_is_refused_for_others_in_any_spelling_of_the_address(make_queue, path, status):
    """Regression: an encoded mount let a token for one queue send to, and receive from, any other of its namespace."""
    plain = make_queue("h-plain")
    race = make_queue("h-race", namespace=plain.address.namespace)
    race.send(b"secret")
    path = path.format(plain=plain.address, race=race.address, namespace=plain.address.namespace)
    assert as_written(plain, path, plain.token(plain.url)) == status
    assert [message.body for message in race.stored()] == [b"secret"]
    assert len(plain.stored()) == (status == 201)


def test_regenerated_key_is_valid_immediately_and_invalidates_the_old_key(queue):
    assert queue.send().status_code == 201
    new = shared_access.regenerate_key(queue.address.namespace, queue.policy)
    assert CLIENT.post(f"{queue.url}/messages", headers={"authorization": queue.token(key=new.primary_key)}).status_code == 201
    eventually(lambda: queue.send().status_code == 401)


def test_rights_are_those_of_the_policy(make_queue):
    queue = make_queue()
    other = make_queue("others", namespace=queue.address.namespace)
    sender = shared_access.create_policy(queue.address.namespace, "sender", send=True)
    listener = shared_access.create_policy(queue.address, "listener", listen=True)

    def as_(policy):
        return {"authorization": queue.token(key=policy.secondary_key, policy=policy.name)}

    assert CLIENT.post(f"{queue.url}/messages", headers=as_(sender)).status_code == 201
    assert "SEND" in refused(CLIENT.post(f"{queue.url}/messages", headers=as_(listener)), 401, 40105)
    assert "LISTEN" in refused(CLIENT.post(f"{queue.url}/messages/head?timeout=0", headers=as_(sender)), 401, 40105)
    refused(CLIENT.delete(f"{queue.url}/messages/1/{uuid4()}", headers=as_(sender)), 401, 40105)
    refused(CLIENT.post(f"{other.url}/messages/head?timeout=0", headers=as_(listener)), 401, 40103)
    assert CLIENT.post(f"{queue.url}/messages/head?timeout=0", headers=as_(listener)).status_code == 201


def test_holder_of_a_lock_is_named(queue):
    def holders():
        with_locks = entities.get_queue(queue.address)
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT locked_by FROM vitrine_message WHERE entity_id = %s ORDER BY 1", [with_locks.id])
            return [row[0] for row in cursor.fetchall()]

    queue.send(), queue.send()
    queue.lock()
    queue.request("POST", "/messages/head?timeout=0", headers={"Vitrine-Holder": "worker-7"})
    assert holders() == ["http:RootManageSharedAccessKey@127.0.0.1", "http:RootManageSharedAccessKey@worker-7"]


# Refusals


def test_unknown_queue_and_namespace_are_not_found(queue):
    missing = f"{queue.site}/servicebus/{queue.address.namespace}/missing"
    for method, url in [("POST", "/messages"), ("POST", "/messages/head?timeout=0"), ("DELETE", "/messages/head?timeout=0")]:
        assert "could not be found" in refused(queue.request(method, missing + url), 410, 41000)
    refused(queue.request("DELETE", f"{missing}/messages/1/{uuid4()}"), 410, 41000)
    refused(queue.request("POST", f"{queue.site}/servicebus/nowhere/q/messages"), 401, 40103)


def test_deleted_queue_is_gone_and_its_successor_is_found(queue):
    queue.send()
    entities.delete_queue(queue.address)
    refused(queue.send(), 410, 41000)
    entities.create_queue(queue.address)
    assert queue.send().status_code == 201
    assert [message.sequence_number for message in queue.stored()] == [1]


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"BrokerProperties": "{"}, "header BrokerProperties"),
        ({"BrokerProperties": '{"TimeToLive":"soon"}'}, "BrokerProperties.TimeToLive"),
        ({"BrokerProperties": '{"ScheduledEnqueueTimeUtc":"soon"}'}, "BrokerProperties.ScheduledEnqueueTimeUtc"),
        ({"BrokerProperties": json.dumps({"MessageId": "x" * 129})}, "message_id"),
        ({"BrokerProperties": '{"SessionId":"a","PartitionKey":"b"}'}, "session_id"),
        ({"colour": '"open'}, "header colour"),
        ({"count": "99999999999999999999"}, "header count"),
    ],
)
def test_malformed_headers_are_refused_by_name(queue, headers, says):
    assert says in refused(queue.send(b"x", **headers), 400, 40000)
    assert queue.stored() == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"5"])
def test_malformed_batch_is_refused(queue, body):
    response = queue.send(body, **{"content-type": "application/vnd.microsoft.servicebus.json"})
    assert "body" in refused(response, 400, 40000)


def test_unknown_methods_and_urls_are_refused(queue):
    response = queue.request("GET", "/messages")
    refused(response, 405, 40500)
    assert response.headers["allow"] == "POST"
    assert queue.request("PATCH", "/messages/head").headers["allow"] == "POST, DELETE"
    refused(queue.request("POST", "/message"), 404, 40400)


@pytest.mark.parametrize(("status", "allowed"), [("Disabled", []), ("SendDisabled", ["lock"]), ("ReceiveDisabled", ["send"])])
def test_status_of_the_queue_is_respected(queue, status, allowed):
    queue.send()
    entities.update_queue(queue.address, status=status)
    for operation in ("send", "lock"):
        response = getattr(queue, operation)()
        if operation in allowed:
            assert response.status_code == 201
        else:
            assert status in refused(response, 403, 40301)


def test_unavailable_database_is_reported_with_a_retry_time(queue, monkeypatch):
    queue.send()  # the policy is remembered

    async def unreachable(*args, **kwargs):
        from broker_core.common.errors import BrokerUnavailable

        raise BrokerUnavailable("The database does not answer.")

    for use_case in (service_bus.send, service_bus.receive):
        monkeypatch.setattr(use_case, "aio", unreachable, raising=False)
    for response in (queue.send(), queue.lock()):
        assert "does not answer" in refused(response, 503, 50002)
        assert response.headers["retry-after"] == "2"
        assert response.headers["vitrine-retryable"] == "true"


def test_internal_error_shows_no_stack_trace(queue, monkeypatch):
    async def broken(*args, **kwargs):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(service_bus.send, "aio", broken, raising=False)
    detail = refused(queue.send(), 500, 50000)
    assert "secret" not in detail and "Traceback" not in detail


@pytest.mark.slow
@pytest.mark.asyncio
async def test_many_messages_are_sent_and_received_over_many_connections(queue):
    limits = httpx.Limits(max_connections=32)
    async with httpx.AsyncClient(headers=queue.headers(), limits=limits, timeout=60) as client:
        sent = await asyncio.gather(*[client.post(f"{queue.url}/messages", content=str(n).encode()) for n in range(300)])
        assert {response.status_code for response in sent} == {201}
        bodies = []

        async def work():
            while (locked := await client.post(f"{queue.url}/messages/head?timeout=0")).status_code == 201:
                bodies.append(locked.content)
                assert (await client.delete(locked.headers["location"])).status_code == 200

        await asyncio.gather(*[work() for _ in range(32)])
    assert sorted(map(int, bodies)) == list(range(300))
    assert await asyncio.to_thread(queue.stored) == []


# Completing with the next receive


def complete_and_lock(queue, tokens: str, timeout: float = 0) -> httpx.Response:
    return queue.request("POST", f"/messages/head?timeout={timeout}", headers={"vitrine-complete": tokens})


def test_peek_lock_completes_the_last_messages_first(queue):
    for n in range(4):
        queue.send(str(n).encode())
    first, second = (broker_properties(queue.lock())["LockToken"] for _ in range(2))
    third = complete_and_lock(queue, f"{first}, {second}")
    assert (third.status_code, third.content, third.headers.get("vitrine-lost-locks")) == (201, b"2", None)
    assert [message.body for message in queue.stored()] == [b"2", b"3"]
    fourth = complete_and_lock(queue, broker_properties(third)["LockToken"])
    last = complete_and_lock(queue, broker_properties(fourth)["LockToken"])
    assert (last.status_code, queue.stored()) == (204, [])


def test_lost_locks_are_named_and_the_other_messages_are_completed(queue):
    """SB-071"""
    for n in range(3):
        queue.send(str(n).encode())
    good = broker_properties(queue.lock())["LockToken"]
    lost = str(uuid4())
    answer = complete_and_lock(queue, f"{lost},{good}, {good}")
    assert (answer.status_code, answer.content, answer.headers["vitrine-lost-locks"]) == (201, b"1", lost)
    queue.lock()
    empty = complete_and_lock(queue, good)
    assert (empty.status_code, empty.headers["vitrine-lost-locks"]) == (204, good)


@pytest.mark.parametrize("tokens", ["", "no token", "{token},", "{token} {token}"])
def test_invalid_tokens_are_refused_and_change_nothing(queue, tokens):
    queue.send(b"a")
    queue.send(b"b")
    token = broker_properties(queue.lock())["LockToken"]
    assert "must be a UUID" in refused(complete_and_lock(queue, tokens.format(token=token)), 400, 40000)
    assert len(queue.stored()) == 2
    assert queue.lock().content == b"b"


def test_messages_are_completed_before_the_wait_for_the_next_message(queue):
    queue.send(b"a")
    token = broker_properties(queue.lock())["LockToken"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(complete_and_lock, queue, token, 20)
        eventually(lambda: not queue.stored())
        queue.send(b"b")
        assert waiting.result().content == b"b"
