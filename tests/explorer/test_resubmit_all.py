"""Bringing back dead letters and poison messages, all of them or one group: what is asked, what is done, what is written down."""

from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.errors import EntityNotFound, NotAllowed, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, Message, Right
from explorer.models import AuditRecord
from explorer.shared import resubmit_all
from tests.html import body_of

from .conftest import WORKER

pytest_plugins = ["tests.fixtures"]
REFUSED = '[null, "Refused"]'


def last_act():
    return AuditRecord.objects.order_by("-pk").first()


@pytest.fixture
def dead(make_queue):
    """A queue with five dead letters: 1, 3 and 4 were refused, 2 and 5 are late. A receiver holds 4."""
    queue = make_queue()
    service_bus.send(queue, [Message(b"%d" % n) for n in range(1, 6)])
    for message in service_bus.receive(queue, 5, actor=WORKER):
        reason = "Late" if message.sequence_number in (2, 5) else "Refused"
        service_bus.dead_letter(queue, [message.lock_token], reason, f"told of {message.sequence_number}", actor=WORKER)
    held = service_bus.receive(queue.dead_letter, 4, actor=WORKER)
    service_bus.abandon(queue.dead_letter, [one.lock_token for one in held if one.sequence_number != 4], actor=WORKER)
    return queue


@pytest.fixture
def poison(account):
    """The poison queue of jobs, with messages of jobs and of mail, and one that was put there."""
    for name in ("jobs", "mail"):
        queue = EntityAddress(account, name)
        queue_storage.create_queue(queue, max_dequeue_count=1, poison_queue="jobs-poison")
        queue_storage.put_all(queue, ["a", "b"] if name == "jobs" else ["c"])
        queue_storage.get(queue, 5, visibility_timeout=timedelta(seconds=1))
    namespaces.step_clock(account, timedelta(seconds=1))
    for name in ("jobs", "mail"):
        queue_storage.get(EntityAddress(account, name))
    address = EntityAddress(account, "jobs-poison")
    queue_storage.put(address, "by hand")
    return address


def dead_numbers(queue):
    return [row.sequence_number for row in reads.list_messages(queue, reads.Tab.DEAD_LETTER, newest_first=False).rows]


def texts(account, name):
    return sorted(message.text for message in queue_storage.peek(EntityAddress(account, name), 32))


def test_groups_tell_what_may_go_and_what_is_held(dead, poison):
    found = reads.groups(dead.dead_letter)
    assert [(one.reason, one.numbers, one.held) for one in found.groups] == [("Refused", (1, 3), 1), ("Late", (2, 5), 0)]
    assert (found.scanned, found.capped) == (5, False)
    assert [(one.origin, len(one.numbers)) for one in reads.groups(poison).groups] == [("jobs", 2), ("mail", 1), (None, 1)]
    with pytest.raises(EntityNotFound):
        reads.groups(EntityAddress(dead.namespace, "none").dead_letter)
    with pytest.raises(NotAuthorized):
        reads.groups(dead.dead_letter, actor=Actor("user", "eve", Right.NONE))


def test_a_queue_of_rabbitmq_has_no_groups(dead, vhost):
    rabbitmq.declare_queue(EntityAddress(vhost, "q"))
    with pytest.raises(NotAllowed, match="is a RabbitMQ queue"):
        reads.groups(EntityAddress(vhost, "q"))


def test_no_more_is_looked_at_than_the_cap(dead, monkeypatch):
    monkeypatch.setattr("broker_core.reads.dead_groups.SCAN_CAP", 2)
    found = reads.groups(dead.dead_letter)
    assert found.capped and found.scanned == 2 and [one.numbers for one in found.groups] == [(2,), (1,)]


def test_the_lists_lead_there(dead, poison, as_):
    for address, query in ((dead, "?tab=dead-letter"), (poison, "")):
        assert f"/resubmit-all/{address}" in body_of(as_("operator").get(f"/entities/{address}{query}"))
        assert f"/resubmit-all/{address}" not in body_of(as_("viewer").get(f"/entities/{address}{query}"))
        for method in ("get", "post"):
            assert getattr(as_("viewer"), method)(f"/resubmit-all/{address}").status_code == 403


def test_one_group_of_dead_letters_goes_alone(dead, as_):
    client, url = as_("operator"), f"/resubmit-all/{dead}"
    page = body_of(client.get(url))
    assert (
        "Resubmit all dead letters?" in page and "Resubmit 4 messages" in page and "1 message locked by a receiver stays" in page
    )
    assert 'aria-label="This group only: reason: Refused"' in page
    page = body_of(client.get(url, {"group": REFUSED}))
    assert "Resubmit dead letters with the reason: Refused?" in page and "Resubmit 2 messages" in page and "Late" not in page
    assert dead_numbers(dead) == [1, 2, 3, 4, 5]
    assert client.post(url, {"group": REFUSED, "up_to": "3"}).status_code == 302
    assert dead_numbers(dead) == [2, 4, 5]
    assert (last_act().action, last_act().target) == ("resubmit", "dead letters with the reason: Refused")
    assert last_act().detail.startswith("Resubmitted 2 messages to the end of the queue with new numbers.")


def test_all_go_up_to_the_last_that_was_counted_in_batches(dead, as_, monkeypatch):
    monkeypatch.setattr(resubmit_all, "BATCH", 2)
    client, url = as_("operator"), f"/resubmit-all/{dead}"
    assert 'name="up_to" value="5"' in body_of(client.get(url))
    service_bus.send(dead, [Message(b"6")])
    [late] = service_bus.receive(dead, actor=WORKER)
    service_bus.dead_letter(dead, [late.lock_token], "Late", actor=WORKER)
    client.post(url, {"up_to": "5"})
    assert dead_numbers(dead) == [4, late.sequence_number] and last_act().target == "all dead letters"


def test_one_group_of_poison_messages_goes_back_to_its_queue(poison, as_):
    client, url = as_("operator"), f"/resubmit-all/{poison}"
    page = body_of(client.get(url))
    assert "Requeue all poison messages?" in page and "Requeue 4 messages" in page and "max dequeue count reached" in page
    group = '["mail", "MaxDequeueCountExceeded"]'
    page = body_of(client.get(url, {"group": group}))
    assert "Requeue poison messages from mail with the reason: max dequeue count reached?" in page and "Requeue 1 message" in page
    client.post(url, {"group": group})
    assert texts(poison.namespace, "mail") == ["c"] and texts(poison.namespace, "jobs-poison") == ["a", "b", "by hand"]
    client.post(url)
    assert texts(poison.namespace, "jobs") == ["a", "b", "by hand"] and texts(poison.namespace, "jobs-poison") == []
    assert "No poison messages" in body_of(client.get(url))


def test_a_group_that_is_gone_and_one_that_is_none_are_told(dead, poison, as_):
    client = as_("operator")
    page = body_of(client.get(f"/resubmit-all/{dead}", {"group": '[null, "Other"]'}))
    assert "No messages left in this group" in page and "disabled" in page
    for group in ("Refused", "[1, 2]", '["a"]', "[" * 4000):
        response = client.get(f"/resubmit-all/{dead}", {"group": group})
        assert response.status_code == 400 and "must be an origin and a reason" in body_of(response)
    jobs = EntityAddress(poison.namespace, "jobs")
    assert client.get(f"/resubmit-all/{jobs}").status_code == 400
    queue_storage.delete_queue(EntityAddress(poison.namespace, "mail"))
    refused = client.post(f"/resubmit-all/{poison}")
    assert refused.status_code == 404 and "mail" in body_of(refused) and len(texts(poison.namespace, "jobs-poison")) == 4
