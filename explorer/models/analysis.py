"""Analyses of the history: request, progress and results."""

from django.db import models


class AnalysisRun(models.Model):
    """One analysis over the archived history of some queues.

    queues: [{"id", "namespace", "path"}] with the names at the time of the request.
    warm: whether a Spark driver executed it that was running already; None: it has not begun.
    clock_ahead: how far the clock of the queues' namespaces was ahead of real time, if the range was relative to it.
    An execution holds the run's lease: `claimed_by` is its token, and `lease_until` is renewed while it runs. A run whose lease
    has ended is no longer running, whatever `state` says (see `runs.end_dead_runs`).
    """

    QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "queued", "running", "succeeded", "failed", "cancelled"
    STATES = [(state, state) for state in (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED)]
    BUCKETS = [("minute", "minute"), ("hour", "hour"), ("day", "day")]

    kind = models.CharField(max_length=40, default="time_in_queue", editable=False)
    queues = models.JSONField()
    start_at = models.DateTimeField()
    end_at = models.DateTimeField()
    bucket = models.CharField(max_length=10, choices=BUCKETS, default="hour")
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField()
    clock_ahead = models.DurationField(null=True)

    state = models.CharField(max_length=10, choices=STATES, default=QUEUED)
    claimed_by = models.CharField(max_length=100, blank=True, default="")
    lease_until = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    cancelled_by = models.CharField(max_length=200, blank=True, default="")

    step = models.SmallIntegerField(default=0)
    steps = models.SmallIntegerField(default=0)
    step_text = models.CharField(max_length=200, blank=True, default="")
    tasks_done = models.IntegerField(default=0)
    tasks_total = models.IntegerField(default=0)
    log_tail = models.TextField(blank=True, default="")
    message = models.TextField(blank=True, default="")
    notes = models.JSONField(default=list)
    messages = models.BigIntegerField(null=True)
    warm = models.BooleanField(null=True)

    class Meta:
        db_table = "vitrine_analysis_run"
        ordering = ["-requested_at"]
        verbose_name = "analysis run"
        indexes = [models.Index(fields=["state"], name="vitrine_analysis_run_state")]

    def __str__(self):
        return f"analysis {self.pk} ({self.state})"

    @property
    def is_over(self) -> bool:
        return self.state in (self.SUCCEEDED, self.FAILED, self.CANCELLED)

    @property
    def duration(self):
        """How long the run took; None before its end."""
        return self.finished_at - self.started_at if self.finished_at and self.started_at else None


class AnalysisResult(models.Model):
    """Outcomes and times of the messages that entered one queue in one bucket; without a bucket: in the whole range.

    waited, processed: the number of messages with such a time; if 0, the percentiles are NULL.
    generated: how many of `messages` are generated demo history.
    """

    run = models.ForeignKey(AnalysisRun, on_delete=models.CASCADE, related_name="results")
    entity_id = models.BigIntegerField()
    bucket_at = models.DateTimeField(null=True)
    messages = models.BigIntegerField()
    completed = models.BigIntegerField()
    expired = models.BigIntegerField()
    dead_lettered = models.BigIntegerField()
    moved = models.BigIntegerField()
    forwarded = models.BigIntegerField()
    resubmitted = models.BigIntegerField()
    deleted = models.BigIntegerField()
    dropped = models.BigIntegerField()
    received_and_deleted = models.BigIntegerField()
    purged = models.BigIntegerField()
    other = models.BigIntegerField()
    still_there = models.BigIntegerField()
    generated = models.BigIntegerField()
    waited = models.BigIntegerField()
    waiting_p50 = models.DurationField(null=True)
    waiting_p95 = models.DurationField(null=True)
    waiting_p99 = models.DurationField(null=True)
    processed = models.BigIntegerField()
    processing_p50 = models.DurationField(null=True)
    processing_p95 = models.DurationField(null=True)
    processing_p99 = models.DurationField(null=True)

    class Meta:
        db_table = "vitrine_analysis_result"
        ordering = ["run", "entity_id", "bucket_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "entity_id", "bucket_at"], nulls_distinct=False, name="vitrine_analysis_result_bucket"
            )
        ]


class AnalysisReason(models.Model):
    """How many of a bucket's messages were dead-lettered, moved or dropped for one reason."""

    run = models.ForeignKey(AnalysisRun, on_delete=models.CASCADE, related_name="reasons")
    entity_id = models.BigIntegerField()
    bucket_at = models.DateTimeField()
    reason = models.TextField()
    messages = models.BigIntegerField()

    class Meta:
        db_table = "vitrine_analysis_reason"
        ordering = ["run", "entity_id", "bucket_at", "-messages"]
