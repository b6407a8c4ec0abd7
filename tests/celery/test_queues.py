"""What a Celery queue is called on the broker, and how it is set up."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.celery_transport import queues
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityKind
from broker_core.service_bus.rules.entity_settings import check_path, new_settings

PIDBOX = {"auto_delete": True, "exclusive": False, "arguments": {"x-expires": 10_000}}


@pytest.mark.parametrize(
    ("queue", "path"),
    [
        ("celery", "celery"),
        ("orders.high-priority_1", "orders.high-priority_1"),
        ("celery@host.celery.pidbox", "celery~40host.celery.pidbox"),
        ("größe", "gr~c3~b6~c3~9fe"),
        ("a~40b", "a~7e40b"),
    ],
)
def test_a_queue_name_maps_to_a_valid_path(queue, path):
    assert queues.path_of(queue) == path
    assert queues.name_of(path) == queue
    assert check_path(path) == path


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_every_queue_name_round_trips(queue):
    assert queues.name_of(queues.path_of(queue)) == queue


def test_a_task_queue_has_the_brokers_defaults_except_its_size():
    settings = new_settings(EntityKind.QUEUE, queues.settings("celery", {"durable": True}, {}))
    assert (settings.max_delivery_count, settings.lock_duration) == (10, timedelta(minutes=1))
    assert (settings.default_message_time_to_live, settings.auto_delete_on_idle, settings.hidden) == (None, None, False)
    assert settings.max_message_size_in_kilobytes == 102_400


def test_transport_options_set_entity_settings():
    options = {"lock_duration": 5, "max_delivery_count": 3, "dsn": "host=x"}
    settings = new_settings(EntityKind.QUEUE, queues.settings("celery", {}, options))
    assert (settings.lock_duration, settings.max_delivery_count) == (timedelta(seconds=5), 3)


@pytest.mark.parametrize("queue", ["celery@host.celery.pidbox", "1b-2c.reply.celery.pidbox", "celeryev.0c"])
def test_celerys_own_mailboxes_are_hidden_and_deleted_on_idle(queue):
    settings = new_settings(EntityKind.QUEUE, queues.settings(queue, PIDBOX, {}))
    assert settings.hidden
    assert settings.auto_delete_on_idle == timedelta(minutes=5)  # the shortest there is
    assert settings.default_message_time_to_live == timedelta(minutes=1)


def test_a_result_queue_keeps_its_results_until_it_is_deleted():
    declared = {"auto_delete": True, "exclusive": True, "arguments": {"x-expires": 86_400_000}}
    settings = new_settings(EntityKind.QUEUE, queues.settings("9c2e", declared, {}))
    assert (settings.auto_delete_on_idle, settings.default_message_time_to_live) == (timedelta(days=1), None)


def test_a_declared_message_ttl_is_the_default_time_to_live():
    assert queues.settings("q", {"arguments": {"x-message-ttl": 300_000}}, {})["default_message_time_to_live"] == timedelta(
        minutes=5
    )


@pytest.mark.parametrize("name", ["requires_duplicate_detection", "requires_session", "forward_to"])
def test_settings_that_a_task_queue_cannot_have_are_refused(name):
    with pytest.raises(InvalidArgument, match="Celery"):
        queues.settings("tasks", {}, {name: "other" if name == "forward_to" else True})
