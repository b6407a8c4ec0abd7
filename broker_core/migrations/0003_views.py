"""The functions and views that statements build on (views.sql)."""

from pathlib import Path

from django.db import migrations

VIEWS = Path(__file__).with_name("views.sql").read_text()
DROP_VIEWS = """
DROP VIEW vitrine_entity_now, vitrine_namespace_now;
DROP FUNCTION vitrine_clock, vitrine_description_pattern, vitrine_json_matches, vitrine_key, vitrine_try_again;
"""


class Migration(migrations.Migration):
    dependencies = [("broker_core", "0002_message_tables")]

    operations = [migrations.RunSQL(VIEWS, DROP_VIEWS)]
