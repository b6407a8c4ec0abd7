-- What Queue Storage and RabbitMQ add to the hand-written tables (docs/design.md D10). A column is NULL for the families that do not use it.

-- A storage queue's message: when it becomes (or became) visible. The pop receipt is lock_token; locked_until stays NULL, for the receipt
-- decides and not the clock. hold_kind: why it is invisible until then, ignored once it is visible (queue_storage.rules.HoldKind).
ALTER TABLE vitrine_message ADD COLUMN visible_at timestamptz, ADD COLUMN hold_kind smallint, ADD COLUMN held_since timestamptz,
    ADD COLUMN renewals integer;
-- A RabbitMQ queue's message: the connection that holds it, as long as that lives (lock_token is set, locked_until is not); its level in a
-- priority queue.
ALTER TABLE vitrine_message ADD COLUMN owner_id bigint, ADD COLUMN priority smallint;
ALTER TABLE vitrine_message DROP CONSTRAINT vitrine_message_life;
ALTER TABLE vitrine_message ADD CONSTRAINT vitrine_message_life CHECK (expires_at IS NULL OR expires_at >= enqueued_at);
-- Columns of their own, so that a Service Bus lock stays a HOT update: none of its statements writes an indexed column.
CREATE INDEX vitrine_message_visible ON vitrine_message (entity_id, visible_at, sequence_number) WHERE visible_at IS NOT NULL;
CREATE INDEX vitrine_message_priority ON vitrine_message (entity_id, priority DESC, sequence_number) WHERE priority IS NOT NULL;
-- A hint: when a get last looked from the beginning, nothing was visible since before then.
ALTER TABLE vitrine_queue_head ADD COLUMN visible_from timestamptz;

-- What an entity's path is found by: of RabbitMQ exactly as it is, else without case.
CREATE FUNCTION vitrine_key(family text, path text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE family WHEN 'rabbitmq' THEN path ELSE lower(path) END $$;

CREATE VIEW vitrine_namespace_now AS
SELECT n.id, n.name, n.is_system, n.tier, n.family, n.topology_version, vitrine_clock(n.clock_base_at, n.clock_base_real, n.clock_rate) AS now
  FROM vitrine_namespace AS n;
-- A subscription's messages live no longer than its topic lets them (SB-022).
CREATE VIEW vitrine_entity_now AS
SELECT e.id, e.namespace_id, e.path, e.key, e.family, e.kind, e.topic_id, e.rules_version, e.lock_duration, e.max_delivery_count,
       CASE WHEN e.topic_id IS NULL THEN e.default_message_time_to_live
            ELSE least(e.default_message_time_to_live, (SELECT t.default_message_time_to_live FROM vitrine_entity AS t WHERE t.id = e.topic_id))
        END AS default_message_time_to_live,
       e.dead_lettering_on_message_expiration, e.dead_lettering_on_filter_evaluation_exceptions, e.auto_delete_on_idle,
       e.requires_session, e.requires_duplicate_detection, e.duplicate_detection_history_time_window, e.forward_to,
       e.forward_dead_lettered_messages_to, e.expires_whole_sessions, e.drops_locks_on_change, e.max_size_in_megabytes,
       e.max_message_size_in_kilobytes, e.status, e.user_metadata, e.expiry_mode, e.history_level, e.hidden, e.options, e.effective, e.owner_id,
       e.created_at, e.updated_at,
       n.name AS namespace_name, n.is_system, n.tier, vitrine_clock(n.clock_base_at, n.clock_base_real, n.clock_rate) AS now
  FROM vitrine_entity AS e
  JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE e.deleted_at IS NULL;
