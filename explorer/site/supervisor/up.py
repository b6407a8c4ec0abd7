"""Starts, watches and stops all parts: PostgreSQL, migrations, seed, web server, listener, workers, beat and the demo."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from io import StringIO

import psycopg
from django.conf import settings
from django.core.management import CommandError, call_command, get_commands
from django.db import Error, OperationalError, connection, connections

from broker_core.common.errors import BrokerError
from broker_core.listener import ports
from broker_core.listener.front_ends import known_ports
from broker_core.listener.ports import Opened
from explorer.site.embedded_postgres import server

from . import port
from .child import Child
from .folder import Folder

TICK_SECONDS = 0.5
WEB_LATE_SECONDS = 30.0  # after which the output says that the web server has not responded yet
LEFTOVERS_SECONDS = 10.0
# Seconds that each part has to stop.
STOPPING_ORDER = ({"demo": 3, "beat": 3, "web": 5, "listener": 10}, {"worker": 10, "analysis": 10})


class CannotRun(Exception):
    """Nothing was started, or everything was stopped again. The text says why and what to do."""


class Up:
    """All parts that `make up` runs, for one call of `run`."""

    def __init__(self, wanted_port: int):
        self._wanted_port = wanted_port
        self._children: list[Child] = []
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._said = threading.Lock()
        self._postgres_pause_until = 0.0
        self._web_is_late_at = math.inf
        self._owns_postgres = not settings.DATABASE_URL

    def run(self) -> None:
        """Run until a signal asks it to stop. Raises folder.Taken, port.PortTaken or CannotRun."""
        os.umask(0o077)  # also of all parts: what they write in the data folder is their own
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._asked_to_stop)
        try:
            folder = Folder(settings.VITRINE_DATA, f"http://{port.HOST}:{self._wanted_port}{settings.PATH_PREFIX}/")
        except OSError as problem:
            raise CannotRun(f"The data folder {settings.VITRINE_DATA} cannot be written: {problem.strerror}.") from problem
        try:
            if leftovers := folder.end_leftovers():
                self.say("up", f"ending {leftovers} processes of an earlier run")
            patience = LEFTOVERS_SECONDS if leftovers else 0
            listening = port.listen(self._wanted_port, patience)
            self._run_on(folder, listening, ports.open_all(known_ports(), patience))
        finally:
            folder.release()

    def _run_on(self, folder: Folder, listening, for_clients: Opened) -> None:
        try:
            for problem in for_clients.problems:
                self.say("up", problem)
            self._prepare_database()
            self._collect_files()
            self._children = self._make_children(listening, for_clients)
            self.say("up", f"starting {', '.join(child.name for child in self._children)}")
            for child in self._children:
                if self._stopping.is_set():
                    return
                child.start()
            folder.remember([child.pid for child in self._children if child.pid])
            self._watch(folder, listening.getsockname()[1])
        finally:
            self._stop([listening, *for_clients.sockets.values()])

    # Starting

    def _prepare_database(self) -> None:
        if self._owns_postgres:
            self.say("up", f"starting PostgreSQL in {settings.EMBEDDED_POSTGRES}")
            try:
                server.ensure_running(settings.EMBEDDED_POSTGRES)
            except server.CannotStart as problem:
                raise CannotRun(str(problem)) from problem
        try:
            connection.ensure_connection()
        except OperationalError as problem:
            raise CannotRun(_unreachable(problem)) from problem
        try:
            self.say("up", "creating or updating the tables")
            call_command("migrate", verbosity=0, interactive=False)
            self.say("up", "setting up roles and the demo" if settings.VITRINE_DEMO else "setting up roles")
            call_command("seed")
        except CommandError as problem:
            raise CannotRun(str(problem)) from problem
        except (Error, BrokerError, psycopg.Error) as problem:
            raise CannotRun(f"The database could not be prepared: {problem}") from problem
        connections.close_all()

    def _collect_files(self) -> None:
        self.say("up", "collecting the static files")
        try:
            call_command("collectstatic", verbosity=0, interactive=False)
        except OSError as problem:
            raise CannotRun(f"The static files could not be written to {settings.STATIC_ROOT}: {problem}") from problem

    def _make_children(self, listening, for_clients: Opened) -> list[Child]:
        url = settings.DATABASE_URL or server.url(settings.EMBEDDED_POSTGRES)
        environment = os.environ | {
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "explorer.site.settings",
            "VITRINE_DATA": str(settings.VITRINE_DATA),
            "PORT": str(listening.getsockname()[1]),
            "PYTHONPATH": str(settings.BASE_DIR),
            "PYTHONUNBUFFERED": "1",
        }
        celery = ["-m", "celery", "-q", "-A", "explorer.site.celery"]
        quiet = ["--loglevel=WARNING"]
        worker = [*celery, "worker", "--without-gossip", "--without-mingle", "--without-heartbeat", *quiet]
        fd = str(listening.fileno())
        passed = {"web": [listening.fileno()], "listener": [one.fileno() for one in for_clients.sockets.values()]}
        commands = {
            "web": ["-m", "explorer.site.web", "--fd", fd, "--log-level=warning", "--timeout-graceful-shutdown=3"],
            "listener": ["manage.py", "listen", *_arguments(for_clients)],
            "worker": [*worker, "--pool=threads", "--concurrency=4", "--queues=sweeps,operations", "--hostname=sweeps@%h"],
            "analysis": [*worker, "--pool=solo", "--queues=analysis", "--hostname=analysis@%h"],
            "beat": [*celery, "beat", "--pidfile=", *quiet],
        }  # fmt: skip
        if not for_clients.sockets:
            del commands["listener"]
        if settings.VITRINE_DEMO and "demo" in get_commands():
            commands["demo"] = ["manage.py", "demo"]
        return [
            Child(name, [sys.executable, *command], environment, self.say, pass_fds=passed.get(name, []))
            for name, command in commands.items()
        ]

    def _announce(self, bound_port: int) -> bool:
        """Print the URL and a sign-in link if the web server responds. Returns whether it does."""
        address = f"http://{port.HOST}:{bound_port}{settings.PATH_PREFIX}"
        if not _answers(f"{address}/healthz"):
            if time.monotonic() > self._web_is_late_at:
                self.say("up", "the web server has not responded yet; see its output above. The link follows when it responds")
                self._web_is_late_at = math.inf
            return False
        link = StringIO()
        with suppress(Error):
            call_command("sign_in_link", port=bound_port, stdout=link)
            connections.close_all()
        self.say("up", "")
        self.say("up", f"Vitrine is at {settings.VITRINE_PUBLIC_URL or address}/")
        self.say("up", f"Sign in with this one-time link: {link.getvalue().strip()}")
        self.say("up", f"Stop with Ctrl-C; the data stays in {settings.VITRINE_DATA}")
        self.say("up", "")
        return True

    # Watching

    def _watch(self, folder: Folder, bound_port: int) -> None:
        self._web_is_late_at = time.monotonic() + WEB_LATE_SECONDS
        announced = False
        while not self._stopping.wait(TICK_SECONDS):
            announced = announced or self._announce(bound_port)
            self._watch_postgres()
            started = [child.name for child in self._children if child.watch()]
            if started:
                folder.remember([child.pid for child in self._children if child.pid])

    def _watch_postgres(self) -> None:
        """Restart PostgreSQL if no connection can be made. Errors are reported; watching continues."""
        if not self._owns_postgres or time.monotonic() < self._postgres_pause_until or server.answers(settings.EMBEDDED_POSTGRES):
            return
        self.say("up", "PostgreSQL does not respond; restarting it")
        try:
            server.ensure_running(settings.EMBEDDED_POSTGRES)
            self.say("up", "PostgreSQL is available again")
        except (server.CannotStart, psycopg.Error, OSError) as problem:
            self.say("up", str(problem))
            self._postgres_pause_until = time.monotonic() + 5

    # Stopping

    def _asked_to_stop(self, number: int, frame) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def _stop(self, sockets) -> None:
        """Stop the parts that create work first, then the workers, then the database."""
        if self._children:
            self.say("up", "stopping (press Ctrl-C again to stop immediately)")
        for one in sockets:  # the parts close theirs: then nobody can connect
            one.close()
        for names in STOPPING_ORDER:
            going = [child for child in self._children if child.name in names]
            for child in going:
                child.ask_to_stop()
            for child in going:
                child.wait(names[child.name], self._hurry)
        if self._owns_postgres:
            with suppress(server.CannotStart):
                server.stop(settings.EMBEDDED_POSTGRES)
        self.say("up", "stopped")

    def say(self, name: str, text: str) -> None:
        """Write a line to standard output; the terminal may be closed."""
        with self._said, suppress(BrokenPipeError, ValueError):
            print(f"{name:>8} | {text}", flush=True)


def _arguments(opened: Opened) -> list[str]:
    """What `manage.py listen` is told of the ports."""
    passed = [f"--socket={setting}={one.fileno()}" for setting, one in opened.sockets.items()]
    return [*passed, *(f"--problem={problem}" for problem in opened.problems)]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _unreachable(problem: Exception) -> str:
    """The error for an unreachable database, without its password."""
    named = settings.DATABASES["default"]
    place = f"{named['HOST'] or 'this machine'}:{named.get('PORT') or 5432}, database {named['NAME']}"
    return (
        f"The database that DATABASE_URL names ({place}) cannot be reached: {str(problem).strip()}\n"
        "Start that server or correct DATABASE_URL. Without DATABASE_URL, Vitrine starts its own server."
    )
