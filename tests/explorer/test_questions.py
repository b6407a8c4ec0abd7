"""The questions are asked where a person stands, with everything chosen, and Insights opens on the namespace of the last page."""

import html
import re
import uuid
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, rabbitmq, reads, service_bus
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.rabbitmq import Publication
from broker_core.reads import EntityFilter
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.frames.filtering import group_url
from explorer.frames.questions import TITLES, range_of, range_since
from explorer.models import AnalysisRun

from .conftest import WORKER
from .test_accessibility import browser  # noqa: F401

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def asked(response):
    """The questions that a page links to: (slug, parameters)."""
    links = re.findall(r'href="(/analyses/[a-z-]+/\?[^"]*)"', response.content.decode())
    urls = [urlsplit(html.unescape(link)) for link in links]
    return [(url.path.split("/")[2], {name: value for name, [value] in parse_qs(url.query).items()}) for url in urls]


def test_the_menu_of_a_queue_asks_the_five_questions_about_it(shop, as_):
    links = asked(as_("viewer").get(f"/entities/{shop}"))
    assert links == [(slug, {"queue": str(reads.entity(shop).id)}) for slug in TITLES]


def test_the_menu_of_a_topic_asks_none(shop, as_):
    topic = EntityAddress(shop.namespace, "events")
    entities.create_topic(topic)
    assert asked(as_("viewer").get(f"/entities/{topic}")) == []


def test_a_receiver_asks_who_does_what(shop, as_):
    links = asked(as_("viewer").get(f"/entities/{shop}?tab=receivers"))
    assert ("who", {"queue": str(reads.entity(shop).id), "receiver": "process:worker"}) in links


def test_a_group_of_dead_letters_asks_whether_anything_is_lost(shop, as_):
    [group] = reads.dead_groups(EntityFilter(namespace=shop.namespace)).groups
    links = asked(as_().get(group_url(group.address, group.filter)))
    assert links == [("lost", {"queue": str(reads.entity(shop).id), "reason": "PaymentRefused"})]


def test_a_group_of_rabbitmq_asks_about_the_queue_in_which_its_messages_died(db, as_):
    mail = EntityAddress(f"dead {uuid.uuid4().hex[:6]}", "mail")
    rabbitmq.create_vhost(mail.namespace)
    rabbitmq.declare_queue(mail, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "undelivered"})
    rabbitmq.declare_queue(EntityAddress(mail.namespace, "undelivered"))
    rabbitmq.publish(mail.namespace, [Publication(b"x", routing_key="mail")])
    rabbitmq.reject(mail, [delivery.token for delivery in rabbitmq.take(mail, 1, owner_id=1_000_005)])
    [group] = reads.dead_groups(EntityFilter(namespace=mail.namespace)).groups
    links = asked(as_().get(group_url(group.address, group.filter)))
    assert links == [("lost", {"queue": str(reads.entity(mail).id), "reason": "rejected"})]


def test_a_problem_of_now_asks_the_question_that_fits_it(shop, as_):
    links = asked(as_("viewer").get(f"/?namespace={shop.namespace}&list=all"))
    assert ("lost", {"queue": str(reads.entity(shop).id), "reason": "PaymentRefused"}) in links


def test_a_problem_of_now_asks_about_the_time_since_it_exists(db, as_):
    queue = EntityAddress(f"late-{uuid.uuid4().hex[:6]}", "orders")
    namespaces.create_namespace(queue.namespace, Family.SERVICE_BUS)
    entities.create_queue(queue)
    namespaces.pause_clock(queue.namespace)
    service_bus.send(queue, [Message(b"x")] * 2)
    service_bus.receive(queue, 1, actor=WORKER)
    namespaces.step_clock(queue.namespace, 2 * DAY)
    links = asked(as_("viewer").get(f"/?namespace={queue.namespace}&list=all"))
    assert ("who", {"queue": str(reads.entity(queue).id), "range": "7d"}) in links


@pytest.mark.parametrize(
    ("age", "chosen"),
    [
        (None, {}),
        (timedelta(0), {"range": "1d"}),
        (DAY, {"range": "1d"}),
        (1.1 * DAY, {"range": "7d"}),
        (8 * DAY, {"range": "30d"}),
        (31 * DAY, {"start": "2026-10-22T12:00", "end": "2026-11-22T12:00"}),
        (9_999 * DAY, {"start": "2025-10-18T12:00", "end": "2026-11-22T12:00"}),
    ],
)
def test_the_range_since_an_instant_is_the_shortest_usual_one(age, chosen):
    assert range_since(None if age is None else NOON - age, NOON) == chosen


