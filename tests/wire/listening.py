"""A listener under test, on free ports: in a thread of the tests' process and on its database, or as a process to kill.

The fixtures `listener` and `listener_process` are available to all tests. Both serve the test database: what a test commits,
clients see.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.eventually import eventually

if TYPE_CHECKING:
    from broker_core.listener.ports import Port
    from broker_core.listener.status import Listening

ROOT = Path(__file__).resolve().parent.parent.parent
PORTS = (
    "QUEUE_STORAGE_PORT",
    "SERVICE_BUS_PORT",
    "AMQP_PORT",
)  # the settings of the ports that are opened unless others are named


def free_socket() -> socket.socket:
    """A listening socket on a free port of the loopback address."""
    return socket.create_server(("127.0.0.1", 0), backlog=1024)


class Ports:
    """Sockets by the setting of their port."""

    def __init__(self, settings: Sequence[str] = PORTS):
        self.sockets = {setting: free_socket() for setting in settings}
        self.numbers: dict[str, int] = {setting: listening.getsockname()[1] for setting, listening in self.sockets.items()}

    def port(self, setting: str = PORTS[0]) -> int:
        """The number of a port, such as that of QUEUE_STORAGE_PORT."""
        return self.numbers[setting]

    def connect(self, setting: str = PORTS[0]) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port(setting)), timeout=30)

    def close(self) -> None:
        for listening in self.sockets.values():
            listening.close()


class ListenerThread(Ports):
    """A listener in a thread of this process. known: the ports that there are; None: those of the product."""

    def __init__(self, settings: Sequence[str] = PORTS, known: Sequence[Port] | None = None):
        super().__init__(settings)
        self._known = known

    def start(self) -> None:
        import uvloop

        from broker_core.listener.front_ends import known_ports
        from broker_core.listener.server import Listener

        opened = [port for port in self._known or known_ports() if port.setting in self.sockets]
        self._loop = uvloop.new_event_loop()
        self._listener = Listener(opened, self.sockets)
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listener.run())

    @property
    def state(self) -> Listening:
        return self._listener.state()

    def ask_to_stop(self) -> None:
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._listener.stop)

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop it, and wait until it has stopped."""
        if self._thread.is_alive():
            self.ask_to_stop()
        assert self.has_ended(15), "the listener does not stop"


class ListenerProcess(Ports):
    """`manage.py listen` on the test database. The sockets outlive it: after `start` again, clients find the same ports.

    environment: further settings, such as CONNECTIONS_PER_ADDRESS="5".
    """

    def __init__(self, settings: Sequence[str] = PORTS, **environment: str):
        super().__init__(settings)
        self._environment = {**os.environ, "DATABASE_URL": database_url_of_tests(), "PYTHONUNBUFFERED": "1", **environment}
        self.process: subprocess.Popen[str] | None = None
        self.output: list[str] = []

    def start(self) -> ListenerProcess:
        """Start it, and wait until it serves."""
        passed = [f"--socket={setting}={listening.fileno()}" for setting, listening in self.sockets.items()]
        self.output.clear()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "listen", *passed],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[listening.fileno() for listening in self.sockets.values()],
        )
        threading.Thread(target=self._read, args=[self.process], daemon=True).start()
        eventually(lambda: len(self.output) >= len(self.sockets) or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.output
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.output.append(line.rstrip())

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, seconds: float = 15) -> int:
        """SIGTERM. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        super().close()


def database_url_of_tests() -> str:
    """The DATABASE_URL of the test database, for other processes."""
    from django.db import connection

    parameters = connection.get_connection_params()
    user, password = parameters.get("user", ""), parameters.get("password", "")
    host, port = parameters.get("host", ""), parameters.get("port", "") or 5432
    name = f"{quote(user)}:{quote(password)}@" if password else f"{quote(user)}@"
    return f"postgresql://{name}:{port}/{quote(parameters['dbname'])}?host={quote(host, safe='')}"


@contextmanager
def listening(settings: Sequence[str] = PORTS, known: Sequence[Port] | None = None) -> Iterator[ListenerThread]:
    """A listener in a thread, while the block runs."""
    with closing(ListenerThread(settings, known)) as served:
        served.start()
        try:
            yield served
        finally:
            served.stop()


@pytest.fixture(scope="module")
def listener(django_db_setup) -> Iterator[ListenerThread]:
    """A listener in a thread of this process. A test that uses it asks for `transactional_db`, too."""
    with listening() as served:
        yield served


@pytest.fixture
def listener_process(transactional_db) -> Iterator[ListenerProcess]:
    """A listener as a process, which serves. Tests may kill it and start it again."""
    with closing(ListenerProcess()) as process:
        yield process.start()
