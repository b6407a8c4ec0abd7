"""The navigation: its places exist, each marks its own page, and addresses of earlier versions lead to the new ones."""

import pytest
from django.urls import resolve, reverse

from explorer.shared import navigation
from explorer.shared.navigation import PLACES, Place


def test_no_two_places_share_a_name_an_address_or_keys():
    for attribute in ("name", "url_name", "keys"):
        given = [value for one in PLACES if (value := getattr(one, attribute))]
        assert sorted(given) == sorted(set(given))


@pytest.mark.parametrize("place", [one for one in PLACES if not one.needs_staff], ids=lambda one: one.name)
def test_a_place_is_marked_on_its_own_page(broker_database, as_, place):
    html = as_("viewer").get(place.url).content.decode()
    current = [part for part in html.split("<a\n") if 'aria-current="page"' in part.split(">")[0]]
    assert current and all(f'href="{place.url}"' in link for link in current)


def test_admin_is_listed_for_staff_alone(broker_database, as_):
    assert reverse("admin:index") not in as_("viewer").get("/").content.decode()
    client = as_("viewer")
    client.user.is_staff = True
    client.user.save()
    assert f'href="{reverse("admin:index")}"' in client.get("/").content.decode()


def test_a_place_that_the_site_does_not_have_is_left_out(monkeypatch):
    monkeypatch.setattr(
        navigation, "PLACES", (Place("here", "Here", "now", "explorer:now"), Place("no", "No", "now", "none:such"))
    )
    user = type("Someone", (), {"is_staff": False})()
    assert [one.name for one in navigation.places(user)] == ["here"]


@pytest.mark.parametrize(("old", "new"), [("/sweeps/", "system"), ("/audit/", "audit"), ("/words/", "help")])
def test_addresses_of_earlier_versions_lead_to_the_new_ones(client, old, new):
    answer = client.get(f"{old}?actor=vera")
    assert (answer.status_code, answer.url) == (301, f"{reverse(f'explorer:{new}')}?actor=vera")
    assert resolve(reverse(f"explorer:{new}")).url_name == new
