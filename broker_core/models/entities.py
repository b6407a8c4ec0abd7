"""Namespaces, entities and shared-access policies: the configuration."""

from django.db import models
from django.db.models import Case, F, When
from django.db.models.functions import Lower

from broker_core.common.entity_defaults import ENTITY_DEFAULTS as DEFAULTS
from broker_core.common.types import Behaviour, EntityKind, EntityStatus, ExpiryMode, Family, HistoryLevel, Tier


class Namespace(models.Model):
    """A set of entities of one family with one clock (docs/design.md D6, D10): a namespace, storage account or virtual host.

    While `clock_base_at` is set the clock is manual: it shows clock_base_at + (real time since clock_base_real) * clock_rate.
    A deleted namespace keeps its row, under another name, as long as events refer to its entities.
    """

    name = models.CharField(max_length=255)
    family = models.CharField(
        max_length=20, choices=[(f, f) for f in Family], default=Family.SERVICE_BUS, db_default="service_bus", editable=False
    )
    description = models.CharField(max_length=250, blank=True, default="")
    is_system = models.BooleanField(default=False, editable=False)
    tier = models.CharField(max_length=10, choices=[(t, t) for t in Tier], default=Tier.STANDARD)
    behaviour = models.CharField(
        max_length=10, choices=[(b, b) for b in Behaviour], default=Behaviour.CONVENIENT, db_default="convenient"
    )
    max_size_in_megabytes = models.PositiveIntegerField(null=True, blank=True)  # of all its messages; NULL: unlimited
    archive_days = models.PositiveIntegerField(null=True, blank=True)  # how long the archive is kept; NULL: for ever
    keep_messages_for = models.DurationField(null=True, blank=True)  # ended messages are kept whole so long; NULL: not
    created_at = models.DateTimeField(auto_now_add=True)
    clock_base_at = models.DateTimeField(null=True, blank=True, editable=False)
    clock_base_real = models.DateTimeField(null=True, blank=True, editable=False)
    clock_rate = models.FloatField(default=1.0, editable=False)
    topology_version = models.BigIntegerField(
        default=1, db_default=1, editable=False
    )  # raised with each change of the routing topology
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "vitrine_namespace"
        ordering = ["name"]
        constraints = [models.UniqueConstraint(Lower("name"), name="vitrine_namespace_name")]

    def __str__(self):
        return self.name


