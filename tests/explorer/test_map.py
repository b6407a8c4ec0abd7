"""The live map: which ways messages take, where nodes are placed, and that its numbers are those of the tables."""

import random
import uuid
from collections import Counter

import pytest
from django.template.loader import render_to_string
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.rabbitmq.messages.publishing import Publication
from broker_core.reads import Flow, Link, LinkKind, Way
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store.connections import Database
from explorer.frames.actors import ActorKind, ShownActor
from explorer.live.page import View
from explorer.map import layout, pages, spots
from explorer.map.graph import Graph, Kind, Node, Spot, group_of
from explorer.map.layout import RECEIVER_WIDTH, SENDER_WIDTH, Box
from explorer.map.pages import draw
from explorer.pages import now
from explorer.people.roles import actor_for

from .conftest import FRAGMENT

DB = Database()


def graph_of(spots=("a", "b", "c"), links=(), **more):
    """A graph of entities with these labels; their ids are their places."""
    made = [Spot(name, "shop", name, ((DB, i),), **more) for i, name in enumerate(spots)]
    return Graph(made, [(DB, link) for link in links])


def link(source, target, kind=LinkKind.FORWARD, **more):
    return Link("shop", kind, source, target, more.get("parts", 1), more.get("key"))


def edges_of(graph, *flow):
    return [(edge.source, edge.target, edge.is_dead) for edge in graph.ways(DB, Flow(*flow))]


SENDER, RECEIVER = "shop sender web", "shop receiver web"
X, DLX = "shop exchange x", "shop exchange dlx"


@pytest.mark.parametrize(
    "flow, expected",
    [
        ((0, Way.IN, None, None, "key:web"), [(SENDER, "a", False)]),
        ((0, Way.OUT, None, None, "process:web-2"), [("a", RECEIVER, False)]),
        ((0, Way.OUT, None, None, None), []),
        ((0, Way.DEAD, None, None, "process:web"), [("a", "a dead", True)]),
        ((1, Way.IN, 0, None, "process:broker"), [("a", "b", False)]),  # forwarded
        ((0, Way.IN, None, None, "process:broker"), []),  # an activation: it was there before
        ((0, Way.IN, None, "x", "process:web"), [(SENDER, X, False), (X, "a", False)]),
        ((2, Way.IN, 0, "dlx", "process:broker"), [("a", DLX, True), (DLX, "c", False)]),  # dead letters of a, by an exchange
        ((7, Way.IN, None, None, "key:web"), []),  # not on the map
        ((0, Way.IN, 7, None, "key:web"), []),  # from what is not on the map
    ],
)
def test_the_path_of_a_message_is_derived_from_its_flow(flow, expected):
    links = [link("x", 0, LinkKind.BINDING), link(0, "dlx", LinkKind.DEAD), link("dlx", 2, LinkKind.BINDING), link(0, 1)]
    assert edges_of(graph_of(links=links), *flow) == expected


def test_a_message_takes_the_shortest_path_of_exchange_bindings():
    links = [
        link("x", "y", LinkKind.BINDING), link("y", "z", LinkKind.BINDING), link("z", 0, LinkKind.BINDING),
        link("y", 0, LinkKind.BINDING), link("y", "x", LinkKind.BINDING),
    ]  # fmt: skip
    found = edges_of(graph_of(links=links), 0, Way.IN, None, "x", "key:web")
    assert [target for _, target, _ in found] == [X, "shop exchange y", "a"]
    assert [target for _, target, _ in edges_of(graph_of(), 0, Way.IN, None, "x", "key:web")] == [X, "a"]  # its binding is gone


@pytest.mark.parametrize(
    "actor, name",
    [("process:orders-2", "orders"), ("courier 1", "courier"), ("key:web-shop", "web-shop"), ("worker7", "worker"),
     ("key:mobile-app@127.0.0.1", "mobile-app"), ("42", "42"), ("user:ada", "ada"), ("@", "@")],
)  # fmt: skip
def test_actors_that_differ_only_by_number_or_host_share_a_name(actor, name):
    assert group_of(actor) == name


