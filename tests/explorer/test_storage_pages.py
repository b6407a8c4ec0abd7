"""Storage queues in the explorer: every message with the reason and the end of its invisibility, and what is done by hand."""

import itertools
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.urls import resolve, reverse

from broker_core import namespaces, queue_storage, rabbitmq, reads
from broker_core.common.types import Actor, EntityAddress, Family, HoldKind, Right, SubQueue
from broker_core.queue_storage.rules.explaining import QueueFacts
from broker_core.reads import MessageFilter, Tab
from broker_core.service_bus import entities
from explorer.frames import presenters
from explorer.models import AuditRecord
from explorer.queue_storage import lists, rows
from explorer.queue_storage.forms import QueueOptionsForm
from tests.html import body_of

from .conftest import FRAGMENT, WORKER

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(address):
    return f"{address.namespace}/{address.path}"


def numbers_in(page, address):
    """The messages of the list; the time bar below it names others."""
    page, _, _ = page.partition('id="time-bar"')
    return {int(n) for n in re.findall(rf'href="/messages/{at(address)}/(\d+)"', page)}


def the_last_act():
    return AuditRecord.objects.latest("id")


# Names in addresses


@pytest.mark.parametrize("name", ["demo", "/", "a/b", "a~b", "~2F", "..", ".", "%2F", "ü ?#", "a.b", "~", "A\\B", "//"])
def test_any_virtual_host_name_round_trips_through_an_address(name):
    address = reverse("explorer:namespace", args=[name])
    from urllib.parse import unquote

    assert address.count("/") == 3 and resolve(unquote(address)).kwargs["namespace"] == name


@pytest.mark.parametrize("path", ["orders", "eu/orders", "a//b", "/a", "a/", "..", "a/../b", "~", "x~2Fy", "7", "a/7", "a b?#%"])
def test_any_entity_path_round_trips_through_an_address(path):
    from urllib.parse import unquote

    address = reverse("explorer:entity", args=["/", path])
    found = resolve(unquote(address)).kwargs
    assert (found["namespace"], found["path"]) == ("/", path) and "/../" not in address + "/"
    found = resolve(unquote(reverse("explorer:message", args=["a/b", path, 12]))).kwargs
    assert (found["namespace"], found["path"], found["sequence_number"]) == ("a/b", path, 12)


def test_a_typed_tilde_is_literal():
    assert resolve("/entities/demo/a~b").kwargs["path"] == "a~b"


# Lists


@pytest.mark.parametrize(
    ("tab", "shown"),
    [("", {2, 3, 4, 5, 6, 7, 8}), ("all", {2, 3, 4, 5, 6, 7, 8}), ("visible", {7, 8}), ("delayed", {4, 5}), ("leased", {2, 3}),
     ("expired", {6}), ("history", {1})],
)  # fmt: skip
def test_each_list_has_the_messages_hidden_for_its_reason(jobs, as_, tab, shown):
    page = body_of(as_("viewer").get(f"/entities/{at(jobs)}{tab and f'?tab={tab}'}"))
    assert numbers_in(page, jobs) == shown
    counts = dict(re.findall(r'id="c-\d+-(\w+)">([\d,]+)<', page))
    assert (counts["all"], counts["visible"], counts["delayed"], counts["leased"], counts["expired"]) == ("7", "2", "2", "2", "1")


def test_a_row_shows_reason_start_holder_and_end(jobs, as_):
    page = body_of(as_("viewer").get(f"/entities/{at(jobs)}?tab=all"))
    cells = {
        int(number): " ".join(re.sub(r"<[^>]+>", " ", row).split())
        for number, row in re.findall(r'<tr id="m-\d+-0-(\d+)">(.*?)</tr>', page, re.S)
    }
    assert "leased" in cells[2] and "received by worker" in cells[2] and "lease ends in" in cells[2]
    assert "lease extended" in cells[3] and "updated after a get" in cells[3]
    assert "delayed" in cells[4] and "put with a delay" in cells[4] and "visible in" in cells[4]
    assert "rescheduled" in cells[5] and "updated before the first get" in cells[5]
    assert "expired, not yet removed" in cells[6] and "removed in" in cells[6]
    assert "visible" in cells[7] and "expires in" in cells[7] and "never expires" in cells[8]
    assert page.count("<progress") == 4


