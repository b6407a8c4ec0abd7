"""The ports of the listener, as the settings name them, and their sockets.

Settings: LISTEN_HOST; for each front end NAME_PORT and NAME_TLS_PORT (0: none); TLS_CERTIFICATE and TLS_KEY, paths of PEM files,
without which no TLS port is opened.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from broker_core.wire.endpoints import has_tls

BACKLOG = 1024
Application = Callable[[Any, Any, Any], Awaitable[None]]


class PortTaken(Exception):
    """A port cannot be used. The text says what to do."""


class BadCertificate(Exception):
    """The certificate or its key cannot be read. The text says what to do."""


@dataclass(frozen=True, slots=True)
class HttpFrontEnd:
    """name: in the names of its settings. title: for people. application: ASGI."""

    name: str
    title: str
    application: Application


@dataclass(frozen=True, slots=True)
class Port:
    """A port that is to be opened. setting: which names it, by which it is passed to the process, too."""

    setting: str
    title: str
    number: int
    is_tls: bool
    front_end: HttpFrontEnd


def known(front_ends: Sequence[HttpFrontEnd]) -> Iterator[Port]:
    """All ports, those that are off (0) too."""
    for front_end in front_ends:
        for setting, is_tls in ((f"{front_end.name}_PORT", False), (f"{front_end.name}_TLS_PORT", True)):
            number = getattr(settings, setting, 0)
            yield Port(setting, f"{front_end.title}{' over TLS' if is_tls else ''}", number, is_tls, front_end)


def wanted(front_ends: Sequence[HttpFrontEnd]) -> Iterator[Port]:
    """The ports that are on."""
    for port in known(front_ends):
        if port.number and (not port.is_tls or has_tls()):
            yield port


def tls_context() -> ssl.SSLContext:
    """For the TLS ports: TLS 1.2 and later. Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.TLS_CERTIFICATE, settings.TLS_KEY)
    except (OSError, ssl.SSLError) as problem:
        raise BadCertificate(
            f"The certificate {settings.TLS_CERTIFICATE} or its key {settings.TLS_KEY} cannot be used: {problem}. "
            "Set TLS_CERTIFICATE and TLS_KEY to PEM files, or neither."
        ) from problem
    return context


def bind(port: Port) -> socket.socket:
    """A listening socket. Raises PortTaken."""
    host = settings.LISTEN_HOST
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port.number))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as problem:
        listening.close()
        raise PortTaken(_why(port, problem)) from problem
    return listening


def _why(port: Port, problem: Exception) -> str:
    what = f"Port {port.number} ({port.title})"
    code = getattr(problem, "errno", None)
    if code == errno.EADDRINUSE:
        return f"{what} is in use by another program, and clients cannot connect there. Set {port.setting} to another, or to 0."
    if code == errno.EACCES:
        return f"{what} requires root. Set {port.setting} to a port above 1023, or to 0."
    return f"{what} cannot be used: {problem}. Set {port.setting} or LISTEN_HOST."
