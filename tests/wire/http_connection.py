"""Requests as bytes on a socket: what clients would never send, too."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from xml.etree import ElementTree

Headers = Sequence[tuple[str, str]]


class Reply(NamedTuple):
    """headers: by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def root(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)

    def text(self, path: str) -> str | None:
        return self.root.findtext(path)


R = TypeVar("R", bound=Reply)


class HttpConnection(Generic[R]):
    """One kept-alive connection to a port of this machine. reads: the class of its replies."""

    reads: type[Any] = Reply

    def __init__(self, port: int):
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, method: str, target: str, headers: Headers, body: bytes = b"") -> R:
        self.send_bytes(request_bytes(method, target, headers, body))
        return self.read(method)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, method: str = "GET") -> R:
        """The next reply, of a request with this method."""
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if method == "HEAD" or status == 204 else int(headers.get("content-length", 0))
        return self.reads(status, headers, self._file.read(length))


def request_bytes(method: str, target: str, headers: Headers, body: bytes = b"") -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body
