"""The sweeps' schedules as first set up. Going back leaves them: by then they are the administrator's."""

from django.db import migrations

from explorer.schedules import create_missing


def create(apps, schema_editor):
    create_missing(apps)


class Migration(migrations.Migration):
    dependencies = [
        ("explorer", "0001_tables"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
