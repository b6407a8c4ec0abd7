"""The live pages: whom a socket serves, what it tells, and what a real browser makes of it."""

import asyncio
import json
import re
import socket
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from asgiref.testing import ApplicationCommunicator  # channels.testing needs daphne
from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client, RequestFactory
from django.urls import reverse
from playwright.sync_api import expect

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.types import Actor, EntityAddress, EventKind, Family, Right
from broker_core.history.feed import Follower, NewEvents
from broker_core.reads import ClockReading
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store.connections import Database
from explorer.live import consumers, page
from explorer.live import feed as feeds
from explorer.live.consumers import LiveConsumer
from explorer.live.feed import Feed, Watched
from explorer.live.instants import epoch_ms
from explorer.live.page import REFRESH_SECONDS
from explorer.pages import entity_page
from explorer.queue_storage.rows import Progress
from explorer.queue_storage.tags import progress
from explorer.templatetags.explorer import ago, countdown
from explorer.templatetags.live import live_address
from tests.eventually import eventually, eventually_aio

HOST = "testserver.example"


@pytest.fixture
def queue(transactional_db):
    """A queue in a namespace of its own."""
    address = EntityAddress(f"live-{uuid.uuid4().hex[:8]}", "orders")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    return address


@pytest.fixture
def cookie(person):
    """A function: the Cookie header of a person with a role."""

    def make(role="operator"):
        client = Client()
        client.force_login(person(role, username=f"{role}-{uuid.uuid4().hex[:6]}"))
        return cookies_of(client)

    return make


def cookies_of(client):
    return "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())


def page_of(queue, query=""):
    return f"/entities/{queue.namespace}/{queue.path}{query}"


@pytest.fixture(autouse=True)
def _host_is_allowed(settings):
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, HOST]


def socket_to(page, cookie=None, origin=f"https://{HOST}", host=HOST):
    from explorer.site.asgi import application

    headers = [(b"host", host.encode())]
    if origin:
        headers.append((b"origin", origin.encode()))
    if cookie:
        headers.append((b"cookie", cookie.encode()))
    query = f"page={quote(page, safe='')}".encode()
    return Socket(
        application,
        {"type": "websocket", "scheme": "wss", "path": "/live/", "query_string": query, "headers": headers, "subprotocols": []},
    )


class Socket(ApplicationCommunicator):
    """A browser's end of a WebSocket."""

    async def connect(self) -> bool:
        await self.send_input({"type": "websocket.connect"})
        return (await self.receive_output(timeout=5))["type"] == "websocket.accept"

    async def send(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def receive(self, timeout: float = 5) -> dict:
        return json.loads((await self.receive_output(timeout))["text"])

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(timeout=5)


async def frame(communicator, wanted=lambda frame: True, seconds=5):
    """The next frame that is no heartbeat and is wanted."""
    async with asyncio.timeout(seconds):
        while True:
            found = await communicator.receive(seconds)
            if "beat" not in found and wanted(found):
                return found


async def opened(page, cookie):
    communicator = socket_to(page, cookie)
    assert await communicator.connect()
    return communicator, await frame(communicator)


def html(told):
    return "".join(told.get("fragments", ()))


def rows(told):
    """The rows in a frame's fragments, from top to bottom, by their ids."""
    return dict(re.findall(r'<tr\s+id="([^"]+)"[^>]*>(.*?)</tr>', html(told), re.DOTALL))


def text_of(told, element_id):
    """The text of an element in a frame; None: it is not there."""
    found = re.search(rf'id="{element_id}"[^>]*>\s*(?:<[^/][^>]*>)?\s*([^<]*?)\s*<', html(told))
    return found and found[1]


def has_list(told):
    return 'id="messages"' in html(told)


# Whom it serves


async def test_anonymous_connections_are_refused(queue):
    assert not await socket_to(page_of(queue)).connect()


@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"https://{HOST}.evil.example", f"https://{HOST}:8443", "null", "", None]
)
async def test_connections_from_other_sites_are_refused(queue, cookie, settings, origin):
    settings.ALLOWED_HOSTS = ["*"]  # this must not open it
    assert not await socket_to(page_of(queue), cookie(), origin).connect()


@pytest.mark.parametrize(
    ("hosts", "trusted", "scheme", "origin", "is_served"),
    [
        ([HOST], [], "wss", f"https://{HOST}", True),
        ([HOST], [], "ws", f"http://{HOST}", True),
        ([".example"], [], "ws", f"http://{HOST}", True),
        (["other.example"], [], "ws", f"http://{HOST}", False),  # a name of another site that leads to this one
        ([HOST], [], "ws", f"https://{HOST}", False),
        ([HOST], [], "wss", f"http://{HOST}", False),
        ([HOST], [f"https://{HOST}"], "ws", f"https://{HOST}", True),  # behind a proxy that ends TLS
        ([HOST], ["https://*.example"], "ws", f"https://{HOST}", True),
        ([HOST], [f"http://{HOST}"], "wss", f"http://{HOST}", False),
    ],
)
def test_the_origin_must_have_an_allowed_host_and_the_scheme_of_the_site(settings, hosts, trusted, scheme, origin, is_served):
    settings.ALLOWED_HOSTS, settings.CSRF_TRUSTED_ORIGINS = hosts, trusted
    headers = [(b"host", HOST.encode()), (b"origin", origin.encode())]
    assert consumers.is_same_origin({"scheme": scheme, "headers": headers}) is is_served


@pytest.mark.parametrize("page", ["/administration/activity/", "/nothing/at/all", "//evil.example/"])
async def test_pages_without_live_updates_are_refused(queue, cookie, page):
    assert not await socket_to(page, cookie()).connect()


async def test_without_the_right_to_browse_a_connection_is_refused(queue, cookie):
    communicator, told = await opened(page_of(queue), cookie(None))
    assert "You need the role viewer to view" in told["refused"]
    await communicator.disconnect()
    assert not Feed.of_running_loop()._pages


async def test_a_missing_queue_is_refused_with_the_reason(queue, cookie):
    communicator, told = await opened("/entities/nowhere/nothing", cookie())
    assert "could not be found" in told["refused"]
    await communicator.disconnect()


async def test_a_refused_page_has_no_state(queue, cookie):
    communicator, told = await opened("/entities/nowhere/nothing", cookie())
    assert "refused" in told
    await communicator.send("{}")
    await communicator.send(json.dumps({"page": page_of(queue)}))
    told = await frame(communicator)
    assert has_list(told) and rows(told) == {}
    await communicator.disconnect()


