"""Signed requests as bytes on a socket: what the official clients would never send, too."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import unquote

from broker_core.queue_storage.rules import shared_key
from broker_core.queue_storage.rules.shared_key import Credential, SignedParts, texts_to_sign
from broker_core.wire.http.dates import write_rfc1123
from tests.wire.http_connection import Headers, HttpConnection, Reply


class StorageReply(Reply):
    @property
    def code(self) -> str:
        return self.headers.get("x-ms-error-code", "")


class Client(HttpConnection[StorageReply]):
    """One kept-alive connection, with an account's key."""

    reads = StorageReply

    def __init__(self, port: int, account: str, key: str):
        super().__init__(port)
        self.account, self.key = account, key

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
    ) -> StorageReply:
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
