"""The page of locks, and releasing them, in all families."""

import re
import sys
import uuid

import pytest

from broker_core import rabbitmq, reads, service_bus
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.rabbitmq import Publication
from broker_core.reads import EntityFilter, LockFilter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.lessons import sandboxes
from explorer.models import AuditRecord

from .conftest import FRAGMENT, WORKER
from .test_accessibility import browser  # noqa: F401


def _locks(address):
    return reads.locks(LockFilter(EntityFilter(parts=(f"{address.namespace}/".lower(),)))).rows


def _form(address, **values):
    return {"action": "release", "namespace": address.namespace, "path": address.path, "reason": "stuck", **values}


def test_the_page_lists_locks_of_all_families(shop, jobs, as_):
    page = as_("viewer").get(f"/locks/?q={shop.namespace}").content.decode()
    assert "Message 4" in page and "worker</a>" in page and "Releasing locks requires the operator role" in page
    assert "Release…" not in page
    asked = as_("operator").get(f"/locks/?q={shop.namespace}").content.decode()
    assert f"Release message 4 of {shop}, held by worker</h2>" in asked and "(optional)" in asked
    page = as_("operator").get(f"/locks/?q={jobs.namespace}").content.decode()
    assert "Message 2" in page and "Message 3" in page and "Message 4" not in page
    assert "No locks match" in as_().get("/locks/?q=holder:nobody-of-this-name").content.decode()


def test_a_lock_is_released_with_a_reason_and_recorded(shop, as_):
    client = as_()
    answer = client.post(f"/locks/?q={shop.namespace}", _form(shop, number="4"), headers=FRAGMENT)
    assert answer.status_code == 200 and "Released the lock of message 4: stuck." in answer.content.decode()
    assert _locks(shop) == ()
    record = AuditRecord.objects.latest("id")
    assert (record.action, record.target, record.outcome) == ("release lock", "message 4", "done")
    assert f"released by {client.user.username}" in client.get(f"/messages/{shop.namespace}/{shop.path}/4").content.decode()
    again = client.post("/locks/", _form(shop, number="4"), headers=FRAGMENT)
    assert "had ended already" in again.content.decode()


def test_a_lock_is_released_without_a_reason_and_an_own_one_without_a_question(shop, as_):
    client = as_()
    me = Actor("user", client.user.username, Right.ALL)
    service_bus.receive(shop, 1, actor=me)
    [own] = [lock.number for lock in _locks(shop) if lock.number != 4]
    page = client.get(f"/locks/?q={shop.namespace}").content.decode()
    assert page.count(f'title="Release message {own} of {shop}, held by {me.name}"') == 1
    assert f"Release message {own} of {shop}, held by {me.name}</h2>" not in page
    for number in (own, 4):
        answer = client.post("/locks/", _form(shop, number=str(number), reason=""), headers=FRAGMENT)
        assert f"Released the lock of message {number}." in answer.content.decode()
    assert _locks(shop) == ()


def test_held_sessions_are_found_among_many_others(shop, monkeypatch):
    """The bound is on held sessions, not on those that are passed to find them."""
    carts = EntityAddress(shop.namespace, "many")
    entities.create_queue(carts, requires_session=True)
    service_bus.send(carts, [Message(session_id=name) for name in "abcd"])
    service_bus.accept_session(carts, "d", max_count=1, actor=WORKER)
    monkeypatch.setattr(sys.modules["broker_core.reads.locks"], "EXAMINED", 2)
    assert [lock.session_id for lock in _locks(carts) if lock.is_session] == ["d"]


def test_a_session_and_all_locks_of_a_holder_are_released(shop, as_):
    carts = EntityAddress(shop.namespace, "carts")
    entities.create_queue(carts, requires_session=True)
    service_bus.send(carts, [Message(session_id=name) for name in "ab"])
    for name in "ab":
        service_bus.accept_session(carts, name, max_count=1, actor=WORKER)
    client, here = as_(), f"/locks/?q={shop.namespace}+holder:process:worker"
    assert client.post("/locks/", _form(carts, session="a")).status_code == 302
    assert [lock.session_id for lock in _locks(carts) if lock.is_session] == ["b"]
    page = client.get(here).content.decode()
    assert "Release all 3" in page
    answer = client.post(here, {"action": "release-all", "reason": "worker is gone"}, headers=FRAGMENT)
    assert "Released 3 locks on 2 entities: worker is gone." in answer.content.decode()
    assert _locks(shop) == ()


