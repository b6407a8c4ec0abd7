"""HTTP client for one queue. It uses the public HTTP interface and a shared access key."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from broker_core.common.types import EntityAddress
from broker_core.service_bus.entities import shared_access
from broker_core.service_bus.rules import sas
from broker_core.service_bus.rules.values import Message

TIMEOUT_SECONDS = 2.0
TOKEN_SECONDS = 300


class Refused(http.client.HTTPException):
    """The HTTP front end answered with an unexpected status. The text contains the status and the body."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message locked over HTTP. location: the path of its lock."""

    body: bytes
    location: str


class HttpQueue:
    """A connection to one queue, opened on demand and reopened after a failure.

    site: base URL with path prefix ("http://127.0.0.1:8000"). policy: the shared access policy that signs the tokens; also the
    program's name (User-Agent).
    Every call raises OSError or http.client.HTTPException if the server cannot be reached, and Refused on an error status.
    """

    def __init__(self, site: str, address: EntityAddress, policy: str):
        parts = urlsplit(site)
        self._address, self._policy = address, policy
        self._connection = http.client.HTTPConnection(parts.hostname or "localhost", parts.port, timeout=TIMEOUT_SECONDS)
        self._path = f"{parts.path}/servicebus/{quote(address.namespace)}/{quote(address.path)}"
        self._uri = f"http://{parts.netloc}{self._path}"
        self._key = ""

    def send(self, message: Message) -> None:
        names = {"MessageId": message.message_id, "CorrelationId": message.correlation_id, "Label": message.subject}
        headers = {
            "Content-Type": message.content_type or "application/octet-stream",
            "BrokerProperties": json.dumps({name: value for name, value in names.items() if value}),
            "Vitrine-Properties": json.dumps(dict(message.properties)),
        }
        self._request("POST", f"{self._path}/messages", 201, body=message.body, headers=headers)

    def receive(self) -> Delivery | None:
        """Lock one message; None when there is none."""
        status, answer, body = self._request("POST", f"{self._path}/messages/head?timeout=0", 201, 204)
        return Delivery(body, urlsplit(answer["Location"]).path) if status == 201 else None

    def receive_and_delete(self) -> bytes | None:
        """Receive and delete one message: its body, or None when there is none."""
        status, _, body = self._request("DELETE", f"{self._path}/messages/head?timeout=0", 200, 204)
        return body if status == 200 else None

    def complete(self, delivery: Delivery) -> bool:
        """Settle the message. Returns whether the lock was still held."""
        return self._request("DELETE", delivery.location, 200, 404)[0] == 200

    def unlock(self, delivery: Delivery) -> bool:
        """Release the lock. Returns whether it was still held."""
        return self._request("PUT", delivery.location, 200, 404)[0] == 200

    def close(self) -> None:
        self._connection.close()

    def _request(self, method: str, path: str, *expected: int, body: bytes = b"", headers: dict[str, str] | None = None):
        all_headers = {"Authorization": self._token(), "User-Agent": self._policy, **(headers or {})}
        try:
            self._connection.request(method, path, body=body, headers=all_headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if answer.status not in expected:
            self._key = ""  # it may have been regenerated
            raise Refused(f"{method} {path}: {answer.status} {content[:300].decode(errors='replace')}")
        return answer.status, answer.headers, content

    def _token(self) -> str:
        self._key = self._key or shared_access.get_policy(self._address, self._policy).primary_key
        return sas.sign(self._uri, self._policy, self._key, int(time.time()) + TOKEN_SECONDS)
