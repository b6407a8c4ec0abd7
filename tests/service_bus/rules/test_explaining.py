"""The sentences of an explanation, as tables over the pure rules."""

from datetime import timedelta

import pytest

from broker_core.common.explanations import QueuePosition
from broker_core.common.types import EntityKind, EntityStatus, ExpiryMode
from broker_core.service_bus.rules.explaining import Code, EntityFacts, SessionFacts, explain
from tests.common.test_display_state import AFTER, BEFORE, DEAD, DEFERRED, NOON, SCHEDULED, Facts

QUEUE = EntityFacts()


def codes(facts, entity=QUEUE, **options):
    return [reason.code for reason in explain(facts, entity, NOON, **options)]


def texts(facts, code, entity=QUEUE, **options):
    [match] = [reason for reason in explain(facts, entity, NOON, **options) if reason.code == code]
    return match.text, match.change


@pytest.mark.parametrize(
    ("facts", "entity", "change"),
    [
        (Facts(expires_at=BEFORE), QUEUE, "At the next receive or sweep it is removed. It cannot become available again."),
        (
            Facts(expires_at=BEFORE, expires_by_default=True),
            EntityFacts(dead_lettering_on_message_expiration=True),
            "At the next receive or sweep it moves to the dead-letter queue. "
            "A longer DefaultMessageTimeToLive makes it available again.",
        ),
        (
            Facts(expires_at=BEFORE),
            EntityFacts(expiry_mode=ExpiryMode.ON_ACTIVITY),
            "At the next receive it is removed. It cannot become available again.",
        ),
        (Facts(expires_at=BEFORE, state=DEFERRED), QUEUE, "On the next receive by its number it is removed."),
        (Facts(expires_at=BEFORE, locked_until=AFTER), QUEUE, "If it is not completed, it is removed when the lock ends."),
    ],
)
def test_an_explanation_says_what_happens_to_an_expired_message(facts, entity, change):
    assert texts(facts, Code.EXPIRED, entity)[1] == change


@pytest.mark.parametrize(
    ("facts", "then"),
    [
        (Facts(delivery_count=3), "the next receive or sweep moves it to the dead-letter queue."),
        (Facts(delivery_count=3, state=DEFERRED), "the next receive by its number moves it to the dead-letter queue."),
        (Facts(delivery_count=3, locked_until=AFTER), "unless it is settled, it moves to the dead-letter queue."),
    ],
)
def test_an_explanation_says_what_happens_to_a_message_with_failed_deliveries(facts, then):
    assert texts(facts, Code.SPENT)[0] == f"All 3 deliveries failed: {then}"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(), [Code.NEXT]),
        (Facts(delivery_count=2), [Code.LAST_DELIVERY, Code.NEXT]),
        (Facts(delivery_count=1, locked_until=BEFORE), [Code.LOCK_ENDED, Code.LAST_DELIVERY, Code.NEXT]),
        (Facts(delivery_count=2, locked_until=AFTER), [Code.LOCKED, Code.LAST_DELIVERY]),
        (Facts(delivery_count=2, subqueue=DEAD), [Code.DEAD_LETTER, Code.NEXT]),
        (Facts(delivery_count=2, state=SCHEDULED, scheduled_enqueue_at=AFTER), [Code.SCHEDULED]),
        (Facts(state=SCHEDULED, scheduled_enqueue_at=NOON), [Code.DUE]),
    ],
)
def test_the_reasons_of_a_message_are_listed(facts, expected):
    assert codes(facts) == expected


@pytest.mark.parametrize(
    ("entity", "facts", "expected"),
    [
        (EntityFacts(status=EntityStatus.DISABLED), Facts(), [Code.STATUS]),
        (EntityFacts(status=EntityStatus.SEND_DISABLED), Facts(), [Code.NEXT]),
        (EntityFacts(EntityKind.TOPIC, EntityStatus.DISABLED), Facts(), [Code.NEXT]),
        (EntityFacts(forward_to="f"), Facts(), [Code.FORWARDED]),
        (EntityFacts(forward_to="f"), Facts(subqueue=DEAD), [Code.DEAD_LETTER, Code.NEXT]),
        (EntityFacts(forward_dead_lettered_messages_to="f"), Facts(subqueue=DEAD), [Code.FORWARDED, Code.DEAD_LETTER]),
        (EntityFacts(forward_dead_lettered_messages_to="f"), Facts(), [Code.NEXT]),
    ],
)
def test_the_reasons_of_an_entity_are_listed(entity, facts, expected):
    assert codes(facts, entity) == expected


@pytest.mark.parametrize(
    ("session", "facts", "expected"),
    [
        (SessionFacts("s"), Facts(), [Code.IN_SESSION, Code.NEXT]),
        (SessionFacts("s", locked_until=AFTER), Facts(), [Code.SESSION_LOCKED, Code.IN_SESSION]),
        (SessionFacts("s", locked_until=NOON), Facts(), [Code.IN_SESSION, Code.NEXT]),
        (SessionFacts("s", expired_number=1, expired_at=BEFORE), Facts(), [Code.SESSION_EXPIRED, Code.IN_SESSION]),
        (SessionFacts("s", expired_number=1, expired_at=BEFORE), Facts(expires_at=BEFORE), [Code.EXPIRED, Code.IN_SESSION]),
        (
            SessionFacts("s", locked_until=AFTER),
            Facts(state=SCHEDULED, scheduled_enqueue_at=AFTER),
            [Code.SCHEDULED, Code.IN_SESSION],
        ),
    ],
)
def test_the_reasons_of_a_session_are_listed(session, facts, expected):
    assert codes(facts, session=session) == expected


@pytest.mark.parametrize(
    ("before", "capped", "text"),
    [
        (0, False, "Next in line."),
        (0, True, "Many messages that cannot be received now are ahead; other messages ahead were not counted."),
        (1, False, "1 message ahead."),
        (1, True, "1 or more messages ahead."),
        (2000, False, "2,000 messages ahead."),
        (2000, True, "2,000 or more messages ahead."),
    ],
)
def test_an_explanation_gives_the_position_in_the_queue(before, capped, text):
    code = Code.BEHIND if before or capped else Code.NEXT
    assert texts(Facts(), code, place=QueuePosition(before, capped))[0] == text


def test_locks_without_a_holder_name_are_explained():
    assert texts(Facts(locked_until=NOON + timedelta(minutes=2)), Code.LOCKED)[0] == "Locked for another 2 min."
    held = SessionFacts("s", locked_until=AFTER)
    assert texts(Facts(), Code.SESSION_LOCKED, session=held)[0].startswith(
        "Its session 's' is locked by a receiver for another 5 s;"
    )
