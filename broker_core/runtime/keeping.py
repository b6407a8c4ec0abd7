"""Which entities keep the messages that end, and the statements that do so (docs/design.md D20).

A process reads it every few seconds, so a setting that another process changed counts after that time. Where nothing is kept, the
statements are those without keeping.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import ENVIRONMENT_VARIABLE, settings

from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import ENDING, KEEPING, Statement, call

from .caches import BoundedCache
from .room import disk

CHECK_SECONDS = 5.0
LONGEST = timedelta(days=7)
SHORTEST = timedelta(minutes=1)
DEFAULT_MEGABYTES = 1024


class Keeps(NamedTuple):
    """How long the messages of an entity are kept, and in which slot those that end now are stored."""

    period: timedelta
    slot: int


class _Known(NamedTuple):
    """checked_at: by time.monotonic. highest: an entity with a higher id was created since, in a database where some are kept."""

    checked_at: float
    entities: Mapping[int, Keeps] = {}
    highest: float = float("inf")


_known = BoundedCache(1_000)  # database -> _Known


def ending(name: str, entity_id: int, **params: Any) -> Steps[Statement]:
    """The statement of this name for an entity; if it ends messages, and they are kept, its variant that keeps them."""
    keeps = (yield from _look(entity_id)).get(entity_id) if name in ENDING else None
    if keeps is None:
        return call(name, entity_id=entity_id, **params)
    return call(name + KEEPING, entity_id=entity_id, kept_for=keeps.period, kept_slot=keeps.slot, **params)


def _look(entity_id: int) -> Steps[Mapping[int, Keeps]]:
    database, now = connections.current_database(), time.monotonic()
    known: _Known | None = _known.get(database)
    if known is None or now >= known.checked_at + CHECK_SECONDS or entity_id > known.highest:
        if known is not None and now < known.checked_at + 2 * CHECK_SECONDS:
            _known.keep(database, known._replace(checked_at=now))  # other calls use it meanwhile, unless its slots may be over
        rows = yield call("kept_entities")
        has_room = not rows or rows[0].used < limit() and not is_disk_full()
        entities = {row.entity_id: Keeps(row.period, row.slot) for row in rows} if has_room else {}
        known = _known.keep(database, _Known(now, entities, rows[0].highest if entities else float("inf")))
    return known.entities


def limit() -> int:
    """How many bytes kept messages may take in a database (VITRINE_KEPT_MB). While they have as many, no more are kept."""
    is_configured = settings.configured or os.environ.get(ENVIRONMENT_VARIABLE)
    return (getattr(settings, "VITRINE_KEPT_MB", DEFAULT_MEGABYTES) if is_configured else DEFAULT_MEGABYTES) * 2**20


def is_disk_full() -> bool:
    """Whether the reserve of the disk is touched: then nothing more is kept."""
    space = disk() if connections.current_database().alias == "default" else None
    return space is not None and space.missing > 0


def forget_keeping() -> None:
    """Discard what is known, so that the next call reads it again."""
    _known.clear()
