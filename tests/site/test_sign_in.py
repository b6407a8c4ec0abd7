"""Signing in by a link that works once, by password, and the roles' rights."""

import pytest
from django.core import signing
from django.core.management import CommandError, call_command
from django.urls import reverse

from broker_core.common.types import Right
from explorer.people import sign_in
from explorer.people.roles import actor_for, role_name


def test_opening_the_link_neither_signs_in_nor_invalidates_it(client, person):
    link = sign_in.link_for(person())
    for _ in range(2):
        assert b"Sign in as administrator" in client.get(link).content
    assert "_auth_user_id" not in client.session


def test_the_link_signs_in_once(client, person):
    user = person()
    link = sign_in.link_for(user)
    answer = client.post(link)
    assert (answer.status_code, answer.url) == (302, reverse("explorer:now"))
    assert client.session["_auth_user_id"] == str(user.pk)
    for again in (client.get(link), client.post(link)):
        assert again.status_code == 403
        assert b"This link has already been used." in again.content


def test_an_expired_link_says_so(client, person, settings):
    link = sign_in.link_for(person())
    settings.SIGN_IN_LINK_SECONDS = -1
    assert b"This link has expired." in client.post(link).content


@pytest.mark.parametrize(
    "token",
    ["nonsense", signing.dumps([1, "x"], salt="another"), signing.dumps("no list", salt=sign_in.SALT)],
    ids=["nonsense", "other salt", "no list"],
)
def test_a_broken_link_says_so(client, db, token):
    answer = client.get(reverse("explorer:sign_in_link", args=[token]))
    assert answer.status_code == 403
    assert b"This link is incomplete or belongs to another installation." in answer.content


def test_a_link_of_a_deactivated_user_is_refused(client, person):
    user = person()
    link = sign_in.link_for(user)
    user.is_active = False
    user.save()
    assert client.post(link).status_code == 403


def test_a_user_signs_in_with_a_password_and_signs_out(client, person):
    user = person("viewer")
    user.set_password("open sesame 7")
    user.save()
    page = reverse("explorer:sign_in")
    assert b"Incorrect user name or password." in client.post(page, {"username": "viewer", "password": "wrong"}).content
    assert client.post(page, {"username": "viewer", "password": "open sesame 7"}).url == reverse("explorer:now")
    assert client.post(reverse("explorer:sign_out")).url == page


def test_the_admin_uses_the_same_sign_in(client, db):
    answer = client.get("/admin/", follow=True)
    assert [url for url, _ in answer.redirect_chain][-1].startswith(reverse("explorer:sign_in") + "?next=%2Fadmin%2F")


@pytest.mark.parametrize(
    ("role", "has", "lacks"),
    [
        ("viewer", Right.BROWSE, Right.SEE_BODIES | Right.SEND | Right.LISTEN | Right.OPERATE | Right.MANAGE),
        ("operator", Right.BROWSE | Right.SEE_BODIES | Right.SEND | Right.LISTEN | Right.OPERATE, Right.MANAGE),
        ("administrator", Right.ALL, Right.NONE),
        (None, Right.NONE, Right.ALL),
    ],
)
def test_each_role_has_its_rights(person, role, has, lacks):
    actor = actor_for(person(role))
    assert actor.rights & has == has
    assert not actor.rights & lacks
    assert str(actor) == f"user:{role or 'nobody'}"


@pytest.mark.slow
def test_viewing_bodies_is_a_separate_right(person):
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission
    from django.core.management import call_command

    call_command("seed")
    viewer = person("viewer")
    viewer.user_permissions.add(Permission.objects.get(codename="see_bodies"))
    viewer = get_user_model().objects.get(pk=viewer.pk)  # permissions are cached on the object
    assert actor_for(viewer).rights == Right.BROWSE | Right.SEE_BODIES
    assert role_name(viewer) == "viewer"


def test_a_deactivated_user_has_no_rights(person):
    user = person("administrator")
    user.is_active = False
    assert actor_for(user).rights == Right.NONE


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_the_admin_refuses_users_without_staff_status_instead_of_redirecting_them(client, person, role):
    client.force_login(person(role))
    answer = client.get("/admin/", follow=True)
    assert answer.status_code == 403
    assert b"The admin requires staff status." in answer.content


def test_the_admin_redirects_anonymous_visitors_to_the_sign_in_and_admits_staff(client, person):
    assert client.get("/admin/", follow=True).redirect_chain[-1] == ("/sign-in/?next=%2Fadmin%2F", 302)
    client.force_login(person("administrator"))
    assert client.get("/admin/login/?next=/admin/", follow=True).redirect_chain[-1] == ("/admin/", 302)


def test_a_link_for_an_unknown_user_names_the_user(db):
    with pytest.raises(CommandError, match="no active user vera"):
        call_command("sign_in_link", user="vera")
