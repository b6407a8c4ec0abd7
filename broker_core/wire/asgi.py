"""The type of an ASGI application."""

from collections.abc import Awaitable, Callable
from typing import Any

Application = Callable[[Any, Any, Any], Awaitable[None]]
