"""The questions are asked where a person stands, with everything chosen, and Insights opens on the namespace of the last page."""

import html
import re
import uuid
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from broker_core import namespaces, rabbitmq, reads
from broker_core.common.types import EntityAddress, Family
from broker_core.rabbitmq import Publication
from broker_core.reads import EntityFilter
from broker_core.service_bus import entities
from explorer.frames.filtering import group_url
from explorer.frames.questions import TITLES

from .test_accessibility import browser  # noqa: F401


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
