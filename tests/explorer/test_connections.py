"""The page of all connections and that of one: what they show, the filter, paging, locks and clients, and closing one."""

import pytest

from broker_core import clients, queue_storage, reads
from broker_core.common.actors import key_holder
from broker_core.common.types import Actor, EntityAddress, Right
from explorer.models import AuditRecord
from explorer.pages import connections as pages
from tests.clients import rows
from tests.html import body_of

from .conftest import FRAGMENT
from .test_actor_pages import text_of

pytestmark = pytest.mark.usefixtures("broker_database")
HOLDER = key_holder("http", "app", "10.0.0.7")
APP = Actor("key", "app", Right.ALL, HOLDER)


def listed(client, query=""):
    return [line.id for line in client.get("/connections/", {"q": query} if query else {}).context["lines"]]


def test_what_a_connection_does_is_shown(jobs, as_):
    client_id = rows.connect(jobs, is_tls=True)
    page = body_of(as_("viewer").get("/connections/"))
    row = text_of(page.split(f'id="k-{client_id}"')[1].split("</tr>")[0])
    for shown in (
        *("azsdk-python-storage-queue 12.18.1 10.0.0.7", f"receives {jobs.path} lease", "Queue Storage REST TLS"),
        *("app", jobs.namespace, "12/s", "4.1 KB/s", "GET /shop/orders/messages", "listener", "locks"),
    ):
        assert shown in row, shown
    assert f'href="/entities/{jobs.namespace}/{jobs.path}"' in page and 'href="/actors/key/app/"' in page
    assert "unsettled" not in row and "Closing connections requires the operator role." in page and "Close…" not in page
    page = body_of(as_("operator").get(f"/connections/{client_id}/"))
    text = text_of(page)
    for shown in ("TLS yes", "12 messages 4.9 KB", "3,400 messages 6.7 MB", "Python/3.11", "receives lease", "Close…"):
        assert shown in text, shown
    for shown in ("Waiting requests are answered with the reason", "Reason, for the client and the activity log (required)"):
        assert shown in text, shown
    assert "Close connection Cancel" in text
    assert '<td class="line-hide" data-label="limit">' in page, "what says nothing is left out on a phone"
    crumbs = page.split('aria-label="Breadcrumb"')[1].split("</nav>")[0]
    assert 'href="/connections/"' in crumbs.split("<li>")[2], "the first is not shown beside the sidebar, which has it"


def test_nothing_is_connected(as_):
    page = body_of(as_("viewer").get("/connections/"))
    assert "<strong>No connections</strong>" in page
    page = body_of(as_("viewer").get("/connections/?q=nobody"))
    assert "No connections match this filter" in page and 'href="?"' in page


def test_connections_are_filtered(jobs, as_):
    one = rows.connect(jobs)
    other = rows.connect(
        EntityAddress("elsewhere", "parcels"),
        protocol="Service Bus REST",
        product="curl",
        version="8.1",
        description="curl/8.1",
        peer="10.0.0.8",
        actor="key:root",
        holder=key_holder("http", "root", "10.0.0.8"),
        age=5,
    )
    viewer = as_("viewer")
    assert listed(viewer) == [other, one], "the newest first"
    for query, found in {
        "curl": [other],
        "10.0.0.7": [one],
        "parcels": [other],
        f"namespace:{jobs.namespace}": [one],
        "protocol:storage": [one],
        "by:app": [one],
        "by:key:root": [other],
        "by:key:roo": [],
        f'holder:"{HOLDER}"': [one],
        "holder:key:app": [one],
        'holder:"http:app@10.0.0.70"': [],
        "entity:elsewhere/parcels curl": [other],
        "entity:elsewhere/parcels by:app": [],
    }.items():
        assert listed(viewer, query) == found, query


def test_a_long_list_has_pages(as_, monkeypatch):
    monkeypatch.setattr(pages, "ROWS", 2)
    epoch = rows.process()
    ids = [rows.connect(epoch=epoch, age=age) for age in range(5)]
    viewer = as_("viewer")
    first, last = viewer.get("/connections/"), viewer.get("/connections/?page=3")
    assert [line.id for line in first.context["lines"]] == ids[:2]
    assert 'rel="next"' in body_of(first) and 'rel="prev"' not in body_of(first)
    assert [line.id for line in last.context["lines"]] == ids[4:]
    assert 'rel="prev"' in body_of(last) and "page 3 of 3" in body_of(last)
    assert [line.id for line in viewer.get("/connections/?page=99").context["lines"]] == ids[4:]


