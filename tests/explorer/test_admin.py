"""The admin: every page opens, changes go through the use cases with the person's rights, and nothing breaks the strict CSP."""

import re
from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.urls import reverse, reverse_lazy

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Behaviour, EntityAddress, ExpiryMode, Family, HistoryLevel, Tier
from broker_core.models import Entity, Exchange, MessageEvent, Namespace, Rule, SharedAccessPolicy, SweepRun
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.values import Message, QueueSettings
from explorer.models import AuditRecord
from explorer.schedules import create_missing

pytestmark = pytest.mark.usefixtures("in_one_transaction")
ORDERS = EntityAddress("space", "orders")
NEWS = EntityAddress("space", "news")
MODELS = (
    "broker_core.namespace",
    "broker_core.entity",
    "broker_core.rule",
    "broker_core.sharedaccesspolicy",
    "broker_core.messageevent",
    "broker_core.sweeprun",
    "explorer.auditrecord",
)
READ_ONLY = ("broker_core.messageevent", "broker_core.sweeprun", "explorer.auditrecord")


def url(model, page="changelist", *args):
    return reverse(f"admin:{model.replace('.', '_')}_{page}", args=args)


@pytest.fixture
def space(in_one_transaction):
    """A namespace with a queue, a policy, events, sweep runs and schedules: something on every page."""
    namespaces.ensure_namespace("system", Family.SERVICE_BUS, is_system=True)
    entities.create_queue(EntityAddress("system", "of-a-test"))
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    entities.create_queue(ORDERS)
    shared_access.create_policy(ORDERS, "app", send=True)
    entities.create_topic(NEWS)
    entities.create_subscription(NEWS.subscription("all"))
    service_bus.send(ORDERS, [Message(b"1", message_id="first"), Message(b"2", message_id="second")])
    create_missing(apps)
    SweepRun.objects.create(name="expire_messages", started_at="2026-01-01T00:00Z", outcome={"expired": 3})


@pytest.fixture
def administrator(in_one_transaction, client):
    user = User.objects.create_superuser("anna")
    client.force_login(user)
    return client


@pytest.fixture
def viewer(in_one_transaction, client):
    user = User.objects.create_user("vera", is_staff=True)
    user.groups.add(Group.objects.get_or_create(name="viewer")[0])
    client.force_login(user)
    return client


def row(model):
    """The newest: what the test made itself."""
    return apps.get_model(model).objects.order_by("-pk").first()


def fields_of(response):
    """The values a browser would send back with the form of a page."""
    form = response.context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def problems(response):
    return response.context["adminform"].form.errors if response.context and "adminform" in response.context else {}


# Every page


@pytest.mark.parametrize("model", MODELS)
def test_each_list_opens(space, administrator, model):
    assert administrator.get(url(model)).status_code == 200
    assert administrator.get(url(model), {"q": "space/orders"}).status_code in (200, 302)


@pytest.mark.parametrize("model", [m for m in MODELS if m not in READ_ONLY])
def test_each_add_change_history_and_delete_page_opens(space, administrator, model):
    assert administrator.get(url(model, "add")).status_code == 200
    instance = row(model)
    if instance is not None:
        for page in ("change", "history", "delete"):
            assert administrator.get(url(model, page, instance.pk)).status_code == 200, page


@pytest.mark.parametrize("model", READ_ONLY)
def test_models_that_only_the_broker_writes_have_no_forms(space, administrator, model):
    assert administrator.get(url(model, "add")).status_code in (302, 403)
    assert administrator.get(url(model, "change", 1)).status_code == 302
    assert administrator.post(url(model, "delete", 1), {"post": "yes"}).status_code in (302, 403, 404)


def test_the_admins_theme_follows_the_explorers_switch(space, administrator):
    administrator.cookies["vitrine_theme"] = "dark"
    for address in (reverse("admin:index"), url("broker_core.entity")):
        html = administrator.get(address).content.decode()
        assert re.search(r'<body class="[^"]*\btheme-dark\b', html) and "theme.js" not in html and "theme-toggle" not in html
    del administrator.cookies["vitrine_theme"]
    assert "theme-dark" not in administrator.get(reverse("admin:index")).content.decode()


def test_an_administrator_needs_no_django_permissions(space, client, person):
    client.force_login(person("administrator"))
    for model in MODELS:
        assert client.get(url(model)).status_code == 200, model


