"""Every page of every family: whole, as a fragment for htmx, refused to those without the right; and bad links explained."""

import re
from types import SimpleNamespace

import pytest
from django.test import Client
from django.urls import URLPattern

from explorer import urls
from explorer.models import AuditRecord
from explorer.rabbitmq import urls as rabbitmq_urls

from . import rabbitmq_office
from .conftest import FRAGMENT, addresses_of

pytest_plugins = ["tests.explorer.rabbitmq_office"]

ELSEWHERE = {
    "preferences", "demonstration", "body", "analyses", "analysis_run", "analysis_cancel", "analysis_messages",
    "analysis_question", "analysis_report", "analysis_properties", "mark_deploy",
    "names", "rabbitmq_export", "configuration_export", "operation", "operation_file", "operation_change",
    "namespace_behaviour",
    "entity_pause", "entity_protect", "filter_suggestions", "general_suggestions", "suggestions", "save_filter", "delete_filter",
    "rename_template", "delete_template", "sandbox_start", "sandbox", "sandbox_export", "follow",
    "sandbox_code", "scenario_start", "scenario_import", "scenario_export", "scenario_delete",
}  # fmt: skip
AZURE = SimpleNamespace(
    changes=("/new", "/settings/", "/delete/", "/namespace-settings/", "/delete-namespace/", "/rules/", "/delete-rule/",
             "/operate/", "/release-locks/", "/edit/", "/configuration/export/", "/administration/new-person/",
             "/administration/new-access-policy/",
             "/administration/keys/RootManageSharedAccessKey/", "/administration/keys/app/",
             "/administration/account-keys/", "/administration/new-signature/", "/service-properties/",
             "/administration/people/somebody/"),
    sends=("/send/", "/receive/", "/import-messages/"),
    some=("/", "/entities/", "/entities/{at}", "/messages/{at}/5", "/administration/activity/",
          "/administration/", "/messages/?q=order-2", "/filters/", "/templates/"),
    bad=("/entities/?sort=colour", "/connections/?page=0", "/entities/?page=0", "/entities/?page=x", "/entities/{at}?tab=lost",
         "/entities/{at}?cursor=%00",
         "/entities/{at}?cursor=nonsense", "/entities/{at}?q=value:eu", "/entities/{at}?order=random",
         "/administration/activity/?q=outcome:maybe",
         "/administration/activity/?before=x", "/entities/{at}?tab=history&cursor=x", "/messages/?q=urn:x",
         "/messages/?q=x&cursor=0.x"),
    missing=("/connections/1-1/", "/connections/rabbitmq-0/", "/entities/{ns}/none",
             "/namespaces/none/", "/messages/{at}/999", "/edit/{at}/999", "/send/{ns}/none",
             "/receive/elsewhere/{at}",
             "/operations/999999999/", "/operate/{ns}/none?kind=purge", "/bodies/{at}/999", "/settings/{ns}/none"),
    refusal=(404,),
)  # fmt: skip
AZURE.whole = (*AZURE.changes, "/configuration/", "/import-messages/", "/learn/")  # not asked for as a fragment
RABBITMQ = SimpleNamespace(
    changes=("/rabbitmq/new/", "/rabbitmq/delete/", "/rabbitmq/policies/user/", "/rabbitmq/policies/operator/", "/delete/",
             "/rabbitmq/move/"),
    sends=("/rabbitmq/publish/", "/rabbitmq/get/", "/edit/"),
    whole=("/rabbitmq/new/vhost/", "/rabbitmq/new/queue/", "/edit/"),
    some=("/rabbitmq/vhosts/{at}/", "/entities/{at}/mail", "/connections/"),
    bad=("/rabbitmq/queues/{at}/?sort=colour", "/entities/{at}/mail?tab=lost", "/entities/{at}/mail?q=value:x"),
    missing=("/rabbitmq/vhosts/none/", "/rabbitmq/queues/none/", "/entities/{at}/none", "/rabbitmq/policies/user/{at}/none",
             "/rabbitmq/policies/other/{at}/low", "/rabbitmq/get/{at}/none", "/rabbitmq/new/policy/other/{at}/"),
    refusal=(404, 409),
)  # fmt: skip
SITES = {"azure": AZURE, "rabbitmq": RABBITMQ}


def body_of(response):
    return response.content.decode()


@pytest.fixture
def site(request):
    """The pages of Service Bus and Queue Storage, or those of RabbitMQ, with a queue that has something of everything."""
    if request.param == "azure":
        pages = request.getfixturevalue("pages")
        return SimpleNamespace(all=pages.all, at=pages.at, ns=pages.shop.namespace, **vars(AZURE))
    at = request.getfixturevalue("office").at
    return SimpleNamespace(all=sum(rabbitmq_office.addresses_of(at).values(), []), at=at, ns=at, **vars(RABBITMQ))


