"""Messages and their events, mapped for reading. The tables are created in SQL (migrations/message_tables.sql)."""

from django.db import models

from broker_core.common.types import EventKind

from .entities import Entity


class Message(models.Model):
    """A message in its current list. The primary key begins with the entity, so that the table can be partitioned by it later."""

    pk = models.CompositePrimaryKey("entity_id", "subqueue", "state", "sequence_number")
    entity = models.ForeignKey(Entity, db_constraint=False, on_delete=models.DO_NOTHING, related_name="+")
    subqueue = models.SmallIntegerField()
    state = models.SmallIntegerField()
    sequence_number = models.BigIntegerField()
    delivery_count = models.IntegerField()
    enqueued_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    locked_until = models.DateTimeField(null=True)
    message_id = models.TextField(null=True)
    dead_letter_reason = models.TextField(null=True)

    class Meta:
        db_table = "vitrine_message"
        managed = False


class MessageEvent(models.Model):
    """An event of a message. `event_id` orders events; it is unique, though without an index."""

    event_id = models.BigIntegerField(primary_key=True)
    recorded_at = models.DateTimeField()
    at = models.DateTimeField()
    entity = models.ForeignKey(Entity, db_constraint=False, on_delete=models.DO_NOTHING, related_name="+")
    subqueue = models.SmallIntegerField()
    sequence_number = models.BigIntegerField()
    kind = models.SmallIntegerField(choices=[(k.value, k.name.lower().replace("_", " ")) for k in EventKind])
    message_id = models.TextField(null=True)
    delivery_count = models.IntegerField(null=True)
    locked_until = models.DateTimeField(null=True)
    actor = models.TextField(null=True)
    reason = models.TextField(null=True)
    details = models.JSONField(null=True)

    class Meta:
        db_table = "vitrine_message_event"
        managed = False

    def __str__(self):
        return f"{self.get_kind_display()} {self.sequence_number}"
