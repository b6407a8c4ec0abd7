"""Puts and gets that an operator has paused (QS-926)."""

from datetime import timedelta

import pytest

from broker_core import queue_storage
from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, EntityStatus, Right
from broker_core.queue_storage.rules.errors import QueueDisabled

OPERATOR = Actor("user", "otto", Right.OPERATE | Right.BROWSE)


@pytest.mark.parametrize(
    ("status", "may_put", "may_get"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
        (EntityStatus.DISABLED, False, False),
    ],
)
def test_paused_operations_are_refused_and_change_nothing(make_queue, status, may_put, may_get):
    """QS-926."""
    jobs = make_queue()
    put = queue_storage.put(jobs, "kept")
    queue_storage.set_status(jobs, status, actor=OPERATOR)
    if may_put:
        queue_storage.put(jobs, "new")
    else:
        with pytest.raises(QueueDisabled, match="puts are paused"):
            queue_storage.put(jobs, "new")
    if may_get:
        assert queue_storage.get(jobs)[0].message_id == put.message_id
    else:
        with pytest.raises(QueueDisabled, match="gets are paused"):
            queue_storage.get(jobs)
    assert queue_storage.approximate_count(jobs) == 1 + may_put
    queue_storage.set_status(jobs, EntityStatus.ACTIVE, actor=OPERATOR)
    assert len(queue_storage.get(jobs, 5)) == 1 + may_put - may_get


def test_a_lease_can_be_finished_while_gets_are_paused(make_queue):
    """QS-926."""
    jobs = make_queue()
    queue_storage.put_all(jobs, ["one", "two"])
    first, second = queue_storage.get(jobs, 2)
    queue_storage.set_status(jobs, EntityStatus.DISABLED)
    queue_storage.delete(jobs, first.message_id, first.pop_receipt)
    queue_storage.update(jobs, second.message_id, second.pop_receipt, visibility_timeout=timedelta(0))
    assert queue_storage.approximate_count(jobs) == 1


def test_pausing_requires_the_right_to_operate(make_queue):
    jobs = make_queue()
    with pytest.raises(NotAuthorized):
        queue_storage.set_status(jobs, EntityStatus.DISABLED, actor=Actor("user", "vera", Right.BROWSE | Right.LISTEN))
