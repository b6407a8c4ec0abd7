"""manage.py listen: serves network clients."""

import asyncio
import socket

from django.core.management.base import BaseCommand, CommandError

from broker_core.listener import ports
from broker_core.listener.front_ends import HTTP_FRONT_ENDS
from broker_core.listener.server import Listener


class Command(BaseCommand):
    help = "Serve the network clients of all families, until SIGTERM. The README lists the ports and their settings."

    def add_arguments(self, parser):
        parser.add_argument(
            "--socket",
            action="append",
            default=[],
            metavar="SETTING=FD",
            help="a listening socket that is passed to this process, such as QUEUE_STORAGE_PORT=7; other ports are not opened",
        )

    def handle(self, *, socket: list[str], **options):
        import uvloop

        wanted = list(ports.wanted(HTTP_FRONT_ENDS))
        try:
            sockets = _passed(socket) if socket else {port.setting: ports.bind(port) for port in wanted}
            open_ports = [port for port in wanted if port.setting in sockets]
            if not open_ports:
                raise CommandError("All ports are off. Set one, such as QUEUE_STORAGE_PORT=10001.")
            for port in open_ports:
                self.stdout.write(f"{port.title} at port {sockets[port.setting].getsockname()[1]}")
            self.stdout.flush()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(open_ports, sockets))
        except (ports.PortTaken, ports.BadCertificate) as problem:
            raise CommandError(str(problem)) from problem


async def _serve(open_ports, sockets):
    await Listener(open_ports, sockets).run()


def _passed(given: list[str]) -> dict[str, socket.socket]:
    sockets = {}
    for text in given:
        setting, _, number = text.partition("=")
        try:
            sockets[setting] = socket.socket(fileno=int(number))
        except (ValueError, OSError) as problem:
            raise CommandError(f"--socket {text} is not a setting and the number of an open socket: {problem}") from problem
    return sockets
