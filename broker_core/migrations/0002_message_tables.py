"""The tables that hand-written statements work on (message_tables.sql)."""

from pathlib import Path

from django.db import migrations

TABLES = Path(__file__).with_name("message_tables.sql").read_text()
DROP_TABLES = """
DROP TABLE vitrine_topology_change, vitrine_message_event, vitrine_traffic_position, vitrine_traffic;
DROP TABLE vitrine_count_base, vitrine_count_delta;
DROP TABLE vitrine_seen_id, vitrine_session, vitrine_lock_deadline, vitrine_returned, vitrine_queue_head, vitrine_message;
DROP TABLE vitrine_entity_revision, vitrine_entity_activity, vitrine_entity_counter, vitrine_hidden_message, vitrine_operation;
DROP TABLE vitrine_import_line, vitrine_kept_message, vitrine_soft_deleted, vitrine_client, vitrine_client_link;
DROP FUNCTION vitrine_kept_slot, vitrine_kept_bytes, vitrine_drop_kept;
DROP SEQUENCE vitrine_topology_version, vitrine_operation_number;
DROP AGGREGATE vitrine_histogram_sum(int[]);
DROP FUNCTION vitrine_added;
DROP INDEX vitrine_entity_forward_to, vitrine_entity_forward_dead_to;
ALTER TABLE vitrine_entity RESET (autovacuum_analyze_threshold, autovacuum_analyze_scale_factor);
"""


class Migration(migrations.Migration):
    dependencies = [("broker_core", "0001_tables")]

    operations = [migrations.RunSQL(TABLES, DROP_TABLES)]
