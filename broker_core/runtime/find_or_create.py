"""Finds or creates an object that other processes may create concurrently."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.common.errors import EntityExists, EntityNotFound
from broker_core.store.driver import Steps


def find_or_create(find: Callable[[], Steps], create: Callable[[], Steps]) -> Steps:
    """Return what `find` returns; if it raises EntityNotFound, create the object, or find the one created concurrently."""
    try:
        return (yield from find())
    except EntityNotFound:
        pass
    try:
        return (yield from create())
    except EntityExists:
        return (yield from find())