def test_people_and_schedules_are_in_the_explorer_only(space, administrator):
    html = administrator.get(reverse("admin:index")).content.decode()
    assert "/admin/auth/" not in html and "/admin/django_celery_beat/" not in html
    assert "RabbitMQ bindings" in html and "Runs of background tasks" in html


@pytest.mark.parametrize("path", [reverse_lazy("admin:index"), "/admin/broker_core/entity/", "/admin/broker_core/entity/add/"])
def test_each_page_has_a_link_back(space, administrator, path):
    html = administrator.get(path).content.decode()
    assert (
        re.search(r'<a class="back" href="/administration/">.*?Back to Vitrine</a>', html, re.DOTALL) and "View site" not in html
    )


# Other families


@pytest.fixture
def depot(in_one_transaction):
    """A storage account with a queue. Its address."""
    jobs = EntityAddress("depot", "jobs")
    queue_storage.create_account("depot")
    queue_storage.create_queue(jobs, metadata={"team": "images"})
    return jobs


@pytest.mark.parametrize(
    ("family", "name", "kind"),
    [
        ("queue_storage", "photos", Family.QUEUE_STORAGE),
        ("rabbitmq", "a/b", Family.RABBITMQ),
        ("service_bus", "shop", Family.SERVICE_BUS),
    ],
)
def test_a_namespace_of_any_family_is_created_through_its_use_case(administrator, family, name, kind):
    values = fields_of(administrator.get(url("broker_core.namespace", "add"))) | {"new_family": family, "name": name}
    response = administrator.post(url("broker_core.namespace", "add"), values)
    assert response.status_code == 302, problems(response)
    namespace = Namespace.objects.get(name=name)
    assert namespace.family == kind
    assert Exchange.objects.filter(namespace=namespace, name="amq.topic").exists() is (kind is Family.RABBITMQ)
    assert administrator.get(url("broker_core.namespace", "change", namespace.pk)).status_code == 200


def test_a_name_is_checked_by_its_familys_rules(administrator):
    values = fields_of(administrator.get(url("broker_core.namespace", "add"))) | {
        "new_family": "queue_storage",
        "name": "No-Account",
    }
    response = administrator.post(url("broker_core.namespace", "add"), values)
    assert "lower-case letters" in str(problems(response)["name"]) and not Namespace.objects.filter(name="No-Account").exists()


def test_a_storage_queue_is_created_changed_and_deleted_through_use_cases(depot, administrator):
    add = url("broker_core.entity", "add")
    base = fields_of(administrator.get(add)) | {"namespace": Namespace.objects.get(name="depot").pk}
    response = administrator.post(add, base | {"new_kind": "storage queue", "path": "mails"})
    assert response.status_code == 302, problems(response)
    mails = EntityAddress("depot", "mails")
    stored = queue_storage.get_queue(mails)
    change = url("broker_core.entity", "change", stored.id)
    values = fields_of(administrator.get(change))
    assert "lock_duration" not in values
    values |= {"max_dequeue_count": "4", "expiry_grace": "5 min", "metadata": "team=mail", "history_level": "1"}
    response = administrator.post(change, values)
    assert response.status_code == 302, problems(response)
    stored = queue_storage.get_queue(mails)
    assert (stored.max_dequeue_count, stored.expiry_grace, stored.metadata) == (4, timedelta(minutes=5), {"team": "mail"})
    assert stored.history_level is HistoryLevel.LIFECYCLE
    message = LogEntry.objects.filter(object_id=str(stored.id)).first().get_change_message()
    assert "Max dequeue count: None -> 4" in message and "Show expired messages for: 1 min -> 5 min" in message
    assert administrator.post(change, fields_of(administrator.get(change))).status_code == 302
    assert queue_storage.get_queue(mails) == stored
    administrator.post(url("broker_core.entity", "delete", stored.id), {"post": "yes"})
    assert [queue.name for queue in queue_storage.list_queues("depot")] == ["jobs"]


