"""Form fields for durations and instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import InvalidArgument


class MomentField(forms.CharField):
    """An instant: "in 5 min" or "5 min" from `now`, or a date and time in UTC. Cleaned to a timedelta or an aware datetime.

    example: durations for the error message.
    """

    def __init__(self, *args: Any, example: str = "in 5 min, PT5M", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.example = example

    def clean(self, value) -> timedelta | datetime | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return self._delay(text)
        return at if at.tzinfo else at.replace(tzinfo=UTC)

    def _delay(self, text: str) -> timedelta:
        try:
            delay = parse_human_or_iso(text.removeprefix("in "))
        except InvalidArgument as exc:
            raise forms.ValidationError(f"Enter for example {self.example} or 2030-01-31 12:00 (UTC).") from exc
        if delay is None or delay <= timedelta(0):
            raise forms.ValidationError("Enter a time in the future.")
        return delay


def with_unix_newlines(text: str) -> str:
    return text.replace("\r\n", "\n")
