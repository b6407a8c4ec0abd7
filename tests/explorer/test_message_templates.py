"""Templates of the forms that send: saved, chosen, changed, renamed and deleted, in all families."""

import re
from types import SimpleNamespace

import pytest
from django.urls import reverse

from broker_core import reads
from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from explorer.models import AuditRecord, MessageTemplate
from explorer.pages.message_templates import LARGEST
from tests.html import body_of

from .conftest import FRAGMENT

pytest_plugins = ["tests.explorer.rabbitmq_office"]

HOSTILE = '"><script>alert(1)</script> {{ x }} {n} \u202e/../%2F'


def service_bus_form(request):
    at = request.getfixturevalue("shop")
    typed = {
        "body": "order {n}\r\n\u00e9", "content_type": "text/plain", "message_id": "m-{uuid}", "time_to_live": "5 min",
        "scheduled": "in 5 min", "copies": "2", "fill": "on", "property_name": ["region", "", "due"],
        "property_type": ["string", "string", "timestamp"], "property_value": ["e{n}", "", "tomorrow?"],
    }  # fmt: skip
    rows = {"properties": [["region", "string", "e{n}"], ["due", "timestamp", "tomorrow?"]]}
    return SimpleNamespace(
        family="service_bus", ns=at.namespace, path=at.path, url=f"/send/{at}", body="body", typed=typed, rows=rows
    )


def storage_form(request):
    at = request.getfixturevalue("jobs")
    typed = {"text": "job {n}", "visibilitytimeout": "5 min", "messagettl": "never", "copies": "3", "fill": "on"}
    return SimpleNamespace(
        family="queue_storage", ns=at.namespace, path=at.path, url=f"/send/{at}", body="text", typed=typed, rows={}
    )


def rabbitmq_form(request):
    office = request.getfixturevalue("office")
    typed = {
        "routing_key": "mail.{n}", "body": "letter {n}", "encoding": "text", "copies": "2", "fill": "on", "expiration": "30 s",
        "delivery_mode": "1", "priority": "3", "app_id": "desk", "header_name": ["town"], "header_type": ["string"],
        "header_value": ["graz"],
    }  # fmt: skip
    url = reverse("explorer:rabbitmq_publish", args=(office.vhost, "events"))
    rows = {"headers": [["town", "string", "graz"]]}
    return SimpleNamespace(family="rabbitmq", ns=office.vhost, path="events", url=url, body="body", typed=typed, rows=rows)


FORMS = {"service_bus": service_bus_form, "queue_storage": storage_form, "rabbitmq": rabbitmq_form}


@pytest.fixture(params=FORMS)
def sends(request):
    """A form that sends, of each family: its address, what is typed into it, and the rows of typed values in it."""
    return FORMS[request.param](request)


@pytest.fixture
def queue(request):
    return service_bus_form(request)


def save(client, form, name="Order", verb="new", **more):
    return client.post(form.url, form.typed | {"template_name": name, "template_save": verb} | more)


def filled(client, url):
    answer = client.get(url)
    return answer.context["form"], body_of(answer)


def sent(form):
    return AuditRecord.objects.filter(action__in=("send", "put", "publish"), outcome="done").exists()


def test_a_form_is_saved_as_typed_and_filled_from_its_template(sends, as_):
    client = as_("operator")
    assert b"Template</label>" not in client.get(sends.url).content
    saved = save(client, sends)
    template = MessageTemplate.objects.get(name="Order")
    assert saved["Location"] == f"{sends.url}?template={template.pk}" and template.family == sends.family and not sent(sends)
    form, page = filled(client, saved["Location"])
    for name, text in sends.typed.items():
        if name in form.fields:
            assert form[name].value() == text.replace("\r\n", "\n"), name
    for name, rows in sends.rows.items():
        assert [list(row) for row in getattr(form, name).entered] == rows
    assert f'value="{template.pk}" selected' in page and 'Saved the template "Order".' in page
    assert f'name="template" value="{template.pk}"' in page and "{n}" in page


