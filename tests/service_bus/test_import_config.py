"""manage.py import_config and connection_string: what they print and store, and that a bad file stores nothing."""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from broker_core import namespaces, queue_storage, rabbitmq
from broker_core.common.types import EntityAddress, ExpiryMode, Family
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules.shared_key import PUBLISHED_KEY
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, TrueFilter
from broker_core.service_bus.rules.values import QueueSettings

pytestmark = pytest.mark.usefixtures("in_one_transaction")

SHIPPED = """{
  "UserConfig": { // as the emulator ships it
    "Namespaces": [ {
      "Name": "sbemulatorns",
      "Queues": [ {
        "Name": "queue.1",
        "Properties": { "DeadLetteringOnMessageExpiration": false, "DefaultMessageTimeToLive": "PT1H",
          "DuplicateDetectionHistoryTimeWindow": "PT20S", "ForwardDeadLetteredMessagesTo": "", "ForwardTo": "",
          "LockDuration": "PT1M", "MaxDeliveryCount": 3, "RequiresDuplicateDetection": false, "RequiresSession": false, }
      }, ],
      "Topics": [ { "Name": "topic.1", "Properties": {}, "Subscriptions": [ { "Name": "subscription.1" } ] } ]
    } ],
    "Logging": { "Type": "File" }
  }
}"""
QUEUE_1 = EntityAddress("sbemulatorns", "queue.1")


@pytest.fixture
def importing(tmp_path):
    def run(content, *options):
        file = tmp_path / "Config.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        out = StringIO()
        call_command("import_config", str(file), *options, stdout=out)
        return out.getvalue().splitlines()

    return run


def queues(*items, name="ns"):
    return {"UserConfig": {"Namespaces": [{"Name": name, "Queues": list(items)}]}}


def test_the_shipped_file_is_imported_with_its_topic(importing):
    out = importing(SHIPPED)
    assert out == [
        "created namespace sbemulatorns",
        "created queue sbemulatorns/queue.1",
        "created topic sbemulatorns/topic.1",
        "created subscription sbemulatorns/topic.1/Subscriptions/subscription.1",
    ]
    assert entities.get_queue(QUEUE_1).settings == QueueSettings(
        default_message_time_to_live=timedelta(hours=1), max_delivery_count=3
    )
    (only,) = entities.list_rules(EntityAddress("sbemulatorns", "topic.1").subscription("subscription.1"))
    assert only.rule == Rule("$Default", TrueFilter())
    assert len(shared_access.list_policies("sbemulatorns")) == 1


def test_importing_twice_changes_nothing_and_says_so(importing):
    importing(SHIPPED)
    before = entities.list_entities("sbemulatorns")
    out = importing(SHIPPED)
    assert [line.split()[0] for line in out] == ["unchanged"] * 4
    assert entities.list_entities("sbemulatorns") == before


def test_an_update_names_each_difference_and_keeps_other_settings(importing):
    importing(queues({"Name": "q", "Properties": {"MaxDeliveryCount": 3, "LockDuration": "PT30S"}}))
    queue = EntityAddress("ns", "q")
    entities.update_queue(queue, expiry_mode="on_activity", user_metadata="by hand")
    out = importing(queues({"Name": "Q", "Properties": {"LockDuration": "PT2M"}}))
    assert out[1] == "updated queue ns/Q: LockDuration 30 s -> 2 min, MaxDeliveryCount 3 -> 10, UserMetadata by hand -> none"
    assert entities.get_queue(queue).settings == QueueSettings(
        lock_duration=timedelta(minutes=2), expiry_mode=ExpiryMode.ON_ACTIVITY
    )


def test_keys_not_given_take_the_emulators_defaults_on_request(importing):
    importing(queues({"Name": "service"}))
    importing(queues({"Name": "emulator"}), "--emulator-defaults")
    assert entities.get_queue(EntityAddress("ns", "service")).settings == QueueSettings()
    assert entities.get_queue(EntityAddress("ns", "emulator")).settings == QueueSettings(
        default_message_time_to_live=timedelta(hours=1), max_delivery_count=3
    )


