from django.db import migrations

# A version that was rolled back is never given again, so whoever remembers what it saw under it is found out.
VERSIONS = """
CREATE SEQUENCE vitrine_topology_version;
SELECT setval('vitrine_topology_version', (SELECT coalesce(max(topology_version), 1) FROM vitrine_namespace));
"""


class Migration(migrations.Migration):
    dependencies = [
        ("broker_core", "0005_families"),
    ]

    operations = [migrations.RunSQL(VERSIONS, "DROP SEQUENCE vitrine_topology_version;")]
