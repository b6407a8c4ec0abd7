"""The field in which lists are filtered, the search over all entities, and saved filters."""

import re

import pytest
from django.urls import reverse

from broker_core import rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.reads import Tab
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.models import AuditRecord, SavedFilter
from tests.fixtures import broker_database, vhost  # noqa: F401 - fixtures
from tests.html import body_of

from .conftest import FRAGMENT


def page_of(address, query=""):
    return f"/entities/{address}{query}"


def test_each_condition_is_a_chip_with_a_link_to_remove_it(shop, as_):
    page = body_of(as_().get(page_of(shop, "?tab=active&q=id:order-5+-prop.region=us")))
    assert re.findall(r'name="q" value="([^"]*)"', page)[:2] == ["id:order-5", "-prop.region=us"]
    assert 'href="?tab=active&q=-prop.region%3Dus"' in page and 'href="?tab=active&q=id%3Aorder-5"' in page
    assert "<b>1</b> of 3<" in page and 'href="?tab=active"' in page


def test_an_invalid_filter_stays_in_the_field_with_its_error(shop, as_):
    answer = as_().get(page_of(shop, "?q=id:order-5+reson:x"))
    page = body_of(answer).partition('id="time-bar"')[0]
    assert answer.status_code == 400
    assert 'value="id:order-5 reson:x"' in page and "<mark>reson:x</mark>" in page
    assert "There is no key reson. Write reason:" in page
    assert "No messages match" not in page and not answer.context["page"].rows


def test_conditions_on_bodies_need_the_right_to_see_them(shop, as_):
    answer = as_("viewer").get(page_of(shop, "?q=body:n"))
    assert answer.status_code == 403 and "permission to view message bodies" in body_of(answer)


def test_bodies_that_are_not_json_are_counted(shop, as_):
    service_bus.send(shop, [Message(b"plain")])
    page = body_of(as_().get(page_of(shop, "?q=$.n%3D1")))
    assert "<b>3</b> of 6<" in page and "3 bodies examined on this page are not JSON" in page


def test_a_filter_by_number_says_of_how_many_however_long_the_list_takes_to_read(shop, as_, monkeypatch):
    monkeypatch.setattr("explorer.frames.filtering.COUNT_SECONDS", 0)
    monkeypatch.setattr("broker_core.reads.messages.SCAN_CHUNK", 1)
    numbers = [row.sequence_number for row in reads.list_messages(shop, Tab.UNLOCKED).rows]
    page = body_of(as_().get(page_of(shop, f"?tab=active&q=number>={max(numbers)}")))
    assert f"<b>1</b> of {len(numbers)}<" in page and len(numbers) > 1


def test_keys_and_then_frequent_values_are_suggested(shop, as_):
    url = reverse("explorer:filter_suggestions", args=(shop.namespace, shop.path))
    client = as_()

    def suggested(typed, tab="active"):
        return re.findall(r'data-text="([^"]*)"', client.get(url, {"q": typed, "tab": tab}).content.decode())

    assert {"id:", "prop.", "age&gt;1h"} <= set(suggested(""))
    assert suggested("rea", "dead-letter")[0] == "reason:"
    assert suggested("reason:", "dead-letter")[0] == "reason=PaymentRefused"
    assert suggested("prop.")[0] == "prop.region:"
    assert suggested("prop.region:e") == ["prop.region=eu"]
    assert suggested("id:x -state:d") == ["-state:deferred", "-state:dead"]
    assert suggested("prop.region:e", "no-such-tab") == ["prop.region=eu"]


def test_removed_messages_and_messages_of_deleted_entities_are_found(shop, as_):
    old = EntityAddress(shop.namespace, "old")
    entities.create_queue(old)
    service_bus.send(old, [Message(b"x", message_id="lost-1")])
    entity_id = reads.entity(old).id
    entities.delete_queue(old)
    page = body_of(as_("viewer").get(f"/messages/?q=lost-1+entity:{shop.namespace}"))
    assert "deleted with its entity" in page and f"/messages/{old}/1?of={entity_id}" in page
    assert "removed" not in page.partition('id="found"')[2]


