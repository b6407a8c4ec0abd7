"""Base classes of the admin pages: rights, broker errors as messages, and pagination with a cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.core.paginator import Paginator
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.module_loading import import_string

from broker_core.common.durations import human
from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.models import Entity
from broker_core.store.connections import callers_transaction

MOST_COUNTED = 2000


def actor_of(request: HttpRequest) -> Actor:
    """The actor of the user. The setting VITRINE_ACTOR_FOR names a function of the user; default: superusers have all rights."""
    return import_string(getattr(settings, "VITRINE_ACTOR_FOR", f"{__name__}.superuser_has_all_rights"))(request.user)


def superuser_has_all_rights(user: Any) -> Actor:
    """For a site without roles of its own: superusers have all rights, other staff can only browse."""
    return Actor("user", user.get_username(), Right.ALL if user.is_superuser else Right.BROWSE)


def to_the_millisecond(at: datetime | None) -> str:
    """An instant in UTC with milliseconds."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}" if at else ""


class CappedPaginator(Paginator):
    """Pages over the first MOST_COUNTED rows, since counting a large table would take too long."""

    @cached_property
    def count(self) -> int:
        return self.object_list.order_by()[:MOST_COUNTED].count()


class RightsAdmin(admin.ModelAdmin):
    """Checks the actor's rights instead of Django's permissions, and shows broker errors as messages."""

    right_to_view = Right.BROWSE
    right_to_change = Right.MANAGE

    def has_module_permission(self, request):
        return self._may(request, self.right_to_view)

    def has_view_permission(self, request, obj=None):
        return self._may(request, self.right_to_view)

    def has_add_permission(self, request):
        return self._may(request, self.right_to_change)

    def has_change_permission(self, request, obj=None):
        return self._may(request, self.right_to_change)

    def has_delete_permission(self, request, obj=None):
        return self._may(request, self.right_to_change)

    def changeform_view(self, request, *args, **kwargs):
        return self._explaining(request, super().changeform_view, *args, **kwargs)

    def changelist_view(self, request, *args, **kwargs):
        return self._explaining(request, super().changelist_view, *args, **kwargs)

    def delete_view(self, request, *args, **kwargs):
        return self._explaining(request, super().delete_view, *args, **kwargs)

    def log_deletions(self, request, queryset):
        """Log deletions one by one: entries created in bulk send no signal, which the audit log needs."""
        for obj in queryset:
            LogEntry.objects.log_actions(request.user.pk, [obj], DELETION)

    def _may(self, request: HttpRequest, right: Right) -> bool:
        user = request.user
        return bool(user.is_active and user.is_staff) and right in actor_of(request).rights

    def _explaining(self, request: HttpRequest, view: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """Run a view with its broker calls in Django's transaction, so that the change and its log entry are atomic."""
        if request.method != "POST":
            return view(request, *args, **kwargs)
        try:
            with transaction.atomic(), callers_transaction():
                return view(request, *args, **kwargs)
        except BrokerError as exc:
            self.message_user(request, f"{exc} (tracking id {exc.tracking_id})", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


class ReadOnlyAdmin(RightsAdmin):
    """A list of rows that only the broker writes, without forms."""

    list_display_links = None
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each would need a count of its own
    paginator = CappedPaginator

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False

    def has_delete_permission(self, request, obj=None):
        return False

    def changelist_view(self, request, extra_context=None):
        words = {
            "title": self.opts.verbose_name_plural.capitalize(),
            "subtitle": f"the newest that match; at most {MOST_COUNTED:,} are listed",
        }
        return super().changelist_view(request, words | (extra_context or {}))

    def changeform_view(self, request, object_id=None, form_url="", extra_context=None):
        return HttpResponseRedirect("../..")


class UseCaseAdmin(RightsAdmin):
    """Deletes through use cases, and logs old and new values. durations: fields where None means never."""

    durations: tuple[str, ...] = ()

    def delete_one(self, request, obj) -> None:
        raise NotImplementedError

    def delete_model(self, request, obj):
        self.delete_one(request, obj)

    def delete_queryset(self, request, queryset):
        for obj in queryset:
            self.delete_one(request, obj)

    def get_deleted_objects(self, objs, request):
        """Lists only the objects themselves for confirmation; the broker deletes dependent objects by its own rules."""
        denied = {self.opts.verbose_name for obj in objs if not self.has_delete_permission(request, obj)}
        return [str(obj) for obj in objs], {self.opts.verbose_name_plural: len(objs)}, denied, []

    def construct_change_message(self, request, form, formsets, add=False):
        if add:
            return super().construct_change_message(request, form, formsets, add)
        changes = [
            f"{form.fields[name].label}: {self._formatted(form, name, before=True)} -> {self._formatted(form, name)}"
            for name in form.changed_data
        ]
        return "; ".join(changes) or "Nothing changed."

    def _formatted(self, form: Any, name: str, *, before: bool = False) -> str:
        value = form.get_initial_for_field(form.fields[name], name) if before else form.cleaned_data[name]
        return human(value) if isinstance(value, timedelta) or name in self.durations else str(value)


@dataclass(frozen=True)
class EntityPart:
    """The settings of a family other than Service Bus on the admin page of its queues.

    title, fields: of the group of settings. read_only: fields that cannot be edited.
    form:   for an existing queue; None: its settings cannot be changed.
    change: (queue, valid form, actor) saves the changes of the form.
    """

    title: str
    fields: Sequence[str]
    read_only: Sequence[str] = ()
    form: type[ModelForm] | None = None
    change: Callable[[Entity, Any, Actor], None] | None = None


entity_parts: dict[str, EntityPart] = {}  # by family; each family's admin module adds its own


def address_of(entity: Entity) -> EntityAddress:
    return EntityAddress(entity.namespace.name, entity.path)
