"""What is fuzzed: each target takes any bytes, and fails if a parser does anything but read or refuse them as it promises.

None needs a database, except whole requests (seeds.REQUESTS, requests.py), which are none of these.
"""

from __future__ import annotations

from collections.abc import Callable

from .queue_storage import targets as queue_storage
from .service_bus import targets as service_bus

TARGETS: dict[str, Callable[[bytes], None]] = queue_storage.TARGETS | service_bus.TARGETS