every_site = pytest.mark.parametrize("site", SITES, indirect=True)


def each(what):
    """For each site and each of the links of this sort."""
    return pytest.mark.parametrize(
        ("site", "link"), [(name, link) for name, site in SITES.items() for link in getattr(site, what)], indirect=["site"]
    )


def test_every_page_is_covered_by_these_tests(shop, jobs, office):
    names = {pattern.name for pattern in (*urls.urlpatterns, *rabbitmq_urls.urlpatterns) if isinstance(pattern, URLPattern)} - {
        None
    }
    assert names == addresses_of(shop, jobs).keys() | rabbitmq_office.addresses_of(office.at).keys() | ELSEWHERE


@pytest.mark.slow
@every_site
def test_every_page_works_for_an_administrator(site, as_):
    client, acts = as_("administrator"), AuditRecord.objects.count()
    for address in site.all:
        response = client.get(address, follow=True)
        page = body_of(response)
        assert response.status_code == 200, address
        assert page.count("<h1") == 1 and 'lang="en"' in page and "<main" in page, address
        assert "style=" not in page and "<script>" not in page and "onclick" not in page, address
        assert "HX-Request" in response["Vary"], address
    assert AuditRecord.objects.count() == acts, "looking is no act"


@pytest.mark.slow
@every_site
def test_every_page_works_as_an_htmx_request(site, as_):
    client = as_("administrator")
    for address in site.all:
        if address.startswith(site.whole):
            continue
        part = body_of(client.get(address, headers=FRAGMENT, follow=True))
        assert "<html" not in part and re.search("<(section|div|form|ul)", part), address
    for link in site.some:
        answer = client.get(link.format(at=site.at), headers={**FRAGMENT, "HX-Request-Type": "full"}, follow=True)
        assert "<html" in body_of(answer), link


@pytest.mark.slow
@every_site
def test_a_viewer_sees_all_read_only_pages(site, as_):
    client = as_("viewer")
    for address in site.all:
        refused = address.startswith((*site.changes, *site.sends)) or "body:" in address
        assert client.get(address, follow=True).status_code == (403 if refused else 200), address


def test_without_the_right_to_send_or_receive_the_form_is_replaced_by_a_refusal(pages, office, as_):
    client = as_("viewer")
    at, stored, mail = pages.at, pages.stored, f"{office.at}/mail"
    sending = [f"/send/{at}", f"/send/{stored}", f"/import-messages/{at}", f"/rabbitmq/publish/{office.at}/events"]
    receiving = [f"/receive/main/{at}", f"/receive/main/{stored}", f"/rabbitmq/get/{mail}"]
    acts = [("send messages to", address) for address in sending] + [("receive messages from", address) for address in receiving]
    for act, address in acts:
        response = client.get(address)
        page = body_of(response)
        assert response.status_code == 403 and f"You need the role operator to {act} " in page, address
        assert "Permission denied" in page and "<textarea" not in page and 'name="action"' not in page, address
    assert client.get(f"/rabbitmq/publish/{office.at}/events?dry=1").status_code == 200, "a route is only shown"


@pytest.mark.parametrize(
    "address",
    ["/pause/{at}", "/protect/{at}", "/filters/save/", "/templates/delete/1/", "/operations/1/change/",
     "/analyses/runs/1/cancel/", "/demonstration/", "/learn/sandboxes/", "/behaviour/{ns}/"],
)  # fmt: skip
def test_a_post_only_address_refuses_get_with_an_explanation(pages, as_, address):
    response = as_("administrator").get(address.format(at=pages.at, ns=pages.shop.namespace))
    page = " ".join(body_of(response).split())
    assert response.status_code == 405 and response["Allow"] == "POST" and "<h1>Method not allowed</h1>" in page
    assert "This address does not accept GET, only POST." in page


@every_site
def test_every_page_requires_signing_in_and_a_role(site, person):
    for address in site.all:
        assert Client().get(address).status_code == 302, address
    client = Client()
    client.force_login(person(None, username="nobody"))
    for link in site.some:
        assert client.get(link.format(at=site.at)).status_code == 403, link


@each("bad")
@pytest.mark.parametrize("headers", [{}, FRAGMENT], ids=["page", "fragment"])
def test_a_bad_query_is_a_400_with_an_explanation(site, as_, link, headers):
    response = as_("operator").get(link.format(at=site.at), headers=headers)
    assert response.status_code == 400 and 'role="alert"' in body_of(response)


@each("missing")
def test_missing_objects_are_not_found_or_refused(site, as_, link):
    assert as_("administrator").get(link.format(at=site.at, ns=site.ns)).status_code in site.refusal