def test_one_rejected_value_stores_nothing(importing):
    content = queues({"Name": "good"}, {"Name": "bad", "Properties": {"LockDuration": "PT1H", "MaxDeliveryCount": 0}})
    with pytest.raises(CommandError) as refused:
        importing(content)
    assert str(refused.value).splitlines() == [
        "UserConfig.Namespaces[0].Queues[1].Properties.LockDuration: 1 h is out of range; allowed: 5 s to 5 min",
        "UserConfig.Namespaces[0].Queues[1].Properties.MaxDeliveryCount: 0 is out of range; allowed: 1 to 2,147,483,647",
        "Nothing was stored.",
    ]
    assert not {"sbemulatorns", "ns"} & {n.name for n in namespaces.list_namespaces()}


def test_a_refusal_while_storing_rolls_back_the_import(importing):
    namespaces.ensure_namespace("system", Family.SERVICE_BUS, is_system=True)
    content = queues({"Name": "q"})
    content["UserConfig"]["Namespaces"].append({"Name": "system", "Queues": [{"Name": "mine"}]})
    with pytest.raises(CommandError, match="is used by Vitrine itself.* Nothing was stored"):
        importing(content)
    assert "ns" not in {n.name for n in namespaces.list_namespaces()}


def test_properties_without_effect_are_kept_and_shown_one_by_one(importing):
    """SB-940."""
    properties = {"EnablePartitioning": True, "EnableBatchedOperations": False}
    importing(queues({"Name": "q", "Properties": properties}))
    queue = EntityAddress("ns", "q")
    assert entities.get_queue(queue).settings == QueueSettings(kept_properties=properties)
    out = importing(queues({"Name": "q", "Properties": properties}))
    assert out == ["unchanged namespace ns", "unchanged queue ns/q"]
    out = importing(queues({"Name": "q", "Properties": {"EnablePartitioning": True, "IsAnonymousAccessible": True}}))
    assert out[1:] == ["updated queue ns/q: EnableBatchedOperations false -> true, IsAnonymousAccessible false -> true"]
    with pytest.raises(CommandError, match=r"Queues\[0\]\.Properties\.EnablePartitioning: cannot be changed after creation"):
        importing(queues({"Name": "q"}))
    assert entities.get_queue(queue).settings.kept_properties == {"EnablePartitioning": True, "IsAnonymousAccessible": True}


def topics(*items, queues=()):
    return {"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": list(queues), "Topics": list(items)}]}}


def with_rules(*rules):
    return topics({"Name": "t", "Subscriptions": [{"Name": "s", "Rules": list(rules)}]})


def sql(name, text, action=None):
    values = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": text}}
    return {"Name": name, "Properties": values | ({"Action": {"SqlExpression": action}} if action else {})}


def correlation(name, **compared):
    return {"Name": name, "Properties": {"FilterType": "Correlation", "CorrelationFilter": compared}}


def rules():
    return {
        stored_rule.rule.name: stored_rule.rule for stored_rule in entities.list_rules(EntityAddress("ns", "t").subscription("s"))
    }


def test_a_subscription_has_exactly_the_rules_that_the_file_names(importing):
    out = importing(with_rules(correlation("c", Label="x", Properties={"n": 5}), sql("q", "a = 1", "SET b = 2")))
    assert out[3:] == ["created rule ns/t/Subscriptions/s/Rules/c", "created rule ns/t/Subscriptions/s/Rules/q"]
    assert rules()["c"] == Rule("c", CorrelationFilter(subject="x", properties={"n": 5}))
    assert (rules()["q"].filter.text, rules()["q"].action.text) == ("a = 1", "SET b = 2")
    out = importing(with_rules(correlation("c", Label="x", Properties={"n": 5}), sql("new", "1=1"), sql("Q", "a = 2")))
    assert out[3:] == [
        "unchanged rule ns/t/Subscriptions/s/Rules/c",
        "created rule ns/t/Subscriptions/s/Rules/new",
        "updated rule ns/t/Subscriptions/s/Rules/Q",
    ]
    assert (rules()["q"].filter.text, rules()["q"].action) == ("a = 2", None)
    out = importing(with_rules(sql("new", "1=1")))
    assert sorted(line.split()[0] for line in out[3:]) == ["deleted", "deleted", "unchanged"]
    assert list(rules()) == ["new"]


def test_rules_of_subscriptions_without_rules_in_the_file_are_kept(importing):
    importing(with_rules(sql("mine", "a = 1")))
    importing(with_rules())
    assert list(rules()) == ["mine"]


