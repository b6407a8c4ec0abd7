-- The tables used by hand-written statements, and their indexes on the models' tables. The reasons are in docs/design.md D3, D4,
-- D7, D9 and D10.

-- Every statement reads this table first. Without statistics the planner assumes that nearly all entities are deleted, and scans
-- the partial index of the others completely. With the server's default settings there are no statistics for the first fifty
-- entities.
ALTER TABLE vitrine_entity SET (autovacuum_analyze_threshold = 5, autovacuum_analyze_scale_factor = 0.1);
-- The entities that forward to an entity, needed by receives that find few messages.
CREATE INDEX vitrine_entity_forward_to ON vitrine_entity (namespace_id, lower(forward_to)) WHERE forward_to IS NOT NULL;
CREATE INDEX vitrine_entity_forward_dead_to ON vitrine_entity (namespace_id, lower(forward_dead_lettered_messages_to))
    WHERE forward_dead_lettered_messages_to IS NOT NULL;

CREATE TABLE vitrine_entity_counter (
    entity_id    bigint PRIMARY KEY,
    next_number  bigint NOT NULL DEFAULT 1,
    bytes_sent   bigint NOT NULL DEFAULT 0,
    -- Of a topic: an upper bound of the bytes of its copies. Too high after an import; the next send corrects it.
    copies_bound bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE vitrine_entity_activity (
    entity_id        bigint PRIMARY KEY,
    last_activity_at timestamptz NOT NULL,            -- the namespace's clock; written at most every 20 s
    last_receive_at  timestamptz,
    last_use         smallint,                        -- what the last activity was (UseKind); NULL: unknown
    waiting_until    timestamptz                      -- real time until which a receiver may wait
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The settings of entities after each change: the columns of vitrine_entity as JSON. at: the database's time.
CREATE TABLE vitrine_entity_revision (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entity_id bigint NOT NULL,
    at        timestamptz NOT NULL,
    actor     text NOT NULL,
    settings  jsonb NOT NULL
);
CREATE INDEX vitrine_entity_revision_entity ON vitrine_entity_revision (entity_id, id);

-- A column is NULL in families that do not use it. The locks of each family:
-- Service Bus    lock_token and locked_until, set and cleared together; the lock ends at locked_until.
-- Queue Storage  lock_token is the pop receipt, always set and valid until the next update; locked_until is never set.
--                visible_at: when the message becomes, or became, visible; hold_kind: why it is invisible until then, ignored
--                once it is visible.
-- RabbitMQ       lock_token and owner_id, the connection that holds the message; locked_until is never set. consumer_id: the
--                consumer, whose prefetch it counts towards; NULL for a get.
-- The tests run with constraints that say what must never be in a row (tests/message_constraints.sql). Here there are none.
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
    session_id              text COLLATE "C",         -- case-sensitive (SB-932)
    properties              jsonb,
    application_properties  jsonb,
    encoded                 bytea,                    -- what the sender encoded, where the other columns do not say it all
    dead_letter_reason      text,
    dead_letter_description text,
    dead_letter_source      text,
    dead_lettered_at        timestamptz,
    enqueued_sequence_number bigint,
    resubmitted_from        jsonb,
    body                    bytea       NOT NULL,
    transfer                jsonb,                    -- {"hops": times forwarded, "to": path to which it is being forwarded}
    visible_at              timestamptz,
    hold_kind               smallint,
    held_since              timestamptz,
    renewals                integer,
    owner_id                bigint,
    consumer_id             bigint,
    priority                smallint,                 -- in a priority queue of RabbitMQ
    ready_priority          smallint,                 -- the same, while no connection holds the message
    deliveries_before       integer,                  -- of a dead letter: how often it was delivered before
    PRIMARY KEY (entity_id, subqueue, state, sequence_number)
) WITH (
    fillfactor = 50,                                  -- room for a lock on the same page: HOT, and a third of the WAL
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000, vacuum_truncate = off
);
ALTER TABLE vitrine_message ALTER COLUMN body SET STORAGE EXTERNAL;   -- uncompressed: compression costs a fifth of a send
-- No index on columns that a Service Bus lock changes, which would prevent HOT updates. Other families lock with other columns.
CREATE INDEX vitrine_message_expiry ON vitrine_message (entity_id, expires_at)
    WHERE expires_at IS NOT NULL AND subqueue = 0 AND state = 0;
CREATE INDEX vitrine_message_due ON vitrine_message (entity_id, scheduled_enqueue_at, sequence_number) WHERE state = 2;
-- entity_id + 0 makes the planner use this index, and no other, for a session's messages (session.sql).
CREATE INDEX vitrine_message_session ON vitrine_message ((entity_id + 0), session_id, state, sequence_number)
    WHERE session_id IS NOT NULL AND subqueue = 0;
-- Whether a session has a message that has expired by its own time-to-live (SB-037).
CREATE INDEX vitrine_message_session_expiry ON vitrine_message ((entity_id + 0), session_id, expires_at)
    WHERE expires_at IS NOT NULL AND session_id IS NOT NULL AND subqueue = 0 AND state = 0;
CREATE INDEX vitrine_message_visible ON vitrine_message (entity_id, visible_at, sequence_number) WHERE visible_at IS NOT NULL;
-- Without the messages that are held, so that a delivery does not walk past them (docs/design.md D17). entity_id + 0: as above.
CREATE INDEX vitrine_message_priority ON vitrine_message ((entity_id + 0), ready_priority DESC, sequence_number)
    WHERE ready_priority IS NOT NULL;

-- Operations on many messages (docs/design.md D18). Each is in the database of its namespace, so that a batch's effect and the
-- operation's progress commit together; its number is from the default database.
CREATE SEQUENCE vitrine_operation_number;
CREATE TABLE vitrine_operation (
    id            bigint PRIMARY KEY,
    kind          text NOT NULL,
    actor         text NOT NULL,
    family        text NOT NULL,
    namespace     text NOT NULL,
    path          text NOT NULL,
    entity_id     bigint NOT NULL,
    selection     jsonb NOT NULL,
    options       jsonb NOT NULL,
    counted       bigint,                             -- messages that matched when it was requested; NULL: too many to count then
    done          bigint NOT NULL,
    skipped       bigint NOT NULL,
    failed        bigint NOT NULL,
    reasons       jsonb NOT NULL,                     -- why messages were skipped, with counts
    listed        jsonb NOT NULL,                     -- the first of these messages, [number, reason]
    pace          float8,                             -- messages per second; NULL: as fast as possible
    state         text NOT NULL,
    position      bigint NOT NULL,                    -- the highest number that was processed
    undone        bigint NOT NULL,
    undo_position bigint NOT NULL,
    requested_at  timestamptz NOT NULL,
    started_at    timestamptz,
    finished_at   timestamptz,
    kept_until    timestamptz,                        -- of what it hid, or its file; real time; NULL: not over, or an archive
    claimed_by    text NOT NULL,
    lease_until   timestamptz,
    message       text NOT NULL,                      -- why it failed
    CONSTRAINT vitrine_operation_state CHECK (
        state IN ('queued', 'running', 'paused', 'stopped', 'done', 'failed', 'undoing', 'undone')),
    CONSTRAINT vitrine_operation_pace CHECK (pace > 0)
) WITH (fillfactor = 50);
CREATE INDEX vitrine_operation_open ON vitrine_operation (id) WHERE state IN ('queued', 'running', 'paused', 'undoing');
CREATE INDEX vitrine_operation_entity ON vitrine_operation (entity_id, id);

-- Messages that an operation removed, whole, until it can no longer be undone. Being in a table of their own, no receive, count,
-- quota, peek, sweep or search sees them. copies: where a moved or resubmitted message went, [[entity, number], ...].
CREATE TABLE vitrine_hidden_message (
    operation_id bigint NOT NULL, hidden_at timestamptz NOT NULL, copies jsonb,
    LIKE vitrine_message INCLUDING STORAGE
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX vitrine_hidden_message_operation ON vitrine_hidden_message (operation_id, sequence_number);
CREATE UNIQUE INDEX vitrine_hidden_message_number ON vitrine_hidden_message (entity_id, sequence_number);

-- What their events do not say of messages that ended, for the time that their namespace sets (docs/design.md D20). removed_at:
-- the time of the event that ended the message, which finds its row; there is no index. Rows are never deleted one by one: a slot
-- is emptied when its time is over. Slots 0 to 15 are half hours, for periods of up to 6 hours; 16 to 33 half days, for up to
-- 7 days.
CREATE TABLE vitrine_kept_message (
    slot                   smallint    NOT NULL,
    body_kind              smallint    NOT NULL,
    removed_at             timestamptz NOT NULL DEFAULT now(),
    entity_id              bigint      NOT NULL,
    sequence_number        bigint      NOT NULL,
    kept_for               interval    NOT NULL,
    properties             jsonb,
    application_properties jsonb,
    encoded                bytea,
    body                   bytea       NOT NULL
) PARTITION BY LIST (slot);
ALTER TABLE vitrine_kept_message ALTER COLUMN body SET STORAGE EXTERNAL;
DO $$
BEGIN
    FOR i IN 0..33 LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF vitrine_kept_message FOR VALUES IN (%s) WITH (autovacuum_enabled = off)',
                       'vitrine_kept_message_' || i, i);
    END LOOP;
END $$;
-- The slot of what ends now and is kept for a period of real time.
CREATE FUNCTION vitrine_kept_slot(period interval) RETURNS smallint LANGUAGE sql STABLE AS $$
SELECT (CASE WHEN period <= interval '6 hours' THEN div(extract(epoch FROM now() + period), 1800) % 16
             ELSE 16 + div(extract(epoch FROM now() + period), 43200) % 18 END)::smallint $$;
CREATE FUNCTION vitrine_kept_bytes() RETURNS bigint LANGUAGE sql VOLATILE AS $$
SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits
 WHERE inhparent = 'vitrine_kept_message'::regclass AND pg_relation_size(inhrelid) > 0 $$;
-- Empty the slots that nothing is stored in now, and of which all that is in them is over. One that others lock is left to the
-- next call. Returns how many bytes they had.
CREATE FUNCTION vitrine_drop_kept() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    half_hour bigint := div(extract(epoch FROM clock_timestamp()), 1800);
    half_day  bigint := div(extract(epoch FROM clock_timestamp()), 43200);
    total     bigint := 0;
    bytes     bigint;
    part      regclass;
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    FOR i IN 0..33 LOOP
        CONTINUE WHEN i < 16 AND (i - half_hour % 16 + 16) % 16 <= 12 OR i >= 16 AND (i - 16 - half_day % 18 + 18) % 18 <= 14;
        part := ('vitrine_kept_message_' || i)::regclass;
        CONTINUE WHEN pg_relation_size(part) = 0;
        BEGIN
            bytes := pg_total_relation_size(part);
            EXECUTE format('TRUNCATE %s', part);
            total := total + bytes;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
    END LOOP;
    RETURN total;
END $$;

-- The lines of files that operations import. copies: where a message that was sent is, [[entity, number], ...], until it can no
-- longer be recalled; NULL: it was not sent. content: the line; empty, when it was sent.
CREATE TABLE vitrine_import_line (
    operation_id bigint, line bigint, content text NOT NULL, copies jsonb,
    PRIMARY KEY (operation_id, line)
);

-- The files of exports, in parts of whole lines. last_number: of a part's messages. bytes: of the file, up to the part's end.
CREATE TABLE vitrine_export_part (
    operation_id bigint, last_number bigint, content text NOT NULL, bytes bigint NOT NULL,
    PRIMARY KEY (operation_id, last_number)
);

-- Deleted entities that can be restored until an instant of real time (docs/design.md D21), with what their deletion removed.
-- Their other rows, and their messages, stay until then.
CREATE TABLE vitrine_soft_deleted (
    entity_id bigint PRIMARY KEY, operation_id bigint NOT NULL, until timestamptz NOT NULL,
    next_number bigint NOT NULL, bytes_sent bigint NOT NULL, copies_bound bigint NOT NULL,
    rules jsonb, policies jsonb, bindings jsonb
);

CREATE TABLE vitrine_queue_head (
    entity_id bigint, subqueue smallint,
    head bigint NOT NULL DEFAULT 1,                   -- at or below the lowest active number
    -- Used while it is above the head: receives need not walk past the locked messages below it (docs/design.md D17).
    locked_below bigint NOT NULL DEFAULT 1,
    -- a hint: no message becomes visible before this, as of the last get that scanned from the beginning
    visible_from timestamptz,
    PRIMARY KEY (entity_id, subqueue),
    CONSTRAINT vitrine_queue_head_out_of_range CHECK (subqueue BETWEEN 0 AND 3)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Numbers of messages that became available again before their locks ended. Rows of messages that were locked or removed since,
-- or that are not below locked_below, mean nothing; advance_head and receives remove them.
CREATE TABLE vitrine_returned (
    entity_id bigint NOT NULL, subqueue smallint NOT NULL, sequence_number bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX vitrine_returned_number ON vitrine_returned (entity_id, subqueue, sequence_number);

CREATE TABLE vitrine_lock_deadline (
    entity_id bigint NOT NULL, subqueue smallint NOT NULL, until timestamptz NOT NULL,
    first_number bigint NOT NULL, last_number bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX vitrine_lock_deadline_until ON vitrine_lock_deadline (entity_id, until);

-- A session with messages, state or a lock (SB-111).
CREATE TABLE vitrine_session (
    entity_id        bigint NOT NULL,
    session_id       text COLLATE "C" NOT NULL,              -- case-sensitive (SB-932)
    first_number     bigint,                                 -- at or below its lowest number; NULL: it has no messages
    locked_until     timestamptz,
    lock_token       uuid,
    locked_by        text,
    state            bytea,
    state_updated_at timestamptz,
    PRIMARY KEY (entity_id, session_id),
    CONSTRAINT vitrine_session_half_locked CHECK ((lock_token IS NULL) = (locked_until IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
-- Without lock columns, so that accepting a session is a HOT update.
CREATE INDEX vitrine_session_first ON vitrine_session ((entity_id + 0), first_number) WHERE first_number IS NOT NULL;

-- The message ids that an entity has seen within its window (SB-130). sequence_number: of the message that was stored.
CREATE TABLE vitrine_seen_id (
    entity_id       bigint NOT NULL,
    message_id      text COLLATE "C" NOT NULL,
    seen_at         timestamptz NOT NULL,
    sequence_number bigint,
    PRIMARY KEY (entity_id, message_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX vitrine_seen_id_at ON vitrine_seen_id (entity_id, seen_at);

-- The server parses a CHECK for each statement: on differences or events it would cost 2 to 5 % of the CPU of a send, receive or
-- settlement of a single message, on messages 13 %. Ranges are therefore checked where differences are folded.

-- Counts (D9). state: a MessageState, or a LedgerState (common/types.py) that ends at `until`.
CREATE TABLE vitrine_count_delta (
    entity_id bigint NOT NULL, subqueue smallint NOT NULL, state smallint NOT NULL, until timestamptz,
    n integer NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,                  -- bytes removed, negative; bytes sent are in the counter
    op smallint,                                      -- the event kind, for rates; NULL: not counted for rates
    at timestamptz NOT NULL DEFAULT now()             -- the database's clock
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE vitrine_count_base (
    entity_id bigint NOT NULL, subqueue smallint NOT NULL, state smallint NOT NULL, until timestamptz,
    n bigint NOT NULL, bytes bigint NOT NULL DEFAULT 0,
    CONSTRAINT vitrine_count_base_out_of_range CHECK (
        subqueue BETWEEN 0 AND 3 AND CASE WHEN until IS NULL THEN state BETWEEN 0 AND 2 ELSE state BETWEEN 10 AND 14 END)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE UNIQUE INDEX vitrine_count_base_key ON vitrine_count_base (entity_id, until, subqueue, state) NULLS NOT DISTINCT;

-- The element-wise sum of two histograms of any lengths.
CREATE FUNCTION vitrine_added(a int[], b int[]) RETURNS int[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT ARRAY(SELECT coalesce(x, 0) + coalesce(y, 0) FROM unnest(a, b) WITH ORDINALITY AS t(x, y, i) ORDER BY i) $$;
CREATE AGGREGATE vitrine_histogram_sum(int[]) (SFUNC = vitrine_added, STYPE = int[], INITCOND = '{}', PARALLEL = SAFE);

-- What happened in an interval: counted where the ledger is folded, by the database's clock (docs/design.md D9). A negative
-- entity_id is a namespace's: the sum of its entities. step: seconds; 10 is kept for a day, 60 for a week, 3600 for 90 days.
-- The *_change columns are differences, so that the depth at the end of each interval follows from the present one.
-- Waiting is the time from enqueueing to the first receive, processing that from the last receive to completion, of the messages
-- completed in the interval. A histogram counts them by duration: element 1 below 1 ms, element i below 2^((i-1)/2) ms.
-- oldest_at: when the oldest active message came, at the last fold of the interval, by the database's clock; NULL: there was
-- none, or it is not known, as for namespaces. Without a row nothing changed, so the value before it still holds, except that a
-- storage message that was put with a delay is not counted until it is due, which writes no row.
CREATE TABLE vitrine_traffic (
    entity_id         bigint           NOT NULL,
    step              integer          NOT NULL,
    bucket            timestamptz      NOT NULL,
    sent              bigint           NOT NULL DEFAULT 0,
    received          bigint           NOT NULL DEFAULT 0,
    completed         bigint           NOT NULL DEFAULT 0,
    dead_lettered     bigint           NOT NULL DEFAULT 0,
    expired           bigint           NOT NULL DEFAULT 0,
    abandoned         bigint           NOT NULL DEFAULT 0,
    active_change     bigint           NOT NULL DEFAULT 0,
    dead_change       bigint           NOT NULL DEFAULT 0,
    waiting_sum       double precision NOT NULL DEFAULT 0,   -- seconds
    waiting_max       double precision NOT NULL DEFAULT 0,
    waiting           int[]            NOT NULL DEFAULT '{}',
    processing_sum    double precision NOT NULL DEFAULT 0,
    processing_max    double precision NOT NULL DEFAULT 0,
    processing        int[]            NOT NULL DEFAULT '{}',
    oldest_at         timestamptz,
    PRIMARY KEY (entity_id, step, bucket),
    CONSTRAINT vitrine_traffic_out_of_range CHECK (step IN (10, 60, 3600))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX vitrine_traffic_bucket ON vitrine_traffic (step, bucket);
-- Events of transactions before this one have their times in vitrine_traffic. One row.
CREATE TABLE vitrine_traffic_position (xid xid8 NOT NULL);
INSERT INTO vitrine_traffic_position VALUES (pg_snapshot_xmin(pg_current_snapshot()));

CREATE TABLE vitrine_message_event (
    event_id          bigint GENERATED ALWAYS AS IDENTITY,
    recorded_at       timestamptz NOT NULL DEFAULT now(),   -- the database's clock, since partitions must not follow a manual one
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
-- The events of a message and of an entity, and messages by id, have indexes in the partitions of days that are over
-- (history/retention.py): on the newest one each would cost each statement 45 us.
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

-- Versions of virtual hosts' topologies. A version that was rolled back is never reused, so that what a process cached under it
-- is recognised as outdated.
CREATE SEQUENCE vitrine_topology_version;
SELECT setval('vitrine_topology_version', 1);
-- The changes of each version, so that a process with an earlier version reads only these. About a thousand versions of all hosts
-- are kept. After a crash the table is empty; the chain of versions is then broken, and everything is read.
CREATE UNLOGGED TABLE vitrine_topology_change (
    version      bigint PRIMARY KEY,
    previous     bigint   NOT NULL,
    namespace_id bigint   NOT NULL,
    queues       text[]   NOT NULL,                   -- names of those created, deleted or replaced
    exchanges    text[]   NOT NULL,                   -- the same
    bindings     bigint[] NOT NULL                    -- ids of those created or deleted
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The clients that are connected to the processes that serve them, and their links; written by these processes, once a second at
-- most (broker_core/clients). Unlogged: after a crash of the server, no client is connected.
CREATE UNLOGGED TABLE vitrine_client (
    epoch        bigint      NOT NULL,                -- of its process (vitrine_broker_process)
    number       bigint      NOT NULL,                -- unique in the process
    protocol     text        NOT NULL,
    peer         text        NOT NULL,
    port         integer     NOT NULL,                -- of the process
    is_tls       boolean     NOT NULL,
    product      text        NOT NULL,
    version      text        NOT NULL,
    description  text        NOT NULL,
    actor        text        NOT NULL,                -- as in events; empty before it has signed in
    holder       text        NOT NULL,                -- as in locks
    namespace    text        NOT NULL,
    since        timestamptz NOT NULL,                -- real time, as last_at
    last_at      timestamptz NOT NULL,
    last_request text        NOT NULL,
    messages_in  bigint      NOT NULL,
    messages_out bigint      NOT NULL,
    bytes_in     bigint      NOT NULL,
    bytes_out    bigint      NOT NULL,
    messages_per_second real NOT NULL,                -- in both directions, lately
    bytes_per_second    real NOT NULL,
    PRIMARY KEY (epoch, number)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX vitrine_client_holder ON vitrine_client (holder);
CREATE INDEX vitrine_client_actor ON vitrine_client (actor);

CREATE UNLOGGED TABLE vitrine_client_link (
    epoch      bigint   NOT NULL,
    client     bigint   NOT NULL,                     -- vitrine_client.number
    number     bigint   NOT NULL,                     -- unique in the process
    channel    integer,
    name       text     NOT NULL,
    namespace  text     NOT NULL,
    path       text     NOT NULL,
    subqueue   smallint NOT NULL,
    direction  text     NOT NULL,                     -- "sends" or "receives": what the client does
    mode       text     NOT NULL,
    credit     integer,                               -- or prefetch
    unsettled  integer  NOT NULL,
    messages   bigint   NOT NULL,
    messages_per_second real NOT NULL,
    PRIMARY KEY (epoch, number)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX vitrine_client_link_client ON vitrine_client_link (epoch, client);
