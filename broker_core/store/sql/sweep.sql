-- Maintenance: receives run it for their own entity, sweeps for all.

-- fragment: expired_tail
-- Removes or dead-letters the expired messages in `owned`; shared by the statements that find them.
failed AS MATERIALIZED (
    SELECT o.*, CASE WHEN e.dead_lettering_on_message_expiration THEN 'dead_letter' ELSE 'drop' END AS fate,
           'TTLExpiredException' AS reason, 'The message expired and was dead lettered.' AS description
      FROM owned AS o, entity AS e),
-- include: apply_failed
,
events AS (
    INSERT INTO vitrine_message_event (
        -- include: event_columns
    )
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, x.*
      FROM entity AS e, (
           SELECT 'process:broker', @EVENT_LOCK_LOST::smallint, sequence_number, failures, old_until, NULL::timestamptz,
                  NULL::timestamptz, NULL::timestamptz, message_id, NULL, NULL::jsonb FROM owned
            WHERE lock_token IS NOT NULL AND (SELECT history_level FROM entity) = @HISTORY_FULL
           UNION ALL
           SELECT 'process:broker', b.* FROM (
                  -- include: failed_events
           ) AS b) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    -- include: failed_counts
)

-- fragment: commit
-- The commit of this transaction waits for the disk unless it is `unflushed`. After a crash of the server, what was not flushed
-- never happened: the messages are expired, without events, and the next sweep begins anew. Whoever acts on a message that was
-- moved flushes the move, too.
set_config('synchronous_commit', CASE WHEN %(unflushed)s::boolean THEN 'off' ELSE current_setting('synchronous_commit') END, true)

-- name: expire
-- Remove or dead-letter up to max_count unlocked messages whose own time-to-live has ended (SB-025, SB-033, SB-034).
WITH
-- include: entity
,
owned AS MATERIALIZED (
    SELECT found.*
      FROM entity AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.expires_at <= e.now AND (m.locked_until IS NULL OR m.locked_until <= e.now)
            ORDER BY m.expires_at LIMIT %(max_count)s FOR UPDATE SKIP LOCKED) AS found),
-- include: expired_tail
SELECT count(*) AS done, NULL::bigint AS last_number,
       -- include: commit
  FROM owned
HAVING
       -- include: all_failed_changed_or_retry
;

-- name: expire_by_default
-- The same for messages that expire by the entity's current default (SB-023, SB-921). They expire in the order of their numbers,
-- so the list is scanned from a number on, max_count messages per call. last_number: the last one scanned; NULL if no later
-- message has expired.
WITH
-- include: entity
,
walked AS MATERIALIZED (
    SELECT m.ctid AS tid, m.sequence_number, m.expires_at, m.enqueued_at, m.locked_until FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number >= greatest(%(from_number)s, (SELECT head FROM vitrine_queue_head
                                                            WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN))
     ORDER BY m.sequence_number LIMIT %(max_count)s),
owned AS MATERIALIZED (
    SELECT found.*
      FROM entity AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.ctid = ANY (ARRAY(SELECT w.tid FROM walked AS w
                                       WHERE w.expires_at IS NULL AND w.enqueued_at + e.default_message_time_to_live <= e.now))
              AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.expires_at IS NULL
              AND m.enqueued_at + e.default_message_time_to_live <= e.now
              AND (m.locked_until IS NULL OR m.locked_until <= e.now)
              FOR UPDATE SKIP LOCKED) AS found),
-- include: expired_tail
SELECT (SELECT count(*) FROM owned) AS done,
       CASE WHEN (SELECT count(*) FROM walked) = %(max_count)s
             AND (SELECT max(enqueued_at) FROM walked) + (SELECT default_message_time_to_live
                                                            FROM entity) <= (SELECT now FROM entity)
            THEN (SELECT max(sequence_number) FROM walked) END AS last_number,
       -- include: commit
 WHERE
       -- include: all_failed_changed_or_retry
;

-- name: end_locks
-- End locks that have expired: each is a failed delivery (SB-070, SB-090); expired messages and those at their maximum delivery
-- count are removed or dead-lettered (SB-027, SB-091). The locks are found through max_count deadlines per call, written by
-- receives, renewals and a lower max_delivery_count. every_lock: `actor` also ends locks that are still valid (SB-072, SB-073).
WITH
-- include: entity
,
bound AS MATERIALIZED (SELECT CASE WHEN %(every_lock)s THEN 'infinity'::timestamptz ELSE now END AS until FROM entity),
ended AS (
    DELETE FROM vitrine_lock_deadline
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM vitrine_lock_deadline
                              WHERE entity_id = %(entity_id)s AND until <= (SELECT until FROM bound)
                              ORDER BY until LIMIT %(max_count)s FOR UPDATE SKIP LOCKED))
 RETURNING subqueue, first_number, last_number),
