-- Messages that get a new number or are deleted without being received: activated, cancelled, resubmitted, purged.

-- name: activate
-- Move due scheduled messages to the end of the queue, with new numbers, as if sent at the instant they were due (SB-047,
-- SB-024). Their time-to-live starts at that instant, so it does not matter when this statement runs.
WITH
-- include: entity
,
due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.sequence_number, row_number() OVER (ORDER BY m.scheduled_enqueue_at, m.sequence_number) - 1 AS place
      FROM (SELECT ctid, sequence_number, scheduled_enqueue_at FROM vitrine_message
             WHERE entity_id = %(entity_id)s AND state = @STATE_SCHEDULED AND scheduled_enqueue_at <= (SELECT now FROM entity)
             ORDER BY scheduled_enqueue_at LIMIT %(max_count)s FOR UPDATE SKIP LOCKED) AS m),
numbers AS (
    UPDATE vitrine_entity_counter AS c SET next_number = c.next_number + (SELECT count(*) FROM due)
     WHERE c.entity_id = %(entity_id)s AND EXISTS (SELECT FROM due)
 RETURNING c.next_number - (SELECT count(*) FROM due) AS first),
active AS (
    UPDATE vitrine_message AS m
       SET state = @STATE_ACTIVE, sequence_number = n.first + d.place, enqueued_at = m.scheduled_enqueue_at,
           expires_at = m.scheduled_enqueue_at + m.time_to_live
      FROM due AS d, numbers AS n WHERE m.ctid = d.tid
 RETURNING d.sequence_number AS old_number, m.*),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, enqueued_at, message_id, details,
                                       size, time_to_live, session_id, properties, application_properties)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, 'process:broker', x.*
      FROM entity AS e, (
           SELECT @EVENT_ACTIVATED::smallint, old_number, enqueued_at, message_id, jsonb_build_object('to', sequence_number),
                  NULL::integer, NULL::interval, NULL, NULL::jsonb, NULL::jsonb FROM active
           UNION ALL
           SELECT @EVENT_SENT::smallint, sequence_number, enqueued_at, message_id, jsonb_build_object('from', old_number), size,
                  time_to_live, session_id, properties,
                  CASE WHEN pg_column_size(application_properties) <= 4096 THEN application_properties END
             FROM active) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_SCHEDULED, -count(*), @OP_ACTIVATED FROM active HAVING count(*) > 0
    UNION ALL
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, @STATE_ACTIVE, count(*), NULL FROM active HAVING count(*) > 0),
stored AS (SELECT entity_id, subqueue, state, session_id, sequence_number FROM active),
-- include: sessions_of_stored
,
touched AS (  -- idleness begins when the last scheduled message has appeared (SB-918)
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_ACTIVATE
     WHERE
           -- include: unless_touched
       AND EXISTS (SELECT FROM due))
SELECT count(*) AS done,
       -- include: waiting
  FROM active
HAVING (SELECT CASE WHEN count(active.*) = (SELECT count(*) FROM due) THEN true ELSE vitrine_try_again() END);

-- name: cancel_scheduled
-- Delete scheduled messages by number: all of them, or none (SB-048, SB-049). A due message counts as active, moved or not.
WITH
-- include: entity
,
wanted AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid, m.sequence_number, m.message_id, m.size, m.enqueued_at FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_SCHEDULED
              AND m.sequence_number = t.number
              AND m.scheduled_enqueue_at > (SELECT now FROM entity) FOR UPDATE) AS found),
cancelled AS (
    DELETE FROM vitrine_message AS m
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM wanted))
       AND (SELECT count(*) FROM wanted) = (SELECT count(DISTINCT number) FROM unnest(%(numbers)b::bigint[]) AS t(number))
 RETURNING m.sequence_number, m.message_id, m.size, m.enqueued_at
           -- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body
),
-- kept from: cancelled AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, enqueued_at, message_id)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_CANCELLED, c.sequence_number, c.enqueued_at, c.message_id
      FROM cancelled AS c, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_SCHEDULED, -count(*), -sum(size), @OP_CANCELLED FROM cancelled
    HAVING count(*) > 0),
touched AS (  -- idleness begins when the last scheduled message was cancelled (SB-918)
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_CANCEL
     WHERE
           -- include: unless_touched
       AND EXISTS (SELECT FROM cancelled))
