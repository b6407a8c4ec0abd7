"""The navigation: its places exist, each marks its own page, and addresses of earlier versions lead to the new ones."""

import re

import pytest
from django.contrib.messages import get_messages
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.template import Context, Template
from django.template.loader import render_to_string
from django.test import Client
from django.urls import resolve, reverse

from broker_core import service_bus
from explorer.frames import glossary, recent, shell
from explorer.live.page import View
from explorer.pages import navigation
from explorer.pages.navigation import PLACES, Place
from explorer.people.roles import actor_for

from .conftest import FRAGMENT, WORKER


def test_navigation_items_have_unique_names_addresses_and_keys():
    for attribute in ("name", "url_name", "keys"):
        given = [value for place in PLACES if (value := getattr(place, attribute))]
        assert sorted(given) == sorted(set(given))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_navigation_item_is_marked_on_its_own_page(broker_database, as_, place):
    html = as_("viewer").get(place.url).content.decode()
    current = [part for part in html.split("<a\n") if 'aria-current="page"' in part.split(">")[0]]
    assert current and all(f'href="{place.url}"' in link for link in current)


def test_the_navigation_has_at_most_nine_places():
    assert sum(len(group) for group in navigation.places()) <= 9


def test_a_navigation_item_that_the_site_lacks_is_left_out(monkeypatch):
    monkeypatch.setattr(
        navigation, "PLACES", (Place("here", "Here", "now", "explorer:now"), Place("no", "No", "now", "none:such"))
    )
    assert [[place.name for place in group] for group in navigation.places()] == [["here"], []]


@pytest.mark.parametrize(("old", "new"),
    [("/sweeps/", "background_tasks"), ("/system/", "administration"), ("/audit/", "audit"), ("/activity/", "audit"),
     ("/words/", "glossary")],
)  # fmt: skip
def test_addresses_of_earlier_versions_redirect_to_the_new_addresses(client, old, new):
    answer = client.get(f"{old}?actor=vera")
    assert (answer.status_code, answer.url) == (301, f"{reverse(f'explorer:{new}')}?actor=vera")
    assert resolve(reverse(f"explorer:{new}")).url_name == new


# Above the places: environment and namespaces


@pytest.mark.parametrize(
    ("name", "color", "shown"),
    [("production", "", "red"), ("Prod", "", "red"), ("staging", "", "amber"), ("test", "", "grey"),
     ("production", "blue", "blue"), ("x", "chartreuse", "grey")],
)  # fmt: skip
def test_the_environment_has_the_configured_colour_or_that_of_its_name(settings, name, color, shown):
    settings.VITRINE_ENVIRONMENT, settings.VITRINE_ENVIRONMENT_COLOR = name, color
    assert navigation.environment() == navigation.Environment(name, shown)


def test_the_environment_is_on_every_page(shop, as_, settings):
    settings.VITRINE_ENVIRONMENT = ""
    client = as_("viewer")
    assert 'class="env' not in client.get("/administration/").content.decode()
    settings.VITRINE_ENVIRONMENT = "production"
    navigation._namespaces.clear()
    assert '<b class="env env-red">production</b>' in client.get("/administration/").content.decode()


def test_the_namespace_switch_lists_all_and_marks_the_current_namespace(shop, as_):
    navigation._namespaces.clear()
    client = as_("viewer")
    url = reverse("explorer:namespace", args=[shop.namespace])
    for page in (url, f"/entities/{shop.namespace}/{shop.path}"):
        html = client.get(page).content.decode()
        assert f'<a href="{url}" aria-current="true">{shop.namespace}' in " ".join(html.split())
    on_now = " ".join(client.get("/").content.decode().split())
    assert f'<a href="?namespace={shop.namespace}"' in on_now and '<a href="/" aria-current="true">All namespaces' in on_now
    on_map = " ".join(client.get(f"/map/?namespace={shop.namespace}&view=table").content.decode().split())
    assert f'<a href="?namespace={shop.namespace}&amp;view=table" aria-current="true"' in on_map
    assert '<a href="/map/?view=table" >All namespaces' in on_map


def test_a_person_without_a_role_sees_no_namespace_and_no_count(shop, person):
    client = Client()
    client.force_login(person(None, username="nobody"))
    answer = client.get("/")
    assert answer.status_code == 403
    assert shop.namespace not in answer.content.decode() and 'id="n-entities"></span>' in answer.content.decode()