class Entity(models.Model):
    """An object with an address. A deleted entity keeps its row as long as messages or events refer to it."""

    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="entities")
    path = models.CharField(max_length=330)  # a subscription's: topic/Subscriptions/name
    family = models.CharField(max_length=20, choices=[(f, f) for f in Family], default=Family.SERVICE_BUS, editable=False)
    key = models.GeneratedField(  # for comparing names: case-sensitive in RabbitMQ, case-insensitive elsewhere
        expression=Case(When(family=Family.RABBITMQ, then=F("path")), default=Lower("path")),
        output_field=models.CharField(max_length=330),
        db_persist=True,
    )
    kind = models.CharField(max_length=20, choices=[(k, k) for k in EntityKind], default=EntityKind.QUEUE, editable=False)
    topic = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="subscriptions", editable=False
    )
    rules_version = models.BigIntegerField(default=1, editable=False)  # of a topic: raised when its rules or subscriptions change
    lock_duration = models.DurationField(default=DEFAULTS["lock_duration"])
    max_delivery_count = models.IntegerField(default=DEFAULTS["max_delivery_count"])
    default_message_time_to_live = models.DurationField(null=True, blank=True)
    dead_lettering_on_message_expiration = models.BooleanField(default=False)
    dead_lettering_on_filter_evaluation_exceptions = models.BooleanField(default=True)
    auto_delete_on_idle = models.DurationField(null=True, blank=True)
    requires_session = models.BooleanField(default=False)
    requires_duplicate_detection = models.BooleanField(default=False)
    duplicate_detection_history_time_window = models.DurationField(default=DEFAULTS["duplicate_detection_history_time_window"])
    forward_to = models.CharField(max_length=260, null=True, blank=True)
    forward_dead_lettered_messages_to = models.CharField(max_length=260, null=True, blank=True)
    expires_whole_sessions = models.BooleanField(default=True)
    drops_locks_on_change = models.BooleanField(null=True, blank=True)  # NULL: by the namespace's behaviour
    peek_shows_default_expiry = models.BooleanField(null=True, blank=True)  # likewise
    max_size_in_megabytes = models.IntegerField(default=DEFAULTS["max_size_in_megabytes"])
    max_message_size_in_kilobytes = models.IntegerField(default=DEFAULTS["max_message_size_in_kilobytes"])
    status = models.CharField(max_length=20, choices=[(s, s) for s in EntityStatus], default=EntityStatus.ACTIVE)
    user_metadata = models.CharField(max_length=1024, null=True, blank=True)
    expiry_mode = models.CharField(  # NULL: by the namespace's behaviour
        max_length=20, choices=[(m, m) for m in ExpiryMode], null=True, blank=True
    )
    history_level = models.SmallIntegerField(
        choices=[(level, level.name.lower()) for level in HistoryLevel], default=HistoryLevel.FULL
    )
    hidden = models.BooleanField(default=False)
    kept_properties = models.JSONField(default=dict, db_default={}, blank=True, editable=False)  # without effect (SB-940)
    protected = models.BooleanField(default=False, db_default=False, editable=False)  # deleting is refused
    options = models.JSONField(default=dict, db_default={}, blank=True, editable=False)  # settings that only its family has
    effective = models.JSONField(
        default=dict, db_default={}, blank=True, editable=False
    )  # the settings that apply, with policies
    owner_id = models.BigIntegerField(null=True, blank=True, editable=False)  # the connection an exclusive queue belongs to
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    deleted_by = models.TextField(null=True, blank=True, editable=False)
    deleted_messages = models.BigIntegerField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "vitrine_entity"
        ordering = ["namespace__name", "path"]
        verbose_name_plural = "entities"
        constraints = [
            models.UniqueConstraint(
                fields=["namespace", "key"], condition=models.Q(deleted_at__isnull=True), name="vitrine_entity_key"
            ),
            models.CheckConstraint(condition=models.Q(max_delivery_count__gte=1), name="vitrine_entity_max_delivery_count"),
        ]

    def __str__(self):
        return f"{self.namespace}/{self.path}"


class Rule(models.Model):
    """A rule of a subscription: a filter and an action. The JSON is that of service_bus.rules.filters."""

    subscription = models.ForeignKey(Entity, on_delete=models.CASCADE, related_name="rules")
    name = models.CharField(max_length=50)
    filter = models.JSONField()
    action = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "vitrine_rule"
        verbose_name = "subscription rule"
        ordering = ["name"]
        constraints = [models.UniqueConstraint("subscription", Lower("name"), name="vitrine_rule_name")]

    def __str__(self):
        return f"{self.subscription}: {self.name}"


class EntityCounter(models.Model):
    """The next sequence number of an entity, and all bytes ever sent to it. Kept small: this row has the most updates."""

    entity = models.OneToOneField(Entity, primary_key=True, db_constraint=False, on_delete=models.DO_NOTHING, related_name="+")
    next_number = models.BigIntegerField(default=1)
    bytes_sent = models.BigIntegerField(default=0)

    class Meta:
        db_table = "vitrine_entity_counter"
        managed = False


class SharedAccessPolicy(models.Model):
    """A named pair of keys with rights, for a namespace or for one of its entities."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="policies")
    entity = models.ForeignKey(Entity, null=True, blank=True, on_delete=models.CASCADE, related_name="policies")
    name = models.CharField(max_length=256)
    primary_key = models.CharField(max_length=64)
    secondary_key = models.CharField(max_length=64)
    send = models.BooleanField(default=False)
    listen = models.BooleanField(default=False)
    manage = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "vitrine_shared_access_policy"
        verbose_name_plural = "shared access policies"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "entity", "name"], nulls_distinct=False, name="vitrine_policy_name")
        ]
        indexes = [models.Index(Lower("name"), name="vitrine_policy_by_name")]

    def __str__(self):
        return f"{self.entity or self.namespace}: {self.name}"