@pytest.mark.parametrize("part", ["connections", "connection-list"])
def test_the_list_is_fetched_in_parts(as_, part):
    rows.connect()
    text = body_of(as_("viewer").get("/connections/", headers={**FRAGMENT, "HX-Target": f"section#{part}"}))
    assert f'id="{part}"' in text and "<html" not in text and ('id="f-q"' in text) == (part == "connections")


def test_an_operator_closes_a_connection_with_a_reason(as_):
    client_id = rows.connect()
    form = {"action": f"close {client_id}", "reason": "it floods the queue"}
    as_("viewer").post("/connections/", form)
    assert clients.client(client_id) and AuditRecord.objects.latest("pk").outcome == "refused"
    as_("operator").post("/connections/", form | {"reason": ""})
    assert clients.client(client_id)
    answer = as_("operator").post("/connections/?q=azsdk", form, follow=True)
    assert answer.redirect_chain == [("/connections/?q=azsdk", 302)]
    assert "Closed connection azsdk-python-storage-queue 12.18.1: it floods the queue" in body_of(answer)
    assert clients.client(client_id) is None
    act = AuditRecord.objects.latest("pk")
    assert (act.action, act.outcome) == ("close connection", "done") and client_id in act.target
    assert "it floods the queue" in act.detail
    again = as_("operator").post("/connections/", form, headers=FRAGMENT)
    assert again.status_code == 400 and "has ended, or is not on this page" in body_of(again)


@pytest.mark.parametrize(
    "action", ["", "close", "close ", "close x", "close 1-1", "close rabbitmq-1", "close rabbitmq-x", "drop 1-1"]
)
def test_actions_that_are_none(as_, action):
    assert as_("operator").post("/connections/", {"action": action, "reason": "x"}, headers=FRAGMENT).status_code == 400


@pytest.mark.parametrize("name", ["1-1", "rabbitmq-1", "rabbitmq-x", "nothing"])
def test_a_connection_that_has_ended_is_not_found(as_, name):
    answer = as_("viewer").get(f"/connections/{name}/")
    assert answer.status_code == 404 and f"There is no connection named {name}." in body_of(answer)


def test_a_lock_leads_to_its_client_and_back(jobs, as_):
    (got,) = queue_storage.get(jobs, actor=APP)
    viewer = as_("viewer")
    assert "Connection of the holder" not in body_of(viewer.get(f"/locks/?q=namespace:{jobs.namespace}"))
    client_id = rows.connect(jobs, actor="key:app", holder=HOLDER)
    page = body_of(viewer.get(f"/locks/?q=namespace:{jobs.namespace}"))
    assert f'href="/connections/{client_id}/" aria-label="Connection of the holder"' in page
    page = body_of(viewer.get(f"/messages/{jobs}/{number_of(jobs, got)}"))
    assert "Connection Show connection" in text_of(page) and f'href="/connections/{client_id}/"' in page
    page = body_of(viewer.get(f"/connections/{client_id}/"))
    locks = page.split('id="connection-locks"')[1]
    assert f"Message {number_of(jobs, got)}" in text_of(locks) and "Of this key, used by this protocol from 10.0.0.7." in locks
    other = rows.connect(jobs, peer="10.0.0.8", holder=key_holder("http", "app", "10.0.0.8"))
    assert "No locks." in body_of(viewer.get(f"/connections/{other}/")), "those of another client of the key"
    rows.connect(jobs, product="curl")  # with the same holder
    page = body_of(viewer.get(f"/locks/?q=namespace:{jobs.namespace}"))
    assert 'href="/connections/?q=holder%3A' in page, "both may hold it"


def number_of(address, got):
    return next(lock.number for lock in reads.locks().rows if lock.address == address and lock.holder == HOLDER)


def test_the_page_of_an_actor_lists_its_connections(jobs, as_):
    client_id = rows.connect(jobs)
    rows.connect(jobs, actor="key:root", product="curl")
    page = body_of(as_("viewer").get("/actors/key/app/"))
    assert f'href="/connections/{client_id}/"' in page and "curl" not in page


def test_the_connections_of_a_sandbox_of_somebody_else_are_hidden(as_, monkeypatch):
    client_id = rows.connect(EntityAddress("secret", "q"))
    monkeypatch.setattr(pages.sandbox_names, "hidden_sandboxes", lambda *args, **kwargs: ("secret",))
    assert listed(as_("viewer")) == [] and as_("viewer").get(f"/connections/{client_id}/").status_code == 404
    form = {"action": f"close {client_id}", "reason": "x"}
    assert as_("operator").post("/connections/", form, headers=FRAGMENT).status_code == 400 and clients.client(client_id)
