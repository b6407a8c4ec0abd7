"""Records of sweep runs."""

from django.db import models


class SweepRun(models.Model):
    """One run of a sweep. outcome: counts by name. finished_at: None while it runs, or if its process was killed."""

    name = models.CharField(max_length=100)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    outcome = models.JSONField(default=dict)
    error = models.TextField(blank=True, default="")

    class Meta:
        db_table = "vitrine_sweep_run"
        verbose_name = "run of a background task"
        verbose_name_plural = "runs of background tasks"
        indexes = [models.Index(fields=["name", "-started_at"], name="vitrine_sweep_run_latest")]

    def __str__(self):
        return f"{self.name} at {self.started_at:%Y-%m-%d %H:%M:%S}"