found AS MATERIALIZED (
    SELECT DISTINCT m.subqueue, m.state, m.sequence_number
      FROM ended AS d CROSS JOIN unnest('{@STATE_ACTIVE,@STATE_DEFERRED}'::smallint[]) AS s(state)
     CROSS JOIN LATERAL (
           SELECT subqueue, state, sequence_number FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = d.subqueue AND m.state = s.state
              AND m.sequence_number BETWEEN d.first_number AND d.last_number
              AND
                  -- include: lock_ended_or_spent
           ) AS m),
-- include: ended_locks
SELECT (SELECT count(*) FROM ended) AS deadlines, (SELECT count(*) FROM held) AS done,
       (SELECT count(*) FROM failed WHERE fate <> 'keep') AS buried,
       -- include: waiting
 WHERE
       -- include: all_ended_or_retry
;

-- name: end_locks_of
-- End the valid locks of these messages now, on behalf of `actor` (SB-077): as if they had expired. Their deadlines stay, and
-- find nothing when they pass.
WITH
-- include: entity
,
bound AS MATERIALIZED (SELECT 'infinity'::timestamptz AS until),
found AS MATERIALIZED (
    SELECT m.subqueue, m.state, m.sequence_number
      FROM (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number)) AS t
     CROSS JOIN LATERAL (
           SELECT subqueue, state, sequence_number FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s
              AND m.subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}')
              AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}') AND m.sequence_number = t.number
              AND m.locked_until > (SELECT now FROM entity)) AS m),
-- include: ended_locks
SELECT coalesce((SELECT array_agg(sequence_number ORDER BY sequence_number) FROM held WHERE lock_token IS NOT NULL),
                '{}') AS numbers,
       (SELECT forward_dead_lettered_messages_to IS NOT NULL FROM entity)
       AND EXISTS (SELECT FROM failed WHERE fate = 'dead_letter') AS forwards,
       -- include: waiting
 WHERE
       -- include: all_ended_or_retry
;

-- fragment: ended_locks
-- The messages of `found` whose lock has ended by `bound`, and what becomes of them.
held AS MATERIALIZED (
    SELECT m.*
      FROM (SELECT * FROM found ORDER BY sequence_number) AS f
     CROSS JOIN entity AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
                  , m.subqueue, m.locked_by
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = f.subqueue AND m.state = f.state
              AND m.sequence_number = f.sequence_number
              AND
                  -- include: lock_ended_or_spent
              FOR UPDATE) AS m),
owned AS MATERIALIZED (SELECT * FROM held WHERE subqueue = @SUBQUEUE_MAIN),
-- include: failed
,
-- include: apply_failed
,
unlocked AS (
    UPDATE vitrine_message AS m
       SET lock_token = NULL, locked_until = NULL, locked_by = NULL, delivery_count = h.failures
      FROM held AS h
     WHERE m.ctid = h.tid AND NOT EXISTS (SELECT FROM failed AS f WHERE f.tid = h.tid AND f.fate <> 'keep')
 RETURNING m.subqueue, m.state, m.sequence_number),
returned AS (
    -- include: returned
      FROM unlocked AS r, entity AS e
     WHERE
           -- include: returned_to_a_list
),
events AS (
    INSERT INTO vitrine_message_event (subqueue,
        -- include: event_columns_but_subqueue
    )
    SELECT x.subqueue, e.now, %(entity_id)s, x.actor, x.kind, x.sequence_number, x.failures, x.locked_until,
           x.enqueued_at, x.first_received_at, x.last_received_at, x.message_id, x.reason, x.details
      FROM entity AS e, (
           SELECT subqueue, coalesce(locked_by, 'process:broker') AS actor, @EVENT_LOCK_LOST::smallint AS kind, sequence_number,
                  failures, old_until AS locked_until, NULL::timestamptz AS enqueued_at, NULL::timestamptz AS first_received_at,
                  NULL::timestamptz AS last_received_at, message_id,
                  CASE WHEN old_until > (SELECT now FROM entity) THEN %(reason)s::text END AS reason,
                  CASE WHEN old_until > (SELECT now FROM entity)
                       THEN jsonb_build_object('dropped_by', %(actor)s::text) END AS details
             FROM held WHERE lock_token IS NOT NULL AND (SELECT history_level FROM entity) = @HISTORY_FULL
           UNION ALL
           SELECT @SUBQUEUE_MAIN::smallint, 'process:broker', b.* FROM (
                  -- include: failed_events
           ) AS b) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    -- include: failed_counts
    UNION ALL
    SELECT %(entity_id)s, subqueue, (@LEDGER_LOCKED + state)::smallint, old_until, -count(*)::int, 0::bigint, NULL::smallint
      FROM held WHERE old_until > (SELECT now FROM entity) GROUP BY subqueue, state, old_until
)