def test_the_header_names_the_poison_queue_and_the_approximate_message_count(jobs, as_):
    page = body_of(as_("viewer").get(f"/entities/{at(jobs)}"))
    assert 'wire">6<' in page, "the expired one is gone for clients (QS-901)"
    assert "then moved to jobs-poison" in page and f'href="/entities/{at(jobs)}-poison"' in page and "team" in page
    assert "1 in jobs-poison" in page
    poison = body_of(as_("viewer").get(f"/entities/{at(jobs)}-poison"))
    assert "1 dead letter of jobs" in poison and f'href="/entities/{at(jobs)}"' in poison and "No receivers" not in poison


def test_a_filter_by_text_requires_the_right_to_see_bodies(jobs, as_):
    assert numbers_in(body_of(as_("operator").get(f"/entities/{at(jobs)}?q=body:later")), jobs) == {4, 5}
    assert numbers_in(body_of(as_("operator").get(f"/entities/{at(jobs)}?tab=leased&q=body:later")), jobs) == set()
    assert as_("viewer").get(f"/entities/{at(jobs)}?q=body:later").status_code == 403


@pytest.mark.parametrize("query", ["tab=locked", "tab=dead-letter", "cursor=x", "order=random"])
@pytest.mark.parametrize("headers", [{}, FRAGMENT], ids=["page", "fragment"])
def test_an_unknown_list_is_a_400(jobs, as_, query, headers):
    response = as_("operator").get(f"/entities/{at(jobs)}?{query}", headers=headers)
    assert response.status_code == 400 and 'role="alert"' in body_of(response)


def test_pages_of_every_list_are_in_numeric_order(account, as_):
    address = EntityAddress(account, "many")
    queue_storage.create_queue(address)
    queue_storage.put_all(address, ["x"] * 120, visibility_timeout=HOUR, actor=WORKER)
    client = as_("viewer")
    first = client.get(f"/entities/{at(address)}?tab=delayed")
    assert numbers_in(body_of(first), address) == set(range(71, 121))
    second = client.get(f"/entities/{at(address)}?tab=delayed&cursor={first.context['page'].next_cursor}")
    assert numbers_in(body_of(second), address) == set(range(21, 71))


# Rows, pure


def a_row(**changes):
    values = {
        "family": Family.QUEUE_STORAGE, "subqueue": SubQueue.MAIN, "visible_at": NOON, "hold_kind": None, "expires_at": None,
        "held_since": None, "enqueued_at": NOON - HOUR, "read_at": NOON, "locked_by": None, "delivery_count": 0, "renewals": 0,
    }  # fmt: skip
    from broker_core.queue_storage.rules.display_state import display_state

    row = SimpleNamespace(**values | changes)
    row.display_state = display_state(row, NOON)
    return row


LIMITED = QueueFacts(3, "q-poison")


@pytest.mark.parametrize(
    ("row", "facts", "flags", "until"),
    [
        (a_row(), LIMITED, (), None),
        (a_row(hold_kind=HoldKind.GET, visible_at=NOON + HOUR, delivery_count=1), LIMITED, (), NOON + HOUR),
        (a_row(hold_kind=HoldKind.GET, visible_at=NOON + HOUR, delivery_count=3), LIMITED, ("last dequeue",), NOON + HOUR),
        (a_row(hold_kind=HoldKind.GET, visible_at=NOON + HOUR, delivery_count=3), QueueFacts(3, None), ("parked",), NOON + HOUR),
        (a_row(hold_kind=HoldKind.UPDATE, visible_at=NOON + 2 * HOUR, expires_at=NOON + HOUR, delivery_count=1), QueueFacts(),
         ("expires first",), NOON + HOUR),
        (a_row(delivery_count=3), LIMITED, ("spent",), None),
        (a_row(expires_at=NOON), QueueFacts(expiry_grace=HOUR), (), NOON + HOUR),
        (a_row(expires_at=NOON + HOUR), LIMITED, (), NOON + HOUR),
    ],
)  # fmt: skip
def test_a_row_has_warnings_and_a_countdown_to_the_next_event(row, facts, flags, until):
    shown = rows.row_view(row, facts)
    assert tuple(flag.word for flag in shown.flags) == flags and all(flag.meaning for flag in shown.flags)
    assert (shown.until.at if shown.until else None) == until


