"""Fixtures of the broker core."""

from tests.fixtures import *  # noqa: F403
