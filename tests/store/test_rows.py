"""Rows as what callers get."""

from dataclasses import fields

import pytest

from broker_core import service_bus
from broker_core.service_bus.rules.values import LockedMessage, Message, StoredMessage


@pytest.mark.parametrize(("read", "kind"), [(service_bus.peek, StoredMessage), (service_bus.receive, LockedMessage)])
def test_a_message_row_has_every_field(queue, read, kind):
    """They are set without the class's own way, which would miss one."""
    service_bus.send(queue, [Message(b"x")])
    [message] = read(queue)
    assert type(message) is kind
    assert set(vars(message)) == {field.name for field in fields(kind)}