def test_the_range_of_a_chart_is_a_usual_one_or_its_own():
    assert range_of(7 * DAY, NOON) == {"range": "7d"}
    assert range_of(timedelta(hours=1), NOON) == {"start": "2026-11-22T11:00", "end": "2026-11-22T12:00"}


@pytest.mark.parametrize("period", ["5m", "1h", "1d", "7d", "90d"])
def test_insights_asks_about_what_it_shows_in_its_range(shop, as_, period):
    client, queue = as_("viewer"), str(reads.entity(shop).id)
    of_queue = asked(client.get(f"/insights/?entity={shop}&range={period}"))
    of_namespace = asked(client.get(f"/insights/?namespace={shop.namespace}&range={period}"))
    assert [slug for slug, _ in of_queue] == [slug for slug, _ in of_namespace] == list(TITLES)
    assert all(chosen["queue"] == queue for _, chosen in of_queue)
    assert all(chosen["namespace"] == shop.namespace for _, chosen in of_namespace)
    chosen = of_queue[0][1]
    assert chosen.get("range") == (period if period in ("1d", "7d") else None) and ("start" in chosen) == (
        period not in ("1d", "7d")
    )
    assert asked(client.get("/insights/?namespace=")) == []


def test_a_question_of_insights_can_be_answered(shop, as_):
    """Its range is one that the question accepts."""
    client = as_("viewer")
    link = re.search(r'href="(/analyses/slow/[^"]*)"', client.get(f"/insights/?entity={shop}&range=5m").content.decode())
    answer = client.get(html.unescape(link[1]))
    assert answer.status_code == 200 and 5 <= (answer.context["scope"].range.length / timedelta(minutes=1)) <= 15
    AnalysisRun.objects.all().delete()


def test_the_page_of_an_actor_asks_about_what_it_received(shop, as_):
    client, robot = as_("viewer"), Actor("process", f"robot-{uuid.uuid4().hex[:6]}", Right.ALL)
    places = [EntityAddress(shop.namespace, name) for name in ("one", "two")]
    found = []
    for place in places:
        entities.create_queue(place)
        service_bus.send(place, [Message(b"x")], actor=robot)
        if not found:
            assert asked(client.get(f"/actors/process/{robot.name}/")) == [], "it only sends"
        service_bus.receive(place, 1, actor=robot)
        found += asked(client.get(f"/actors/process/{robot.name}/"))
    queue, receiver = str(reads.entity(places[0]).id), str(robot)
    assert found == [
        ("who", {"queue": queue, "receiver": receiver}), ("who", {"namespace": shop.namespace, "receiver": receiver}),
    ]  # fmt: skip


@pytest.mark.parametrize("page", ["/entities/{0}", "/namespaces/{0.namespace}/", "/insights/?entity={0}", "/analyses/?queue={1}"])
def test_insights_and_analyses_open_on_the_namespace_of_the_last_page(shop, as_, page):
    client = as_("viewer")
    assert client.get("/insights/").status_code == 200
    assert client.get(page.format(shop, reads.entity(shop).id)).status_code == 200
    answer = client.get("/insights/?range=1d")
    assert (answer.status_code, answer.url) == (302, f"/insights/?range=1d&namespace={shop.namespace}")
    assert client.get("/insights/?range=1d&namespace=").status_code == 200
    text = client.get("/analyses/").content.decode()
    assert re.search(rf'value="{shop.namespace}"\s+selected', text) and f"slow/?namespace={shop.namespace}" in text


def test_a_namespace_that_is_gone_is_not_opened_again(shop, as_):
    client = as_("viewer")
    gone = f"gone-{uuid.uuid4().hex[:6]}"
    namespaces.create_namespace(gone, Family.SERVICE_BUS)
    client.get(f"/insights/?namespace={gone}")
    assert client.get("/insights/").status_code == 302
    namespaces.delete_namespace(gone)
    assert client.get("/insights/").status_code == 200


def test_a_choice_takes_effect_without_a_button(transactional_db, shop, browser):  # noqa: F811
    page = browser("viewer")
    page.goto("/insights/?range=5m&namespace=")
    expect(page.get_by_role("button", name="Show")).to_have_count(0)
    page.get_by_label("Namespace").select_option(shop.namespace)
    page.wait_for_url(f"**namespace={shop.namespace}**")
    page.goto(f"/analyses/slow/?queue={reads.entity(shop).id}")
    page.get_by_label("Compare with").select_option("before")
    page.wait_for_url("**compare=before**")