def test_progress_is_the_elapsed_part_of_the_visibility_timeout():
    row = a_row(hold_kind=HoldKind.PUT, visible_at=NOON + HOUR, held_since=NOON - 3 * HOUR)
    assert rows.row_view(row, QueueFacts()).progress.done == 0.75


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hold_kind": HoldKind.GET, "visible_at": NOON + HOUR}, "lease ends in"),
        ({"hold_kind": HoldKind.PUT, "visible_at": NOON + HOUR}, "visible in"),
        ({"hold_kind": HoldKind.GET, "visible_at": NOON + 2 * HOUR, "expires_at": NOON + HOUR}, "expires in"),
        ({"expires_at": NOON + HOUR}, "expires in"),
    ],
)
def test_a_countdown_names_the_next_event(changes, words):
    row = a_row(**changes)
    row.deadline = min(at for at in (row.visible_at, row.expires_at) if at is not None and at > NOON)
    assert presenters.deadline(row).words == words


def test_a_message_is_in_one_list_besides_the_list_of_all(jobs):
    def numbers(slug):
        page = reads.list_messages(jobs, Tab.ACTIVE, filter=MessageFilter(holds=lists.holds_of(slug)), actor=WORKER)
        return [row.sequence_number for row in page.rows]

    everything, *others = [numbers(message_list.slug) for message_list in lists.LISTS]
    assert all(others) and sorted(itertools.chain(*others)) == sorted(everything)


# What operators do


def test_a_poison_message_is_requeued_to_its_origin(jobs, as_):
    poison = EntityAddress(jobs.namespace, "jobs-poison")
    assert queue_storage.get(jobs, actor=WORKER) and len(queue_storage.get(jobs, 32, visibility_timeout=HOUR, actor=WORKER)) == 1
    client = as_("operator")
    response = client.post(f"/operate/{at(poison)}", {"kind": "resubmit", "tab": "all", "numbers": ["1"]})
    assert response.status_code == 302
    page = body_of(client.get(response["Location"]))
    assert "Resubmitted 1 message." in page
    page = body_of(client.get(f"/messages/{at(jobs)}/9"))
    assert "Origin" in page and f'href="/messages/{at(poison)}/1"' in page and "Moved here from jobs-poison" in page
    gone = body_of(client.get(f"/messages/{at(poison)}/1"))
    assert "Moved by" in gone and "No longer in the queue." in gone and f'href="/messages/{at(jobs)}/9"' in gone


@pytest.mark.parametrize("poison_queue", [None, "graveyard"])
def test_a_poison_queue_shows_the_origin_and_reason_of_each_message(jobs, as_, poison_queue):
    pictures, poison = EntityAddress(jobs.namespace, "pictures"), EntityAddress(jobs.namespace, poison_queue or "pictures-poison")
    queue_storage.create_queue(pictures, max_dequeue_count=2, poison_queue=poison_queue)
    namespaces.pause_clock(jobs.namespace)
    queue_storage.put(pictures, "torn", actor=WORKER)
    for _ in range(3):
        queue_storage.get(pictures, visibility_timeout=timedelta(seconds=1), actor=WORKER)
        namespaces.step_clock(jobs.namespace, timedelta(seconds=1))
    namespaces.step_clock(jobs.namespace, timedelta(minutes=4))
    client = as_("viewer")
    listed = body_of(client.get(f"/entities/{at(poison)}"))
    assert f'href="/messages/{at(pictures)}/1">message 1 of pictures</a>' in listed
    assert "dequeue count exceeded: 2 of 2, <time" in listed and ">4 min</time>" in listed
    queue_storage.update_queue(pictures, max_dequeue_count=9)  # what was allowed then is what is told
    page = body_of(client.get(f"/messages/{at(poison)}/1"))
    assert "Origin" in page and "dequeue count exceeded: 2 of 2; moved at" in page
    assert f'href="/messages/{at(pictures)}/1"' in page
    assert f'href="/messages/{at(poison)}/1"' in body_of(client.get(f"/messages/{at(pictures)}/1"))
    [got] = queue_storage.get(poison, actor=WORKER)
    queue_storage.delete(poison, got.message_id, got.pop_receipt, actor=WORKER)
    gone = body_of(client.get(f"/messages/{at(poison)}/1"))
    assert "Origin" in gone and "message 1 of pictures</a>" in gone and "dequeue count exceeded; moved at" in gone
    assert "Origin" not in body_of(client.get(f"/entities/{at(pictures)}"))


