"""Bindings of the Celery transport: exchanges exist in every process alone, which queues hang on them is shared here."""

from django.db import models

from .entities import Entity


class CeleryBinding(models.Model):
    """A queue that gets what is published to an exchange under a routing key. It ends with its queue: no constraint ties them."""

    entity = models.ForeignKey(Entity, db_constraint=False, on_delete=models.DO_NOTHING, related_name="+")
    exchange = models.CharField(max_length=255)
    routing_key = models.CharField(max_length=255, blank=True, default="")

    class Meta:
        db_table = "vitrine_celery_binding"
        constraints = [models.UniqueConstraint(fields=["entity", "exchange", "routing_key"], name="vitrine_celery_binding_once")]
        indexes = [models.Index(fields=["exchange"], name="vitrine_celery_exchange")]

    def __str__(self):
        return f"{self.exchange} -> {self.entity}"
