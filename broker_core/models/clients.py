"""The clients that are connected, mapped for reading. The tables are created in SQL (migrations/message_tables.sql), and
broker_core/clients writes their rows."""

from django.db import models


class Client(models.Model):
    """A connected client of a process. number: unique in the process."""

    pk = models.CompositePrimaryKey("epoch", "number")
    epoch = models.BigIntegerField()
    number = models.BigIntegerField()
    protocol = models.TextField()
    peer = models.TextField()
    port = models.IntegerField()
    is_tls = models.BooleanField()
    product = models.TextField()
    version = models.TextField()
    actor = models.TextField()
    holder = models.TextField()
    namespace = models.TextField()
    since = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        db_table = "vitrine_client"
        managed = False

    def __str__(self):
        return f"{self.product} at {self.peer}"


class ClientLink(models.Model):
    """A link of a client. number: unique in the process, also among clients."""

    pk = models.CompositePrimaryKey("epoch", "number")
    epoch = models.BigIntegerField()
    number = models.BigIntegerField()
    client = models.BigIntegerField()
    namespace = models.TextField()
    path = models.TextField()
    direction = models.TextField()
    mode = models.TextField()

    class Meta:
        db_table = "vitrine_client_link"
        managed = False

    def __str__(self):
        return f"{self.direction} {self.namespace}/{self.path}"