def test_a_message_put_directly_into_a_poison_queue_is_marked(jobs, as_):
    assert "put directly" in body_of(as_("viewer").get(f"/entities/{at(jobs)}-poison"))


def test_a_message_is_released_or_requeued_from_its_page(jobs, as_):
    client = as_("operator")
    page = body_of(client.get(f"/messages/{at(jobs)}/2"))
    assert 'value="release"' in page and "Leased by worker," in page and "No get returns it before" in page
    assert client.post(f"/messages/{at(jobs)}/2", {"action": "release"}).status_code == 302
    assert 'value="release"' not in body_of(client.get(f"/messages/{at(jobs)}/2"))
    poison = EntityAddress(jobs.namespace, "jobs-poison")
    assert client.post(f"/messages/{at(poison)}/1", {"action": "requeue"})["Location"] == f"/messages/{at(poison)}/1"
    assert client.post(f"/messages/{at(jobs)}/3", {"action": "resubmit"}, headers=FRAGMENT).status_code == 400


def test_a_viewer_changes_nothing(jobs, as_):
    client = as_("viewer")
    before = [(row.sequence_number, row.lock_token) for row in reads.list_messages(jobs).rows]
    for action, address in (("release", f"/operate/{at(jobs)}"), ("get", f"/receive/main/{at(jobs)}")):
        data = {"action": action, "kind": action, "numbers": ["2"], "numofmessages": "1", "visibilitytimeout": "30 s"}
        assert client.post(address, data, headers=FRAGMENT).status_code == 403
    assert client.post(f"/operate/{at(jobs)}", {"kind": "purge", "tab": "all", "all": "1"}).status_code == 403
    assert client.post(f"/send/{at(jobs)}", {"text": "x", "messagettl": "1 h", "copies": "1"}).status_code == 403
    assert "Pop receipt" not in body_of(client.get(f"/messages/{at(jobs)}/2"))
    assert [(row.sequence_number, row.lock_token) for row in reads.list_messages(jobs).rows] == before


# Put, and get by hand


def test_a_message_is_put_with_a_delay_and_a_time_to_live(account, as_):
    address = EntityAddress(account, "mails")
    queue_storage.create_queue(address)
    client = as_("operator")
    data = {"text": "one\r\ntwo", "visibilitytimeout": "5 min", "messagettl": "never", "copies": "2"}
    response = client.post(f"/send/{at(address)}", data)
    assert response["Location"] == f"/entities/{at(address)}?tab=delayed", body_of(response)
    first = reads.list_messages(address, newest_first=False).rows[0]
    assert (first.visible_at - first.enqueued_at, first.expires_at) == (timedelta(minutes=5), None)
    assert reads.body(address, 1).content == b"one\ntwo"
    assert "visible in 5 min" in the_last_act().detail


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        ({"visibilitytimeout": "8 days"}, 400, "8 days is too long; the maximum is 7 days"),
        ({"visibilitytimeout": "2 h", "messagettl": "1 h"}, 400, "shorter than the time-to-live of 1 h"),
        ({"messagettl": "soon"}, 400, "is not a duration"),
        ({"copies": "0"}, 400, "greater than or equal to 1"),
        ({"text": "x" * 65_537}, 409, "65"),
        ({"text": "\x01"}, 400, ""),
    ],
)
def test_a_refused_put_keeps_the_input_and_stores_nothing(account, as_, data, status, said):
    address = EntityAddress(account, "mails")
    queue_storage.create_queue(address)
    typed = {"text": "keep me", "visibilitytimeout": "0", "messagettl": "1 h", "copies": "1"} | data
    response = as_("operator").post(f"/send/{at(address)}", typed)
    assert response.status_code == status and said in body_of(response)
    assert reads.counts(address).active == 0
    if "text" not in data:
        assert "keep me" in body_of(response)


@pytest.fixture
def manual_receiver(account, as_):
    """A queue with one message on a clock that stands still, and an operator; `do` posts to the page of the receiver."""
    address = EntityAddress(account, "by-hand")
    queue_storage.create_queue(address)
    queue_storage.put(address, "hello", actor=WORKER)
    client = as_("operator")

    def do(action, headers=FRAGMENT, **data):
        return client.post(f"/receive/main/{at(address)}", {"action": action, **data}, headers=headers)

    def held():
        [row] = reads.list_messages(address).rows
        return {"message_id": row.message_id, "receipt": str(row.lock_token)}

    return SimpleNamespace(address=address, client=client, do=do, held=held, step=lambda by: namespaces.step_clock(account, by))