async def test_viewers_of_a_deleted_queue_are_notified_and_see_the_recreated_queue(queue, cookie, monkeypatch):
    monkeypatch.setattr(feeds, "REFRESH_SECONDS", 0.3)
    monkeypatch.setattr(page, "REFRESH_SECONDS", 0.3)
    communicator, _ = await opened(page_of(queue), cookie())
    entities.delete_queue(queue)
    assert "could not be found" in (await frame(communicator))["refused"]
    entities.create_queue(queue)
    told = await frame(communicator, lambda told: "refused" not in told)
    assert has_list(told) and rows(told) == {}
    await communicator.disconnect()


def _is_deactivated(client):
    get_user_model().objects.update(is_active=False)


def _loses_the_role(client):
    get_user_model().objects.get().groups.clear()


def _signs_out(client):
    client.post(reverse("explorer:sign_out"))


def _changes_the_password(client):
    person = get_user_model().objects.get()
    person.set_password("another one")
    person.save()


@pytest.mark.parametrize("what", [_is_deactivated, _loses_the_role, _signs_out, _changes_the_password])
async def test_a_viewer_who_loses_the_rights_is_disconnected(queue, person, monkeypatch, what):
    monkeypatch.setattr("explorer.live.consumers.RIGHTS_BEATS", 1)
    client = Client()
    await database_sync_to_async(client.force_login)(await database_sync_to_async(person)("operator"))
    communicator, _ = await opened(page_of(queue), cookies_of(client))
    await database_sync_to_async(what)(client)
    async with asyncio.timeout(5):
        while (await communicator.receive_output(timeout=5))["type"] != "websocket.close":
            pass
    await communicator.disconnect()


# What it tells


async def test_a_new_connection_receives_the_current_state(queue, cookie):
    service_bus.send(queue, [Message(b"x", message_id="first"), Message(b"y", message_id="second")])
    communicator, told = await opened(page_of(queue), cookie())
    second, first = rows(told).values()
    assert "first" in first and "second" in second and "body" not in first
    assert text_of(told, r"c-\d+-active") == "2"
    assert told["clock"]["rate"] == 1
    assert abs(told["clock"]["now"] / 1000 - time.time()) < 5
    await communicator.disconnect()


async def test_a_message_row_appears_is_locked_and_leaves_with_its_outcome(queue, cookie):
    communicator, told = await opened(page_of(queue), cookie())
    assert rows(told) == {}
    [number] = service_bus.send(queue, [Message(b"x")])
    told = await frame(communicator, has_list)
    [row_id] = rows(told)
    assert row_id.endswith(f"-0-{number}")
    [held] = service_bus.receive(queue)
    told = await frame(communicator, has_list)
    assert "data-deadline" in rows(told)[row_id] and told["left"] == {}
    service_bus.complete(queue, [held.lock_token])
    told = await frame(communicator, has_list)
    assert (told["left"], rows(told)) == ({row_id: "completed"}, {})
    await communicator.disconnect()


@pytest.mark.parametrize("is_received_first", [True, False])
async def test_a_message_that_leaves_during_a_rendering_leaves_with_its_outcome(is_received_first, queue, cookie, monkeypatch):
    """The events had been read before: none of this message, or only its receive."""
    service_bus.send(queue, [Message(b"x")])
    held = service_bus.receive(queue) if not is_received_first else []
    communicator, told = await opened(page_of(queue), cookie())
    assert len(rows(told)) == 1
    draw, numbers = page.View.draw, []

    def settle_then_draw(view, wanted):
        for one in held:
            service_bus.complete(queue, [one.lock_token])
            numbers.append(one.sequence_number)
        held.clear()
        return draw(view, wanted)

    monkeypatch.setattr(page.View, "draw", settle_then_draw)
    if is_received_first:
        held += service_bus.receive(queue)
    service_bus.send(queue, [Message(b"y")])
    told = await frame(communicator, lambda told: has_list(told) and numbers)
    assert list(told["left"].values()) == ["completed"] and len(rows(told)) == 1
    await communicator.disconnect()


async def test_a_row_of_a_rarely_rendered_list_leaves_with_its_outcome(queue, cookie, monkeypatch):
    """Such as a filtered one: other fragments are rendered when the message leaves."""
    monkeypatch.setattr(entity_page, "FILTERED_SECONDS", 1.0)
    [number] = service_bus.send(queue, [Message(b"x", subject="a")])
    communicator, told = await opened(page_of(queue, "?q=subject%3Aa"), cookie())
    [row_id] = rows(told)
    [held] = service_bus.receive(queue)
    service_bus.complete(queue, [held.lock_token])
    told = await frame(communicator, has_list)
    assert told["left"] == {row_id: "completed"}
    await communicator.disconnect()


@pytest.mark.slow
async def test_a_page_that_cannot_be_rendered_does_not_stop_the_others(queue, cookie, monkeypatch):
    broken, _ = await opened(page_of(queue), cookie("viewer"))
    communicator, told = await opened(page_of(queue), cookie("operator"))
    draw, failures = page.View.draw, []

    def fail_for_viewers(view, wanted):
        if not view.actor.rights & Right.OPERATE:
            failures.append(view)
            raise KeyError("a fault")
        return draw(view, wanted)

    monkeypatch.setattr(page.View, "draw", fail_for_viewers)
    for rows_wanted in (1, 2):
        service_bus.send(queue, [Message(b"x")])
        await frame(communicator, lambda told: has_list(told) and len(rows(told)) == rows_wanted, seconds=3)
    await eventually_aio(lambda: failures)
    assert len(failures) == 1  # it waits before the next attempt
    monkeypatch.setattr(page.View, "draw", draw)
    await frame(broken, lambda told: has_list(told) and len(rows(told)) == 2, seconds=feeds.BACK_OFF_SECONDS[1] + 5)
    for one in (broken, communicator):
        await one.disconnect()


def test_events_are_not_kept_for_longer_than_a_list_may_lag_behind_them(monkeypatch):
    """On a busy page, whose fragments are never all rendered at once."""
    now, kept = 1_000.0, int(feeds.SEEN_SECONDS)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    view: Any = SimpleNamespace()
    entity: Any = SimpleNamespace(id=7, address=EntityAddress("shop", "orders"))
    live = page.Live({}, entities=[entity], word=lambda kind: kind.name.lower())
    watched = Watched(view, live=live)
    for number in range(100 * kept):
        now += 1
        watched.note({Database(): NewEvents({7: {number: EventKind.COMPLETED}})})
        left = {"newest": (7, number), "older": (7, max(0, number - kept))}
        assert watched._reasons_left(live, left) == {"newest": "completed", "older": "completed"}
    assert watched._reasons_left(live, {"oldest": (7, 0)}) == {}
    assert len(watched.seen[7]) + len(watched.seen_before[7]) <= 2 * kept + 2


