"""These tests need a RabbitMQ server of their own. `make test-rabbitmq` asks for them; the other tests do without."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import *  # noqa: F403

from . import server
from .comparison import report

collect_ignore_glob = [] if os.environ.get("VITRINE_DIFFERENTIAL") else ["test_*.py"]
logging.getLogger("pika").setLevel(logging.CRITICAL)  # every refusal, and most of these are asked for


@pytest.fixture(scope="session")
def rabbit() -> Iterator[server.Server]:
    """A running RabbitMQ server."""
    if server.find() is None:
        pytest.skip(f"there is no RabbitMQ server in {server.HOME_OF_SCRIPTS}: make test-rabbitmq installs one where it can")
    folder = Path(os.environ.get("VITRINE_DATA") or Path.cwd() / ".vitrine" / "test")
    with server.Server(folder.absolute()) as running:
        yield running


def pytest_terminal_summary(terminalreporter) -> None:
    report("RabbitMQ", terminalreporter)