def test_an_entity_can_forward_to_a_later_entity_of_the_file(importing):
    content = topics(
        {"Name": "t", "Subscriptions": [{"Name": "s", "Properties": {"ForwardTo": "Later"}}]},
        queues=[
            {"Name": "first", "Properties": {"ForwardDeadLetteredMessagesTo": "t", "ForwardTo": "later"}},
            {"Name": "later", "Properties": {"RequiresSession": True}},
        ],
    )
    out = importing(content)
    assert {line.split()[0] for line in out} == {"created"}
    first = entities.get_queue(EntityAddress("ns", "first")).settings
    assert (first.forward_to, first.forward_dead_lettered_messages_to) == ("later", "t")
    assert entities.get_subscription(EntityAddress("ns", "t").subscription("s")).settings.forward_to == "later"
    out = importing(content)
    assert {line.split()[0] for line in out} == {"unchanged"}


def test_a_file_may_have_loops_and_forwards_of_sessions(importing):
    """SB-175, SB-176."""
    content = topics(
        {"Name": "t", "Subscriptions": [{"Name": "s", "Properties": {"ForwardTo": "T", "RequiresSession": True}}]},
        queues=[{"Name": "q", "Properties": {"ForwardTo": "Q", "ForwardDeadLetteredMessagesTo": "q", "RequiresSession": True}}],
    )
    importing(content)
    queue = entities.get_queue(EntityAddress("ns", "q")).settings
    assert (queue.forward_to, queue.forward_dead_lettered_messages_to, queue.requires_session) == ("q", "q", True)
    subscription = entities.get_subscription(EntityAddress("ns", "t").subscription("s")).settings
    assert (subscription.forward_to, subscription.requires_session) == ("t", True)
    out = importing(content)
    assert {line.split()[0] for line in out} == {"unchanged"}


def test_a_refusal_of_the_broker_names_the_path_in_the_file(importing):
    with pytest.raises(CommandError) as refused:
        importing(queues({"Name": "q"}, {"Name": "p", "Properties": {"ForwardTo": "nowhere"}}))
    assert str(refused.value) == (
        "UserConfig.Namespaces[0].Queues[1].Properties.ForwardTo: 'nowhere' is not a queue or topic of 'ns'; create it first. "
        "Nothing was stored."
    )
    importing(queues({"Name": "q"}))
    for changed in (queues({"Name": "q", "Properties": {"RequiresSession": True}}), topics({"Name": "Q"})):
        with pytest.raises(CommandError, match=r"UserConfig.Namespaces\[0\]\.(Queues|Topics)\[0\]"):
            importing(changed)


def test_the_limits_of_a_tier_apply_to_a_file(importing):
    namespaces.create_namespace("ns", Family.SERVICE_BUS, tier="basic")
    with pytest.raises(CommandError, match=r"^UserConfig.Namespaces\[0\].Topics\[0\]: .*Basic"):
        importing(topics({"Name": "t"}))
    with pytest.raises(CommandError, match=r"^UserConfig.Namespaces\[0\].Queues\[0\].Properties.RequiresSession: .*Basic"):
        importing(queues({"Name": "q", "Properties": {"RequiresSession": True}}))


def test_an_unreadable_file_is_refused(tmp_path):
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        call_command("import_config", str(tmp_path / "missing.json"))
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(CommandError, match="is not in UTF-8"):
        call_command("import_config", str(tmp_path / "latin.json"))


def connection_string(*arguments):
    out, err = StringIO(), StringIO()
    call_command("connection_string", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_the_connection_string_names_the_policy_and_its_primary_key(settings):
    settings.VITRINE_PUBLIC_URL = "https://broker.example:8443/prefix"
    namespaces.create_namespace("Space", Family.SERVICE_BUS)
    key = shared_access.get_policy("Space", shared_access.ROOT_POLICY).primary_key
    signed = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}"
    of_site = f"Endpoint=sb://broker.example:8443/prefix/servicebus/Space/;{signed}\n"
    assert connection_string("space", "--client", "site") == (of_site, "")
    out, err = connection_string("space", "--client", "amqp")
    assert out == f"Endpoint=sb://127.0.0.1:5672/;{signed};UseDevelopmentEmulator=true\n"
    assert "cannot be used now: not served yet" in err
    out, err = connection_string("space", "--client", "admin")
    assert (out, err) == (f"Endpoint=sb://127.0.0.1:5300/;{signed};UseDevelopmentEmulator=true\n", "")
    out, err = connection_string("space", "--client", "admin-tls")
    assert out == f"Endpoint=sb://127.0.0.1:5301/;{signed}\n" and "TLS_CERTIFICATE and TLS_KEY are not set" in err
    out, _ = connection_string("space")
    assert of_site in out
    assert "Azure Service Bus SDKs (AMQP 1.0) (--client amqp), not served yet:\n" in out
    with pytest.raises(CommandError, match="must be one of .*site, amqp, admin, admin-tls, not 'java'"):
        connection_string("space", "--client", "java")


