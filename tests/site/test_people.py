"""manage.py person, the demonstration's people, and links for them."""

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from broker_core.common.types import Right
from explorer.demo import set_up
from explorer.models import AuditRecord
from explorer.people import users
from explorer.people.roles import actor_for, role_name


def user(name: str):
    return get_user_model().objects.get(username=name)


@pytest.mark.parametrize(
    ("role", "staff", "rights"),
    [
        ("viewer", False, Right.BROWSE),
        ("operator", False, Right.BROWSE | Right.SEE_BODIES | Right.SEND | Right.LISTEN | Right.OPERATE),
        ("administrator", True, Right.ALL),
    ],
)
def test_a_user_is_created_with_a_role_and_signs_in_by_a_link(db, client, capsys, role, staff, rights):
    call_command("person", "mia", role=role)
    assert f"Created mia: role {role}." in capsys.readouterr().out
    mia = user("mia")
    assert (role_name(mia), mia.is_staff, mia.is_superuser, mia.has_usable_password()) == (role, staff, False, False)
    assert actor_for(mia).rights == rights
    call_command("sign_in_link", user="mia")
    link = capsys.readouterr().out.strip().removeprefix("http://127.0.0.1:8000")
    assert client.post(link).status_code == 302
    assert client.session["_auth_user_id"] == str(mia.pk)


def test_a_changed_role_replaces_all_roles(person, capsys):
    person("administrator", username="boss")
    mia = person("administrator", username="mia")
    mia.set_password("open sesame 7")
    mia.is_superuser, mia.is_active = True, False
    mia.save()
    call_command("person", "mia", role="viewer")
    assert "Changed mia: role viewer." in capsys.readouterr().out
    mia = user("mia")
    assert [group.name for group in mia.groups.all()] == ["viewer"]
    assert (mia.is_staff, mia.is_superuser, mia.is_active, mia.has_usable_password()) == (False, False, True, True)
    record = AuditRecord.objects.get()
    assert (record.action, record.target, record.detail) == ("change person", "mia", "Role viewer.")


def test_the_only_administrator_keeps_the_role(person):
    person("administrator", username="boss")
    with pytest.raises(CommandError, match="only administrator"):
        call_command("person", "boss", role="viewer")
    assert role_name(user("boss")) == "administrator"


@pytest.mark.parametrize("name", ["with space", "x" * 151, "", "semi;colon"])
def test_an_unusable_user_name_is_refused(db, name):
    with pytest.raises(CommandError, match="is not a valid name"):
        call_command("person", name, role="viewer")


def test_an_unknown_role_is_refused(db):
    with pytest.raises(CommandError, match="invalid choice: 'king'"):
        call_command("person", "mia", "--role", "king")


def test_a_link_without_a_user_name_is_for_an_administrator(person, capsys):
    person("viewer", username="vera")
    ada = person("administrator", username="ada")
    call_command("sign_in_link")
    assert "/sign-in/" in capsys.readouterr().out
    assert users.administrators().first() == ada


def test_a_link_for_a_missing_user_names_the_command_to_create_the_user(db):
    with pytest.raises(CommandError, match="manage.py person vera --role viewer"):
        call_command("sign_in_link", user="vera")


def test_the_demo_has_a_user_of_each_role(db, monkeypatch, person):
    """Regression: the README named people who did not exist. Who is there already keeps the role."""
    monkeypatch.setattr(set_up, "parts", lambda: ())
    person("administrator", username="otto")
    set_up.set_up_once()
    roles = {name: role_name(user(name)) for name in ("vera", "otto", "ada")}
    assert roles == {"vera": "viewer", "otto": "administrator", "ada": "administrator"}
    user("vera").delete()
    set_up.set_up_once()
    assert not get_user_model().objects.filter(username="vera").exists()
