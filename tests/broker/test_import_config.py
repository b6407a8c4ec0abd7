"""manage.py import_config and connection_string: what they print and store, and that a bad file stores nothing (9.3, 6.1)."""

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from broker_core import entities, policies
from broker_core.semantics.types import EntityAddress, ExpiryMode, QueueSettings
from broker_core.store.connections import callers_transaction

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


@pytest.fixture(autouse=True)
def in_one_transaction(db):
    """All of a test in one transaction that is rolled back: many times faster than emptying tables."""
    with callers_transaction():
        yield


@pytest.fixture
def importing(tmp_path):
    def run(content, *options):
        file = tmp_path / "Config.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        out, err = StringIO(), StringIO()
        call_command("import_config", str(file), *options, stdout=out, stderr=err)
        return out.getvalue().splitlines(), err.getvalue().splitlines()

    return run


def queues(*items, name="ns"):
    return {"UserConfig": {"Namespaces": [{"Name": name, "Queues": list(items)}]}}


def test_the_shipped_file_is_refused_for_its_topic_and_nothing_is_stored(importing):
    with pytest.raises(CommandError) as refused:
        importing(SHIPPED)
    assert str(refused.value).splitlines() == [
        "UserConfig.Namespaces[0].Topics[0]: topics are not supported yet",
        "Nothing was stored. Use --skip-unsupported to leave out what is not supported yet.",
    ]
    assert not {"sbemulatorns", "ns"} & {n.name for n in entities.list_namespaces()}


def test_the_shipped_file_is_imported_without_its_topic_on_request(importing):
    out, err = importing(SHIPPED, "--skip-unsupported")
    assert out == ["created namespace sbemulatorns", "created queue sbemulatorns/queue.1"]
    assert err == ["skipped UserConfig.Namespaces[0].Topics[0]: topics are not supported yet"]
    assert entities.get_queue(QUEUE_1).settings == QueueSettings(
        default_message_time_to_live=timedelta(hours=1), max_delivery_count=3
    )
    assert len(policies.list_policies("sbemulatorns")) == 1


def test_importing_twice_changes_nothing_and_says_so(importing):
    importing(SHIPPED, "--skip-unsupported")
    before = entities.get_queue(QUEUE_1)
    out, _ = importing(SHIPPED, "--skip-unsupported")
    assert out == ["unchanged namespace sbemulatorns", "unchanged queue sbemulatorns/queue.1"]
    assert entities.get_queue(QUEUE_1) == before


def test_an_update_names_each_difference_and_keeps_what_the_file_cannot_say(importing):
    importing(queues({"Name": "q", "Properties": {"MaxDeliveryCount": 3, "LockDuration": "PT30S"}}))
    queue = EntityAddress("ns", "q")
    entities.update_queue(queue, expiry_mode="on_activity", user_metadata="by hand")
    out, _ = importing(queues({"Name": "Q", "Properties": {"LockDuration": "PT2M"}}))
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


def test_one_rejected_value_stores_nothing_even_with_skip_unsupported(importing):
    content = queues({"Name": "good"}, {"Name": "bad", "Properties": {"LockDuration": "PT1H", "MaxDeliveryCount": 0}})
    with pytest.raises(CommandError) as refused:
        importing(content, "--skip-unsupported")
    assert str(refused.value).splitlines() == [
        "UserConfig.Namespaces[0].Queues[1].Properties.LockDuration: 1 h is out of range: allowed is 5 s to 5 min",
        "UserConfig.Namespaces[0].Queues[1].Properties.MaxDeliveryCount: 0 is out of range: allowed is 1 to 2,147,483,647",
        "Nothing was stored.",
    ]
    assert not {"sbemulatorns", "ns"} & {n.name for n in entities.list_namespaces()}


def test_a_refusal_while_storing_takes_back_what_was_stored(importing):
    entities.ensure_namespace("system", is_system=True)
    content = queues({"Name": "q"})
    content["UserConfig"]["Namespaces"].append({"Name": "system", "Queues": [{"Name": "mine"}]})
    with pytest.raises(CommandError, match="carries Vitrine's own work.* Nothing was stored"):
        importing(content)
    assert "ns" not in {n.name for n in entities.list_namespaces()}


def test_unsupported_settings_are_skipped_with_their_path(importing):
    content = queues({"Name": "q", "Properties": {"RequiresSession": True, "ForwardTo": "other", "MaxDeliveryCount": 5}})
    out, err = importing(content, "--skip-unsupported")
    assert err == [
        "skipped UserConfig.Namespaces[0].Queues[0].Properties.RequiresSession: true is not supported yet",
        'skipped UserConfig.Namespaces[0].Queues[0].Properties.ForwardTo: "other" is not supported yet',
    ]
    assert entities.get_queue(EntityAddress("ns", "q")).settings.max_delivery_count == 5


def test_a_file_that_cannot_be_read(tmp_path):
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
    entities.create_namespace("Space")
    key = policies.get_policy("Space", policies.ROOT_POLICY).primary_key
    out, err = connection_string("space")
    assert out == (
        "Endpoint=sb://broker.example:8443/prefix/servicebus/Space/;"
        f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}\n"
    )
    assert "HTTP API" in err


def test_the_connection_string_of_a_queues_own_policy_names_the_queue():
    entities.create_namespace("space")
    entities.create_queue(EntityAddress("space", "orders"))
    policies.create_policy(EntityAddress("space", "orders"), "app", send=True)
    out, _ = connection_string("space/orders", "--policy", "APP")
    assert ";SharedAccessKeyName=app;" in out
    assert out.endswith(";EntityPath=orders\n")


def test_a_wrong_name_is_answered_with_those_that_exist():
    entities.create_namespace("space")
    with pytest.raises(CommandError, match="no policy 'other'; it has RootManageSharedAccessKey"):
        connection_string("space", "--policy", "other")
    with pytest.raises(CommandError, match="Namespaces are: .*space"):
        connection_string("nowhere")