async def test_rows_pushed_off_the_page_leave_without_an_outcome(queue, cookie):
    service_bus.send(queue, [Message(b"x")] * 50)
    communicator, told = await opened(page_of(queue), cookie())
    service_bus.send(queue, [Message(b"x")])
    told = await frame(communicator, has_list)
    assert len(rows(told)) == 50 and told["left"] == {} and 'rel="next"' in html(told)
    await communicator.disconnect()


@pytest.mark.slow
async def test_only_the_fragments_that_look_different_are_sent(queue, cookie, monkeypatch):
    monkeypatch.setattr(page, "REFRESH_SECONDS", 0.3)
    communicator, told = await opened(page_of(queue), cookie())
    assert 'id="head"' in html(told) and has_list(told)
    [watched], began = Feed.of_running_loop()._pages.values(), time.monotonic()
    await eventually_aio(lambda: watched.rendered_at > began + 1, 20)  # ages and the time of reading are others
    with pytest.raises(TimeoutError):
        await frame(communicator, seconds=0.2)
    await communicator.disconnect()


async def test_the_header_of_a_queue_is_live(queue, cookie):
    """Its size, the age of its oldest message, and the chart of its traffic."""
    communicator, told = await opened(page_of(queue), cookie())
    assert size_of(told) == "0 B" and not has_age(told) and not has_traffic(told)
    service_bus.send(queue, [Message(b"x" * 100)])
    told = await frame(communicator, lambda told: 'id="head"' in html(told))
    assert size_of(told) != "0 B" and has_age(told) and has_traffic(told)
    service_bus.receive_and_delete(queue)
    told = await frame(communicator, lambda told: 'id="head"' in html(told))
    assert size_of(told) == "0 B" and not has_age(told)
    await communicator.disconnect()


def size_of(told):
    return re.search(r"<li>\s*([\d.]+)\s(\w+)\s*</li>", html(told)).expand(r"\1 \2")


def has_traffic(told):
    """Whether a line of the head's chart leaves zero."""
    lines = re.findall(r'<polyline[^>]*\spoints="([^"]*)"', html(told))
    assert lines
    return any(len({point.split(",")[1] for point in line.split()}) > 1 for line in lines)


def has_age(told):
    return re.search(r"oldest\s*<b>", html(told)) is not None


async def test_a_list_shows_the_events_of_its_own_tab(queue, cookie):
    service_bus.send(queue, [Message(b"x")])
    communicator, _ = await opened(page_of(queue, "?tab=dead-letter"), cookie())
    [held] = service_bus.receive(queue)
    service_bus.dead_letter(queue, [held.lock_token], "Broken")
    told = await frame(communicator, rows)
    [row] = rows(told).values()
    assert "Broken" in row
    assert "checkbox" in row  # this list can be acted on in bulk, and the live row too
    await communicator.disconnect()


