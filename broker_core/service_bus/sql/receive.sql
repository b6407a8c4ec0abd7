-- Receiving and looking: with a lock, for good, by number, waiting; and what a receive that comes up short asks.

-- fragment: lock_ends
lock_ends AS MATERIALIZED (SELECT now + lock_duration AS at FROM entity)

-- fragment: received_columns
-- What is handed out of a message (store.rows).
m.subqueue, m.state, m.sequence_number, m.delivery_count, m.enqueued_at, m.expires_at, m.time_to_live,
m.scheduled_enqueue_at, m.last_received_at, m.locked_until, m.lock_token, m.message_id, m.session_id, m.body, m.body_kind,
m.properties, m.application_properties, m.dead_letter_reason, m.dead_letter_description, m.dead_letter_source,
m.enqueued_sequence_number

-- fragment: received
-- Locks what is `available` until `lock_ends`. A lock that ended unnoticed was a failed delivery (SB-090) and is told as an event
-- here.
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , locked_by = %(holder)s,
           locked_until = (SELECT at FROM lock_ends),
           delivery_count = m.delivery_count + (m.lock_token IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN)::int,
           first_received_at = coalesce(m.first_received_at, (SELECT now FROM entity)),
           last_received_at = (SELECT now FROM entity)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM available))      -- a TID scan whatever the statistics say; the rows are ours
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

-- fragment: received_for_good
-- Removes what is `available`.
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
-- Locks what of `failed` is to be kept, if that is all that was asked for.
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
                  -- include: buried_events
           ) AS b) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, @LEDGER_DEFERRED_LOCKED, locked_until, count(*), 0, @OP_RECEIVED FROM locked
     GROUP BY locked_until
    UNION ALL
    -- include: buried_counts
),
deadline AS (
    INSERT INTO vitrine_lock_deadline (entity_id, subqueue, until, first_number, last_number)
    SELECT %(entity_id)s, %(subqueue)s, locked_until, min(sequence_number), max(sequence_number) FROM locked
     GROUP BY locked_until)

-- fragment: none_missed_of_deferred
-- include: none_missed_of_failed
AND (SELECT CASE WHEN (SELECT count(*) FROM locked) IN (0, count(*)) THEN true ELSE vitrine_try_again() END
       FROM failed WHERE fate = 'keep')

-- name: receive
-- Lock up to max_count available messages, lowest number first (SB-061, SB-062). Messages another receiver is locking at this
-- moment are skipped, not waited for.
WITH
-- include: entity
,
-- include: salt
,
-- include: available_now
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
       -- include: none_missed_of_available
 ORDER BY changed.sequence_number;

-- name: receive_and_delete
-- Remove up to max_count available messages, lowest number first, and return them (SB-060). Does not count as a delivery
-- (SB-093).
WITH
-- include: entity
,
-- include: available_now
,
-- include: received_for_good
,
-- include: touched_by_receive
SELECT changed.*, e.default_message_time_to_live,
       (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s) AS head
  FROM changed CROSS JOIN entity AS e
 WHERE
       -- include: none_missed_of_available
 ORDER BY changed.sequence_number;

-- name: receive_deferred
-- Lock deferred messages by number: all of them, or none (SB-084, SB-085, SB-912). One that has expired, or that failed as often
-- as allowed, is taken away instead and answered as not found (SB-036).
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
-- include: buried
,
-- include: lock_ends
,
-- include: received_deferred
,
-- include: touched_by_receive
SELECT locked.*, e.default_message_time_to_live FROM locked CROSS JOIN entity AS e
 WHERE
       -- include: none_missed_of_deferred
 ORDER BY locked.sequence_number;

