"""Account keys, signatures, access policies and service properties of Queue Storage in the explorer."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import expect

from broker_core import queue_storage, reads
from broker_core.common.types import EntityAddress, Family
from broker_core.queue_storage import accounts
from broker_core.queue_storage.connection_strings import connection_strings, service_url
from broker_core.queue_storage.rules import sas
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import CorsRule, Logging, Metrics, Retention
from explorer.lessons import sandboxes
from explorer.models import AuditRecord
from tests.html import body_of

from .test_accessibility import browser  # noqa: F401 - a fixture
from .test_keys import acts
from .test_storage_pages import at, the_last_act

KEY = re.compile(r"[A-Za-z0-9+/]{86}==")
GIVEN = "A" * 86 + "=="
POLICIES = (AccessPolicy("readers", "2026-01-01", "2030-01-01T00:00:00.1234567Z", "pr"), AccessPolicy("empty"))
SHOP = CorsRule(("https://shop.example",), ("PUT", "GET"), ("x-ms-*",), ("*",), 60)


@pytest.fixture
def admin(account, as_):
    return as_("administrator")


@pytest.fixture
def keys(account):
    return f"/administration/account-keys/{account}/"


@pytest.fixture
def stored(account):
    """A queue with access policies."""
    address = EntityAddress(account, "letters")
    queue_storage.create_queue(address, access_policies=POLICIES)
    return address


def everything_audited():
    return " ".join(f"{record.action} {record.target} {record.detail}" for record in AuditRecord.objects.all())


def typed(*forms, **changes):
    """What a browser posts of the forms on a page, with changes."""
    values = {}
    for form in forms:
        for field in (*form.management_form, *(bound for row in form for bound in row)) if hasattr(form, "forms") else form:
            value = field.value()
            if value is not None and value is not False and value != "":
                values[field.html_name] = "on" if value is True else value
    return values | changes


# Keys


def test_account_keys_are_listed_beside_the_policies_without_the_keys(admin, account, keys):
    page = body_of(admin.get("/administration/keys/"))
    assert "Account keys" in page and "Shared access policies" in page and f'href="{keys}">{account}</a>' in page
    assert "/new-namespace/?family=queue_storage" in page and not KEY.search(page)


def test_accounts_of_sandboxes_are_not_listed(admin, as_):
    sandbox = sandboxes.start(as_("viewer").user, Family.QUEUE_STORAGE)
    assert sandbox.namespace not in body_of(admin.get("/administration/keys/"))


def test_account_keys_are_hidden_until_they_are_asked_for_and_never_audited(admin, account, keys):
    assert not KEY.search(admin.get(keys).content.decode())
    page = admin.post(keys, {"do": "show"})
    shown, both = page.content.decode().replace("&#x2B;", "+"), accounts.get_keys(account).keys
    assert all(key in shown and connection_strings(account, key)[0].text in shown for key in both)
    assert "no-store" in page["Cache-Control"] and 'data-copy="#primary-key"' in shown
    assert acts("show keys") == [("", account, "done")]
    assert not any(key in everything_audited() for key in both)


def test_an_account_key_is_regenerated_and_the_other_one_stays(admin, account, keys):
    before = accounts.get_keys(account).keys
    page = admin.post(keys, {"do": "regenerate-secondary"}, follow=True)
    after = accounts.get_keys(account).keys
    assert after[0] == before[0] and after[1] != before[1]
    assert f"{account} has a new secondary key. The old one is refused" in body_of(page) and not KEY.search(body_of(page))
    assert acts("regenerate secondary key") == [("", account, "done")]


def test_a_key_is_replaced_by_a_given_one(admin, account, keys):
    page = admin.post(keys, {"do": "replace", "which": "primary", "key": GIVEN}, follow=True)
    assert accounts.get_keys(account).primary_key == GIVEN and "has the given key as its primary key" in body_of(page)
    assert acts("replace primary key") == [("", account, "done")] and GIVEN not in everything_audited()


@pytest.mark.parametrize(
    ("values", "problem"),
    [({"key": "short"}, "A key must be the base64 of 32 to 64 bytes."), ({"key": ""}, "This field is required."),
     ({"which": "third"}, "Select a valid choice.")],
)  # fmt: skip
def test_a_bad_key_is_refused_at_the_field(admin, account, keys, values, problem):
    before = accounts.get_keys(account).keys
    page = admin.post(keys, {"do": "replace", "which": "primary", "key": GIVEN} | values)
    assert page.status_code == 400 and problem in body_of(page) and "<details open" in body_of(page)
    assert accounts.get_keys(account).keys == before


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_neither_see_nor_change_keys_signatures_and_properties(as_, account, stored, keys, role):
    client = as_(role)
    signatures = [f"/administration/new-signature/{account}/", f"/administration/new-signature/{at(stored)}"]
    for url in (keys, *signatures, f"/service-properties/{account}/"):
        for refused in (client.get(url), client.post(url, {"do": "show", "permission": ["r"], "valid_for": "1 h"})):
            assert refused.status_code == 403 and "You need the role administrator to change " in body_of(refused)
    page = body_of(client.get(f"/namespaces/{account}/"))
    assert (
        "No CORS rules: browsers do not let pages of other origins call it." in page and "requires the administrator role" in page
    )


def test_pages_of_storage_accounts_are_refused_for_other_namespaces(admin, shop, keys):
    for url in (f"/administration/account-keys/{shop.namespace}/", f"/service-properties/{shop.namespace}/"):
        assert admin.get(url).status_code == 409
    assert admin.get("/administration/account-keys/none/").status_code == 404
    assert admin.post(keys, {"do": "regenerate-third"}).status_code == 404


@pytest.mark.parametrize(
    ("changed", "address"),
    [
        ({}, "http://127.0.0.1:10001/shop"),
        ({"QUEUE_STORAGE_PORT": 0}, ""),
        ({"QUEUE_STORAGE_PORT": 0, "TLS_CERTIFICATE": "c", "TLS_KEY": "k"}, "https://127.0.0.1:10011/shop"),
    ],
)
def test_the_address_of_the_service_follows_the_settings(settings, changed, address):
    ports = {"LISTEN_HOST": "127.0.0.1", "QUEUE_STORAGE_PORT": 10001, "QUEUE_STORAGE_TLS_PORT": 10011}
    for name, value in (ports | {"TLS_CERTIFICATE": "", "TLS_KEY": ""} | changed).items():
        setattr(settings, name, value)
    assert service_url("shop") == address


# Shared access signatures


def token_of(page):
    return dict(page.context["results"] and [(name, text) for name, _, text in page.context["results"]])["token"]


def test_a_signature_of_an_account_is_made(admin, account):
    page = admin.post(
        f"/administration/new-signature/{account}/",
        {"permission": ["l", "r"], "types": ["s", "o"], "valid_for": "1 h", "key": "secondary"},
    )
    token = token_of(page)
    made = sas.parse(parse_qsl(token))
    sas.check_signature(made, [accounts.get_keys(account).secondary_key], account=account, queue=None)
    assert (made.services, made.types, sas.permitted(made, {}, datetime.now(UTC))) == ("q", "so", "rl")
    assert datetime.now(UTC) + timedelta(minutes=59) < sas.read_instant(made.expiry) < datetime.now(UTC) + timedelta(minutes=61)
    shown = body_of(page)
    assert (
        f"{service_url(account)}/?{token}" in shown
        and f"QueueEndpoint={service_url(account)};SharedAccessSignature={token}" in shown
    )
    assert "no-store" in page["Cache-Control"]
    assert acts("create shared access signature") == [("", account, "done")]
    assert the_last_act().detail == f"Created a signature: read and list, until {made.expiry}, signed with the secondary key."
    assert made.signature not in everything_audited()


def test_a_signature_is_limited_to_a_time_addresses_and_https(admin, account, settings):
    start = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    values = {"permission": ["r"], "types": ["o"], "start": start, "valid_for": "2 days", "key": "primary"}
    values |= {"addresses": " 10.0.0.1 - 10.0.0.9 ", "https_only": "on"}
    page = admin.post(f"/administration/new-signature/{account}/", values)
    made = sas.parse(parse_qsl(token_of(page)))
    sas.check_signature(made, accounts.get_keys(account).keys, account=account, queue=None)
    assert (made.start, made.addresses, made.protocols) == (start, "10.0.0.1-10.0.0.9", "https")
    assert sas.read_instant(made.expiry) - sas.read_instant(start) == timedelta(days=2)
    assert [name for name, _, _ in page.context["results"]] == ["token"]
    assert "has no port with TLS here: set TLS_CERTIFICATE and TLS_KEY." in body_of(page)
    limits = f"from {start}, until {made.expiry}, for clients at 10.0.0.1-10.0.0.9, over HTTPS only, signed with the primary key."
    assert the_last_act().detail == f"Created a signature: read, {limits}"
    settings.TLS_CERTIFICATE = settings.TLS_KEY = "x.pem"
    page = admin.post(f"/administration/new-signature/{account}/", values)
    assert {name: text for name, _, text in page.context["results"]}["url"].startswith("https://")


@pytest.mark.parametrize(
    ("values", "letters"),
    [
        ({"permission": ["a", "p"], "valid_for": "10 min"}, "ap"),
        ({"policy_id": "readers", "valid_for": ""}, "pr"),
        ({"policy_id": "empty", "permission": ["u"], "valid_for": "10 min"}, "u"),
    ],
)
def test_a_signature_of_a_queue_is_made_with_and_without_a_policy(admin, stored, values, letters):
    page = admin.post(f"/administration/new-signature/{at(stored)}", values | {"key": "primary"})
    made = sas.parse(parse_qsl(token_of(page)))
    keys, policies = accounts.get_keys(stored.namespace).keys, {policy.id: policy for policy in POLICIES}
    sas.check_signature(made, keys, account=stored.namespace, queue=stored.path)
    assert sas.permitted(made, policies, datetime.now(UTC)) == letters and not made.is_for_account
    assert f"{service_url(stored.namespace)}/{stored.path}?" in body_of(page)
    assert acts("create shared access signature") == [(stored.path, "", "done")]


@pytest.mark.parametrize(
    ("values", "field", "problem"),
    [
        ({"permission": []}, "permission", "Select at least one permission."),
        ({"valid_for": ""}, "valid_for", "Enter a duration."),
        ({"valid_for": "0 s"}, "valid_for", "Enter a duration longer than 0."),
        ({"valid_for": "3651 days"}, "valid_for", "Must be at most 10 years."),
        ({"permission": ["d"]}, "permission", "Select a valid choice."),
        ({"policy_id": "readers"}, "permission", "The access policy readers already says this; leave it empty."),
        ({"policy_id": "readers"}, "valid_for", "The access policy readers already says this; leave it empty."),
        ({"policy_id": "none"}, "policy_id", "Select a valid choice."),
        (
            {"policy_id": "readers", "start": "2030-01-01"},
            "start",
            "The access policy readers already says this; leave it empty.",
        ),
        ({"start": "soon"}, "start", "Enter a time in UTC such as"),
        ({"start": "9999-12-31"}, "start", "Must be within the next 10 years."),
        ({"start": "2020-01-01"}, "valid_for", "The signature would have expired already."),
        ({"addresses": "10.0.0.9-10.0.0.1"}, "addresses", "Enter one address such as 10.0.0.1, or a range"),
    ],
)
def test_a_signature_that_would_be_refused_is_not_made(admin, stored, values, field, problem):
    usual = {"permission": ["r"], "valid_for": "1 h", "key": "primary"}
    page = admin.post(f"/administration/new-signature/{at(stored)}", usual | values)
    assert page.status_code == 400 and "results" not in page.context
    assert any(problem in error for error in page.context["form"].errors[field]) and problem in body_of(page)
    assert not acts("create shared access signature")


def test_without_a_port_only_the_token_is_shown(admin, stored, settings):
    settings.QUEUE_STORAGE_PORT = settings.QUEUE_STORAGE_TLS_PORT = 0
    page = admin.post(f"/administration/new-signature/{at(stored)}", {"permission": ["r"], "valid_for": "1 h", "key": "primary"})
    assert [name for name, _, _ in page.context["results"]] == ["token"] and "QUEUE_STORAGE_PORT is 0" in body_of(page)


# Access policies


def test_access_policies_are_shown_and_kept_as_they_are(admin, stored):
    page = admin.get(f"/settings/{at(stored)}")
    form = page.context["form"]
    assert [row["id"].value() for row in form.policies.filled] == ["readers", "empty"] and len(form.policies.empty) == 3
    assert "Policy readers" in body_of(page) and f"/administration/new-signature/{at(stored)}" in body_of(page)
    admin.post(f"/settings/{at(stored)}", typed(form, form.policies))
    assert queue_storage.get_queue(stored).access_policies == POLICIES and the_last_act().detail == "Nothing was changed."


def test_access_policies_are_changed_removed_and_added_with_a_preview(admin, stored):
    url = f"/settings/{at(stored)}"
    form = admin.get(url).context["form"]
    changes = {
        "policies-0-permission": ["r"],
        "policies-1-DELETE": "on",
        "policies-2-id": " new ",
        "policies-2-expiry": "2031-01-01",
    }
    values = typed(form, form.policies, **changes)
    page = body_of(admin.post(url, values | {"preview": "1"}))
    assert "Signatures with the access policy 'readers' follow the changed policy at once" in page
    assert "Signatures with the access policy 'empty' are refused from now on" in page
    assert queue_storage.get_queue(stored).access_policies == POLICIES, "a preview changes nothing"
    assert admin.post(url, values).status_code == 302
    changed = queue_storage.get_queue(stored).access_policies
    assert changed == (replace(POLICIES[0], permission="r"), AccessPolicy("new", expiry="2031-01-01"))
    assert "Access policies from readers: process and read, from 2026-01-01, until 2030" in the_last_act().detail
    assert the_last_act().target == "Access policies"


@pytest.mark.parametrize(
    ("changes", "row", "field", "problem"),
    [
        ({"policies-2-start": "2026-01-01"}, 2, "id", "Enter an id, by which signatures refer to the policy."),
        ({"policies-2-id": "readers"}, 2, "id", "Another policy of this queue has this id."),
        ({"policies-2-id": "x" * 65}, 2, "id", "at most 64 characters"),
        ({"policies-0-expiry": "tomorrow"}, 0, "expiry", "Enter a time in UTC such as"),
        ({"policies-0-start": "2026-02-30"}, 0, "start", "Enter a time in UTC such as"),
        ({"policies-0-permission": ["d"]}, 0, "permission", "Select a valid choice."),
    ],
)
def test_a_bad_access_policy_is_refused_at_its_field(admin, stored, changes, row, field, problem):
    url = f"/settings/{at(stored)}"
    form = admin.get(url).context["form"]
    page = admin.post(url, typed(form, form.policies, **changes))
    errors = page.context["form"].policies.forms[row].errors[field]
    assert page.status_code == 400 and any(problem in error for error in errors) and problem in body_of(page)
    assert queue_storage.get_queue(stored).access_policies == POLICIES


def test_empty_rows_are_offered_one_after_the_other_by_keyboard(transactional_db, browser):  # noqa: F811
    queue_storage.create_account("shopaccount")
    address = EntityAddress("shopaccount", "letters")
    queue_storage.create_queue(address)
    page = browser()
    page.goto(f"/settings/{at(address)}")
    page.get_by_text("Add a policy…").focus()
    expect(page.get_by_text("Add another policy…")).to_have_count(4)
    expect(page.get_by_text("Add another policy…").first).not_to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Add another policy…").first).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.type("readers")
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/entities/{at(address)}")
    assert queue_storage.get_queue(address).access_policies == (AccessPolicy("readers", permission="r"),)


def test_more_rows_than_a_queue_can_have_are_refused(admin, stored):
    url = f"/settings/{at(stored)}"
    form = admin.get(url).context["form"]
    rows = {f"policies-{n}-id": f"p{n}" for n in range(6)} | {"policies-TOTAL_FORMS": "1000000"}
    assert admin.post(url, typed(form, form.policies, **rows)).status_code == 400
    assert queue_storage.get_queue(stored).access_policies == POLICIES


def test_the_history_shows_each_access_policy_and_restores_it(admin, stored):
    queue_storage.update_queue(stored, access_policies=(AccessPolicy("readers", permission="r"), AccessPolicy("new")))
    page = admin.get(f"/revisions/{at(stored)}")
    differences = {change.name: (change.before, change.after) for change in page.context["lines"][0].changes}
    assert differences == {
        "Access policy readers": ("process and read, from 2026-01-01, until 2030-01-01T00:00:00.1234567Z", "read"),
        "Access policy empty": ("no permissions or times of its own", "none"),
        "Access policy new": ("none", "no permissions or times of its own"),
    }
    first = reads.revisions(stored)[-1]
    url = f"/settings/{at(stored)}?revision={first.id}"
    shown = admin.get(url)
    form = shown.context["form"]
    assert shown.context["previewed"].after[0].access_policies == POLICIES
    values = typed(form, form.policies, token=shown.context["previewed"].token)
    assert admin.post(url, values).status_code == 302
    assert queue_storage.get_queue(stored).access_policies == POLICIES
    assert reads.revisions(stored)[0].columns == first.columns


# Service properties


def test_service_properties_are_shown_to_all(as_, account):
    accounts.set_service_properties(account, cors=(SHOP,), logging=Logging(read=True, retention=Retention(7)))
    page = body_of(as_("viewer").get(f"/namespaces/{account}/"))
    assert "1 CORS rule" in page and "PUT, GET from https://shop.example; allows x-ms-*; exposes *; cached for 60 s" in page
    assert "read; kept for 7 days" in page and "Logging and metrics are stored and returned to clients only." in page


def test_service_properties_are_kept_as_they_are(admin, account):
    accounts.set_service_properties(account, cors=(SHOP,), hour_metrics=Metrics(enabled=True, include_apis=False))
    before = accounts.get_service_properties(account)
    form = admin.get(f"/service-properties/{account}/").context["form"]
    assert admin.post(f"/service-properties/{account}/", typed(form, form.cors)).status_code == 302
    assert accounts.get_service_properties(account) == before and the_last_act().detail == "Nothing was changed."


def test_service_properties_are_changed_and_audited(admin, account):
    url = f"/service-properties/{account}/"
    accounts.set_service_properties(account, cors=(SHOP,))
    form = admin.get(url).context["form"]
    changes = {
        "cors-0-DELETE": "on", "cors-1-origins": "*", "cors-1-methods": ["GET"], "logging_delete": "on", "logging_days": "365",
        "minute_metrics_enabled": "on", "minute_metrics_apis": "on",
    }  # fmt: skip
    page = admin.post(url, typed(form, form.cors, **changes), follow=True)
    changed = accounts.get_service_properties(account)
    assert changed.cors == (CorsRule(("*",), ("GET",)),) and changed.logging == Logging(delete=True, retention=Retention(365))
    assert changed.minute_metrics == Metrics(enabled=True, include_apis=True) and changed.hour_metrics == Metrics()
    text = (
        "Changed CORS rules from PUT, GET from https://shop.example; allows x-ms-*; exposes *; cached for 60 s to GET from *; "
        "cached for 0 s, Logging from off; kept to delete; kept for 365 days, "
        "Minute metrics from off; kept to on, by operation; kept."
    )
    assert the_last_act().detail == text and text in body_of(page)
    assert acts("change service properties") == [("", account, "done")]


def undo_address(page):
    return re.search(r'action="([^"]*[?]restore=[^"]*)"', page.content.decode())[1].replace("&amp;", "&")


def test_a_change_of_service_properties_is_undone(admin, account):
    url = f"/service-properties/{account}/"
    accounts.set_service_properties(account, cors=(SHOP,), hour_metrics=Metrics(enabled=True))
    form = admin.get(url).context["form"]
    page = admin.post(url, typed(form, form.cors, **{"cors-0-DELETE": "on", "logging_read": "on"}), follow=True)
    assert accounts.get_service_properties(account).cors == ()
    accounts.set_service_properties(account, hour_metrics=Metrics())  # by somebody else, meanwhile
    undone = admin.post(undo_address(page), follow=True)
    properties = accounts.get_service_properties(account)
    assert (properties.cors, properties.logging, properties.hour_metrics) == ((SHOP,), Logging(), Metrics())
    assert "Changed CORS rules from none to PUT, GET from https://shop.example" in body_of(undone)
    assert "restore=" not in undone.content.decode() and len(acts("change service properties")) == 2


def test_an_undo_is_for_the_account_that_was_changed(admin, account, as_):
    url = f"/service-properties/{account}/"
    form = admin.get(url).context["form"]
    undo = undo_address(admin.post(url, typed(form, form.cors, logging_read="on"), follow=True))
    queue_storage.create_account("another")
    for wrong in (undo.replace(account, "another"), f"{url}?restore=x"):
        assert admin.post(wrong).status_code == 400
    assert as_("operator").post(undo).status_code == 403
    assert accounts.get_service_properties(account).logging == Logging(read=True)


def test_a_form_that_changes_nothing_has_nothing_to_undo(admin, account):
    url = f"/service-properties/{account}/"
    form = admin.get(url).context["form"]
    assert "restore=" not in admin.post(url, typed(form, form.cors), follow=True).content.decode()


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"cors-1-methods": ["GET"]}, "origins", "Must have at least one origin, or * for all."),
        ({"cors-1-origins": "*"}, "methods", "Must have at least one method."),
        ({"cors-1-origins": "shop.example"}, "origins", "shop.example must be an origin such as https://shop.example"),
        ({"cors-1-origins": "*", "cors-1-methods": ["GET"], "cors-1-allowed_headers": "a*, b*, c*"}, "allowed_headers",
         "Has more than 64 names or 2 prefixes."),
        ({"cors-1-max_age_seconds": "-1"}, "max_age_seconds", "greater than or equal to 0"),
        ({"cors-0-methods": ["TRACE"]}, "methods", "Select a valid choice."),
        ({"logging_days": "0"}, None, "greater than or equal to 1"),
        ({"hour_metrics_days": "366"}, None, "less than or equal to 365"),
        ({"cors-1-origins": f"https://{'x' * 2048}", "cors-1-methods": ["GET"]}, None, "at most 2,048 are allowed."),
    ],
)  # fmt: skip
def test_bad_service_properties_are_refused_at_their_field(admin, account, changes, field, problem):
    url = f"/service-properties/{account}/"
    accounts.set_service_properties(account, cors=(SHOP,))
    form = admin.get(url).context["form"]
    page = admin.post(url, typed(form, form.cors, **changes))
    assert page.status_code == 400 and problem in body_of(page)
    if field:
        errors = [row.errors.get(field, []) for row in page.context["form"].cors.forms]
        assert any(problem in error for error in sum(errors, []))
    assert accounts.get_service_properties(account).cors == (SHOP,)
