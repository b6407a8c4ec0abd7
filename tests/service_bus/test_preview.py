"""What a change would do, told before it is made: what is told must be what then happens, and a moved world is refused."""

import uuid
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import namespaces, reads, service_bus, sweeps
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAuthorized, PreviewOutdated
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family, MessageState, Right
from broker_core.service_bus import entities, preview
from broker_core.service_bus.preview import SettingsEffect
from broker_core.service_bus.rules.entity_settings import values_of
from broker_core.service_bus.rules.values import Message
from tests.broker_state import ledger_agrees, now

from .test_explain import play, steps_of_a_story

SECOND = timedelta(seconds=1)


def apply(found):
    """Change what the preview changes, if its effect is still the same."""
    before, after = values_of(found.before), values_of(found.after)
    changes = {name: value for name, value in after.items() if value != before[name]}
    return preview.change(found.address, token=found.token, **changes)


def effects_of(found):
    return {(effect.what, effect.reason): (effect.count, effect.samples) for effect in found.effects}


def test_a_shorter_default_expires_messages_without_their_own_ttl(make_queue, step):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    service_bus.send(queue, [Message(b"x"), Message(b"x", time_to_live=3600 * SECOND)])
    service_bus.receive(queue, 1)
    step(90 * SECOND)
    service_bus.send(queue, [Message(b"young")])
    previewed = preview.preview(queue, default_message_time_to_live=60 * SECOND)
    assert effects_of(previewed) == {
        (SettingsEffect.EXPIRED, None): (1, (1,)),
        (SettingsEffect.DEAD_LETTERED, "TTLExpiredException"): (1, (1,)),
    }
    assert (previewed.before.default_message_time_to_live, previewed.after.default_message_time_to_live) == (None, 60 * SECOND)
    assert (previewed.at, previewed.scanned, previewed.capped) == (now(queue), 3, False)
    assert entities.get_queue(queue).settings == previewed.before
    apply(previewed)
    assert entities.get_queue(queue).settings == previewed.after
    with pytest.raises(PreviewOutdated, match="settings have changed"):
        apply(previewed)
    sweeps.expire_messages(pause=lambda _: None)
    assert reads.counts(queue).dead_letter == 1


def test_a_longer_default_revives_expired_messages_not_yet_removed(make_queue, step):
    queue = make_queue(default_message_time_to_live=60 * SECOND)
    service_bus.send(queue, [Message(b"x")])
    step(61 * SECOND)
    previewed = preview.preview(queue, default_message_time_to_live=None)
    assert effects_of(previewed) == {(SettingsEffect.DELIVERABLE, None): (1, (1,))}
    apply(previewed)
    assert len(service_bus.receive(queue)) == 1


def test_a_lower_delivery_limit_dead_letters_messages_that_reached_it(make_queue):
    queue = make_queue(max_delivery_count=5)
    service_bus.send(queue, [Message(b"x") for _ in range(8)])
    for _ in range(2):
        service_bus.abandon(queue, [m.lock_token for m in service_bus.receive(queue, 7)])
    previewed = preview.preview(queue, max_delivery_count=2)
    assert effects_of(previewed) == {(SettingsEffect.DEAD_LETTERED, "MaxDeliveryCountExceeded"): (7, (1, 2, 3, 4, 5))}
    apply(previewed)
    assert [m.sequence_number for m in service_bus.receive(queue, 10)] == [8]
    counts = reads.counts(queue)
    assert (counts.active, counts.dead_letter) == (1, 7)
    assert ledger_agrees(queue)


def test_disabling_an_entity_makes_messages_undeliverable_and_enabling_deliverable(queue):
    service_bus.send(queue, [Message(b"x"), Message(b"x")])
    previewed = preview.preview(queue, status="Disabled")
    assert effects_of(previewed) == {(SettingsEffect.UNDELIVERABLE, None): (2, (1, 2))}
    assert previewed.notes == ("Sends are refused, receives and settlements refused.",)
    apply(previewed)
    assert effects_of(preview.preview(queue, status="Active")) == {(SettingsEffect.DELIVERABLE, None): (2, (1, 2))}
    assert preview.preview(queue, status="SendDisabled").count(SettingsEffect.DELIVERABLE) == 2


def test_a_forwarding_entity_makes_messages_unavailable_to_receivers(make_queue):
    source, target = make_queue(), make_queue()
    service_bus.send(source, [Message(b"x")])
    assert effects_of(preview.preview(source, forward_to=target.path)) == {(SettingsEffect.FORWARDED, None): (1, (1,))}
    assert effects_of(preview.preview(source, forward_dead_lettered_messages_to=target.path)) == {}
    assert effects_of(preview.preview(source, forward_to=target.path, status="Disabled")) == {
        (SettingsEffect.UNDELIVERABLE, None): (1, (1,))
    }


