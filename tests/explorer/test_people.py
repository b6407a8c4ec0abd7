"""People and roles: adding, roles, passwords, sign-in links, deactivation; the last administrator keeps the role."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import expect

from explorer.models import AuditRecord
from explorer.people import users
from explorer.people.roles import role_name

from .test_accessibility import browser, problems  # noqa: F401 - a fixture
from .test_administration import text_of

PASSWORD = "correct horse battery"


@pytest.fixture
def admin(db, as_):
    return as_("administrator")


def url(user):
    return f"/administration/people/{user.username}/"


def new_person(client, **values):
    usual = {"username": "vera2", "role": "viewer", "usable_password": "false"}
    return client.post("/administration/new-person/", usual | values)


def acts(action):
    return [(record.actor, record.target, record.outcome) for record in AuditRecord.objects.filter(action=action)]


def undo_of(response):
    """The address that the Undo button of a notice posts to."""
    [address] = re.findall(r'action="([^"]+)">\s*<input[^>]*>\s*<button class="undo"', response.content.decode())
    return address.replace("&amp;", "&")


# Adding


def test_a_person_is_added_and_signs_in_with_the_link_that_is_shown_once(admin):
    page = new_person(admin, username="olga", role="operator")
    olga = User.objects.get(username="olga")
    link = re.search(r'<code id="sign-in-link">([^<]+)</code>', page.content.decode())[1]
    assert "no-store" in page["Cache-Control"]
    assert role_name(olga) == "operator" and not olga.has_usable_password() and not olga.is_staff
    assert acts("create person") == [(f"user:{admin.user.username}", "olga", "done")]
    assert link not in text_of(admin.get(url(olga)))
    assert not any(link[-20:] in f"{record.detail}{record.target}" for record in AuditRecord.objects.all())
    client = Client()
    client.post(link.removeprefix("http://testserver"))
    assert "Your role: Also sees message bodies" in text_of(client.get("/administration/people/"))
    assert Client().post(link.removeprefix("http://testserver")).status_code == 403, "it works once"


def test_a_person_is_added_with_a_password(admin):
    page = new_person(admin, usable_password="true", password1=PASSWORD, password2=PASSWORD)
    vera = User.objects.get(username="vera2")
    assert page.status_code == 302 and page.url == url(vera) and vera.check_password(PASSWORD)
    assert not any(PASSWORD in record.detail for record in AuditRecord.objects.all())


@pytest.mark.parametrize(
    ("values", "said"),
    [({"username": ""}, "This field is required."), ({"username": "a b"}, "Enter a valid username."),
     ({"role": "king"}, "Select a valid choice."), ({"usable_password": "true"}, "This field is required."),
     ({"usable_password": "true", "password1": "short", "password2": "short"}, "This password is too short."),
     ({"usable_password": "true", "password1": PASSWORD, "password2": "x"}, "The two password fields didn")],
)  # fmt: skip
def test_a_bad_new_person_is_refused_at_the_field(admin, values, said):
    page = new_person(admin, **values)
    assert page.status_code == 400 and said in text_of(page)
    assert not User.objects.filter(username="vera2").exists()


def test_a_name_that_exists_is_refused(admin):
    new_person(admin)
    page = new_person(admin, username="VERA2")
    assert page.status_code == 400 and "A user with that username already exists." in text_of(page)


# Roles


def test_a_role_is_changed_and_undone(admin, person):
    vera = person("viewer", username="vera2")
    page = admin.post(url(vera), {"do": "role", "role": "administrator"}, follow=True)
    vera = User.objects.get(pk=vera.pk)
    assert (role_name(vera), vera.is_staff) == ("administrator", True) and "vera2 has the role administrator." in text_of(page)
    page = admin.post(undo_of(page), follow=True)
    vera = User.objects.get(pk=vera.pk)
    assert (role_name(vera), vera.is_staff) == ("viewer", False) and 'class="undo"' not in page.content.decode()
    assert len(acts("change person")) == 2


def test_a_viewer_is_given_the_right_to_see_bodies_until_the_role_changes(admin, person):
    vera = person("viewer", username="vera2")
    admin.post(url(vera), {"do": "role", "role": "viewer", "see_bodies": "on"})
    assert User.objects.get(pk=vera.pk).has_perm("explorer.see_bodies")
    assert re.search(r'name="see_bodies"[^>]* checked', admin.get(url(vera)).content.decode())
    admin.post(url(vera), {"do": "role", "role": "operator", "see_bodies": "on"})
    assert not users.may_see_bodies(User.objects.get(pk=vera.pk))


def test_the_last_administrator_keeps_the_role_and_stays_active(admin):
    User.objects.exclude(pk=admin.user.pk).update(is_active=False)
    for data in ({"do": "role", "role": "viewer"}, {"do": "deactivate"}):
        page = admin.post(url(admin.user), data)
        assert page.status_code == 409
        assert "only administrator" in text_of(page) or "cannot deactivate your own account" in text_of(page)
    user = User.objects.get(pk=admin.user.pk)
    assert role_name(user) == "administrator" and user.is_active
    assert acts("change person")[0][2] == "refused"
    with pytest.raises(users.LastAdministrator):
        users.set_active(user, False)


def test_an_administrator_who_gives_up_the_role_is_led_to_their_account(admin, as_):
    as_("administrator")  # another one
    page = admin.post(url(admin.user), {"do": "role", "role": "operator"}, follow=True)
    assert page.status_code == 200 and page.request["PATH_INFO"] == "/administration/people/"
    assert "Managing people requires the administrator role." in text_of(page)


# Sign-in


def test_a_deactivated_person_is_signed_out_and_gets_no_link(admin, as_):
    vera = as_("viewer")
    page = admin.post(url(vera.user), {"do": "deactivate"}, follow=True)
    assert vera.get("/").status_code == 302 and "deactivated: cannot sign in" in text_of(page)
    refused = admin.post(url(vera.user), {"do": "link"})
    assert refused.status_code == 409 and "Activate the account first." in text_of(refused)
    admin.post(undo_of(page))
    assert User.objects.get(pk=vera.user.pk).is_active


def test_a_new_password_replaces_the_old_one(admin, person):
    vera = person("viewer", username="vera2")
    page = admin.post(url(vera), {"do": "password", "new_password1": PASSWORD, "new_password2": "other"})
    assert page.status_code == 400 and "didn" in text_of(page) and "<details open>" in text_of(page)
    admin.post(url(vera), {"do": "password", "new_password1": PASSWORD, "new_password2": PASSWORD})
    assert User.objects.get(pk=vera.pk).check_password(PASSWORD)
    assert acts("set password") == [(f"user:{admin.user.username}", "vera2", "done")]


def test_an_administrator_stays_signed_in_after_changing_their_own_password(admin):
    admin.post(url(admin.user), {"do": "password", "new_password1": PASSWORD, "new_password2": PASSWORD})
    assert admin.get("/administration/people/").status_code == 200


def test_a_link_is_made_for_a_person(admin, person):
    vera = person("viewer", username="vera2")
    page = admin.post(url(vera), {"do": "link"})
    assert "http://testserver/sign-in/" in text_of(page) and acts("create sign-in link")[0][1] == "vera2"


def test_a_person_leads_to_what_they_did(admin, person):
    new_person(admin)
    [address] = re.findall(r'href="(/administration/activity/[^"]+)"', admin.get(url(admin.user)).content.decode())
    found = admin.get(address.replace("&amp;", "&"), follow=True)
    assert found.status_code == 200 and {record.actor for record in found.context["records"]} == {f"user:{admin.user.username}"}


# Rights


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_see_their_own_account_only(as_, admin, role):
    client = as_(role)
    page = text_of(client.get("/administration/people/"))
    assert client.user.username in page and admin.user.username not in page
    assert "Managing people requires the administrator role." in page
    answers = [client.get(path) for path in ("/administration/new-person/", url(admin.user))]
    answers += [new_person(client), client.post(url(admin.user), {"do": "link"})]
    answers += [client.post(url(client.user), {"do": "role", "role": "administrator"})]
    for refused in answers:
        assert refused.status_code == 403 and "You need the role administrator to change people." in text_of(refused)
    assert role_name(User.objects.get(pk=client.user.pk)) == role


def test_an_unknown_person_or_change_is_not_found(admin):
    assert admin.get("/administration/people/nobody-here/").status_code == 404
    assert admin.post(url(admin.user), {"do": "promote"}).status_code == 404


# In a browser


def tab_to(page, name):
    """Press Tab until the control of that name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText?.trim() || document.activeElement.value") == name:
            return
    raise AssertionError(f"{name} was not reached")


@pytest.mark.slow
def test_an_operator_is_added_by_keyboard_and_signs_in_with_the_link(browser, new_context, live_site):  # noqa: F811
    page = browser(bypass_csp=True)  # for axe
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/administration/")
    tab_to(page, "People")
    page.keyboard.press("Enter")
    page.wait_for_url("**/people/")
    tab_to(page, "Add person")
    page.keyboard.press("Enter")
    page.wait_for_url("**/new-person/")
    expect(page.locator("#id_username")).to_be_focused()
    assert not page.locator("#id_password1").is_visible(), "the link needs no password"
    page.keyboard.type("olga")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    link = page.locator("#sign-in-link")
    expect(link).to_contain_text("/sign-in/")
    assert not problems(page)

    hers = new_context(base_url=live_site).new_page()
    hers.goto(link.inner_text())
    hers.wait_for_url(f"{live_site}/")
    expect(hers.locator(".person .who")).to_contain_text("operator")
    hers.goto("/administration/people/")
    expect(hers.get_by_role("button", name="Add person")).to_be_disabled()
    expect(hers.locator("#why-no-people")).to_have_text("Managing people requires the administrator role.")
