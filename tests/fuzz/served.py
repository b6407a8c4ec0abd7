"""What each target of whole requests is sent to."""

from __future__ import annotations

from collections.abc import Callable

from .queue_storage.requests import QueueStorage
from .requests import Served
from .service_bus.requests import ServiceBus

SERVED: dict[str, Callable[[], Served]] = {"queue_storage_request": QueueStorage, "service_bus_request": ServiceBus}
