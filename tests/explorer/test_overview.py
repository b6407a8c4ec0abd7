"""The table of all entities, and the way to those of one namespace."""

from dataclasses import replace

import pytest
from django.urls import reverse

from broker_core import reads
from explorer.shared import overview
from tests.html import body_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def namespaces(shop, monkeypatch):
    """Say how many namespaces there are, the shop's own among them."""
    found = next(one for one in reads.namespaces() if one.name == shop.namespace)

    def are(count):
        rows = [found, *(replace(found, name=f"school-{number}") for number in range(1, count))]
        monkeypatch.setattr(reads, "namespaces", lambda **_: rows)
        return [row.name for row in rows]

    return are


@pytest.mark.parametrize(("count", "is_menu"), [(10, False), (11, True)])
def test_many_namespaces_are_a_menu(namespaces, as_, count, is_menu):
    names = namespaces(count)
    html = body_of(as_("viewer").get(reverse("explorer:overview")))
    assert ('<details class="pick">' in html) is is_menu
    assert (f"All {count} namespaces" in html) is is_menu
    assert all(f'href="{reverse("explorer:namespace", args=[name])}"' in html for name in names)


def test_the_menu_names_the_namespace_one_is_in(namespaces, as_):
    here = namespaces(11)[0]
    html = body_of(as_("viewer").get(reverse("explorer:namespace", args=[here])))
    assert f'<summary class="button little">{here}</summary>' in html
    assert f'<li><a href="{reverse("explorer:overview")}">all</a></li>' in html


@pytest.mark.parametrize(("number", "says"), [(1, "1 to 2 of 3"), (2, "3 to 3 of 3")])
def test_the_pager_says_which_entities_are_on_the_page(market, as_, monkeypatch, number, says):
    monkeypatch.setattr(overview, "ROWS", 2)
    address = reverse("explorer:namespace", args=[market.namespace])
    html = as_("viewer").get(f"{address}?kind=subscription&page={number}").content.decode()
    assert says in html