async def test_a_topic_shows_the_messages_of_its_subscriptions(queue, cookie):
    topic = EntityAddress(queue.namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    communicator, told = await opened(page_of(topic), cookie())
    [row_id] = rows(told)
    assert row_id.startswith("e-") and "every message" in rows(told)[row_id]
    service_bus.send(topic, [Message(b"x")])
    told = await frame(communicator, rows)
    assert list(rows(told)) == [row_id] and '<td class="num">1</td>' in rows(told)[row_id]
    await communicator.disconnect()


async def test_the_overview_shows_copies_at_their_subscription_below_its_topic(queue, cookie):
    topic = EntityAddress(queue.namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    communicator, told = await opened(f"/namespaces/{queue.namespace}/", cookie())
    [row_id] = [key for key, row in rows(told).items() if " beneath" in row]
    service_bus.send(topic, [Message(b"x")])
    told = await frame(communicator, lambda told: re.search(r'-active"[^>]*>\s*1\s*<', rows(told).get(row_id, "")))
    assert " beneath" in rows(told)[row_id]
    await communicator.disconnect()


async def test_a_list_of_sessions_follows_an_accepted_session(queue, cookie):
    carts = EntityAddress(queue.namespace, "carts")
    entities.create_queue(carts, requires_session=True)
    service_bus.send(carts, [Message(b"x", session_id="a")])
    communicator, told = await opened(page_of(carts, "?tab=sessions"), cookie())
    assert "data-deadline" not in html(told)
    service_bus.accept_session(carts, "a", max_count=1)
    await frame(communicator, lambda told: "data-deadline" in html(told))
    await communicator.disconnect()


async def test_a_filtered_list_is_live_but_not_searched_at_each_event(queue, cookie, monkeypatch):
    monkeypatch.setattr(entity_page, "FILTERED_SECONDS", 1.5)
    service_bus.send(queue, [Message(b"x", message_id="wanted"), Message(b"x", message_id="other")])
    communicator, told = await opened(page_of(queue, "?q=id:wanted"), cookie())
    assert len(rows(told)) == 1
    began = time.monotonic()
    service_bus.send(queue, [Message(b"x", message_id="wanted, too")])
    service_bus.receive(queue)
    told = await frame(communicator, has_list)
    assert time.monotonic() - began > 1
    assert len(rows(told)) == 2 and "data-deadline" in html(told)
    await communicator.disconnect()


async def test_the_overview_updates_rows(queue, cookie):
    communicator, told = await opened(f"/namespaces/{queue.namespace}/", cookie())
    [row_id] = rows(told)
    service_bus.send(queue, [Message(b"x")] * 3)
    told = await frame(communicator, rows)
    assert list(rows(told)) == [row_id] and text_of(told, r"c-\d+-active") == "3"
    await communicator.disconnect()


async def test_a_message_page_follows_only_its_message(queue, cookie):
    first, _ = service_bus.send(queue, [Message(b"x"), Message(b"y")])
    communicator, told = await opened(f"/messages/{queue.namespace}/{queue.path}/{first}", cookie())
    assert "data-deadline" not in html(told)
    service_bus.receive(queue)
    await frame(communicator, lambda told: "data-deadline" in html(told))
    service_bus.receive(queue)  # the other message
    with pytest.raises(TimeoutError):
        await frame(communicator, seconds=0.8)
    await communicator.disconnect()


async def test_the_receive_page_updates_available_messages_and_the_users_locks(queue, cookie):
    service_bus.send(queue, [Message(b"x")] * 3)
    communicator, told = await opened(f"/receive/main/{queue.namespace}/{queue.path}", cookie())
    assert text_of(told, "available") == "3 messages"
    service_bus.receive(queue)  # somebody else
    after = await frame(communicator)
    assert text_of(after, "available") == "2 messages" and "data-deadline" not in html(after)
    name = get_user_model().objects.get().username
    service_bus.receive(queue, actor=Actor("user", name, Right.ALL))
    assert 'id="held-2"' in html(await frame(communicator))
    await communicator.disconnect()


async def test_messages_held_by_a_user_are_shown_only_to_that_user(queue, cookie):
    page = f"/receive/main/{queue.namespace}/{queue.path}"
    service_bus.send(queue, [Message(b"x")] * 3)
    one, _ = await opened(page, cookie())
    name = get_user_model().objects.get().username
    other, _ = await opened(page, cookie())
    service_bus.receive(queue, actor=Actor("user", name, Right.ALL))
    assert 'id="held-1"' in html(await frame(one))
    assert "held-1" not in html(await frame(other))
    for communicator in (one, other):
        await communicator.disconnect()


async def test_bodies_are_sent_only_to_users_with_the_right_to_see_them(queue, cookie):
    [number] = service_bus.send(queue, [Message(b"secret")])
    page = f"/messages/{queue.namespace}/{queue.path}/{number}"
    sees, told = await opened(page, cookie())
    assert "secret" in html(told)
    sees_not, told = await opened(page, cookie("viewer"))
    assert "secret" not in html(told)
    service_bus.receive(queue)
    assert "secret" not in html(await frame(sees_not))
    for communicator in (sees, sees_not):
        await communicator.disconnect()


async def test_no_frame_contains_a_csrf_token(queue, cookie):
    service_bus.send(queue, [Message(b"x")])
    communicator, told = await opened(page_of(queue), cookie())
    assert set(re.findall(r'name="csrfmiddlewaretoken" value="([^"]*)"', html(told))) == {"-"}
    await communicator.disconnect()


async def test_a_numbered_request_is_answered_before_the_state(queue, cookie):
    communicator, _ = await opened(page_of(queue), cookie())
    await communicator.send(json.dumps({"page": page_of(queue, "?tab=scheduled"), "ask": 7}))
    assert await frame(communicator) == {"asked": 7}
    assert rows(await frame(communicator)) == {}
    await communicator.disconnect()


async def test_a_requested_state_is_not_older_than_its_request(queue, cookie, monkeypatch):
    """Regression: a page that showed the outcome of an action was sent the state before it, and took the outcome back; whoever
    pressed the button that came next pressed the one before it again."""
    monkeypatch.setattr(feeds, "FRESH_SECONDS", 1.0)
    monkeypatch.setattr(Feed, "_note_news", lambda *_: None)  # no event makes the page due
    communicator, _ = await opened(page_of(queue), cookie())
    [watched] = Feed.of_running_loop()._pages.values()
    watched.drawn_at = dict.fromkeys(watched.drawn_at, time.monotonic())  # on a slow machine, too, just before
    service_bus.send(queue, [Message(b"x")])
    await communicator.send(json.dumps({"ask": 1}))
    assert await frame(communicator) == {"asked": 1}
    assert len(rows(await frame(communicator))) == 1
    await communicator.disconnect()


async def test_requests_of_a_page_that_come_together_share_a_rendering(queue, cookie, monkeypatch):
    """Those that come during one wait for the next one."""
    monkeypatch.setattr(feeds, "FRESH_SECONDS", 0.5)
    monkeypatch.setattr(Feed, "_note_news", lambda *_: None)
    operator = cookie()
    together = [(await opened(page_of(queue), operator))[0] for _ in range(5)]
    draw, drawn = Watched.draw, []
    monkeypatch.setattr(Watched, "draw", lambda page, *args, **kwargs: drawn.append(page) or draw(page, *args, **kwargs))
    for communicator in together:
        await communicator.send("{}")
    for communicator in together:
        await frame(communicator, has_list)
        await communicator.disconnect()
    assert len(drawn) <= 2


@pytest.mark.slow
async def test_frames_of_the_previous_page_are_dropped(db):
    consumer, sent = LiveConsumer(), []
    consumer.group, consumer.version = "here", 3

    async def send(text):
        sent.append(text)

    consumer.send = send
    for group, version in (("before", 9), ("here", 3), ("here", 4)):
        await consumer.live_frame({"group": group, "version": version, "frame": f"{group} {version}"})
    assert sent == ["here 4"]


async def test_a_browser_for_which_frames_were_dropped_is_sent_the_whole_state(queue, cookie):
    """The channel layer drops what comes while the queue of a slow browser is full."""
    communicator, told = await opened(page_of(queue), cookie())
    [watched] = Feed.of_running_loop()._pages.values()
    service_bus.send(queue, [Message(b"x")])
    newest = await frame(communicator, has_list)
    await Feed.of_running_loop()._send(watched.group, json.dumps({"version": 0, "fragments": []}), watched.version + 2)
    told = await frame(communicator)
    assert len(rows(told)) == 1 and told["version"] >= newest["version"]
    await communicator.disconnect()


async def test_a_socket_can_change_to_another_page(queue, cookie):
    communicator, _ = await opened(page_of(queue), cookie())
    await communicator.send(json.dumps({"page": page_of(queue, "?tab=scheduled")}))
    assert rows(await frame(communicator)) == {}
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=datetime.now(UTC) + timedelta(hours=1))])
    told = await frame(communicator, rows)
    assert "due in" in next(iter(rows(told).values()))
    for nonsense in (
        "",
        "[]",
        '{"page": 5}',
        '{"page": "/administration/activity/"}',
        "\x00",
        '{"ask": "7"}',
        json.dumps({"page": "x" * 5000}),
    ):
        await communicator.send(nonsense)
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=datetime.now(UTC) + timedelta(hours=1))])
    await frame(communicator, lambda told: len(rows(told)) == 2)  # it lives on
    await communicator.disconnect()


@pytest.mark.parametrize("name", ["eu/ünï 🦊 one", "50%", "a%20b"])
async def test_an_escaped_name_is_the_same_in_the_page_and_in_a_message(transactional_db, cookie, name):
    address = EntityAddress(f"live-{uuid.uuid4().hex[:8]}", name)
    rabbitmq.create_vhost(address.namespace)
    rabbitmq.declare_queue(address)
    at = reverse("explorer:entity", args=(address.namespace, address.path))  # as a browser's location has it
    drawn = RequestFactory().get(at)
    named = parse_qs(urlsplit(live_address({"request": drawn})).query)["page"]
    assert named == [at]
    communicator, told = await opened(at, cookie())
    assert "refused" not in told
    await communicator.send(json.dumps({"page": at + "?tab=ready"}))
    assert "refused" not in await frame(communicator)
    await communicator.disconnect()


