"""The tables of the models: namespaces, entities and what belongs to them."""

import datetime

from django.contrib.postgres.fields import ArrayField
from django.core.management.base import CommandError
from django.db import migrations, models
from django.db.models.functions import Lower


def refuse_older_tables(apps, schema_editor):
    """Refuse a database from before the first release, whose tables were created by migrations since removed."""
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        if "vitrine_entity" in connection.introspection.table_names(cursor):
            raise CommandError(
                "The tables in this database were made by a version before the first release, and cannot be upgraded. Nothing "
                "was changed. To keep the entities and messages, run manage.py export_vitrine with that version, and "
                "manage.py import_vitrine with this one in an empty database. To start anew, delete the data folder (.vitrine, "
                "or what VITRINE_DATA names), or the database that DATABASE_URL names."
            )


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunPython(refuse_older_tables, migrations.RunPython.noop),
        migrations.CreateModel(
            "Namespace",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255)),
                (
                    "family",
                    models.CharField(
                        choices=[("service_bus", "service_bus"), ("queue_storage", "queue_storage"), ("rabbitmq", "rabbitmq")],
                        db_default="service_bus",
                        default="service_bus",
                        editable=False,
                        max_length=20,
                    ),
                ),
                ("description", models.CharField(blank=True, default="", max_length=250)),
                ("is_system", models.BooleanField(default=False, editable=False)),
                (
                    "tier",
                    models.CharField(
                        choices=[("basic", "basic"), ("standard", "standard"), ("premium", "premium")],
                        default="standard",
                        max_length=10,
                    ),
                ),
                (
                    "behaviour",
                    models.CharField(
                        choices=[("convenient", "convenient"), ("documented", "documented")],
                        db_default="convenient",
                        default="convenient",
                        max_length=10,
                    ),
                ),
                ("max_size_in_megabytes", models.PositiveIntegerField(blank=True, null=True)),
                ("archive_days", models.PositiveIntegerField(blank=True, null=True)),
                ("keep_messages_for", models.DurationField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("clock_base_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("clock_base_real", models.DateTimeField(blank=True, editable=False, null=True)),
                ("clock_rate", models.FloatField(default=1.0, editable=False)),
                ("topology_version", models.BigIntegerField(db_default=1, default=1, editable=False)),
                ("deleted_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "db_table": "vitrine_namespace",
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(Lower("name"), name="vitrine_namespace_name")],
            },
        ),
        migrations.CreateModel(
            "Entity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.ForeignKey(on_delete=models.PROTECT, related_name="entities", to="broker_core.namespace")),
                ("path", models.CharField(max_length=330)),
                (
                    "family",
                    models.CharField(
                        choices=[("service_bus", "service_bus"), ("queue_storage", "queue_storage"), ("rabbitmq", "rabbitmq")],
                        default="service_bus",
                        editable=False,
                        max_length=20,
                    ),
                ),
                (
                    "key",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Case(models.When(family="rabbitmq", then=models.F("path")), default=Lower("path")),
                        output_field=models.CharField(max_length=330),
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("queue", "queue"), ("topic", "topic"), ("subscription", "subscription")],
                        default="queue",
                        editable=False,
                        max_length=20,
                    ),
                ),
                (
                    "topic",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        null=True,
                        on_delete=models.PROTECT,
                        related_name="subscriptions",
                        to="broker_core.entity",
                    ),
                ),
                ("rules_version", models.BigIntegerField(default=1, editable=False)),
                ("lock_duration", models.DurationField(default=datetime.timedelta(seconds=60))),
                ("max_delivery_count", models.IntegerField(default=10)),
                ("default_message_time_to_live", models.DurationField(blank=True, null=True)),
                ("dead_lettering_on_message_expiration", models.BooleanField(default=False)),
                ("dead_lettering_on_filter_evaluation_exceptions", models.BooleanField(default=True)),
                ("auto_delete_on_idle", models.DurationField(blank=True, null=True)),
                ("requires_session", models.BooleanField(default=False)),
                ("requires_duplicate_detection", models.BooleanField(default=False)),
                ("duplicate_detection_history_time_window", models.DurationField(default=datetime.timedelta(seconds=600))),
                ("forward_to", models.CharField(blank=True, max_length=260, null=True)),
                ("forward_dead_lettered_messages_to", models.CharField(blank=True, max_length=260, null=True)),
                ("expires_whole_sessions", models.BooleanField(default=True)),
                ("drops_locks_on_change", models.BooleanField(blank=True, null=True)),
                ("peek_shows_default_expiry", models.BooleanField(blank=True, null=True)),
                ("max_size_in_megabytes", models.IntegerField(default=1024)),
                ("max_message_size_in_kilobytes", models.IntegerField(default=256)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("Active", "Active"),
                            ("Disabled", "Disabled"),
                            ("SendDisabled", "SendDisabled"),
                            ("ReceiveDisabled", "ReceiveDisabled"),
                        ],
                        default="Active",
                        max_length=20,
                    ),
                ),
                ("user_metadata", models.CharField(blank=True, max_length=1024, null=True)),
                (
                    "expiry_mode",
                    models.CharField(
                        blank=True,
                        choices=[("eager", "eager"), ("on_activity", "on_activity"), ("at_head", "at_head")],
                        max_length=20,
                        null=True,
                    ),
                ),
                ("history_level", models.SmallIntegerField(choices=[(0, "off"), (1, "lifecycle"), (2, "full")], default=2)),
                ("hidden", models.BooleanField(default=False)),
                ("kept_properties", models.JSONField(blank=True, db_default={}, default=dict, editable=False)),
                ("protected", models.BooleanField(db_default=False, default=False, editable=False)),
                ("options", models.JSONField(blank=True, db_default={}, default=dict, editable=False)),
                ("effective", models.JSONField(blank=True, db_default={}, default=dict, editable=False)),
                ("owner_id", models.BigIntegerField(blank=True, editable=False, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("deleted_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("deleted_by", models.TextField(blank=True, editable=False, null=True)),
                ("deleted_messages", models.BigIntegerField(blank=True, editable=False, null=True)),
            ],
            options={
                "db_table": "vitrine_entity",
                "verbose_name_plural": "entities",
                "ordering": ["namespace__name", "path"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("deleted_at__isnull", True)), fields=("namespace", "key"), name="vitrine_entity_key"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("max_delivery_count__gte", 1)), name="vitrine_entity_max_delivery_count"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "StorageAccount",
            fields=[
                (
                    "namespace",
                    models.OneToOneField(
                        on_delete=models.CASCADE,
                        primary_key=True,
                        related_name="storage_account",
                        serialize=False,
                        to="broker_core.namespace",
                    ),
                ),
                ("primary_key", models.CharField(max_length=128)),
                ("secondary_key", models.CharField(max_length=128)),
                ("properties", models.JSONField(blank=True, default=dict)),
            ],
            options={"db_table": "vitrine_storage_account", "verbose_name": "storage account"},
        ),
        migrations.CreateModel(
            "SharedAccessPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.ForeignKey(on_delete=models.CASCADE, related_name="policies", to="broker_core.namespace")),
                (
                    "entity",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="policies", to="broker_core.entity"
                    ),
                ),
                ("name", models.CharField(max_length=256)),
                ("primary_key", models.CharField(max_length=64)),
                ("secondary_key", models.CharField(max_length=64)),
                ("send", models.BooleanField(default=False)),
                ("listen", models.BooleanField(default=False)),
                ("manage", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "vitrine_shared_access_policy",
                "verbose_name_plural": "shared access policies",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("namespace", "entity", "name"), name="vitrine_policy_name", nulls_distinct=False
                    )
                ],
                "indexes": [models.Index(Lower("name"), name="vitrine_policy_by_name")],
            },
        ),
        # Subscriptions of topics
        migrations.CreateModel(
            "Rule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("subscription", models.ForeignKey(on_delete=models.CASCADE, related_name="rules", to="broker_core.entity")),
                ("name", models.CharField(max_length=50)),
                ("filter", models.JSONField()),
                ("action", models.JSONField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "db_table": "vitrine_rule",
                "verbose_name": "subscription rule",
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(models.F("subscription"), Lower("name"), name="vitrine_rule_name")],
            },
        ),
        # RabbitMQ
        migrations.CreateModel(
            "Exchange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.ForeignKey(on_delete=models.CASCADE, related_name="exchanges", to="broker_core.namespace")),
                ("name", models.CharField(max_length=255)),
                ("type", models.CharField(max_length=20)),
                ("durable", models.BooleanField(default=True)),
                ("auto_delete", models.BooleanField(default=False)),
                ("internal", models.BooleanField(default=False)),
                ("arguments", models.JSONField(blank=True, default=dict)),
                ("effective", models.JSONField(blank=True, default=dict, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "db_table": "vitrine_exchange",
                "verbose_name": "RabbitMQ exchange",
                "ordering": ["namespace__name", "name"],
                "constraints": [models.UniqueConstraint(fields=("namespace", "name"), name="vitrine_exchange_name")],
            },
        ),
        migrations.CreateModel(
            "Binding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.ForeignKey(on_delete=models.CASCADE, related_name="bindings", to="broker_core.exchange")),
                (
                    "queue",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="bindings", to="broker_core.entity"
                    ),
                ),
                (
                    "exchange",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=models.CASCADE, related_name="bindings_to", to="broker_core.exchange"
                    ),
                ),
                ("routing_key", models.CharField(blank=True, default="", max_length=255)),
                ("arguments", models.JSONField(blank=True, default=dict)),
                ("arguments_hash", models.CharField(default="", editable=False, max_length=32)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "db_table": "vitrine_binding",
                "verbose_name": "RabbitMQ binding",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("source", "queue", "exchange", "routing_key", "arguments_hash"),
                        name="vitrine_binding_identity",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("queue__isnull", True), ("exchange__isnull", True), _connector="XOR"),
                        name="vitrine_binding_one_destination",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "Policy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "namespace",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="queue_policies", to="broker_core.namespace"),
                ),
                ("name", models.CharField(max_length=255)),
                ("is_operator", models.BooleanField(default=False)),
                ("pattern", models.CharField(blank=True, default="", max_length=1024)),
                ("apply_to", models.CharField(default="all", max_length=20)),
                ("priority", models.FloatField(default=0)),
                ("definition", models.JSONField(default=dict)),
            ],
            options={
                "db_table": "vitrine_policy",
                "verbose_name": "RabbitMQ policy",
                "verbose_name_plural": "RabbitMQ policies",
                "ordering": ["namespace__name", "is_operator", "-priority", "name"],
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "is_operator", "name"), name="vitrine_policy_identity")
                ],
            },
        ),
        migrations.CreateModel(
            "BrokerProcess",
            fields=[
                ("epoch", models.BigAutoField(primary_key=True, serialize=False)),
                ("label", models.CharField(max_length=255)),
                ("started_at", models.DateTimeField()),
                ("lease_until", models.DateTimeField()),
                ("listener", models.JSONField(null=True)),
            ],
            options={
                "db_table": "vitrine_broker_process",
            },
        ),
        migrations.CreateModel(
            "Connection",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "process",
                    models.ForeignKey(
                        db_column="epoch", on_delete=models.CASCADE, related_name="connections", to="broker_core.brokerprocess"
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="connections", to="broker_core.namespace"),
                ),
                ("name", models.CharField(max_length=255)),
                ("actor", models.CharField(max_length=255)),
                ("opened_at", models.DateTimeField()),
            ],
            options={
                "db_table": "vitrine_connection",
                "verbose_name": "RabbitMQ connection",
                "indexes": [models.Index(fields=["process"], name="vitrine_connection_process")],
            },
        ),
        migrations.CreateModel(
            "Consumer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "connection",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="consumers", to="broker_core.connection"),
                ),
                ("channel", models.IntegerField(default=1)),
                ("queue", models.ForeignKey(on_delete=models.CASCADE, related_name="consumers", to="broker_core.entity")),
                ("tag", models.CharField(max_length=255)),
                ("no_ack", models.BooleanField(default=False)),
                ("exclusive", models.BooleanField(default=False)),
                ("priority", models.IntegerField(default=0)),
                ("prefetch", models.IntegerField(default=0)),
                ("channel_prefetch", models.IntegerField(default=0)),
                ("arguments", models.JSONField(blank=True, default=dict)),
                ("began_at", models.DateTimeField()),
            ],
            options={
                "db_table": "vitrine_consumer",
                "verbose_name": "RabbitMQ consumer",
                "ordering": ["id"],
                "constraints": [models.UniqueConstraint(fields=("connection", "channel", "tag"), name="vitrine_consumer_tag")],
            },
        ),
        # Celery, background tasks and the archive of the history
        migrations.CreateModel(
            "CeleryBinding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "entity",
                    models.ForeignKey(
                        db_constraint=False, on_delete=models.DO_NOTHING, related_name="+", to="broker_core.entity"
                    ),
                ),
                ("exchange", models.CharField(max_length=255)),
                ("routing_key", models.CharField(blank=True, default="", max_length=255)),
            ],
            options={
                "db_table": "vitrine_celery_binding",
                "indexes": [models.Index(fields=["exchange"], name="vitrine_celery_exchange")],
                "constraints": [
                    models.UniqueConstraint(fields=("entity", "exchange", "routing_key"), name="vitrine_celery_binding_once")
                ],
            },
        ),
        migrations.CreateModel(
            "SweepRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("outcome", models.JSONField(default=dict)),
                ("error", models.TextField(blank=True, default="")),
            ],
            options={
                "db_table": "vitrine_sweep_run",
                "verbose_name": "run of a background task",
                "verbose_name_plural": "runs of background tasks",
                "indexes": [models.Index(fields=["name", "-started_at"], name="vitrine_sweep_run_latest")],
            },
        ),
        migrations.CreateModel(
            "ArchiveEpoch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("system_identifier", models.BigIntegerField()),
                ("from_xid", models.BigIntegerField()),
                ("began_at", models.DateTimeField()),
            ],
            options={
                "db_table": "vitrine_archive_epoch",
                "verbose_name": "archive epoch",
            },
        ),
        migrations.CreateModel(
            "ArchiveSlice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("epoch", models.ForeignKey(on_delete=models.PROTECT, related_name="slices", to="broker_core.archiveepoch")),
                ("from_xid", models.BigIntegerField()),
                ("to_xid", models.BigIntegerField()),
                ("state", models.CharField(choices=[("open", "open"), ("done", "done")], max_length=10)),
                ("opened_at", models.DateTimeField()),
                ("done_at", models.DateTimeField(null=True)),
                ("events", models.BigIntegerField(null=True)),
                ("derived", models.BooleanField(db_default=False, default=False)),
            ],
            options={
                "db_table": "vitrine_archive_slice",
                "verbose_name": "archive slice",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "open")), fields=("state",), name="vitrine_archive_slice_one_open"
                    ),
                    models.UniqueConstraint(fields=("epoch", "from_xid"), name="vitrine_archive_slice_from"),
                    models.CheckConstraint(
                        condition=models.Q(("to_xid__gt", models.F("from_xid"))), name="vitrine_archive_slice_bounds"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "ArchiveFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "slice",
                    models.ForeignKey(null=True, on_delete=models.PROTECT, related_name="files", to="broker_core.archiveslice"),
                ),
                ("slices", ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                ("imported", models.BooleanField(default=False)),
                (
                    "content",
                    models.CharField(
                        choices=[
                            ("events", "events"),
                            ("settings", "settings"),
                            ("lives", "lives"),
                            ("open", "open"),
                            ("counts", "counts"),
                            ("histograms", "histograms"),
                        ],
                        max_length=10,
                    ),
                ),
                ("day", models.DateField()),
                ("namespace_id", models.BigIntegerField()),
                ("path", models.CharField(max_length=250)),
                ("rows", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
                ("schema_version", models.PositiveSmallIntegerField(default=1)),
                ("checksum", models.CharField(blank=True, default="", max_length=64)),
                ("first_at", models.DateTimeField(null=True)),
                ("last_at", models.DateTimeField(null=True)),
                ("rolled_up", models.BooleanField(db_default=False, default=False)),
                ("step_seconds", models.IntegerField(null=True)),
            ],
            options={
                "db_table": "vitrine_archive_file",
                "verbose_name": "archive file",
                "indexes": [models.Index(fields=["content", "day"], name="vitrine_archive_file_day")],
                "constraints": [models.UniqueConstraint(fields=("path",), name="vitrine_archive_file_path")],
            },
        ),
        migrations.CreateModel(
            "ArchivedProperties",
            fields=[
                ("entity_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("keys", ArrayField(base_field=models.TextField(), size=None)),
            ],
            options={"db_table": "vitrine_archived_properties"},
        ),
        migrations.CreateModel(
            "ArchiveUnusedFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("path", models.CharField(max_length=250)),
                ("since", models.DateTimeField()),
            ],
            options={
                "db_table": "vitrine_archive_unused_file",
                "constraints": [models.UniqueConstraint(fields=("path",), name="vitrine_archive_unused_file_path")],
            },
        ),
        migrations.CreateModel(
            "ArchiveRebuild",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("namespace_id", models.BigIntegerField()),
            ],
            options={
                "db_table": "vitrine_archive_rebuild",
                "constraints": [
                    models.UniqueConstraint(fields=("day", "namespace_id"), name="vitrine_archive_rebuild_once"),
                ],
            },
        ),
        # What models read of the tables of 0002_message_tables
        migrations.CreateModel(
            "EntityCounter",
            fields=[
                (
                    "entity",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=models.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="broker_core.entity",
                    ),
                ),
                ("next_number", models.BigIntegerField(default=1)),
                ("bytes_sent", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "vitrine_entity_counter",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            "Client",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey("epoch", "number", blank=True, editable=False, primary_key=True, serialize=False),
                ),
                ("epoch", models.BigIntegerField()),
                ("number", models.BigIntegerField()),
                ("protocol", models.TextField()),
                ("peer", models.TextField()),
                ("port", models.IntegerField()),
                ("is_tls", models.BooleanField()),
                ("product", models.TextField()),
                ("version", models.TextField()),
                ("actor", models.TextField()),
                ("holder", models.TextField()),
                ("namespace", models.TextField()),
                ("since", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
            ],
            options={
                "db_table": "vitrine_client",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            "ClientLink",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey("epoch", "number", blank=True, editable=False, primary_key=True, serialize=False),
                ),
                ("epoch", models.BigIntegerField()),
                ("number", models.BigIntegerField()),
                ("client", models.BigIntegerField()),
                ("namespace", models.TextField()),
                ("path", models.TextField()),
                ("direction", models.TextField()),
                ("mode", models.TextField()),
            ],
            options={
                "db_table": "vitrine_client_link",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            "Message",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "entity_id",
                        "subqueue",
                        "state",
                        "sequence_number",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("subqueue", models.SmallIntegerField()),
                ("state", models.SmallIntegerField()),
                ("sequence_number", models.BigIntegerField()),
                ("delivery_count", models.IntegerField()),
                ("enqueued_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("locked_until", models.DateTimeField(null=True)),
                ("message_id", models.TextField(null=True)),
                ("dead_letter_reason", models.TextField(null=True)),
            ],
            options={
                "db_table": "vitrine_message",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            "MessageEvent",
            fields=[
                ("event_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("recorded_at", models.DateTimeField()),
                ("at", models.DateTimeField()),
                ("subqueue", models.SmallIntegerField()),
                ("sequence_number", models.BigIntegerField()),
                (
                    "kind",
                    models.SmallIntegerField(
                        choices=[
                            (1, "sent"),
                            (2, "scheduled"),
                            (3, "activated"),
                            (4, "received"),
                            (5, "renewed"),
                            (6, "completed"),
                            (7, "abandoned"),
                            (8, "released"),
                            (9, "deferred"),
                            (10, "dead lettered"),
                            (11, "expired"),
                            (12, "lock lost"),
                            (13, "cancelled"),
                            (14, "purged"),
                            (15, "resubmitted"),
                            (16, "deleted"),
                            (17, "forwarded"),
                            (18, "received and deleted"),
                            (19, "duplicate dropped"),
                            (20, "published"),
                            (21, "dropped"),
                            (22, "moved"),
                            (23, "settle refused"),
                            (24, "restored"),
                            (25, "edited"),
                        ]
                    ),
                ),
                ("message_id", models.TextField(null=True)),
                ("delivery_count", models.IntegerField(null=True)),
                ("locked_until", models.DateTimeField(null=True)),
                ("actor", models.TextField(null=True)),
                ("reason", models.TextField(null=True)),
                ("details", models.JSONField(null=True)),
            ],
            options={
                "db_table": "vitrine_message_event",
                "managed": False,
            },
        ),
    ]