@pytest.mark.parametrize(
    ("namespace", "values", "field", "said"),
    [
        ("depot", {"new_kind": "storage queue", "path": "Big-Name"}, "path", "lower-case"),
        ("depot", {"new_kind": "storage queue", "path": "jobs"}, "path", "already exists"),
        ("depot", {"new_kind": "queue", "path": "jobs2"}, "namespace", "storage account, which has no queue"),
        ("space", {"new_kind": "storage queue", "path": "jobs2"}, "namespace", "namespace, which has no storage queue"),
        (
            "depot",
            {"new_kind": "storage queue", "path": "jobs2", "lock_duration": "2 min"},
            "lock_duration",
            "does not have this setting",
        ),
    ],
)
def test_a_setting_that_a_family_lacks_is_refused_at_its_field(space, depot, administrator, namespace, values, field, said):
    add = url("broker_core.entity", "add")
    base = fields_of(administrator.get(add)) | {"namespace": Namespace.objects.get(name=namespace).pk}
    response = administrator.post(add, base | values)
    assert said in str(problems(response)[field])
    assert len(queue_storage.list_queues("depot")) == 1


@pytest.mark.parametrize(
    ("values", "field"), [({"max_dequeue_count": "0"}, "max_dequeue_count"), ({"metadata": "1a=x"}, "metadata"),
                          ({"poison_queue": "jobs"}, "poison_queue"), ({"expiry_grace": "never"}, "expiry_grace")],
)  # fmt: skip
def test_a_bad_option_of_a_storage_queue_is_refused_at_its_field(depot, administrator, values, field):
    before = queue_storage.get_queue(depot)
    change = url("broker_core.entity", "change", before.id)
    response = administrator.post(change, fields_of(administrator.get(change)) | values)
    problems_ = problems(response)
    assert response.status_code == 200 and (problems_.get(field) or problems_["__all__"])
    assert queue_storage.get_queue(depot) == before


def test_a_declared_rabbitmq_queue_can_be_viewed_and_deleted_but_not_changed(administrator):
    rabbitmq.create_vhost("/")
    add = url("broker_core.entity", "add")
    base = fields_of(administrator.get(add)) | {"namespace": Namespace.objects.get(name="/").pk}
    response = administrator.post(add, base | {"new_kind": "RabbitMQ queue", "path": "a b/c"})
    assert response.status_code == 302, problems(response)
    entity = Entity.objects.get(path="a b/c")
    page = administrator.get(url("broker_core.entity", "change", entity.pk)).content.decode()
    assert "durable" in page and 'name="_save"' not in page
    administrator.post(url("broker_core.entity", "delete", entity.pk), {"post": "yes"})
    assert not Entity.objects.filter(path="a b/c", deleted_at=None).exists()


# Queues


def test_the_list_shows_a_dash_for_settings_that_do_not_apply(space, depot, administrator):
    rabbitmq.create_vhost("/")
    rabbitmq.declare_queue(EntityAddress("/", "mail"))
    entities.create_topic(EntityAddress("space", "other/news"))
    entities.create_queue(EntityAddress("space", "seven"), max_delivery_count=7)
    page = administrator.get(url("broker_core.entity")).content.decode()
    rows = dict(re.findall(r'<th class="field-address"><a [^>]*>([^<]+)</a></th>(.*?)</tr>', page, re.DOTALL))
    shown = {name: re.search(r'field-deliveries">([^<]*)<', row)[1] for name, row in rows.items()}
    assert [shown[name] for name in ("space/seven", "space/other/news", "depot/jobs", "//mail")] == ["7", "-", "-", "-"]
    assert 'field-time_to_live">never<' in rows["space/seven"] and 'field-time_to_live">-<' in rows["depot/jobs"]


def test_a_queue_is_created_through_the_use_case(space, administrator):
    page = administrator.get(url("broker_core.entity", "add"))
    values = fields_of(page) | {
        "namespace": Namespace.objects.get(name="space").pk,
        "path": "new/queue",
        "lock_duration": "2 min",
        "default_message_time_to_live": "PT36H",
        "max_delivery_count": "3",
        "expiry_mode": "on_activity",
        "history_level": "1",
    }
    response = administrator.post(url("broker_core.entity", "add"), values)
    assert response.status_code == 302, problems(response)
    queue = entities.get_queue(EntityAddress("space", "new/queue"))
    assert queue.settings == QueueSettings(
        lock_duration=timedelta(minutes=2),
        default_message_time_to_live=timedelta(hours=36),
        max_delivery_count=3,
        expiry_mode=ExpiryMode.ON_ACTIVITY,
        history_level=HistoryLevel.LIFECYCLE,
    )
    assert service_bus.send(queue.address, [Message(b"x")]) == [1]


