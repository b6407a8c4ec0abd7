"""Every test here has the real database, and asks for virtual hosts of its own."""

from tests.broker.fixtures import *  # noqa: F403
