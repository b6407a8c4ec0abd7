"""GET /health, as the official emulator answers it. Anybody may ask, so the database is asked at most once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.service_bus.entities import shared_access
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.json_text import write_json

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 3.0


def is_asked(scope: Mapping[str, Any]) -> bool:
    return scope["path"] == "/health" and scope["method"] in ("GET", "HEAD")


async def answer() -> Answer:
    """200 if the database responds, else 503."""
    is_healthy = await _health.is_healthy()
    words = "healthy" if is_healthy else "unhealthy"
    body = write_json({"status": words, "message": f"Service is {words}."}).encode()
    return Answer(200 if is_healthy else 503, [("content-type", "application/json; charset=utf-8")], body)


class _Health:
    """What was seen last, and the look that is under way. Belongs to the process; one event loop after the other may ask."""

    def __init__(self) -> None:
        self._looking: asyncio.Task[bool] | None = None
        self._began_at = 0.0

    async def is_healthy(self) -> bool:
        now, looking = time.monotonic(), self._looking
        if (
            looking is None
            or looking.get_loop() is not asyncio.get_running_loop()
            or (looking.done() and now - self._began_at >= FRESH_SECONDS)
        ):
            looking = self._looking = asyncio.create_task(_responds())
            self._began_at = now
        return await asyncio.shield(looking)


async def _responds() -> bool:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await shared_access.stored_policies.aio([])
    except (BrokerError, TimeoutError):
        return False
    return True


_health = _Health()
