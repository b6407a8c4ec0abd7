"""The form of a schedule: an interval, a time of day, or a crontab."""

from __future__ import annotations

from datetime import time
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
from django_celery_beat.validators import crontab_validator

from explorer import schedules

INTERVAL, DAILY, CRONTAB = "interval", "daily", "crontab"
_KINDS = [(INTERVAL, "At an interval"), (DAILY, "At a time of day"), (CRONTAB, "On a crontab schedule")]
_UNITS = [
    (unit, unit) for unit in (IntervalSchedule.SECONDS, IntervalSchedule.MINUTES, IntervalSchedule.HOURS, IntervalSchedule.DAYS)
]
_DAYS = [("*", "Every day"), *((str(number), name) for number, name in enumerate(schedules.WEEKDAYS))]
_CRONTAB_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_NEEDED = {INTERVAL: "every", DAILY: "at", CRONTAB: "crontab"}
LONGEST = 366 * 86_400


class ScheduleForm(forms.Form):
    """When a task runs. `apply` sets it on the task."""

    kind = forms.ChoiceField(choices=_KINDS, widget=forms.RadioSelect, label="Runs")
    every = forms.IntegerField(required=False, min_value=1, max_value=LONGEST, label="Every")
    unit = forms.ChoiceField(required=False, choices=_UNITS, label="Unit")
    day = forms.ChoiceField(required=False, choices=_DAYS, label="On")
    at = forms.TimeField(required=False, label="At", widget=forms.TimeInput({"type": "time"}, format="%H:%M"))
    crontab = forms.CharField(
        required=False, max_length=300, label="Crontab", widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
        help_text="Minute, hour, day of the month, month, day of the week: 30 2 * * 1-5",
    )  # fmt: skip

    def __init__(self, *args: Any, task: PeriodicTask, **kwargs: Any):
        super().__init__(*args, initial=_initial(task), **kwargs)
        self._task = task
        self.fields["at"].help_text = self.fields["day"].help_text = ""
        self.fields["at"].label = f"At ({self._timezone})"

    @property
    def _timezone(self) -> Any:
        return self._task.crontab.timezone if self._task.crontab else "UTC"

    def clean_crontab(self) -> str:
        text = " ".join(self.cleaned_data["crontab"].split())
        if text and self.data.get("kind") == CRONTAB:
            try:
                crontab_validator(text)
            except ValidationError as exc:
                raise forms.ValidationError("Enter five fields, such as 30 2 * * 1-5.") from exc
        return text

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        needed = _NEEDED.get(values.get("kind", ""))
        if needed and needed not in self.errors and values.get(needed) in (None, ""):
            self.add_error(needed, "This field is required.")
        return values

    def apply(self) -> None:
        """Set the task's schedule, without saving the task."""
        values = self.cleaned_data
        interval = crontab = None
        if values["kind"] == INTERVAL:
            interval = _first_or_new(IntervalSchedule, every=values["every"], period=values["unit"] or IntervalSchedule.SECONDS)
        else:
            crontab = _first_or_new(CrontabSchedule, timezone=self._timezone, **self._crontab_fields())
        schedules.set_schedule(self._task, interval=interval, crontab=crontab)

    def _crontab_fields(self) -> dict[str, str]:
        values = self.cleaned_data
        if values["kind"] == CRONTAB:
            return dict(zip(_CRONTAB_FIELDS, values["crontab"].split(), strict=True))
        at: time = values["at"]
        texts = (str(at.minute), str(at.hour), "*", "*", values["day"] or "*")
        return dict(zip(_CRONTAB_FIELDS, texts, strict=True))


def _first_or_new(model: Any, **values: Any) -> Any:
    return model.objects.filter(**values).first() or model.objects.create(**values)


def _initial(task: PeriodicTask) -> dict[str, Any]:
    if task.interval:
        return {"kind": INTERVAL, "every": task.interval.every, "unit": task.interval.period, "day": "*"}
    if not task.crontab:
        return {"kind": INTERVAL, "unit": IntervalSchedule.MINUTES, "day": "*"}
    texts = {"crontab": " ".join(getattr(task.crontab, name) for name in _CRONTAB_FIELDS), "unit": IntervalSchedule.MINUTES}
    at = schedules.time_of(task.crontab)
    if at is None:
        return {"kind": CRONTAB, "day": "*"} | texts
    return {"kind": DAILY, "at": at, "day": task.crontab.day_of_week} | texts
