"""State of the demo."""

from django.db import models


class Demonstration(models.Model):
    """Whether the demo was set up and is paused. At most one row, with the id 1; no row: never set up.

    changed_by: the user who paused or resumed it last ("user:alice"), at changed_at; empty: never paused.
    """

    ONLY = 1

    set_up_at = models.DateTimeField(auto_now_add=True)
    is_paused = models.BooleanField(default=False)
    changed_at = models.DateTimeField(null=True)
    changed_by = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        db_table = "vitrine_demonstration"

    def __str__(self):
        return f"demonstration, {'paused' if self.is_paused else 'running'}"
