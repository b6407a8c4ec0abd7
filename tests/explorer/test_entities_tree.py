"""The table of entities: groups by the beginning of names, what needs a person first, chosen columns, and dead letters of all
families."""

import re

import pytest

from broker_core import queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.reads import EntityFilter, entity_lists
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.pages import overview
from tests.fixtures import vhost  # noqa: F401 - fixture
from tests.html import body_of
from tests.rabbitmq import shortcuts

pytestmark = pytest.mark.django_db


@pytest.fixture
def many(namespace):
    """Queues with two prefixes that three or more share, one that two share, and one without."""
    for name in ("eu/a", "eu/b", "eu/c-1", "us.x", "us.y", "us.z", "de-1", "de-2", "alone"):
        entities.create_queue(EntityAddress(namespace, name))
    service_bus.send(EntityAddress(namespace, "us.y"), [Message(b"x")] * 5)
    return namespace


def shown(tree):
    return [item.prefix or item.parts[0].address.path for item in tree.items]


def test_three_or_more_names_with_a_common_prefix_are_a_group(many):
    tree = reads.tree(EntityFilter(namespace=many))
    assert shown(tree) == ["alone", "de-1", "de-2", "eu/", "us."]
    assert (tree.count, tree.totals.entities) == (5, 9)
    [us] = [item for item in tree.items if item.prefix == "us."]
    assert (us.entities, sum(part.counts.active for part in us.parts), len(us.children)) == (3, 5, 3)


def test_a_topic_counts_once_with_its_subscriptions(namespace):
    topic = EntityAddress(namespace, "news/eu")
    entities.create_topic(topic)
    for name in "abc":
        entities.create_subscription(topic.subscription(name))
    assert [item.prefix for item in reads.tree(EntityFilter(namespace=namespace)).items] == [None] * 4
    for name in ("news/us", "news/de"):
        entities.create_queue(EntityAddress(namespace, name))
    [group] = reads.tree(EntityFilter(namespace=namespace)).items
    assert (group.prefix, group.entities) == ("news/", 6)


def test_names_in_a_group_are_grouped_by_their_next_part(namespace):
    for name in ("a/b/1", "a/b/2", "a/b/3", "a/c"):
        entities.create_queue(EntityAddress(namespace, name))
    tree = reads.tree(EntityFilter(namespace=namespace, prefix="a/"))
    assert shown(tree) == ["a/b/", "a/c"]


def test_groups_are_open_while_all_entities_fit_and_can_be_toggled(many):
    def is_open(**given):
        tree = reads.tree(EntityFilter(namespace=many), **given)
        return [item.is_open for item in tree.items if item.prefix]

    assert is_open(open_below=9) == [True, True]
    assert is_open(open_below=8) == [False, False]
    assert is_open(open_below=8, toggled=[f"{many}/us."]) == [False, True]
    assert is_open(open_below=9, toggled=[f"{many}/us."]) == [True, False]


def test_an_open_group_is_bounded(many):
    tree = reads.tree(EntityFilter(namespace=many), max_children=2)
    assert [len(item.children) for item in tree.items if item.prefix] == [2, 2]


def test_each_open_group_has_its_entities_in_the_order_of_the_table(many, monkeypatch):
    """The statement numbers them in each group by this order, whatever the order in which it joins."""
    ranks, item = [], entity_lists._item
    monkeypatch.setattr(entity_lists, "_item", lambda rows, *rest: ranks.append([r.items for r in rows[1:]]) or item(rows, *rest))
    tree = reads.tree(EntityFilter(namespace=many), sort="-active")
    assert sorted(ranks) == [[], [], [], [1, 2, 3], [1, 2, 3]]
    [us] = [one for one in tree.items if one.prefix == "us."]
    assert [entity.address.path for entity in reads.entities_by_id(us.children)] == ["us.y", "us.x", "us.z"]


def test_entities_that_need_attention_are_first(many):
    queue = EntityAddress(many, "de-2")
    service_bus.send(queue, [Message(b"x")])
    service_bus.dead_letter(queue, [service_bus.receive(queue)[0].lock_token], "no")
    assert shown(reads.tree(EntityFilter(namespace=many), sort="-attention"))[:2] == ["de-2", "us."]


