"""Export and import of configuration in the browser, and the live tail."""

from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from broker_core import queue_storage, rabbitmq, reads, service_bus
from broker_core.common.durations import human
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules.sas import AccessPolicy
from broker_core.queue_storage.rules.service_properties import CorsRule, Logging
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.service_bus.rules.values import Message
from explorer.models import AuditRecord
from tests.fixtures import vhost  # noqa: F401 - a fixture
from tests.html import body_of

PAGE = "/configuration/"


def exported(client, *names):
    answer = client.post(f"{PAGE}export/", {"namespace": names})
    return b"".join(answer.streaming_content)


def sent(content):
    return SimpleUploadedFile("vitrine.jsonl", content)


def test_an_export_is_previewed_and_imported_without_messages(market, as_):
    client = as_("administrator")
    content = exported(client, market.namespace)
    html, form = previewed(client, content, name="copy")
    assert "Nothing was imported yet." in html
    assert "market/news" in html
    assert all(namespace.name != "copy" for namespace in reads.namespaces())
    assert "Imported copy: " in body_of(client.post(PAGE, form))
    copies = {row.address.path: row for row in reads.overview("copy")}
    assert set(copies) == {row.address.path for row in reads.overview(market.namespace)}
    assert sum(row.counts.total for row in copies.values()) == 0
    assert len(reads.list_messages(EntityAddress("copy", "eu/orders")).rows) == 0
    assert AuditRecord.objects.filter(action="import configuration", outcome="done").exists()
    service_bus.send(EntityAddress("copy", "eu/orders"), [Message(b"x")])


def previewed(client, content, **more):
    """The answer to the preview of a file, and the fields of the form that imports it."""
    answer = client.post(PAGE, {"file": sent(content), "do": "preview", **more})
    token = answer.context["preview"].token
    return body_of(answer), {"text": content.decode(), "do": "import", "token": token, **more}


def test_importing_an_unchanged_export_changes_nothing(market, jobs, vhost, as_):  # noqa: F811
    client = as_("administrator")
    html, _ = previewed(client, exported(client, market.namespace, jobs.namespace, vhost))
    assert "Nothing to change." in html
    assert 'value="import"' not in html


def test_a_namespace_that_exists_is_updated_as_previewed(market, as_):
    client = as_("administrator")
    content = exported(client, market.namespace)
    queue, news = EntityAddress(market.namespace, "eu/orders"), EntityAddress(market.namespace, "market/news")
    first = service_bus.entities.get_queue(queue).settings.lock_duration
    service_bus.entities.update_queue(queue, lock_duration=timedelta(minutes=5))
    service_bus.entities.create_queue(EntityAddress(market.namespace, "newer"))
    service_bus.entities.delete_topic(news)
    html, form = previewed(client, content)
    assert "LockDuration" in html and f'<del>5 min</del> <span aria-hidden="true">→</span> <ins>{human(first)}</ins>' in html
    assert "only here, kept" in " ".join(html.split())
    assert "1 changed" in body_of(client.post(PAGE, form))
    assert service_bus.entities.get_queue(queue).settings.lock_duration == first
    assert service_bus.entities.get_topic(news)
    assert service_bus.entities.get_queue(EntityAddress(market.namespace, "newer"))
    record = AuditRecord.objects.get(action="change settings")
    assert (record.namespace, record.path, record.target) == (market.namespace, "eu/orders", "LockDuration")
    assert record.detail.startswith("Changed LockDuration from 5 min to")
    assert AuditRecord.objects.filter(action="create topic", path="market/news").exists()
    assert reads.revisions(queue)[0].actor == record.actor


def test_the_audit_names_imported_objects_like_manually_created_objects(vhost, as_):  # noqa: F811
    client = as_("administrator")
    rabbitmq.declare_exchange(vhost, "made", type="fanout")
    rabbitmq.set_policy(vhost, Policy("short", "^k", {"message-ttl": 5000}, "queues"))
    content = exported(client, vhost)
    rabbitmq.delete_exchange(vhost, "made")
    rabbitmq.delete_policy(vhost, "short")
    _, form = previewed(client, content)
    client.post(PAGE, form)
    actions = AuditRecord.objects.filter(detail="Created by an import.").values_list("action", "target")
    assert set(actions) == {("declare exchange", f"{vhost}: exchange made"), ("set policy", f"{vhost}: policy short")}


@pytest.mark.parametrize("place", ["market", "jobs", "vhost"])
def test_the_preview_names_settings_like_their_pages(request, place, as_):
    client, where = as_("administrator"), request.getfixturevalue(place)
    name = getattr(where, "namespace", where)
    change, says = {
        "market": (
            lambda: service_bus.entities.update_queue(EntityAddress(name, "eu/orders"), history_level="off"),
            ("HistoryLevel", "<del>off</del>", "<ins>full</ins>"),
        ),
        "jobs": (
            lambda: queue_storage.update_queue(where, expiry_grace=timedelta(minutes=3)),
            ("<del>3 min</del>",),
        ),
        "vhost": (
            lambda: rabbitmq.set_policy(name, Policy("short", "^k", {"message-ttl": 5000}, "queues")),
            ("Message time-to-live", "<del>5 s (5,000 ms)</del>", "<ins>1 min (60,000 ms)</ins>"),
        ),
    }[place]
    if place == "vhost":
        rabbitmq.set_policy(name, Policy("short", "^k", {"message-ttl": 60_000}, "queues"))
    content = exported(client, name)
    change()
    html, form = previewed(client, content)
    assert all(words in html for words in says), html
    assert "changed" in body_of(client.post(PAGE, form))
    assert "Nothing to change." in previewed(client, content)[0]


