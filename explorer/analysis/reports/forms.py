"""The form that all reports share: of which queues, in which range, and compared with which. Analyses add their own fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django import forms

from ..forms import ScopeForm, moment_input
from .scope import HOUR, Range, Scope, clock_now, floor

RANGES = {"1d": ("24 hours", timedelta(days=1)), "7d": ("7 days", timedelta(days=7)), "30d": ("30 days", timedelta(days=30))}
CUSTOM = "custom"
INSTANT = timedelta(microseconds=1)  # a range that ends now includes what happens at this very instant, as in a paused namespace
LONGEST = timedelta(days=400)
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
OUTSIDE = f"The year must be from {EARLIEST:%Y} to {LATEST.year - 1}."
COMPARED = {"": "nothing", "before": "the period before", "week": "a week earlier"}


class ReportForm(ScopeForm):
    """A queue or a namespace, and a range that ends now by its clock, or one with both ends.

    A subclass for an analysis adds fields; DEFAULTS are the values of parameters that the URL lacks. An analysis without
    comparison sets `compare = None`.
    """

    DEFAULTS: ClassVar[Mapping[str, str]] = {"range": "1d"}

    range = forms.ChoiceField(label="Range", choices=[*((k, f"the last {v[0]}") for k, v in RANGES.items()), (CUSTOM, "custom")])
    start = forms.DateTimeField(required=False, label="From (UTC)", widget=moment_input())
    end = forms.DateTimeField(required=False, label="To (UTC)", widget=moment_input())
    compare = forms.ChoiceField(required=False, label="Compare with", choices=list(COMPARED.items()))

    def __init__(self, data: Mapping[str, Any]):
        super().__init__({**self.DEFAULTS, **data})

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        has_range = "range" in cleaned and "start" in cleaned and "end" in cleaned
        if not has_range or cleaned["range"] != CUSTOM:
            return cleaned
        start, end = cleaned["start"], cleaned["end"]
        if not start or not end:
            self.add_error("start" if not start else "end", "A custom range needs a start and an end.")
        elif end <= start:
            self.add_error("end", "The range must end after it starts.")
        elif start < EARLIEST or end > LATEST:
            self.add_error("start" if start < EARLIEST else "end", OUTSIDE)
        elif end - start > LONGEST:
            self.add_error("end", f"The range can have at most {LONGEST.days} days.")
        return cleaned

    @property
    def own_fields(self) -> list[forms.BoundField]:
        """Those that the analysis adds."""
        return [self[name] for name in self.fields if name not in ReportForm.base_fields]

    def scope(self) -> Scope | None:
        """None: there is no such queue or namespace. Of an invalid form, as far as it is valid."""
        if (of := self.subject) is None:
            return None
        now = clock_now(of.namespace)
        span = self._range(now)
        return Scope(of.entities, of.namespace, of.is_whole, span, now, self._compared(span))

    def _range(self, now: datetime) -> Range:
        values = self.cleaned_data
        if values.get("range") == CUSTOM and not self.errors:
            return Range(floor(values["start"], HOUR), values["end"])
        length = RANGES.get(values.get("range", ""), RANGES["1d"])[1]
        return Range(floor(now - length, HOUR), now + INSTANT)

    def _compared(self, span: Range) -> Range | None:
        match self.cleaned_data.get("compare"):
            case "before":
                hours = -(-span.length // HOUR) * HOUR  # whole hours, so that no hour is in both
                return span.before(hours)
            case "week":
                return span.before(timedelta(days=7))
        return None
