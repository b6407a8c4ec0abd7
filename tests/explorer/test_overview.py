"""The table of all entities, and the way to those of one namespace."""

import re
from datetime import UTC, datetime

import pytest
from django.http import HttpRequest
from django.urls import reverse

from broker_core import reads, service_bus
from broker_core.common.types import EntityAddress, EntityKind
from broker_core.reads import EntityFilter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer.frames import figures, presenters
from explorer.frames.recent import CacheByKey
from explorer.pages import now, overview
from tests.html import body_of

pytestmark = pytest.mark.django_db
pytest_plugins = ["tests.explorer.rabbitmq_office"]


@pytest.mark.parametrize(("number", "says"), [(1, "1 to 2 of 3"), (2, "3 to 3 of 3")])
def test_the_pager_says_which_entities_are_on_the_page(market, as_, monkeypatch, number, says):
    monkeypatch.setattr(overview, "ROWS", 2)
    address = reverse("explorer:namespace", args=[market.namespace])
    assert says in body_of(as_("viewer").get(f"{address}?q=kind:subscription&page={number}"))


# The sums and the pages are computed by the database; the rows are those of `reads.overview`.


@pytest.fixture
def mixed(market, jobs, office):
    """The namespaces with entities of all families and messages in every state."""
    return {market.namespace, jobs.namespace, office.vhost}


def in_order(client, address):
    """The addresses on all pages of the overview."""
    results = []
    while address:
        context = client.get(address).context
        results += [entity.address for entity in context["entities"]]
        address = context["page_after"] and f"{address.partition('&page')[0]}&page={context['page_after']}"
    return results


@pytest.mark.parametrize("of", [reads.tallies, lambda wanted: reads.tree(wanted).totals])
def test_the_totals_are_the_sums_of_the_rows(mixed, of):
    rows = [row for row in reads.overview() if row.address.namespace in mixed]
    found = [row for namespace in mixed for row in of(EntityFilter(namespace=namespace)).rows]
    for figure in figures.by_name().values():
        assert sum(figure.of(row) or 0 for row in found) == sum(figure.of(row) or 0 for row in rows), figure.name
    assert figures.count_of_kind(found) == {kind: [row.kind for row in rows].count(kind) for kind in EntityKind}
    assert sum(row.neglected for row in found) == sum(map(presenters.is_neglected, rows)) >= 1
    assert sum(row.sent_rate for row in found) == pytest.approx(sum(row.sent_rate for row in rows), abs=1)


def test_entities_without_receivers_are_named(mixed):
    rows = [row.address for row in reads.overview() if row.address.namespace in mixed and presenters.is_neglected(row)]
    named = [
        address for namespace in sorted(mixed) for address in reads.tree(EntityFilter(namespace=namespace)).totals.first_neglected
    ]
    assert sorted(named, key=str) == sorted(rows, key=str)


@pytest.mark.parametrize("sort", ["active", "-dead", "-visible", "held", "sent", "-oldest", "-waiting"])
def test_pages_sorted_by_a_column_are_in_its_order(mixed, as_, monkeypatch, sort):
    monkeypatch.setattr(overview, "ROWS", 2)
    client, name = as_("viewer"), sort.removeprefix("-")
    late = datetime.max.replace(tzinfo=UTC)
    figure = figures.by_name().get(name)

    def key(row):
        if figure:
            return -1 if (count := figure.of(row)) is None else count
        return row.sent_rate if name == "sent" else row.oldest_active_at or late

    for namespace in mixed:
        rows = {row.address: row for row in reads.overview(namespace)}
        shown = in_order(client, f"{reverse('explorer:namespace', args=[namespace])}?sort={sort}")
        assert sorted(shown, key=str) == sorted(rows, key=str)
        keys = [key(rows[address]) for address in shown]
        assert keys == sorted(keys, reverse=sort.startswith("-"))


@pytest.mark.parametrize("sort", ["", "name", "-name"])
def test_pages_by_name_have_each_entity_once(mixed, as_, monkeypatch, sort):
    monkeypatch.setattr(overview, "ROWS", 2)
    for namespace in mixed:
        rows = [row.address for row in reads.overview(namespace)]
        query = f"?sort={sort}" if sort else "?all=1"
        shown = in_order(as_("viewer"), f"{reverse('explorer:namespace', args=[namespace])}{query}")
        assert shown == (rows[::-1] if sort == "-name" else rows)


@pytest.mark.parametrize(
    ("part", "count"), [("news", 4), ("NEWS/a", 1), ("news/Subscriptions/all", 1), ("orders", 1), ("%", 0), ("subscriptions", 0)]
)
def test_the_filter_is_part_of_the_shown_address(market, as_, part, count):
    context = as_("viewer").get(f"/namespaces/{market.namespace}/", {"q": part}).context
    assert len(context["entities"]) == context["entity_count"] == count
    assert context["any_entity"]


def test_a_page_beyond_the_last_one_is_empty(market, as_):
    for sort in ("name", "-name", "dead"):
        assert as_("viewer").get(f"/namespaces/{market.namespace}/?sort={sort}&page=9").context["entities"] == []


@pytest.mark.parametrize(("view", "place"), [(overview, "/namespaces/{}/"), (now, "/?namespace={}")])
def test_totals_of_very_many_entities_are_cached_and_show_their_age(shop, as_, monkeypatch, view, place):
    monkeypatch.setattr(view, "LARGE", 0)
    cache = CacheByKey()
    monkeypatch.setattr(view, "trees" if view is overview else "health", cache)
    client, address = as_("viewer"), place.format(shop.namespace)
    before = client.get(address)
    service_bus.send(shop, [Message(b"x")])
    after = client.get(address)
    if view is now:
        sums = [[total.text for total in answer.context["totals"]] for answer in (before, after)]
        assert sums[0] == sums[1]
    assert re.search(r"updated (now|\d+ s ago)", body_of(after))
    for sums_of_key in cache._kept.values():  # of all who ask: nothing of the first one's request stays in memory
        assert not any(isinstance(kept.cell_contents, HttpRequest) for kept in sums_of_key._read.__closure__)
    if view is overview:  # the rows are read again
        active = [{row.address: row.counts.active for row in answer.context["entities"]}[shop] for answer in (before, after)]
        assert active[1] == active[0] + 1


def test_dead_letters_are_red_only_while_they_are_new_or_grow(namespace, as_):
    for name in ("new", "old"):
        queue = EntityAddress(namespace, name)
        entities.create_queue(queue)
        service_bus.send(queue, [Message()] * 3)
        service_bus.dead_letter(queue, [message.lock_token for message in service_bus.receive(queue, 3)], "Broken")
    connections.current().execute(
        "UPDATE vitrine_count_delta AS d SET at = d.at - interval '1 hour' FROM vitrine_entity AS e "
        "WHERE e.id = d.entity_id AND e.path = 'old'"
    )
    page = as_("viewer").get(f"/namespaces/{namespace}/").content.decode()
    assert re.findall(r'<a class="(\w+-\w+)" href="/entities/[^/]+/(\w+)\?', page) == [
        ("dead-count", "new"),
        ("some-dead", "old"),
    ]
