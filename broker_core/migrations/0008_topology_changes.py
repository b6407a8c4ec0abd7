from django.db import migrations

# What each version of a virtual host's topology changed, so that who holds an earlier one reads only that. The last thousand
# versions or so are kept, of all hosts. After a crash the table is empty: then the versions do not join, and everything is read.
CHANGES = """
CREATE UNLOGGED TABLE vitrine_topology_change (
    version      bigint PRIMARY KEY,
    previous     bigint   NOT NULL,
    namespace_id bigint   NOT NULL,
    queues       text[]   NOT NULL,                   -- names of those that came, went or are others now
    exchanges    text[]   NOT NULL,                   -- the same
    bindings     bigint[] NOT NULL                    -- ids of those that came or went
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("broker_core", "0007_deleted_namespaces"),
    ]

    operations = [migrations.RunSQL(CHANGES, "DROP TABLE vitrine_topology_change;")]
