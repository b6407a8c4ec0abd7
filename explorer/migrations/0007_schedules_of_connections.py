"""The schedule of the sweep that came with connections; and unused queues, whose time may be short, are looked for more often."""

from django.db import migrations

from explorer.schedules import create_missing


def create(apps, schema_editor):
    create_missing(apps)
    every_5_seconds, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(every=5, period="seconds")
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(
        name="delete idle entities", interval__every=60, interval__period="seconds"
    ).update(interval=every_5_seconds)


class Migration(migrations.Migration):
    dependencies = [
        ("explorer", "0006_analysis_moved_and_dropped"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