-- fragment: all_ended_or_retry
-- include: all_failed_changed_or_retry
AND (SELECT CASE WHEN (SELECT count(*) FROM unlocked) + (SELECT count(*) FROM failed WHERE fate <> 'keep')
                      = (SELECT count(*) FROM held)
                 THEN true ELSE vitrine_try_again() END)

-- fragment: lock_ended_or_spent
-- A message whose lock has ended, or an unlocked one at its maximum delivery count, which may have been lowered.
(m.locked_until <= (SELECT until FROM bound)
 OR m.locked_until IS NULL AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
 AND m.delivery_count >= (SELECT max_delivery_count FROM entity))

-- fragment: event_columns_but_subqueue
at, entity_id, actor, kind, sequence_number, delivery_count, locked_until,
enqueued_at, first_received_at, last_received_at, message_id, reason, details

-- name: take_head
-- Statement 1 of 2 in one transaction: lock the row of a head, unless it is locked already.
SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s FOR UPDATE SKIP LOCKED;

-- name: advance_head
-- Statement 2 of 2, with a snapshot taken while the row is locked. A single statement that waited for a transaction moving a
-- message into the list would still use its old snapshot, and set the head above that message.
-- locked_below (docs/design.md D17): all active messages from the head up to it are locked, or are in vitrine_returned, or are
-- named by a deadline that has passed. Whoever unlocks a message records it there without reading or locking this row: what this
-- snapshot sees locked, a later commit returns. It is the first unlocked number; while it is at most `lag` above the head,
-- the head itself, so that it is not used; and the lowest returned number if as many as `lag` have been returned, which are then
-- found without their records. Storage queues and priority queues find their messages by other indexes, and do not use it.
WITH
-- include: entity
,
list AS MATERIALIZED (
    SELECT h.ctid AS tid, h.locked_below, c.next_number,
           coalesce((SELECT m.sequence_number FROM vitrine_message AS m
                      WHERE m.entity_id = h.entity_id AND m.subqueue = h.subqueue AND m.state = @STATE_ACTIVE
                        AND m.sequence_number >= h.head
                      ORDER BY m.sequence_number LIMIT 1), c.next_number, h.head) AS head
      FROM vitrine_queue_head AS h LEFT JOIN vitrine_entity_counter AS c ON c.entity_id = h.entity_id
     WHERE h.entity_id = %(entity_id)s AND h.subqueue = %(subqueue)s),
walked AS MATERIALIZED (
    SELECT l.tid, l.head,
           coalesce((SELECT m.sequence_number FROM entity AS e CROSS JOIN LATERAL (
                            SELECT m.sequence_number FROM vitrine_message AS m
                             WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
                               AND m.sequence_number >= greatest(l.head, l.locked_below)
                               AND (m.lock_token IS NULL OR m.locked_until <= e.now
                                    OR m.visible_at IS NOT NULL OR m.priority IS NOT NULL)
                             ORDER BY m.sequence_number LIMIT 1) AS m), l.next_number, l.head) AS unlocked
      FROM list AS l),
bounds AS MATERIALIZED (
    SELECT w.tid, w.head, CASE WHEN b.at - w.head > %(lag)s::bigint THEN b.at ELSE w.head END AS locked_below
      FROM walked AS w
     CROSS JOIN LATERAL (
           SELECT CASE WHEN count(*) = %(lag)s::bigint THEN min(r.sequence_number) ELSE w.unlocked END AS at
             FROM (SELECT sequence_number FROM vitrine_returned
                    WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s
                      AND sequence_number >= w.head AND sequence_number < w.unlocked
                    ORDER BY sequence_number LIMIT %(lag)s::bigint) AS r) AS b),
forgotten AS (
    DELETE FROM vitrine_returned AS r USING bounds AS b
     WHERE r.entity_id = %(entity_id)s AND r.subqueue = %(subqueue)s
       AND (r.sequence_number < b.head OR r.sequence_number >= b.locked_below))
UPDATE vitrine_queue_head AS h SET head = b.head, locked_below = b.locked_below FROM bounds AS b WHERE h.ctid = b.tid
RETURNING h.head;

-- fragment: returned
-- Record that messages became available again (advance_head), here or in the dead-letter queue.
INSERT INTO vitrine_returned (entity_id, subqueue, sequence_number)
SELECT %(entity_id)s, r.subqueue, r.sequence_number

