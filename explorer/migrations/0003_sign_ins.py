"""The index that counting failed sign-ins needs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("explorer", "0002_sweep_schedules"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="auditrecord",
            index=models.Index(
                condition=models.Q(("action", "sign in")), fields=["actor", "target", "-at"], name="vitrine_audit_sign_ins"
            ),
        ),
    ]
