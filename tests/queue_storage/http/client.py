"""Signed requests as bytes on a socket: what the official clients would never send, too."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

from broker_core.queue_storage.rules import shared_key
from broker_core.queue_storage.rules.shared_key import Credential, SignedParts, texts_to_sign
from broker_core.wire.http.dates import write_rfc1123

Headers = Sequence[tuple[str, str]]


class Reply(NamedTuple):
    """headers: by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return self.headers.get("x-ms-error-code", "")

    @property
    def root(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)

    def text(self, path: str) -> str | None:
        return self.root.findtext(path)


@dataclass
class Client:
    """One kept-alive connection, with an account's key."""

    port: int
    account: str
    key: str

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def request(
        self,
        method: str,
        path: str = "",
        query: str = "",
        body: bytes = b"",
        headers: Headers = (),
        *,
        host: str = "",
        scheme: str = shared_key.SHARED_KEY,
        sign: bool = True,
        date: datetime | None = None,
        whole_path: str | None = None,
    ) -> Reply:
        """path: below the account. sign: whether the request carries a signature. date: of the request; None: now."""
        path = f"/{self.account}{path}" if whole_path is None else whole_path
        sent = [("Host", host or f"127.0.0.1:{self.port}"), *headers]
        if body or method in ("PUT", "POST"):
            sent.append(("Content-Length", str(len(body))))
        if sign:
            sent.append(("x-ms-date", write_rfc1123(date or datetime.now(UTC))))
            sent.append(("Authorization", self.authorization(method, path, query, sent, scheme)))
        return self.send(method, path + (f"?{query}" if query else ""), sent, body)

    def authorization(self, method: str, path: str, query: str, headers: Headers, scheme: str = shared_key.SHARED_KEY) -> str:
        parts = [part.partition("=") for part in query.split("&") if part]
        pairs = [(unquote(name), unquote(value)) for name, _, value in parts]
        [text, *_] = texts_to_sign(Credential(scheme, self.account, ""), SignedParts(method, path, pairs, headers))
        return f"{scheme} {self.account}:{shared_key.sign(text, self.key)}"

    def send(self, method: str, target: str, headers: Headers, body: bytes = b"") -> Reply:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._socket.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return self.read(method)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, method: str = "GET") -> Reply:
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if method == "HEAD" or status == 204 else int(headers.get("content-length", 0))
        return Reply(status, headers, self._file.read(length))