-- fragment: returned_to_a_list
-- Deferred messages are received by number, those of a session through it.
r.state = @STATE_ACTIVE AND NOT (e.requires_session AND r.subqueue = @SUBQUEUE_MAIN)

-- name: entities_with_due
-- Entities that may need maintenance now, with the kinds of work; a few index probes each. A forwarding entity counts as active,
-- since the broker receives from it. Storage queues with a poison queue are always returned. namespace NULL: all.
SELECT e.id AS entity_id, e.family, e.kind, e.effective, e.expiry_mode,
       e.requires_session AND e.expires_whole_sessions AS whole_sessions, due.scheduled, due.locks, due.expired
  FROM vitrine_entity_now AS e
  LEFT JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
 CROSS JOIN LATERAL (SELECT e.expiry_mode <> 'on_activity' OR e.forward_to IS NOT NULL
                     OR coalesce(a.last_receive_at > e.now - interval '60 s', false)
                            OR coalesce(a.waiting_until > clock_timestamp(), false) AS now_) AS may_expire
 CROSS JOIN LATERAL (
       SELECT EXISTS (SELECT FROM vitrine_message
                       WHERE entity_id = e.id AND state = @STATE_SCHEDULED AND scheduled_enqueue_at <= e.now) AS scheduled,
              EXISTS (SELECT FROM vitrine_lock_deadline WHERE entity_id = e.id AND until <= e.now) AS locks,
              may_expire.now_ AND
                  -- include: may_have_expired
              AS expired) AS due
 WHERE (%(namespace)s::text IS NULL OR lower(e.namespace_name) = lower(%(namespace)s))
   AND (due.scheduled OR due.locks OR due.expired OR e.effective ? 'poison_queue')
 ORDER BY e.id;

-- name: heads
-- The heads that can be advanced, and those with outdated returned numbers, for the sweep that does it.
SELECT h.entity_id, h.subqueue
  FROM vitrine_queue_head AS h
  JOIN vitrine_entity AS e ON e.id = h.entity_id AND e.deleted_at IS NULL
  JOIN vitrine_entity_counter AS c ON c.entity_id = h.entity_id
 WHERE h.head < coalesce((SELECT m.sequence_number FROM vitrine_message AS m
                           WHERE m.entity_id = h.entity_id AND m.subqueue = h.subqueue AND m.state = @STATE_ACTIVE
                             AND m.sequence_number >= h.head
                           ORDER BY m.sequence_number LIMIT 1), c.next_number)
    OR EXISTS (SELECT FROM vitrine_returned AS r WHERE r.entity_id = h.entity_id AND r.subqueue = h.subqueue
                                                   AND NOT (r.sequence_number >= h.head AND r.sequence_number < h.locked_below))
 ORDER BY 1, 2;

-- fragment: traffic_counts
-- The traffic in the rows `l` of the ledger of an entity of `kind`. A topic's messages count as sent when published, which for a
-- scheduled message is when it is due.
coalesce(sum(abs(l.n)) FILTER (WHERE l.op = ANY (CASE kind WHEN 'topic' THEN '{@OP_PUBLISHED}'::int[]
                                                           ELSE '{@OP_SENT,@OP_SCHEDULED}' END)), 0) AS sent,
coalesce(sum(abs(l.n)) FILTER (WHERE l.op IN (@OP_RECEIVED, @OP_RECEIVED_AND_DELETED)), 0) AS received,
coalesce(sum(abs(l.n)) FILTER (WHERE l.op IN (@OP_COMPLETED, @OP_RECEIVED_AND_DELETED)), 0) AS completed,
coalesce(sum(abs(l.n)) FILTER (WHERE l.op IN (@OP_DEAD_LETTERED, @OP_MOVED)), 0) AS dead_lettered,
coalesce(sum(abs(l.n)) FILTER (WHERE l.op = @OP_EXPIRED), 0) AS expired,
coalesce(sum(abs(l.n)) FILTER (WHERE l.op = @OP_ABANDONED), 0) AS abandoned,
coalesce(sum(l.n) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_ACTIVE), 0) AS active_change,
coalesce(sum(l.n) FILTER (WHERE l.subqueue IN (@SUBQUEUE_DEAD_LETTER, @SUBQUEUE_TRANSFER_DEAD_LETTER)
                            AND l.state IN (@STATE_ACTIVE, @STATE_DEFERRED)), 0) AS dead_change

