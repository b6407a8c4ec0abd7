from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("broker_core", "0006_topology_versions"),
    ]

    operations = [
        migrations.AddField("namespace", "deleted_at", models.DateTimeField(null=True, blank=True, editable=False)),
    ]
