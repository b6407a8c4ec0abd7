"""Requests that no HTTP front end accepts."""

from __future__ import annotations

from broker_core.common.errors import BrokerError


class UnknownResource(BrokerError):
    """A URL without a resource."""


class MethodNotAllowed(BrokerError):
    """A method that the resource does not support. allowed: the supported ones."""

    def __init__(self, method: str, allowed: tuple[str, ...]):
        super().__init__(f"{method} is not allowed here; use {' or '.join(allowed)}.")
        self.method, self.allowed = method, allowed


class BodyTooLarge(BrokerError):
    """A request body over the limit (in bytes), which was not read completely. is_awaited: the client may not send it now, so
    that its connection cannot be used further."""

    def __init__(self, limit: int, *, is_awaited: bool = False):
        super().__init__(f"The request body exceeds {limit:,} bytes. Nothing was stored.")
        self.limit, self.is_awaited = limit, is_awaited


class ConnectionClosed(BrokerError):
    """An operator has closed the client's connections. reason: what the operator gave."""

    retryable = True

    def __init__(self, reason: str):
        super().__init__(f"The connection was closed: {reason}")
        self.reason = reason
