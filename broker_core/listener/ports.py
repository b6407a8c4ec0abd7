"""The ports of the listener, as the settings name them, and their sockets.

Settings: LISTEN_HOST; the number of each port (0: off); TLS_CERTIFICATE and TLS_KEY, paths of PEM files, without which no TLS
port is opened.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from broker_core.wire.asgi import Application
from broker_core.wire.endpoints import has_tls

from .amqp import AmqpFrontEnd

BACKLOG = 1024


class BadCertificate(Exception):
    """The certificate or its key cannot be read. The text says what to do."""


@dataclass(frozen=True, slots=True)
class HttpFrontEnd:
    """name: in the names of its settings; front ends with one name share a port. title: for people. application: ASGI. is_for:
    whether an ASGI scope is a request for it."""

    name: str
    title: str
    application: Application
    is_for: Callable[[Mapping[str, Any]], bool] = lambda scope: True


@dataclass(frozen=True, slots=True)
class Port:
    """A port that may be opened. setting: which names it, by which it is passed to the process, too. serves: an ASGI application,
    or the front ends of AMQP, of which the client chooses one."""

    setting: str
    title: str
    number: int
    is_tls: bool
    serves: Application | Sequence[AmqpFrontEnd]


@dataclass(frozen=True, slots=True)
class Opened:
    """sockets: by the setting of their port. problems: a sentence for each port that could not be opened."""

    sockets: dict[str, socket.socket]
    problems: list[str]


def known(http: Iterable[HttpFrontEnd], amqp: Sequence[AmqpFrontEnd]) -> Iterator[Port]:
    """All ports, those that are off (0) too."""
    by_name: dict[str, list[HttpFrontEnd]] = {}
    for front_end in http:
        by_name.setdefault(front_end.name, []).append(front_end)
    for name, sharing in by_name.items():
        title = " and ".join(front_end.title for front_end in sharing)
        yield from _pair(f"{name}_PORT", f"{name}_TLS_PORT", title, _shared(sharing))
    yield from _pair("AMQP_PORT", "AMQPS_PORT", "AMQP" if amqp else "AMQP, not served yet", amqp)


def _shared(front_ends: Sequence[HttpFrontEnd]) -> Application:
    """The application of a port: of these front ends, a request gets the first that it is for, or else the last."""

    async def application(scope, receive, send) -> None:
        chosen = next((front_end for front_end in front_ends if front_end.is_for(scope)), front_ends[-1])
        await chosen.application(scope, receive, send)

    return front_ends[0].application if len(front_ends) == 1 else application


def _pair(plain: str, tls: str, title: str, serves: Application | Sequence[AmqpFrontEnd]) -> Iterator[Port]:
    yield Port(plain, title, getattr(settings, plain, 0), False, serves)
    yield Port(tls, f"{title}, with TLS", getattr(settings, tls, 0), True, serves)


def open_all(ports: Iterable[Port], patience: float = 0.0) -> Opened:
    """Open the ports that are on. TLS ports are open only with a certificate. patience: seconds to retry those that are in use,
    while a listener of an earlier run ends."""
    ends_at = time.monotonic() + patience
    opened = Opened({}, _problems_of_tls())
    opens_tls = has_tls() and not opened.problems
    for port in ports:
        if port.number and (opens_tls or not port.is_tls):
            try:
                opened.sockets[port.setting] = bind(getattr(settings, "LISTEN_HOST", "127.0.0.1"), port.number, ends_at)
            except (OSError, OverflowError) as problem:
                if port.serves or not _is_in_use(problem):  # no client misses a port on which nothing is served
                    opened.problems.append(_why(port, problem))
    return opened


def passed_on(ports: Iterable[Port], sockets: Mapping[str, socket.socket], problems: Sequence[str]) -> Opened:
    """Sockets that another process has opened, without those with TLS if the certificate cannot be used any more."""
    known = _problems_of_tls()
    plain = {port.setting for port in ports if not port.is_tls}
    left = {setting: passed for setting, passed in sockets.items() if not known or setting in plain}
    return Opened(left, list(dict.fromkeys([*problems, *known])))


def _problems_of_tls() -> list[str]:
    if not any(getattr(settings, name, "") for name in ("TLS_CERTIFICATE", "TLS_KEY")):
        return []
    try:
        tls_context()
    except BadCertificate as problem:
        return [str(problem)]
    return []


def tls_context() -> ssl.SSLContext:
    """For the TLS ports: TLS 1.2 and later. Raises BadCertificate."""
    if not has_tls():
        given, missing = (
            ("TLS_CERTIFICATE", "TLS_KEY") if getattr(settings, "TLS_CERTIFICATE", "") else ("TLS_KEY", "TLS_CERTIFICATE")
        )
        raise BadCertificate(f"No TLS port is open: {given} is set, and {missing} is not. Set both to PEM files, or neither.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.TLS_CERTIFICATE, settings.TLS_KEY, password=_no_password)
    except (OSError, ValueError) as problem:  # also ssl.SSLError
        raise BadCertificate(
            f"No TLS port is open: the certificate {settings.TLS_CERTIFICATE} or its key {settings.TLS_KEY} cannot be used "
            f"({problem}). Set TLS_CERTIFICATE and TLS_KEY to PEM files, or neither."
        ) from problem
    return context


def _no_password() -> str:
    """Called for an encrypted key, which OpenSSL would ask the terminal for otherwise."""
    raise ValueError("the key is encrypted; use one without a password")


def bind(host: str, number: int, ends_at: float) -> socket.socket:
    """A listening socket; a port that is in use is retried until `ends_at` (time.monotonic()). Raises OSError, OverflowError."""
    while True:
        try:
            return _bound(host, number)
        except (OSError, OverflowError):
            if time.monotonic() >= ends_at:
                raise
        time.sleep(0.1)


def _bound(host: str, number: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, number))
        listening.listen(BACKLOG)
    except (OSError, OverflowError):
        listening.close()
        raise
    return listening


def _is_in_use(problem: Exception) -> bool:
    return getattr(problem, "errno", None) == errno.EADDRINUSE


def _why(port: Port, problem: Exception) -> str:
    what = f"Port {port.number} ({port.title})"
    if _is_in_use(problem):
        return f"{what} is in use by another program, and clients cannot connect there. Set {port.setting} to another, or to 0."
    if getattr(problem, "errno", None) == errno.EACCES:
        return f"{what} requires root. Set {port.setting} to a port above 1023, or to 0."
    return f"{what} cannot be used: {problem}. Set {port.setting} to another port, or LISTEN_HOST to an address of this machine."