async def test_a_clock_step_is_sent(queue, cookie):
    namespaces.pause_clock(queue.namespace)
    communicator, told = await opened(page_of(queue), cookie())
    assert told["clock"]["rate"] == 0
    namespaces.step_clock(queue.namespace, timedelta(hours=2))
    after = await frame(communicator)
    assert after["clock"]["now"] - told["clock"]["now"] == 2 * 3600 * 1000
    assert after["clock"]["read"] > told["clock"]["read"]  # so that a page can tell which was read later
    await communicator.disconnect()


async def test_a_burst_of_events_loses_no_update(queue, cookie, monkeypatch):
    """Over the cap the reader knows not all that happened, so it reads the pages anew."""
    communicator, _ = await opened(page_of(queue), cookie())
    read_all = Follower.read
    monkeypatch.setattr(Follower, "read", lambda self, ids, **more: read_all(self, ids, max_events=2, **more))
    service_bus.send(queue, [Message(b"x")] * 7)
    told = await frame(communicator, has_list)
    assert len(rows(told)) == 7
    await communicator.disconnect()


async def test_without_history_a_page_is_live(queue, cookie):
    entities.update_queue(queue, history_level=0)
    communicator, _ = await opened(page_of(queue), cookie())
    service_bus.send(queue, [Message(b"x")])
    assert len(rows(await frame(communicator, has_list))) == 1
    await communicator.disconnect()


# One reader however many look


async def test_viewers_with_the_same_rights_share_a_page_and_the_last_viewer_ends_the_reader(queue, cookie):
    one, _ = await opened(page_of(queue), cookie())
    two, _ = await opened(page_of(queue), cookie())
    other, _ = await opened(page_of(queue), cookie("viewer"))
    assert sorted(len(page.viewers) for page in Feed.of_running_loop()._pages.values()) == [1, 2]
    service_bus.send(queue, [Message(b"x")])
    for communicator in (one, two, other):
        assert len(rows(await frame(communicator, has_list))) == 1
    for communicator in (one, two):
        await communicator.disconnect()
    assert Feed.of_running_loop().task is not None
    await other.disconnect()
    assert (Feed.of_running_loop().task, Feed.of_running_loop()._pages) == (None, {})
    again, told = await opened(page_of(queue), cookie())
    assert len(rows(told)) == 1
    await again.disconnect()


async def test_a_browser_that_left_before_its_first_state_is_not_a_viewer(queue, cookie):
    """Its page would be rendered for ever: sending to it raises, and its disconnection is then not told."""
    left = socket_to(page_of(queue), cookie())

    async def send(message):
        if message["type"] == "websocket.send":
            assert len(Feed.of_running_loop()._pages) == 1
            raise OSError("the browser has left")

    async def receive():
        return {"type": "websocket.connect"}

    with pytest.raises(OSError, match="has left"):
        await left.application(left.scope, receive, send)
    assert (Feed.of_running_loop().task, Feed.of_running_loop()._pages) == (None, {})


async def test_events_during_the_first_rendering_of_a_page_are_not_missed(queue, cookie, monkeypatch):
    """The events are read for the other pages before the new one is among them."""
    other = EntityAddress(queue.namespace, "other")
    entities.create_queue(other)
    beside, _ = await opened(page_of(other), cookie())
    draw, feed, sent = page.View.draw, Feed.of_running_loop(), []

    def send_after_reading(view, wanted):
        drawn = draw(view, wanted)
        if "orders" in view.path and not sent:
            sent.append(service_bus.send(queue, [Message(b"x")]))
            feed._note_news(list(feed._pages.values()))
        return drawn

    monkeypatch.setattr(page.View, "draw", send_after_reading)
    communicator, told = await opened(page_of(queue), cookie())
    assert sent and len(rows(told)) == 1
    for one in (beside, communicator):
        await one.disconnect()


async def test_a_new_viewer_does_not_wait_for_all_due_pages(queue, cookie, monkeypatch):
    monkeypatch.setattr(feeds, "TICK_SECONDS", 0.0)
    views: list[Any] = [SimpleNamespace(path=f"/{n}") for n in range(3)]
    pages = [Watched(view, not_before=n - 10) for n, view in enumerate(views)]
    drawn = []
    monkeypatch.setattr(Watched, "draw", lambda page, *_, **__: drawn.append(page.view.path))
    monkeypatch.setattr(Feed, "_note_news", lambda *_: None)
    for _ in range(3):
        Feed.of_running_loop()._tick(pages, asyncio.get_running_loop())
        [*_, last] = drawn
        next(page for page in pages if page.view.path == last).not_before = time.monotonic()
    assert drawn == ["/0", "/1", "/2"]


async def test_pages_of_different_viewers_are_rendered_in_turn(queue, cookie, monkeypatch):
    """Regression: whoever opened more pages got more of the time."""
    views: list[Any] = [SimpleNamespace(path=f"/{n}") for n in range(5)]
    viewers = [{"a": "vera"}, {"b": "vera"}, {"c": "vera", "d": "omar"}, {"e": "omar"}, {"f": "vera"}]
    pages = [Watched(view, not_before=n - 10, viewers=of) for n, (view, of) in enumerate(zip(views, viewers, strict=True))]
    drawn = []
    monkeypatch.setattr(Watched, "draw", lambda page, *_, **__: drawn.append(page.view.path))
    monkeypatch.setattr(Feed, "_note_news", lambda *_: None)
    Feed.of_running_loop()._tick(pages, asyncio.get_running_loop())
    assert drawn == ["/0", "/2", "/1", "/3", "/4"]


async def test_many_sockets_of_one_viewer_do_not_delay_the_pages_of_another(queue, cookie, monkeypatch):
    """Regression: all that one viewer's sockets had asked for was rendered before anybody else's page."""
    one, _ = await opened(page_of(queue), cookie("viewer"))
    operator = cookie()
    flood = [(await opened(page_of(queue), operator))[0] for _ in range(8)]
    drawn, let_go = [], threading.Event()
    present_state = Feed._present_state

    def noted(feed, page, since):
        let_go.wait(5)
        drawn.append(page.view.actor.name)
        return present_state(feed, page, since)

    monkeypatch.setattr(Feed, "_present_state", noted)
    for socket_of_many in flood:
        await socket_of_many.send("{}")
    await eventually_aio(lambda: sum(len(of) for of in Feed.of_running_loop()._thread._waiting.values()) >= len(flood) - 1)
    await one.send("{}")
    await eventually_aio(lambda: len(Feed.of_running_loop()._thread._waiting) >= 2)
    let_go.set()
    await eventually_aio(lambda: len(drawn) == len(flood) + 1)
    [viewer] = [name for name in drawn if name.startswith("viewer")]
    assert drawn.index(viewer) <= 3
    for communicator in (one, *flood):
        await communicator.disconnect()