def test_the_history_of_a_change_has_the_previous_values(space, administrator):
    entity = Entity.objects.get(namespace__name="space", path="orders")
    change = url("broker_core.entity", "change", entity.pk)
    values = fields_of(administrator.get(change))
    response = administrator.post(change, values | {"lock_duration": "30 s", "user_metadata": "mine"})
    assert response.status_code == 302, problems(response)
    assert entities.get_queue(ORDERS).settings == QueueSettings(lock_duration=timedelta(seconds=30), user_metadata="mine")
    entry = LogEntry.objects.get(object_id=str(entity.pk))
    assert entry.get_change_message() == "Lock duration: 1 min -> 30 s; User metadata: None -> mine"
    record = AuditRecord.objects.get()
    assert (record.actor, record.action, record.target) == ("user:anna", "admin: change entity", "space/orders")


def test_saving_a_form_unchanged_changes_nothing(space, administrator):
    entities.update_queue(ORDERS, default_message_time_to_live=timedelta(days=1, seconds=5, microseconds=7), user_metadata="a\nb")
    before = entities.get_queue(ORDERS).settings
    change = url("broker_core.entity", "change", Entity.objects.get(namespace__name="space", path="orders").pk)
    page = administrator.get(change)
    assert administrator.post(change, fields_of(page)).status_code == 302
    assert entities.get_queue(ORDERS).settings == before
    assert LogEntry.objects.get().get_change_message() == "Nothing changed."


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"lock_duration": "6 min"}, "lock_duration", "allowed: 5 s to 5 min"),
        ({"lock_duration": "soon"}, "lock_duration", "is not a duration"),
        ({"lock_duration": "never"}, "lock_duration", "must be a duration, not never"),
        ({"max_delivery_count": "0"}, "max_delivery_count", "out of range"),
        ({"max_delivery_count": "99999999999"}, "max_delivery_count", ""),
        ({"max_size_in_megabytes": "1500"}, "max_size_in_megabytes", "in steps of 1,024"),
        ({"auto_delete_on_idle": "1 min"}, "auto_delete_on_idle", "at least 5 min, or never"),
        ({"path": "ORDERS"}, "path", "already exists"),
        ({"path": "a b"}, "path", "letters"),
        ({"user_metadata": "x" * 1025}, "user_metadata", "1,024"),
    ],
)
def test_a_value_out_of_range_is_refused_at_its_field(space, administrator, values, field, said):
    add = url("broker_core.entity", "add")
    base = fields_of(administrator.get(add)) | {"namespace": Namespace.objects.get(name="space").pk, "path": "new"}
    response = administrator.post(add, base | values)
    assert response.status_code == 200
    assert said in str(problems(response)[field])
    assert entities.list_queues("space") == [entities.get_queue(ORDERS)]


def test_deleting_queues_goes_through_the_use_case(space, administrator):
    entity = Entity.objects.get(namespace__name="space", path="orders")
    page = administrator.post(url("broker_core.entity"), {"action": "delete_selected", "_selected_action": [entity.pk]})
    assert "space/orders" in page.content.decode()
    confirmed = {"action": "delete_selected", "_selected_action": [entity.pk], "post": "yes"}
    assert administrator.post(url("broker_core.entity"), confirmed).status_code == 302
    entity.refresh_from_db()
    assert entity.deleted_at is not None
    assert administrator.get(url("broker_core.entity", "change", entity.pk)).status_code == 302  # no longer there
    assert AuditRecord.objects.get().action == "admin: delete entity"


