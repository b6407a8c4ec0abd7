"""What if lock, maximum of deliveries, time-to-live and consumers had been different together: the replay of a queue's history
(simulation.py), with its own error beside every answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django import forms

from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument
from broker_core.form_fields import parse_human_or_iso
from explorer.shared.charts import brief
from explorer.shared.family import LimitPages, pages_of

from ..simulation import Outcome, Setting, TooMuch, grid, replay_all
from ..survival import CannotTell
from . import replay_history
from .forms import ReportForm
from .report import PREVIEWED, Analysis, Column, Link, Report, Section, Table, counted, joined, percent
from .scope import Scope

US = timedelta(microseconds=1)
MOST_VALUES = 5  # of one setting
FAR = 0.25  # an error of the replay from which on its answers are doubtful
CALIBRATION = (
    Column("what", "With the current settings"),
    Column("fact", "Actual", "figure"),
    Column("replayed", "Replayed", "figure"),
    Column("error", "Error", "figure"),
)
NOTES = (
    "The replay is a simulation over the real arrivals, work times, failures and absences of consumers; deliveries that there "
    "were not are drawn from those that there were.",
    "Consumers take as many messages as they prefetch, the oldest first, and work on them one after the other. Consumers are "
    "absent when messages waited for 5 s or more and not all consumers worked.",
    "Messages that were in the queue before the range, priorities and renewals are not replayed. The number of consumers and the "
    "prefetch in force are those seen in the deliveries.",
    PREVIEWED,
)


class ListField(forms.CharField):
    """Up to MOST_VALUES values, with commas between; empty: none."""

    def __init__(self, one: Callable[[str], Any], wrong: str, **kwargs: Any):
        super().__init__(required=False, max_length=200, **kwargs)
        self.one, self.wrong = one, wrong
        self.widget.attrs["autocomplete"] = "off"

    def clean(self, value: Any) -> list[Any]:
        parts = [part.strip() for part in super().clean(value).split(",") if part.strip()]
        if len(parts) > MOST_VALUES:
            raise forms.ValidationError(f"Enter at most {MOST_VALUES} values.")
        try:
            return list(dict.fromkeys(map(self.one, parts)))
        except (ValueError, InvalidArgument) as exc:
            raise forms.ValidationError(self.wrong) from exc


def _whole(text: str) -> int:
    return _between(int(text), 1, 1000)


def _limit(text: str) -> int:
    return _between(int(text), 0, 10_000)


def _pace(text: str) -> float:
    return _between(float(text), 0.01, 100)


def _between(value: Any, least: Any, most: Any) -> Any:
    if not least <= value <= most:
        raise ValueError(value)
    return value


def _duration(text: str) -> int:
    found = parse_human_or_iso(text)
    if found is None or found <= timedelta(0):
        raise ValueError(text)
    return found // US


_DURATIONS = 'Enter durations longer than 0, such as "30 s, 1 min".'


class ReplayForm(ReportForm):
    compare = None
    consumers = ListField(_whole, "Enter whole numbers from 1 to 1,000.", label="Consumers", help_text='Such as "1, 2, 4".')
    pace = ListField(_pace, "Enter factors from 0.01 to 100.", label="Speed", help_text="2: twice as fast as they were.")
    prefetch = ListField(_whole, "Enter whole numbers from 1 to 1,000.", label="Prefetch")
    lock = ListField(_duration, _DURATIONS, label="Lock")
    deliveries = ListField(_limit, "Enter whole numbers from 0 to 10,000.", label="Limit")
    time_to_live = ListField(_duration, _DURATIONS, label="Time-to-live", help_text="Of all messages; empty: each its own.")

    @property
    def own_fields(self) -> list[forms.BoundField]:
        if self.subject:
            limits = pages_of(self.subject.namespace.family).limits
            self["lock"].label, self["deliveries"].label = limits.lock.capitalize(), limits.deliveries.capitalize()
        return super().own_fields


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    try:
        return _replayed(scope, values)
    except (CannotTell, TooMuch) as problem:
        return Report("Nothing was replayed.", refusal=str(problem))


def _replayed(scope: Scope, values: Mapping[str, Any]) -> Report:
    limits = scope.family.limits
    in_force = limits.in_force(scope.entities[0])
    found = replay_history.read(scope, None if in_force is None else in_force + limits.more_deliveries)
    given = {name: values.get(name) or [] for name in ("consumers", "pace", "prefetch", "lock", "deliveries", "time_to_live")}
    given["deliveries"] = [n + limits.more_deliveries for n in given["deliveries"] if n + limits.more_deliveries]
    settings = grid(found.setting, **given) if any(given.values()) else []
    base, *others = replay_all(found.history, [found.setting, *settings])
    rows = calibration(found.actual, base)
    sections = [Section("calibration", "Replay error", table=Table("calibration", "Replay error", CALIBRATION, rows))]
    if others:
        pairs = list(zip(settings, others, strict=True))
        sections.insert(0, Section("settings", "Settings", best(pairs, limits), table=_table(scope, pairs)))
    error = error_of(found.actual, base)
    refusal = ""
    if error is None or error > FAR:
        refusal = (
            "With the current settings, the replay differs too much from what happened (see below). Do not rely on its answers."
        )
    return Report(sentence(found.actual, base, found.setting, limits), sections, NOTES, found.generated, refusal)


def sentence(actual: Outcome, base: Outcome, setting: Setting, limits: LimitPages) -> str:
    """What the replay is of, and how far it is from what really happened."""
    return (
        f"{counted(actual.messages, 'message')} replayed. With the current settings ({words(setting, limits)}), the replay "
        f"loses {base.lost:,} (actual: {actual.lost:,}); 95\xa0% are delivered within {_time(base.waiting)} "
        f"(actual: {_time(actual.waiting)}). Assumes that messages arrive, and consumers work, fail and are absent, as they did."
    )


def best(pairs: Sequence[tuple[Setting, Outcome]], limits: LimitPages) -> str:
    """The setting that loses fewest messages, and of these the one with the shortest wait."""
    setting, outcome = min(pairs, key=lambda pair: (pair[1].lost, -pair[1].processed, pair[1].waiting or 0))
    return (
        f"Of {counted(len(pairs), 'combination')}, {words(setting, limits)} is best: {counted(outcome.lost, 'message')} lost, "
        f"95\xa0% delivered within {_time(outcome.waiting)}, {counted(outcome.duplicates or 0, 'duplicate')}, at most "
        f"{outcome.depth:,} in the queue."
    )


def words(setting: Setting, limits: LimitPages) -> str:
    parts = [counted(setting.consumers, "consumer")]
    if setting.pace != 1:
        parts.append(f"speed {setting.pace:g}")
    if setting.prefetch != 1:
        parts.append(f"prefetch {setting.prefetch:,}")
    if setting.lock is not None:
        parts.append(f"{limits.lock} {human(setting.lock * US)}")
    if setting.deliveries is not None:
        parts.append(f"{limits.deliveries} {setting.deliveries - limits.more_deliveries:,}")
    if setting.time_to_live is not None:
        parts.append(f"time-to-live {human(setting.time_to_live * US)}")
    return joined(parts)


def calibration(actual: Outcome, base: Outcome) -> list[tuple[str, str, str, str]]:
    """What really happened and what the replay of the settings in force says."""
    counts = [
        ("Processed", actual.processed, base.processed), ("Expired", actual.expired, base.expired),
        ("Reached the limit of deliveries", actual.dead_lettered, base.dead_lettered),
        ("Locks lost", actual.locks_lost, base.locks_lost), ("Most messages in the queue", actual.depth, base.depth),
    ]  # fmt: skip
    rows = [(what, f"{really:,}", f"{said:,}", _error(really, said)) for what, really, said in counts]
    waits = ("95 % delivered within", _time(actual.waiting), _time(base.waiting))
    return [*rows, (*waits, _error(actual.waiting or 0, base.waiting or 0))]


def error_of(actual: Outcome, base: Outcome) -> float | None:
    """The largest error, as a share: of the losses among all messages, and of the wait. None: unknown."""
    if actual.waiting is None or base.waiting is None:
        return None
    wait = abs(base.waiting - actual.waiting) / max(actual.waiting, 1_000_000)  # below a second it does not matter
    return max(wait, abs(base.lost - actual.lost) / max(1, actual.messages))


def _table(scope: Scope, pairs: Sequence[tuple[Setting, Outcome]]) -> Table:
    limits, entity = scope.family.limits, scope.entities[0]
    columns = [
        Column("consumers", "Consumers", "count"), Column("pace", "Speed", "number"), Column("prefetch", "Prefetch", "count"),
        Column("lock", limits.lock.capitalize(), "setting"), Column("limit", limits.deliveries.capitalize(), "count"),
        Column("time_to_live", "Time-to-live", "setting"), Column("lost", "Lost", "count", has_bar=True),
        Column("waiting", "95\xa0% delivered within", "duration", has_bar=True), Column("duplicates", "Duplicates", "count"),
        Column("locks_lost", "Locks lost", "count"), Column("depth", "Most in the queue", "count"),
    ]  # fmt: skip
    rows = []
    for setting, outcome in pairs:
        lock, life = (None if us is None else us * US for us in (setting.lock, setting.time_to_live))
        limit = None if setting.deliveries is None else setting.deliveries - limits.more_deliveries
        url = "" if entity.deleted_at else limits.propose(entity, lock, limit, life)
        rows.append((
            Link(setting.consumers, url) if url else setting.consumers, setting.pace, setting.prefetch, lock, limit, life,
            outcome.lost, None if outcome.waiting is None else outcome.waiting * US, outcome.duplicates, outcome.locks_lost,
            outcome.depth,
        ))  # fmt: skip
    return Table("settings", "Settings", columns, rows)


def _error(really: float, said: float) -> str:
    if said == really:
        return "none"
    if not really:
        return "there was none"
    sign, share = "+" if said > really else "−", percent(abs(said - really) / really)
    return f"under {sign}{share.removeprefix('under ')}" if share.startswith("under ") else f"{sign}{share}"


def _time(us: int | None) -> str:
    return "no time, as none was" if us is None else brief(us * US)


ANALYSIS = Analysis(
    slug="replay", title="Replay with other settings and consumers", group="what_if", form=ReplayForm, make=report,
    question="What if the lock, limit, time-to-live, and the number, speed and prefetch of the consumers had been different?",
    needs_entity=True,
)  # fmt: skip