SELECT sequence_number, (SELECT count(*) FROM cancelled) > 0 AS done FROM wanted
 WHERE (SELECT CASE WHEN count(*) IN (0, (SELECT count(*) FROM wanted)) THEN true ELSE vitrine_try_again() END FROM cancelled);

-- name: unlocked_sessions
-- The session ids of existing messages, by number, for sessions that are not locked.
SELECT m.sequence_number, m.session_id
  FROM vitrine_message AS m JOIN vitrine_entity_now AS e ON e.id = m.entity_id
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.sequence_number = ANY (%(numbers)b::bigint[])
   AND m.session_id IS NOT NULL
   AND NOT EXISTS (SELECT FROM vitrine_session AS s WHERE s.entity_id = m.entity_id AND s.session_id = m.session_id
                                                      AND s.locked_until > e.now);

-- name: resubmit
-- Move dead letters back to the end of their queue in one statement, so that none is lost or duplicated (SB-105). Each becomes a
-- new message that records its origin. Locked ones are left alone.
WITH
-- include: entity
,
chosen AS MATERIALIZED (
    SELECT found.*, row_number() OVER (ORDER BY found.sequence_number) - 1 AS place
      FROM (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid, m.sequence_number,
                  CASE WHEN %(body)b::bytea IS NULL THEN m.size
                       ELSE m.size - octet_length(m.body) + octet_length(%(body)b::bytea) END AS size
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_DEAD_LETTER
              AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}') AND m.sequence_number = t.number
              AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
              AND (SELECT status FROM entity) IN ('Active', 'ReceiveDisabled')
              AND (m.session_id IS NOT NULL OR NOT (SELECT requires_session FROM entity)) -- could not be received (SB-008)
              FOR UPDATE) AS found),
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + (SELECT count(*) FROM chosen),
           bytes_sent = c.bytes_sent + coalesce((SELECT sum(size) FROM chosen), 0)
     WHERE c.entity_id = %(entity_id)s AND EXISTS (SELECT FROM chosen)
 RETURNING c.next_number - (SELECT count(*) FROM chosen) AS first),
taken AS (DELETE FROM vitrine_message AS m USING chosen AS c WHERE m.ctid = c.tid RETURNING c.place, c.size AS new_size, m.*),
stored AS (
    INSERT INTO vitrine_message (entity_id, sequence_number, size, body_kind, enqueued_at, expires_at,
                                 time_to_live, message_id, session_id, properties, application_properties,
                                 enqueued_sequence_number, resubmitted_from, encoded, body)
    SELECT %(entity_id)s, n.first + t.place, t.new_size,
           CASE WHEN %(body)b::bytea IS NULL THEN t.body_kind ELSE @BODY_DATA END, e.now,
           CASE WHEN t.time_to_live IS NOT NULL THEN e.now + least(t.time_to_live, e.default_message_time_to_live) END,
           CASE WHEN t.time_to_live IS NOT NULL THEN least(t.time_to_live, e.default_message_time_to_live) END,
           t.message_id, t.session_id, t.properties,
           coalesce(t.application_properties || %(properties)s::jsonb, %(properties)s::jsonb, t.application_properties),
           t.enqueued_sequence_number,
           jsonb_build_object('sequence_number', t.sequence_number, 'reason', t.dead_letter_reason, 'at', e.now,
                              'times', coalesce((t.resubmitted_from->>'times')::int, 0) + 1),
           t.encoded, coalesce(%(body)b::bytea, t.body)
      FROM taken AS t, numbers AS n, entity AS e
 RETURNING *),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, actor, subqueue, kind, sequence_number, message_id,
                                       enqueued_at, first_received_at, last_received_at, details, size, time_to_live, session_id,
                                       properties, application_properties)
    SELECT e.now, %(entity_id)s, %(actor)s, x.*
      FROM entity AS e, (
           SELECT @SUBQUEUE_DEAD_LETTER::smallint, @EVENT_RESUBMITTED::smallint, t.sequence_number, t.message_id, t.enqueued_at,
                  t.first_received_at, t.last_received_at, jsonb_build_object('to', n.first + t.place), NULL::integer,
                  NULL::interval, NULL, NULL::jsonb, NULL::jsonb
             FROM taken AS t, numbers AS n
           UNION ALL
           SELECT @SUBQUEUE_MAIN::smallint, @EVENT_SENT::smallint, sequence_number, message_id, enqueued_at, NULL, NULL,
                  jsonb_build_object('resubmitted_from', resubmitted_from), size, time_to_live, session_id, properties,
                  CASE WHEN pg_column_size(application_properties) <= 4096 THEN application_properties END
             FROM stored) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_DEAD_LETTER, state, -count(*), -sum(size), @OP_RESUBMITTED FROM taken GROUP BY state
    UNION ALL
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, @STATE_ACTIVE, count(*), 0, @OP_SENT FROM stored HAVING count(*) > 0),
touched AS (
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_RESUBMIT
     WHERE
           -- include: unless_touched
       AND EXISTS (SELECT FROM chosen)),