-- fragment: traffic_sums
sum(t.sent) AS sent, sum(t.received) AS received, sum(t.completed) AS completed, sum(t.dead_lettered) AS dead_lettered,
sum(t.expired) AS expired, sum(t.abandoned) AS abandoned, sum(t.active_change) AS active_change,
sum(t.dead_change) AS dead_change

-- name: roll_up
-- Fold up to max_count differences of the ledger into its sums, and into the traffic of their entities and namespaces per ten
-- seconds, minute and hour. Of a namespace, a message that a topic published counts once per copy, and not for the topic.
-- oldest_at: of the message that is the oldest now, in each interval in which it had come.
WITH folded AS (
    DELETE FROM vitrine_count_delta
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM vitrine_count_delta LIMIT %(max_count)s FOR UPDATE SKIP LOCKED))
 RETURNING *),
base AS (
    INSERT INTO vitrine_count_base AS b (entity_id, subqueue, state, until, n, bytes)
    SELECT entity_id, subqueue, state, until, sum(n), sum(bytes) FROM folded GROUP BY entity_id, subqueue, state, until
        ON CONFLICT (entity_id, until, subqueue, state) DO UPDATE SET n = b.n + excluded.n, bytes = b.bytes + excluded.bytes),
counted AS MATERIALIZED (
    SELECT l.entity_id, e.namespace_id, e.kind, date_bin('10 s', l.at, 'epoch') AS bucket,
           -- include: traffic_counts
      FROM folded AS l JOIN vitrine_entity AS e ON e.id = l.entity_id
     GROUP BY l.entity_id, e.namespace_id, e.kind, 4),
oldest AS MATERIALIZED (
    SELECT c.id, (SELECT now() - (e.now - o.enqueued_at)
                    FROM vitrine_entity_now AS e CROSS JOIN LATERAL
                         -- include: oldest_waiting
                         AS o
                   WHERE e.id = c.id) AS at
      FROM (SELECT DISTINCT entity_id AS id FROM counted WHERE kind <> 'topic') AS c),
traffic AS (
    INSERT INTO vitrine_traffic AS t (entity_id, step, bucket, sent, received, completed, dead_lettered, expired, abandoned,
                                      active_change, dead_change, oldest_at)
    SELECT o.id, s.step, date_bin(make_interval(secs => s.step), t.bucket, 'epoch') AS bucket,
           -- include: traffic_sums
           , max(n.at) FILTER (WHERE o.id > 0) AS oldest_at
      FROM counted AS t LEFT JOIN oldest AS n ON n.id = t.entity_id AND n.at < t.bucket + interval '10 s'
     CROSS JOIN (VALUES (10), (60), (3600)) AS s(step)
     CROSS JOIN LATERAL (SELECT t.entity_id AS id UNION ALL SELECT -t.namespace_id WHERE t.kind <> 'topic') AS o
     WHERE (t.sent, t.received, t.completed, t.dead_lettered, t.expired, t.abandoned, t.active_change, t.dead_change)
           <> (0, 0, 0, 0, 0, 0, 0, 0)
     GROUP BY 1, 2, 3
        ON CONFLICT (entity_id, step, bucket) DO UPDATE
       SET sent = t.sent + excluded.sent, received = t.received + excluded.received, completed = t.completed + excluded.completed,
           dead_lettered = t.dead_lettered + excluded.dead_lettered, expired = t.expired + excluded.expired,
           abandoned = t.abandoned + excluded.abandoned, active_change = t.active_change + excluded.active_change,
           dead_change = t.dead_change + excluded.dead_change, oldest_at = excluded.oldest_at)
SELECT count(*) AS done FROM folded;

-- name: roll_up_times
-- Add the waiting and processing times of completed messages to the traffic, from up to max_count more events, in the order of
-- transactions: a transaction that has not ended keeps those that began after it for a later run, so none is missed or counted
-- twice. An entity without history has no times.
WITH bounds AS MATERIALIZED (
    SELECT p.since, greatest(p.since, coalesce(
               (SELECT e.xid FROM vitrine_message_event AS e WHERE e.xid >= p.since AND e.xid < p.until
                 ORDER BY e.xid OFFSET %(max_count)s LIMIT 1), p.until)) AS until, p.until AS latest
      FROM (SELECT least(xid, pg_snapshot_xmin(pg_current_snapshot())) AS since,
                   pg_snapshot_xmin(pg_current_snapshot()) AS until FROM vitrine_traffic_position) AS p),
read AS MATERIALIZED (                                      -- a single transaction with more events is read as a whole
    SELECT since, CASE WHEN until = since AND latest > since THEN (since::text::bigint + 1)::text::xid8 ELSE until END AS until,
           latest
      FROM bounds),
moved AS (UPDATE vitrine_traffic_position SET xid = (SELECT until FROM read) WHERE xid <> (SELECT until FROM read)),
completed AS MATERIALIZED (
    SELECT e.entity_id, date_bin('10 s', e.recorded_at, 'epoch') AS bucket,
           greatest(extract(epoch FROM e.first_received_at - e.enqueued_at)::float8, 0) AS waiting,
           greatest(extract(epoch FROM e.at - e.last_received_at)::float8, 0) AS processing
      FROM vitrine_message_event AS e
     WHERE e.xid >= (SELECT since FROM read) AND e.xid < (SELECT until FROM read)
       AND e.kind IN (@EVENT_COMPLETED, @EVENT_RECEIVED_AND_DELETED) AND e.subqueue = @SUBQUEUE_MAIN
       AND e.first_received_at IS NOT NULL AND e.enqueued_at IS NOT NULL AND e.last_received_at IS NOT NULL),
by_class AS MATERIALIZED (
    SELECT entity_id, bucket, d.is_waiting, c.class, count(*)::int AS n, sum(d.seconds) AS seconds, max(d.seconds) AS most
      FROM completed
     CROSS JOIN LATERAL (VALUES (true, waiting), (false, processing)) AS d(is_waiting, seconds)
     CROSS JOIN LATERAL (SELECT CASE WHEN d.seconds < 0.001 THEN 0
                                     ELSE least(1 + floor(2 * ln(d.seconds * 1000) / ln(2))::int, 63) END AS class) AS c
     GROUP BY 1, 2, 3, 4),
times AS MATERIALIZED (
    SELECT entity_id, bucket,
           sum(seconds) FILTER (WHERE is_waiting) AS waiting_sum, max(most) FILTER (WHERE is_waiting) AS waiting_max,
           vitrine_histogram_sum(array_fill(0, ARRAY[class]) || n) FILTER (WHERE is_waiting) AS waiting,
           sum(seconds) FILTER (WHERE NOT is_waiting) AS processing_sum,
           max(most) FILTER (WHERE NOT is_waiting) AS processing_max,
           vitrine_histogram_sum(array_fill(0, ARRAY[class]) || n) FILTER (WHERE NOT is_waiting) AS processing
      FROM by_class GROUP BY 1, 2),
traffic AS (
    INSERT INTO vitrine_traffic AS t (entity_id, step, bucket, waiting_sum, waiting_max, waiting, processing_sum, processing_max,
                                      processing)
    SELECT o.id, s.step, date_bin(make_interval(secs => s.step), d.bucket, 'epoch'), sum(d.waiting_sum), max(d.waiting_max),
           vitrine_histogram_sum(d.waiting), sum(d.processing_sum), max(d.processing_max), vitrine_histogram_sum(d.processing)
      FROM times AS d JOIN vitrine_entity AS e ON e.id = d.entity_id
     CROSS JOIN (VALUES (10), (60), (3600)) AS s(step)
     CROSS JOIN LATERAL (VALUES (d.entity_id), (-e.namespace_id)) AS o(id)
     GROUP BY 1, 2, 3
        ON CONFLICT (entity_id, step, bucket) DO UPDATE
       SET waiting_sum = t.waiting_sum + excluded.waiting_sum, waiting_max = greatest(t.waiting_max, excluded.waiting_max),
           waiting = vitrine_added(t.waiting, excluded.waiting),
           processing_sum = t.processing_sum + excluded.processing_sum,
           processing_max = greatest(t.processing_max, excluded.processing_max),
           processing = vitrine_added(t.processing, excluded.processing))
SELECT (SELECT until < latest FROM read) AS more, (SELECT count(*) FROM completed) AS done;

-- name: forget_ended_counts
-- Remove sums of locks that ended an hour ago, empty sums (a lease may last a week), and traffic that was kept long enough.
WITH locks AS (
    DELETE FROM vitrine_count_base AS b USING vitrine_entity_now AS e
     WHERE b.entity_id = e.id AND b.until IS NOT NULL AND (b.until < e.now - interval '1 hour' OR b.n = 0 AND b.bytes = 0)
     RETURNING 1),
traffic AS (
    DELETE FROM vitrine_traffic AS t USING (VALUES (10, interval '1 day'), (60, '7 days'), (3600, '90 days')) AS k(step, kept)
     WHERE t.step = k.step AND t.bucket < now() - k.kept - make_interval(secs => k.step) RETURNING 1)
SELECT (SELECT count(*) FROM locks) + (SELECT count(*) FROM traffic) AS done;

-- name: one_at_a_time
-- Whether this transaction may do the named work, which at most one transaction does at a time.
SELECT pg_try_advisory_xact_lock(hashtextextended('vitrine ' || %(work)s, 0)) AS acquired;

-- fragment: unused_since
-- The start of a queue's x-expires period: its last use, or the start of the database server (RMQ-047). With a manual clock,
-- only uses count.
greatest(a.last_activity_at, (SELECT pg_postmaster_start_time() FROM vitrine_entity AS x
                                JOIN vitrine_namespace AS n ON n.id = x.namespace_id
                               WHERE x.id = a.entity_id AND n.clock_base_at IS NULL))

-- fragment: unused_for_too_long
-- A queue's x-expires period has ended: it has no consumer, and was last used at least that long ago (RMQ-041).
(e.auto_delete_on_idle IS NOT NULL AND
 -- include: unused_since
 + e.auto_delete_on_idle <= e.now
 AND NOT EXISTS (SELECT FROM vitrine_consumer AS c WHERE c.queue_id = e.id))

-- fragment: idle_at
-- When entity `e` of Service Bus, with its activity `a`, will have been idle for its auto-delete interval. Activity of a
-- subscription is activity of its topic (SB-191). Activity is written at most every 20 s, which are added so that none is deleted
-- early (SB-194).
greatest(a.last_activity_at, (SELECT max(x.last_activity_at)
                                FROM vitrine_entity AS s JOIN vitrine_entity_activity AS x ON x.entity_id = s.id
                               WHERE s.topic_id = e.id AND s.deleted_at IS NULL))
+ e.auto_delete_on_idle + interval '20 s'

-- fragment: kept_from_idleness
-- Why entity `e` is not idle, whatever its last activity: it forwards (SB-193), its receiver waits (SB-195), it has scheduled
-- messages (SB-918), or a subscription of the topic forwards or has a waiting receiver (SB-191). NULL: for no such reason.
CASE WHEN e.forward_to IS NOT NULL THEN 'forwards'
     WHEN a.waiting_until > clock_timestamp() THEN 'waiting'
     WHEN EXISTS (SELECT FROM vitrine_message WHERE entity_id = e.id AND state = @STATE_SCHEDULED) THEN 'scheduled'
     ELSE (SELECT CASE WHEN bool_or(s.forward_to IS NOT NULL) THEN 'subscription forwards'
                       WHEN bool_or(x.waiting_until > clock_timestamp()) THEN 'subscription waiting' END
             FROM vitrine_entity AS s JOIN vitrine_entity_activity AS x ON x.entity_id = s.id
            WHERE s.topic_id = e.id AND s.deleted_at IS NULL) END

-- fragment: idle_for_too_long
-- Entity `e` of Service Bus, with its activity `a`, had no activity for its auto-delete interval (SB-190 to SB-195). Messages
-- arriving in a subscription are not activity of it (SB-919).
(e.auto_delete_on_idle IS NOT NULL AND
 -- include: idle_at
 <= e.now
 AND (
 -- include: kept_from_idleness
 ) IS NULL)

-- name: idle_entities
-- Entities that are to be deleted since they were not used, oldest first.
SELECT e.id AS entity_id, e.family, e.namespace_name, e.path
  FROM vitrine_entity_now AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
 WHERE e.auto_delete_on_idle IS NOT NULL AND e.family = 'service_bus' AND
       -- include: idle_for_too_long
UNION ALL
-- RabbitMQ queues: their last use is written exactly, and only if they expire.
SELECT e.id, e.family, e.namespace_name, e.path
  FROM vitrine_entity_now AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
 WHERE e.family = 'rabbitmq' AND
       -- include: unused_for_too_long
 ORDER BY entity_id;

-- name: is_idle
-- Whether an entity of Service Bus is still idle for too long. No row: it is not, or does not exist.
SELECT e.id FROM vitrine_entity_now AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
 WHERE e.id = %(entity_id)s AND
       -- include: idle_for_too_long
;

-- name: deleted_entities
-- Deleted entities that still have rows and cannot be restored; the row of their activity is removed last.
SELECT e.id AS entity_id FROM vitrine_entity_activity AS a JOIN vitrine_entity AS e ON e.id = a.entity_id
 WHERE e.deleted_at IS NOT NULL AND NOT EXISTS (SELECT FROM vitrine_soft_deleted AS s WHERE s.entity_id = e.id);

-- name: remove_deleted
-- Up to max_count messages of a deleted entity (SB-240). Their events name who deleted the entity.
WITH removed AS (
    DELETE FROM vitrine_message AS m
     WHERE m.ctid = ANY (ARRAY(SELECT ctid FROM vitrine_message WHERE entity_id = %(entity_id)s LIMIT %(max_count)s))
       AND EXISTS (SELECT FROM vitrine_entity WHERE id = %(entity_id)s AND deleted_at IS NOT NULL)
 RETURNING m.*),
-- kept from: removed AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id)
    SELECT n.now, e.id, r.subqueue, coalesce(e.deleted_by, 'process:broker'), @EVENT_DELETED, r.sequence_number, r.delivery_count,
           r.enqueued_at, r.first_received_at, r.last_received_at, r.message_id
      FROM removed AS r, vitrine_entity AS e JOIN vitrine_namespace_now AS n ON n.id = e.namespace_id
     WHERE e.id = %(entity_id)s AND e.history_level > @HISTORY_OFF)
SELECT count(*) AS done FROM removed;

-- name: forget_deleted
-- Remove the other rows of a deleted entity after its messages, and record in its namespace's traffic that they left when it was
-- deleted. The entity's row stays while events may refer to it (history_forget_entities).
WITH heads AS (DELETE FROM vitrine_queue_head WHERE entity_id = %(entity_id)s),
sessions AS (DELETE FROM vitrine_session WHERE entity_id = %(entity_id)s),
hidden AS (DELETE FROM vitrine_hidden_message WHERE entity_id = %(entity_id)s),
seen AS (DELETE FROM vitrine_seen_id WHERE entity_id = %(entity_id)s),
activity AS (DELETE FROM vitrine_entity_activity WHERE entity_id = %(entity_id)s),
counters AS (DELETE FROM vitrine_entity_counter WHERE entity_id = %(entity_id)s),
deadlines AS (DELETE FROM vitrine_lock_deadline WHERE entity_id = %(entity_id)s),
returned AS (DELETE FROM vitrine_returned WHERE entity_id = %(entity_id)s),
deltas AS (DELETE FROM vitrine_count_delta WHERE entity_id = %(entity_id)s RETURNING subqueue, state, n),
bases AS (DELETE FROM vitrine_count_base WHERE entity_id = %(entity_id)s RETURNING subqueue, state, n),
traffic AS (DELETE FROM vitrine_traffic WHERE entity_id = %(entity_id)s),
of_namespace AS (
    INSERT INTO vitrine_traffic AS t (entity_id, step, bucket, active_change, dead_change)
    SELECT -e.namespace_id, s.step, date_bin(make_interval(secs => s.step), e.deleted_at, 'epoch'),
           -coalesce(sum(l.n) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_ACTIVE), 0),
           -coalesce(sum(l.n) FILTER (WHERE l.subqueue IN (@SUBQUEUE_DEAD_LETTER, @SUBQUEUE_TRANSFER_DEAD_LETTER)
                                        AND l.state IN (@STATE_ACTIVE, @STATE_DEFERRED)), 0)
      FROM (SELECT subqueue, state, n FROM bases UNION ALL SELECT subqueue, state, n FROM deltas) AS l
      JOIN vitrine_entity AS e ON e.id = %(entity_id)s AND e.deleted_at IS NOT NULL
     CROSS JOIN (VALUES (10), (60), (3600)) AS s(step)
     GROUP BY 1, 2, 3
        ON CONFLICT (entity_id, step, bucket) DO UPDATE
       SET active_change = t.active_change + excluded.active_change, dead_change = t.dead_change + excluded.dead_change)
UPDATE vitrine_entity SET updated_at = clock_timestamp() WHERE id = %(entity_id)s AND deleted_at IS NOT NULL;

-- name: check_ledger
-- Compare the ledger with the stored messages in one snapshot; one row per list that differs.
WITH counted AS (
    SELECT entity_id, subqueue, state, sum(n) AS n
      FROM (SELECT entity_id, subqueue, state, n FROM vitrine_count_base WHERE state < @LEDGER_LOCKED
            UNION ALL SELECT entity_id, subqueue, state, n FROM vitrine_count_delta WHERE state < @LEDGER_LOCKED) AS l
     GROUP BY 1, 2, 3),
present AS (SELECT entity_id, subqueue, state, count(*) AS n FROM vitrine_message GROUP BY 1, 2, 3)
SELECT e.id AS entity_id, e.namespace_name, e.path, subqueue, state, coalesce(c.n, 0)::bigint AS ledger,
       coalesce(p.n, 0) AS present
  FROM counted AS c FULL JOIN present AS p USING (entity_id, subqueue, state) JOIN vitrine_entity_now AS e ON e.id = entity_id
 WHERE coalesce(c.n, 0) <> coalesce(p.n, 0);

-- name: correct_ledger
-- Correct one list of the ledger by a difference.
INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n) VALUES (%(entity_id)s, %(subqueue)s, %(state)s, %(difference)s);