def test_the_connection_string_of_a_queues_own_policy_names_the_queue():
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("space", "orders"))
    shared_access.create_policy(EntityAddress("space", "orders"), "app", send=True)
    out, _ = connection_string("space/orders", "--policy", "APP", "--client", "site")
    assert ";SharedAccessKeyName=app;" in out
    assert out.endswith(";EntityPath=orders\n")


def test_an_unknown_name_is_refused_with_the_existing_names():
    namespaces.create_namespace("space", Family.SERVICE_BUS)
    with pytest.raises(CommandError, match="no policy 'other'; available: RootManageSharedAccessKey"):
        connection_string("space", "--policy", "other")
    for scope in ("nowhere", "nowhere/orders"):
        with pytest.raises(CommandError, match="'nowhere' could not be found.* virtual hosts: .*space"):
            connection_string(scope)
    with pytest.raises(CommandError, match="orders"):
        connection_string("space/orders")


def test_the_connection_strings_of_a_storage_account(settings):
    settings.LISTEN_HOST, settings.QUEUE_STORAGE_PORT, settings.VITRINE_PUBLIC_URL = "0.0.0.0", 10003, "https://broker.example/x"
    queue_storage.create_account("shop")
    key = accounts.get_keys("shop").primary_key
    out, _ = connection_string("shop", "--client", "sdk")
    assert out == (
        f"DefaultEndpointsProtocol=http;AccountName=shop;AccountKey={key};QueueEndpoint=http://broker.example:10003/shop;\n"
    )
    settings.TLS_CERTIFICATE = settings.TLS_KEY = "/some.pem"
    settings.LISTEN_HOST, settings.QUEUE_STORAGE_TLS_PORT = "::1", 10013
    out, _ = connection_string("shop", "--client", "tls")
    assert out.endswith("QueueEndpoint=https://[::1]:10013/shop;\n")
    settings.QUEUE_STORAGE_PORT = 0
    assert "Azure Queue Storage SDKs (--client sdk), QUEUE_STORAGE_PORT is 0:\n" in connection_string("shop")[0]


def test_the_connection_strings_of_the_emulators_account_are_those_that_its_users_have(settings):
    settings.QUEUE_STORAGE_PORT = 10001
    queue_storage.create_account("devstoreaccount1")
    out, _ = connection_string("devstoreaccount1")
    assert "Azure Queue Storage SDKs, on this machine (--client development):" in out
    out, _ = connection_string("devstoreaccount1", "--client", "development")
    assert out == "UseDevelopmentStorage=true\n"
    of_celery = f"azurestoragequeues://{PUBLISHED_KEY}@http://127.0.0.1:10001/devstoreaccount1\n"
    assert of_celery in connection_string("devstoreaccount1")[0]
    settings.QUEUE_STORAGE_PORT = 10003  # it stands for port 10001
    assert "UseDevelopmentStorage" not in connection_string("devstoreaccount1")[0]
    settings.QUEUE_STORAGE_PORT = 10001
    accounts.regenerate_key("devstoreaccount1")
    assert "UseDevelopmentStorage" not in connection_string("devstoreaccount1")[0]


def test_the_connection_string_of_a_virtual_host_says_that_nothing_serves_it():
    for name, quoted in (("/", "%2F"), ("a/b", "a%2Fb")):
        rabbitmq.create_vhost(name)
        out, err = connection_string(name, "--client", "amqp")
        assert out == f"amqp://guest:guest@127.0.0.1:5672/{quoted}\n"
        assert "not served yet" in err
