"""The core against a RabbitMQ server: the same story, the same facts, but for the differences that are meant."""

import itertools
import time

import pytest

from .brokers import Core, Real
from .comparison import compare
from .expected_differences import IN_STORIES
from .stories import STORIES

_numbers = itertools.count(1)


@pytest.mark.parametrize("name", STORIES)
def test_a_scenario_agrees_with_rabbitmq(rabbit, broker_database, name):
    vhost = f"story-{next(_numbers)}"
    real, core = facts_of(Real(rabbit, vhost), name), facts_of(Core(vhost), name)
    compare("RabbitMQ", name, real, core, IN_STORIES)


def facts_of(broker, name):
    """The facts of a story."""
    began = time.monotonic()
    try:
        STORIES[name](broker)
    finally:
        broker.close()
    assert time.monotonic() - began < 60
    return broker.facts
