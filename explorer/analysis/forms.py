"""The form that starts an analysis: queues and subscriptions, a time range, the chart interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from django import forms
from django.db.models import QuerySet

from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityKind
from broker_core.models import Entity, Namespace
from broker_core.namespaces import get_clock
from explorer.models import AnalysisRun

from .running import runs
from .running.runs import SAME_CLOCK
from .subject import Subject

STRETCHES = {
    "1h": ("the last hour", timedelta(hours=1)),
    "6h": ("the last 6 hours", timedelta(hours=6)),
    "24h": ("the last 24 hours", timedelta(hours=24)),
    "7d": ("the last 7 days", timedelta(days=7)),
}
BETWEEN = "between"
RECEIVABLE = (EntityKind.QUEUE, EntityKind.SUBSCRIPTION)  # a topic's messages pass through it in no time


def analysable(entities: QuerySet[Entity]) -> QuerySet[Entity]:
    """Those of these entities whose history can be analysed, by name: queues and subscriptions, also deleted ones."""
    named = entities.filter(kind__in=RECEIVABLE, namespace__is_system=False)
    return named.select_related("namespace").order_by("namespace__name", "path")


class MomentInput(forms.DateTimeInput):
    """An instant that was given with microseconds is shown with milliseconds: browsers read no more."""

    def format_value(self, value: Any) -> str | None:
        text = super().format_value(value)
        return text[: len("2026-01-01T00:00:00.000")] if text else text


def moment_input() -> forms.DateTimeInput:
    return MomentInput(attrs={"type": "datetime-local", "step": "any"}, format="%Y-%m-%dT%H:%M")


class QueuesField(forms.ModelMultipleChoiceField):
    def label_from_instance(self, entity: Entity) -> str:
        return str(entity)


class ScopeForm(forms.Form):
    """A queue or subscription, also a deleted one; or a namespace, for all of its."""

    queue = forms.ModelChoiceField(queryset=Entity.objects.none(), required=False, widget=forms.HiddenInput)
    namespace = forms.CharField(required=False, max_length=50, widget=forms.HiddenInput)

    def __init__(self, data: Mapping[str, Any]):
        super().__init__(data)
        self.fields["queue"].queryset = analysable(Entity.objects.all())

    @cached_property
    def subject(self) -> Subject | None:
        """None: there is no such queue or namespace."""
        if self.errors.keys() & {"queue", "namespace"}:
            return None
        if queue := self.cleaned_data["queue"]:
            return Subject([queue], queue.namespace, is_whole=False)
        name = self.cleaned_data["namespace"]
        here = Namespace.objects.filter(name__iexact=name, deleted_at=None, is_system=False).first() if name else None
        return Subject(list(analysable(Entity.objects.filter(namespace=here))), here, is_whole=True) if here else None


class AnalysisForm(forms.Form):
    """Cleaned: queues, `start_at`, `end_at` (aware UTC), and `clock_ahead`. A given start and end take precedence over the range
    chosen, which ends now by the clock of the queues' namespaces; clock_ahead says how far that is ahead of real time.

    `offer` sets which queues are listed; every queue, also a deleted one, is valid.
    """

    queues = QueuesField(
        queryset=Entity.objects.none(),
        widget=forms.CheckboxSelectMultiple,
        error_messages={
            "required": "Choose at least one queue or subscription.",
            "invalid_choice": "A selected queue is no longer available for analysis. Select again.",
        },
    )
    stretch = forms.ChoiceField(
        label="Messages enqueued in",
        choices=[*((key, words) for key, (words, _) in STRETCHES.items()), (BETWEEN, "a custom range:")],
        initial="24h",
    )
    start = forms.DateTimeField(required=False, label="From (UTC)", widget=moment_input())
    end = forms.DateTimeField(required=False, label="To (UTC)", widget=moment_input())
    bucket = forms.ChoiceField(label="Chart interval", choices=[("hour", "hour")], initial="hour")

    def __init__(self, *args, now: datetime | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.now = now or datetime.now(UTC)
        self.fields["queues"].queryset = analysable(Entity.objects.all())

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
            cleaned["start_at"], cleaned["end_at"], cleaned["clock_ahead"] = self._range(cleaned)
            runs.check_range(cleaned["start_at"], cleaned["end_at"], cleaned["bucket"])
        except InvalidArgument as problem:
            field = {"bucket": "bucket", "range": "start"}[problem.name]
            self.add_error(field, f"The range {problem.problem}.")
        return cleaned

    def _range(self, cleaned: dict) -> tuple[datetime, datetime, timedelta | None]:
        if cleaned["stretch"] != BETWEEN and not (cleaned["start"] or cleaned["end"]):
            ahead = self._clock_ahead({entity.namespace.name for entity in cleaned["queues"] if not entity.namespace.deleted_at})
            end = self.now + ahead
            return end - STRETCHES[cleaned["stretch"]][1], end, ahead or None
        if not cleaned["start"] or not cleaned["end"]:
            raise InvalidArgument("range", "needs a start and an end")
        return cleaned["start"], cleaned["end"], None

    def _clock_ahead(self, names: set[str]) -> timedelta:
        """How far the clocks of these namespaces are ahead of real time. Raises InvalidArgument if they differ."""
        clocks = [clock for name in sorted(names) if (clock := get_clock(name)).is_manual]
        ahead = {clock.namespace: clock.now - self.now for clock in clocks}
        values = [*ahead.values(), *([timedelta(0)] if len(clocks) < len(names) else [])]
        if values and max(values) - min(values) > SAME_CLOCK:
            said = ", ".join(f"{name} {human(by)} ahead of real time" for name, by in ahead.items())
            problem = (
                f"is relative to the namespaces' clocks, which differ ({said}): choose queues with one clock, or set both ends"
            )
            raise InvalidArgument("range", problem)
        return max(values, default=timedelta(0))
