"""Audit of user actions in the explorer, including refused ones. Append-only. Clients' operations are in the events."""

from django.db import models
from django.urls import reverse


class AuditRecord(models.Model):
    """One action of a user.

    at: database time. actor: as in events ("user:alice"). target: the affected part of the entity, in words ("messages 3, 4").
    outcome: done, or refused with the reason in `detail`. tracking_id: of the refusal, as shown to the user.
    """

    SIGN_IN = "sign in"  # the action whose records limit sign-in attempts

    class Outcome(models.TextChoices):
        DONE = "done"
        REFUSED = "refused"

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=60)
    namespace = models.CharField(max_length=50, blank=True, default="")
    path = models.CharField(max_length=260, blank=True, default="")
    target = models.CharField(max_length=300, blank=True, default="")
    outcome = models.CharField(max_length=10, choices=Outcome)
    detail = models.TextField(blank=True, default="")
    tracking_id = models.CharField(max_length=36, blank=True, default="")

    class Meta:
        db_table = "vitrine_audit_record"
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["-at", "-id"], name="vitrine_audit_latest"),
            models.Index(fields=["namespace", "path", "-at"], name="vitrine_audit_entity"),
            models.Index(fields=["actor", "target", "-at"], condition=models.Q(action="sign in"), name="vitrine_audit_sign_ins"),
        ]

    @property
    def message_url(self) -> str:
        """The page of the message that the action was about; empty: it was about none, or about several."""
        noun, _, number = self.target.partition(" ")
        if noun != "message" or not self.path or not number.isdecimal():
            return ""
        return reverse("explorer:message", args=(self.namespace, self.path, number))

    def __str__(self):
        return f"{self.actor}: {self.action} {self.target}".strip()
