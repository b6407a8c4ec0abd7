"""The process's name, for the actor of local code, and tracking ids for errors. The pure rules receive both from here."""

from __future__ import annotations

import getpass
import os
from functools import lru_cache
from uuid import uuid4

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor


def name() -> str:
    """The user and process id, such as "ada@4711"; computed again after a fork."""
    return _name(os.getpid())


@lru_cache(maxsize=4)
def _name(pid: int) -> str:
    try:
        login = getpass.getuser()
    except (KeyError, OSError):
        login = "unknown"
    return f"{login}@{pid}"


def new_tracking_id() -> str:
    return str(uuid4())


Actor.process_name = name
BrokerError.new_tracking_id = new_tracking_id
