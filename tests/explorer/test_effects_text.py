"""What saving and deleting did is told in the notice, and kept in the audit: counted in the transaction that did it."""

from datetime import timedelta

import pytest

from broker_core import namespaces, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.service_bus import entities, preview
from broker_core.service_bus.rules.values import Message
from explorer.frames.presenters import effects_text
from explorer.models import AuditRecord
from tests.fixtures import vhost  # noqa: F401 - fixture
from tests.rabbitmq import shortcuts


@pytest.fixture
def orders(vhost):  # noqa: F811
    """A queue with three messages that came 60 s ago, and an empty one."""
    queue = shortcuts.declare(vhost, "orders")
    shortcuts.declare(vhost, "other")
    shortcuts.send(queue, "1", "2", "3")
    namespaces.step_clock(vhost, timedelta(seconds=60))
    return queue


def notice_text(response) -> str:
    [message] = response.context["messages"]
    assert AuditRecord.objects.latest("id").detail == str(message)
    return str(message)


def new(client, vhost, **given):  # noqa: F811
    from django.urls import reverse

    fields = {"name": "p", "pattern": "^o", "apply_to": "queues", "priority": "0", **given}
    return client.post(reverse("explorer:rabbitmq_policy_new", args=("user", vhost)), fields, follow=True)


def test_saving_a_policy_reports_expired_messages(orders, as_, vhost):  # noqa: F811
    told = notice_text(new(as_("administrator"), vhost, message_ttl="30 s"))
    assert told == (
        "Created the policy p. It applies to 2 queues and 0 exchanges. Effective settings changed for 2 queues and 0 exchanges. "
        "The expiry of 3 ready messages was recalculated. Of the existing messages, 3 expire now, 3 are dropped."
    )
    assert reads.counts(orders).active == 0  # and so it was


def test_saving_a_policy_without_effects_says_so(orders, as_, vhost):  # noqa: F811
    told = notice_text(new(as_("administrator"), vhost, message_ttl="1 h"))
    assert told.endswith("The expiry of 3 ready messages was recalculated. No existing messages are affected.")
    assert reads.counts(orders).active == 3


def test_deleting_a_policy_reports_the_affected_objects(orders, as_, vhost):  # noqa: F811
    from django.urls import reverse

    rabbitmq.set_policy(vhost, Policy("p", "^orders$", {"message-ttl": 3_600_000}, "queues"))
    client = as_("administrator")
    url = reverse("explorer:rabbitmq_policy_delete", args=("user", vhost, "p"))
    token = client.get(url).context["previewed"].token
    told = notice_text(client.post(url, {"token": token}, follow=True))
    assert told.startswith("Deleted the policy p. Effective settings changed for 1 queue and 0 exchanges. The expiry of 3 ready")


def test_a_policy_change_reports_the_number_of_governed_objects(orders, vhost):  # noqa: F811
    rabbitmq.set_policy(vhost, Policy("strong", "^orders$", {"max-length": 9}, "queues", 9))
    told = rabbitmq.change_policy(vhost, "weak", False, Policy("weak", "", {"max-length": 8}, "all"))
    assert told.governed == (1, 6)  # the stronger one keeps orders; the default exchange is never ruled
    assert rabbitmq.preview_policy(vhost, Policy("weak", "", {"max-length": 8}, "all")).governed == (1, 6)
    told = rabbitmq.change_policy(vhost, "weak", False, None)
    assert (told.governed, told.after) == ((0, 0), None)
    assert [policy.name for policy in rabbitmq.list_policies(vhost)] == ["strong"]


def test_saving_service_bus_settings_reports_their_effect(namespace, as_):
    address = EntityAddress(namespace, "orders")
    entities.create_queue(address, dead_lettering_on_message_expiration=True)
    service_bus.send(address, [Message(body=b"1"), Message(body=b"2", time_to_live=timedelta(days=1))])
    namespaces.step_clock(namespace, timedelta(minutes=10))
    told = preview.change(address, default_message_time_to_live=timedelta(minutes=5))
    assert effects_text(told.effects) == "Of the existing messages, 1 expires now, 1 is dead-lettered."
    assert entities.get_entity(address).settings.default_message_time_to_live == timedelta(minutes=5)
    client = as_("administrator")
    page = client.get(f"/settings/{address}")
    fields = {name: value for name, value in page.context["form"].initial.items() if value is not None}
    fields = {name: value for name, value in fields.items() if value is not False} | {"default_message_time_to_live": "never"}
    fields["lock_duration"] = "1 min"
    response = client.post(f"/settings/{address}", fields, follow=True)
    assert "DefaultMessageTimeToLive from 5 min to never" in notice_text(response)
