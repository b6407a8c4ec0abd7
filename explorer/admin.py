"""The explorer in Django's admin: audit, schedules, analyses; every change in the admin gets an audit record."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth import admin as auth
from django.contrib.auth.models import Group, User
from django.db.models.signals import post_save
from django.dispatch import receiver
from django_celery_beat import admin as beat
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from broker_core.admin import ReadOnlyAdmin, RightsAdmin, to_the_millisecond
from broker_core.common.types import Actor, Right

from . import audit
from .models import AuditRecord

if find_spec("explorer.analysis.admin"):
    from .analysis import admin as _analysis_admin  # noqa: F401  registers itself

admin.site.site_header = admin.site.site_title = "Vitrine administration"
admin.site.index_title = "Configuration and history"

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


class ScheduleAdmin(RightsAdmin, beat.ScheduleAdmin):
    """Intervals, crontabs and the other schedules of django-celery-beat, with the broker's rights."""


class CrontabAdmin(RightsAdmin, beat.CrontabScheduleAdmin):
    """The crontab admin of django-celery-beat, with the broker's rights."""


class SweepScheduleForm(beat.PeriodicTaskForm):
    """django-celery-beat's form raises KeyError if the task's name is itself invalid."""

    def clean(self):
        return self.cleaned_data if "task" in self.errors else super().clean()


class SweepScheduleAdmin(RightsAdmin, beat.PeriodicTaskAdmin):
    """Periodic tasks. The template replaces an inline script, which the content security policy blocks, by a file."""

    form = SweepScheduleForm
    change_form_template = "explorer/admin/periodic_task_form.html"
    list_display = ["name", "enabled", "scheduler", "last_run_at", "description"]
    list_filter = ["enabled"]
    date_hierarchy = None


class PeopleAdmin(RightsAdmin, auth.UserAdmin):
    """Users. A role is the membership in the group of that name; staff may open the admin."""

    right_to_view = Right.MANAGE
    list_display = ["username", "roles", "is_active", "is_staff", "is_superuser", "last_login"]
    list_filter = ["groups", "is_active", "is_staff"]

    def get_queryset(self, request):
        return super().get_queryset(request).prefetch_related("groups")

    @admin.display
    def roles(self, obj):
        return ", ".join(group.name for group in obj.groups.all())


class RolesAdmin(RightsAdmin, auth.GroupAdmin):
    """Groups. Those named viewer, operator and administrator grant the broker's rights."""

    right_to_view = Right.MANAGE


for model in (ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule, User, Group):
    admin.site.unregister(model)
admin.site.register(User, PeopleAdmin)
admin.site.register(Group, RolesAdmin)
admin.site.register([ClockedSchedule, IntervalSchedule, SolarSchedule], ScheduleAdmin)
admin.site.register(CrontabSchedule, CrontabAdmin)
admin.site.register(PeriodicTask, SweepScheduleAdmin)


@receiver(post_save, sender=LogEntry)
def record_in_audit(sender, instance: LogEntry, created: bool, **kwargs) -> None:
    """Record changes made in the admin in the audit, as those made on the pages (docs/design.md D13)."""
    if created:
        kind = instance.content_type.name if instance.content_type else "object"
        actor = Actor("user", instance.user.get_username())
        action = f"admin: {_VERBS.get(instance.action_flag, 'act on')} {kind}"[:60]
        audit.done(actor, action, target=instance.object_repr, detail=instance.get_change_message())
