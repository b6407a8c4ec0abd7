"""Keys and policies in Administration: hidden until asked for, never in the audit, changed with Undo, refused to others."""

import re

import pytest

from broker_core import rabbitmq
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Family
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.service_bus.entities import shared_access
from explorer.lessons import sandboxes
from explorer.models import AuditRecord

from .test_administration import text_of
from .test_people import undo_of

KEY = re.compile(r"[A-Za-z0-9+/]{43}=")


@pytest.fixture
def admin(shop, as_):
    return as_("administrator")


@pytest.fixture
def app(shop):
    """A policy of the queue that may send."""
    return shared_access.create_policy(shop, "app", send=True)


@pytest.fixture
def url(shop, app):
    return f"/administration/keys/app/{shop.namespace}/{shop.path}"


def acts(action):
    return [(record.path, record.target, record.outcome) for record in AuditRecord.objects.filter(action=action)]


def test_all_policies_are_listed_without_their_keys(admin, shop, app):
    page = text_of(admin.get("/administration/keys/"))
    for scope, rights in ((f"all of {shop.namespace}", "manage"), (str(shop), "send")):
        assert scope in page.replace("<wbr>", "") and f'<td class="nowrap">{rights}</td>' in page
    assert not KEY.search(page)


def test_keys_of_sandboxes_are_neither_listed_nor_created(admin, as_, shop):
    sandbox = sandboxes.start(as_("viewer").user, Family.SERVICE_BUS)
    assert shared_access.list_policies(sandbox.namespace)
    for at in ("/administration/keys/", "/administration/new-access-policy/"):
        page = text_of(admin.get(at))
        assert shop.namespace in page and sandbox.namespace not in page


def test_keys_are_hidden_until_they_are_asked_for_and_never_audited(admin, shop, app, url):
    assert not KEY.search(admin.get(url).content.decode())
    page = admin.post(url, {"do": "show"})
    shown = page.content.decode().replace("&#x2B;", "+")
    assert all(key in shown for key in app.keys) and "no-store" in page["Cache-Control"]
    assert f"SharedAccessKeyName=app;SharedAccessKey={app.primary_key};EntityPath={shop.path}" in shown
    assert acts("show keys") == [(shop.path, "app", "done")]
    assert not any(KEY.search(f"{record.detail}{record.target}") for record in AuditRecord.objects.all())


def test_a_key_is_regenerated_and_the_other_one_stays(admin, shop, app, url):
    page = admin.post(url, {"do": "regenerate-secondary"}, follow=True)
    changed = shared_access.get_policy(shop, "app")
    assert changed.primary_key == app.primary_key and changed.secondary_key != app.secondary_key
    assert "app has a new secondary key. The old one is refused." in text_of(page) and not KEY.search(page.content.decode())


def test_rights_are_changed_and_undone(admin, shop, url):
    page = admin.post(url, {"do": "rights", "send": "on", "listen": "on"}, follow=True)
    assert "app may send and listen." in text_of(page) and shared_access.get_policy(shop, "app").listen
    admin.post(undo_of(page))
    changed = shared_access.get_policy(shop, "app")
    assert (changed.send, changed.listen) == (True, False) and len(acts("change access policy")) == 2


def test_a_policy_without_a_right_is_refused_at_the_field(admin, url):
    page = admin.post(url, {"do": "rights"})
    assert page.status_code == 400 and "Select at least one right." in text_of(page)


def test_a_policy_is_deleted(admin, shop, url):
    page = admin.post(url, {"do": "delete"}, follow=True)
    assert f"Deleted the policy app of {shop}." in text_of(page)
    with pytest.raises(EntityNotFound):
        shared_access.get_policy(shop, "app")


@pytest.mark.parametrize("of_entity", [False, True])
def test_a_policy_is_created_for_a_namespace_or_an_entity(admin, shop, of_entity):
    values = {"namespace": shop.namespace, "path": shop.path if of_entity else "", "name": "web", "listen": "on"}
    page = admin.post("/administration/new-access-policy/", values, follow=True)
    created = shared_access.get_policy(shop if of_entity else shop.namespace, "web")
    assert (created.send, created.listen, created.manage) == (False, True, False)
    assert page.status_code == 200 and "<h1>web</h1>" in text_of(page) and acts("create access policy")[0][2] == "done"


@pytest.mark.parametrize(
    ("values", "said"),
    [({"name": "a;b"}, "letters, digits and . - _"), ({"name": ""}, "This field is required."),
     ({"send": ""}, "Select at least one right."), ({"path": "none"}, "There is no queue or topic none in"),
     ({"namespace": "elsewhere"}, "Select a valid choice."), ({"name": "app"}, "already exists")],
)  # fmt: skip
def test_a_bad_new_policy_is_refused(admin, shop, app, values, said):
    usual = {"namespace": shop.namespace, "path": shop.path, "name": "web", "send": "on"}
    page = admin.post("/administration/new-access-policy/", usual | values)
    assert page.status_code in (400, 409) and said in text_of(page)


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_see_no_policy_and_change_none(as_, app, url, role):
    client = as_(role)
    page = text_of(client.get("/administration/keys/"))
    assert "Seeing and managing keys requires the administrator role." in page and "RootManage" not in page
    for refused in (client.get(url), client.post(url, {"do": "show"}), client.get("/administration/new-access-policy/")):
        assert refused.status_code == 403 and "You need the role administrator to change keys." in text_of(refused)


def test_an_unknown_policy_or_change_is_not_found(admin, shop, url):
    assert admin.get(f"/administration/keys/none/{shop.namespace}/").status_code == 404
    assert admin.post(url, {"do": "regenerate-third"}).status_code == 404


# Policies


def test_the_policies_of_all_virtual_hosts_are_listed(as_, broker_database):
    rabbitmq.create_vhost("policies-a/b")
    rabbitmq.set_policy("policies-a/b", Policy("short", "^tmp", {"expires": 1000}, "queues", 5))
    rabbitmq.set_policy("policies-a/b", Policy("cap", "", {"max-length": 9}, is_operator=True))
    html = text_of(as_("administrator").get("/administration/policies/"))
    assert '<a class="row-link" href="/rabbitmq/policies/user/policies-a~2Fb/short">short</a>' in html
    assert "operator policy" in html and "^tmp" in html
    assert "/rabbitmq/policies/user/" not in (seen := text_of(as_("viewer").get("/administration/policies/")))
    assert 'href="/rabbitmq/policies/policies-a~2Fb/">short</a>' in seen