def test_a_node_has_the_name_of_its_actor_or_the_common_prefix_of_several_names():
    graph = graph_of("ab")
    for actor in ("key:app-1@10.0.0.7", "key:app-1@10.0.0.8", "key:app-1"):
        graph.count(DB, Flow(0, Way.OUT, None, None, actor), 1)
    receivers = [node for node in graph.nodes.values() if node.kind is Kind.RECEIVER]
    assert [(node.label, {actor.name for actor in node.actors}) for node in receivers] == [("app-1", {"app-1"})]
    graph.count(DB, Flow(1, Way.OUT, None, None, "process:app-2"), 1)
    assert [(node.label, len(node.actors)) for node in graph.nodes.values() if node.kind is Kind.RECEIVER] == [("app", 2)]


def test_an_entity_with_a_receiver_is_not_marked_as_lacking_one():
    graph = graph_of(("a", "b"), is_neglected=True)
    graph.count(DB, Flow(0, Way.OUT, None, None, "worker"), 3)
    graph.settle()
    assert [node.key for node in graph.nodes.values() if node.kind is Kind.NOBODY] == ["b nobody"]
    assert ("a", "a nobody") not in graph.edges and graph.edges["a", "shop receiver worker"].messages == 3


def test_a_node_is_in_a_layer_after_its_sources_and_cycles_end():
    graph = graph_of("abcd", [link(0, 1), link(1, 2), link(2, 0), link(0, 3, LinkKind.DEAD)])
    assert layout.layers_of(graph) == {"a": 1, "b": 2, "c": 3, "d": 2}


def test_a_dead_letter_exchange_is_not_placed_after_the_queues_that_use_it():
    links = [link("x", 0, LinkKind.BINDING), link(0, "dlx", LinkKind.DEAD), link("dlx", 1, LinkKind.BINDING)]
    layers = layout.layers_of(graph_of("ab", links))
    assert (layers[X], layers[DLX], layers["a"], layers["b"]) == (1, 1, 2, 2)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(4, 60)), max_size=30), st.integers(0, 20))
def test_boxes_keep_their_order_and_never_overlap(boxes, gap):
    heights = [height for _, height in boxes]
    tops = layout.spread(sorted(float(middle) for middle, _ in boxes), heights, gap)
    assert all(top >= 0 for top in tops)
    assert all(a + height + gap <= b + 1e-6 for a, height, b in zip(tops, heights, tops[1:], strict=False))


def test_boxes_have_their_preferred_position_or_share_the_space():
    assert layout.spread([20, 100], [10, 10], 4) == [15, 95]
    assert layout.spread([50, 50], [10, 10], 4) == [38, 52]
    assert layout.spread([0, 0], [10, 10], 4) == [0, 14]


def test_boxes_end_above_a_bottom_if_there_is_room_for_them():
    assert layout.spread([100], [10], 4, bottom=50) == [40]
    assert layout.spread([20, 100], [10, 10], 4, bottom=50) == [15, 40]
    assert layout.spread([90, 100], [10, 10], 4, bottom=50) == [26, 40]
    assert layout.spread([90, 100], [10, 10], 4, bottom=20) == [0, 14]
    assert layout.spread([5, 5], [10, 10], 4, first=20, bottom=10) == [20, 34]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)), max_size=12), st.integers(0, 20), st.integers(0, 300))
def test_boxes_with_a_bottom_never_overlap(boxes, first, bottom):
    heights = [height for _, height in boxes]
    tops = layout.spread(sorted(float(middle) for middle, _ in boxes), heights, 4, first=first, bottom=bottom)
    assert all(top >= first - 1e-6 for top in tops)
    assert all(a + height + 4 <= b + 1e-6 for a, height, b in zip(tops, heights, tops[1:], strict=False))
    needed = first + sum(heights) + 4 * (len(heights) - 1)
    assert not boxes or tops[-1] + heights[-1] <= max(bottom, needed) + 1e-6


edges = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from(LinkKind)), max_size=14)


@given(edges, st.randoms())
def test_the_layout_does_not_depend_on_the_order_of_the_input(found, dice):
    flows = [Flow(i % 8, way, None, None, f"actor {i % 3}") for i, way in enumerate([*Way, *Way, Way.IN])]

    def placed():
        graph = graph_of("abcdefgh", [link(a, b, kind) for a, b, kind in found])
        for flow in flows:
            graph.count(DB, flow, 1)
        graph.settle()
        drawing = layout.placed(graph)
        return {box.node.key: (box.x, box.y) for box in drawing.boxes}, {line.edge.key: line.path for line in drawing.lines}

    before = placed()
    dice.shuffle(found)
    dice.shuffle(flows)
    assert placed() == before
    boxes = sorted(before[0].values())
    assert all(a[0] != b[0] or b[1] - a[1] >= 24 for a, b in zip(boxes, boxes[1:], strict=False))  # no two overlap