def test_leases_and_deliveries_are_released(jobs, as_, vhost_queue):
    client = as_()
    assert client.post("/locks/", _form(jobs, number="2")).status_code == 302
    assert [lock.number for lock in _locks(jobs)] == [3]
    assert client.post("/locks/", _form(vhost_queue, number="1")).status_code == 302
    assert _locks(vhost_queue) == ()
    assert [event.reason for event in reads.timeline(reads.entity(jobs).id, 2) if event.reason] == ["stuck"]


@pytest.fixture
def vhost_queue(db):
    address = EntityAddress(f"lock host {uuid.uuid4().hex[:6]}", "q")
    rabbitmq.create_vhost(address.namespace)
    rabbitmq.declare_queue(address)
    rabbitmq.publish(address.namespace, [Publication(b"x", routing_key="q")])
    rabbitmq.take(address, owner_id=1_000_003, holder="client 3")
    return address


def test_the_message_page_has_the_action_in_all_families(shop, jobs, vhost_queue, as_):
    client = as_()
    for address, number, word in ((shop, 4, "lock"), (jobs, 2, "lease"), (vhost_queue, 1, "delivery")):
        url = f"/messages/{address.namespace}/{address.path}/{number}"
        assert f"Release {word}…" in client.get(url).content.decode()
        assert client.post(url, {"action": "release", "reason": "x"}).status_code == 302
        assert f"Release {word}…" not in client.get(url).content.decode()


def test_invalid_and_unauthorized_releases_are_refused(shop, jobs, as_):
    viewer, client = as_("viewer"), as_()
    assert viewer.post("/locks/", _form(shop, number="4"), headers=FRAGMENT).status_code == 403
    assert viewer.post("/locks/?holder=worker", {"action": "release-all"}, headers=FRAGMENT).status_code == 403
    assert len(_locks(shop)) == 1
    assert client.post("/locks/", {"action": "release"}, headers=FRAGMENT).status_code == 400
    assert client.post("/locks/", _form(jobs, session="a"), headers=FRAGMENT).status_code == 400
    assert client.post("/locks/", _form(EntityAddress("no", "q"), number="1"), headers=FRAGMENT).status_code == 404
    assert client.get("/locks/?cursor=x").status_code == 400
    assert client.post("/locks/", _form(shop, number="4", reason="x" * 600), headers=FRAGMENT).status_code == 400


def test_a_lock_in_the_sandbox_of_somebody_else_cannot_be_released(as_, db):
    sandbox = sandboxes.start(as_("viewer").user, Family.SERVICE_BUS)
    inside = EntityFilter(namespace=sandbox.namespace, include_hidden=True)
    address = next(row.address for row in reads.list_entities(inside) if row.kind == "queue")
    service_bus.send(address, [Message(b"")], actor=WORKER)
    service_bus.receive(address, actor=WORKER)
    for at in ("/locks/", f"/actors/process/{WORKER.name}/"):
        form = _form(address, number=1, action="release")
        assert as_("operator").post(at, form).status_code == 404, at
        assert len(reads.locks(LockFilter(inside)).rows) == 1


def test_long_lists_of_locks_are_paged(shop, as_):
    service_bus.send(shop, [Message(message_id=f"many-{n}") for n in range(60)], actor=WORKER)
    assert len(service_bus.receive(shop, 61, actor=WORKER)) == 61
    client = as_()
    first = client.get(f"/locks/?q={shop.namespace}").content.decode()
    [following] = re.findall(r'rel="next"\s+href="([^"]*)"', first)
    second = client.get("/locks/" + following.replace("&amp;", "&")).content.decode()
    assert (first.count('id="lock-'), second.count('id="lock-')) == (51, 13)  # with the line of holders
