import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("broker_core", "0002_history"),
    ]

    operations = [
        migrations.CreateModel(
            name="CeleryBinding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("exchange", models.CharField(max_length=255)),
                ("routing_key", models.CharField(blank=True, default="", max_length=255)),
                (
                    "entity",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="broker_core.entity",
                    ),
                ),
            ],
            options={
                "db_table": "vitrine_celery_binding",
                "indexes": [models.Index(fields=["exchange"], name="vitrine_celery_exchange")],
                "constraints": [
                    models.UniqueConstraint(fields=("entity", "exchange", "routing_key"), name="vitrine_celery_binding_once")
                ],
            },
        ),
    ]
