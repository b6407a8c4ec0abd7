"""The broker's fixtures."""

from tests.fixtures import *  # noqa: F403
