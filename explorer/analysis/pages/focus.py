"""What the answers say of the one receiver or the one reason that a page asks about. Pure: from the tables of stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.charts.labels import brief
from explorer.frames.presenters import actor_name

from .. import wording
from ..jobs import outcomes
from ..reports.listing import messages_url
from ..reports.losses import LOST
from ..reports.receivers import unsuccessful
from ..reports.report import counted, duration, percent
from ..reports.scope import Scope
from ..reports.tables import Tables

RECEIVER, REASON = "receiver", "reason"  # parameters of a page
NAMES = (RECEIVER, REASON)
LONGEST = 512


@dataclass(frozen=True, slots=True)
class Focus:
    """What is known of it. url: its messages; empty: there are none."""

    sentence: str
    url: str = ""
    words: str = ""


def chosen(data: Mapping[str, str]) -> dict[str, str]:
    """The receiver and the reason that a page's parameters name."""
    return {name: data[name][:LONGEST] for name in NAMES if data.get(name)}


def focuses(about: Mapping[str, str], tables: Mapping[str, tuple[Scope, Tables]]) -> list[Focus]:
    """about: as `chosen`. tables: of the stored results by report, each with what it answers."""
    found = []
    if RECEIVER in about and "receivers" in tables:
        scope, made = tables["receivers"]
        found.append(of_receiver(about[RECEIVER], scope, made["receivers"], made.only_row("all")))
    if REASON in about and "losses" in tables:
        scope, made = tables["losses"]
        found.append(of_reason(about[REASON], scope, made["causes"], made.only_row("totals").lost or 0))
    return found


def of_receiver(receiver: str, scope: Scope, rows: Sequence[Any], everything: Any) -> Focus:
    """rows, everything: of the report on receivers."""
    name = actor_name(receiver)
    row = next((row for row in rows if row.receiver and actor_name(row.receiver) == name), None)
    if row is None:
        return Focus(f"{name} received nothing of {scope.name} in this range.")
    failed = unsuccessful(row)
    others = everything.deliveries - row.deliveries
    text = f"{name} had {counted(row.deliveries, 'delivery', 'deliveries')} of {scope.name}"
    if row.work_us is not None:
        text += f", half processed within {brief(duration(row.work_us))}"
    text += f"; {percent(failed / row.deliveries)} did not succeed"
    if others:
        text += f", of the others' {percent((everything.unsuccessful - failed) / others)}"
    url = messages_url(scope.query, scope.range.start, scope.range.end, deliveries="all", receiver=row.receiver)
    return Focus(f"{text}.", url, f"Messages of {name}")


def of_reason(reason: str, scope: Scope, causes: Sequence[Any], lost: int) -> Focus:
    """causes: of the report on losses."""
    rows = [
        row for row in causes if row.cause == reason or (row.outcome == outcomes.EXPIRED and reason in outcomes.EXPIRY_REASONS)
    ]
    if not rows:
        return Focus(f"No messages of {scope.name} were lost for the reason {reason} in this range.")
    messages = sum(row.messages for row in rows)
    first = rows[0]
    text = f"{reason}: {counted(messages, 'message')} of {scope.name}, {percent(messages / lost)} of what was lost in this range"
    since = min(row.since for row in rows)
    url = messages_url(
        {"queue": first.entity_id}, first.entered_at, scope.range.end, left_start=scope.range.start, left_end=scope.range.end,
        outcome=LOST[first.outcome], cause=first.cause or "", order="left",
    )  # fmt: skip
    outcome = wording.OUTCOMES[LOST[first.outcome]]
    return Focus(f"{text}; known since {since:%Y-%m-%d %H:%M} UTC.", url, f"Messages that were {outcome}")
