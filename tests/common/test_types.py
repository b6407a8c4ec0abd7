"""Addresses, actors, reports: what the broker's values say of themselves."""

import json
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest

from broker_core.common.errors import InvalidArgument, LockLost, NotAuthorized, SessionLockLost
from broker_core.common.lock_tokens import SettleReport, is_one_token, unique_tokens
from broker_core.common.types import Actor, EntityAddress, EntityStatus, EventKind, Right, SubQueue
from broker_core.service_bus.rules.messages import prepare
from broker_core.service_bus.rules.values import Message, StoredMessage

ONE, TWO = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    ("status", "may_send", "may_receive"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_status_determines_the_allowed_operations(status, may_send, may_receive):
    """SB-230 to SB-233."""
    assert (status.may_send, status.may_receive) == (may_send, may_receive)


def test_terminal_events_are_pinned():
    assert {kind.name for kind in EventKind if not kind.is_terminal} == {
        "SENT", "SCHEDULED", "RECEIVED", "RENEWED", "ABANDONED", "RELEASED", "DEFERRED", "DEAD_LETTERED", "LOCK_LOST",
        "DUPLICATE_DROPPED", "SETTLE_REFUSED", "RESTORED", "EDITED",
    }  # fmt: skip


def test_an_actor_needs_every_right_named():
    actor = Actor("key", "ann", Right.SEND | Right.LISTEN)
    actor.require(Right.SEND | Right.LISTEN, "q")
    for right in (Right.MANAGE, Right.SEND | Right.MANAGE):
        with pytest.raises(NotAuthorized, match="key:ann does not have the right"):
            actor.require(right, "q")


def test_a_holder_is_shown_by_its_label():
    assert [Actor("user", "ann", holder=holder).holder_label for holder in ("", "Ann")] == ["user:ann", "Ann"]
    assert (str(Actor.local("job")), Actor.local("job").rights) == ("process:job", Right.ALL)


@pytest.mark.parametrize("subqueue", [True, 4, "main" * 30])
def test_an_unknown_sub_queue_is_refused(subqueue):
    wrong: Any = subqueue
    with pytest.raises(InvalidArgument) as refused:
        EntityAddress("ns", "q", wrong)
    assert refused.value.problem == f"must be one of SubQueue, not {repr(subqueue)[:80]}"


def test_wrong_values_are_shown_up_to_80_characters():
    long: Any = ["x" * 100]
    for make in (lambda: Actor("user", long), lambda: Actor("user", "ann", long), lambda: EntityAddress(long, "q")):
        with pytest.raises(InvalidArgument) as refused:
            make()
        assert refused.value.problem.endswith("not ['" + "x" * 78)


@pytest.mark.parametrize(
    ("subqueue", "text"),
    [
        (SubQueue.MAIN, "a%2Fb%25/t/Subscriptions/s"),
        (SubQueue.DEAD_LETTER, "a%2Fb%25/t/Subscriptions/s/$DeadLetterQueue"),
        (SubQueue.TRANSFER_DEAD_LETTER, "a%2Fb%25/t/Subscriptions/s/$Transfer/$DeadLetterQueue"),
        (SubQueue.TRANSFER, "a%2Fb%25/t/Subscriptions/s/$Transfer"),
    ],
)
def test_an_address_has_its_parts(subqueue, text):
    address = EntityAddress("a/b%", "t", SubQueue.MAIN).subscription("s")
    address = EntityAddress(address.namespace, address.path, subqueue)
    assert str(address) == text
    assert (address.topic, address.name) == (EntityAddress("a/b%", "t"), "s")
    assert (address.main.subqueue, address.dead_letter.subqueue) == (SubQueue.MAIN, SubQueue.DEAD_LETTER)
    assert address.transfer_dead_letter.subqueue is SubQueue.TRANSFER_DEAD_LETTER
    if subqueue is not SubQueue.TRANSFER:
        assert EntityAddress.parse(text) == address


@pytest.mark.parametrize("path", ["q", "a/b", "Subscriptions", "/subscriptions/x"])
def test_an_address_that_is_not_a_subscription_has_no_topic(path):
    assert (EntityAddress("ns", path).topic, EntityAddress("ns", path).name) == (None, path)


def test_a_topic_can_have_a_name_of_one_letter():
    subscription = EntityAddress("ns", "t/SUBSCRIPTIONS/a")
    assert (subscription.topic.path, subscription.name) == ("t", "a")


def test_a_report_raises_the_error_of_the_first_lost_session_or_of_all_tokens():
    assert SettleReport(((ONE, 1),), ()).require_all().lost == ()
    with pytest.raises(LockLost) as lost:
        SettleReport((), (ONE, TWO), lost_sessions=((UUID(int=3), "q", "s"),)).require_all()
    assert lost.value.tokens == (ONE, TWO)
    with pytest.raises(SessionLockLost, match="'s' of 'q'"):
        SettleReport((), (ONE,), lost_sessions=((ONE, "q", "s"),)).require_all()


def test_tokens_are_deduplicated_in_order():
    mixed: Any = [TWO, str(ONE), TWO, ONE]
    assert unique_tokens(mixed) == [TWO, ONE]
    assert unique_tokens(ONE) == unique_tokens(str(ONE)) == [ONE]
    assert [is_one_token(value) for value in (ONE, str(ONE), [ONE], ())] == [True, True, False, False]
    wrong: list[Any] = ["x", [5], None]
    for value in wrong:
        with pytest.raises(InvalidArgument, match="must be a UUID"):
            unique_tokens(value)


@pytest.mark.parametrize("given", ["c", 5, UUID(int=5), b"c"])
def test_a_correlation_id_is_returned_with_its_type(given):
    prepared = prepare(Message(correlation_id=given))
    unset = {field.name: None for field in fields(StoredMessage)}
    stored = {**unset, "broker_properties": json.loads(prepared.properties), "encoded": prepared.encoded}
    stored_message = StoredMessage(**stored)
    assert stored_message.correlation_id == given and isinstance(stored_message.correlation_id, type(given))
    assert (stored_message.amqp is None) == isinstance(given, str)