WEB, WORKER = (Actor("process", name, Right.ALL) for name in ("web", "worker"))


def edge_between(picture, source, target):
    return next((edge for edge in picture.edges if (edge.source.title, edge.target.title) == (source, target)), None)


def of(namespace, **more):
    return draw(reads.namespaces(), namespace, Actor.local(), **more)


def node(picture, title):
    return next(node for node in picture.nodes if node.title == title)


def test_the_numbers_of_the_map_agree_with_the_tables(namespace, db):
    """After 1,000 random events."""
    dice, counts = random.Random(7), Counter()
    queues = [EntityAddress(namespace, name) for name in ("orders", "payments")]
    topic = EntityAddress(namespace, "news")
    for queue in queues:
        entities.create_queue(queue, max_delivery_count=2)
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    receivable = [*queues, topic.subscription("all")]
    held = {place: [] for place in receivable}
    while counts.total() < 1000:
        if dice.random() < 0.4:
            place, number = dice.choice([*queues, topic]), dice.randint(1, 9)
            service_bus.send(place, [Message(body=b"x")] * number, actor=WEB)
            counts["web", place.path] += number
            counts["news", "all"] += number * (place == topic)
            continue
        place = dice.choice(receivable)
        if dice.random() < 0.5:
            messages = service_bus.receive(place, 5, actor=WORKER)
            held[place] += [message.lock_token for message in messages]
            counts[place.name, "worker"] += len(messages)
        elif held[place]:
            tokens, held[place] = held[place][:4], held[place][4:]
            if dice.random() < 0.5:
                service_bus.complete(place, tokens, actor=WORKER)
            else:
                service_bus.dead_letter(place, tokens, "Broken", "", actor=WORKER)
                counts[place.name, "dead letters"] += len(tokens)
    picture = of(namespace)
    shown = {(edge.source.title.rpartition("/")[2], edge.target.title.rpartition("/")[2]): edge for edge in picture.edges}
    assert {ends: edge.line.edge.messages for ends, edge in shown.items() if edge.line.edge.messages} == +counts
    for place in receivable:
        row = reads.entity(place)
        tip = node(picture, "news/all" if place.topic else place.path).tip
        assert f" {row.counts.active - row.counts.locked:,} available, {row.counts.locked:,} locked" in tip
    dead = [node.name for node in picture.nodes if node.kind is Kind.DEAD]
    assert sorted(dead) == sorted(f"{reads.entity(place).counts.dead_letter} dead letters" for place in receivable)


def test_queues_of_rabbitmq_and_storage_show_where_their_dead_letters_go(namespace, account, db):
    vhost = f"map-{namespace}"
    rabbitmq.ensure_vhost(vhost, "")
    rabbitmq.declare_exchange(vhost, "mail", "direct")
    rabbitmq.declare_exchange(vhost, "graves", "fanout")
    rabbitmq.declare_queue(EntityAddress(vhost, "letters"), arguments={"x-message-ttl": 0, "x-dead-letter-exchange": "graves"})
    rabbitmq.declare_queue(EntityAddress(vhost, "dead"))
    rabbitmq.bind_queue(vhost, "letters", "mail", "letter")
    rabbitmq.bind_queue(vhost, "dead", "graves")
    rabbitmq.publish(vhost, [Publication(b"x", "mail", "letter", Properties())], actor=WEB)
    with rabbitmq.connect(vhost, "reader", actor=WORKER) as connection:
        assert connection.channel().get("letters") is None  # it has expired
    picture = of(vhost)
    counted = {(edge.source.title, edge.target.title): edge.line.edge.messages for edge in picture.edges}
    assert counted | {("dead", "no receiver"): 0} == {
        ("web", "mail"): 1, ("mail", "letters"): 1, ("letters", "graves"): 1, ("graves", "dead"): 1, ("dead", "no receiver"): 0,
    }  # fmt: skip
    assert edge_between(picture, "letters", "graves").line.edge.is_dead
    queue_storage.create_queue(EntityAddress(account, "jobs"), poison_queue="jobs-poison", max_dequeue_count=1)
    queue_storage.create_queue(EntityAddress(account, "jobs-poison"))
    assert edge_between(of(account), "jobs", "jobs-poison").line.edge.is_dead


