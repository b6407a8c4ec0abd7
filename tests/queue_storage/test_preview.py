"""What a change of a queue's options would do, and does, to the messages there are."""

from datetime import timedelta

import pytest

from broker_core import queue_storage
from broker_core.common.errors import InvalidArgument, NotAuthorized, PreviewOutdated
from broker_core.common.types import Actor, HistoryLevel, Right
from broker_core.queue_storage import change_options, get, preview_options, put, update
from broker_core.queue_storage.preview import OptionsEffect
from broker_core.queue_storage.rules.errors import QueueNotFound
from broker_core.queue_storage.rules.sas import AccessPolicy

from .test_poison import fail, poison_of
from .test_time import sweep

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def effect_counts(previewed):
    return {effect.what: effect.count for effect in previewed.effects}


def texts(address):
    return [message.text for message in queue_storage.peek(address, 32)]


@pytest.fixture
def jobs(make_queue, step):
    """A queue with a message got three times, one got once, one that somebody holds for the third time, and one never got."""
    address = make_queue()
    put(address, "thrice")
    put(address, "held")
    fail(address, step, 2)
    put(address, "once")
    messages = {message.text: message for message in get(address, 3, visibility_timeout=SECOND)}
    update(address, messages["held"].message_id, messages["held"].pop_receipt, visibility_timeout=MINUTE)
    step(SECOND)
    put(address, "never")
    return address


def test_a_lower_maximum_moves_messages_dequeued_as_often(jobs, step):
    before = preview_options(jobs, max_dequeue_count=3)
    assert effect_counts(before) == {OptionsEffect.POISONED: 1, OptionsEffect.POISONED_LATER: 1}
    assert before.notes == ("Messages dequeued 3 times are moved to 'queue-1-poison' (QS-105).",)
    assert [(effect.samples, effect.reason) for effect in before.effects] == [((1,), "queue-1-poison"), ((2,), "queue-1-poison")]
    assert queue_storage.get_queue(jobs).max_dequeue_count is None
    assert effect_counts(change_options(jobs, max_dequeue_count=3)) == effect_counts(before)
    assert queue_storage.get_queue(jobs).max_dequeue_count == 3
    sweep(jobs)
    assert (texts(jobs), texts(poison_of(jobs))) == (["once", "never"], ["thrice"])
    step(MINUTE)
    sweep(jobs)
    assert (texts(jobs), sorted(texts(poison_of(jobs)))) == (["once", "never"], ["held", "thrice"])


def test_a_maximum_of_one_leaves_messages_that_were_never_dequeued(jobs):
    assert effect_counts(preview_options(jobs, max_dequeue_count=1)) == {
        OptionsEffect.POISONED: 2,
        OptionsEffect.POISONED_LATER: 1,
    }
    assert effect_counts(preview_options(jobs, max_dequeue_count=4)) == {}


def test_a_higher_maximum_makes_spent_messages_available_again(jobs):
    queue_storage.update_queue(jobs, max_dequeue_count=3)  # before anybody meets them
    assert effect_counts(preview_options(jobs, max_dequeue_count=4)) == {OptionsEffect.DELIVERED_AGAIN: 2}
    lifted = preview_options(jobs, max_dequeue_count=None)
    assert effect_counts(lifted) == {OptionsEffect.DELIVERED_AGAIN: 2} and lifted.notes == (
        "The number of dequeues is unlimited.",
    )


def test_another_poison_queue_redirects_spent_messages(jobs):
    queue_storage.update_queue(jobs, max_dequeue_count=3)
    redirected = preview_options(jobs, poison_queue="elsewhere")
    assert effect_counts(redirected) == {OptionsEffect.REDIRECTED: 2} and {effect.reason for effect in redirected.effects} == {
        "elsewhere"
    }
    assert effect_counts(preview_options(jobs, poison_queue="queue-1-poison")) == {}  # the one it had


def test_messages_that_expire_before_they_are_visible_are_never_moved(make_queue, step):
    address = make_queue()
    put(address, "short", time_to_live=10 * SECOND)
    get(address, visibility_timeout=MINUTE)
    assert effect_counts(preview_options(address, max_dequeue_count=1)) == {}


def test_a_shorter_grace_removes_messages_that_expired_earlier(make_queue, step):
    address = make_queue(expiry_grace=10 * MINUTE)
    put(address, "old", time_to_live=SECOND)
    step(5 * MINUTE)
    put(address, "new", time_to_live=SECOND)
    step(2 * MINUTE)
    shorter = preview_options(address, expiry_grace=3 * MINUTE)
    assert effect_counts(shorter) == {OptionsEffect.REMOVED: 1} and [effect.samples for effect in shorter.effects] == [(1,)]
    assert shorter.notes == ("Expired messages, which clients never receive, are shown for 3 min (QS-923).",)
    assert effect_counts(preview_options(address, expiry_grace=20 * MINUTE)) == {}
    assert effect_counts(change_options(address, expiry_grace=timedelta(0))) == {OptionsEffect.REMOVED: 2}
    assert effect_counts(preview_options(address, expiry_grace=10 * MINUTE)) == {OptionsEffect.VISIBLE_LONGER: 2}