def test_a_refusal_of_the_broker_is_a_message_and_nothing_is_stored(space, administrator, monkeypatch):
    entity = Entity.objects.get(namespace__name="space", path="orders")
    change = url("broker_core.entity", "change", entity.pk)
    values = fields_of(administrator.get(change)) | {"lock_duration": "30 s"}
    steps = entities.update_entity.steps

    def late(*args, **kwargs):
        yield from steps(*args, **kwargs)
        raise EntityNotFound("space/orders")

    monkeypatch.setattr(entities.update_entity, "steps", late)
    response = administrator.post(change, values, follow=True)
    assert re.search(r"could not be found.*\(tracking id [0-9a-f-]{36}\)", response.content.decode())
    assert entities.get_queue(ORDERS).settings == QueueSettings()
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("model", ["broker_core.entity", "broker_core.namespace"])
def test_the_system_namespace_can_be_seen_but_not_changed(space, administrator, model):
    entity = Entity.objects.get(path="of-a-test") if model.endswith("entity") else Namespace.objects.get(name="system")
    change = url(model, "change", entity.pk)
    assert administrator.get(change).status_code == 200
    assert administrator.post(change, {"description": "x", "lock_duration": "30 s"}).status_code == 403
    assert administrator.post(url(model, "delete", entity.pk), {"post": "yes"}).status_code == 403
    refused = administrator.post(url(model), {"action": "delete_selected", "_selected_action": [entity.pk], "post": "yes"})
    assert entities.get_queue(EntityAddress("system", "of-a-test"))
    assert refused.status_code in (200, 302, 403)


def test_a_topic_and_a_subscription_are_created_with_the_settings_of_their_kind(space, administrator):
    add = url("broker_core.entity", "add")
    base = fields_of(administrator.get(add)) | {"namespace": Namespace.objects.get(name="space").pk}
    response = administrator.post(add, base | {"new_kind": "topic", "path": "offers", "requires_duplicate_detection": "on"})
    assert response.status_code == 302, problems(response)
    offers = EntityAddress("space", "offers")
    assert entities.get_topic(offers).settings.requires_duplicate_detection
    values = {"new_kind": "subscription", "path": "offers/Subscriptions/eu", "requires_session": "on", "lock_duration": "30 s"}
    response = administrator.post(add, base | values)
    assert response.status_code == 302, problems(response)
    settings = entities.get_subscription(offers.subscription("eu")).settings
    assert (settings.requires_session, settings.lock_duration) == (True, timedelta(seconds=30))
    assert [stored_rule.rule.name for stored_rule in entities.list_rules(offers.subscription("eu"))] == ["$Default"]
    change = url("broker_core.entity", "change", entities.get_topic(offers).id)
    page = administrator.get(change)
    assert "lock_duration" not in page.context["adminform"].form.fields
    administrator.post(change, fields_of(page) | {"max_size_in_megabytes": "2048"})
    changed = entities.get_topic(offers).settings
    assert (changed.max_size_in_megabytes, changed.requires_duplicate_detection) == (2048, True)


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [({"new_kind": "topic", "path": "t", "lock_duration": "30 s"}, "lock_duration", "does not have this setting"),
     ({"new_kind": "subscription", "path": "news"}, "path", "topic/Subscriptions/name"),
     ({"new_kind": "subscription", "path": "news/Subscriptions/a b"}, "path", "only letters"),
     ({"new_kind": "subscription", "path": "news/subscriptions/ALL"}, "path", "already exists"),
     ({"new_kind": "topic", "path": "t", "status": "ReceiveDisabled"}, "status", "must be one of"),
     ({"new_kind": "queue", "path": "q", "forward_to": "a b"}, "forward_to", "path of a queue or topic")],
)  # fmt: skip
def test_a_setting_that_a_kind_lacks_is_refused_at_its_field(space, administrator, values, field, said):
    add = url("broker_core.entity", "add")
    base = fields_of(administrator.get(add)) | {"namespace": Namespace.objects.get(name="space").pk}
    response = administrator.post(add, base | values)
    assert response.status_code == 200 and said in str(problems(response).get(field)), problems(response)


def test_a_missing_topic_is_reported(space, administrator):
    add = url("broker_core.entity", "add")
    base = fields_of(administrator.get(add)) | {"namespace": Namespace.objects.get(name="space").pk}
    response = administrator.post(add, base | {"new_kind": "subscription", "path": "nothing/Subscriptions/eu"}, follow=True)
    assert "could not be found" in response.content.decode()


def test_a_topic_is_deleted_together_with_its_subscriptions(space, administrator):
    ids = [entities.get_topic(NEWS).id, entities.get_subscription(NEWS.subscription("all")).id]
    confirmed = {"action": "delete_selected", "_selected_action": ids, "post": "yes"}
    assert administrator.post(url("broker_core.entity"), confirmed).status_code == 302
    assert not Entity.objects.filter(pk__in=ids, deleted_at=None).exists()


