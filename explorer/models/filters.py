"""Filters that people saved under a name."""

from django.conf import settings
from django.db import models


class SavedFilter(models.Model):
    """A filter of messages (broker_core/reads/filters.py).

    owner: who saved it, and may delete it. is_shared: everybody sees it. namespace, path: of the entity whose lists it is for;
    empty: it is for all lists and the search. The text may be one that cannot be read any more; it is checked when it is used.
    """

    name = models.CharField(max_length=80)
    text = models.CharField(max_length=2000)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    is_shared = models.BooleanField(default=False)
    namespace = models.CharField(max_length=255, blank=True, default="")
    path = models.CharField(max_length=260, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_saved_filter"
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["owner", "name", "namespace", "path"], name="vitrine_saved_filter_name")]

    def __str__(self):
        return self.name