def test_pages_have_each_item_once_and_the_total(many, as_, monkeypatch):
    monkeypatch.setattr(overview, "ROWS", 2)
    client, found = as_("viewer"), []
    for number in (1, 2, 3):
        context = client.get(f"/namespaces/{many}/?page={number}").context
        found += [line.item.prefix if line.item else line.entity.address.path for line in context["lines"]]
    assert found == ["alone", "de-1", "de-2", "eu/", "us."]
    assert "Rows 5 to 5 of 5" in body_of(client.get(f"/namespaces/{many}/?page=3"))
    assert "No entities on this page" in body_of(client.get(f"/namespaces/{many}/?page=4"))


def test_a_closed_group_opens_by_its_link_and_a_long_group_links_to_all_its_entities(many, as_, monkeypatch):
    monkeypatch.setattr(overview, "ROWS", 2)
    client = as_("viewer")
    [group] = [line for line in client.get(f"/namespaces/{many}/?page=2").context["lines"] if line.item]
    html = body_of(client.get(f"/namespaces/{many}/{group.toggle}"))
    assert "Show all 3 in eu/" in html
    assert "eu/c-1" in body_of(client.get(f"/namespaces/{many}/?q=prefix:eu/&page=2"))


def test_the_order_and_the_columns_are_remembered(many, as_):
    client = as_("viewer")
    page = f"/namespaces/{many}/"
    client.get(f"{page}?sort=-total")  # a link that somebody sent changes nothing
    assert client.get(page).status_code == 200
    assert client.get(f"{page}?sort=-active&columns=active&columns=trend&remember=1").status_code == 302
    answer = client.get(f"{page}?q=us")
    assert answer.status_code == 302
    context = client.get(f"{page}{answer.url}").context
    assert (context["sort"], [column.name for column in context["columns"]]) == ("-active", ["name", "active", "trend"])
    assert context["filter"].text == "us"
    client.get(f"{page}?sort=name&remember=1")
    assert client.get(page).url == "?sort=name"
    client.cookies[overview.COOKIE] = "sort=nonsense"
    assert client.get(page).status_code == 200


def test_stored_bytes_and_the_last_receive_are_shown_on_request(many, as_):
    client = as_("viewer")
    page = f"/namespaces/{many}/"
    assert 'data-label="Stored"' not in body_of(client.get(page))
    client.get(f"{page}?columns=stored&columns=received&remember=1")
    body = body_of(client.get(f"{page}{client.get(page).url}"))
    assert re.search(r'data-label="Stored">[1-9]\d*\sbytes</td>', body) and 'data-label="Last receive">' in body


def test_a_poison_queue_of_any_name_counts_as_dead_letters(account):
    jobs, failed = EntityAddress(account, "jobs"), EntityAddress(account, "failed")
    queue_storage.create_queue(failed)
    queue_storage.create_queue(jobs, max_dequeue_count=2, poison_queue="failed")
    queue_storage.put(failed, "x")
    rows = {row.address.path: row.waits_for_operator for row in reads.overview(account)}
    assert rows == {"failed": True, "jobs": False}
    assert {part.waits_for_operator for part in reads.tallies(EntityFilter(namespace=account)).rows} == {True, False}


def test_a_queue_that_only_collects_dead_letters_counts_as_dead_letters(vhost):  # noqa: F811
    shortcuts.declare(vhost, "work", dead_letter_exchange="amq.fanout")
    shortcuts.declare(vhost, "other", dead_letter_exchange="", dead_letter_routing_key="by-name")
    for name in ("dead", "by-name", "retry", "plain"):
        form_data = {"dead_letter_exchange": ""} if name == "retry" else {}
        shortcuts.declare(vhost, name, **form_data)
    for name in ("dead", "retry"):
        rabbitmq.bind_queue(vhost, name, "amq.fanout")
    found = {row.address.path for row in reads.overview(vhost) if row.waits_for_operator}
    assert found == {"dead", "by-name"}  # what is delivered again from "retry" needs nobody
