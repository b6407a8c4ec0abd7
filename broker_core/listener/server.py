"""Serves the front ends in one event loop until it is asked to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress

import uvicorn

from broker_core.clients import recorder
from broker_core.store import aio
from broker_core.wire.bounded_http import BoundedHttp

from . import ports
from .ports import Port

DRAIN_SECONDS = 5  # for requests that are being answered when the process is asked to stop


class HttpServer(uvicorn.Server):
    """One application on one socket. The listener handles signals, not uvicorn."""

    @contextmanager
    def capture_signals(self):
        yield


class Listener:
    """One listener process. sockets: by the setting of their port."""

    def __init__(self, open_ports: Sequence[Port], sockets: Mapping[str, socket.socket]):
        context = ports.tls_context() if any(port.is_tls for port in open_ports) else None
        self._sockets = [sockets[port.setting] for port in open_ports]
        self._servers = [HttpServer(_config(port, context if port.is_tls else None)) for port in open_ports]
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, or `stop`. Requests that have begun are finished."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
                loop.add_signal_handler(number, self.stop)
        serving = [
            asyncio.create_task(server.serve(sockets=[listening]))
            for server, listening in zip(self._servers, self._sockets, strict=True)
        ]
        stopping = asyncio.create_task(self._stopping.wait())
        recorder.start()
        try:
            await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
            for server in self._servers:
                server.should_exit = True
            await asyncio.gather(*serving)
        finally:
            stopping.cancel()
            await recorder.stop()
            await aio.close()

    def stop(self) -> None:
        """Accept nothing new, and end when what has begun is finished. A second call ends at once."""
        if self._stopping.is_set():
            for server in self._servers:
                server.force_exit = True
        self._stopping.set()


def _config(port: Port, context: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        port.front_end.application,
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    config.load()
    config.ssl = context
    return config