# Rules


def test_a_rule_is_created_changed_and_deleted_through_the_use_cases(space, administrator):
    subscription = NEWS.subscription("all")
    values = {
        "subscription": entities.get_subscription(subscription).id, "name": "Large", "action": '{"expression": "SET big = TRUE"}',
        "filter": '{"type": "sql", "expression": "total > @least", "parameters": {"least": ["int", "100"]}}',
    }  # fmt: skip
    response = administrator.post(url("broker_core.rule", "add"), values)
    assert response.status_code == 302, problems(response)
    rules = {stored_rule.rule.name: stored_rule.rule for stored_rule in entities.list_rules(subscription)}
    assert rules["Large"].filter.text == "total > @least" and rules["Large"].action.text == "SET big = TRUE"
    change = url("broker_core.rule", "change", Rule.objects.get(name="Large").pk)
    response = administrator.post(change, {"filter": '{"type": "correlation", "subject": "vip"}', "action": ""})
    assert response.status_code == 302, problems(response)
    rules = {stored_rule.rule.name: stored_rule.rule for stored_rule in entities.list_rules(subscription)}
    assert rules["Large"].filter.subject == "vip" and rules["Large"].action is None
    administrator.post(url("broker_core.rule", "delete", Rule.objects.get(name="Large").pk), {"post": "yes"})
    assert [stored_rule.rule.name for stored_rule in entities.list_rules(subscription)] == ["$Default"]


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [({"filter": '{"type": "sql", "expression": "total >"}'}, "filter", "column 8"),
     ({"filter": '{"type": "sql"}'}, "filter", "is not a valid stored rule"), ({"filter": "total > 1"}, "filter", "valid JSON"),
     ({"filter": '{"type": "colour"}'}, "filter", "must be sql"),
     ({"filter": '{"type": "true"}', "action": '{"expression": "SET"}'}, "action", "column 4"),
     ({"filter": '{"type": "true"}', "name": "a/b"}, "name", "a/b")],
)  # fmt: skip
def test_a_rule_that_cannot_be_parsed_is_refused_at_its_field(space, administrator, values, field, said):
    base = {"subscription": entities.get_subscription(NEWS.subscription("all")).id, "name": "New", "action": ""}
    response = administrator.post(url("broker_core.rule", "add"), base | values)
    assert response.status_code == 200 and said in str(problems(response).get(field)), problems(response)


# Namespaces and clocks


def test_the_behaviour_of_a_namespace_can_be_set_and_changed(administrator):
    form_data = {"name": "strict", "description": "", "tier": "standard", "behaviour": "documented"}
    assert administrator.post(url("broker_core.namespace", "add"), form_data).status_code == 302
    namespace = namespaces.get_namespace("strict")
    assert namespace.behaviour is Behaviour.DOCUMENTED
    administrator.post(url("broker_core.namespace", "change", namespace.id), form_data | {"behaviour": "convenient"})
    assert namespaces.get_namespace("strict").behaviour is Behaviour.CONVENIENT


def test_the_maximum_size_of_a_namespace_is_set_and_removed(space, administrator):
    change = url("broker_core.namespace", "change", namespaces.get_namespace("space").id)
    values = {"description": "", "tier": "standard", "behaviour": "convenient"}
    administrator.post(change, values | {"max_size_in_megabytes": "7"})
    assert namespaces.get_namespace("space").max_size_in_megabytes == 7
    refused = administrator.post(change, values | {"max_size_in_megabytes": "0"})
    assert "from 1, or leave it empty" in str(problems(refused)["max_size_in_megabytes"])
    administrator.post(change, values)
    assert namespaces.get_namespace("space").max_size_in_megabytes is None


def test_a_namespace_is_created_with_its_policy(administrator):
    response = administrator.post(
        url("broker_core.namespace", "add"), {"name": "Fresh", "description": "d", "tier": "basic", "behaviour": "convenient"}
    )
    assert response.status_code == 302, problems(response)
    assert [p.name for p in shared_access.list_policies("fresh")] == ["RootManageSharedAccessKey"]
    assert namespaces.get_namespace("fresh").tier == Tier.BASIC
    again = administrator.post(url("broker_core.namespace", "add"), {"name": "FRESH", "tier": "basic", "behaviour": "convenient"})
    assert "already exists" in str(problems(again)["name"])


