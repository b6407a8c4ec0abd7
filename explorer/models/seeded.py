"""What `manage.py seed` has created once, so that it does not come back after a user deleted it."""

from django.db import models


class SeededNamespace(models.Model):
    """A well-known namespace that this site has had. name: as FamilyDefinition.well_known has it."""

    name = models.CharField(max_length=255, primary_key=True)
    seeded_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_seeded_namespace"

    def __str__(self):
        return self.name
