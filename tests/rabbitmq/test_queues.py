"""Queues: declaring, declaring again, deleting."""

from broker_core.rabbitmq import declare_queue, delete_queue
from broker_core.semantics.types import EntityAddress


def test_a_new_queue_is_empty_and_deleting_frees_its_name(vhost):
    address = EntityAddress(vhost, "orders")
    assert declare_queue(address) == (address, 0, 0, True)
    assert declare_queue(address) == (address, 0, 0, False)
    assert delete_queue(address) == 0
    assert declare_queue(address).created
