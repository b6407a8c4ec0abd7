"""The port against the Python API: the stories and random scripts that Azurite is told, too, without a difference."""

import itertools
import os
import time

import pytest

from tests.azurite.brokers import Core, Port
from tests.azurite.scripts import WithPort
from tests.azurite.stories import STORIES
from tests.azurite.telling import AT_THE_PORT, always_refreshed, facts_of, fail_shortest  # noqa: F401 - a fixture
from tests.differential.comparison import compare

SCRIPTS = int(os.environ.get("SCRIPTS") or 40)

_numbers = itertools.count(1)
pytestmark = pytest.mark.usefixtures("always_refreshed")


@pytest.mark.parametrize("name", STORIES)
def test_the_port_does_what_the_python_api_does(make_account, name):
    number = next(_numbers)
    account, queue = make_account(f"port{number}"), f"story-{number}"
    port = Port(account.url, account.key, queue)
    compare("port", name, facts_of(port, name), facts_of(Core(f"account{number}", queue), name), AT_THE_PORT)


@pytest.mark.timeout(600)
def test_random_scripts_end_at_the_port_as_in_the_python_api(make_account):
    """`make test-clients SEED=7 SCRIPTS=200` begins with other dice, or tries more."""
    seed = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
    account = make_account("scripts")
    comparison = WithPort(lambda queue: Port(account.url, account.key, queue), "scriptscore")
    fail_shortest(comparison, range(seed, seed + SCRIPTS))
