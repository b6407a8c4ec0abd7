"""How often a dead letter was delivered before it was dead-lettered: its delivery count begins anew in the dead-letter queue.

Dead letters of before have no such number. A nullable column changes no row, so it is added at once."""

from django.db import migrations

ADD = """
ALTER TABLE vitrine_message ADD COLUMN deliveries_before integer;
ALTER TABLE vitrine_hidden_message ADD COLUMN deliveries_before integer;
"""
DROP = """
ALTER TABLE vitrine_message DROP COLUMN deliveries_before;
ALTER TABLE vitrine_hidden_message DROP COLUMN deliveries_before;
"""


class Migration(migrations.Migration):
    dependencies = [("broker_core", "0003_views")]

    operations = [migrations.RunSQL(ADD, DROP)]