def test_a_pop_receipt_is_valid_after_the_lease_until_the_next_get(manual_receiver):
    page = body_of(manual_receiver.do("get", numofmessages="1", visibilitytimeout="30 s"))
    mine = manual_receiver.held()
    assert mine["receipt"] in page and "lease ends in" in page and "hello" in page
    manual_receiver.step(timedelta(seconds=31))
    page = body_of(manual_receiver.client.get(f"/receive/main/{at(manual_receiver.address)}"))
    assert "lease ended" in page and mine["receipt"] in page, "nobody got it since: the receipt counts (QS-051)"
    assert (
        "Deleted message" in body_of(manual_receiver.do("delete", **mine)) and reads.counts(manual_receiver.address).active == 0
    )
    assert (the_last_act().action, the_last_act().outcome, the_last_act().target) == ("delete", "done", "message 1")


def test_a_pop_receipt_is_invalid_after_another_get(manual_receiver):
    manual_receiver.do("get", numofmessages="1", visibilitytimeout="1 s")
    mine = manual_receiver.held()
    manual_receiver.step(timedelta(seconds=1))
    queue_storage.get(manual_receiver.address, actor=WORKER)
    response = manual_receiver.do("delete", **mine)
    assert response.status_code == 409 and mine["receipt"] in body_of(response), "what was typed stays"
    assert the_last_act().outcome == "refused" and reads.counts(manual_receiver.address).active == 1
    assert "You hold no pop receipts" in body_of(manual_receiver.client.get(f"/receive/main/{at(manual_receiver.address)}"))


def test_an_update_returns_a_new_pop_receipt_and_may_replace_the_text(manual_receiver):
    manual_receiver.do("get", numofmessages="1", visibilitytimeout="30 s")
    mine = manual_receiver.held()
    part = body_of(manual_receiver.do("update", visibilitytimeout="10 min", replace="1", text="better", **mine))
    assert manual_receiver.held()["receipt"] in part and mine["receipt"] not in part
    [row] = reads.list_messages(manual_receiver.address).rows
    assert row.visible_at - row.read_at == timedelta(minutes=10) and reads.body(manual_receiver.address, 1).content == b"better"
    manual_receiver.do("update", visibilitytimeout="0", **manual_receiver.held())
    [row] = reads.list_messages(manual_receiver.address).rows
    assert str(row.display_state) == "visible" and reads.body(manual_receiver.address, 1).content == b"better"


@pytest.mark.parametrize(
    ("action", "data", "status"),
    [
        ("get", {"numofmessages": "33", "visibilitytimeout": "30 s"}, 400),
        ("get", {"numofmessages": "1", "visibilitytimeout": "0"}, 400),
        ("get", {"numofmessages": "1", "visibilitytimeout": "8 days"}, 400),
        ("get", {"numofmessages": "1", "visibilitytimeout": "500 ms"}, 400),
        ("delete", {"message_id": "nonsense", "receipt": "x"}, 404),
        ("delete", {"receipt": "x"}, 400),
        ("update", {"message_id": "nonsense", "receipt": "x", "visibilitytimeout": "soon"}, 400),
        ("renew", {}, 400),
    ],
)
def test_bad_input_is_reported_at_its_field(manual_receiver, action, data, status):
    response = manual_receiver.do(action, **data)
    assert response.status_code == status, body_of(response)
    assert [str(row.display_state) for row in reads.list_messages(manual_receiver.address).rows] == ["visible"]


def test_the_holder_of_the_pop_receipt_settles_a_message_on_its_page(manual_receiver):
    manual_receiver.do("get", numofmessages="1", visibilitytimeout="30 s")
    address = f"/messages/{at(manual_receiver.address)}/1"
    assert "You hold its pop receipt" in body_of(manual_receiver.client.get(address))
    assert manual_receiver.client.post(address, {"action": "delete", **manual_receiver.held()})["Location"] == address
    page = body_of(manual_receiver.client.get(address))
    assert (
        "No longer in the queue." in page
        and "Deleted with its pop receipt" in page
        and "Received by a get: leased, with a new pop receipt" in page
    )


