"""The tables of the models: the audit, analyses, the demonstration and saved filters."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.CreateModel(
            "AuditRecord",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(auto_now_add=True)),
                ("actor", models.CharField(max_length=200)),
                ("action", models.CharField(max_length=60)),
                ("namespace", models.CharField(blank=True, default="", max_length=50)),
                ("path", models.CharField(blank=True, default="", max_length=260)),
                ("target", models.CharField(blank=True, default="", max_length=300)),
                ("outcome", models.CharField(choices=[("done", "Done"), ("refused", "Refused")], max_length=10)),
                ("detail", models.TextField(blank=True, default="")),
                ("tracking_id", models.CharField(blank=True, default="", max_length=36)),
            ],
            options={
                "db_table": "vitrine_audit_record",
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["-at", "-id"], name="vitrine_audit_latest"),
                    models.Index(fields=["namespace", "path", "-at"], name="vitrine_audit_entity"),
                    models.Index(
                        fields=["actor", "target", "-at"], condition=models.Q(action="sign in"), name="vitrine_audit_sign_ins"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "AnalysisRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(default="reports", editable=False, max_length=20)),
                ("namespace", models.CharField(blank=True, default="", max_length=50)),
                ("subject", models.CharField(blank=True, default="", max_length=400)),
                ("request", models.JSONField(default=dict)),
                ("requested_by", models.CharField(max_length=200)),
                ("requested_at", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("succeeded", "succeeded"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default="queued",
                        max_length=10,
                    ),
                ),
                ("claimed_by", models.CharField(blank=True, default="", max_length=100)),
                ("lease_until", models.DateTimeField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("cancel_requested_at", models.DateTimeField(null=True)),
                ("cancelled_by", models.CharField(blank=True, default="", max_length=200)),
                ("step", models.SmallIntegerField(default=0)),
                ("steps", models.SmallIntegerField(default=0)),
                ("step_text", models.CharField(blank=True, default="", max_length=200)),
                ("tasks_done", models.IntegerField(default=0)),
                ("tasks_total", models.IntegerField(default=0)),
                ("expected_seconds", models.FloatField(null=True)),
                ("log_tail", models.TextField(blank=True, default="")),
                ("message", models.TextField(blank=True, default="")),
                ("notes", models.JSONField(default=list)),
                ("events", models.BigIntegerField(null=True)),
                ("warm", models.BooleanField(null=True)),
            ],
            options={
                "db_table": "vitrine_analysis_run",
                "ordering": ["-requested_at"],
                "verbose_name": "analysis run",
                "indexes": [models.Index(fields=["state"], name="vitrine_analysis_run_state")],
            },
        ),
        migrations.CreateModel(
            "AnalysisResult",
            fields=[
                ("key", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("report", models.CharField(max_length=40)),
                ("namespace_id", models.BigIntegerField()),
                ("asked", models.JSONField()),
                ("tables", models.BinaryField()),
                ("card", models.BinaryField(null=True)),
                (
                    "run",
                    models.ForeignKey(null=True, on_delete=models.SET_NULL, related_name="results", to="explorer.analysisrun"),
                ),
                ("notes", models.JSONField(default=list)),
                ("made_at", models.DateTimeField()),
                ("opened_at", models.DateTimeField()),
            ],
            options={
                "db_table": "vitrine_analysis_result",
            },
        ),
        migrations.CreateModel(
            "DeadLetterNote",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=255)),
                ("path", models.CharField(max_length=330)),
                ("subqueue", models.SmallIntegerField(default=0)),
                ("filter", models.TextField()),
                ("digest", models.CharField(max_length=64)),
                ("text", models.CharField(max_length=300)),
                ("actor", models.CharField(max_length=200)),
                ("at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "vitrine_dead_letter_note",
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "path", "subqueue", "digest"), name="vitrine_note_of_group"),
                ],
            },
        ),
        migrations.CreateModel(
            "SeededNamespace",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("seeded_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "db_table": "vitrine_seeded_namespace",
            },
        ),
        migrations.CreateModel(
            "Demonstration",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("set_up_at", models.DateTimeField(auto_now_add=True)),
                ("is_paused", models.BooleanField(default=False)),
                ("changed_at", models.DateTimeField(null=True)),
                ("changed_by", models.CharField(blank=True, default="", max_length=200)),
            ],
            options={
                "db_table": "vitrine_demonstration",
            },
        ),
        migrations.CreateModel(
            "Fault",
            fields=[
                ("target", models.CharField(max_length=200, primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("killed", "killed"),
                            ("slow", "slow"),
                            ("failing", "failing"),
                            ("disconnected", "disconnected"),
                            ("stopped", "stopped"),
                        ],
                        max_length=20,
                    ),
                ),
                ("started_at", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("started_by", models.CharField(max_length=200)),
            ],
            options={
                "db_table": "vitrine_fault",
            },
        ),
        migrations.CreateModel(
            "SavedFilter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("text", models.CharField(max_length=2000)),
                ("is_shared", models.BooleanField(default=False)),
                ("namespace", models.CharField(blank=True, default="", max_length=255)),
                ("path", models.CharField(blank=True, default="", max_length=260)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "db_table": "vitrine_saved_filter",
                "ordering": ["name", "id"],
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "name", "namespace", "path"), name="vitrine_saved_filter_name")
                ],
            },
        ),
        migrations.CreateModel(
            name="MessageTemplate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("is_shared", models.BooleanField(default=False)),
                ("namespace", models.CharField(blank=True, default="", max_length=255)),
                ("path", models.CharField(blank=True, default="", max_length=260)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("family", models.CharField(max_length=20)),
                ("fields", models.JSONField()),
                (
                    "owner",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "db_table": "vitrine_message_template",
                "ordering": ["name", "id"],
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(
                        fields=("owner", "family", "name", "namespace", "path"), name="vitrine_message_template_name"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Sandbox",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("namespace", models.CharField(max_length=255, unique=True)),
                ("family", models.CharField(max_length=20)),
                ("lesson", models.CharField(blank=True, default="", max_length=80)),
                ("step", models.PositiveSmallIntegerField(default=0)),
                ("state", models.JSONField(default=dict)),
                ("code", models.CharField(blank=True, default="", max_length=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "db_table": "vitrine_sandbox",
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="FollowerAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("step", models.PositiveSmallIntegerField()),
                ("choice", models.PositiveSmallIntegerField()),
                (
                    "follower",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "sandbox",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="answers", to="explorer.sandbox"),
                ),
            ],
            options={
                "db_table": "vitrine_follower_answer",
                "constraints": [
                    models.UniqueConstraint(fields=("sandbox", "follower", "step"), name="vitrine_answer_of_follower")
                ],
            },
        ),
        migrations.CreateModel(
            name="LessonProgress",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("lesson", models.CharField(max_length=80)),
                ("step", models.PositiveSmallIntegerField(default=0)),
                ("answers", models.JSONField(default=dict)),
                ("completed_at", models.DateTimeField(null=True)),
                (
                    "owner",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "db_table": "vitrine_lesson_progress",
                "constraints": [models.UniqueConstraint(fields=("owner", "lesson"), name="vitrine_lesson_of_person")],
            },
        ),
        migrations.CreateModel(
            name="Load",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("queue", models.CharField(max_length=260)),
                ("settings", models.JSONField()),
                ("state", models.JSONField(default=dict)),
                ("started_at", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("end", models.CharField(blank=True, default="", max_length=300)),
                ("note", models.CharField(blank=True, default="", max_length=300)),
                ("lease", models.CharField(blank=True, default="", max_length=16)),
                ("leased_until", models.DateTimeField()),
                (
                    "sandbox",
                    models.OneToOneField(on_delete=models.CASCADE, related_name="+", to="explorer.sandbox"),
                ),
            ],
            options={
                "db_table": "vitrine_load",
            },
        ),
        migrations.CreateModel(
            name="Scenario",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                ("text", models.TextField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(on_delete=models.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                ),
            ],
            options={
                "db_table": "vitrine_scenario",
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(fields=("owner", "name"), name="vitrine_scenario_name")],
            },
        ),
    ]