-- include: sessions_of_stored
SELECT t.sequence_number AS old_number, n.first + t.place AS new_number, (SELECT forward_to IS NOT NULL FROM entity) AS forwards,
       -- include: waiting
  FROM taken AS t, numbers AS n
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM taken) = (SELECT count(*) FROM chosen) THEN true ELSE vitrine_try_again() END)
 ORDER BY t.sequence_number;

-- name: largest_beside_body
-- What the largest of these dead letters has beside its body, in bytes.
SELECT coalesce(max(size - octet_length(body)), 0) AS size FROM vitrine_message
 WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_DEAD_LETTER AND state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}')
   AND sequence_number = ANY (%(numbers)b::bigint[]);

-- name: purge
-- Delete up to max_count messages of one list, lowest number first, enqueued before an instant if one is given; locked ones stay
-- (SB-150, SB-151). To delete scheduled ones is activity, as cancelling them is (SB-918).
WITH
-- include: entity
,
chosen AS MATERIALIZED (
    SELECT m.ctid AS tid FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = %(state)s
       AND m.sequence_number >= CASE WHEN %(state)s = @STATE_ACTIVE
               THEN (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s) ELSE 0 END
       AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
       AND (%(enqueued_before)s::timestamptz IS NULL OR m.enqueued_at < %(enqueued_before)s)
       AND (%(numbers)b::bigint[] IS NULL OR m.sequence_number = ANY (%(numbers)b::bigint[]))
       AND (%(session_id)s::text IS NULL OR m.session_id = %(session_id)s)
     ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED),
purged AS (DELETE FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM chosen)) RETURNING m.*),
-- kept from: purged AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id)
    SELECT e.now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_PURGED, p.sequence_number, p.delivery_count,
           p.enqueued_at, p.first_received_at, p.last_received_at, p.message_id
      FROM purged AS p, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, %(state)s, -count(*), -sum(size), @OP_PURGED FROM purged HAVING count(*) > 0),
touched AS (
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_CANCEL
     WHERE
           -- include: unless_touched
       AND %(state)s = @STATE_SCHEDULED AND EXISTS (SELECT FROM chosen))
SELECT count(*) AS done FROM purged;

-- name: lock_to_move
-- Unlocked messages of a list, by number, to be moved to another entity of the namespace.
WITH
-- include: entity
SELECT m.*, e.now, e.path AS path, e.default_message_time_to_live, e.namespace_id AS namespace_id, e.namespace_name AS namespace
  FROM vitrine_entity_now AS e, vitrine_message AS m
 WHERE e.id = %(entity_id)s AND m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint
   AND m.state = ANY (%(states)s::smallint[])
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
   AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
 ORDER BY m.sequence_number FOR UPDATE OF m;

-- name: remove_moved
-- Remove messages that an operator moved, and that this transaction stored at their destination. To move scheduled ones away is
-- activity, as cancelling them is (SB-918).
WITH
-- include: entity
,
removed AS (
    DELETE FROM vitrine_message AS m
     USING unnest(%(numbers)b::int8[], %(new_numbers)b::int8[]) AS t(number, new_number)
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint AND m.state = ANY (%(states)s::smallint[])
       AND m.sequence_number = t.number
 RETURNING m.*, t.new_number),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id, session_id, reason, details)
    SELECT e.now, e.id, g.subqueue, %(actor)s, @EVENT_MOVED, g.sequence_number, g.delivery_count,
           g.enqueued_at, g.first_received_at, g.last_received_at, g.message_id, g.session_id, 'moved',
           jsonb_build_object('to', jsonb_build_array(jsonb_build_object(
               'entity', %(to_id)s::bigint, 'path', %(to_path)s::text, 'sequence_number', g.new_number)))
      FROM removed AS g, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, state, -count(*), -sum(size), @OP_MOVED FROM removed GROUP BY state),
-- include: touched_by_cancel
SELECT count(*) AS done FROM removed;
