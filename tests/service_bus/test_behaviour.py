"""The behaviour of a namespace: convenient, or as the service's pages say (SB-902, SB-903, SB-907)."""

import uuid
from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, reads, service_bus, sweeps
from broker_core.common.errors import InvalidArgument, NoSessionAvailable
from broker_core.common.types import Behaviour, EntityAddress, ExpiryMode, Family
from broker_core.service_bus import emulator_config, entities, preview
from broker_core.service_bus.rules.emulator_config import read
from broker_core.service_bus.rules.values import Message
from broker_core.transfer.exporting import export
from broker_core.transfer.importing import import_

SECOND = timedelta(seconds=1)
CONVENIENT, DOCUMENTED = Behaviour


@pytest.fixture
def documented(namespace):
    namespaces.update_namespace(namespace, behaviour=DOCUMENTED)
    return namespace


def expire(make_queue, step, **settings):
    """A queue with an expired message, after the sweep has run and all receivers have been gone for long."""
    queue = make_queue(**settings)
    service_bus.send(queue, [Message(time_to_live=10 * SECOND, session_id="a" if settings.get("requires_session") else None)])
    step(200 * SECOND)
    sweeps.expire_messages(pause=lambda _: None)
    return queue, reads.counts(queue).active


@pytest.mark.parametrize("sessions", [False, True])
def test_documented_behaviour_expires_messages_only_with_an_active_receiver(make_queue, step, documented, sessions):
    """SB-902, also for sessions."""
    queue, active = expire(make_queue, step, requires_session=sessions)
    assert active == 1
    if sessions:
        with pytest.raises(NoSessionAvailable):
            service_bus.accept_session(queue)
    else:
        assert service_bus.receive(queue) == []
    assert reads.counts(queue).active == 0


@pytest.mark.parametrize("sessions", [False, True])
def test_convenient_behaviour_expires_messages_without_a_receiver(make_queue, step, sessions):
    assert expire(make_queue, step, requires_session=sessions)[1] == 0


def test_a_setting_of_the_entity_overrides_the_behaviour(make_queue, step, documented):
    assert expire(make_queue, step, expiry_mode=ExpiryMode.EAGER)[1] == 0
    namespaces.update_namespace(documented, behaviour=CONVENIENT)
    assert expire(make_queue, step, expiry_mode=ExpiryMode.ON_ACTIVITY)[1] == 1


@pytest.mark.parametrize(
    ("behaviour", "own", "shown"),
    [(CONVENIENT, None, True), (CONVENIENT, False, False), (DOCUMENTED, None, False), (DOCUMENTED, True, True)],
)
def test_a_peek_shows_the_expiry_by_the_default_only_if_convenient(make_queue, namespace, behaviour, own, shown):
    """SB-903, unless the queue has a setting of its own; a receive always shows it."""
    namespaces.update_namespace(namespace, behaviour=behaviour)
    queue = make_queue(default_message_time_to_live=60 * SECOND, peek_shows_default_expiry=own)
    service_bus.send(queue, [Message(time_to_live=10 * SECOND), Message()])
    with_its_own, by_default = service_bus.peek(queue, max_count=2)
    assert with_its_own.expires_at is not None and (by_default.expires_at is not None) == shown
    assert all(message.expires_at for message in service_bus.receive(queue, 2))
    assert reads.message(queue, 2).row.expires_at is not None, "the explorer shows it, marked as computed"


def test_a_peek_of_a_session_shows_the_expiry_by_the_default_only_if_convenient(make_queue, documented):
    queue = make_queue(default_message_time_to_live=60 * SECOND, requires_session=True)
    service_bus.send(queue, [Message(session_id="a")])
    assert service_bus.peek(queue, session_id="a")[0].expires_at is None
    entities.update_queue(queue, peek_shows_default_expiry=True)
    assert service_bus.peek(queue, session_id="a")[0].expires_at is not None


def test_the_preview_says_what_a_peek_will_return(make_queue, documented):
    queue = make_queue()
    [note] = preview.preview(queue, peek_shows_default_expiry=True).notes
    assert note == "A peek returns the expiry of every message that expires (SB-903)."
    entities.update_queue(queue, peek_shows_default_expiry=True)
    for own in (False, None):
        [note] = preview.preview(queue, peek_shows_default_expiry=own).notes
        assert note == "A peek returns the expiry only of a message with a time-to-live of its own (SB-903)."


