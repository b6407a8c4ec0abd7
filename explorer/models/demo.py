"""State of the demo, and the faults that run in it."""

from enum import StrEnum

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


class FaultKind(StrEnum):
    """What a fault does to its target: a program, or for STOPPED a background task."""

    KILLED = "killed"
    SLOW = "slow"
    FAILING = "failing"
    DISCONNECTED = "disconnected"
    STOPPED = "stopped"

    @property
    def verb(self) -> str:
        """What a button says that starts it."""
        return _VERBS[self]


_VERBS = {
    FaultKind.KILLED: "Kill",
    FaultKind.SLOW: "Slow down",
    FaultKind.FAILING: "Fail",
    FaultKind.DISCONNECTED: "Disconnect",
    FaultKind.STOPPED: "Stop",
}


class Fault(models.Model):
    """A fault that an operator caused in the demo. It ends by itself at `until`; the row stays until its effect is undone.

    target: the name of a program or of a background task; empty: the connections of the demo to the database. A target has one
    fault at a time. started_by: "user:alice".
    """

    target = models.CharField(max_length=200, primary_key=True)
    kind = models.CharField(max_length=20, choices=[(fault_kind.value, fault_kind.value) for fault_kind in FaultKind])
    started_at = models.DateTimeField()
    until = models.DateTimeField()
    started_by = models.CharField(max_length=200)

    class Meta:
        db_table = "vitrine_fault"

    def __str__(self):
        return f"{self.target or 'database connections'} {self.kind}"
