"""Read-only admin pages of message events and sweep runs."""

from __future__ import annotations

import json
from datetime import timedelta

from django.contrib import admin
from django.core.exceptions import ObjectDoesNotExist
from django.db.models.expressions import RawSQL
from django.utils import timezone

from broker_core.common.durations import human
from broker_core.common.types import SubQueue
from broker_core.model_admin import ReadOnlyAdmin, to_the_millisecond
from broker_core.models import Entity, MessageEvent, SweepRun

MOST_QUEUES_TO_CHOOSE = 50


class RecordedFilter(admin.SimpleListFilter):
    """The time span to list. The default is one hour, since the partitions of a week can be large."""

    title, parameter_name = "recorded", "recorded"
    SPANS = {"": timedelta(hours=1), "15min": timedelta(minutes=15), "day": timedelta(days=1), "week": timedelta(days=7)}

    def lookups(self, request, model_admin):
        return [(key, f"the last {human(span)}") for key, span in self.SPANS.items() if key]

    def choices(self, changelist):
        whole, *others = super().choices(changelist)
        yield {**whole, "display": f"the last {human(self.SPANS[''])}"}
        yield from others

    def queryset(self, request, queryset):
        span = self.SPANS.get(self.value() or "", self.SPANS[""])
        return queryset.filter(recorded_at__gte=timezone.now() - span)


class QueueFilter(admin.SimpleListFilter):
    """Offers the first queues by name; the search box finds the others."""

    title, parameter_name = "queue", "entity"

    def lookups(self, request, model_admin):
        queues = Entity.objects.filter(deleted_at=None, hidden=False).select_related("namespace")
        return [(str(q.pk), str(q)) for q in queues[:MOST_QUEUES_TO_CHOOSE]]

    def queryset(self, request, queryset):
        chosen = self.value()
        if chosen is None:
            return queryset
        return queryset.filter(entity_id=int(chosen)) if chosen.isdecimal() else queryset.none()


@admin.register(MessageEvent)
class MessageEventAdmin(ReadOnlyAdmin):
    list_display = [
        "recorded",
        "kind",
        "queue",
        "list_name",
        "sequence_number",
        "message_id",
        "delivery_count",
        "actor",
        "reason",
        "details_text",
        "namespace_time",
    ]
    list_filter = [RecordedFilter, "kind", QueueFilter]
    search_fields = ["message_id"]
    search_help_text = "A queue as namespace/queue, a sequence number, or a complete message id"
    sortable_by: list[str] = []
    ordering = [RawSQL("vitrine_message_event.xid", ()).desc()]  # the only order with an index

    def get_queryset(self, request):
        return super().get_queryset(request).prefetch_related("entity__namespace")

    def get_search_results(self, request, queryset, search_term):
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isdecimal() and len(term) < 19:
            return queryset.filter(sequence_number=int(term)), False
        namespace, slash, path = term.partition("/")
        entities = Entity.objects.filter(namespace__name__iexact=namespace, path__iexact=path) if slash else Entity.objects.none()
        ids = list(entities.values_list("pk", flat=True))
        return queryset.filter(entity_id__in=ids) if ids else queryset.filter(message_id=term), False

    @admin.display
    def recorded(self, obj):
        return to_the_millisecond(obj.recorded_at)

    @admin.display(description="on the namespace's clock")
    def namespace_time(self, obj):
        return to_the_millisecond(obj.at)

    @admin.display
    def queue(self, obj):
        try:
            return str(obj.entity)
        except ObjectDoesNotExist:
            return f"removed (number {obj.entity_id})"

    @admin.display(description="list")
    def list_name(self, obj):
        return SubQueue(obj.subqueue).name.lower().replace("_", " ")

    @admin.display(description="details")
    def details_text(self, obj):
        return json.dumps(obj.details) if obj.details else ""


@admin.register(SweepRun)
class SweepRunAdmin(ReadOnlyAdmin):
    list_display = ["started", "name", "took", "did", "error"]
    list_filter = ["name", "started_at"]
    sortable_by: list[str] = []
    ordering = ["-started_at"]

    @admin.display
    def started(self, obj):
        return to_the_millisecond(obj.started_at)

    @admin.display
    def took(self, obj):
        return human(obj.finished_at - obj.started_at) if obj.finished_at else "not finished"

    @admin.display
    def did(self, obj):
        return ", ".join(f"{name} {value}" for name, value in obj.outcome.items() if value) or "nothing"
