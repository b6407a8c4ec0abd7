"""Failed authentications of network clients: each is answered late, and an address that has many of them is refused for a while.

Settings: FAILED_AUTHENTICATION_DELAY_SECONDS until the answer; FAILED_AUTHENTICATIONS (0: any number) from one address within
FAILED_AUTHENTICATION_WINDOW_SECONDS, after which it is refused for FAILED_AUTHENTICATION_REFUSAL_SECONDS, with a valid key, too.
Each process counts what it has seen.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from django.conf import settings

from broker_core.common.errors import BrokerError

from .peers import network_of

DEFAULTS = {
    "FAILED_AUTHENTICATION_DELAY_SECONDS": 1,
    "FAILED_AUTHENTICATIONS": 10,
    "FAILED_AUTHENTICATION_WINDOW_SECONDS": 60,
    "FAILED_AUTHENTICATION_REFUSAL_SECONDS": 60,
}
MOST_PEERS = 10_000  # of which failures are known; the one whose last failure is the oldest is forgotten


class TooManyFailedAuthentications(BrokerError):
    """A request from an address that is refused for a while. retry_after: in whole seconds, rounded up."""

    retryable = True

    def __init__(self, seconds: float):
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(
            f"Too many failed authentications from this address. It is refused for another {self.retry_after} s. "
            "Check the key of each client there, then try again."
        )


@dataclass(slots=True)
class _Peer:
    """failed_at: the latest failures that count, the oldest first. refused_until: 0: it is not refused."""

    failed_at: deque[float] = field(default_factory=deque)
    refused_until: float = 0.0


class FailedAuthentications:
    """What one process knows. clock: in seconds. sleep: waits without blocking other tasks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep):
        self._clock, self._sleep = clock, sleep
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def require_allowed(self, peer: str) -> None:
        """Raise TooManyFailedAuthentications while the peer is refused."""
        known = self._peers.get(peer)
        if known and (seconds := known.refused_until - self._clock()) > 0:
            raise TooManyFailedAuthentications(seconds)

    def count(self, peer: str) -> None:
        """A failure of the peer, which may be the one that makes it refused."""
        limit = _setting("FAILED_AUTHENTICATIONS")
        if limit <= 0:
            return
        now, known = self._clock(), self._peers.setdefault(peer, _Peer())
        self._peers.move_to_end(peer)
        known.failed_at.append(now)
        while known.failed_at and known.failed_at[0] <= now - _setting("FAILED_AUTHENTICATION_WINDOW_SECONDS"):
            known.failed_at.popleft()
        if len(known.failed_at) >= limit:
            known.failed_at.clear()
            known.refused_until = now + _setting("FAILED_AUTHENTICATION_REFUSAL_SECONDS")
        if len(self._peers) > MOST_PEERS:
            self._peers.popitem(last=False)

    async def failed(self, peer: str) -> None:
        """Count a failure, and return when it may be answered."""
        self.count(peer)
        await self._sleep(_setting("FAILED_AUTHENTICATION_DELAY_SECONDS"))

    @asynccontextmanager
    async def limited(self, peer: str, is_failure: Callable[[BaseException], bool]) -> AsyncIterator[None]:
        """Around an authentication: refuse a refused peer, and treat an exception of which `is_failure` is true as `failed`."""
        self.require_allowed(peer)
        try:
            yield
        except BrokerError as problem:
            if is_failure(problem):
                await self.failed(peer)
            raise


def _setting(name: str) -> int:
    return getattr(settings, name, DEFAULTS[name])


def peer_of(client: str, *, is_from_page: bool = False) -> str:
    """What failures are counted by: the client's address or network.

    is_from_page: whether a browser made the request for a page elsewhere. These are counted apart, so that a page cannot have
    the programs of its visitor's machine refused.
    """
    return f"{network_of(client)} (pages)" if is_from_page else network_of(client)


failed_authentications = FailedAuthentications()
