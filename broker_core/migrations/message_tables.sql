-- The tables that hand-written statements work on. Why each is as it is: docs/design.md D3, D4, D7, D9.

CREATE TABLE vitrine_entity_counter (
    entity_id   bigint PRIMARY KEY,
    next_number bigint NOT NULL DEFAULT 1,
    bytes_sent  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE vitrine_entity_activity (
    entity_id        bigint PRIMARY KEY,
    last_activity_at timestamptz NOT NULL,            -- the namespace's clock; written at most every 20 s
    last_receive_at  timestamptz,
    waiting_until    timestamptz                      -- real time: a receiver waits at least until then
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE vitrine_message (
    entity_id               bigint      NOT NULL,
    subqueue                smallint    NOT NULL DEFAULT 0,
    state                   smallint    NOT NULL DEFAULT 0,
    sequence_number         bigint      NOT NULL,
    delivery_count          integer     NOT NULL DEFAULT 0,
    size                    integer     NOT NULL,
    body_kind               smallint    NOT NULL DEFAULT 0,
    enqueued_at             timestamptz NOT NULL,
    expires_at              timestamptz,              -- from the message's own time-to-live only
    time_to_live            interval,
    scheduled_enqueue_at    timestamptz,
    locked_until            timestamptz,
    lock_token              uuid,
    locked_by               text,
    first_received_at       timestamptz,
    last_received_at        timestamptz,
    message_id              text,
    session_id              text,
    properties              jsonb,
    application_properties  jsonb,
    dead_letter_reason      text,
    dead_letter_description text,
    dead_letter_source      text,
    dead_lettered_at        timestamptz,
    enqueued_sequence_number bigint,
    resubmitted_from        jsonb,
    body                    bytea       NOT NULL,
    PRIMARY KEY (entity_id, subqueue, state, sequence_number),
    CONSTRAINT vitrine_message_scheduled CHECK (state <> 2 OR scheduled_enqueue_at IS NOT NULL),
    CONSTRAINT vitrine_message_dead CHECK (subqueue <> 1 OR dead_lettered_at IS NOT NULL),
    CONSTRAINT vitrine_message_life CHECK (expires_at IS NULL OR expires_at > enqueued_at)
) WITH (
    fillfactor = 50,                                  -- room for a lock on the same page: HOT, and a third of the WAL
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000, vacuum_truncate = off
);
ALTER TABLE vitrine_message ALTER COLUMN body SET STORAGE EXTERNAL;   -- no attempt to compress: a fifth of the send
-- No index on a column that a lock changes: it would end HOT updates.
CREATE INDEX vitrine_message_expiry ON vitrine_message (entity_id, expires_at)
    WHERE expires_at IS NOT NULL AND subqueue = 0 AND state = 0;
CREATE INDEX vitrine_message_due ON vitrine_message (entity_id, scheduled_enqueue_at) WHERE state = 2;

CREATE TABLE vitrine_queue_head (
    entity_id bigint, subqueue smallint,
    head bigint NOT NULL DEFAULT 1,                   -- at or below the lowest present active number
    PRIMARY KEY (entity_id, subqueue)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE vitrine_lock_deadline (
    entity_id bigint NOT NULL, subqueue smallint NOT NULL, until timestamptz NOT NULL,
    first_number bigint NOT NULL, last_number bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX vitrine_lock_deadline_until ON vitrine_lock_deadline (entity_id, until);

-- Counts (D9). state: 0 active, 1 deferred, 2 scheduled; 10 and 11 locks on active and deferred ones, by the instant they end.
CREATE TABLE vitrine_count_delta (
    entity_id bigint NOT NULL, subqueue smallint NOT NULL, state smallint NOT NULL, until timestamptz,
    n integer NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,                  -- bytes removed, negative; bytes sent are in the counter
    op smallint,                                      -- the event kind, for rates; NULL where n is a mere counterpart
    at timestamptz NOT NULL DEFAULT now()             -- the database's clock
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE vitrine_count_base (
    entity_id bigint NOT NULL, subqueue smallint NOT NULL, state smallint NOT NULL, until timestamptz,
    n bigint NOT NULL, bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE UNIQUE INDEX vitrine_count_base_key ON vitrine_count_base (entity_id, until, subqueue, state) NULLS NOT DISTINCT;
CREATE TABLE vitrine_traffic (
    entity_id bigint NOT NULL, bucket timestamptz NOT NULL, op smallint NOT NULL, n bigint NOT NULL,   -- buckets of 10 s
    PRIMARY KEY (entity_id, bucket, op)
) WITH (fillfactor = 70);

CREATE TABLE vitrine_message_event (
    event_id          bigint GENERATED ALWAYS AS IDENTITY,
    recorded_at       timestamptz NOT NULL DEFAULT now(),   -- the database's clock: partitions must not follow a manual one
    xid               xid8        NOT NULL DEFAULT pg_current_xact_id(),
    at                timestamptz NOT NULL,                 -- the namespace's clock
    entity_id         bigint      NOT NULL,
    sequence_number   bigint      NOT NULL,
    subqueue          smallint    NOT NULL,
    kind              smallint    NOT NULL,
    delivery_count    integer,
    size              integer,
    locked_until      timestamptz,
    enqueued_at       timestamptz,
    first_received_at timestamptz,
    last_received_at  timestamptz,
    time_to_live      interval,
    message_id        text,
    session_id        text,
    actor             text,
    reason            text,
    properties             jsonb,
    application_properties jsonb,
    details                jsonb
) PARTITION BY RANGE (recorded_at);
CREATE INDEX vitrine_message_event_xid ON vitrine_message_event (xid);
CREATE INDEX vitrine_message_event_recorded ON vitrine_message_event USING brin (recorded_at) WITH (autosummarize = on);
-- A message's own events, and messages by id, without a btree that every receive would have to write.
CREATE INDEX vitrine_message_event_message ON vitrine_message_event
    USING brin (hashint8extended(sequence_number, entity_id) int8_bloom_ops) WITH (pages_per_range = 32, autosummarize = on);
CREATE INDEX vitrine_message_event_message_id ON vitrine_message_event
    USING brin (message_id text_bloom_ops) WITH (pages_per_range = 32, autosummarize = on);
CREATE TABLE vitrine_message_event_default PARTITION OF vitrine_message_event DEFAULT;
DO $$
DECLARE day date := (now() AT TIME ZONE 'UTC')::date;
BEGIN
    FOR i IN 0..7 LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF vitrine_message_event FOR VALUES FROM (%L) TO (%L)',
            'vitrine_message_event_' || to_char(day + i, 'YYYYMMDD'),
            (day + i)::timestamp AT TIME ZONE 'UTC', (day + i + 1)::timestamp AT TIME ZONE 'UTC');
    END LOOP;
END $$;

-- The one definition of a namespace's time (D6); every statement takes its `now` from here.
CREATE VIEW vitrine_namespace_now AS
SELECT n.id, n.name, n.is_system,
       CASE WHEN n.clock_base_at IS NULL THEN clock_timestamp()
            ELSE n.clock_base_at + (clock_timestamp() - n.clock_base_real) * n.clock_rate END AS now
  FROM vitrine_namespace AS n;
CREATE VIEW vitrine_entity_now AS
SELECT e.id, e.namespace_id, e.path, e.family, e.kind, e.lock_duration, e.max_delivery_count, e.default_message_time_to_live,
       e.dead_lettering_on_message_expiration, e.auto_delete_on_idle, e.max_size_in_megabytes, e.max_message_size_in_kilobytes,
       e.status, e.user_metadata, e.expiry_mode, e.history_level, e.hidden, e.created_at, e.updated_at,
       n.name AS namespace_name, n.is_system, n.now
  FROM vitrine_entity AS e JOIN vitrine_namespace_now AS n ON n.id = e.namespace_id
 WHERE e.deleted_at IS NULL;
