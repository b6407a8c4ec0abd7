"""Finding what others may create or delete at the same time."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.common.errors import EntityExists, EntityNotFound
from broker_core.store.driver import Steps


def find_or_create(find: Callable[[], Steps], create: Callable[[], Steps]) -> Steps:
    """What `find` finds, else what `create` makes, unless another process is faster: then what that made."""
    try:
        return (yield from find())
    except EntityNotFound:
        pass
    try:
        return (yield from create())
    except EntityExists:
        return (yield from find())
