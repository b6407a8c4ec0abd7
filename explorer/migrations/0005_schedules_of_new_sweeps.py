"""The schedules of the sweeps that came with topics and sessions."""

from django.db import migrations

from explorer.schedules import create_missing


def create(apps, schema_editor):
    create_missing(apps)


class Migration(migrations.Migration):
    dependencies = [
        ("explorer", "0004_demonstration"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
