"""Analyses of the history: runs of Spark jobs, and their results."""

from django.db import models


class AnalysisRun(models.Model):
    """One run of Spark jobs.

    kind: "reports" (which `request` lists), "maintenance" (the nightly jobs), or "import", "generation" and "verification", which
    a command requests and executes. namespace, subject: what it is about, by the
    names of that time; empty: the whole archive. warm: whether a Spark driver executed it that was running already; None: it has
    not begun. expected_seconds: how long it should take, by the last run that made the same; None: not known.
    An execution holds the run's lease: `claimed_by` is its token, and `lease_until` is renewed while it runs. A run whose lease
    has ended is no longer running, whatever `state` says (see `running.runs.end_dead_runs`).
    """

    QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "queued", "running", "succeeded", "failed", "cancelled"
    STATES = [(state, state) for state in (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED)]
    REPORTS, MAINTENANCE = "reports", "maintenance"
    IMPORT, GENERATION, VERIFICATION = "import", "generation", "verification"

    kind = models.CharField(max_length=20, default=REPORTS, editable=False)
    namespace = models.CharField(max_length=50, blank=True, default="")
    subject = models.CharField(max_length=400, blank=True, default="")
    request = models.JSONField(default=dict)
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField()

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
    expected_seconds = models.FloatField(null=True)
    log_tail = models.TextField(blank=True, default="")
    message = models.TextField(blank=True, default="")
    notes = models.JSONField(default=list)
    events = models.BigIntegerField(null=True)
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
    """The newest tables of a report for a scope, a range and the values of its form.

    key: of these (running.submission.key_of). tables: as jobs.reporting packs them. asked: the request that they answer, without
    files (jobs.history.Request), whose range ended at that time. card: what pages show of the tables, as pages.cards packs it;
    None: not made yet.
    """

    key = models.CharField(max_length=64, primary_key=True)
    report = models.CharField(max_length=40)
    namespace_id = models.BigIntegerField()
    asked = models.JSONField()
    tables = models.BinaryField()
    card = models.BinaryField(null=True)
    run = models.ForeignKey(AnalysisRun, null=True, on_delete=models.SET_NULL, related_name="results")
    notes = models.JSONField(default=list)
    made_at = models.DateTimeField()
    opened_at = models.DateTimeField()

    class Meta:
        db_table = "vitrine_analysis_result"

    def __str__(self):
        return f"{self.report} of {self.made_at:%Y-%m-%d %H:%M}"