def test_the_fields_of_a_template_override_the_form_except_typed_values(sends, as_):
    client = as_("operator")
    for verb, asks in (("ask", True), ("cancel", False)):
        answer = client.post(sends.url, sends.typed | {"template_save": verb, "copies": "not a number"})
        page, form = body_of(answer), answer.context["form"]
        assert answer.status_code == 200 and not form.errors and form["copies"].value() == "not a number"
        assert form[sends.body].value() == sends.typed[sends.body].replace("\r\n", "\n")
        assert ("Save as new template" in page) is asks and ("Save as template…" in page) is not asks
        in_form = page[page.index('method="post"', page.index('id="main"')) :]
        first = re.search(r"<button[^>]*>", in_form)[0]  # Enter presses it
        assert ('name="template_save"' in first) is asks
    assert not MessageTemplate.objects.exists() and not sent(sends)


def test_only_the_owner_sees_a_template_unless_it_is_shared(sends, as_):
    otto, olga, ada = as_("operator"), as_("operator"), as_("administrator")
    save(otto, sends, "Mine")
    save(otto, sends, "Ours", template_shared="1", template_here="1")
    mine, ours = MessageTemplate.objects.get(name="Mine"), MessageTemplate.objects.get(name="Ours")
    assert (mine.namespace, mine.path, ours.namespace, ours.path) == ("", "", sends.ns, sends.path)
    page = body_of(olga.get(sends.url))
    assert f"Ours (by {otto.user.username})" in page and "Mine" not in page
    form, page = filled(olga, f"{sends.url}?template={mine.pk}")
    assert not form[sends.body].value() and f"template {mine.pk} was deleted, is not shared" in page
    form, page = filled(olga, f"{sends.url}?template={ours.pk}")
    assert form[sends.body].value() and "Save changes" not in page
    changed = save(olga, sends, "Stolen", "changes", template=ours.pk)
    assert changed.status_code == 403 and changed.context["form"][sends.body].value()
    olga.post(f"/templates/rename/{ours.pk}/", {"template_name": "Stolen"})
    olga.post(f"/templates/delete/{ours.pk}/")
    olga.post(f"/templates/delete/{mine.pk}/")
    assert {template.name for template in MessageTemplate.objects.all()} == {"Mine", "Ours"}
    ada.post(f"/templates/delete/{mine.pk}/")
    ada.post(f"/templates/delete/{ours.pk}/")
    assert {template.name for template in MessageTemplate.objects.all()} == {"Mine"}
    actions = set(AuditRecord.objects.values_list("action", "outcome"))
    assert actions >= {
        ("save template", "done"), ("save template", "refused"), ("rename template", "refused"),
        ("delete template", "done"), ("delete template", "refused"),
    }  # fmt: skip


def test_the_owner_can_change_every_field_of_a_template(sends, as_):
    client = as_("operator")
    save(client, sends)
    template = MessageTemplate.objects.get()
    asked = body_of(client.post(sends.url, sends.typed | {"template": template.pk, "template_save": "ask"}))
    assert "Save changes to “Order”" in asked and 'value="Order"' in asked
    save(client, sends, "Order 2", "changes", template=template.pk, template_shared="1", **{sends.body: "other"})
    changed = MessageTemplate.objects.get()
    assert (changed.pk, changed.name, changed.is_shared, changed.fields[sends.body]) == (template.pk, "Order 2", True, "other")


def test_a_template_name_is_unique_for_an_entity(sends, as_):
    client = as_("operator")
    save(client, sends, **{sends.body: "first"})
    again = save(client, sends)
    assert again.status_code == 409 and 'There already is a template "Order" for all entities' in body_of(again)
    assert 'name="template_name"' in body_of(again) and again.context["form"][sends.body].value()
    assert MessageTemplate.objects.get().fields[sends.body] == "first"
    save(client, sends, template_here="1")
    save(as_("operator"), sends)
    assert MessageTemplate.objects.count() == 3


@pytest.mark.parametrize("name", ["", "   ", "x" * 81])
def test_a_template_needs_a_name(queue, as_, name):
    answer = save(as_("operator"), queue, name)
    assert answer.status_code == 400 and "Enter a name of at most 80 characters" in body_of(answer)
    assert not MessageTemplate.objects.exists()