def test_the_clock_is_stepped_paused_and_run_from_the_form(space, administrator):
    change = url("broker_core.namespace", "change", Namespace.objects.get(name="space").pk)
    before = namespaces.get_clock("space").now
    administrator.post(
        change, {"description": "", "tier": "standard", "behaviour": "convenient", "step": "2 h", "clock": "pause", "rate": "1.0"}
    )
    paused = namespaces.get_clock("space")
    assert paused.rate == 0
    assert timedelta(hours=2) <= paused.now - before < timedelta(hours=2, minutes=5)
    assert "paused" in administrator.get(url("broker_core.namespace")).content.decode()
    administrator.post(change, {"description": "", "tier": "standard", "behaviour": "convenient", "clock": "run", "rate": "60"})
    assert namespaces.get_clock("space").rate == 60
    assert [e.get_change_message() for e in LogEntry.objects.order_by("pk")] == [
        "Step: None -> 2 h; Clock: None -> pause",
        "Clock: None -> run; Rate: 1.0 -> 60.0",
    ]


def test_the_archive_retention_can_be_set_and_is_logged(space, administrator):
    change = url("broker_core.namespace", "change", Namespace.objects.get(name="space").pk)
    values = fields_of(administrator.get(change))
    assert "archive_days" not in values, "for ever by default"
    refused = administrator.post(change, values | {"archive_days": "0"})
    assert "from 1 to 36,500, or leave it empty" in str(problems(refused)["archive_days"])
    administrator.post(change, values | {"archive_days": "90"})
    assert namespaces.get_namespace("space").archive_days == 90
    administrator.post(change, values)
    assert namespaces.get_namespace("space").archive_days is None
    assert [e.get_change_message() for e in LogEntry.objects.order_by("pk")] == [
        "Days of archived history: None -> 90",
        "Days of archived history: 90 -> None",
    ]


@pytest.mark.parametrize(
    ("values", "said"), [({"step": "-PT5M"}, "only moves forward"), ({"clock": "run", "rate": "0"}, "greater than 0")]
)
def test_a_clock_refuses_steps_back_and_a_rate_of_zero(space, administrator, values, said):
    change = url("broker_core.namespace", "change", Namespace.objects.get(name="space").pk)
    response = administrator.post(
        change, {"description": "", "tier": "standard", "behaviour": "convenient", **values}, follow=True
    )
    assert said in response.content.decode()
    assert not namespaces.get_clock("space").is_manual


def test_clocks_are_stepped_from_the_list_except_the_system_clock(space, administrator):
    pause = {"action": "pause", "_selected_action": [Namespace.objects.get(name="space").pk]}
    administrator.post(url("broker_core.namespace"), pause)
    before = namespaces.get_clock("space").now
    administrator.post(url("broker_core.namespace"), pause | {"action": "step_an_hour"})
    assert namespaces.get_clock("space").now - before == timedelta(hours=1)
    both = {"action": "step_a_day", "_selected_action": [n.pk for n in Namespace.objects.filter(name__in=["space", "system"])]}
    page = administrator.post(url("broker_core.namespace"), both, follow=True)
    assert "used by Vitrine itself" in page.content.decode()
    assert namespaces.get_clock("space").now - before == timedelta(hours=1)  # all or nothing


# Shared-access policies


def test_a_policy_is_created_changed_and_its_key_regenerated(space, administrator):
    model, entity = "broker_core.sharedaccesspolicy", Entity.objects.get(namespace__name="space", path="orders")
    values = {"namespace": entity.namespace_id, "entity": entity.pk, "name": "clients", "send": "on"}
    response = administrator.post(url(model, "add"), values)
    assert response.status_code == 302, problems(response)
    created = shared_access.get_policy(ORDERS, "clients")
    pk = SharedAccessPolicy.objects.get(name="clients").pk
    assert created.primary_key.replace("+", "&#x2B;") in administrator.get(url(model, "change", pk)).content.decode().replace(
        "+", "&#x2B;"
    )
    administrator.post(url(model, "change", pk), {"listen": "on"})
    administrator.post(url(model), {"action": "regenerate_primary_key", "_selected_action": [pk]})
    changed = shared_access.get_policy(ORDERS, "clients")
    assert (changed.send, changed.listen) == (False, True)
    assert (changed.primary_key != created.primary_key, changed.secondary_key) == (True, created.secondary_key)
    keys = {*created.keys, *changed.keys}
    assert not any(key in f"{e.change_message} {e.object_repr}" for e in LogEntry.objects.all() for key in keys)


