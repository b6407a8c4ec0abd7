"""What the pages of analyses have in common: the queue or namespace that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from django import forms
from django.db.models import QuerySet

from broker_core.common.types import EntityKind
from broker_core.models import Entity, Namespace

from .jobs.measures import STEP
from .subject import Subject

RECEIVABLE = (EntityKind.QUEUE, EntityKind.SUBSCRIPTION)  # a topic's messages pass through it in no time


def analysable(entities: QuerySet[Entity]) -> QuerySet[Entity]:
    """Those of these entities whose history can be analysed, by name: queues and subscriptions, also deleted ones."""
    named = entities.filter(kind__in=RECEIVABLE, namespace__is_system=False)
    return named.select_related("namespace").order_by("namespace__name", "path")


class MomentInput(forms.DateTimeInput):
    """A choice of an instant in steps of 5 minutes. Another instant is shown as the step in which it is: a browser refuses to
    submit a value between two steps."""

    def __init__(self) -> None:
        seconds = int(STEP.total_seconds())
        super().__init__(attrs={"type": "datetime-local", "step": seconds}, format="%Y-%m-%dT%H:%M")

    def format_value(self, value: Any) -> str | None:
        try:
            at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except (TypeError, ValueError):
            return super().format_value(value)
        at = at.astimezone(UTC) if at.tzinfo else at
        return f"{at.replace(minute=at.minute // 5 * 5):%Y-%m-%dT%H:%M}"


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
        namespace = Namespace.objects.filter(name__iexact=name, deleted_at=None, is_system=False).first() if name else None
        return (
            Subject(list(analysable(Entity.objects.filter(namespace=namespace))), namespace, is_whole=True) if namespace else None
        )