def test_a_template_that_is_too_large_is_refused_and_stays_in_the_form(sends, as_):
    client = as_("operator")
    typed = {sends.body: "ö" * (LARGEST // 2)}
    answer = save(client, sends, **typed)
    assert answer.status_code == 400 and "128 KB with all fields; the maximum is 128 KB. Shorten the body." in body_of(answer)
    assert answer.context["form"][sends.body].value() == typed[sends.body] and not MessageTemplate.objects.exists()
    save(client, sends, **{sends.body: "ö" * (LARGEST // 2 - 1000)})
    assert MessageTemplate.objects.exists()


def test_a_viewer_is_refused_the_form_and_saves_nothing(sends, as_):
    vera = as_("viewer")
    save(as_("operator"), sends, template_shared="1")
    template = MessageTemplate.objects.get()
    refused = vera.get(f"{sends.url}?template={template.pk}")
    assert refused.status_code == 403 and "You need the role operator" in body_of(refused)
    assert save(vera, sends, "Vera's").status_code == 403
    assert MessageTemplate.objects.get() == template and "Order" in body_of(vera.get("/templates/"))


def test_hostile_template_names_are_escaped_everywhere(sends, as_):
    client = as_("operator")
    save(client, sends, f"  {HOSTILE}\r\n", template_shared="1", template_here="1")
    template = MessageTemplate.objects.get()
    assert template.name == HOSTILE
    place = {"family": sends.family, "namespace": sends.ns, "path": sends.path}
    for url, query in (
        (f"{sends.url}?template={template.pk}", None),
        ("/templates/", None),
        ("/templates/", place),
        ("/administration/activity/", None),
    ):
        page = client.get(url, query).content.decode()
        assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;/script&gt; {{ x }} {n}" in page, url
    client.post(f"/templates/rename/{template.pk}/", {"template_name": "x\x00y"})
    client.post(f"/templates/rename/{template.pk}/", {"template_name": " "})
    assert MessageTemplate.objects.get().name == HOSTILE


@pytest.mark.parametrize("given", ["999999", "x", "-1", "\u0662", "9" * 30, "1 OR 1=1", "\x00"])
def test_a_missing_template_leaves_the_form_empty_with_a_notice(sends, as_, given):
    answer = as_("operator").get(sends.url, {"template": given})
    assert answer.status_code == 200 and "The form is empty: template" in body_of(answer)


def test_a_template_deleted_since_it_was_opened_is_saved_as_a_new_template(queue, as_):
    client = as_("operator")
    save(client, queue)
    gone = MessageTemplate.objects.get()
    client.post(f"/templates/delete/{gone.pk}/")
    answer = save(client, queue, verb="changes", template=gone.pk)
    assert answer.status_code == 409 and "Save this as a new template." in body_of(answer)
    assert "Save changes" not in body_of(answer) and answer.context["form"]["body"].value()
    notices = body_of(client.post(f"/templates/delete/{gone.pk}/", follow=True))
    assert "The template was already deleted." in notices
    assert "The template was already deleted." in body_of(
        client.post(f"/templates/rename/{gone.pk}/", {"template_name": "x"}, follow=True)
    )


def test_a_template_of_another_family_does_not_fill_a_form(shop, jobs, as_, request):
    client = as_("operator")
    save(client, storage_form(request))
    form, page = filled(client, f"/send/{shop}?template={MessageTemplate.objects.get().pk}")
    assert "is for another family" in page and not form["body"].value()


def test_fields_that_a_form_no_longer_has_are_left_out(sends, as_):
    client = as_("operator")
    save(client, sends)
    MessageTemplate.objects.update(fields={"gone": "x", "copies": "2", sends.body: "kept", "encoding": "morse"})
    form, page = filled(client, f"{sends.url}?template={MessageTemplate.objects.get().pk}")
    assert form[sends.body].value() == "kept" and "morse" not in page


def test_the_template_of_a_deleted_queue_fills_the_form_of_another(shop, queue, as_):
    client = as_("operator")
    save(client, queue, template_here="1")
    template = MessageTemplate.objects.get()
    other = EntityAddress(shop.namespace, "other")
    entities.create_queue(other)
    entities.delete_entity(shop)
    listed = body_of(client.get("/templates/"))
    assert f"{queue.url}?template={template.pk}" in listed
    assert client.get(f"{queue.url}?template={template.pk}").status_code == 404
    all_url = client.get(f"/send/{other}").context["panel"].all_url
    assert f"/send/{other}?template={template.pk}" in body_of(client.get(all_url))
    assert filled(client, f"/send/{other}?template={template.pk}")[0]["body"].value()
    client.post(f"/templates/rename/{template.pk}/", {"template_name": "Rescued"})
    assert MessageTemplate.objects.get().name == "Rescued"


def test_renaming_refuses_a_name_that_is_taken_and_goes_back_to_the_list(queue, as_):
    client = as_("operator")
    save(client, queue, "One")
    save(client, queue, "Two")
    template = MessageTemplate.objects.get(name="One")
    query = f"?family=service_bus&namespace={queue.ns}&path={queue.path.replace('/', '%2F')}"
    back = client.post(f"/templates/rename/{template.pk}/{query}", {"template_name": "Two"})
    assert back["Location"] == f"/templates/{query}"
    assert 'There already is a template "Two"' in body_of(client.get(back["Location"]))
    client.post(f"/templates/rename/{template.pk}/{query}", {"template_name": "Three"})
    assert {each.name for each in MessageTemplate.objects.all()} == {"Two", "Three"}
    assert AuditRecord.objects.get(action="rename template", outcome="done").detail == 'Renamed "One" to "Three".'


@pytest.mark.parametrize("query", ["?family=kafka&namespace=a&path=b", "?family=&namespace=a&path=b"])
def test_a_list_for_an_unknown_family_is_refused(shop, as_, query):
    assert as_("viewer").get(f"/templates/{query}").status_code == 400


@pytest.mark.parametrize("family", FORMS)
def test_a_list_for_a_missing_form_has_links_only(shop, as_, family):
    place = {"family": family, "namespace": "no such/~host", "path": "../x\n"}
    assert as_("viewer").get("/templates/", place).status_code == 200


def test_a_publication_is_saved_without_leaving_the_page(office, as_, request):
    client, form = as_("operator"), rabbitmq_form(request)
    asked = client.post(form.url, form.typed | {"template_save": "ask"}, headers=FRAGMENT)
    assert "<html" not in body_of(asked) and 'name="template_name"' in body_of(asked)
    saved = client.post(form.url, form.typed | {"template_name": "Mail", "template_save": "new"}, headers=FRAGMENT)
    assert saved["HX-Redirect"] == f"{form.url}?template={MessageTemplate.objects.get().pk}"


def test_a_routing_key_in_the_address_stays_if_the_template_has_none(office, as_, request):
    client, form = as_("operator"), rabbitmq_form(request)
    form.url = reverse("explorer:rabbitmq_publish", args=(office.vhost, "amq.default"))
    save(client, form, routing_key="")
    template = MessageTemplate.objects.get()
    page = client.get(f"{form.url}?routing_key=spare&like=1&of=spare")
    assert 'type="hidden" name="routing_key" value="spare"' in body_of(page) and 'name="like"' not in body_of(page)
    filling = client.get(f"{form.url}?routing_key=spare&template={template.pk}").context["form"]
    client.post(
        form.url, {name: filling[name].value() for name in ("routing_key", "body", "encoding", "copies", "fill", "delivery_mode")}
    )
    assert reads.body(EntityAddress(office.vhost, "spare"), 1).content == b"letter 1"


@pytest.mark.parametrize("family", ["service_bus", "queue_storage"])
def test_a_form_filled_from_a_template_sends(as_, request, family):
    client, form = as_("operator"), FORMS[family](request)
    save(client, form)
    template = MessageTemplate.objects.get()
    filling = client.get(f"{form.url}?template={template.pk}").context["form"]
    values = {name: filling[name].value() for name in filling.fields if name not in ("body_file", "scheduled")}
    client.post(form.url, values | {"template": template.pk})
    record = AuditRecord.objects.get(action__in=("send", "put"), path=form.path)
    assert record.outcome == "done" and record.target.startswith(f"{form.typed['copies']} copies")


def test_many_templates_are_listed_in_pages(queue, as_, monkeypatch):
    otto = as_()
    for name in ("Three", "One", "Two"):
        save(otto, queue, name)
    monkeypatch.setattr("explorer.pages.message_templates.ROWS", 2)
    first, second = (body_of(otto.get(f"/templates/?page={number}")) for number in (1, 2))
    assert "1 to 2 of 3" in first and 'rel="next"' in first and "One" in first and ">Two<" not in first
    assert "3 to 3 of 3" in second and ">Two<" in second and 'rel="prev"' in second