@pytest.mark.parametrize(
    "page", ["/messages/", "/learn/", "/learn/keys/", "/filter-suggestions/", "/filter-suggestions/{}", "/map/"]
)
def test_a_person_without_a_role_sees_no_page(shop, person, page):
    """Regression: pages that need no data, and the names of properties of any queue, opened for everybody who is signed in."""
    client = Client()
    client.force_login(person(None, username="nobody"))
    assert client.get(page.format(shop)).status_code == 403


@pytest.mark.parametrize(("place", "address", "shown"), [("dead_letters", "/dead-letters/", "dead_groups.total"),
                                                          ("locks", "/locks/", "locks.matching.value")])  # fmt: skip
def test_the_navigation_count_agrees_with_its_own_page(shop, as_, place, address, shown, monkeypatch):
    """The counts of the other places are some seconds old."""
    client = as_("viewer")
    before = navigation.counts(client.get("/administration/").wsgi_request)
    monkeypatch.setattr(navigation._counts, "get", lambda: before)
    [message] = service_bus.receive(shop, 1, actor=WORKER)
    if place == "dead_letters":
        service_bus.dead_letter(shop, [message.lock_token], "Late", actor=WORKER)
    page = client.get(address)
    total = page.context
    for name in shown.split("."):
        total = total[name] if total is page.context else getattr(total, name)
    assert f'id="n-{place}">{total:,}<' in page.content.decode()
    fragments = View.of(address, actor_for(client.user), client.user).draw().fragments
    assert f'id="n-{place}">{total:,}<' in fragments[navigation.COUNTS]


def test_a_value_that_is_slow_to_compute_is_cached_for_longer(monkeypatch):
    now, reads = [0.0], []
    monkeypatch.setattr(recent.time, "monotonic", lambda: now[0])

    def read():
        now[0] += 1.0  # a second
        reads.append(1)
        return len(reads)

    value = recent.Recent(read)
    assert [value.get(), value.get()] == [1, 1]
    now[0] += 1.0 / recent.SHARE - 1
    assert value.get() == 1
    now[0] += 2
    assert value.get() == 2


# Terms and notices


def test_a_term_opens_its_glossary_entry():
    html = Template('{% load explorer %}{% term "locked" "Locked" "head" %}').render(Context())
    assert 'popovertarget="term-locked-head"' in html and 'id="term-locked-head"' in html
    assert "Held by one receiver" in html and "peek-lock" in html and f'href="{reverse("explorer:glossary")}#locked"' in html


def test_an_unknown_term_in_a_template_raises():
    with pytest.raises(KeyError):
        Template('{% load explorer %}{% term "thingummy" %}').render(Context())


def test_a_notice_offers_to_undo(rf):
    request = rf.get("/")
    SessionMiddleware(lambda _: None).process_request(request)
    MessageMiddleware(lambda _: None).process_request(request)
    shell.notify(request, "Discarded 3 messages.", undo="/operations/7/undo/")
    shell.notify(request, "Sent message 4.")
    first, second = (render_to_string("explorer/_notice.html", {"message": notice}, request) for notice in get_messages(request))
    assert 'action="/operations/7/undo/"' in first and ">Undo<" in first
    assert ">Undo<" not in second


@pytest.mark.slow
def test_every_label_that_opens_an_explanation_has_an_explanation(pages, as_):
    """Also a label in a part that is loaded later, for which the whole page has the explanation."""
    client = as_("administrator")
    for address in pages.all:
        whole = client.get(address).content.decode()
        part = client.get(address, headers=FRAGMENT).content.decode()
        wanted = set(re.findall(r'popovertarget="(term-[^"]+|[^"]+_term)"', whole + part))
        missing = [term for term in wanted if f'id="{term}"' not in whole + part]
        assert not missing, address
    sheets = re.findall(r'\sid="(term-[^"]+)"', client.get(f"/entities/{pages.at}").content.decode())
    assert len(sheets) == len(set(sheets)) > 10


def test_a_label_with_a_term_opens_it_and_other_labels_are_text():
    assert glossary.find("Max deliveries").word == "delivery count"
    assert glossary.find("Number").word == "sequence number"
    assert glossary.find("Size") is None
    labels = [label.lower() for term in glossary.BY_WORD.values() for label in (term.word, *term.also)]
    assert len(labels) == len(set(labels))
