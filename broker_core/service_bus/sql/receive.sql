-- Receiving (with a lock, with deletion, by number) and peeking.

-- fragment: available
-- A message that may be received now: its lock, if any, has ended. Outside the main list neither expiry nor the delivery count
-- matters (SB-025, SB-035, SB-089, SB-091).
m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
AND m.sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s)
AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
AND (%(subqueue)s <> @SUBQUEUE_MAIN
     OR
        -- include: neither_expired_nor_spent
    )
AND (SELECT status FROM entity) IN ('Active', 'SendDisabled')
-- Forwarded messages cannot be received here (SB-104, SB-171).
AND NOT (%(subqueue)s = @SUBQUEUE_MAIN AND (SELECT forward_to FROM entity) IS NOT NULL)
AND NOT (%(subqueue)s = @SUBQUEUE_DEAD_LETTER AND (SELECT forward_dead_lettered_messages_to FROM entity) IS NOT NULL)

-- fragment: neither_expired_nor_spent
(coalesce(m.expires_at, m.enqueued_at + (SELECT default_message_time_to_live FROM entity))
 > (SELECT now FROM entity)) IS NOT FALSE
AND m.delivery_count + (m.lock_token IS NOT NULL)::int < (SELECT max_delivery_count FROM entity)

-- fragment: available_messages
available AS MATERIALIZED (
    SELECT m.ctid AS tid, m.sequence_number, m.message_id, m.lock_token AS old_token, m.locked_until AS old_until,
           m.locked_by AS old_holder,
           m.delivery_count + (m.lock_token IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN)::int AS failures
      FROM vitrine_message AS m
     WHERE
           -- include: available
     ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED)

-- fragment: all_available_changed_or_retry
(SELECT CASE WHEN (SELECT count(*) FROM changed) = (SELECT count(*) FROM available) THEN true ELSE vitrine_try_again() END)

-- fragment: lock_ends
lock_ends AS MATERIALIZED (SELECT now + lock_duration AS at FROM entity)

-- fragment: received_columns
-- The columns that a receive returns (store.rows).
m.subqueue, m.state, m.sequence_number, m.delivery_count, m.enqueued_at, m.expires_at, m.time_to_live,
m.scheduled_enqueue_at, m.last_received_at, m.locked_until, m.lock_token, m.message_id, m.session_id, m.body, m.body_kind,
m.properties, m.application_properties, m.dead_letter_reason, m.dead_letter_description, m.dead_letter_source,
m.enqueued_sequence_number, m.encoded

-- fragment: received
-- Lock `available` until `lock_ends`. An earlier lock that has ended was a failed delivery (SB-090); its event is written here.
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , locked_by = %(holder)s,
           locked_until = (SELECT at FROM lock_ends),
           delivery_count = m.delivery_count + (m.lock_token IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN)::int,
           first_received_at = coalesce(m.first_received_at, (SELECT now FROM entity)),
           last_received_at = (SELECT now FROM entity)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM available))  -- forces a TID scan; the rows are locked
 RETURNING
           -- include: received_columns
),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, locked_until, actor)
    SELECT e.now, %(entity_id)s, %(subqueue)s, x.*
      FROM entity AS e, (
           SELECT sequence_number, message_id, @EVENT_RECEIVED, delivery_count, locked_until, %(holder)s FROM changed
           UNION ALL
           SELECT sequence_number, message_id, @EVENT_LOCK_LOST, failures, old_until, old_holder FROM available
            WHERE old_token IS NOT NULL) AS x
     WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, @LEDGER_LOCKED, locked_until, count(*), @OP_RECEIVED FROM changed
     GROUP BY locked_until),
deadline AS (
    INSERT INTO vitrine_lock_deadline (entity_id, subqueue, until, first_number, last_number)
    SELECT %(entity_id)s, %(subqueue)s, locked_until, min(sequence_number), max(sequence_number) FROM changed
     GROUP BY locked_until)