@pytest.mark.parametrize(
    ("values", "field"), [({"send": ""}, "send"), ({"name": "a;b"}, "name"), ({"entity": "other"}, "entity")]
)
def test_an_invalid_policy_is_refused_at_its_field(space, administrator, values, field):
    namespaces.create_namespace("other", Family.SERVICE_BUS)
    other = entities.create_queue(EntityAddress("other", "q")).id
    base = {"namespace": Namespace.objects.get(name="space").pk, "name": "p", "send": "on"}
    values = values | ({"entity": other} if field == "entity" else {})
    assert field in problems(administrator.post(url("broker_core.sharedaccesspolicy", "add"), base | values))


# Rights


def test_a_viewer_sees_queues_and_events_but_neither_keys_nor_forms(space, viewer):
    assert viewer.get(url("broker_core.entity")).status_code == 200
    assert viewer.get(url("broker_core.messageevent")).status_code == 200
    assert viewer.get(url("explorer.auditrecord")).status_code == 200
    entity = Entity.objects.get(namespace__name="space", path="orders")
    assert viewer.get(url("broker_core.entity", "change", entity.pk)).status_code == 200
    for path in (
        url("broker_core.sharedaccesspolicy"),
        url("broker_core.entity", "add"),
    ):
        assert viewer.get(path).status_code == 403, path
    assert viewer.post(url("broker_core.entity", "change", entity.pk), {"lock_duration": "30 s"}).status_code == 403
    viewer.post(url("broker_core.namespace"), {"action": "pause", "_selected_action": [Namespace.objects.get(name="space").pk]})
    assert not namespaces.get_clock("space").is_manual


def test_viewing_a_queue_in_the_admin_is_no_activity(space, administrator):
    from django.db import connection

    def activity():
        with connection.cursor() as cursor:
            cursor.execute("SELECT entity_id, last_activity_at FROM vitrine_entity_activity ORDER BY 1")
            return cursor.fetchall()

    entity, before = Entity.objects.get(namespace__name="space", path="orders"), activity()
    for path in (url("broker_core.entity"), url("broker_core.entity", "change", entity.pk), url("broker_core.messageevent")):
        administrator.get(path)
    assert activity() == before


# Events


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["second", "first"]),
        ({"q": "SPACE/orders"}, ["second", "first"]),
        ({"q": "first"}, ["first"]),
        ({"q": "2"}, ["second"]),
        ({"q": "space/nothing"}, []),
        ({"kind__exact": "1", "recorded": "week"}, ["second", "first"]),
        ({"kind__exact": "6"}, []),
    ],
)
def test_events_are_found_by_queue_number_id_and_kind_newest_first(space, administrator, query, expected):
    changelist = administrator.get(url("broker_core.messageevent"), query).context["cl"]
    ours = entities.get_queue(ORDERS).id  # the events of other tests stay: their table is not emptied
    assert sorted(e.message_id for e in changelist.result_list if e.entity_id == ours) == sorted(expected)


def test_events_of_a_removed_queue_are_still_listed(space, administrator):
    from django.db import connection

    entity = Entity.objects.get(namespace__name="space", path="orders")
    page = administrator.get(url("broker_core.messageevent"), {"entity": entity.pk}).content.decode()
    assert "space/orders" in page
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM vitrine_shared_access_policy; DELETE FROM vitrine_entity WHERE id = %s", [entity.pk])
    page = administrator.get(url("broker_core.messageevent")).content.decode()
    assert f"removed (number {entity.pk})" in page


def test_a_list_of_events_counts_only_up_to_its_maximum(space, administrator, monkeypatch):
    MessageEvent.objects.exclude(entity__in=Entity.objects.all())._raw_delete("default")  # those of earlier tests: a long search
    monkeypatch.setattr("broker_core.model_admin.MOST_COUNTED", 1)
    assert administrator.get(url("broker_core.messageevent")).context["cl"].result_count == 1
