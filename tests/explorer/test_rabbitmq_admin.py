"""Exchanges, bindings, policies, connections and consumers in the admin: changed through the use cases, or only to be read."""

import pytest

from broker_core import rabbitmq
from broker_core.models import Binding, Entity, Exchange, Namespace, Policy
from broker_core.rabbitmq.rules.policies import Policy as Rule
from explorer.models import AuditRecord

from .test_admin import problems, url

pytest_plugins = ["tests.explorer.rabbitmq_office"]

CHANGED = ("broker_core.exchange", "broker_core.binding", "broker_core.policy")
READ = ("broker_core.connection", "broker_core.consumer")


@pytest.fixture(autouse=True)
def office(in_one_transaction, office):
    return office


@pytest.fixture
def administrator(as_):
    return as_("administrator")


def host_of(office):
    return Namespace.objects.get(name=office.vhost)


def test_each_page_opens(office, administrator):
    for model in (*CHANGED, *READ):
        assert administrator.get(url(model)).status_code == 200, model
        assert administrator.get(url(model), {"q": "events"}).status_code == 200, model
    rows = {
        "broker_core.exchange": Exchange.objects.get(namespace=host_of(office), name="sorted"),
        "broker_core.binding": Binding.objects.get(source__namespace=host_of(office), source__name="sorted"),
        "broker_core.policy": Policy.objects.get(namespace=host_of(office), name="low"),
    }
    for model, row in rows.items():
        assert administrator.get(url(model, "add")).status_code == 200
        for page in ("change", "history", "delete"):
            assert administrator.get(url(model, page, row.pk)).status_code == 200, (model, page)


@pytest.mark.parametrize("model", READ)
def test_connections_and_consumers_have_no_forms(office, administrator, model):
    assert administrator.get(url(model, "add")).status_code in (302, 403)
    assert administrator.post(url(model, "delete", office.connection.id), {"post": "yes"}).status_code in (302, 403, 404)
    assert len(rabbitmq.list_queues(office.vhost)) == 4 and office.connection.closed is None


def test_a_viewer_can_view_but_not_change(office, as_):
    client = as_("viewer")
    client.user.is_staff = True
    client.user.save()
    assert client.get(url("broker_core.exchange")).status_code == 200
    for model in CHANGED:
        assert client.get(url(model, "add")).status_code == 403, model


def test_an_exchange_is_declared_and_deleted_through_the_use_cases(office, administrator):
    form_data = {
        "namespace": host_of(office).pk,
        "name": "made",
        "type": "topic",
        "durable": "on",
        "arguments": '{"alternate-exchange": "graves"}',
    }
    response = administrator.post(url("broker_core.exchange", "add"), form_data)
    assert response.status_code == 302, problems(response)
    made = rabbitmq.get_exchange(office.vhost, "made")
    assert made.type == "topic" and made.effective["alternate_exchange"] == "graves", "a plain save would not bring it into force"
    row = Exchange.objects.get(namespace=host_of(office), name="made")
    assert administrator.post(url("broker_core.exchange", "change", row.pk), {"type": "fanout"}).status_code == 403
    assert administrator.post(url("broker_core.exchange", "delete", row.pk), {"post": "yes"}).status_code == 302
    assert "made" not in {exchange.name for exchange in rabbitmq.list_exchanges(office.vhost)}
    assert AuditRecord.objects.filter(target__contains="made").exists()


@pytest.mark.parametrize(
    ("given", "text"),
    [({"name": "amq.mine"}, "reserved prefix"), ({"arguments": "[1]"}, "JSON object"), ({"arguments": "{"}, "valid JSON"),
     ({"arguments": '{"alternate-exchange": 5}'}, "alternate-exchange"), ({"type": "odd"}, "valid choice")],
)  # fmt: skip
def test_a_refused_exchange_shows_the_reason_and_is_not_created(office, administrator, given, text):
    base = {"namespace": host_of(office).pk, "name": "bad", "type": "direct", "arguments": ""}
    response = administrator.post(url("broker_core.exchange", "add"), base | given)
    assert response.status_code == 200 and text in str(problems(response))
    assert {"bad", "amq.mine"}.isdisjoint(exchange.name for exchange in rabbitmq.list_exchanges(office.vhost))


def test_a_system_exchange_cannot_be_deleted(office, administrator):
    row = Exchange.objects.get(namespace=host_of(office), name="amq.topic")
    response = administrator.post(url("broker_core.exchange", "delete", row.pk), {"post": "yes"}, follow=True)
    assert "deletion of system exchange" in response.content.decode()
    assert Exchange.objects.filter(pk=row.pk).exists()