@pytest.mark.parametrize("query", ["order-1", "id:order-1 entity:{}"])  # by the index of ids, and by the slices
def test_a_search_says_how_a_message_left(shop, as_, query):
    text = body_of(as_("viewer").get("/messages/", {"q": query.format(shop.namespace)}))
    rows = [row for row in text.partition('id="found"')[2].split('<tr id="s-')[1:] if shop.namespace in row]
    assert len(rows) == 1 and "completed</span>" in rows[0] and "removed" not in rows[0]


def test_a_search_continues_by_a_link_and_by_htmx(shop, as_, monkeypatch):
    stored = "SELECT (SELECT count(*) FROM vitrine_message_event) + (SELECT count(*) FROM vitrine_message) AS n"
    rows = connections.current().execute(stored).fetchone().n  # also those of other tests, however many there are
    monkeypatch.setattr("broker_core.reads.searching.SLICE_ROWS", 5 + rows // 20)
    monkeypatch.setattr("broker_core.reads.searching.SLICE_SECONDS", 0)
    client = as_("viewer")
    query, found, slices = f"?q=order+entity:{shop.namespace}", set(), 0
    while query:
        page = body_of(client.get(f"/messages/{query}", headers=FRAGMENT))
        found |= set(re.findall(r">(order-\d)<", page))
        following = re.search(r'hx-get="(\?[^"]*cursor[^"]*)"', page)
        query, slices = following and following[1], slices + 1
        assert slices < 100
        if query:
            assert re.search(r"Looked at [\d,]+( of about [\d,]+)? (events|stored messages)", page)
    assert found == {f"order-{n}" for n in range(1, 6)} and slices > 1
    assert "The search is complete" in page


def test_a_message_is_found_by_its_id_before_the_search_begins(shop, as_, monkeypatch):
    monkeypatch.setattr("broker_core.reads.searching.SLICE_ROWS", 1)
    monkeypatch.setattr("broker_core.reads.searching.SLICE_SECONDS", 0)
    wanted = f"of-{shop.namespace}"
    service_bus.send(shop, [Message(b"x", message_id=wanted)])
    service_bus.send(shop, [Message(b"x")])
    client = as_("viewer")
    page = body_of(client.get(f"/messages/?q={wanted}"))
    assert f">{wanted}<" in page
    assert re.search(r"(\d+) messages? found\. Looked at (\d+) of", page).groups() == ("1", "1")
    monkeypatch.setattr("broker_core.reads.searching.SLICE_ROWS", 20_000)
    while following := re.search(r'hx-get="(\?[^"]*cursor[^"]*)"', page):
        page = body_of(client.get(f"/messages/{following[1]}", headers=FRAGMENT))
        assert f">{wanted}<" not in page
    assert "1 message found. The search is complete" in page


def test_a_search_without_a_match_names_its_limits(shop, as_):
    client = as_()
    assert "neither stored nor in the retained history" in body_of(client.get(f"/messages/?q=nothing+entity:{shop.namespace}"))
    page = body_of(client.get(f"/messages/?q=body:nothing+entity:{shop.namespace}"))
    assert "Only stored messages are searched" in page


def test_filters_are_saved_shared_applied_and_deleted(shop, as_):
    vera, otto, ada = as_("viewer"), as_("operator"), as_("administrator")
    place = {"namespace": shop.namespace, "path": shop.path, "tab": "active"}
    link = re.search(r'href="(/filters/[^"]*)"', body_of(vera.get(page_of(shop, "?tab=active&q=id:order"))))[1]
    assert "Save filter" in body_of(vera.get(link))
    saved = vera.post("/filters/save/", {"name": "Orders", "text": "id:order", "is_shared": "1", "here_only": "1", **place})
    assert saved["Location"] == page_of(shop, "?tab=active&q=id%3Aorder")
    vera.post("/filters/save/", {"name": "Mine", "text": "age>1h", **place})
    assert "Orders" in body_of(otto.get("/filters/")) and "Mine" not in body_of(otto.get("/filters/"))
    assert page_of(shop, "?q=id%3Aorder") in body_of(otto.get("/filters/"))
    one = SavedFilter.objects.get(name="Orders")
    otto.post(f"/filters/delete/{one.pk}/")
    assert SavedFilter.objects.filter(pk=one.pk).exists()
    ada.post(f"/filters/delete/{one.pk}/")
    assert not SavedFilter.objects.filter(pk=one.pk).exists()
    actions = set(AuditRecord.objects.values_list("action", "outcome"))
    assert {("save filter", "done"), ("delete filter", "done"), ("delete filter", "refused")} <= actions


def test_an_invalid_filter_is_not_saved(shop, as_):
    as_().post("/filters/save/", {"name": "Bad", "text": "reson:x"})
    as_().post("/filters/save/", {"name": "", "text": "reason:x"})
    assert not SavedFilter.objects.exists()


def test_a_user_can_add_columns_that_are_kept_for_the_list(shop, as_):
    client = as_("viewer")
    url = f"/entities/{shop.namespace}/{shop.path}"
    plain = client.get(url)
    offered = [column.key for column in plain.context["columns"].offered]
    assert offered == ["prop.region", "subject"]
    assert b'class="added"' not in plain.content
    chosen = client.get(f"{url}?tab=active&remember=1&show=prop.region&name=no-such")
    assert chosen["Location"] == f"{url}?tab=active&show=prop.region&show=prop.no-such"
    page = client.get(chosen["Location"]).content.decode()
    assert '<th scope="col" class="added">region</th><th scope="col" class="added">no-such</th>' in page
    assert '<td class="added" data-label="region">eu</td><td class="added" data-label="no-such"></td>' in page
    assert client.get(url)["Location"] == f"{url}?show=prop.region&show=prop.no-such"
    assert client.get(f"{url}?remember=1")["Location"] == f"{url}?"
    assert client.get(url).status_code == 200  # no columns any more
    assert client.get(url + "?" + "&".join(f"show=prop.{n}" for n in range(9))).status_code == 400


def test_columns_of_a_virtual_host_are_properties_and_headers(vhost, as_):  # noqa: F811
    address = EntityAddress(vhost, "tasks")
    rabbitmq.declare_queue(address)
    sent = Properties(correlation_id="c-1", headers={"tenant": "<b>"})
    rabbitmq.publish(vhost, [rabbitmq.Publication(b"x", routing_key="tasks", properties=sent)])
    url = reverse("explorer:entity", args=(vhost, "tasks"))
    page = as_("viewer").get(f"{url}?show=prop.tenant&show=correlation_id").content.decode()
    assert '<td class="added" data-label="tenant">&lt;b&gt;</td>' in page
    assert '<td class="added" data-label="correlation_id">c-1</td>' in page


def test_each_list_says_how_old_its_oldest_message_is(shop, as_, monkeypatch):
    client = as_("viewer")
    for tab, number in (("deferred", 3), ("locked", 4), ("dead-letter", 2), ("scheduled", 6)):
        assert client.get(page_of(shop, f"?tab={tab}")).context["oldest"].sequence_number == number
    assert client.get(page_of(shop, "?tab=active&q=id:order")).context["oldest"] is None
    service_bus.send(shop, [Message(b"x")] * 60)
    got = service_bus.receive(shop, 60)
    service_bus.defer(shop, [message.lock_token for message in got])
    page = client.get(page_of(shop, "?tab=deferred"))
    assert page.context["page"].next_cursor and page.context["oldest"].sequence_number == 3
    assert ">oldest <b>" in body_of(page)
