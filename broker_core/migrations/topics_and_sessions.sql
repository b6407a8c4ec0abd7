-- What topics, sessions, duplicate detection and forwarding add to the hand-written tables.

-- For a statement that finds a row changed since its snapshot: it ends without effect and is run again (store.failures.TRANSIENT).
CREATE FUNCTION vitrine_try_again() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a row changed while it was waited for' USING ERRCODE = 'serialization_failure'; END $$;

-- Of a topic: its copies take at most so many bytes. An imported one begins too high, and the next send corrects it.
ALTER TABLE vitrine_entity_counter ADD COLUMN copies_bound bigint NOT NULL DEFAULT 0;
ALTER TABLE vitrine_message ADD COLUMN transfer jsonb;      -- {"hops": so many, "to": path}: how it came here, and where it goes
ALTER TABLE vitrine_message ALTER COLUMN session_id TYPE text COLLATE "C";     -- told apart by case (SB-932); no row is rewritten
-- An expression for the entity: so that no other index can serve for a session's messages (session.sql).
CREATE INDEX vitrine_message_session ON vitrine_message ((entity_id + 0), session_id, state, sequence_number)
    WHERE session_id IS NOT NULL AND subqueue = 0;
-- Whether a session has a message whose own life is over (SB-037).
CREATE INDEX vitrine_message_session_expiry ON vitrine_message ((entity_id + 0), session_id, expires_at)
    WHERE expires_at IS NOT NULL AND session_id IS NOT NULL AND subqueue = 0 AND state = 0;

-- A session there is: it has messages, or state, or somebody holds it (SB-111).
CREATE TABLE vitrine_session (
    entity_id        bigint NOT NULL,
    session_id       text COLLATE "C" NOT NULL,              -- told apart by case (SB-932)
    first_number     bigint,                                 -- at or below its lowest present number; NULL: it has no messages
    locked_until     timestamptz,
    lock_token       uuid,
    locked_by        text,
    state            bytea,
    state_updated_at timestamptz,
    PRIMARY KEY (entity_id, session_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- No lock column here: accepting a session stays a HOT update.
CREATE INDEX vitrine_session_first ON vitrine_session ((entity_id + 0), first_number) WHERE first_number IS NOT NULL;

-- The message ids an entity has seen inside its window (SB-130). sequence_number: of the message that was kept.
CREATE TABLE vitrine_seen_id (
    entity_id       bigint NOT NULL,
    message_id      text COLLATE "C" NOT NULL,
    seen_at         timestamptz NOT NULL,
    sequence_number bigint,
    PRIMARY KEY (entity_id, message_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX vitrine_seen_id_at ON vitrine_seen_id (entity_id, seen_at);

INSERT INTO vitrine_queue_head (entity_id, subqueue) SELECT id, 3 FROM vitrine_entity WHERE deleted_at IS NULL;

-- Who forwards to an entity: asked by receives that find little.
CREATE INDEX vitrine_entity_forward_to ON vitrine_entity (namespace_id, lower(forward_to)) WHERE forward_to IS NOT NULL;
CREATE INDEX vitrine_entity_forward_dead_to ON vitrine_entity (namespace_id, lower(forward_dead_lettered_messages_to))
    WHERE forward_dead_lettered_messages_to IS NOT NULL;

-- The one definition of a namespace's time (D6). A function that the planner writes out in its place: as a view of its own to be joined it
-- would have to be read whole, since nothing is pushed into a query with a volatile function.
CREATE FUNCTION vitrine_clock(base_at timestamptz, base_real timestamptz, rate double precision) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
SELECT CASE WHEN base_at IS NULL THEN clock_timestamp() ELSE base_at + (clock_timestamp() - base_real) * rate END $$;
CREATE VIEW vitrine_namespace_now AS
SELECT n.id, n.name, n.is_system, n.tier, vitrine_clock(n.clock_base_at, n.clock_base_real, n.clock_rate) AS now
  FROM vitrine_namespace AS n;
-- A subscription's messages live no longer than its topic lets them (SB-022).
CREATE VIEW vitrine_entity_now AS
SELECT e.id, e.namespace_id, e.path, e.family, e.kind, e.topic_id, e.rules_version, e.lock_duration, e.max_delivery_count,
       CASE WHEN e.topic_id IS NULL THEN e.default_message_time_to_live
            ELSE least(e.default_message_time_to_live, (SELECT t.default_message_time_to_live FROM vitrine_entity AS t WHERE t.id = e.topic_id))
        END AS default_message_time_to_live,
       e.dead_lettering_on_message_expiration, e.dead_lettering_on_filter_evaluation_exceptions, e.auto_delete_on_idle,
       e.requires_session, e.requires_duplicate_detection, e.duplicate_detection_history_time_window, e.forward_to,
       e.forward_dead_lettered_messages_to, e.expires_whole_sessions, e.drops_locks_on_change, e.max_size_in_megabytes,
       e.max_message_size_in_kilobytes, e.status, e.user_metadata, e.expiry_mode, e.history_level, e.hidden, e.created_at, e.updated_at,
       n.name AS namespace_name, n.is_system, n.tier, vitrine_clock(n.clock_base_at, n.clock_base_real, n.clock_rate) AS now
  FROM vitrine_entity AS e
  JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE e.deleted_at IS NULL;
