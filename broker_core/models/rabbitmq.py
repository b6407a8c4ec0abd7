"""RabbitMQ's own objects: the topology of virtual hosts, and their connections."""

from django.db import models

from .entities import Entity, Namespace


class Exchange(models.Model):
    """An exchange of a virtual host. The default exchange has no row: its bindings are the queues' names."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="exchanges")
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=20)
    durable = models.BooleanField(default=True)
    auto_delete = models.BooleanField(default=False)
    internal = models.BooleanField(default=False)
    arguments = models.JSONField(default=dict, blank=True)  # name -> [type, text], see rabbitmq.rules.table
    effective = models.JSONField(default=dict, blank=True, editable=False)  # the arguments that apply, with policies
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_exchange"
        verbose_name = "RabbitMQ exchange"
        ordering = ["namespace__name", "name"]
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="vitrine_exchange_name")]

    def __str__(self):
        return f"{self.namespace}: {self.name}"


class Binding(models.Model):
    """A binding from an exchange to a queue or to another exchange; exactly one of the two is set."""

    source = models.ForeignKey(Exchange, on_delete=models.CASCADE, related_name="bindings")
    queue = models.ForeignKey(Entity, null=True, blank=True, on_delete=models.CASCADE, related_name="bindings")
    exchange = models.ForeignKey(Exchange, null=True, blank=True, on_delete=models.CASCADE, related_name="bindings_to")
    routing_key = models.CharField(max_length=255, blank=True, default="")
    arguments = models.JSONField(default=dict, blank=True)
    arguments_hash = models.CharField(max_length=32, default="", editable=False)  # "" without arguments
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_binding"
        verbose_name = "RabbitMQ binding"
        constraints = [
            models.UniqueConstraint(
                fields=["source", "queue", "exchange", "routing_key", "arguments_hash"],
                nulls_distinct=False,
                name="vitrine_binding_identity",
            ),
            models.CheckConstraint(
                condition=models.Q(queue__isnull=True) ^ models.Q(exchange__isnull=True), name="vitrine_binding_one_destination"
            ),
        ]

    def __str__(self):
        return f"{self.source} -> {self.queue or self.exchange} ({self.routing_key})"


class Policy(models.Model):
    """A policy or operator policy of a virtual host."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="queue_policies")
    name = models.CharField(max_length=255)
    is_operator = models.BooleanField(default=False)
    pattern = models.CharField(max_length=1024, blank=True, default="")
    apply_to = models.CharField(max_length=20, default="all")
    priority = models.FloatField(default=0)
    definition = models.JSONField(default=dict)  # plain JSON, by RabbitMQ's key names

    class Meta:
        db_table = "vitrine_policy"
        verbose_name = "RabbitMQ policy"
        verbose_name_plural = "RabbitMQ policies"
        ordering = ["namespace__name", "is_operator", "-priority", "name"]
        constraints = [models.UniqueConstraint(fields=["namespace", "is_operator", "name"], name="vitrine_policy_identity")]

    def __str__(self):
        return f"{self.namespace}: {self.name}"


class BrokerProcess(models.Model):
    """A process with connections, or a listener. While it runs it holds an advisory lock on its epoch and renews its lease.
    listener: what it listens on (broker_core/listener/status.py); NULL: it is none."""

    epoch = models.BigAutoField(primary_key=True)
    label = models.CharField(max_length=255)
    started_at = models.DateTimeField()
    lease_until = models.DateTimeField()  # real time
    listener = models.JSONField(null=True)

    class Meta:
        db_table = "vitrine_broker_process"

    def __str__(self):
        return self.label


class Connection(models.Model):
    """A connection to a virtual host. When it ends, its messages are requeued and its exclusive queues deleted. Messages refer to
    it in owner_id. actor: whose it is, as in events."""

    process = models.ForeignKey(BrokerProcess, db_column="epoch", on_delete=models.CASCADE, related_name="connections")
    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="connections")
    name = models.CharField(max_length=255)
    actor = models.CharField(max_length=255)
    opened_at = models.DateTimeField()  # the namespace's clock

    class Meta:
        db_table = "vitrine_connection"
        verbose_name = "RabbitMQ connection"
        indexes = [models.Index(fields=["process"], name="vitrine_connection_process")]

    def __str__(self):
        return self.name


class Consumer(models.Model):
    """A consumer of a queue on a channel of a connection. Lower ids come first."""

    connection = models.ForeignKey(Connection, on_delete=models.CASCADE, related_name="consumers")
    channel = models.IntegerField(default=1)
    queue = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="consumers")
    tag = models.CharField(max_length=255)
    no_ack = models.BooleanField(default=False)
    exclusive = models.BooleanField(default=False)
    priority = models.IntegerField(default=0)
    prefetch = models.IntegerField(default=0)
    channel_prefetch = models.IntegerField(default=0)  # of its channel: for all its consumers together
    arguments = models.JSONField(default=dict, blank=True)
    began_at = models.DateTimeField()  # the namespace's clock

    class Meta:
        db_table = "vitrine_consumer"
        verbose_name = "RabbitMQ consumer"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["connection", "channel", "tag"], name="vitrine_consumer_tag")]

    def __str__(self):
        return self.tag
