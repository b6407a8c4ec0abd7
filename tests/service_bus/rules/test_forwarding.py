"""What keeps a message from being forwarded, as a table."""

import pytest

from broker_core.common.types import EntityKind, EntityStatus, SubQueue
from broker_core.service_bus.rules.forwarding import (
    MAX_HOPS,
    Destination,
    Loop,
    forwarding_notes,
    list_of_failures,
    why_not_forward,
)


def a_queue(kind=EntityKind.QUEUE, status=EntityStatus.ACTIVE, requires_session=False, largest=100):
    return Destination("f", kind, status, requires_session, largest)


@pytest.mark.parametrize(
    ("destination", "message", "reason"),
    [
        (a_queue(), {}, None),
        (a_queue(), {"hops": MAX_HOPS - 1}, None),
        (a_queue(), {"hops": MAX_HOPS}, "MaxTransferHopCountExceeded"),
        (None, {}, "MessagingEntityNotFoundException"),
        (a_queue(status=EntityStatus.RECEIVE_DISABLED), {}, None),
        (a_queue(status=EntityStatus.SEND_DISABLED), {}, "MessagingEntityDisabledException"),
        (a_queue(status=EntityStatus.DISABLED), {}, "MessagingEntityDisabledException"),
        (a_queue(EntityKind.TOPIC), {}, None),
        (a_queue(EntityKind.TOPIC, EntityStatus.SEND_DISABLED), {}, "MessagingEntityDisabledException"),
        (a_queue(requires_session=True), {}, "Session ID is null."),
        (a_queue(requires_session=True), {"session_id": ""}, None),
        (a_queue(), {"size": 100}, None),
        (a_queue(), {"size": 101}, "MessageSizeExceeded"),
    ],
)
def test_a_message_that_cannot_be_forwarded_has_a_reason(destination, message, reason):
    """SB-173, SB-174."""
    values = {"hops": 0, "session_id": None, "size": 1, **message}
    refusal = why_not_forward(values["hops"], values["session_id"], "f", destination, values["size"])
    assert (refusal and refusal.reason) == reason


def test_a_message_is_forwarded_at_most_four_times():  # SB-173
    assert MAX_HOPS == 4


@pytest.mark.parametrize(
    ("source", "goes_to"),
    [
        (SubQueue.MAIN, SubQueue.DEAD_LETTER),
        (SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER),
        (SubQueue.TRANSFER, SubQueue.TRANSFER_DEAD_LETTER),
    ],
)
def test_a_message_that_cannot_be_forwarded_moves_to_the_list_of_its_source(source, goes_to):
    """SB-174, SB-917."""
    assert list_of_failures(source) is goes_to


QUEUE, SUBSCRIPTION = EntityKind.QUEUE, EntityKind.SUBSCRIPTION
DEAD = "forward_dead_lettered_messages_to"


@pytest.mark.parametrize(
    ("kind", "setting", "loop", "note"),
    [
        (
            QUEUE, "forward_to", Loop("q", 1, False),
            "Messages are forwarded to this queue itself. After 4 forwards, they are dead-lettered (SB-173).",
        ),
        (
            QUEUE, "forward_to", Loop("b", 2, False),
            "Messages that are forwarded to 'b' come back to this queue. After 4 forwards, they are dead-lettered (SB-173).",
        ),
        (
            QUEUE, "forward_to", Loop("q", 1, True),
            "Messages are forwarded to this queue itself. "
            "Within the duplicate detection window, they are dropped there as duplicates (SB-133).",
        ),
        (
            SUBSCRIPTION, "forward_to", Loop("t", 1, False),
            "Messages are forwarded to the topic of this subscription, which publishes them again to its subscriptions. "
            "After 4 forwards, they are dead-lettered (SB-173).",
        ),
        (
            SUBSCRIPTION, "forward_to", Loop("b", 3, True),
            "Messages that are forwarded to 'b' come back to the topic of this subscription. "
            "Within the duplicate detection window, they are dropped there as duplicates (SB-133).",
        ),
        (
            QUEUE, DEAD, Loop("q", 1, False),
            "Dead letters are forwarded to this queue itself and are delivered again. "
            "After 4 forwards, they move to the transfer dead-letter queue (SB-173).",
        ),
        (
            SUBSCRIPTION, DEAD, Loop("b", 2, False),
            "Dead letters that are forwarded to 'b' come back to the topic of this subscription, "
            "which publishes them again to its subscriptions. "
            "After 4 forwards, they move to the transfer dead-letter queue (SB-173).",
        ),
        (
            QUEUE, DEAD, Loop("q", 1, True),
            "Dead letters are forwarded to this queue itself. "
            "Within the duplicate detection window, they are dropped there as duplicates (SB-133).",
        ),
    ],
)  # fmt: skip
def test_a_loop_is_explained(kind, setting, loop, note):
    """SB-173, SB-176."""
    assert list(forwarding_notes(kind, False, loop.to, {setting: loop})) == [note]


def test_a_forward_of_sessions_is_explained():
    """SB-175."""
    assert list(forwarding_notes(QUEUE, True, "b", {})) == [
        "No receiver can accept the sessions of this queue while its messages are forwarded (SB-171, SB-175)."
    ]
    assert list(forwarding_notes(QUEUE, True, None, {})) == [] == list(forwarding_notes(SUBSCRIPTION, False, "b", {}))