@pytest.mark.parametrize(
    ("behaviour", "own", "kept"),
    [(CONVENIENT, None, True), (CONVENIENT, True, False), (DOCUMENTED, None, False), (DOCUMENTED, False, True)],
)
def test_with_documented_behaviour_a_change_of_settings_ends_locks(make_queue, namespace, behaviour, own, kept):
    """SB-907, and the preview of the change says so."""
    namespaces.update_namespace(namespace, behaviour=behaviour)
    queue = make_queue(drops_locks_on_change=own)
    service_bus.send(queue, [Message()])
    [message] = service_bus.receive(queue)
    assert bool(preview.preview(queue, lock_duration=30 * SECOND).effects) != kept
    entities.update_queue(queue, lock_duration=30 * SECOND)
    assert (service_bus.complete(queue, [message.lock_token]).lost == ()) == kept


def test_the_effective_settings_name_the_namespace_as_their_source(make_queue, documented):
    queue = make_queue()
    settings = entities.effective(queue)
    assert settings["expiry_mode"] == (ExpiryMode.ON_ACTIVITY, "namespace") and settings["drops_locks_on_change"] == (
        True,
        "namespace",
    )
    assert settings["peek_shows_default_expiry"] == (False, "namespace")
    entities.update_queue(queue, expiry_mode="eager", drops_locks_on_change=False, peek_shows_default_expiry=True)
    settings = entities.effective(queue)
    assert settings["peek_shows_default_expiry"] == (True, "entity")
    assert settings["expiry_mode"] == (ExpiryMode.EAGER, "entity") and settings["drops_locks_on_change"] == (False, "entity")
    namespaces.update_namespace(documented, behaviour="convenient")
    assert entities.update_queue(queue, expiry_mode=None).settings.expiry_mode is None
    assert entities.effective(queue)["expiry_mode"] == (ExpiryMode.EAGER, "default")


def test_the_behaviour_can_be_set_only_for_service_bus(account, vhost):
    for name in (account, vhost):
        with pytest.raises(InvalidArgument, match="only Service Bus"):
            namespaces.update_namespace(name, behaviour=DOCUMENTED)
    with pytest.raises(InvalidArgument, match="must be one of convenient, documented"):
        namespaces.create_namespace("other", Family.SERVICE_BUS, behaviour="strict")
    queue_storage.create_queue(EntityAddress(account, "jobs"))
    assert namespaces.get_namespace(account).family is Family.QUEUE_STORAGE


def test_an_export_keeps_the_behaviour_and_the_maximum_size(documented, make_queue):
    make_queue(), make_queue(expiry_mode="eager", peek_shows_default_expiry=True)
    namespaces.update_namespace(documented, max_size_in_megabytes=3)
    lines: list[str] = []
    export([documented], lines.append)
    copy = f"c-{uuid.uuid4().hex[:8]}"
    import_(lines, name=copy)
    assert (namespaces.get_namespace(copy).behaviour, namespaces.get_namespace(copy).max_size_in_megabytes) == (DOCUMENTED, 3)
    copied = [queue.settings for queue in entities.list_queues(copy)]
    assert [settings.expiry_mode for settings in copied] == [None, ExpiryMode.EAGER]
    assert [settings.peek_shows_default_expiry for settings in copied] == [None, True]


def test_the_emulators_configuration_can_set_the_behaviour(broker_database):
    def applied(more):
        plan = read('{"UserConfig": {"Namespaces": [{"Name": "emulated"' + more + "}]}}")
        return plan.problems or [(change.did, change.settings) for change in emulator_config.apply_plan(plan)]

    assert applied(', "Behaviour": "documented"') == [("created", {})]
    assert applied("") == [("unchanged", {})]
    assert namespaces.get_namespace("emulated").behaviour is DOCUMENTED, "not given, so it is kept"
    assert applied(', "behaviour": "Convenient"') == [("updated", {"behaviour": (DOCUMENTED, CONVENIENT)})]
    [problem] = applied(', "Behaviour": "strict"')
    assert str(problem) == 'UserConfig.Namespaces[0].Behaviour: "strict" must be one of convenient, documented'
