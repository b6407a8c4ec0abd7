"""The core against a RabbitMQ server: the same story, the same facts, but for the differences that are meant."""

import itertools
import time

import pytest

from .brokers import Core, Real
from .comparing import compare
from .stories import STORIES

# By story and fact: why the core does otherwise.
MEANT: dict[tuple[str, str], str] = {
    ("a_new_time_by_policy", "a message without a time"): "RMQ-902: as the guide says, it counts for what is there",
    ("a_new_time_by_policy", "a shorter time"): "RMQ-902: the same",
    ("bad_policies", "a long life"): "RMQ-918: a policy's time has the bound of an argument's",
    ("bad_policies", "apply-to"): "RMQ-371: with the types of queues that 3.12 added, and its text",
    ("bad_policies", "operator overflow"): "RMQ-203: later versions have this key",
    ("what_a_dead_letter_is", "headers"): "RMQ-912: x-last-death-*, as later versions add them",
    ("ways_of_dead_letters", "by key, CC and BCC"): "RMQ-062, RMQ-063: by its own key and CC; BCC is not kept with a message",
    ("positions_in_quorum_queues", "returned apart"): "RMQ-909: each to its original place, as in classic queues",
    ("redeclaring_queues", "timeout"): "RMQ-127: an argument since 3.12, so it is compared",
    ("bad_arguments", "queue-type 'stream'"): "RMQ-908: there are no streams",
    ("bad_arguments", "quorum: delivery-limit '5'"): "RMQ-341: checked, where 3.10 takes anything and ignores it",
}

_numbers = itertools.count(1)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_the_same(rabbit, broker_database, name):
    vhost = f"story-{next(_numbers)}"
    real, core = told(Real(rabbit, vhost), name), told(Core(vhost), name)
    compare("RabbitMQ", name, real, core, MEANT)


def told(broker, name):
    """The facts of a story."""
    began = time.monotonic()
    try:
        STORIES[name](broker)
    finally:
        broker.close()
    assert time.monotonic() - began < 60
    return broker.facts
