"""A request to the REST API: what it addresses, its timeout, and its body up to the service's limit."""

from __future__ import annotations

import re
from functools import cached_property

from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.tokens import Verified
from broker_core.wire.http import request

from . import addresses

MAX_BODY_BYTES = 2 * 2**20  # a message of 1 MB, the service's limit over HTTP, in base64 and JSON
MAX_TIMEOUT_SECONDS = 3600.0
DEFAULT_TIMEOUT_SECONDS = 60.0
_SECONDS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,10})?")  # float() would take other digits than those of ASCII, too


class Request(request.Request):
    """A request to the REST API, on the site. verified: whose it is, when it was authenticated."""

    verified: Verified

    @cached_property
    def target(self) -> addresses.Target:
        return addresses.parse_scope(self._scope)

    @property
    def timeout_seconds(self) -> float:
        """The query parameter `timeout`. Raises InvalidArgument."""
        text = self.query("timeout")
        if text is None:
            return DEFAULT_TIMEOUT_SECONDS
        seconds = float(text) if _SECONDS.fullmatch(text) else -1.0
        if not 0 <= seconds <= MAX_TIMEOUT_SECONDS:
            raise InvalidArgument("timeout", f"{text[:40]!r} must be a number of seconds from 0 to {MAX_TIMEOUT_SECONDS:.0f}")
        return seconds

    async def body(self, most: int = MAX_BODY_BYTES) -> bytes:
        return await super().body(most)


class RootRequest(Request):
    """A request to the REST API on a port of its own: the namespace is that of the host or of the key."""

    @cached_property
    def target(self) -> addresses.Target:
        return addresses.parse_scope_at_root(self._scope)