def test_many_entities_are_grouped_and_of_very_many_the_busiest_are_shown(namespace, db, monkeypatch):
    for team in ("billing", "shipping"):
        for i in range(4):
            entities.create_queue(EntityAddress(namespace, f"{team}/queue-{i}"))
    service_bus.send(EntityAddress(namespace, "billing/queue-2"), [Message(body=b"x")] * 3, actor=WEB)
    monkeypatch.setattr(spots, "MOST", 6)
    folded = of(namespace)
    assert {node.title: node.note for node in folded.nodes if node.kind is Kind.GROUP} == {"billing/…": "4", "shipping/…": "4"}
    assert edge_between(folded, "web", "billing/…").line.edge.messages == 3
    opened = of(namespace, opened=[f"{namespace}/billing/"])
    assert edge_between(opened, "web", "billing/queue-2") and node(opened, "shipping/…")
    monkeypatch.setattr(spots, "MOST", 1)
    busiest = of(namespace)
    assert busiest.spots.is_part and [n.title for n in busiest.nodes if n.kind is Kind.ENTITY] == ["billing/queue-2"]


def test_with_many_entities_the_live_feed_sends_the_map_later(namespace, db, as_, monkeypatch):
    for i in range(3):
        entities.create_queue(EntityAddress(namespace, f"queue-{i}"))
    client = as_("viewer")
    view = View.of(f"/?namespace={namespace}", actor_for(client.user), client.user)
    for most, is_there in ((2, False), (60, True)):
        monkeypatch.setattr(pages, "MOST", most)
        html = client.get(f"/?namespace={namespace}").content.decode()
        assert ("data-map" in html) == is_there and html.count('id="map"') == 1
        assert "data-map" in view.draw().fragments[pages.MAP]
    monkeypatch.setattr(pages, "draw", None)  # a live update of another part does not read the map
    assert list(view.draw({now.HEALTH}).live.entities)


def test_a_namespace_created_while_the_map_is_read_is_in_the_next_map(namespace, db):
    entities.create_queue(EntityAddress(namespace, "orders"))
    after = reads.namespaces()
    before = [candidate for candidate in after if candidate.name != namespace]
    shown = [{node.box.node.band for node in draw(read, None, WEB).nodes} for read in (before, after)]
    assert [namespace in bands for bands in shown] == [False, True]


@pytest.mark.parametrize(("name", "is_personal"), [("learnvera1", True), ("school", False)])
def test_the_map_of_a_sandbox_is_rendered_for_each_user(name, is_personal, db, as_):
    """Only its owner sees which of its receivers fail."""
    namespaces.create_namespace(name, Family.SERVICE_BUS)
    user = as_("viewer").user
    for page in (f"/map/?namespace={name}", f"/?namespace={name}"):
        assert View.of(page, actor_for(user), user).draw().live.personal is is_personal


def test_the_map_of_an_entity_has_only_connected_nodes(namespace, db, as_):
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    entities.create_queue(EntityAddress(namespace, "archive"))
    entities.create_queue(EntityAddress(namespace, "other"))
    entities.create_subscription(topic.subscription("all"), forward_to="archive")
    page = as_("viewer").get(f"/map/?entity={namespace}/archive")
    assert {n.title for n in page.context["map"].nodes} == {"news", "news/all", "archive"}
    table = as_("viewer").get(f"/map/?entity={namespace}/archive&view=table")
    assert "news to news/all" not in table.content.decode() and "news/all" in table.content.decode()
    assert as_("viewer").get(f"/map/?entity={namespace}/none").status_code == 404
    assert as_("viewer").get("/map/?namespace=none").status_code == 404