async def test_a_socket_with_too_many_requests_is_throttled(queue, cookie, monkeypatch):
    waits = []
    communicator, _ = await opened(page_of(queue), cookie())

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(consumers, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(consumers, "REQUESTS_PER_SECOND", 0.01)
    for number in range(consumers.REQUESTS_AT_ONCE + 5):
        await communicator.send(json.dumps({"ask": number}))
        await frame(communicator, lambda told, number=number: told.get("asked") == number)
        await frame(communicator, has_list)
    assert waits and waits == sorted(waits)
    await communicator.disconnect()


async def test_a_heartbeat_is_sent_each_second_with_the_age_while_the_database_is_unavailable(queue, cookie, monkeypatch):
    monkeypatch.setattr(feeds, "BEAT_SECONDS", 0.1)
    communicator, _ = await opened(page_of(queue), cookie())
    assert (await communicator.receive(2))["beat"] < 1

    def away(self, pages, loop):
        raise OSError("the database is away")

    monkeypatch.setattr(Feed, "_tick", away)
    async with asyncio.timeout(8):
        while (await communicator.receive(2)).get("beat", 0) < 1.5:
            pass
    monkeypatch.undo()
    service_bus.send(queue, [Message(b"x")])
    assert len(rows(await frame(communicator, has_list, seconds=8))) == 1
    await communicator.disconnect()


@pytest.mark.slow
async def test_a_page_of_the_sites_own_tables_is_live_again_after_its_session_was_ended(queue, cookie, monkeypatch):
    monkeypatch.setattr(feeds, "BACK_OFF_SECONDS", (0.1, 0.1))
    service_bus.send(queue, [Message(b"x")])
    service_bus.dead_letter(queue, service_bus.receive(queue)[0].lock_token, reason="first")
    communicator, _ = await opened("/dead-letters/", cookie("administrator"))
    assert await database_sync_to_async(_end_sessions_that_read)("vitrine_dead_letter_note") == [(True,)]
    service_bus.send(queue, [Message(b"x")])
    service_bus.dead_letter(queue, service_bus.receive(queue)[0].lock_token, reason="second")
    await frame(communicator, lambda told: "second" in html(told), seconds=15)
    await communicator.disconnect()


def _end_sessions_that_read(table: str) -> list[tuple[bool]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE %s",
            [f"%{table}%"],
        )
        return cursor.fetchall()


# Frames, without any database


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        (ClockReading(NOON, NOON, 1, False), ClockReading(NOON + 9 * SECOND, NOON + 9 * SECOND, 1, False), False),
        (ClockReading(NOON, NOON, 2, True), ClockReading(NOON + 18 * SECOND, NOON + 9 * SECOND, 2, True), False),
        (ClockReading(NOON, NOON, 1, False), ClockReading(NOON, NOON, 0, True), True),
        (ClockReading(NOON, NOON, 0, True), ClockReading(NOON + SECOND, NOON + SECOND, 0, True), True),
    ],
)
def test_a_clock_is_sent_when_it_differs_from_the_expected_time(then, now, told):
    assert feeds.differs_from_expected(then, now) == told


def test_the_clock_of_a_frame_is_rounded_like_the_deadlines_of_a_page():
    """A lock of 30 s on a clock that stands still shows 0:30, not 0:29."""
    now = NOON + timedelta(microseconds=604_700)
    told = json.loads(Watched(None, clock=ClockReading(now, now, 0, True)).whole())["clock"]["now"]
    assert told == epoch_ms(now) == epoch_ms(now + 30 * SECOND) - 30_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ago(NOON, NOON + SECOND), ago(NOON, NOON + 9 * SECOND)),
        (countdown(NOON + 9 * SECOND, NOON), countdown(NOON + 9 * SECOND, NOON + 5 * SECOND)),
        (progress(Progress(NOON, NOON + 9 * SECOND, 0.1)), progress(Progress(NOON, NOON + 9 * SECOND, 0.9))),
    ],
)
def test_countdowns_of_the_browser_are_not_a_difference(before, after):
    assert before != after and page.comparable(before) == page.comparable(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ago(NOON, NOON), ago(NOON - SECOND, NOON)),
        (countdown(NOON + 9 * SECOND, NOON), countdown(NOON + 8 * SECOND, NOON)),
        (progress(Progress(NOON, NOON + SECOND, 0.1)), progress(Progress(NOON, NOON + 9 * SECOND, 0.1))),
        ("<b>1</b>", "<b>2</b>"),
    ],
)
def test_another_instant_or_text_is_a_difference(before, after):
    assert page.comparable(before) != page.comparable(after)


@pytest.mark.parametrize(("rate", "seconds"), [(1, 4), (2, 2), (0, None)])
def test_a_page_is_rendered_again_when_its_next_countdown_ends(rate, seconds):
    html = [countdown(NOON + n * SECOND, NOON) for n in (-3, 9, 4)]
    assert page.seconds_to_deadline(html, ClockReading(NOON, NOON, rate, True)) == seconds


def test_rows_that_left_are_computed_from_the_two_lists():
    assert page.rows_left('<tr id="m-7-0-1"><tr id="m-7-0-2"><tr id="e-3">', '<tr id="m-7-0-2">') == {"m-7-0-1": (7, 1)}


# Other families


@pytest.fixture
def jobs(transactional_db):
    """A storage queue with two visible messages."""
    address = EntityAddress(f"live{uuid.uuid4().hex[:8]}", "jobs")
    queue_storage.create_account(address.namespace)
    queue_storage.create_queue(address)
    queue_storage.put_all(address, ["one", "two"])
    return address


async def test_a_storage_queue_updates_rows_and_counts_on_get_and_delete(jobs, cookie):
    communicator, told = await opened(page_of(jobs), cookie())
    assert len(rows(told)) == 2 and all("visible" in row for row in rows(told).values())
    [got] = queue_storage.get(jobs, visibility_timeout=timedelta(minutes=5))
    told = await frame(communicator, has_list)
    [(row_id, row)] = [(key, row) for key, row in rows(told).items() if "leased" in row]
    assert "lease ends in" in row and "<progress" in row
    assert [text_of(told, rf"c-\d+-{name}") for name in ("visible", "leased")] == ["1", "1"]
    queue_storage.delete(jobs, got.message_id, got.pop_receipt)
    told = await frame(communicator, has_list)
    assert told["left"] == {row_id: "deleted"} and len(rows(told)) == 1
    await communicator.disconnect()