# Accounts, queues, settings


def test_an_account_and_a_queue_are_created(db, as_):
    client = as_("administrator")
    name = "made" + datetime.now(UTC).strftime("%H%M%S%f")
    response = client.post("/new-namespace/", {"family": "queue_storage", "name": name, "tier": "standard"})
    assert response["Location"] == f"/namespaces/{name}/", body_of(response)
    data = {"account": name, "queue": "jobs", "metadata": "Team = billing\n", "max_dequeue_count": "5", "expiry_grace": "2 min",
            "history_level": "2"}  # fmt: skip
    response = client.post("/new-storage-queue/", data)
    assert response["Location"] == f"/entities/{name}/jobs", body_of(response)
    stored = queue_storage.get_queue(EntityAddress(name, "jobs"))
    assert (stored.metadata, stored.max_dequeue_count, stored.poison.path) == ({"team": "billing"}, 5, "jobs-poison")
    page = body_of(client.get(f"/namespaces/{name}/"))
    assert "Storage account of Queue Storage" in page and "Visible" in page and "Rescheduled" in page


def test_an_account_is_deleted_with_its_queues_by_its_typed_name(account, as_):
    for name, texts in (("one", ["a", "b"]), ("two", [])):
        queue_storage.put_all(queue_storage.create_queue(EntityAddress(account, name)).address, texts)
    client, url = as_("administrator"), f"/delete-namespace/{account}/"
    assert f'href="{url}"' in body_of(client.get(f"/namespaces/{account}/"))
    assert f'href="{url}"' not in body_of(as_("operator").get(f"/namespaces/{account}/"))
    assert as_("operator").post(url, {"name": account}).status_code == 403
    page = body_of(client.get(url))
    assert "2 queues and 2 messages" in page and "is kept until" in page
    assert client.post(url, {"name": "another"}).status_code == 400
    assert account in [listed.name for listed in queue_storage.list_accounts()]
    assert client.post(url, {"name": account})["Location"] == "/entities/"
    assert account not in [listed.name for listed in queue_storage.list_accounts()]
    assert the_last_act().detail == f"Deleted the storage account {account}: 2 queues, 2 messages."
    assert f"There is no namespace named {account}." in body_of(client.get(url)) and client.get(url).status_code == 404


def test_only_an_empty_namespace_can_be_deleted(namespace, as_):
    client, url = as_("administrator"), f"/delete-namespace/{namespace}/"
    address = EntityAddress(namespace, "orders")
    entities.create_queue(address)
    page = body_of(client.get(url))
    assert "has 1 entity. Delete it first" in page and "disabled" in page
    refused = client.post(url, {"name": namespace})
    assert refused.status_code == 409 and "Delete them first" in body_of(refused)
    entities.delete_queue(address)
    assert client.post(url, {"name": namespace}).status_code == 302
    assert the_last_act().detail == f"Deleted the namespace {namespace}."
    vhost = rabbitmq.create_vhost("another/one").name
    elsewhere = client.get(reverse("explorer:namespace_delete", args=(vhost,)))
    assert elsewhere["Location"] == reverse("explorer:rabbitmq_vhost_delete", args=(vhost,))


@pytest.mark.parametrize(
    ("data", "field"),
    [({"queue": "Big"}, "queue"), ({"queue": "ab"}, "queue"), ({"metadata": "no equals"}, "metadata"),
     ({"metadata": "1a=x"}, None), ({"max_dequeue_count": "0"}, "max_dequeue_count"),
     ({"expiry_grace": "9 days"}, "expiry_grace"),
     ({"poison_queue": "jobs", "max_dequeue_count": "3"}, "poison_queue"), ({"poison_queue": "Big!"}, "poison_queue")],
)  # fmt: skip
def test_an_invalid_queue_is_refused_at_its_field(account, as_, data, field):
    form_data = {"account": account, "queue": "jobs", "history_level": "2", "expiry_grace": "1 min"} | data
    response = as_("administrator").post("/new-storage-queue/", form_data)
    assert response.status_code == 400 and (field is None or field in response.context["form"].errors)
    assert queue_storage.list_queues(account) == []


