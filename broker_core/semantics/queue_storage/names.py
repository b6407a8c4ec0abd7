"""What an account and a queue may be called (reference, sections 1.1 and 1.2)."""

from __future__ import annotations

import re

from broker_core.semantics.errors import InvalidArgument

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")


def check_account_name(name: str) -> str:
    """A storage account's name, given back unchanged."""
    if not isinstance(name, str) or not _ACCOUNT.fullmatch(name):
        raise InvalidArgument("account", f"{name!r} must have 3 to 24 lower-case letters and digits")
    return name
