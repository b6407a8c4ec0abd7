"""manage.py listen: serves network clients."""

import asyncio
import gc
import resource
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from django.core.management.base import BaseCommand, CommandError

from broker_core.listener import ports
from broker_core.listener.front_ends import known_ports
from broker_core.listener.ports import Opened, Port
from broker_core.listener.server import Listener
from broker_core.store import connections
from broker_core.wire.connections import Limits

COLLECT_AFTER = 10_000  # more new objects than are freed; Python's default is 700
OTHER_FILES = 200  # descriptors that the process needs besides those of its connections


class Command(BaseCommand):
    help = "Serve the network clients of all families, until SIGTERM. The README lists the ports and their settings."

    def add_arguments(self, parser):
        parser.add_argument(
            "--socket",
            action="append",
            default=[],
            metavar="SETTING=FD",
            help="a listening socket that is passed to this process, such as QUEUE_STORAGE_PORT=7; no other ports are opened",
        )
        parser.add_argument(
            "--problem",
            action="append",
            default=[],
            metavar="TEXT",
            help="why a port could not be opened by the process that passes the sockets; the explorer shows it",
        )

    def handle(self, *, socket: list[str], problem: list[str], **options):
        import uvloop

        opened = ports.passed_on(known_ports(), _passed(socket), problem) if socket else ports.open_all(known_ports())
        open_ports = [port for port in known_ports() if port.setting in opened.sockets]
        for text in opened.problems:
            if text not in problem:  # those are known to the process that passed the sockets
                self.stderr.write(text)
        if not open_ports:
            raise CommandError("No port is open. Set one, such as QUEUE_STORAGE_PORT=10001.")
        for port in open_ports:
            self.stdout.write(f"Port {opened.sockets[port.setting].getsockname()[1]}: {port.title}")
        self.stdout.flush()
        _allow_connections(Limits.of_settings().most)
        _collect_less()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(open_ports, opened))
        finally:
            connections.close_all()


async def _serve(open_ports: Sequence[Port], opened: Opened) -> None:
    await Listener(open_ports, opened.sockets, opened.problems).run(recorded=True)


def _allow_connections(count: int) -> None:
    """Raise this process's limit of open files, as far as it may, so that it has enough for its connections. count: 0: any."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES if count else sys.maxsize
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _collect_less() -> None:
    """Leave what was imported out of every garbage collection, and collect after more objects (docs/proof.md, `wire`)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def _passed(given: list[str]) -> dict[str, socket.socket]:
    settings_of_ports = {port.setting for port in known_ports()}
    sockets = {}
    for text in given:
        setting, _, number = text.partition("=")
        if setting not in settings_of_ports:
            raise CommandError(f"--socket {text} names no port; use one of {', '.join(sorted(settings_of_ports))}.")
        try:
            sockets[setting] = socket.socket(fileno=int(number))
        except (ValueError, OSError) as problem:
            raise CommandError(f"--socket {text} is not a setting and the number of an open socket: {problem}") from problem
    return sockets
