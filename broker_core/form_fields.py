"""Form fields that the admin and the explorer share."""

from __future__ import annotations

from datetime import timedelta

from django import forms

from broker_core.common.durations import format_iso, human, parse_human_or_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import HistoryLevel

_HISTORY = {
    HistoryLevel.OFF: "off",
    HistoryLevel.LIFECYCLE: "lifecycle: without receives and renewals",
    HistoryLevel.FULL: "full",
}


class DurationField(forms.CharField):
    """A duration such as "5 min", or in ISO 8601.

    never: whether "never" is allowed; its value is None. too_short: the error for a duration that is zero or negative.
    """

    def __init__(self, *, never: bool = False, too_short: str = "Enter a duration longer than 0.", **kwargs):
        super().__init__(**kwargs)
        self.never, self.too_short = never, too_short
        self.widget.attrs.setdefault("autocomplete", "off")

    def clean(self, value) -> timedelta | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            duration = parse_human_or_iso(text)
        except InvalidArgument as exc:
            raise forms.ValidationError(f"{exc.problem}.") from exc
        if duration is None and not self.never:
            raise forms.ValidationError("must be a duration, not never.")
        if duration is not None and duration <= timedelta(0):
            raise forms.ValidationError(self.too_short)
        return duration

    def prepare_value(self, value):
        """Readable text if it is exact, else ISO 8601, so that saving an unchanged form changes nothing."""
        if value is None and self.never and self.required:
            return "never"
        if not isinstance(value, timedelta):
            return value
        text = human(value)
        return text if parse_human_or_iso(text) == value else format_iso(value)

    def has_changed(self, initial, data):
        return (self.prepare_value(initial) or "") != (data or "")


class SpanField(DurationField):
    """A duration that may be 0; empty means 0."""

    def clean(self, value) -> timedelta | None:
        text = (value or "").strip()
        return timedelta(0) if text in ("", "0") else super().clean(text)


class HistoryField(forms.TypedChoiceField):
    def __init__(self, **kwargs):
        choices = [(int(level), text) for level, text in _HISTORY.items()]
        super().__init__(choices=choices, coerce=lambda value: HistoryLevel(int(value)), label="History", **kwargs)
