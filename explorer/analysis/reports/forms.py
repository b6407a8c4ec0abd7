"""The form that all reports share: of which queues, in which range, and compared with which. Analyses add their own fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.urls import reverse

from explorer.frames.questions import LONGEST, RANGES

from ..forms import MomentInput, ScopeForm
from ..jobs import measures
from .scope import HOUR, STEP, Range, Scope, clock_now, floor

CUSTOM = "custom"
INSTANT = timedelta(microseconds=1)  # a range that ends now includes what happens at this very instant, as in a paused namespace
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
OUTSIDE = f"The year must be from {EARLIEST:%Y} to {LATEST.year - 1}."
COMPARED = {"": "nothing", "before": "the period before", "week": "a week earlier"}


def report_url(slug: str, of: Mapping[str, Any], start: datetime, end: datetime) -> str:
    """The URL of a report about a queue or namespace and a range. of: {"queue": id} or {"namespace": name}."""
    query = {**of, "range": CUSTOM, "start": f"{start:%Y-%m-%dT%H:%M}", "end": f"{end:%Y-%m-%dT%H:%M}"}
    return f"{reverse('explorer:analysis_report', args=(slug,))}?{urlencode(query)}"


class ReportForm(ScopeForm):
    """A queue or a namespace, and a range that ends now by its clock, or one with both ends, of whole steps.

    A subclass for an analysis adds fields; DEFAULTS are the values of parameters that the URL lacks. An analysis without
    comparison sets `compare = None`. A start or an end makes the range a custom one.
    """

    DEFAULTS: ClassVar[Mapping[str, str]] = {"range": "1d"}

    range = forms.ChoiceField(label="Range", choices=[*((key, words) for key, (words, _) in RANGES.items()), (CUSTOM, "custom")])
    start = forms.DateTimeField(required=False, label="From (UTC)", widget=MomentInput())
    end = forms.DateTimeField(required=False, label="To (UTC)", widget=MomentInput())
    compare = forms.ChoiceField(required=False, label="Compare with", choices=list(COMPARED.items()))

    def __init__(self, data: Mapping[str, Any]):
        chosen = {"range": CUSTOM} if data.get("start") or data.get("end") else {}
        super().__init__({**self.DEFAULTS, **data, **chosen})

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
    def query(self) -> dict[str, Any]:
        """The parameters of a URL that ask the same."""
        submitted = {name: self.data.get(name) for name in self.fields}
        return {name: value for name, value in submitted.items() if value not in (None, "")}

    def scope(self) -> Scope | None:
        """None: there is no such queue or namespace. Of an invalid form, as far as it is valid."""
        if (of := self.subject) is None:
            return None
        now = clock_now(of.namespace)
        span = self._range(now)
        return Scope(of.entities, of.namespace, of.is_whole, span, now, self._compared(span))

    def _range(self, now: datetime) -> Range:
        """From the beginning of a step to the end of one, or to now. The history of more than a week ago has steps of an hour."""
        values = self.cleaned_data
        if values.get("range") == CUSTOM and not self.errors:
            start, end = values["start"], floor(values["end"] + STEP - INSTANT, STEP)
        else:
            length = RANGES.get(values.get("range", ""), RANGES["1d"])[1]
            start, end = now - length, now + INSTANT
        earliest = start - timedelta(days=7) if values.get("compare") == "week" else start
        finest = HOUR if earliest < now - measures.AGED else STEP
        return Range(floor(start, finest), end, finest)

    def _compared(self, span: Range) -> Range | None:
        match self.cleaned_data.get("compare"):
            case "before":
                steps = -(-span.length // span.finest) * span.finest  # whole steps, so that none is in both
                return span.before(steps)
            case "week":
                return span.before(timedelta(days=7))
        return None