def test_messages_of_sessions_are_forwarded_when_that_is_set(make_queue):
    """SB-175; also to the queue itself (SB-176)."""
    source, target = make_queue(requires_session=True), make_queue()
    service_bus.send(source, [Message(b"x", session_id="a"), Message(b"y", session_id="b")])
    service_bus.accept_session(source, "a", max_count=1)
    for path in (source.path, target.path):
        assert effects_of(preview.preview(source, forward_to=path)) == {(SettingsEffect.FORWARDED, None): (1, (2,))}


def test_a_preview_counts_locks_dropped_on_change(make_queue):
    queue = make_queue(max_delivery_count=1)
    service_bus.send(queue, [Message(b"x"), Message(b"y")])
    service_bus.receive(queue)
    previewed = preview.preview(queue, drops_locks_on_change=True)
    dead = (SettingsEffect.DEAD_LETTERED, "MaxDeliveryCountExceeded")
    assert effects_of(previewed) == {(SettingsEffect.UNLOCKED, None): (1, (1,)), dead: (1, (1,))}


def test_an_expired_message_of_a_session_expires_the_others(make_queue, step):
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(b"x", session_id="a"), Message(b"x", session_id="b")])
    step(90 * SECOND)
    service_bus.send(queue, [Message(b"x", session_id="a")])
    assert effects_of(preview.preview(queue, default_message_time_to_live=60 * SECOND))[SettingsEffect.DROPPED, None] == (
        3,
        (1, 2, 3),
    )
    alone = preview.preview(queue, default_message_time_to_live=60 * SECOND, expires_whole_sessions=False)
    assert effects_of(alone)[SettingsEffect.DROPPED, None] == (2, (1, 2))


def test_a_change_without_effect_says_so(queue):
    previewed = preview.preview(queue, lock_duration=60 * SECOND)
    assert (previewed.effects, previewed.notes) == ((), ("The settings are the same; nothing changes.",))
    assert preview.preview(queue, lock_duration=30 * SECOND).notes == (
        "Existing locks keep their duration; new and renewed locks use the new one (SB-907).",
    )


def test_a_topics_default_applies_to_its_subscriptions(namespace, step):
    topic = EntityAddress(namespace, "news")
    entities.create_topic(topic)
    entities.create_subscription(topic.subscription("all"))
    entities.create_subscription(topic.subscription("short"), default_message_time_to_live=10 * SECOND)
    service_bus.send(topic, [Message(b"x")])
    step(30 * SECOND)
    previewed = preview.preview(topic, default_message_time_to_live=20 * SECOND)
    assert [(e.what, e.address.path, e.count) for e in previewed.effects] == [
        (SettingsEffect.EXPIRED, "news/Subscriptions/all", 1),
        (SettingsEffect.DROPPED, "news/Subscriptions/all", 1),
    ]
    gone = preview.preview_delete(topic)
    assert (gone.count(SettingsEffect.DELETED), gone.notes) == (2, ("The topic's subscriptions are deleted with it: 2.",))


@pytest.mark.parametrize("move", ["settings", "messages"])
def test_an_outdated_preview_is_refused_and_nothing_changes(make_queue, step, move):
    queue = make_queue()
    service_bus.send(queue, [Message(b"x"), Message(b"x")])
    step(90 * SECOND)
    previewed = preview.preview(queue, default_message_time_to_live=60 * SECOND)
    if move == "settings":
        entities.update_queue(queue, max_delivery_count=3)
    else:
        service_bus.complete(queue, [m.lock_token for m in service_bus.receive(queue)])
    with pytest.raises(PreviewOutdated, match="settings have changed" if move == "settings" else "1 message of .*: expired"):
        apply(previewed)
    assert entities.get_queue(queue).settings.default_message_time_to_live is None


def test_a_preview_is_outdated_by_the_same_number_of_other_messages(make_queue, step):
    queue = make_queue()
    service_bus.send(queue, [Message(b"x")])
    previewed = preview.preview(queue, status="Disabled")
    service_bus.complete(queue, [m.lock_token for m in service_bus.receive(queue)])
    service_bus.send(queue, [Message(b"x")])
    with pytest.raises(PreviewOutdated):
        apply(previewed)


def test_counting_stops_at_the_cap_and_is_marked_as_capped(queue, monkeypatch):
    monkeypatch.setattr(preview, "SCAN_CAP", 4)
    service_bus.send(queue, [Message(b"x") for _ in range(9)])
    previewed = preview.preview(queue, status="Disabled")
    assert (previewed.capped, previewed.scanned, previewed.effects[0].count) == (True, 4, 4)
    assert str(previewed.effects[0]) == f"at least 4 messages of {queue}: undeliverable"


