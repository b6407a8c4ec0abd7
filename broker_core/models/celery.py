"""Bindings of the Celery transport. kombu declares exchanges in each process; their bindings are shared in this table."""

from django.db import models

from .entities import Entity


class CeleryBinding(models.Model):
    """A queue bound to an exchange with a routing key. The binding of a deleted queue is ignored and removed later."""

    entity = models.ForeignKey(Entity, db_constraint=False, on_delete=models.DO_NOTHING, related_name="+")
    exchange = models.CharField(max_length=255)
    routing_key = models.CharField(max_length=255, blank=True, default="")

    class Meta:
        db_table = "vitrine_celery_binding"
        constraints = [models.UniqueConstraint(fields=["entity", "exchange", "routing_key"], name="vitrine_celery_binding_once")]
        indexes = [models.Index(fields=["exchange"], name="vitrine_celery_exchange")]

    def __str__(self):
        return f"{self.exchange} -> {self.entity}"
