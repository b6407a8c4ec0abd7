"""The explorer in Django's admin: audit and analyses; every change in the admin gets an audit record."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Group, User
from django.db.models.signals import post_save
from django.dispatch import receiver
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from broker_core.admin import ReadOnlyAdmin, to_the_millisecond
from broker_core.common.types import Actor

from . import audit
from .models import AuditRecord

if find_spec("explorer.analysis.admin"):
    from .analysis import admin as _analysis_admin  # noqa: F401  registers itself

admin.site.site_header = admin.site.site_title = "Django admin"
admin.site.index_title = "Configuration and history"
admin.site.site_url = None  # the templates have a link back

_VERBS = {ADDITION: "add", CHANGE: "change", DELETION: "delete"}


@admin.register(AuditRecord)
class AuditRecordAdmin(ReadOnlyAdmin):
    list_display = ["when", "actor", "action", "namespace", "path", "target", "outcome", "detail", "tracking_id"]
    list_filter = ["outcome", "action", "at"]
    search_fields = ["actor", "path", "target", "tracking_id"]
    search_help_text = "Actor, queue, target or tracking id"
    sortable_by: list[str] = []
    ordering = ["-at", "-id"]

    @admin.display
    def when(self, obj):
        return to_the_millisecond(obj.at)


# People and schedules have pages in the explorer, which keep an administrator, record each change and can undo it.
for model in (ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule, User, Group):
    admin.site.unregister(model)


@receiver(post_save, sender=LogEntry)
def record_in_audit(sender, instance: LogEntry, created: bool, **kwargs) -> None:
    """Record changes made in the admin in the audit, as those made on the pages (docs/design.md D13)."""
    if created:
        kind = instance.content_type.name if instance.content_type else "object"
        actor = Actor("user", instance.user.get_username())
        action = f"admin: {_VERBS.get(instance.action_flag, 'act on')} {kind}"[:60]
        audit.done(actor, action, target=instance.object_repr, detail=instance.get_change_message())