def test_access_policies_and_service_properties_are_previewed_and_audited_in_words(jobs, as_):
    client, account = as_("administrator"), jobs.namespace
    rule = CorsRule(("https://shop.example",), ("GET",), max_age_seconds=60)
    queue_storage.update_queue(jobs, access_policies=(AccessPolicy("readers", permission="rp"),))
    accounts.set_service_properties(account, cors=(rule,), logging=Logging(read=True))
    content = exported(client, account)
    assert not any(key in content.decode() for key in accounts.get_keys(account).keys), "keys stay here"
    queue_storage.update_queue(jobs, access_policies=())
    accounts.set_service_properties(account, cors=(), logging=Logging())
    html, form = previewed(client, content)
    assert "Access policies</dt><dd><del>none</del>" in html and "<ins>readers: read and process</ins>" in html
    assert "service properties" in html and "<ins>GET from https://shop.example; cached for 60 s</ins>" in html
    assert "Logging</dt><dd><del>off; kept</del>" in html and "<ins>read; kept</ins>" in html
    assert "changed" in body_of(client.post(PAGE, form))
    assert accounts.get_service_properties(account).cors == (rule,)
    assert [policy.id for policy in queue_storage.get_queue(jobs).access_policies] == ["readers"]
    record = AuditRecord.objects.get(action="change service properties")
    assert "Logging from off; kept to read; kept" in record.detail
    assert "CORS rules from none to GET from https://shop.example; cached for 60 s" in record.detail
    assert "Nothing to change." in previewed(client, content)[0]


def test_settings_that_changed_since_the_preview_require_a_new_preview(market, as_):
    client = as_("administrator")
    content = exported(client, market.namespace)
    queue = EntityAddress(market.namespace, "eu/orders")
    service_bus.entities.update_queue(queue, lock_duration=timedelta(minutes=5))
    _, form = previewed(client, content)
    service_bus.entities.update_queue(queue, max_delivery_count=77)
    answer = client.post(PAGE, form)
    assert answer.status_code == 409
    html = body_of(answer)
    assert "settings have changed" in html and "<del>77</del>" in html
    assert service_bus.entities.get_queue(queue).settings.max_delivery_count == 77
    form["token"] = answer.context["preview"].token
    assert "1 changed" in body_of(client.post(PAGE, form))


def test_changes_of_immutable_settings_are_refused_at_the_file(market, as_):
    client = as_("administrator")
    content = exported(client, market.namespace).replace(b'"requires_session":false', b'"requires_session":true', 1)
    answer = client.post(PAGE, {"file": sent(content), "do": "preview"})
    assert answer.status_code == 400
    assert "RequiresSession of queue" in body_of(answer)


def test_an_import_without_a_preview_is_refused(market, as_):
    client = as_("administrator")
    content = exported(client, market.namespace)
    assert client.post(PAGE, {"text": content.decode(), "do": "import"}).status_code == 409


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "Choose a file."), (b"\xff\xfe", "not text in UTF-8"), (b"[]", "line 1"), (b"{}\n" * 1_500_000, "larger than 4 MB")],
)
def test_a_file_that_is_not_an_export_is_refused_at_its_field(broker_database, as_, content, says):
    answer = as_("administrator").post(PAGE, {"file": sent(content), "do": "preview"})
    assert answer.status_code == 400
    assert says in body_of(answer)


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_an_administrator_can_import_and_export(market, as_, role):
    client = as_(role)
    assert "requires the administrator role" in body_of(client.get(PAGE))
    assert client.post(f"{PAGE}export/", {"namespace": market.namespace}).status_code == 403
    assert client.post(PAGE, {"text": "{}", "do": "import"}).status_code == 403


def test_an_export_without_a_selection_is_refused(broker_database, as_):
    assert as_("administrator").post(f"{PAGE}export/").status_code == 400


def test_the_tail_shows_the_newest_events_of_the_selected_entities(shop, jobs, as_):
    client = as_("viewer")

    def kinds(query):
        return [(str(event.address), event.kind.name) for event, _ in client.get("/tail/", {"q": query}).context["rows"]]

    service_bus.send(shop, [Message(b"x", message_id="last")])
    assert kinds(f"entity:{shop}")[0] == (str(shop), "SENT")
    assert {address for address, _ in kinds(f"namespace:{jobs.namespace}")} == {str(jobs), f"{jobs}-poison"}
    assert {kind for _, kind in kinds(f"entity:{shop} event:failures")} == {"DEAD_LETTERED"}
    assert len(kinds(f"entity:{shop} last")) == 1
    app = Actor("key", "app", Right.ALL, "key:app@10.0.0.7")
    [message] = service_bus.receive(shop, 1, actor=app)
    service_bus.complete(shop, [message.lock_token], actor=app)
    assert [kind for _, kind in kinds(f"entity:{shop} by:app")] == ["COMPLETED", "RECEIVED"]
    page = client.get(f"/tail/?q=entity:{shop}+by:app").content.decode()
    assert page.count(">app</a>") == 2 and "used from 10.0.0.7" in page
    assert client.get("/tail/?q=entity:no/such").status_code == 404
    assert client.get("/tail/?q=event:nonsense").status_code == 400
