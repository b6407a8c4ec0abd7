"""The form that starts an analysis: queues and subscriptions, a time range, the chart interval."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django import forms

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityKind
from broker_core.models import Entity
from explorer.models import AnalysisRun

from . import runs

STRETCHES = {
    "1h": ("the last hour", timedelta(hours=1)),
    "6h": ("the last 6 hours", timedelta(hours=6)),
    "24h": ("the last 24 hours", timedelta(hours=24)),
    "7d": ("the last 7 days", timedelta(days=7)),
}
BETWEEN = "between"
RECEIVABLE = (EntityKind.QUEUE, EntityKind.SUBSCRIPTION)  # a topic's messages pass through it in no time


class QueuesField(forms.ModelMultipleChoiceField):
    def label_from_instance(self, entity: Entity) -> str:
        return str(entity)


class AnalysisForm(forms.Form):
    """Cleaned: queues, `start_at` and `end_at` (aware UTC). A given start and end take precedence over the range chosen.

    `offer` sets which queues are listed; every existing queue is valid.
    """

    queues = QueuesField(
        queryset=Entity.objects.none(),
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one queue or subscription."},
    )
    stretch = forms.ChoiceField(
        label="Messages enqueued in",
        choices=[*((key, words) for key, (words, _) in STRETCHES.items()), (BETWEEN, "a custom range:")],
        initial="24h",
    )
    start = forms.DateTimeField(required=False, label="From (UTC)", widget=forms.DateTimeInput(attrs={"type": "datetime-local"}))
    end = forms.DateTimeField(required=False, label="To (UTC)", widget=forms.DateTimeInput(attrs={"type": "datetime-local"}))
    bucket = forms.ChoiceField(label="Chart interval", choices=AnalysisRun.BUCKETS, initial="hour")

    def __init__(self, *args, now: datetime | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.now = now or datetime.now(UTC)
        named = Entity.objects.filter(deleted_at=None, kind__in=RECEIVABLE, namespace__is_system=False)
        self.fields["queues"].queryset = named.select_related("namespace").order_by("namespace__name", "path")

    def offer(self, ids: Iterable[int]) -> None:
        """List the selected queues first, then those with these ids."""
        field, given = self.fields["queues"], self["queues"].value() or []
        selected = {int(one) for one in map(str, given) if one.isdecimal() and len(one) < 19}
        known = {entity.pk: entity for entity in field.queryset.filter(pk__in=selected.union(ids))}
        entities = sorted(known.values(), key=lambda entity: entity.pk not in selected)  # else by name
        field.choices = [(entity.pk, field.label_from_instance(entity)) for entity in entities]

    def clean(self) -> dict:
        cleaned = super().clean()
        if self.errors:
            return cleaned
        try:
            cleaned["start_at"], cleaned["end_at"] = self._range(cleaned)
            runs.check_range(cleaned["start_at"], cleaned["end_at"], cleaned["bucket"])
        except InvalidArgument as problem:
            field = {"bucket": "bucket", "range": "start"}[problem.name]
            self.add_error(field, f"The range {problem.problem}.")
        return cleaned

    def _range(self, cleaned: dict) -> tuple[datetime, datetime]:
        if cleaned["stretch"] != BETWEEN and not (cleaned["start"] or cleaned["end"]):
            return self.now - STRETCHES[cleaned["stretch"]][1], self.now
        if not cleaned["start"] or not cleaned["end"]:
            raise InvalidArgument("range", "needs a start and an end")
        return cleaned["start"], cleaned["end"]