def test_the_preview_of_a_deletion_counts_the_messages(make_queue):
    queue = make_queue()
    service_bus.send(queue, [Message(b"x") for _ in range(3)])
    completed, _ = service_bus.receive(queue, 2)
    service_bus.dead_letter(queue, [completed.lock_token])
    previewed = preview.preview_delete(queue)
    assert [(e.address, e.count) for e in previewed.effects] == [(queue, 2), (queue.dead_letter, 1)]
    assert previewed.notes == ("1 of the messages are locked; their receivers lose the lock (SB-076).",)


def test_a_purge_can_be_limited_to_a_session(make_queue, step):
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(b"x", session_id=session) for session in ("a", "b", "a", "c")])
    step(SECOND)
    assert service_bus.purge(queue, session_id="a") == 2
    assert service_bus.purge(queue, session_id="nobody's") == 0
    assert service_bus.purge(queue, session_id="c", states=(MessageState.ACTIVE, MessageState.DEFERRED)) == 1
    assert [message.session_id for message in service_bus.peek(queue, max_count=5)] == ["b"]


def test_a_preview_refuses_invalid_changes(queue):
    with pytest.raises(InvalidArgument, match="max_delivery_count"):
        preview.preview(queue, max_delivery_count=0)
    with pytest.raises(InvalidArgument, match="forward_to"):
        preview.preview(queue, forward_to="nowhere")
    with pytest.raises(InvalidArgument, match="sub-queue"):
        preview.preview(queue.dead_letter, status="Disabled")
    with pytest.raises(EntityNotFound):
        preview.preview(EntityAddress(queue.namespace, "nowhere"), status="Disabled")
    with pytest.raises(NotAuthorized):
        preview.preview(queue, status="Disabled", actor=Actor("user", "eve", Right.ALL & ~Right.MANAGE))
    with pytest.raises(NotAuthorized):
        preview.change(queue, status="Disabled", actor=Actor("user", "eve", Right.ALL & ~Right.MANAGE))


@settings(max_examples=25)
@given(
    story=steps_of_a_story,
    default=st.sampled_from([None, 30]),
    dead_lettering=st.booleans(),
    changes=st.fixed_dictionaries(
        {},
        optional={
            "default_message_time_to_live": st.sampled_from([None, 4 * SECOND, 11 * SECOND, 3600 * SECOND]),
            "max_delivery_count": st.integers(1, 4),
            "dead_lettering_on_message_expiration": st.booleans(),
            "status": st.sampled_from(EntityStatus),
            "drops_locks_on_change": st.just(True),
        },
    ),
)
def test_a_preview_predicts_the_effects_of_the_change(broker_database, story, default, dead_lettering, changes):
    namespace = f"p-{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(namespace, Family.SERVICE_BUS)
    namespaces.pause_clock(namespace)
    queue = EntityAddress(namespace, "q")
    entities.create_queue(
        queue, lock_duration=20 * SECOND, max_delivery_count=3, default_message_time_to_live=default and default * SECOND,
        dead_lettering_on_message_expiration=dead_lettering,
    )  # fmt: skip
    play(queue, story)
    tidy()
    before, previewed = lists(queue), preview.preview(queue, **changes)
    apply(previewed)
    tidy()
    after = lists(queue)
    assert set(after["dead"]) - set(before["dead"]) == samples(previewed, SettingsEffect.DEAD_LETTERED)
    assert gone(before, after) == samples(previewed, SettingsEffect.DROPPED)
    assert set(before["locked"]) - set(after["locked"]) == samples(previewed, SettingsEffect.UNLOCKED)
    assert ledger_agrees(queue)


def tidy():
    sweeps.end_locks()
    sweeps.expire_messages(pause=lambda _: None)


def lists(queue):
    tabs = {"active": reads.Tab.ACTIVE, "deferred": reads.Tab.DEFERRED, "dead": reads.Tab.DEAD_LETTER}
    rows = {name: reads.list_messages(queue, tab).rows for name, tab in tabs.items()}
    numbers = {name: [row.sequence_number for row in of] for name, of in rows.items()}
    held = [r.sequence_number for of in rows.values() for r in of if r.locked_until is not None and r.locked_until > r.read_at]
    return numbers | {"locked": held}


def gone(before, after):
    return {n for name in ("active", "deferred", "dead") for n in before[name]} - {
        n for name in ("active", "deferred", "dead") for n in after[name]
    }


def samples(found, what):
    assert all(effect.count == len(effect.samples) or effect.count > 5 for effect in found.effects)
    return {number for effect in found.effects if effect.what is what for number in effect.samples}
