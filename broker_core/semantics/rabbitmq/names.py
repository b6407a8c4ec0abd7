"""What a virtual host, an exchange and a queue may be called (reference, sections 1.1 to 1.3)."""

from __future__ import annotations

from broker_core.semantics.errors import InvalidArgument

DEFAULT_VHOST = "/"


def check_vhost_name(name: str) -> str:
    """A virtual host's name, given back unchanged; the default one is "/"."""
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 255 or any(c < " " or c == "\x7f" for c in name):
        raise InvalidArgument("vhost", f"{name!r} must have 1 to 255 bytes of UTF-8 without control characters")
    return name
