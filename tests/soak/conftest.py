"""The broker's fixtures."""

from tests.broker.fixtures import *  # noqa: F403
