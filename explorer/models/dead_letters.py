"""Notes of operators on groups of dead letters."""

from django.db import models


class DeadLetterNote(models.Model):
    """What operators know about a group: who works on it, what the cause is. filter: finds the group in its list;
    digest: of the filter, which may be too long for an index."""

    namespace = models.CharField(max_length=255)
    path = models.CharField(max_length=330)
    subqueue = models.SmallIntegerField(default=0)
    filter = models.TextField()
    digest = models.CharField(max_length=64)
    text = models.CharField(max_length=300)
    actor = models.CharField(max_length=200)
    at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "vitrine_dead_letter_note"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "path", "subqueue", "digest"], name="vitrine_note_of_group"),
        ]

    def __str__(self) -> str:
        return self.text
