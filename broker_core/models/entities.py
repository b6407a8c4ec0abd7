"""Namespaces, entities and shared-access policies: the configuration."""

from django.db import models
from django.db.models.functions import Lower

from broker_core.semantics.types import EntityStatus, ExpiryMode, HistoryLevel, QueueSettings

DEFAULTS = QueueSettings()


class Namespace(models.Model):
    """A set of entities with one clock (design D6).

    While `clock_base_at` is set the clock is manual: it shows clock_base_at + (real time since clock_base_real) * clock_rate.
    """

    name = models.CharField(max_length=50)
    description = models.CharField(max_length=250, blank=True, default="")
    is_system = models.BooleanField(default=False, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    clock_base_at = models.DateTimeField(null=True, blank=True, editable=False)
    clock_base_real = models.DateTimeField(null=True, blank=True, editable=False)
    clock_rate = models.FloatField(default=1.0, editable=False)

    class Meta:
        db_table = "vitrine_namespace"
        ordering = ["name"]
        constraints = [models.UniqueConstraint(Lower("name"), name="vitrine_namespace_name")]

    def __str__(self):
        return self.name


class Entity(models.Model):
    """What has an address. A deleted one keeps its row, so that history can name it, until its messages are gone and
    forgotten."""

    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="entities")
    path = models.CharField(max_length=260)
    family = models.CharField(max_length=20, default="service_bus", editable=False)
    kind = models.CharField(max_length=20, default="queue", editable=False)
    lock_duration = models.DurationField(default=DEFAULTS.lock_duration)
    max_delivery_count = models.IntegerField(default=DEFAULTS.max_delivery_count)
    default_message_time_to_live = models.DurationField(null=True, blank=True)
    dead_lettering_on_message_expiration = models.BooleanField(default=False)
    auto_delete_on_idle = models.DurationField(null=True, blank=True)
    max_size_in_megabytes = models.IntegerField(default=DEFAULTS.max_size_in_megabytes)
    max_message_size_in_kilobytes = models.IntegerField(default=DEFAULTS.max_message_size_in_kilobytes)
    status = models.CharField(max_length=20, choices=[(s, s) for s in EntityStatus], default=EntityStatus.ACTIVE)
    user_metadata = models.CharField(max_length=1024, null=True, blank=True)
    expiry_mode = models.CharField(max_length=20, choices=[(m, m) for m in ExpiryMode], default=ExpiryMode.EAGER)
    history_level = models.SmallIntegerField(
        choices=[(level, level.name.lower()) for level in HistoryLevel], default=HistoryLevel.FULL
    )
    hidden = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "vitrine_entity"
        ordering = ["namespace__name", "path"]
        verbose_name_plural = "entities"
        constraints = [
            models.UniqueConstraint(
                models.F("namespace"), Lower("path"), condition=models.Q(deleted_at__isnull=True), name="vitrine_entity_path"
            ),
            models.CheckConstraint(condition=models.Q(max_delivery_count__gte=1), name="vitrine_entity_max_delivery_count"),
        ]

    def __str__(self):
        return f"{self.namespace}/{self.path}"


class EntityCounter(models.Model):
    """The next sequence number of an entity, and all bytes ever sent to it. The hottest row there is: nothing else lives here."""

    entity = models.OneToOneField(Entity, primary_key=True, db_constraint=False, on_delete=models.DO_NOTHING, related_name="+")
    next_number = models.BigIntegerField(default=1)
    bytes_sent = models.BigIntegerField(default=0)

    class Meta:
        db_table = "vitrine_entity_counter"
        managed = False


class SharedAccessPolicy(models.Model):
    """A named pair of keys with rights, for a namespace or for one of its entities (SB 7.7)."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="policies")
    entity = models.ForeignKey(Entity, null=True, blank=True, on_delete=models.CASCADE, related_name="policies")
    name = models.CharField(max_length=256)
    primary_key = models.CharField(max_length=64)
    secondary_key = models.CharField(max_length=64)
    send = models.BooleanField(default=False)
    listen = models.BooleanField(default=False)
    manage = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_shared_access_policy"
        verbose_name_plural = "shared access policies"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "entity", "name"], nulls_distinct=False, name="vitrine_policy_name")
        ]

    def __str__(self):
        return f"{self.entity or self.namespace}: {self.name}"