def test_a_binding_is_created_and_deleted_and_routes_messages(office, administrator):
    source = Exchange.objects.get(namespace=host_of(office), name="events")
    queue = Entity.objects.get(namespace=host_of(office), path="dead", deleted_at=None)
    form_data = {"source": source.pk, "queue": queue.pk, "routing_key": "new.key", "arguments": ""}
    response = administrator.post(url("broker_core.binding", "add"), form_data)
    assert response.status_code == 302, problems(response)
    assert _route(office, "new.key") == ("dead",), "publishers know of it at once"
    row = Binding.objects.get(source=source, routing_key="new.key")
    assert administrator.post(url("broker_core.binding", "delete", row.pk), {"post": "yes"}).status_code == 302
    assert _route(office, "new.key") == ()


def _route(office, key):
    published = rabbitmq.publish(office.vhost, [rabbitmq.Publication(b"", "events", key)])
    return tuple(name for name, _ in published[0].queues)


def test_a_binding_requires_a_single_destination_in_the_same_virtual_host(office, administrator):
    source = Exchange.objects.get(namespace=host_of(office), name="events")
    inner = Exchange.objects.get(namespace=host_of(office), name="inner")
    queue = Entity.objects.get(namespace=host_of(office), path="dead", deleted_at=None)
    rabbitmq.create_vhost("elsewhere")
    other = Exchange.objects.get(namespace__name="elsewhere", name="amq.topic")
    for ends, text in (({}, "not both"), ({"queue": queue.pk, "exchange": inner.pk}, "not both"),
                       ({"exchange": other.pk}, "same virtual host")):  # fmt: skip
        response = administrator.post(url("broker_core.binding", "add"), {"source": source.pk, "routing_key": "k", **ends})
        assert response.status_code == 200 and text in str(problems(response))


def test_a_policy_is_created_changed_and_deleted_with_immediate_effect(office, administrator):
    form_data = {"namespace": host_of(office).pk, "name": "made", "pattern": "^dead$", "apply_to": "queues", "priority": "20",
             "definition": '{"max-length": 3}'}  # fmt: skip
    response = administrator.post(url("broker_core.policy", "add"), form_data)
    assert response.status_code == 302, problems(response)
    assert _max_length(office) == 3
    row = Policy.objects.get(namespace=host_of(office), name="made")
    changed = {"pattern": "^dead$", "apply_to": "queues", "priority": "20", "definition": '{"max-length": 2}'}
    response = administrator.post(url("broker_core.policy", "change", row.pk), changed)
    assert response.status_code == 302, problems(response)
    assert _max_length(office) == 2
    listed = administrator.get(url("broker_core.policy", "changelist")).content.decode()
    form = administrator.get(url("broker_core.policy", "change", row.pk)).content.decode()
    assert '"field-level">20<' in listed and 'name="priority" value="20"' in form
    [made] = [policy for policy in rabbitmq.list_policies(office.vhost) if policy.name == "made"]
    assert made == Rule("made", "^dead$", {"max-length": 2}, "queues", 20)
    assert administrator.post(url("broker_core.policy", "delete", row.pk), {"post": "yes"}).status_code == 302
    assert _max_length(office) is None


def _max_length(office):
    return next(queue for queue in rabbitmq.list_queues(office.vhost) if queue.name == "dead").effective.get("max_length")


@pytest.mark.parametrize(
    ("given", "text"),
    [({"definition": '{"message-ttl": -1}'}, "-1 is not a valid message TTL"), ({"pattern": "("}, "should be regular expression"),
     ({"definition": '{"odd": 1}'}, "are not recognised policy settings"),
     ({"definition": '{"dead-letter-exchange": "x"}', "is_operator": "on"}, "are not recognised policy settings")],
)  # fmt: skip
def test_a_refused_policy_shows_rabbitmqs_text(office, administrator, given, text):
    base = {"namespace": host_of(office).pk, "name": "bad", "pattern": "", "apply_to": "all", "priority": "0",
            "definition": '{"expires": 5000000}'}  # fmt: skip
    response = administrator.post(url("broker_core.policy", "add"), base | given)
    assert response.status_code == 200 and text in str(problems(response))
    assert "bad" not in {policy.name for policy in rabbitmq.list_policies(office.vhost)}