-- fragment: peeked
-- Columns of the peeked messages `found`, as is true at this instant: a lock that has ended was a failed delivery (SB-090), and a
-- message that is due has been active since (SB-024, SB-047), whether or not anything has applied that to the row yet.
found.subqueue, CASE WHEN due.now THEN @STATE_ACTIVE ELSE found.state END AS state, found.sequence_number,
found.delivery_count + coalesce(found.locked_until <= e.now AND found.subqueue = @SUBQUEUE_MAIN, false)::int AS delivery_count,
CASE WHEN due.now THEN found.scheduled_enqueue_at ELSE found.enqueued_at END AS enqueued_at,
CASE WHEN due.now THEN found.scheduled_enqueue_at + found.time_to_live ELSE found.expires_at END AS expires_at,
found.time_to_live, found.scheduled_enqueue_at, found.message_id, found.session_id, found.body, found.body_kind, found.properties,
found.application_properties, found.dead_letter_reason, found.dead_letter_description, found.dead_letter_source,
found.enqueued_sequence_number, e.default_message_time_to_live

-- name: peek
-- Up to max_count messages from a number on, in number order, whatever their state; nothing is changed (SB-140, SB-141). A
-- client's peek is activity (SB-147).
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

-- name: wait_begins
-- Somebody waits for this entity's messages, at least for so long (real time): senders then wake them. Counts as a receive
-- (SB-195).
UPDATE vitrine_entity_activity AS a
   SET waiting_until = greatest(a.waiting_until, clock_timestamp() + %(seconds)s * interval '1 s'),
       last_activity_at = greatest(a.last_activity_at, e.now), last_receive_at = greatest(a.last_receive_at, e.now)
  FROM vitrine_entity_now AS e
 WHERE a.entity_id = e.id AND e.id = %(entity_id)s;

-- name: entity_status
-- Asked after an operation found nothing or little: may the entity be used, and would a tidying step find something to do now? No
-- row: it is gone.
WITH
-- include: entity
SELECT e.now, e.kind, e.topic_id, e.is_system, e.tier, e.status, e.rules_version, e.forward_to,
       e.forward_dead_lettered_messages_to, e.expiry_mode, e.max_size_in_megabytes * 1048576::bigint AS quota,
       e.max_message_size_in_kilobytes * 1024 AS largest,
       EXISTS (SELECT FROM vitrine_message WHERE entity_id = coalesce(e.topic_id, e.id) AND state = @STATE_SCHEDULED
                                             AND scheduled_enqueue_at <= e.now) AS scheduled,
       EXISTS (SELECT FROM vitrine_lock_deadline WHERE entity_id = e.id AND until <= e.now) AS locks,
       -- include: may_have_expired
       AS expired,
       e.requires_session AND e.expires_whole_sessions AS whole_sessions,
       -- Entities whose messages are forwarded to here, and that have some now.
       ARRAY(SELECT s.id FROM vitrine_entity AS s JOIN vitrine_entity AS t ON t.id = e.id
              WHERE s.namespace_id = t.namespace_id AND s.deleted_at IS NULL
                AND (lower(s.forward_to) = t.key OR lower(s.forward_dead_lettered_messages_to) = t.key)
                AND (EXISTS (SELECT FROM vitrine_message WHERE entity_id = coalesce(s.topic_id, s.id) AND state = @STATE_SCHEDULED
                                                           AND scheduled_enqueue_at <= e.now)
                     OR EXISTS (
                        SELECT FROM unnest('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER}'::smallint[]) AS l(subqueue)
                         CROSS JOIN LATERAL (
                               SELECT FROM vitrine_message AS m
                                WHERE m.entity_id = s.id AND m.subqueue = l.subqueue AND m.state = @STATE_ACTIVE
                                  AND m.sequence_number >= (SELECT head FROM vitrine_queue_head
                                                             WHERE entity_id = s.id AND subqueue = l.subqueue)
                                LIMIT 1) AS m
                         WHERE CASE l.subqueue WHEN @SUBQUEUE_MAIN THEN s.forward_to
                                    ELSE s.forward_dead_lettered_messages_to END IS NOT NULL))) AS sources
  FROM entity AS e;

-- name: ready
-- Those of these entities that are there. is_ready: whether there is something for a receiver, or something due.
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