@pytest.mark.parametrize(
    ("data", "status"),
    [({"family": "queue_storage", "name": "Bad Name"}, 400), ({"family": "service_bus", "name": "n o"}, 400),
     ({"family": "queue_storage", "name": "{there}"}, 409), ({"family": "rabbitmq", "name": "x"}, 400)],
)  # fmt: skip
def test_an_invalid_namespace_is_refused(account, as_, data, status):
    before = {namespace.name for namespace in reads.namespaces()}
    form_data = data | {"name": data["name"].format(there=account), "tier": "standard"}
    assert as_("administrator").post("/new-namespace/", form_data).status_code == status
    assert {namespace.name for namespace in reads.namespaces()} == before


def test_settings_are_changed_and_the_audit_has_old_and_new_values(jobs, as_):
    client = as_("administrator")
    form = client.get(f"/settings/{at(jobs)}").context["form"]
    fields = {name: form[name].value() for name in QueueOptionsForm.base_fields if form[name].value() not in (None, False)}
    assert client.post(f"/settings/{at(jobs)}", fields).status_code == 302
    assert the_last_act().detail == "Nothing was changed."
    response = client.post(
        f"/settings/{at(jobs)}", fields | {"max_dequeue_count": "9", "metadata": "", "strict_visibility": "on"}
    )
    assert response.status_code == 302, body_of(response)
    stored = queue_storage.get_queue(jobs)
    assert (stored.max_dequeue_count, stored.metadata, stored.strict_visibility) == (9, {}, True)
    assert (
        "Max dequeue count from 2 to 9" in the_last_act().detail and "Metadata from team=billing to none" in the_last_act().detail
    )
    assert the_last_act().detail.endswith("No existing messages are affected.")
    assert as_("operator").get(f"/settings/{at(jobs)}").status_code == 403


def test_settings_preview_and_report_their_effects_on_messages(account, as_):
    queue = queue_storage.create_queue(EntityAddress(account, "late")).address
    queue_storage.put_all(queue, ["a", "b"])
    queue_storage.get(queue, visibility_timeout=timedelta(seconds=1))
    namespaces.step_clock(account, timedelta(seconds=1))
    client, url = as_("administrator"), f"/settings/{at(queue)}"
    form_data = {"history_level": "2", "expiry_grace": "1 min", "max_dequeue_count": "1"}
    page = body_of(client.post(url, form_data | {"preview": "1"}))
    assert "Not saved yet" in page and "1 message</strong> moves to the poison queue now (late-poison)" in page
    assert queue_storage.get_queue(queue).max_dequeue_count is None
    assert "max_dequeue_count" in client.post(url, form_data | {"preview": "1", "max_dequeue_count": "0"}).context["form"].errors
    client.post(url, form_data)
    assert the_last_act().detail.endswith("Of the existing messages, 1 moves to the poison queue now.")
    assert "Nothing would change" in body_of(client.post(url, form_data | {"preview": "1"}))


def test_a_previewed_change_is_saved_or_previewed_again_if_the_queue_has_changed(account, as_):
    queue = queue_storage.create_queue(EntityAddress(account, "late")).address
    client, url = as_("administrator"), f"/settings/{at(queue)}"
    form_data = {"history_level": "2", "expiry_grace": "1 min", "max_dequeue_count": "1"}
    shown = client.post(url, form_data | {"preview": "1"})
    assert "Save if unchanged" in body_of(shown)
    token = shown.context["previewed"].token
    assert client.post(url, form_data | {"token": token, "max_dequeue_count": "2"}).status_code == 409, (
        "something else was previewed"
    )
    queue_storage.put(queue, "a")
    queue_storage.get(queue, visibility_timeout=timedelta(seconds=1))
    namespaces.step_clock(account, timedelta(seconds=1))
    refused = client.post(url, form_data | {"token": token})
    page = body_of(refused)
    assert refused.status_code == 409 and "has changed since the preview" in page
    assert "1 message</strong> moves to the poison queue now (late-poison)" in page and the_last_act().outcome == "refused"
    assert queue_storage.get_queue(queue).max_dequeue_count is None
    assert client.post(url, form_data | {"token": refused.context["previewed"].token}).status_code == 302
    assert queue_storage.get_queue(queue).max_dequeue_count == 1
    assert the_last_act().detail.endswith("Of the existing messages, 1 moves to the poison queue now.")


