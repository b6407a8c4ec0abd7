"""Fixtures for every test: a real PostgreSQL, a real server in a thread, a real browser."""

import importlib
import os

import pytest

os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # Playwright leaves a running loop in the main thread


def close_broker_connections() -> None:
    """Close the broker's own connections, or the test database cannot be dropped."""
    try:
        connections = importlib.import_module("broker_core.store.connections")
    except ModuleNotFoundError:
        return
    connections.close_all()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup):
    """The test database; the broker's own connections to it end before it is dropped."""
    yield
    close_broker_connections()
