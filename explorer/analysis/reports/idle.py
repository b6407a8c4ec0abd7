"""Idle and storage: which queues nobody uses, what deleting them after a time would have removed, and what takes the space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from django.db.models import Max, Min, Sum
from django.template.defaultfilters import filesizeformat

from broker_core import reads
from broker_core.common.durations import human
from broker_core.common.types import EntityAddress, EntityKind, HistoryLevel, SubQueue
from broker_core.form_fields import DurationField
from broker_core.models import ArchiveFile, Entity
from explorer.shared.charts import WIDTHS

from .. import messages
from ..jobs import measures
from ..listing import messages_url
from . import stored
from .drawings import ShareRow, named_heat_map, share_rows
from .forms import ReportForm
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, difference, percent
from .scope import HOUR, INSTANT, Range, Scope, floor, generated, of_measure, sums

EXAMPLES = tuple(timedelta(hours=hours) for hours in (1, 6, 24, 72, 7 * 24, 14 * 24, 30 * 24, 90 * 24))
MOST_DRAWN = 12
LOOK_BACK = timedelta(days=7)  # a message that left in the range entered at most so long before
REMOVED = (
    Column("after", "Deleted after", "setting"),
    Column("queues", "Queues", "count", has_bar=True),
    Column("used", "Used again later", "count"),
    Column("messages", "Messages in them now", "count"),
    Column("bytes", "Bytes in them now", "count"),
)
IDLE = (
    Column("queue", "Queue"),
    Column("now", "Idle now for", "setting"),
    Column("longest", "Longest idle time", "setting"),
    Column("from", "From, UTC", "instant"),
    Column("until", "Used again, UTC", "instant"),
    Column("messages", "Messages now", "count"),
    Column("bytes", "Bytes now", "count"),
)
STORED = (
    Column("queue", "Queue"),
    Column("bytes", "Bytes now", "count", has_bar=True),
    Column("share", "Share", "share"),
    Column("messages", "Messages now", "count"),
    Column("left", "Left in this range", "count"),
    Column("left_bytes", "Bytes that left", "count"),
    Column("size", "Bytes a message", "number"),
    Column("mean", "Bytes stored, mean", "number"),
)
ARCHIVED = (
    Column("content", "Content"),
    Column("files", "Files", "count"),
    Column("rows", "Rows", "count"),
    Column("bytes", "Bytes", "count", has_bar=True),
    Column("first", "From day"),
    Column("last", "To day"),
)
NOTES = (
    "A queue was idle between the hours in which its history shows use, so idle times are at least as long as stated. "
    "Receivers that only looked for messages are not in the history, but they are use: such a queue would not be deleted.",
    "Queues whose history level is off are not judged. Bytes now include dead letters; those that left, and the mean, are of the "
    "main lists. The mean is of the messages that were there in the range, also those that have not left: their sizes times how "
    "long they stayed in it, divided by the range.",
)


class IdleForm(ReportForm):
    DEFAULTS = {"range": "30d"}

    x = DurationField(label="Deleted after", required=False, help_text='Without use, such as "7 days".')


@dataclass(frozen=True, slots=True)
class Spell:
    """A time without use. until: when it ended; None: it goes on."""

    since: datetime
    until: datetime | None
    length: timedelta


@dataclass(frozen=True, slots=True)
class Queue:
    """spells: times without use, in order. left: messages that left, and their bytes. byte_us: of all that were there, bytes
    times microseconds; None: not known, too many left later."""

    entity_id: int
    spells: tuple[Spell, ...]
    messages: int
    bytes: int
    left: int = 0
    left_bytes: int = 0
    byte_us: float | None = None

    @property
    def longest(self) -> Spell | None:
        return max(self.spells, key=lambda one: one.length, default=None)

    @property
    def now(self) -> timedelta | None:
        """How long it has been idle; None: it is not."""
        return self.spells[-1].length if self.spells and self.spells[-1].until is None else None

    def deleted(self, after: timedelta) -> Spell | None:
        """The first time without use that would have been its end."""
        return next((one for one in self.spells if one.length >= after), None)


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    span, rows = scope.range, scope.rows()
    present = {row.id: row for row in _present(scope)}
    known = {one.pk for one in scope.entities if one.history_level != HistoryLevel.OFF and not one.deleted_at}
    by_sending = {one.pk for one in scope.entities if sending_is_use(scope, one)}
    used = used_hours(rows, by_sending)
    for one in scope.present(span.end):
        if one.entity_id in by_sending:
            used.setdefault(one.entity_id, set()).add(one.hour)
    left, areas = _left(scope, span), _areas(scope, span)
    queues = [
        Queue(
            one.pk, tuple(spells(used.get(one.pk, ()), _begun(one, used, span), span.end)) if one.pk in known else (),
            present[one.pk].counts.total if one.pk in present else 0, present[one.pk].size_bytes if one.pk in present else 0,
            *left.get(one.pk, (0, 0)), areas.get(one.pk, 0.0) if areas is not None else None,
        )
        for one in scope.entities
    ]  # fmt: skip
    said = f"{sentence(queues, values['x'], scope.family.limits.idle)} {storage_sentence(queues, scope.paths)}".strip()
    if scope.compared:
        before = _left(scope, scope.compared)
        counts = [sum(each[0] for each in one.values()) for one in (left, before)]
        said += f" {counted(counts[0], 'message')} left. {difference(counts[0], counts[1], scope.compared)}"
    return Report(said, _sections(scope, queues, used, values["x"]), NOTES, generated(rows))


def sending_is_use(scope: Scope, entity: Entity) -> bool:
    """Whether messages that arrive keep a queue from being deleted."""
    return scope.family.limits.sending_is_use and entity.kind != EntityKind.SUBSCRIPTION


def used_hours(rows: pa.Table, by_sending: Iterable[int]) -> dict[int, set[datetime]]:
    """The hours in which queues were used: by receivers, and those of by_sending also by senders. rows: of roll-ups. Pure."""
    found: dict[int, set[datetime]] = {}
    sent = set(by_sending)
    for measure, columns in ((measures.HELD, ("hour", "end_hour")), (measures.LIFE, ("hour",))):
        for column in columns:
            for entity_id, hour, _ in sums(of_measure(rows, measure), "entity_id", column):
                if measure == measures.HELD or entity_id in sent:
                    found.setdefault(entity_id, set()).add(hour)
    return found


def spells(used: Iterable[datetime], start: datetime, end: datetime) -> list[Spell]:
    """The times without use between start and end, of at least an hour. used: hours with use. Pure."""
    found, since = [], start
    for hour in sorted(used):
        if hour + HOUR <= start or hour >= end:
            continue
        if hour - since >= HOUR:
            found.append(Spell(since, hour, hour - since))
        since = max(since, hour + HOUR)
    if end - since >= HOUR:
        found.append(Spell(since, None, end - since))
    return found


def sentence(queues: Sequence[Queue], after: timedelta | None, setting: str) -> str:
    """How many queues are idle, and what deleting them would have removed."""
    judged = [one for one in queues if one.spells]
    if not judged:
        return "No queue was idle for an hour or more."
    if after is None:
        longest = max(judged, key=lambda one: one.now or timedelta(0))
        idle = [one for one in judged if one.now]
        if not idle:
            return "All queues were used in the last hour."
        said = f"{counted(len(idle), 'queue')} of {len(queues):,} {'is' if len(idle) == 1 else 'are'} idle now"
        has = "it has" if len(idle) == 1 else "they have"
        return f"{said}, the longest for at least {human(longest.now)}; {has} {_messages(idle)}."
    removed = [one for one in judged if one.deleted(after)]
    if not removed:
        return f"Deleting queues that nobody used for {human(after)} would have removed none."
    missed = sum(spell.until is not None for one in removed if (spell := one.deleted(after)))
    how = setting or "Deleting queues"
    said = f"{how[0].upper()}{how[1:]} after {human(after)} without use would have removed {counted(len(removed), 'queue')}"
    again = f", {missed:,} of which {'was' if missed == 1 else 'were'} used again later" if missed else ""
    return f"{said}{again}; now {'it has' if len(removed) == 1 else 'they have'} {_messages(removed)}."


def storage_sentence(queues: Sequence[Queue], names: Mapping[int, str]) -> str:
    """Which queue takes most space."""
    total, most = sum(one.bytes for one in queues), max(queues, key=lambda one: one.bytes, default=None)
    if not total or most is None:
        return "No bytes are stored."
    of = f", {percent(most.bytes / total)} of them in {names[most.entity_id]}" if len(queues) > 1 else ""
    return f"{filesizeformat(total)} are stored{of}."


def _begun(entity: Entity, used: Mapping[int, set[datetime]], span: Range) -> datetime:
    """Since when a queue is judged: imported history may be older than the queue."""
    return max(span.start, min([entity.created_at, *used.get(entity.pk, ())]))


def _messages(queues: Sequence[Queue]) -> str:
    return f"{counted(sum(one.messages for one in queues), 'message')} ({filesizeformat(sum(one.bytes for one in queues))})"


def _present(scope: Scope) -> list[reads.EntityRow]:
    if scope.namespace.deleted_at or (not scope.is_whole and scope.entities[0].deleted_at):
        return []
    if scope.is_whole:
        return reads.overview(scope.namespace.name, include_hidden=True)
    return [reads.entity(EntityAddress(scope.namespace.name, scope.entities[0].path))]


def _left(scope: Scope, span: Range) -> dict[int, tuple[int, int]]:
    """By queue: the messages that left its main list in a range, and their bytes."""
    total = _lives(scope, span).group_by("entity_id").aggregate([("size", "count"), ("size", "sum")])
    rows = zip(*(total[name].to_pylist() for name in ("entity_id", "size_count", "size_sum")), strict=True)
    return {entity_id: (count, size) for entity_id, count, size in rows}


def _areas(scope: Scope, span: Range) -> dict[int, float] | None:
    """By queue: the bytes of the messages that were in its main list in a range, times the microseconds there;
    None: not known, because too many have left since then."""
    try:
        lives = _lives(scope, Range(span.start, max(span.end, scope.now)))
    except messages.TooManyLives:
        return None
    first, over = (pa.scalar(at, INSTANT).cast(pa.int64()) for at in (span.start, span.end))
    since = pc.max_element_wise(pc.cast(lives["enqueued_at"], pa.int64()), first)
    until = pc.min_element_wise(pc.cast(lives["ended_at"], pa.int64()), over)
    length = pc.max_element_wise(pc.subtract(until, since), 0)  # below 0: it entered after the range
    area = pc.multiply(pc.cast(lives["size"], pa.float64()), pc.cast(length, pa.float64()))
    total = pa.table({"entity_id": lives["entity_id"], "area": area}).group_by("entity_id").aggregate([("area", "sum")])
    found: dict[int, float] = dict(zip(total["entity_id"].to_pylist(), total["area_sum"].to_pylist(), strict=True))
    for entity_id, area in scope.present_bytes(span).items():
        found[entity_id] = found.get(entity_id, 0.0) + area
    return found


def _lives(scope: Scope, span: Range) -> pa.Table:
    """The messages that left main lists in a range. Raises TooManyLives."""
    lives = stored.lives(scope, span.start - LOOK_BACK, span, ("entity_id", "subqueue", "size", "enqueued_at", "ended_at"))
    lives = lives.filter(pc.and_(pc.equal(lives["subqueue"], int(SubQueue.MAIN)), pc.is_valid(lives["enqueued_at"])))
    return lives.set_column(2, "size", pc.fill_null(lives["size"], 0))


def _sections(scope: Scope, queues: Sequence[Queue], used: Mapping[int, set[datetime]], after: timedelta | None) -> list[Section]:
    judged = [one for one in queues if one.spells]
    return [
        *_use(scope, judged, used), *([_removals(scope, judged, after)] if judged else []), *_idle(scope, judged),
        _storage(scope, queues), *_archive(scope),
    ]  # fmt: skip


def _use(scope: Scope, judged: Sequence[Queue], used: Mapping[int, set[datetime]]) -> list[Section]:
    idlest = sorted(judged, key=lambda one: -(one.longest.length if one.longest else timedelta(0)))[:MOST_DRAWN]
    if not idlest:
        return []
    span = scope.range
    hours = span.bucket / HOUR
    rows = []
    for one in idlest:
        shares = dict.fromkeys(span.buckets, 0.0)
        for hour in used.get(one.entity_id, ()):
            at = floor(hour, span.bucket)
            if at in shares:
                shares[at] = min(1.0, shares[at] + 1 / hours)
        rows.append((scope.paths[one.entity_id], list(shares.values())))
    label = f"When the idlest queues were used, by {span.unit}"
    charts = [named_heat_map(span.buckets, rows, one, span.partial) for one in WIDTHS]
    caption = f"share of the hours of each {span.unit} with use" if hours > 1 else "hours with use"
    return [Section("use", "Use", figures=[Figure(label, charts, "heat", caption, template="explorer/analysis/_heat_map.svg")])]


def _removals(scope: Scope, judged: Sequence[Queue], after: timedelta | None) -> Section:
    rows = []
    for one in sorted({*(each for each in EXAMPLES if each <= scope.range.length), *([after] if after else [])}):
        removed = [(queue, spell) for queue in judged if (spell := queue.deleted(one))]
        again = sum(spell.until is not None for _, spell in removed)
        rows.append((one, len(removed), again, sum(q.messages for q, _ in removed), sum(q.bytes for q, _ in removed)))
    setting = scope.family.limits.idle
    text = f"The setting is {setting}." if setting else "These queues have no such setting: they can be deleted by hand."
    return Section(
        "removals", "What deleting unused queues would have removed", text, table=Table("removals", "Removals", REMOVED, rows)
    )


def _idle(scope: Scope, judged: Sequence[Queue]) -> list[Section]:
    rows = []
    for one in sorted(judged, key=lambda one: (-(one.now or timedelta(0)), -(one.longest or one.spells[0]).length)):
        longest = one.longest or one.spells[0]
        rows.append((scope.paths[one.entity_id], one.now, longest.length, longest.since, longest.until, one.messages, one.bytes))
    return [Section("idle", "Idle queues", table=Table("idle", "Idle queues", IDLE, rows))] if rows else []


def _storage(scope: Scope, queues: Sequence[Queue]) -> Section:
    total, span, paths = sum(one.bytes for one in queues), scope.range, scope.paths
    ordered = sorted(queues, key=lambda one: (-one.bytes, -one.left_bytes, paths[one.entity_id]))
    drawn = [one for one in ordered if one.bytes][:MOST_DRAWN]
    label = "Share of the stored bytes by queue"
    bars = [ShareRow(paths[one.entity_id], one.bytes / total, f"{paths[one.entity_id]}: {one.bytes:,} bytes") for one in drawn]
    charts = [share_rows(bars, one) for one in WIDTHS]
    figures = [Figure(label, charts, "bars", label, template="explorer/analysis/_gantt.svg")] if len(queues) > 1 and drawn else []
    rows = [
        (paths[one.entity_id], one.bytes, one.bytes / total if total else None, one.messages,
         Link(one.left, messages_url({"queue": one.entity_id}, span.start, span.end, left_start=span.start, left_end=span.end)),
         one.left_bytes, one.left_bytes / one.left if one.left else None,
         one.byte_us / (span.length / timedelta(microseconds=1)) if one.byte_us is not None else None)
        for one in ordered
    ]  # fmt: skip
    return Section("storage", "Storage", figures=figures, table=Table("storage", "Storage", STORED, rows))


def _archive(scope: Scope) -> list[Section]:
    """What the archive keeps of the namespace."""
    if not scope.is_whole:
        return []
    files = ArchiveFile.objects.filter(namespace_id=scope.namespace.pk).values("content").order_by("content")
    found = files.annotate(files=Sum(1), sum_rows=Sum("rows"), sum_bytes=Sum("bytes"), first=Min("day"), last=Max("day"))
    rows = [
        (one["content"], one["files"], one["sum_rows"], one["sum_bytes"], f"{one['first']}", f"{one['last']}") for one in found
    ]
    kept = scope.namespace.archive_days
    text = f"Files of days older than {counted(kept, 'day')} are deleted." if kept else "Files are kept indefinitely."
    return [Section("archive", "Archive of this namespace", text, table=Table("archive", "Archive", ARCHIVED, rows))]


ANALYSIS = Analysis(
    slug="idle", title="Idle and storage", group="happened", form=IdleForm, make=report,
    question="Which queues are unused, what would deleting them have removed, and what uses the storage?",
)  # fmt: skip