def test_a_queue_is_deleted_by_its_typed_name(jobs, as_):
    client = as_("administrator")
    assert client.post(f"/delete/{at(jobs)}", {"name": "job"}).status_code == 400
    assert client.post(f"/delete/{at(jobs)}", {"name": "jobs"})["Location"] == f"/namespaces/{jobs.namespace}/"
    assert "Deleted" in body_of(client.get(f"/entities/{at(jobs)}")), "its record"


@pytest.mark.parametrize("page", ["release-locks", "test-rules", "new-rule", "rules/x", "delete-rule/x"])
def test_pages_that_only_service_bus_has_are_refused_with_a_reason(jobs, as_, page):
    response = as_("administrator").get(f"/{page}/{at(jobs)}")
    assert response.status_code == 409 and "Queue Storage" in body_of(response)


def test_a_service_bus_queue_can_be_created_only_in_a_service_bus_namespace(shop, jobs, as_):
    choices = [name for name, _ in as_("administrator").get("/new/queue/").context["form"].fields["namespace"].choices]
    assert shop.namespace in choices and jobs.namespace not in choices


# The families beside each other


def test_the_overview_of_several_families_uses_common_terms(shop, jobs, as_):
    client = as_("viewer")
    names = ("available", "held", "waiting", "deferred", "expired", "dead")
    response = client.get("/entities/", {"columns": names})
    columns = [column for column in response.context["columns"] if column.figure]
    assert [column.title for column in columns] == ["Available", "Locked", "Scheduled", "Deferred", "Expired", "Dead-lettered"]
    counted = {entity.address: [column.figure.of(entity) for column in columns] for entity in response.context["entities"]}
    assert counted[jobs] == [2, 2, 2, None, 1, None] and counted[shop] == [1, 1, 1, 1, 1, 1]
    poison = EntityAddress(jobs.namespace, "jobs-poison")
    assert counted[poison][-1] == 1 and f'class="dead-count" href="/entities/{at(poison)}"' in body_of(response)
    narrowed = client.get("/entities/?q=family:queue-storage")
    assert {entity.family for entity in narrowed.context["entities"]} == {Family.QUEUE_STORAGE}
    assert [column.name for column in narrowed.context["columns"]][1:4] == ["visible", "delayed", "leased"]
    assert client.get("/entities/?q=family:kafka").status_code == 400


def test_a_queue_is_named_with_its_account_where_several_namespaces_are_listed(account, as_):
    address = EntityAddress(account, "lonely")
    queue_storage.create_queue(address)
    queue_storage.put(address, "hello")
    client = as_("viewer")
    with_account = f">{account}/</span>lonely</a>"
    assert with_account in body_of(client.get("/entities/?q=lonely"))
    here = body_of(client.get(f"/namespaces/{account}/"))
    assert ">lonely</a>" in here and with_account not in here


@pytest.mark.parametrize("sort", ["visible", "-leased", "held", "-ready", "-total", "rescheduled"])
def test_any_column_of_any_family_sorts(shop, jobs, as_, sort):
    assert as_("viewer").get(f"/entities/?sort={sort}").status_code == 200


def test_a_virtual_host_with_a_slash_has_its_pages(broker_database, as_):
    name = "a/b " + datetime.now(UTC).strftime("%H%M%S%f")
    rabbitmq.create_vhost(name)
    queue = EntityAddress(name, "in/box")
    rabbitmq.declare_queue(queue)
    client = as_("operator")
    page = body_of(client.get(reverse("explorer:namespace", args=[name])))
    assert "Virtual host of RabbitMQ" in page and "Unacked" in page
    address = reverse("explorer:entity", args=[name, "in/box"])
    assert address in page and client.get(address).status_code == 200
    assert client.get(reverse("explorer:send", args=[name, "in/box"])).status_code == 409


def test_a_removed_message_is_found_by_the_search(jobs, as_):
    gone = next(event for event in reads.gone(jobs).rows)
    page = body_of(as_("viewer").get(f"/messages/?q={gone.message_id}"))
    assert "removed" in page and f"/messages/{jobs}/{gone.sequence_number}" in page


def test_a_user_does_not_see_the_pop_receipts_of_another_user(manual_receiver, as_):
    manual_receiver.do("get", numofmessages="1", visibilitytimeout="30 s")
    other = as_("operator")
    assert "You hold no pop receipts" in body_of(other.get(f"/receive/main/{at(manual_receiver.address)}"))
    assert Right.LISTEN in Actor.local().rights and the_last_act().actor == f"user:{manual_receiver.client.user.username}"
