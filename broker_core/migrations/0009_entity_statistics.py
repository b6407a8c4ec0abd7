from django.db import migrations

# Every statement reads its entity first. Without statistics the planner takes nearly all entities for deleted ones, and reads the
# index of the others from end to end instead of looking one up. By the server's own settings there are none for the first fifty.
STATISTICS = """
ALTER TABLE vitrine_entity SET (autovacuum_analyze_threshold = 5, autovacuum_analyze_scale_factor = 0.1);
ANALYZE vitrine_entity;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("broker_core", "0008_topology_changes"),
    ]

    operations = [
        migrations.RunSQL(
            STATISTICS, "ALTER TABLE vitrine_entity RESET (autovacuum_analyze_threshold, autovacuum_analyze_scale_factor);"
        ),
    ]