@pytest.mark.slow
def test_one_dot_moves_for_each_message(live_site, new_context, sign_in, person):
    namespace = f"dots-{uuid.uuid4().hex[:6]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    orders = EntityAddress(namespace, "orders")
    entities.create_queue(orders)
    service_bus.send(orders, [Message(body=b"x")], actor=WEB)  # so that the way is on the map
    context = new_context(base_url=live_site)
    sign_in(context, person("viewer"))
    page = context.new_page()
    page.goto(f"/map/?namespace={namespace}")
    expect(page.locator("#live-word")).to_have_text("live")
    page.evaluate(
        """() => {
            let dots = 0;
            new MutationObserver((all) => {
                for (const one of all) dots += one.addedNodes.length;
                document.body.dataset.dots = dots;
            })
                .observe(document.getElementById("map-dots"), { childList: true });
        }"""
    )
    service_bus.send(orders, [Message(body=b"x")] * 4, actor=WEB)
    expect(page.locator("body")).to_have_attribute("data-dots", "4")
    expect(page.locator(".node.entity .depth")).to_contain_text("5")
    service_bus.purge(orders, actor=Actor.local())  # moves nothing
    expect(page.locator(".node.entity .depth")).to_have_text("")
    expect(page.locator("body")).to_have_attribute("data-dots", "4")
    way = page.locator(".way-link").first
    way.focus()
    expect(way.locator("text")).to_have_css("opacity", "1")


def processes(*names):
    return {ShownActor(ActorKind.PROCESS, name) for name in names}


@pytest.mark.parametrize("kind", [Kind.SENDER, Kind.RECEIVER])
@pytest.mark.parametrize("failing", ["", "killed", "failing"])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_name_of_a_program_and_its_note_fit_into_its_node(kind, failing, count):
    """By the width of letters that explorer/map/pages.py assumes; the whole name is the title."""
    names = {f"payments-of-all-stores-{n}" for n in range(count)}
    width = SENDER_WIDTH if kind is Kind.SENDER else RECEIVER_WIDTH
    for label in ("payments", "payments-of-all-stores"):
        box = Box(Node("k", kind, "shop", label, processes(*names)), 0, 0, width, 20)
        node = pages._people(box, dict.fromkeys(names, failing))
        assert node.icon == ("" if failing else "process")
        end = (
            (pages.ICON_NAME_X if node.icon else pages.NAME_X)
            + pages.LETTER * len(node.name)
            + pages.NOTE_LETTER * len(node.note)
        )
        assert end + (pages.NOTE_SPACE if node.note else 0) <= width - pages.NAME_X
        assert node.has_menu and node.title == label and len(node.name) >= 4


def test_a_failing_program_says_so_beside_its_name():
    box = Box(Node("k", Kind.RECEIVER, "shop", "payments", processes("payments-1", "payments-2")), 0, 0, RECEIVER_WIDTH, 20)
    for kinds, note in (
        ({"payments-1": "killed", "payments-2": ""}, "1/2 killed"),
        ({"payments-1": "killed", "payments-2": "slow"}, "2/2 faults"),
    ):
        node = pages._people(box, kinds)
        assert (node.name, node.note, node.css) == ("payments", note, "warn")
    drawn = render_to_string("explorer/_map_node.html", {"node": node})
    assert "payments" in drawn and "2/2 faults" in drawn and "data-map-menu" in drawn
    healthy = render_to_string("explorer/_map_node.html", {"node": pages._people(box, dict.fromkeys(kinds, ""))})
    assert "warn" not in healthy, "a warning is a warning, not a way to the faults"


def test_the_name_of_a_namespace_is_above_its_senders_and_beside_its_entities():
    made = [Spot(f"{band}/q", band, "q", ((DB, i),)) for i, band in enumerate(("one", "two"))]
    graph = Graph(made, [])
    for i in range(2):
        graph.count(DB, Flow(i, Way.IN, None, None, "shop"), 1)
    graph.settle()
    drawing = layout.placed(graph)
    first, second = drawing.bands
    tops = {(box.node.band, box.node.kind): box.y for box in drawing.boxes}
    for band in (first, second):
        assert tops[band.name, Kind.ENTITY] == band.y < band.baseline < tops[band.name, Kind.SENDER]
    assert tops["one", Kind.SENDER] < second.y


def test_the_menu_of_a_node_is_a_part_of_the_page_of_the_map(namespace, db, as_):
    """What is no program of the demo has its page only."""
    client, address = as_("operator"), f"/map/?namespace={namespace}&actor=process:worker-1&actor=key:worker-2"
    part, page = (client.get(address, headers=headers).content.decode() for headers in (FRAGMENT, {}))
    assert "<html" not in part and ">worker</h2>" in part and "Faults" not in part
    assert 'href="/actors/process/worker-1/"' in part and 'href="/actors/key/worker-2/"' in part
    assert "<html" in page and ">worker</h2>" in page
