"""The listening socket, bound before anything starts: a port in use is noticed first, and restarts refuse no client."""

from __future__ import annotations

import errno
import socket
import time

from broker_core.listener.ports import bind

HOST = "127.0.0.1"


class PortTaken(Exception):
    """The port cannot be used. The text says what to do."""


def listen(port: int, patience: float = 0.0) -> socket.socket:
    """A listening socket on the loopback address. port 0: the system chooses. Raises PortTaken.

    patience: seconds to retry, while a web server of an earlier run ends.
    """
    try:
        return bind(HOST, port, time.monotonic() + patience)
    except (OSError, OverflowError) as problem:
        raise PortTaken(_why(port, problem)) from problem


def _why(port: int, problem: Exception) -> str:
    code = getattr(problem, "errno", None)
    if code == errno.EADDRINUSE:
        return f"Port {port} is in use by another program. Choose another: make up PORT={port + 1 if port < 65535 else 8000}"
    if code == errno.EACCES:
        return f"Port {port} requires root. Choose a port above 1023: make up PORT=8000"
    return f"Port {port} cannot be used: {problem}. Choose a port from 1024 to 65535: make up PORT=8000"
