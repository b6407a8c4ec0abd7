"""Instants as the browser gets them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ms(at: datetime) -> int:
    """Whole milliseconds, always rounded down, so that the browser computes the same differences."""
    return (at - EPOCH) // timedelta(milliseconds=1)