def test_strict_visibility_affects_no_message_and_says_so(jobs):
    strict = preview_options(jobs, strict_visibility=True)
    assert effect_counts(strict) == {} and strict.notes[0].startswith(
        "Updates that hide a message until after it expires are refused"
    )
    policies = (AccessPolicy("a", permission="r"), AccessPolicy("b"), AccessPolicy("c"))
    queue_storage.update_queue(jobs, access_policies=policies)
    assert preview_options(jobs, access_policies=(AccessPolicy("a", permission="p"), AccessPolicy("c"))).notes == (
        "Signatures with the access policy 'a' follow the changed policy at once (QS-095).",
        "Signatures with the access policy 'b' are refused from now on (QS-095).",
    )
    assert "nothing changes" in preview_options(jobs).notes[0]
    assert preview_options(jobs, history_level=1).notes == ()


def test_a_preview_refuses_invalid_changes(jobs):
    for look in (preview_options, change_options):
        with pytest.raises(InvalidArgument, match="max_dequeue_count"):
            look(jobs, max_dequeue_count=0)
        with pytest.raises(InvalidArgument, match="history_level"):
            look(jobs, history_level=9)
        with pytest.raises(QueueNotFound):
            look(poison_of(jobs), max_dequeue_count=1)
    assert queue_storage.get_queue(jobs).max_dequeue_count is None


def test_numbers_are_lower_bounds_beyond_the_scan_limit(jobs, monkeypatch):
    monkeypatch.setattr("broker_core.queue_storage.preview.SCAN_CAP", 1)
    capped = preview_options(jobs, max_dequeue_count=1)
    assert capped.capped and capped.scanned == 1
    assert [(effect.count, effect.at_least) for effect in capped.effects] == [(1, True)]


def test_a_previewed_change_is_applied_while_it_is_current(jobs):
    previewed = preview_options(jobs, max_dequeue_count=3, history_level=1)
    change_options(jobs, max_dequeue_count=3, history_level=1, token=previewed.token)
    queue = queue_storage.get_queue(jobs)
    assert (queue.max_dequeue_count, queue.history_level) == (3, HistoryLevel.LIFECYCLE)


def other_settings(jobs, step):
    queue_storage.update_queue(jobs, metadata={"team": "other"})


def other_history(jobs, step):
    queue_storage.update_queue(jobs, history_level=0)


def other_messages(jobs, step):
    fail(jobs, step, 2)


def other_hold(jobs, step):
    step(MINUTE)


MOVES = [
    (other_settings, "settings have changed"),
    (other_history, "settings have changed"),
    (other_messages, "the effect would now be"),
    (other_hold, "the effect would now be: 2 messages of .*: moved to the poison queue"),
]


@pytest.mark.parametrize(("move", "why"), MOVES)
def test_an_outdated_preview_is_refused_with_the_reason(jobs, step, move, why):
    previewed = preview_options(jobs, max_dequeue_count=3)
    move(jobs, step)
    with pytest.raises(PreviewOutdated, match=why):
        change_options(jobs, max_dequeue_count=3, token=previewed.token)
    assert queue_storage.get_queue(jobs).max_dequeue_count is None
    change_options(jobs, max_dequeue_count=3, token=preview_options(jobs, max_dequeue_count=3).token)


def test_a_preview_is_outdated_by_the_same_number_of_other_messages(make_queue, step):
    address = make_queue()
    put(address, "first")
    fail(address, step, 1)
    previewed = preview_options(address, max_dequeue_count=1)
    queue_storage.clear(address)
    put(address, "second")
    fail(address, step, 1)
    assert effect_counts(preview_options(address, max_dequeue_count=1)) == effect_counts(previewed) == {OptionsEffect.POISONED: 1}
    with pytest.raises(PreviewOutdated):
        change_options(address, max_dequeue_count=1, token=previewed.token)


def test_a_different_change_with_the_same_effects_requires_its_own_preview(jobs):
    tokens = {preview_options(jobs, metadata={"team": name}).token for name in ("a", "b", "a")}
    assert len(tokens) == 2


def test_changing_options_requires_the_right_to_manage(jobs):
    with pytest.raises(NotAuthorized):
        change_options(jobs, max_dequeue_count=3, actor=Actor("user", "eve", Right.ALL & ~Right.MANAGE))