async def test_a_list_by_reason_is_updated_when_only_time_changes_it(jobs, cookie):
    namespaces.pause_clock(jobs.namespace)
    queue_storage.get(jobs, 1, visibility_timeout=timedelta(seconds=1))
    communicator, told = await opened(page_of(jobs, "?tab=leased"), cookie())
    assert len(rows(told)) == 1
    namespaces.resume_clock(jobs.namespace)
    began = time.monotonic()
    await frame(communicator, lambda told: has_list(told) and not rows(told), seconds=4)
    assert time.monotonic() - began < REFRESH_SECONDS - 1, "no event told it: the instant did"
    await communicator.disconnect()


async def test_the_get_page_updates_when_the_users_pop_receipts_become_valid_or_invalid(jobs, cookie):
    communicator, told = await opened(f"/receive/main/{jobs.namespace}/{jobs.path}", cookie())
    assert text_of(told, "available") == "2 messages"
    queue_storage.get(jobs)  # somebody else
    after = await frame(communicator)
    assert text_of(after, "available") == "1 message" and "data-deadline" not in html(after)
    name = get_user_model().objects.get().username
    queue_storage.get(jobs, actor=Actor("user", name, Right.ALL))
    assert "data-deadline" in html(await frame(communicator))
    await communicator.disconnect()


async def test_a_bad_query_of_a_storage_queue_is_refused(jobs, cookie):
    communicator = socket_to(page_of(jobs, "?tab=locked"), cookie())
    assert await communicator.connect()
    assert "must be one of" in (await communicator.receive())["refused"]
    await communicator.disconnect()


async def test_a_rabbitmq_queues_page_follows_as_messages_come_and_go(transactional_db, cookie):
    inbox = EntityAddress(f"live/{uuid.uuid4().hex[:8]}", "in/box")
    rabbitmq.create_vhost(inbox.namespace)
    rabbitmq.declare_queue(inbox)
    address = reverse("explorer:entity", args=[inbox.namespace, inbox.path])
    communicator, told = await opened(unquote(address), cookie())
    assert rows(told) == {}
    rabbitmq.publish(inbox.namespace, [rabbitmq.Publication(b"x", routing_key=inbox.path)])
    await frame(communicator, rows)
    await communicator.disconnect()


# In a browser


@pytest.fixture
def see(live_site, new_context, sign_in, person):
    """see(path, role): a browser page of the site, signed in and live. socket: a handler of its sockets."""

    def open_page(path, role="operator", socket=None):
        context = new_context()
        sign_in(context, person(role))
        page = context.new_page()
        if socket is not None:
            page.route_web_socket(re.compile("/live/"), socket)
        page.goto(live_site + path)
        page.wait_for_selector('#live[data-live="live"]')
        return page

    return open_page


def row(queue, number):
    return f"#rows tr[id$='-0-{number}']"


@pytest.mark.slow
def test_browser_a_committed_send_changes_the_page(queue, see):
    page = see(page_of(queue))
    service_bus.send(queue, [Message(b"x", message_id="from-outside")])
    page.wait_for_selector(f"{row(queue, 1)} >> text=from-outside")
    page.wait_for_function("() => document.querySelector('[id$=-active].count').textContent === '1'")
    [held] = service_bus.receive(queue)
    page.wait_for_selector(f"{row(queue, 1)} [data-deadline]")
    service_bus.complete(queue, [held.lock_token])
    page.wait_for_selector(f"{row(queue, 1)} .state-gone")
    page.wait_for_selector(row(queue, 1), state="detached", timeout=6000)
    page.wait_for_selector("#messages >> text=No messages")


def test_browser_typed_text_focus_and_selection_survive(queue, see):
    for number in range(1, 4):
        service_bus.send(queue, [Message(b"x")])
        [held] = service_bus.receive(queue)
        service_bus.dead_letter(queue, [held.lock_token], f"reason {number}")
    page = see(page_of(queue, "?tab=dead-letter"))
    page.fill("#f-q", "typed and not sent")
    page.evaluate("document.getElementById('f-q').setSelectionRange(2, 5)")
    page.check("#rows tr:last-child input[type=checkbox]")
    page.focus("#f-q")
    service_bus.receive(queue.dead_letter, 3)
    page.wait_for_selector("#rows tr:last-child [data-deadline]")
    assert page.input_value("#f-q") == "typed and not sent"
    assert page.evaluate("document.activeElement.id") == "f-q"
    assert page.is_checked("#rows tr:last-child input[type=checkbox]")


def test_browser_an_empty_list_updates_while_a_filter_is_being_typed(queue, see):
    page = see(page_of(queue))
    page.fill("#f-q", "half typed")
    service_bus.send(queue, [Message(b"x")])
    page.wait_for_selector(row(queue, 1))
    assert page.input_value("#f-q") == "half typed"


def test_browser_new_rows_wait_while_a_row_is_selected(queue, see):
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=datetime.now(UTC) + timedelta(hours=1))])
    page = see(page_of(queue, "?tab=scheduled"))
    page.check("#rows input[type=checkbox]")
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=datetime.now(UTC) + timedelta(hours=1))] * 2)
    page.wait_for_selector("#new-rows >> text=2 new")
    assert page.locator("#rows tr").count() == 1
    page.click("#new-rows")
    page.wait_for_function("() => document.querySelectorAll('#rows tr').length === 3")
    assert page.is_hidden("#new-rows")
    assert page.is_checked(f"{row(queue, 1)} input[type=checkbox]")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["click", "p", "Space"])
def test_browser_paused_updates_change_nothing(queue, see, how):
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=datetime.now(UTC) + timedelta(hours=1))])
    page = see(page_of(queue, "?tab=scheduled"))
    toggle = (lambda: page.click("#live")) if how == "click" else (lambda: page.keyboard.press(how))
    toggle()
    page.wait_for_selector('#live[data-live="paused"]')
    before = page.text_content("#rows")
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=datetime.now(UTC) + timedelta(hours=1))])
    page.wait_for_timeout(1500)  # nothing to wait for: nothing may happen
    assert page.text_content("#rows") == before  # the countdown stands still, too
    toggle()
    page.wait_for_function("() => document.querySelectorAll('#rows tr').length === 2")
    page.wait_for_selector('#live[data-live="live"]')


PROBE = """() => {
    const probe = Object.assign(document.createElement("div"), { id: "probe" });
    document.getElementById("main").append(probe);
    window.seen = [];
    const watch = { childList: true, characterData: true, subtree: true };
    new MutationObserver(() => window.seen.push(probe.textContent)).observe(probe, watch);
}"""


