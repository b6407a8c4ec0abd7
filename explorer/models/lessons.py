"""Sandboxes, and what people have learned."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from broker_core.reads import FROM_THE_BEGINNING


class Sandbox(models.Model):
    """A namespace that belongs to one person, who has all rights in it. It is removed a day after it was started.

    family: of the namespace. lesson: the slug of the lesson that is played in it; empty: none. step: the index of its current
    step. state: of the current step, and what the sandbox has to remember (explorer/lessons/run.py). code: of the link by which
    others follow the lesson; empty: nobody may.
    """

    namespace = models.CharField(max_length=255, unique=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    family = models.CharField(max_length=20)
    lesson = models.CharField(max_length=80, blank=True, default="")
    step = models.PositiveSmallIntegerField(default=0)
    state = models.JSONField(default=dict)
    code = models.CharField(max_length=16, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_sandbox"
        ordering = ["-created_at", "-id"]

    def __str__(self):
        return self.namespace

    @property
    def start(self) -> str:
        """Which events were committed when it was started or reset: a snapshot."""
        return self.state.get("start", FROM_THE_BEGINNING)

    def save_step(self):
        """Write the step and the state alone: the object may be older than the other columns, or the row deleted meanwhile."""
        Sandbox.objects.filter(pk=self.pk).update(step=self.step, state=self.state)


class Load(models.Model):
    """The load on a queue of a sandbox, its newest one (explorer/lessons/load/).

    settings: see LoadSettings. state: what its programs have done, and what its receivers hold. end: why it is over; empty: it
    runs, unless `until` has passed. note: what keeps it from working as set. lease: of its worker, until leased_until.
    """

    sandbox = models.OneToOneField(Sandbox, on_delete=models.CASCADE, related_name="+")
    queue = models.CharField(max_length=260)
    settings = models.JSONField()
    state = models.JSONField(default=dict)
    started_at = models.DateTimeField()
    until = models.DateTimeField()
    end = models.CharField(max_length=300, blank=True, default="")
    note = models.CharField(max_length=300, blank=True, default="")
    lease = models.CharField(max_length=16, blank=True, default="")
    leased_until = models.DateTimeField()

    class Meta:
        db_table = "vitrine_load"

    def __str__(self):
        return f"load on {self.queue}"


class Scenario(models.Model):
    """A saved scenario with a load: a file (explorer/lessons/lesson.py) that its owner starts again in a new sandbox."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_scenario"
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="vitrine_scenario_name")]

    def __str__(self):
        return self.name


class FollowerAnswer(models.Model):
    """The prediction of a person who follows a lesson, for a step: the index of the choice."""

    sandbox = models.ForeignKey(Sandbox, on_delete=models.CASCADE, related_name="answers")
    follower = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    step = models.PositiveSmallIntegerField()
    choice = models.PositiveSmallIntegerField()

    class Meta:
        db_table = "vitrine_follower_answer"
        constraints = [models.UniqueConstraint(fields=["sandbox", "follower", "step"], name="vitrine_answer_of_follower")]

    def __str__(self):
        return f"step {self.step + 1}: choice {self.choice + 1}"


class LessonProgress(models.Model):
    """How far a person came in a lesson. It stays when the sandbox is removed.

    step: the furthest step reached. answers: by the index of a step, the choice first taken. completed_at None: not yet.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    lesson = models.CharField(max_length=80)
    step = models.PositiveSmallIntegerField(default=0)
    answers = models.JSONField(default=dict)
    completed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "vitrine_lesson_progress"
        constraints = [models.UniqueConstraint(fields=["owner", "lesson"], name="vitrine_lesson_of_person")]

    def __str__(self):
        return f"{self.lesson}: step {self.step + 1}"
