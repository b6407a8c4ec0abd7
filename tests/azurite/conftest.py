"""These tests need Azurite. `make test-azurite` asks for them; the other tests do without."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.comparison import report
from tests.official_clients.conftest import make_account  # noqa: F401 - a fixture

from . import server
from .telling import always_refreshed  # noqa: F401 - a fixture

collect_ignore_glob = [] if os.environ.get("VITRINE_DIFFERENTIAL") else ["test_*.py"]
logging.getLogger("azure").setLevel(logging.ERROR)  # a line for each request


@pytest.fixture(scope="session")
def azurite() -> Iterator[server.Server]:
    """A running queue service."""
    if server.find() is None:
        pytest.skip(f"there is no Azurite in {server.INSTALLED_IN}: make test-azurite installs it where it can")
    folder = Path(os.environ.get("VITRINE_DATA") or Path.cwd() / ".vitrine" / "test")
    with server.Server(folder.absolute()) as running:
        yield running


def pytest_terminal_summary(terminalreporter) -> None:
    report("Azurite", terminalreporter)
