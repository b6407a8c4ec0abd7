from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("explorer", "0003_sweep_schedules")]

    operations = [
        migrations.CreateModel(
            name="Demonstration",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("set_up_at", models.DateTimeField(auto_now_add=True)),
                ("is_paused", models.BooleanField(default=False)),
                ("changed_at", models.DateTimeField(null=True)),
                ("changed_by", models.CharField(blank=True, default="", max_length=200)),
            ],
            options={"db_table": "vitrine_demonstration"},
        ),
    ]
