"""Rows as what callers get."""

from dataclasses import fields

import pytest

from broker_core import broker
from broker_core.semantics.types import LockedMessage, Message, StoredMessage


@pytest.mark.parametrize(("read", "kind"), [(broker.peek, StoredMessage), (broker.receive, LockedMessage)])
def test_a_message_read_has_every_field(queue, read, kind):
    """They are set without the class's own way, which would miss one."""
    broker.send(queue, [Message(b"x")])
    [message] = read(queue)
    assert type(message) is kind
    assert set(vars(message)) == {field.name for field in fields(kind)}