-- fragment: received_and_deleted
-- Delete `available`.
changed AS (DELETE FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM available))
 RETURNING m.size, m.first_received_at,
           -- include: received_columns
),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, locked_until, actor, enqueued_at, first_received_at, last_received_at)
    SELECT e.now, %(entity_id)s, %(subqueue)s, x.*
      FROM entity AS e, (
           SELECT sequence_number, message_id, @EVENT_RECEIVED_AND_DELETED, delivery_count, NULL::timestamptz, %(holder)s,
                  enqueued_at, coalesce(first_received_at, (SELECT now FROM entity)), (SELECT now FROM entity) FROM changed
           UNION ALL
           SELECT sequence_number, message_id, @EVENT_LOCK_LOST, failures, old_until, old_holder, NULL, NULL, NULL
             FROM available WHERE old_token IS NOT NULL AND (SELECT history_level FROM entity) = @HISTORY_FULL) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, @STATE_ACTIVE, -count(*), -sum(size), @OP_RECEIVED_AND_DELETED FROM changed
    HAVING count(*) > 0)

-- fragment: received_deferred
-- Lock the messages of `failed` that are kept, if these are all that were requested.
locked AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , locked_by = %(holder)s,
           locked_until = (SELECT at FROM lock_ends), delivery_count = f.failures,
           first_received_at = coalesce(m.first_received_at, (SELECT now FROM entity)),
           last_received_at = (SELECT now FROM entity)
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
           SELECT %(holder)s, @EVENT_RECEIVED::smallint, sequence_number, delivery_count, locked_until, NULL::timestamptz,
                  NULL::timestamptz, NULL::timestamptz, message_id, NULL, NULL::jsonb FROM locked
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
-- Lock up to max_count available messages, lowest number first (SB-061, SB-062). Messages that another receiver is locking are
-- skipped.
WITH
-- include: entity
,
-- include: salt
,
-- include: available_messages
,
-- include: lock_ends
,
-- include: received
,
-- include: touched_by_receive
SELECT changed.*, e.default_message_time_to_live,
       (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s) AS head
  FROM changed CROSS JOIN entity AS e
 WHERE
       -- include: all_available_changed_or_retry
 ORDER BY changed.sequence_number;

-- name: receive_and_delete
-- Remove up to max_count available messages, lowest number first, and return them (SB-060). Does not count as a delivery
-- (SB-093).
WITH
-- include: entity
,
-- include: available_messages
,
-- include: received_and_deleted
,
-- include: touched_by_receive
SELECT changed.*, e.default_message_time_to_live,
       (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s) AS head
  FROM changed CROSS JOIN entity AS e
 WHERE
       -- include: all_available_changed_or_retry
 ORDER BY changed.sequence_number;

-- name: receive_deferred
-- Lock deferred messages by number: all of them, or none (SB-084, SB-085, SB-912). One that has expired, or has reached the
-- maximum delivery count, is dead-lettered or dropped and reported as not found (SB-036).
WITH
-- include: entity
,
-- include: salt
,
owned AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_DEFERRED
              AND m.sequence_number = t.number
              AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
              AND (SELECT status FROM entity) IN ('Active', 'SendDisabled')
              FOR UPDATE) AS found),
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
found.enqueued_sequence_number, found.encoded, e.default_message_time_to_live

-- name: peek
-- Up to max_count messages in any state, from a number on, in number order, unchanged (SB-140, SB-141). A peek counts as activity
-- (SB-147).
WITH
-- include: entity
,
-- include: touched_by_send
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
-- The existing ones of these entities. is_ready: whether it has messages for a receiver, or due scheduled ones.
SELECT e.id AS entity_id, e.status IN ('Active', 'SendDisabled')
       AND (EXISTS (SELECT FROM vitrine_message AS m
                     WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                       AND m.sequence_number >= (SELECT head FROM vitrine_queue_head
                                                  WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN)
                       AND (m.locked_until IS NULL OR m.locked_until <= e.now))
            OR EXISTS (SELECT FROM vitrine_message AS m
                        WHERE m.entity_id = e.id AND m.state = @STATE_SCHEDULED AND m.scheduled_enqueue_at <= e.now)) AS is_ready
  FROM vitrine_entity_now AS e
 WHERE e.id = ANY (%(entity_ids)b::bigint[]);
