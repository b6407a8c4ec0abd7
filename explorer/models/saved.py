"""What people saved under a name: filters of lists, and templates of messages."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q


class SavedQuerySet(models.QuerySet):
    def visible_to(self, user: Any) -> SavedQuerySet:
        """What the user saved, and what others share."""
        return self.filter(Q(owner=user) | Q(is_shared=True))

    def offered_at(self, namespace: str, path: str) -> SavedQuerySet:
        """What is for this entity, and what is for all."""
        return self.filter(Q(path="") | Q(namespace=namespace, path=path))


class Saved(models.Model):
    """Something that a person saved under a name.

    owner: who saved it, and may change and delete it. is_shared: everybody sees it. namespace, path: of the entity that it is
    for, which may be gone; empty: it is for all.
    """

    name = models.CharField(max_length=80)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    is_shared = models.BooleanField(default=False)
    namespace = models.CharField(max_length=255, blank=True, default="")
    path = models.CharField(max_length=260, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SavedQuerySet.as_manager()

    class Meta:
        abstract = True
        ordering = ["name", "id"]

    def __str__(self):
        return self.name


class SavedFilter(Saved):
    """A filter of messages (broker_core/reads/filters.py). The text may be one that cannot be read any more; it is checked when
    it is used."""

    text = models.CharField(max_length=2000)

    class Meta(Saved.Meta):
        db_table = "vitrine_saved_filter"
        constraints = [models.UniqueConstraint(fields=["owner", "name", "namespace", "path"], name="vitrine_saved_filter_name")]


class MessageTemplate(Saved):
    """The contents of a form that sends. family: whose form it is. fields: the texts in its fields by name, and the rows of typed
    values. They are as typed; the form checks them when it sends."""

    family = models.CharField(max_length=20)
    fields = models.JSONField()

    class Meta(Saved.Meta):
        db_table = "vitrine_message_template"
        constraints = [
            models.UniqueConstraint(fields=["owner", "family", "name", "namespace", "path"], name="vitrine_message_template_name")
        ]
