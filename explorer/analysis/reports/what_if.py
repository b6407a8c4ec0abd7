"""What if? One queue with other settings and consumers: the answer of a replay (jobs/reports/what_if.py), or without a backlog of
the survival estimate; the band of both; and how far the replay is from what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from django import forms

from broker_core.common.durations import human
from broker_core.form_fields import DurationField
from explorer.charts.chart import WIDTHS
from explorer.charts.columns import share_bars
from explorer.charts.labels import brief
from explorer.frames.family import LimitPages

from ..jobs.replaying import BACKLOG, amount_band, share_band
from ..survival import CannotTell, Curve, Estimate
from .forms import ReportForm
from .report import PREVIEWED, Analysis, Column, Figure, Link, Report, Section, Table, counted, duration, joined, percent
from .scope import Scope
from .tables import Tables
from .times import Times, times_by

US = timedelta(microseconds=1)
LONGEST = timedelta(days=365)  # of a bound of waiting
MILLION = 1_000_000
FAR = 0.25  # an error of the replay from which on its answers are doubtful
NOW, CHOSEN, ACTUAL, REPLAYED = "now", "chosen", -1, 0
SHARES = {  # by the setting that is varied: the share that answers, and its words
    "consumers": (("prompt", "due"), "been received within {within}"),
    "time_to_live": (("unreceived", "messages"), "expired before the first delivery"),
    "lock": (("locks_lost", "deliveries"), "lost their lock"),
    "deliveries": (("dead_lettered", "messages"), "reached the limit of deliveries"),
}
FIELDS = {  # columns of settings
    "consumers": "consumers", "time_to_live": "time_to_live_us", "lock": "lock_us", "deliveries": "deliveries",
}  # fmt: skip
CALIBRATION = (
    Column("what", "With the current settings"),
    Column("fact", "Actual", "figure"),
    Column("replayed", "Replayed", "figure"),
    Column("error", "Error", "figure"),
)
NOTES = (
    "A replay is a simulation over the real arrivals, work times, failures and absences of consumers. Deliveries beyond "
    "those observed are sampled from the observed ones. Consumers take as many messages as they prefetch, the oldest first.",
    "Bands (95 %) are from replays of resampled blocks of time. Blocks end where no message waits, so that an outage stays whole "
    "with the messages that it delayed.",
    "Messages that were in the queue before the range, priorities and sessions are not replayed. The number of consumers and the "
    "prefetch in force are those seen in the deliveries; consumers are absent when messages waited for 5 s or more and not all "
    "consumers worked.",
    PREVIEWED,
)


class Microseconds(DurationField):
    """A duration as whole microseconds."""

    def clean(self, value: Any) -> int | None:  # type: ignore[override]
        microseconds = super().clean(value)
        return None if microseconds is None else microseconds // US


class WhatIfForm(ReportForm):
    """traits: what the job has to know of the queue; never taken from the URL."""

    DEFAULTS = {"range": "1d", "share": "95", "within": "1 min"}

    compare = None
    time_to_live = Microseconds(label="Time-to-live", required=False, help_text='Such as "30 s" or "5 min".')
    lock = Microseconds(label="Lock", required=False)
    deliveries = forms.IntegerField(label="Max deliveries", required=False, min_value=0, max_value=10_000)
    consumers = forms.IntegerField(label="Consumers", required=False, min_value=1, max_value=1000)
    share = forms.FloatField(label="Consumers needed for, %", min_value=1, max_value=100)
    within = Microseconds(label="received within")
    traits = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean_traits(self) -> dict[str, Any]:
        if self.subject is None or self.subject.is_whole:
            return {}
        limits = self.subject.family.limits
        limit = limits.delivery_limit(self.subject.entities[0])
        return {
            "deliveries": None if limit is None else limit + limits.more_deliveries, "more": limits.more_deliveries,
            "notices_crashes": limits.notices_crashes, "by_visibility": limits.by_visibility,
        }  # fmt: skip

    def clean_deliveries(self) -> int | None:
        count = self.cleaned_data["deliveries"]
        if count == 0 and self.subject and not self.subject.family.limits.more_deliveries:
            raise forms.ValidationError("0 would allow no delivery. Enter 1 or more.")
        return count

    def clean(self) -> dict[str, Any]:
        if self.subject:  # the family's words
            limits = self.subject.family.limits
            self["lock"].label, self["deliveries"].label = limits.lock.capitalize(), limits.deliveries.capitalize()
        return super().clean()


@dataclass(frozen=True)
class Answers:
    """The tables of the job."""

    tables: Tables

    @cached_property
    def about(self) -> Any:
        return self.tables.only_row("about")

    @cached_property
    def settings(self) -> Sequence[Any]:
        return sorted(self.tables["settings"], key=lambda setting: setting.setting)

    @cached_property
    def _outcomes(self) -> dict[int, dict[int, Any]]:
        by_setting: dict[int, dict[int, Any]] = {}
        for row in self.tables["outcomes"]:
            by_setting.setdefault(row.setting, {})[row.resample] = row
        return by_setting

    @property
    def chosen(self) -> Any:
        """The setting that was asked for; the one in force, if none was."""
        return next((setting for setting in self.settings if setting.role == CHOSEN), self.settings[0])

    @property
    def actual(self) -> Any:
        return self._outcomes[0][ACTUAL]

    def outcome(self, setting: Any) -> Any:
        return self._outcomes[setting.setting][REPLAYED]

    def share(self, setting: Any, names: tuple[str, str]) -> tuple[float, float, float]:
        """A share of the replay, and its band."""
        part, whole = names
        rows = self._outcomes[setting.setting]
        shares = {number: getattr(row, part) / max(1, getattr(row, whole)) for number, row in rows.items()}
        again = [share for number, share in shares.items() if number > REPLAYED]
        blocks = self.about.by_waiting_ppm if part in ("prompt", "unreceived") else self.about.by_messages_ppm
        count = getattr(rows[REPLAYED], whole)
        return shares[REPLAYED], *share_band(shares[REPLAYED], again, count, blocks / MILLION, self._scale(rows))

    def waiting(self, setting: Any) -> tuple[timedelta | None, timedelta | None, timedelta | None]:
        """The 95th percentile of the waiting, and its band; a bound beyond LONGEST is None: the history is too short to tell."""
        rows = self._outcomes[setting.setting]
        if rows[REPLAYED].p95 is None:
            return None, None, None
        again = [row.p95 for number, row in rows.items() if number > REPLAYED and row.p95 is not None]
        band = amount_band(rows[REPLAYED].p95, again, self.about.by_waiting_ppm / MILLION, self._scale(rows))
        low, high = (round(bound) * US if bound <= LONGEST / US else None for bound in band)
        return rows[REPLAYED].p95 * US, low, high

    @property
    def needed(self) -> tuple[int | None, int, int | None]:
        """The consumers that are needed, with the fewest and the most in resampled histories; None: more than were tried."""
        rows = self._outcomes[-1]
        again = [row.needed for number, row in rows.items() if number > REPLAYED]
        most = None if None in again else max(again, default=None)
        return rows[REPLAYED].needed, min((number for number in again if number), default=1), most

    @property
    def curve(self) -> Curve:
        """The survival estimate of the waiting, which does not feed back."""
        return times_by(self.tables["waits"]).get(None, Times()).curve

    @property
    def has_backlog(self) -> bool:
        """Whether waiting depends on the messages before, so that the survival estimate is an upper limit only."""
        return self.about.backlog_ppm / MILLION >= BACKLOG

    @property
    def error(self) -> float | None:
        """The largest error of the replay, as a share: of the losses among all messages, and of the wait. None: unknown."""
        actual, base = self.actual, self.outcome(self.settings[0])
        if actual.p95 is None or base.p95 is None:
            return None
        wait = abs(base.p95 - actual.p95) / max(actual.p95, MILLION)  # below a second it does not matter
        return max(wait, abs(_lost(base) - _lost(actual)) / max(1, actual.messages))

    def _scale(self, rows: Mapping[int, Any]) -> float:
        """How much less resampled histories vary if they are as long as the history: the square root of their length."""
        again = [row.messages for number, row in rows.items() if number > REPLAYED]
        return min(1.0, sum(again) / max(1, len(again)) / max(1, rows[REPLAYED].messages)) ** 0.5


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    answers = Answers(tables)
    if answers.about.problem:
        return Report("Nothing was replayed.", refusal=answers.about.problem)
    limits, refusal = scope.family.limits, ""
    if answers.error is None or answers.error > FAR:
        refusal = "With the current settings, the replay differs too much from what happened (Replay error). Do not rely on it."
    needed, band = _consumers(scope.name, values, answers)
    sections = [
        _picture(scope, values, answers), Section("needed", "Consumers needed", needed, notes=band), _calibration(answers),
    ]  # fmt: skip
    answer, own = sentence(scope.name, values, answers, limits)
    return Report(answer, sections, (*own, *gaps(answers), *NOTES), answers.about.generated, refusal)


def sentence(name: str, values: Mapping[str, Any], answers: Answers, limits: LimitPages) -> tuple[str, list[str]]:
    """The answer, and the notes with its band. Pure."""
    varied, setting = answers.about.varied, answers.chosen
    if setting.role != CHOSEN:
        return _consumers(name, values, answers)
    names, words = SHARES[varied]
    share, low, high = answers.share(setting, names)
    was = getattr(answers.actual, names[0]) / max(1, getattr(answers.actual, names[1]))
    notes = [f"95 % band of the answer: {percent(low)} to {percent(high)}."]
    if varied == "time_to_live":
        share, notes = time_to_live(answers, setting, values)
    of = "deliveries" if varied == "lock" else "messages"
    text = f"With {in_words(values, limits)}, {{}} of the {of} of {name} would have "
    text += words.format(within=human(values["within"] * US))
    if varied == "deliveries" and setting.deliveries > answers.about.longest:
        notes = [f"The replay, which draws later deliveries from earlier ones, says {percent(share)}."]
        more = f", as no message was delivered more than {answers.about.longest:,} times."
        return text.format(f"at most {percent(was)}") + more, notes
    return f"{text.format(percent(share))}; it was {percent(was)}.", notes


def time_to_live(answers: Answers, setting: Any, values: Mapping[str, Any]) -> tuple[float, list[str]]:
    """The share that expires before its first delivery, and the notes with its band: by the replay where there is a backlog, else
    by the survival estimate. Pure."""
    share, low, high = answers.share(setting, SHARES["time_to_live"][0])
    estimate: Estimate | None
    try:
        estimate = answers.curve.at(values["time_to_live"])
    except CannotTell:
        estimate = None
    if answers.has_backlog or estimate is None or values.get("consumers"):
        notes = [
            f"95 % band of the answer: {percent(low)} to {percent(high)}. Of the waiting, "
            f"{percent(answers.about.backlog_ppm / MILLION)} was behind busy consumers, so that messages that expire leave room "
            "for others: the answer is that of a replay."
        ]
        if estimate:
            notes.append(f"At most {percent(estimate.share)}, without that effect (Kaplan-Meier estimate of the waiting).")
        return share, notes
    return estimate.share, [
        f"95 % band of the answer: {percent(estimate.low)} to {percent(estimate.high)} (Kaplan-Meier estimate of the waiting, as "
        f"messages did not wait behind others). The replay says {percent(share)} ({percent(low)} to {percent(high)})."
    ]


def in_words(values: Mapping[str, Any], limits: LimitPages) -> str:
    """The settings that were asked for. Pure."""
    parts = []
    if values.get("time_to_live"):
        parts.append(f"a time-to-live of {human(values['time_to_live'] * US)}")
    if values.get("lock"):
        parts.append(f"a {limits.lock} of {human(values['lock'] * US)}")
    if values.get("deliveries") is not None:
        parts.append(f"a {limits.deliveries} of {values['deliveries']:,}")
    if values.get("consumers"):
        parts.append(counted(values["consumers"], "consumer"))
    return joined(parts)


def gaps(answers: Answers) -> list[str]:
    """What the replay leaves out or lacks. Pure."""
    about, notes = answers.about, []
    if about.replayed < about.messages:
        notes.append(
            f"{about.replayed:,} of {counted(about.messages, 'message')} were replayed: contiguous parts, drawn at random."
        )
    if about.before:
        notes.append(f"{counted(about.before, 'delivery', 'deliveries')} of messages from before the range are left out.")
    if about.headless:
        notes.append(f"The first delivery of {counted(about.headless, 'message')} is not in the history; it counts as failed.")
    if about.late:
        notes.append(
            f"{counted(about.late, 'lost lock')} have a late settlement, which says how long the consumer needed. Of the others "
            "nothing was heard, and their consumers count as crashed."
        )
    return notes


def _consumers(name: str, values: Mapping[str, Any], answers: Answers) -> tuple[str, list[str]]:
    """How many consumers are needed, and what those that there are achieve."""
    needed, least, most = answers.needed
    within, share = human(values["within"] * US), f"{values['share']:g}\xa0%"
    setting = answers.chosen
    done, low, high = answers.share(setting, SHARES["consumers"][0])
    notes = [
        f"95 % band of the share with {counted(setting.consumers, 'consumer')}: {percent(low)} to {percent(high)}. In resampled "
        f"histories {least:,} to {'more than 1,000' if most is None else f'{most:,}'} consumers were needed."
    ]
    with_now = f"with {counted(setting.consumers, 'consumer')}, {percent(done)} are"
    if needed is None:
        return (
            f"No number of consumers would receive {share} of the messages of {name} within {within}, as consumers were absent "
            f"for longer; {with_now}."
        ), notes
    return f"{name} needs {counted(needed, 'consumer')} to receive {share} of its messages within {within}; {with_now}.", notes


def _picture(scope: Scope, values: Mapping[str, Any], answers: Answers) -> Section:
    """The share that answers, by the setting that is varied; and all that was replayed, as a table."""
    varied, limits = answers.about.varied, scope.family.limits
    names, words = SHARES[varied]
    words = words.removeprefix("been ").format(within=human(values["within"] * US))
    same = set(FIELDS.values()) - {FIELDS[varied]}
    alternatives = [
        setting for setting in answers.settings if all(getattr(setting, name) == getattr(answers.chosen, name) for name in same)
    ]
    alternatives.sort(key=lambda setting: getattr(setting, FIELDS[varied]) or 0)
    labels = [_label(varied, setting, limits) for setting in alternatives]
    shares = [answers.share(setting, names) for setting in alternatives]
    tips = [f"{label}: {percent(share)} {words}" for label, (share, _, _) in zip(labels, shares, strict=True)]
    bands = [(low, high) for _, low, high in shares]
    charts = [share_bars(labels, [share for share, _, _ in shares], bands, tips, width) for width in WIDTHS]
    kind = {"time_to_live": "time-to-live", "lock": limits.lock, "deliveries": limits.deliveries}.get(varied, varied)
    of = "deliveries" if varied == "lock" else "messages"
    label = f"Share of {of} that {'are ' * (varied == 'consumers')}{words}, by {kind}, with its 95 % band"
    return Section(
        "settings", "Other settings", figures=[Figure(label, charts, "bars")],
        table=_table(scope, values, answers),
    )  # fmt: skip


def _label(varied: str, setting: Any, limits: LimitPages) -> str:
    value = getattr(setting, FIELDS[varied])
    if value is None:
        return "none"
    if varied == "deliveries":
        return f"{value - limits.more_deliveries:,}"
    return f"{value:,}" if varied == "consumers" else human(value * US)


def _table(scope: Scope, values: Mapping[str, Any], answers: Answers) -> Table:
    limits, entity = scope.family.limits, scope.entities[0]
    columns = [
        Column("consumers", "Consumers", "count"), Column("time_to_live", "Time-to-live", "setting"),
        Column("lock", limits.lock.capitalize(), "setting"), Column("deliveries", limits.deliveries.capitalize(), "count"),
        Column("prompt", f"Received within {human(values['within'] * US)}", "share"),
        Column("waiting", "95\xa0% received within", "duration", has_bar=True),
        Column("waiting_low", "At least", "duration", about="95 % band"),
        Column("waiting_high", "At most", "duration", about="95 % band"),
        Column("expired", "Expired", "count"), Column("dead_lettered", "Reached the limit", "count"),
        Column("lost", "Lost", "share", has_bar=True), Column("lost_low", "At least", "share", about="95 % band"),
        Column("lost_high", "At most", "share", about="95 % band"),
        Column("locks_lost", "Locks lost", "count"), Column("duplicates", "Duplicates", "count"),
        Column("depth", "Most in the queue", "count"),
    ]  # fmt: skip
    rows = []
    for setting in answers.settings:
        outcome = answers.outcome(setting)
        lock, life = (None if us is None else us * US for us in (setting.lock_us, setting.time_to_live_us))
        limit = None if setting.deliveries is None else setting.deliveries - limits.more_deliveries
        url = "" if entity.deleted_at else limits.propose(entity, lock, limit, life)
        lost = _lost(outcome) / max(1, outcome.messages)
        expired, dead = (answers.share(setting, (name, "messages")) for name in ("expired", "dead_lettered"))
        band = (max(expired[1], dead[1]), min(1.0, expired[2] + dead[2]))
        rows.append((
            Link(setting.consumers, url) if url else setting.consumers, life, lock, limit, outcome.prompt / max(1, outcome.due),
            *answers.waiting(setting), outcome.expired, outcome.dead_lettered, lost, *band, outcome.locks_lost,
            outcome.duplicates, outcome.depth,
        ))  # fmt: skip
    return Table("settings", "Other settings", columns, rows)


def _calibration(answers: Answers) -> Section:
    """What really happened, and what the replay of the settings in force says."""
    actual, base = answers.actual, answers.outcome(answers.settings[0])
    names = {
        "messages": "Messages", "processed": "Processed", "expired": "Expired", "dead_lettered": "Reached the limit",
        "deliveries": "Deliveries", "locks_lost": "Locks lost", "depth": "Most messages in the queue",
    }  # fmt: skip
    rows = [
        (words, f"{getattr(actual, name):,}", f"{getattr(base, name):,}", _error(getattr(actual, name), getattr(base, name)))
        for name, words in names.items()
    ]
    really, replayed = (brief(duration(outcome.p95)) for outcome in (actual, base))
    rows.append(("95 % received within", really, replayed, _error(actual.p95 or 0, base.p95 or 0)))
    return Section.with_table("calibration", "Replay error", CALIBRATION, rows)


def _error(really: float, replayed: float) -> str:
    if replayed == really:
        return "none"
    if not really:
        return "there was none"
    sign, share = "+" if replayed > really else "−", percent(abs(replayed - really) / really)
    return f"under {sign}{share.removeprefix('under ')}" if share.startswith("under ") else f"{sign}{share}"


def _lost(outcome: Any) -> int:
    return outcome.expired + outcome.dead_lettered


ANALYSIS = Analysis(
    slug="what-if", title="What if?", form=WhatIfForm, present=present, needs_entity=True,
    needs={"lives": timedelta(0), "open": timedelta(0), "events": timedelta(0), "histograms": timedelta(0)},
    question="What if settings or consumers had been different, and how many consumers are needed?",
)  # fmt: skip
