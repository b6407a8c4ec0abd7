"""The form that advances a clock."""

from __future__ import annotations

from django import forms

from explorer.frames.forms.fields import MomentField


class StepForm(forms.Form):
    """A duration to advance the clock by, or an instant to advance it to."""

    step = MomentField(
        example="90 s, 2 h",
        error_messages={"required": "Enter a duration or time, for example 90 s, 2 h or 2030-01-31 12:00 (UTC)."},
    )
