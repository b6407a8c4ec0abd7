"""A whole Vitrine under test: `manage.py up` as a process, with a data folder and a port of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas
from broker_core.store.connections import Database, close_all, using
from explorer.site.embedded_postgres import server
from tests.eventually import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
PORTS_FOR_CLIENTS = (
    *("SERVICE_BUS_PORT", "SERVICE_BUS_TLS_PORT", "QUEUE_STORAGE_PORT", "QUEUE_STORAGE_TLS_PORT", "AMQP_PORT", "AMQPS_PORT"),
)
NOT_PASSED_ON = ("DATABASE_URL", "PATH_PREFIX", "CELERY_BROKER_URL", "ALLOWED_HOSTS", "SECRET_KEY", "VITRINE_PUBLIC_URL")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server_socket:
        return server_socket.getsockname()[1]


def environment(data: Path, **settings: str) -> dict[str, str]:
    """Of a process with this data folder. It serves no network clients, unless the settings name a port."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    off = dict.fromkeys(PORTS_FOR_CLIENTS, "0")
    return kept | off | {"VITRINE_DATA": str(data), "VITRINE_DEMO": "0", "PYTHONUNBUFFERED": "1"} | settings


def manage(*arguments: str, data: Path, **settings: str) -> subprocess.CompletedProcess:
    """Run a management command to its end, within a minute."""
    command = [sys.executable, "manage.py", *arguments]
    settings = environment(data, **settings)
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=60, check=False)


class Vitrine:
    """One data folder and port, as a context manager that starts it and removes everything; `up` may be called again after the
    supervisor was killed."""

    def __init__(self, **settings: str):
        self.data = Path(tempfile.mkdtemp(prefix="vitrine-", dir="/tmp"))  # short: a socket's path has about 100 bytes
        self.port, self.queue_storage_port, self.service_bus_port = free_port(), free_port(), free_port()
        self._settings = {
            "QUEUE_STORAGE_PORT": str(self.queue_storage_port),
            "SERVICE_BUS_PORT": str(self.service_bus_port),
        } | settings
        self._log = (self.data / "up.log").open("w+")
        self.supervisor: subprocess.Popen | None = None

    def __enter__(self) -> Vitrine:
        try:
            self.up()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._settings.get('PATH_PREFIX', '')}"

    @property
    def output(self) -> str:
        return (self.data / "up.log").read_text()

    def up(self) -> None:
        """Start, and wait until the address is announced."""
        announced = self.output.count("Vitrine is at")
        self.supervisor = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            cwd=ROOT,
            env=environment(self.data, PORT=str(self.port), **self._settings),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        eventually(lambda: self.output.count("Vitrine is at") > announced or self.supervisor.poll() is not None, 180)
        assert self.supervisor.poll() is None, self.output

    def process(self, part: str) -> psutil.Process:
        """The running process of web, listener, worker, analysis, beat or postgres."""
        if part == "postgres":
            return eventually(self._postgres, 30)
        mark = {
            "web": "explorer.site.web",
            "listener": "listen",
            "worker": "--hostname=sweeps@%h",
            "analysis": "--queues=analysis",
            "beat": "--pidfile=",
        }[part]
        return eventually(lambda: next((child for child in self.children() if mark in _arguments(child)), None), 30)

    def _postgres(self) -> psutil.Process | None:
        with suppress(OSError, ValueError, IndexError, psutil.Error):
            return psutil.Process(int((self.data / "postgres" / "postmaster.pid").read_text().split()[0]))
        return None

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.supervisor.pid).children()

    def kill(self, part: str) -> None:
        """kill -9 of a part, or of the supervisor."""
        if part == "supervisor":
            self.supervisor.kill()
            self.supervisor.wait()
        else:
            self.process(part).kill()

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.supervisor.send_signal(signal.SIGINT)
        return self.supervisor.wait(40)

    def health(self) -> dict | None:
        """The parts' states, or None while nothing answers."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=5).json()["parts"]
        except (httpx.HTTPError, ValueError):
            return None

    def sign_in_link(self) -> str:
        return re.findall(r"Sign in with this one-time link: (\S+)", self.output)[-1]

    def database(self) -> Database:
        return Database(dsn=f"host={self.data / 'postgres'} user={server.SUPERUSER} dbname={server.DATABASE}")

    def create_queue(self, address: EntityAddress, **settings) -> None:
        with using(self.database()):
            entities.ensure_queue(address, **settings)

    def headers(self, namespace: str) -> dict[str, str]:
        """An authorisation for the REST API, for an hour."""
        with using(self.database()):
            policy = shared_access.get_policy(namespace, shared_access.ROOT_POLICY)
        uri = f"{self.url}/servicebus/{namespace}/"
        return {"Authorization": sas.sign(uri, policy.name, policy.primary_key, int(time.time()) + 3600)}

    def remove(self) -> None:
        """Stop what runs and delete the folder."""
        close_all()
        if self.supervisor and self.supervisor.poll() is None:
            self.supervisor.send_signal(signal.SIGINT)
            time.sleep(0.2)
            with suppress(subprocess.TimeoutExpired):
                self.interrupt()  # the second Ctrl-C: at once
            self.supervisor.kill()
        server.stop(self.data / "postgres")
        self._log.close()
        shutil.rmtree(self.data, ignore_errors=True)


def _arguments(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []
