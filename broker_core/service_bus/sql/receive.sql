-- Receiving (with a lock, with deletion, by number) and peeking.

-- fragment: receivable
-- Whether entity `e` allows receives from this list. Forwarded messages cannot be received here (SB-104, SB-171).
e.status IN ('Active', 'SendDisabled')
AND NOT (%(subqueue)s = @SUBQUEUE_MAIN AND e.forward_to IS NOT NULL)
AND NOT (%(subqueue)s = @SUBQUEUE_DEAD_LETTER AND e.forward_dead_lettered_messages_to IS NOT NULL)

-- fragment: available
-- A message of entity `e` that may be received now: its lock, if any, has ended. Outside the main list neither expiry nor the
-- delivery count matters (SB-025, SB-035, SB-089, SB-091).
m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
AND (m.locked_until IS NULL OR m.locked_until <= e.now)
AND (%(subqueue)s <> @SUBQUEUE_MAIN
     OR
        -- include: neither_expired_nor_spent
    )

-- fragment: neither_expired_nor_spent
(coalesce(m.expires_at, m.enqueued_at + e.default_message_time_to_live) > e.now) IS NOT FALSE
AND m.delivery_count + (m.lock_token IS NOT NULL)::int < e.max_delivery_count

-- fragment: receiver
-- What a receive needs to know of its entity and list, read first and once: LATERAL subqueries with OFFSET or LIMIT are executed
-- in the order in which they are written, whatever the statistics say. until: when the locks end. idle: the receive is to be
-- recorded as activity (touch_by_receive). No row: the entity does not exist or does not allow receives.
SELECT e.now, e.now + e.lock_duration AS until, e.max_delivery_count, e.default_message_time_to_live, e.history_level, h.head,
       h.locked_below, greatest(h.head, h.locked_below) AS start, a.idle
  FROM vitrine_entity_now AS e
 CROSS JOIN LATERAL (
       SELECT head, locked_below FROM vitrine_queue_head
        WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s OFFSET 0) AS h
 CROSS JOIN LATERAL (
       SELECT a.last_receive_at IS NULL OR a.last_receive_at < e.now - interval '20 s' AS idle
         FROM vitrine_entity_activity AS a WHERE a.entity_id = e.id OFFSET 0) AS a
 WHERE e.id = %(entity_id)s AND
       -- include: receivable

-- fragment: receiver_columns
e.now, e.until, e.history_level, e.default_message_time_to_live, e.start, e.locked_below > e.head AS passes_locked, e.idle

-- fragment: available_messages
-- The first available messages of a list, none while `locked_below` is used (available_past_locked).
available AS MATERIALIZED (
    SELECT found.*,
           -- include: receiver_columns
      FROM (
           -- include: receiver
           AND h.locked_below <= h.head OFFSET 0) AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: available_columns
             FROM vitrine_message AS m
            WHERE
                  -- include: available
              AND m.sequence_number >= e.start
            ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED) AS found)

-- fragment: available_past_locked
-- As available_messages, without walking past the locked messages below `locked_below`: first those of vitrine_returned below it,
-- then those above. While a deadline that may concern them has passed, none are available: end_locks must record them first.
-- Deadlines of removed messages pass as well; with many of them end_locks removes them. past_deadlines: do not look at them; they
-- have just been removed.
receiver AS MATERIALIZED (
    SELECT e.* FROM (
           -- include: receiver
           OFFSET 0) AS e
     WHERE %(past_deadlines)s OR NOT (e.locked_below > e.head AND (
           SELECT count(*) = 100 OR coalesce(bool_or(d.subqueue = %(subqueue)s AND d.first_number < e.locked_below
                                                       AND d.last_number >= e.head), false)
             FROM (SELECT subqueue, first_number, last_number FROM vitrine_lock_deadline
                    WHERE entity_id = %(entity_id)s AND until <= e.now ORDER BY until LIMIT 100) AS d))),
returned AS MATERIALIZED (
    SELECT found.*
      FROM receiver AS e
     CROSS JOIN LATERAL (
           SELECT m.*
             FROM (SELECT DISTINCT sequence_number FROM vitrine_returned
                    WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s
                      AND sequence_number >= e.head AND sequence_number < e.locked_below ORDER BY sequence_number) AS r
            CROSS JOIN LATERAL (
                  SELECT
                         -- include: available_columns
                    FROM vitrine_message AS m
                   WHERE
                         -- include: available
                     AND m.sequence_number = r.sequence_number FOR UPDATE SKIP LOCKED) AS m
            LIMIT %(max_count)s) AS found),
later AS MATERIALIZED (
    SELECT found.*
      FROM receiver AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: available_columns
             FROM vitrine_message AS m
            WHERE
                  -- include: available
              AND m.sequence_number >= e.start
            ORDER BY m.sequence_number LIMIT %(max_count)s - (SELECT count(*) FROM returned) FOR UPDATE SKIP LOCKED) AS found),
available AS MATERIALIZED (
    SELECT found.*,
           -- include: receiver_columns
      FROM (SELECT * FROM returned UNION ALL SELECT * FROM later) AS found CROSS JOIN receiver AS e),
-- The records of the messages that are locked now, by this statement or before.
forgotten AS (
    DELETE FROM vitrine_returned
     WHERE ctid = ANY (ARRAY(
           SELECT r.tid
             FROM receiver AS e
            CROSS JOIN LATERAL (
                  SELECT ctid AS tid, sequence_number FROM vitrine_returned
                   WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s
                     AND sequence_number >= e.head AND sequence_number < e.locked_below
                   ORDER BY sequence_number LIMIT %(max_count)s + 100 FOR UPDATE SKIP LOCKED) AS r
            WHERE r.sequence_number = ANY (ARRAY(SELECT sequence_number FROM returned))
               OR (SELECT true FROM vitrine_message AS m  -- not EXISTS, for which the planner may read the whole list
                    WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
                      AND m.sequence_number = r.sequence_number AND (m.locked_until IS NULL OR m.locked_until <= e.now)
                    LIMIT 1) IS NULL)))

-- fragment: available_columns
-- failures: its failed deliveries, counting a lock that has ended (SB-090).
m.ctid AS tid, m.sequence_number, m.lock_token AS old_token, m.locked_until AS old_until, m.locked_by AS old_holder,
m.delivery_count + (m.lock_token IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN)::int AS failures

-- fragment: all_available_changed_or_retry
-- See all_changed_or_retry.
(SELECT CASE WHEN n = (SELECT count(*) FROM available) THEN true ELSE vitrine_try_again() END FROM summed)

-- fragment: received_columns
-- The columns that a receive returns (store.rows).
m.subqueue, m.state, m.sequence_number, m.delivery_count, m.enqueued_at, m.expires_at, m.time_to_live,
m.scheduled_enqueue_at, m.last_received_at, m.locked_until, m.lock_token, m.message_id, m.session_id, m.body, m.body_kind,
m.properties, m.application_properties, m.dead_letter_reason, m.dead_letter_description, m.dead_letter_source,
m.enqueued_sequence_number, m.encoded

-- fragment: received_rows
SELECT
       -- include: received_columns
       , m.default_message_time_to_live, m.start, m.passes_locked, m.idle
  FROM changed AS m
 WHERE
       -- include: all_available_changed_or_retry

-- fragment: received_counts
summed AS (
    SELECT count(*) AS n, max(locked_until) AS until, min(sequence_number) AS first, max(sequence_number) AS last FROM changed),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, @LEDGER_LOCKED, until, n, @OP_RECEIVED FROM summed WHERE n > 0),
deadline AS (
    INSERT INTO vitrine_lock_deadline (entity_id, subqueue, until, first_number, last_number)
    SELECT %(entity_id)s, %(subqueue)s, until, first, last FROM summed WHERE n > 0)

-- fragment: deleted_count
summed AS (SELECT count(*) AS n, sum(size) AS bytes FROM changed),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, @STATE_ACTIVE, -n, -bytes, @OP_RECEIVED_AND_DELETED FROM summed WHERE n > 0)

-- fragment: received
-- Lock `available`. An earlier lock that has ended was a failed delivery (SB-090); its event is written here.
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , locked_by = %(holder)s, locked_until = a.until, delivery_count = a.failures,
           first_received_at = coalesce(m.first_received_at, a.now), last_received_at = a.now, renewals = NULL
      FROM available AS a WHERE m.ctid = a.tid
 RETURNING
           -- include: received_columns
           , a.old_token, a.old_until, a.old_holder, a.history_level, a.default_message_time_to_live, a.start, a.passes_locked,
           a.idle),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, delivery_count, kind, locked_until,
                                       actor)
    SELECT last_received_at, %(entity_id)s::bigint, %(subqueue)s::smallint, sequence_number, message_id, delivery_count,
           @EVENT_RECEIVED, locked_until, %(holder)s
      FROM changed WHERE history_level = @HISTORY_FULL
    UNION ALL
    SELECT last_received_at, %(entity_id)s, %(subqueue)s, sequence_number, message_id, delivery_count, @EVENT_LOCK_LOST,
           old_until, old_holder
      FROM changed WHERE old_token IS NOT NULL AND history_level = @HISTORY_FULL),
-- include: received_counts

-- fragment: received_and_deleted
-- Delete `available`.
changed AS (
    DELETE FROM vitrine_message AS m USING available AS a WHERE m.ctid = a.tid
 RETURNING m.size, m.first_received_at,
           -- include: received_columns
           , a.old_token, a.old_until, a.old_holder, a.failures, a.now, a.history_level, a.default_message_time_to_live, a.start,
           a.passes_locked, a.idle
),
-- kept from: changed AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, locked_until, actor, enqueued_at, first_received_at, last_received_at)
    SELECT now, %(entity_id)s::bigint, %(subqueue)s::smallint, sequence_number, message_id, @EVENT_RECEIVED_AND_DELETED,
           delivery_count, NULL::timestamptz, %(holder)s, enqueued_at, coalesce(first_received_at, now), now
      FROM changed WHERE history_level > @HISTORY_OFF
    UNION ALL
    SELECT now, %(entity_id)s, %(subqueue)s, sequence_number, message_id, @EVENT_LOCK_LOST, failures, old_until, old_holder, NULL,
           NULL, NULL
      FROM changed WHERE old_token IS NOT NULL AND history_level = @HISTORY_FULL),
-- include: deleted_count

-- fragment: lock_ends
lock_ends AS MATERIALIZED (SELECT now + lock_duration AS at FROM entity)

-- fragment: received_deferred
-- Lock the messages of `failed` that are kept, if these are all that were requested. An earlier lock that has ended was a failed
-- delivery (SB-090); its event is written here.
locked AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , locked_by = %(holder)s,
           locked_until = (SELECT at FROM lock_ends), delivery_count = f.failures,
           first_received_at = coalesce(m.first_received_at, (SELECT now FROM entity)),
           last_received_at = (SELECT now FROM entity), renewals = NULL
      FROM failed AS f
     WHERE m.ctid = f.tid AND f.fate = 'keep'
       AND (SELECT count(*) FROM failed WHERE fate = 'keep')
           = (SELECT count(DISTINCT number) FROM unnest(%(numbers)b::bigint[]) AS t(number))
 RETURNING
           -- include: received_columns
),
events AS (
    INSERT INTO vitrine_message_event (
        -- include: event_columns
    )
    SELECT e.now, %(entity_id)s, %(subqueue)s, x.*
      FROM entity AS e, (
           SELECT coalesce(old_holder, 'process:broker'), @EVENT_LOCK_LOST::smallint, sequence_number, failures, old_until,
                  NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, message_id, NULL, NULL::jsonb FROM failed
            WHERE lock_token IS NOT NULL AND (fate <> 'keep' OR EXISTS (SELECT FROM locked))
              AND (SELECT history_level FROM entity) = @HISTORY_FULL
           UNION ALL
           SELECT %(holder)s, @EVENT_RECEIVED, sequence_number, delivery_count, locked_until, NULL, NULL, NULL, message_id, NULL,
                  NULL FROM locked
            WHERE (SELECT history_level FROM entity) = @HISTORY_FULL
           UNION ALL
           SELECT 'process:broker', b.* FROM (
                  -- include: failed_events
           ) AS b) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, @LEDGER_DEFERRED_LOCKED, locked_until, count(*), 0, @OP_RECEIVED FROM locked
     GROUP BY locked_until
    UNION ALL
    -- include: failed_counts
),
deadline AS (
    INSERT INTO vitrine_lock_deadline (entity_id, subqueue, until, first_number, last_number)
    SELECT %(entity_id)s, %(subqueue)s, locked_until, min(sequence_number), max(sequence_number) FROM locked
     GROUP BY locked_until)

-- fragment: all_deferred_changed_or_retry
-- include: all_failed_changed_or_retry
AND (SELECT CASE WHEN (SELECT count(*) FROM locked) IN (0, count(*)) THEN true ELSE vitrine_try_again() END
       FROM failed WHERE fate = 'keep')

-- name: receive
-- Lock up to max_count available messages, those with the lowest numbers (SB-061, SB-062). Messages that another receiver is
-- locking are skipped. The rows are in no order. None while receives pass the locked messages (receive_past_locked).
WITH
-- include: available_messages
,
-- include: received
-- include: received_rows
;

-- name: receive_and_delete
-- As receive, but remove the messages (SB-060). Does not count as a delivery (SB-093).
WITH
-- include: available_messages
,
-- include: received_and_deleted
-- include: received_rows
;

-- name: receive_past_locked
-- As receive, without walking past many locked messages (docs/design.md D17).
WITH
-- include: available_past_locked
,
-- include: received
-- include: received_rows
;

-- name: receive_and_delete_past_locked
-- As receive_past_locked, but remove the messages.
WITH
-- include: available_past_locked
,
-- include: received_and_deleted
-- include: received_rows
;

-- name: walk_from_head
-- Let receives walk past all locked messages of a list again, until its bounds are advanced.
UPDATE vitrine_queue_head SET locked_below = head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s;

-- fragment: turns
-- The receiver of each message of `available`: `holders` has an entry for each message wanted, in the order of the messages.
turns AS MATERIALIZED (
    SELECT a.*, (%(holders)s::text[])[row_number() OVER (ORDER BY a.sequence_number)] AS holder, gen_random_uuid()::text AS random
      FROM available AS a)

-- fragment: received_in_turns
-- As received, for the receivers of `turns`. The random bits of each token are its own, so that no receiver can derive the token
-- of another one's message.
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token = (replace(left(a.random, 14), '-', '') || '8' || substr(a.random, 16, 3) || '8'
                         || lpad(to_hex(m.sequence_number), 15, '0'))::uuid,
           locked_by = a.holder, locked_until = a.until, delivery_count = a.failures,
           first_received_at = coalesce(m.first_received_at, a.now), last_received_at = a.now, renewals = NULL
      FROM turns AS a WHERE m.ctid = a.tid
 RETURNING
           -- include: received_columns
           , a.holder, a.old_token, a.old_until, a.old_holder, a.history_level, a.default_message_time_to_live, a.start,
           a.passes_locked, a.idle),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, delivery_count, kind, locked_until,
                                       actor)
    SELECT c.last_received_at, %(entity_id)s, %(subqueue)s, c.sequence_number, c.message_id, c.delivery_count, x.*
      FROM changed AS c
     CROSS JOIN LATERAL (VALUES (@EVENT_LOCK_LOST, c.old_until, c.old_holder),
                                (@EVENT_RECEIVED, c.locked_until, c.holder)) AS x(kind, until, actor)
     WHERE c.history_level = @HISTORY_FULL AND (x.kind = @EVENT_RECEIVED OR c.old_token IS NOT NULL)),
-- include: received_counts

-- fragment: received_and_deleted_in_turns
-- As received_and_deleted, for the receivers of `turns`.
changed AS (
    DELETE FROM vitrine_message AS m USING turns AS a WHERE m.ctid = a.tid
 RETURNING m.size, m.first_received_at,
           -- include: received_columns
           , a.holder, a.old_token, a.old_until, a.old_holder, a.failures, a.now, a.history_level, a.default_message_time_to_live,
           a.start, a.passes_locked, a.idle
),
-- kept from: changed AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, locked_until, actor, enqueued_at, first_received_at, last_received_at)
    SELECT c.now, %(entity_id)s, %(subqueue)s, c.sequence_number, c.message_id, x.*
      FROM changed AS c
     CROSS JOIN LATERAL (
           VALUES (@EVENT_LOCK_LOST, c.failures, c.old_until, c.old_holder, NULL, NULL, NULL),
                  (@EVENT_RECEIVED_AND_DELETED, c.delivery_count, NULL, c.holder, c.enqueued_at,
                   coalesce(c.first_received_at, c.now), c.now)
           ) AS x(kind, delivery_count, until, actor, enqueued_at, first_received_at, last_received_at)
     WHERE c.history_level > @HISTORY_OFF
       AND (x.kind = @EVENT_RECEIVED_AND_DELETED OR c.old_token IS NOT NULL AND c.history_level = @HISTORY_FULL)),
-- include: deleted_count

-- name: receive_in_turns
-- As receive, for several receivers at once: max_count messages for `holders`, in turns.
WITH
-- include: available_messages
,
-- include: turns
,
-- include: received_in_turns
SELECT * FROM changed
 WHERE
       -- include: all_available_changed_or_retry
;

-- name: receive_in_turns_past_locked
-- As receive_in_turns, without walking past many locked messages (docs/design.md D17).
WITH
-- include: available_past_locked
,
-- include: turns
,
-- include: received_in_turns
SELECT * FROM changed
 WHERE
       -- include: all_available_changed_or_retry
;

-- name: receive_and_delete_in_turns
-- As receive_in_turns, but remove the messages (SB-060).
WITH
-- include: available_messages
,
-- include: turns
,
-- include: received_and_deleted_in_turns
SELECT * FROM changed
 WHERE
       -- include: all_available_changed_or_retry
;

-- name: receive_and_delete_in_turns_past_locked
-- As receive_in_turns_past_locked, but remove the messages.
WITH
-- include: available_past_locked
,
-- include: turns
,
-- include: received_and_deleted_in_turns
SELECT * FROM changed
 WHERE
       -- include: all_available_changed_or_retry
;

-- name: receive_deferred
-- Lock deferred messages by number: all of them, or none (SB-084, SB-085, SB-912). One that has expired, or has reached the
-- maximum delivery count, is dead-lettered or dropped and reported as not found (SB-036).
WITH
-- include: entity
,
owned AS MATERIALIZED (
    SELECT found.*
      FROM entity AS e
     CROSS JOIN (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
                  , m.locked_by AS old_holder
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_DEFERRED
              AND m.sequence_number = t.number
              AND (m.locked_until IS NULL OR m.locked_until <= e.now) FOR UPDATE) AS found
     WHERE e.status IN ('Active', 'SendDisabled')),
-- include: failed
,
-- include: apply_failed
,
-- include: lock_ends
,
-- include: received_deferred
,
-- include: touched_by_receive
SELECT locked.*, e.default_message_time_to_live FROM locked CROSS JOIN entity AS e
 WHERE
       -- include: all_deferred_changed_or_retry
 ORDER BY locked.sequence_number;

-- fragment: peeked
-- Columns of the peeked messages `found`, as of now: a lock that has ended was a failed delivery (SB-090), and a due message is
-- active since it was due (SB-024, SB-047), whether or not this has been written to the row yet.
found.subqueue, CASE WHEN due.now THEN @STATE_ACTIVE ELSE found.state END AS state, found.sequence_number,
found.delivery_count + coalesce(found.locked_until <= e.now AND found.subqueue = @SUBQUEUE_MAIN, false)::int AS delivery_count,
CASE WHEN due.now THEN found.scheduled_enqueue_at ELSE found.enqueued_at END AS enqueued_at,
CASE WHEN due.now THEN found.scheduled_enqueue_at + found.time_to_live ELSE found.expires_at END AS expires_at,
found.time_to_live, found.scheduled_enqueue_at, found.message_id, found.session_id, found.body, found.body_kind, found.properties,
found.application_properties, found.dead_letter_reason, found.dead_letter_description, found.dead_letter_source,
found.enqueued_sequence_number, found.encoded,
-- The documented peek shows an expiry only if the message has a time-to-live of its own (SB-903).
CASE WHEN e.peek_shows_default_expiry THEN e.default_message_time_to_live END AS default_message_time_to_live

-- name: peek
-- Up to max_count messages in any state, from a number on, in number order, unchanged (SB-140, SB-141). A peek counts as activity
-- (SB-147).
WITH
-- include: entity
,
-- include: touched_by_peek
SELECT
       -- include: peeked
  FROM entity AS e, (
       (SELECT * FROM vitrine_message AS m
         WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
           AND m.sequence_number >= greatest(%(from_number)s, (SELECT head FROM vitrine_queue_head
                                                                WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s))
         ORDER BY sequence_number LIMIT %(max_count)s)
       UNION ALL
       (SELECT * FROM vitrine_message AS m
         WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_DEFERRED
           AND m.sequence_number >= %(from_number)s ORDER BY sequence_number LIMIT %(max_count)s)
       UNION ALL
       (SELECT * FROM vitrine_message AS m
         WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_SCHEDULED
           AND m.sequence_number >= %(from_number)s ORDER BY sequence_number LIMIT %(max_count)s)) AS found
 CROSS JOIN LATERAL (SELECT found.state = @STATE_SCHEDULED AND found.scheduled_enqueue_at <= e.now AS now) AS due
 ORDER BY found.sequence_number LIMIT %(max_count)s;

-- name: ready_entities
-- The existing ones of these entities. is_ready: whether it has messages for a receiver, or due scheduled ones, or, if receives
-- pass locked messages, may have some among these.
SELECT e.id AS entity_id, e.status IN ('Active', 'SendDisabled') AND e.forward_to IS NULL
       AND (EXISTS (SELECT FROM vitrine_message AS m
                     WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                       AND m.sequence_number >= greatest(h.head, h.locked_below)
                       AND (m.locked_until IS NULL OR m.locked_until <= e.now))
            OR EXISTS (SELECT FROM vitrine_message AS m
                        WHERE m.entity_id = e.id AND m.state = @STATE_SCHEDULED AND m.scheduled_enqueue_at <= e.now)
            OR h.locked_below > h.head
               AND (EXISTS (SELECT FROM vitrine_returned AS r
                             WHERE r.entity_id = e.id AND r.subqueue = @SUBQUEUE_MAIN
                               AND r.sequence_number >= h.head AND r.sequence_number < h.locked_below)
                    OR EXISTS (SELECT FROM vitrine_lock_deadline AS d WHERE d.entity_id = e.id AND d.until <= e.now))) AS is_ready
  FROM vitrine_entity_now AS e JOIN vitrine_queue_head AS h ON h.entity_id = e.id AND h.subqueue = @SUBQUEUE_MAIN
 WHERE e.id = ANY (%(entity_ids)b::bigint[]);
