from django.db import migrations, models


class Migration(migrations.Migration):
    """Connections are recorded with their actor. Those that are open have none; processes of an earlier version write none."""

    dependencies = [("broker_core", "0004_deliveries_of_dead_letters")]

    operations = [
        migrations.AddField("connection", "actor", models.CharField(db_default="", default="", max_length=255)),
    ]
