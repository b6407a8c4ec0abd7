"""The page of an actor, and that every page shows actors by the same names, which lead to their pages."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from html import unescape
from urllib.parse import unquote

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from broker_core import namespaces, operations, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.actors import key_holder
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.reads import EntityFilter, LockFilter
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.values import Message
from explorer.charts import changes
from explorer.frames.actors import shown_actor
from explorer.pages import actor as pages_of_actors

from . import rabbitmq_office
from .conftest import WORKER
from .test_accessibility import browser  # noqa: F401

pytest_plugins = ["tests.explorer.rabbitmq_office"]
ACTOR = re.compile(r'<(a|span) class="actor"(?: href="([^"]*)")? title="([^"]*)"><svg[^>]*><use href="#i-(\w+)"/></svg>([^<]*)</')
RAW = re.compile(r"(?<![:\w])(?:process|key|http|amqp|user|generated):[\w@.-]+")


def body_of(response):
    return response.content.decode()


def text_of(page):
    """What a person reads of a page."""
    without = re.sub(r"<(script|style|code|pre|textarea)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", without)).split())


@pytest.fixture
def robot(db):
    """An actor of a name that no other test has."""
    return Actor("process", f"robot {uuid.uuid4().hex[:8]}/3", Right.ALL)


def page_of(client, actor):
    return body_of(client.get(shown_actor(str(actor)).url))


def test_the_page_shows_what_the_actor_did_and_holds(shop, robot, as_):
    tokens = [message.lock_token for message in _received(shop, robot, 4)]
    service_bus.complete(shop, tokens[:1], actor=robot)
    service_bus.abandon(shop, tokens[1:2], actor=robot)
    service_bus.dead_letter(shop, tokens[2:3], "Broken", "", actor=robot)
    page = page_of(as_("viewer"), robot)
    text = text_of(page)
    assert f"{robot.name} Who does what? Live tail Process" in text and "holds 1 lock · 2 failures" in text
    assert re.search(rf"{shop.namespace}/ ?eu/ ?orders \S+/min \S+/min 4 4 1 1 1 0", text), "rates, and the counts of each kind"
    assert "of all entities, since" in text and "Locks held now" in text and "abandoned" in text
    assert "secret" not in page, "bodies are not shown"
    assert 'value="release"' not in page and 'value="release"' in page_of(as_("operator"), robot)


def _received(address, actor, count):
    service_bus.send(address, [Message(body=b"secret")] * count, actor=actor)
    service_bus.receive(address, 1, actor=WORKER)  # the one that was there
    return service_bus.receive(address, count, actor=actor)


def test_the_live_tail_and_the_locks_of_the_actor_are_a_link_away(shop, robot, as_, monkeypatch):
    _received(shop, robot, 2)
    monkeypatch.setattr(pages_of_actors, "LOCKS", 1)
    client = as_("viewer")
    page = page_of(client, robot)
    links = [unescape(url) for url in re.findall(r'href="(/(?:tail|locks)/\?q=[^"]+)"', page)]
    assert len(links) == 2
    for url in links:
        answer = client.get(url)
        assert answer.status_code == 200 and body_of(answer).count(f"{robot.name}</a>") >= 2, url


def test_an_operator_releases_a_lock_of_the_actor_on_its_page(shop, robot, as_):
    [_, held] = _received(shop, robot, 2)
    url = shown_actor(str(robot)).url
    data = {"action": "release", "namespace": shop.namespace, "path": shop.path, "number": held.sequence_number}
    assert as_("viewer").post(url, data).status_code == 302
    assert len(reads.locks(LockFilter(actor=str(robot))).rows) == 2
    client = as_()
    answer = client.post(url, data, follow=True)
    assert f"Released the lock of message {held.sequence_number}" in body_of(answer)
    [left] = reads.locks(LockFilter(actor=str(robot))).rows
    assert left.number != held.sequence_number
    assert "must be the number of a locked message" in body_of(client.post(url, {"action": "release"}, follow=True))


def test_a_key_is_one_actor_whatever_client_used_it(shop, as_):
    name = f"till-{uuid.uuid4().hex[:8]}"
    for client in ("10.0.0.7", "10.0.0.8"):
        key = Actor("key", name, Right.ALL, key_holder("http", name, client))
        service_bus.send(shop, [Message(body=b"x")], actor=key)
        service_bus.receive(shop, 1, actor=key)
    page = page_of(as_("viewer"), f"key:{name}")
    assert "Access key" in page and "holds 2 locks" in text_of(page)
    locks = reads.locks(LockFilter(EntityFilter(namespace=shop.namespace)))
    assert (f"key:{name}", 2) in [(holder.name, holder.locks) for holder in locks.holders]
    assert [lock for lock in reads.locks(LockFilter(holder=f"key:{name[:-1]}")).rows if name in str(lock.holder)] == []


def test_lost_locks_are_counted(shop, robot, as_):
    [message, _] = _received(shop, robot, 2)
    service_bus.release_locks(shop, [message.sequence_number], actor=WORKER)
    assert service_bus.complete(shop, [message.lock_token], actor=robot).lost
    work = pages_of_actors.work_of(reads.actor_activity(str(robot)).entities, 60.0)
    assert work.lost >= 1 and work.failures == work.lost and work.receives == 2 / 60


def test_deploys_in_the_namespaces_of_the_actor_are_listed(shop, robot, as_):
    service_bus.send(shop, [Message(body=b"x")], actor=robot)
    ada = Actor("user", "ada", Right.ALL)
    changes.mark_deploy("orders 7", [shop.namespace], actor=ada)
    changes.mark_deploy("orders 1", [shop.namespace], actor=ada, at=timezone.now() - timedelta(days=30))
    changes.mark_deploy("elsewhere 9", ["elsewhere"], actor=ada)
    page = page_of(as_("viewer"), robot)
    assert "orders 7" in page and "orders 1<" not in page and "elsewhere 9" not in page and "/actors/user/ada/" in page


def test_connections_are_listed_with_the_queues_they_consume(office, as_):
    page = page_of(as_("viewer"), WORKER)
    text = text_of(page)
    assert "actor-connections" in page and f"scanner RabbitMQ, Python API {office.vhost} receives scans" in text
    assert "1 unsettled · channel 1, scanner-1 1" in text
    assert "actor-connections" not in page_of(as_("viewer"), "process:broker")
    row = body_of(as_("viewer").get(f"/rabbitmq/connections/{office.at}/", follow=True))
    assert "/actors/process/worker/" in row


def test_an_actor_that_does_not_exist_is_not_found(db, as_):
    client = as_("viewer")
    for url in ("/actors/process/nobody-of-this-name/", "/actors/robot/worker/", "/actors/key/nobody@10.0.0.7/"):
        answer = client.get(url)
        assert answer.status_code == 404 and "There is no actor named" in body_of(answer), url
    assert client.get("/actors/process/broker/")["Location"] == "/actors/broker/broker/"
    assert client.get("/actors/client/process:web/")["Location"] == "/actors/process/web/"


def test_users_and_keys_have_a_page_before_they_act(shop, as_):
    client, name = as_("viewer"), f"till-{uuid.uuid4().hex[:8]}"
    shared_access.create_policy(shop, name, send=True)
    page = body_of(client.get(f"/actors/key/{name}/"))
    assert "No recent activity." in page and "No locks." in page and "No recent events." in page
    account = f"till{uuid.uuid4().hex[:8]}"
    queue_storage.create_account(account)
    assert "No recent activity." in body_of(client.get(f"/actors/key/{account}/"))
    assert f'href="/actors/key/{account}/"' in body_of(client.get("/messages/", {"q": account.upper()}))
    assert "/administration/activity/" in body_of(client.get(f"/actors/user/{client.user.username}/"))
    assert client.get("/actors/broker/broker/").status_code == 200


def test_sandboxes_of_others_are_left_out(robot, shop, as_):
    from explorer.models import Sandbox

    owner = as_("viewer")
    Sandbox.objects.create(owner=owner.user, namespace=shop.namespace, family="service_bus")
    service_bus.send(shop, [Message(body=b"x")], actor=robot)
    assert f"/entities/{shop}" in page_of(owner, robot)
    assert f"/entities/{shop}" not in page_of(as_("viewer"), robot)


def test_a_search_for_the_name_of_an_actor_offers_it(shop, robot, as_):
    service_bus.send(shop, [Message(body=b"x")], actor=robot)
    client, part = as_("viewer"), robot.name.split()[1]
    found = body_of(client.get("/messages/", {"q": part})).partition('id="actors-found"')[2].partition("</p>")[0]
    assert f'href="{shown_actor(str(robot)).url}"' in found
    by_name = body_of(client.get("/messages/", {"q": client.user.username}))
    assert f'href="/actors/user/{client.user.username}/"' in by_name
    assert 'id="actors-found"' not in body_of(client.get("/messages/", {"q": "nobody-of-this-name"}))


# The same names on all pages


def crawled(client, addresses):
    """By address: the actors that the page shows, as (tag, url, icon, name), and what a person reads."""
    pages = {address: body_of(client.get(address, follow=True)) for address in addresses}
    return {
        address: ([(tag, url, icon, unescape(name)) for tag, url, _, icon, name in ACTOR.findall(page)], text_of(page))
        for address, page in pages.items()
    }


def wrong(client, addresses, known):
    """What is wrong with the actors of these pages."""
    found, seen, shows = [], set(), set()
    for address, (actors, text) in crawled(client, addresses).items():
        if actors:
            shows.add(address)
        for tag, url, icon, name in actors:
            of = next((actor for actor in known if (actor.name, actor.icon) == (name, icon)), None)
            if of is None or (tag == "a" and unquote(url) != unquote(of.url)):
                found.append((address, tag, url, icon, name))
            seen.add(of)
        found += [(address, raw) for raw in RAW.findall(text)]
    return found, seen, shows


@pytest.fixture
def known():
    def known(client):
        names = ("process:worker", "process:broker", f"user:{client.user.username}", f"process:{Actor.process_name()}")
        return {shown_actor(name) for name in names}

    return known


PLACES = ("/locks/?q={ns}", "/tail/?namespace={ns}", "/entities/{at}?tab=history", "/entities/{at}?view=board",
          "/entities/{at}?tab=receivers", "/entities/{at}?tab=locked", "/messages/{at}/1", "/messages/{at}/2",
          "/messages/{at}/4", "/map/?namespace={ns}&view=table", "/revisions/{at}")  # fmt: skip


def test_all_pages_show_the_same_actors(pages, as_, known):
    namespaces.pause_clock(pages.shop.namespace)  # so that the lock does not end
    client = as_("administrator")
    addresses = [place.format(ns=pages.shop.namespace, at=pages.at) for place in PLACES]
    assert client.get(addresses[0]).status_code == 200
    of_others = {"/tail/", "/locks/"}  # they also show what earlier tests did
    found, seen, shows = wrong(client, [*addresses, *(set(pages.all) - of_others)], known(client) | _acting_people())
    assert found == []
    assert shown_actor("process:worker") in seen
    assert shows >= set(addresses) - {addresses[-1], addresses[-2]}, "each of these pages shows an actor"


def test_the_pages_of_rabbitmq_show_the_same_actors(office, as_, known):
    client = as_("administrator")
    addresses = sum(rabbitmq_office.addresses_of(office.at).values(), [])
    more = [f"/entities/{office.at}/scans?tab={tab}" for tab in ("unacked", "consumers", "history", "receivers")]
    addresses += [*more, f"/locks/?q={office.at}", f"/messages/{office.at}/scans/1", f"/entities/{office.at}/scans?view=board"]
    found, seen, _ = wrong(client, addresses, known(client) | _acting_people())
    assert found == [] and shown_actor("process:worker") in seen


def _acting_people():
    """The people whose actions earlier tests have left in the activity log and among the operations."""
    from explorer.models import AuditRecord

    names = AuditRecord.objects.values_list("actor", flat=True).distinct()
    return {shown_actor(name) for name in (*names, *(operation.actor for operation in operations.newest()))}


def test_the_map_links_a_sender_to_its_page(shop, as_):
    page = body_of(as_("viewer").get(f"/map/?namespace={shop.namespace}"))
    assert page.count('href="/actors/process/worker/"') == 2, "as a sender and as a receiver"


def test_old_events_of_a_connection_are_shown_by_its_name(office, as_):
    """Earlier versions stored the name of the connection instead of its actor."""
    queue = EntityAddress(office.vhost, "scans")
    rabbitmq.get(queue, owner_id=office.connection.id, holder="scanner of old", actor=WORKER)
    event = next(event for event in reads.events(reads.EventFilter(entity_id=reads.entity(queue).id)).rows)
    assert (event.kind, event.actor) == (EventKind.RECEIVED, "scanner of old")
    page = body_of(as_("viewer").get(f"/entities/{office.at}/scans?tab=unacked"))
    assert "/actors/client/scanner%20of%20old/" in page
    assert as_("viewer").get("/actors/client/scanner%20of%20old/").status_code == 200


def test_from_a_lock_to_the_page_of_its_holder_and_back(shop, browser):  # noqa: F811
    namespaces.pause_clock(shop.namespace)  # so that the lock does not end
    page = browser("operator")
    page.goto(f"/locks/?q={shop.namespace}")
    page.locator("#locks tbody .actor").first.click()
    page.wait_for_url("**/actors/process/worker/")
    expect(page.get_by_role("heading", name="worker", exact=True)).to_be_visible()
    held = page.locator("#actor-locks tbody tr", has_text=shop.namespace)
    expect(held).to_have_count(1)
    page.go_back()
    expect(page.get_by_role("heading", name="Locks", exact=True)).to_be_visible()
    page.locator("#locks tbody .actor").first.click()
    held.get_by_role("button", name="Release…").click()
    page.get_by_role("dialog").get_by_role("button", name="Release", exact=True).click()
    expect(page.locator("#notices")).to_contain_text("Released the lock of message 4")
    expect(held).to_have_count(0)


def test_a_long_message_id_leaves_the_button_of_its_lock_free_on_a_phone(shop, robot, browser):  # noqa: F811
    namespaces.pause_clock(shop.namespace)
    service_bus.send(shop, [Message(b"x", message_id="a" * 40)])
    service_bus.receive(shop, 32, actor=robot)
    page = browser("operator", viewport={"width": 390, "height": 800})
    page.goto(shown_actor(str(robot)).url)
    row = page.locator("#actor-locks tbody tr", has_text="a" * 40)
    text, button = row.locator(".mono").bounding_box(), row.get_by_role("button", name="Release…").bounding_box()
    assert text["x"] + text["width"] <= button["x"]


def test_the_page_is_live(shop, browser):  # noqa: F811
    namespaces.pause_clock(shop.namespace)
    page = browser("viewer")
    page.goto("/actors/process/worker/")
    held = page.locator("#actor-locks tbody tr", has_text=shop.namespace)
    expect(held).to_have_count(1)
    service_bus.receive(shop, 1, actor=WORKER)
    expect(held).to_have_count(2)
