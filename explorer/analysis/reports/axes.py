"""The time axis of a chart: the intervals of a range from where the history begins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .scope import Range


@dataclass(frozen=True, slots=True)
class Axis:
    """starts: of the intervals. partial: which of them are only partly in the range."""

    starts: list[datetime]
    partial: list[bool]


def axis(span: Range, since: datetime | None) -> Axis:
    """The intervals of a range, without those before `since`, the first step of the history that is known. Pure."""
    starts, partial = span.buckets, span.partial
    first = next((i for i, at in enumerate(starts) if since and since < at + span.bucket), 0)
    return Axis(starts[first:], partial[first:])