def test_browser_a_frame_older_than_a_response_is_dropped(queue, see):
    """A frame drawn before an action may arrive after its result."""
    held, sockets = [], []

    def connect(socket):
        server = socket.connect_to_server()
        socket.on_message(server.send)
        server.on_message(lambda message: held.append(message) if len(sockets) > 1 else socket.send(message))
        sockets.append(socket)

    def tell(word):
        sockets[0].send(json.dumps({"version": 1, "fragments": [f'<div id="probe">{word}</div>']}))

    page = see(page_of(queue), socket=connect)
    page.evaluate(PROBE)
    sockets.append("hold")
    page.click("#live")
    page.click("#live")  # asks for the state
    tell("old")
    answer = eventually(lambda: page.wait_for_timeout(20) or [message for message in held if "asked" in message])
    sockets.pop()
    sockets[0].send(answer[-1])
    tell("new")
    page.wait_for_function("() => window.seen.length")
    assert page.evaluate("window.seen") == ["new"]


@pytest.mark.slow
def test_browser_a_countdown_at_zero_is_shown_as_pending_and_a_paused_clock_as_paused(queue, see):
    entities.update_queue(queue, lock_duration=timedelta(seconds=5))
    namespaces.pause_clock(queue.namespace)
    service_bus.send(queue, [Message(b"x")])
    service_bus.receive(queue)
    page = see(page_of(queue))
    namespaces.resume_clock(queue.namespace)
    page.wait_for_function("() => /^0:0[0-4]$/.test(document.querySelector('#rows [data-deadline]').textContent)")
    namespaces.pause_clock(queue.namespace)
    page.wait_for_selector("#clock .notice >> text=is paused")
    namespaces.resume_clock(queue.namespace)
    page.wait_for_function("() => document.querySelector('#rows')?.textContent.match(/moments|lock ended/)", timeout=15000)


def test_browser_rows_pushed_off_the_page_are_first_on_the_next_page(queue, see):
    service_bus.send(queue, [Message(b"x")] * 50)
    page = see(page_of(queue))
    assert page.locator("a[rel=next]").count() == 0
    service_bus.send(queue, [Message(b"x")] * 2)
    page.wait_for_selector("a[rel=next]")
    service_bus.send(queue, [Message(b"x")] * 3)
    page.wait_for_selector(row(queue, 55))
    page.wait_for_selector(row(queue, 5), state="detached")
    page.click("a[rel=next]")
    page.wait_for_selector(row(queue, 5))
    expect(page.locator("#rows tr")).to_have_count(5)


def test_browser_opened_details_stay_open(queue, see):
    [number] = service_bus.send(queue, [Message(b"x")])
    page = see(f"/messages/{queue.namespace}/{queue.path}/{number}")
    page.evaluate("() => document.querySelectorAll('#message details').forEach(d => d.open = true)")
    opened = page.locator("#message details[open]").count()
    service_bus.receive(queue)
    page.wait_for_selector("#message >> text=Received with peek-lock")
    expect(page.locator("#message details[open]")).to_have_count(opened)


def test_browser_the_next_tab_is_live(queue, see):
    page = see(page_of(queue))
    page.click("#all-tabs > summary")
    page.click("#all-tabs >> text=scheduled")
    page.wait_for_url("**tab=scheduled")
    service_bus.send(queue, [Message(b"x", scheduled_enqueue_at=datetime.now(UTC) + timedelta(hours=1))])
    page.wait_for_selector("#rows >> text=due in")


def test_browser_the_overview_and_a_message_page_are_live(queue, see):
    page = see("/entities/")
    service_bus.send(queue, [Message(b"x")] * 4)
    page.wait_for_function("() => [...document.querySelectorAll('td[id$=-active]')].some(td => td.textContent.trim() === '4')")
    page.goto(page.url.removesuffix("/entities/") + f"/messages/{queue.namespace}/{queue.path}/1")
    page.wait_for_selector('#live[data-live="live"]')
    service_bus.receive(queue)
    page.wait_for_selector("#message >> text=Received with peek-lock")


class OwnSite:
    """A server of the test's own, that can be stopped and started again on the same port."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        import uvicorn

        from explorer.site.asgi import application

        config = uvicorn.Config(application, port=self.port, lifespan="off", log_level="warning", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        eventually(lambda: self.server.started, 10)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(10)


SILENT_SOCKET = """
window.WebSocket = class extends EventTarget {
    static CONNECTING = 0; static OPEN = 1; static CLOSED = 3;
    readyState = 0;
    constructor() { super(); window.lastSocket ??= this; }
    close() {}
    send() {}
};"""


def test_the_indicator_is_neutral_until_the_first_connection_succeeds_or_fails(queue, live_site, new_context, sign_in, person):
    context = new_context()
    sign_in(context, person("viewer"))
    page = context.new_page()
    page.add_init_script(SILENT_SOCKET)
    page.goto(live_site + page_of(queue))
    page.wait_for_function("window.lastSocket")
    expect(page.locator("#live[aria-pressed=false]")).to_have_attribute("data-live", "connecting")
    page.evaluate("lastSocket.dispatchEvent(new CloseEvent('close', { code: 1006 }))")
    expect(page.locator("#live")).to_have_attribute("data-live", "disconnected")


def test_browser_reconnects_after_a_restart_of_the_server(queue, new_context, client, person, settings):
    site = OwnSite()
    client.force_login(person("operator"))
    context = new_context()
    session = client.cookies[settings.SESSION_COOKIE_NAME]
    context.add_cookies([{"name": session.key, "value": session.value, "url": site.url}])
    page = context.new_page()
    page.goto(site.url + page_of(queue))
    page.wait_for_selector('#live[data-live="live"]')
    site.stop()
    page.wait_for_selector('#live[data-live="disconnected"]')
    service_bus.send(queue, [Message(b"x", message_id="meanwhile")])
    site.start()
    page.wait_for_selector("#rows >> text=meanwhile", timeout=20000)
    page.wait_for_selector('#live[data-live="live"]')
    page.goto("about:blank")  # the page is gone before its server, or it logs further attempts while the test ends
    site.stop()
    context.complaints[:] = [text for text in context.complaints if "WebSocket" not in text and "htmx:ws:error" not in text]


@pytest.mark.slow
def test_browser_a_lease_counts_down_and_its_end_is_shown(jobs, see):
    namespaces.pause_clock(jobs.namespace)
    page = see(page_of(jobs))
    queue_storage.get(jobs, 1, visibility_timeout=timedelta(seconds=4))
    page.wait_for_selector(f"{row(jobs, 1)} .state-locked")
    namespaces.resume_clock(jobs.namespace)
    first = page.locator(f"{row(jobs, 1)} progress").evaluate("bar => bar.value")
    page.wait_for_function(f'() => document.querySelector("{row(jobs, 1)} progress")?.value > {first + 0.1}')
    page.wait_for_selector(f"{row(jobs, 1)} .state-active")
    expect(page.locator(".count[id$=-leased]")).to_have_text("0")
