"""What a virtual host, an exchange and a queue may be called (reference, sections 1.1 to 1.3)."""

from __future__ import annotations

import base64

from broker_core.common.errors import InvalidArgument

from . import errors

DEFAULT_VHOST = "/"
DEFAULT_EXCHANGE = ""
RESERVED = "amq."
MAX_NAME = 255  # bytes: a name is a short string
TAG_PREFIX, QUEUE_PREFIX = "amq.ctag-", "amq.gen-"


def check_vhost_name(name: str) -> str:
    """A virtual host's name, given back unchanged; the default one is "/"."""
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 255 or any(c < " " or c == "\x7f" for c in name):
        raise InvalidArgument("vhost", f"{name!r} must have 1 to 255 bytes of UTF-8 without control characters")
    return name


def clean(name: str, what: str = "name") -> str:
    """A name as the server keeps it: without line ends (RMQ-322). Raises InvalidArgument for what no short string can hold.

    What cannot be stored is refused as well: a NUL character.
    """
    if not isinstance(name, str):
        raise InvalidArgument(what, f"must be a string, not {name!r}")
    name = name.replace("\r", "").replace("\n", "")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as exc:
        raise InvalidArgument(what, f"{name[:80]!r} is not valid UTF-8") from exc
    if size > MAX_NAME:
        raise InvalidArgument(what, f"has {size} bytes of UTF-8; at most {MAX_NAME} are allowed (RMQ-317)")
    if "\x00" in name:
        raise InvalidArgument(what, f"{name!r} contains a NUL character, which cannot be stored")
    return name


def check_new_queue_name(name: str) -> str:
    """The name in a declaration that is not passive, also of a queue that is there. Raises AmqpError for the reserved prefix
    (RMQ-324)."""
    if name.startswith(RESERVED):
        raise errors.reserved_queue_name(name)
    return name


def check_new_exchange_name(name: str) -> str:
    """The name of an exchange that is not there yet. Raises AmqpError for the reserved prefix (RMQ-307)."""
    if name.startswith(RESERVED):
        raise errors.reserved_exchange_name(name)
    return name


def generated(prefix: str, random: bytes) -> str:
    """A name the server makes: the prefix and 22 characters of base64url (RMQ-320). random: 16 bytes."""
    return prefix + base64.urlsafe_b64encode(random).decode().rstrip("=")
