-- Sending to one entity.

-- fragment: sent
-- Store a batch with consecutive numbers, or nothing. The counter stays locked until the commit, so numbers are committed in
-- order and without gaps (SB-004, SB-924).
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + cardinality(%(bodies)b::bytea[]), bytes_sent = c.bytes_sent + %(bytes)s
      FROM (SELECT now, default_message_time_to_live, history_level, forward_to IS NOT NULL AS forwards,
                   -- A topic stores only scheduled messages here; those that have come due in the meantime wait to be published
                   -- (SB-051).
                   CASE WHEN kind = 'topic' THEN '-infinity' ELSE now END AS due_before,
                   max_size_in_megabytes * 1048576::bigint
                   - (SELECT coalesce(sum(bytes), 0)::bigint FROM vitrine_count_base
                       WHERE entity_id = %(entity_id)s AND until IS NULL) AS bytes_allowed
              FROM vitrine_entity_now
             WHERE id = %(entity_id)s AND status IN ('Active', 'ReceiveDisabled')
               AND %(largest)s <= max_message_size_in_kilobytes * 1024 OFFSET 0) AS e
     WHERE c.entity_id = %(entity_id)s
       -- The bytes removed before the last roll-up are nearly always enough; the later ones are read only if the entity is nearly
       -- full (SB-012).
       AND CASE WHEN c.bytes_sent + %(bytes)s <= e.bytes_allowed THEN true
                ELSE c.bytes_sent + %(bytes)s <= e.bytes_allowed
                     - (SELECT coalesce(sum(bytes), 0) FROM vitrine_count_delta WHERE entity_id = %(entity_id)s) END
 RETURNING c.next_number - cardinality(%(bodies)b::bytea[]) AS first, e.now, e.due_before, e.default_message_time_to_live,
           e.history_level, e.forwards),
stored AS (
    INSERT INTO vitrine_message (entity_id, sequence_number, state, size, body_kind, enqueued_at, expires_at, time_to_live,
                                 scheduled_enqueue_at, message_id, session_id, properties, application_properties, encoded, body)
    SELECT %(entity_id)s, n.first + t.i, CASE WHEN t.scheduled_at > n.due_before THEN @STATE_SCHEDULED ELSE @STATE_ACTIVE END,
           t.size, coalesce(t.body_kind, @BODY_DATA), n.now,
           -- Only a time-to-live of its own is stored; that of a scheduled message starts when it is due (SB-024).
           CASE WHEN (t.scheduled_at > n.due_before) IS NOT TRUE AND t.time_to_live IS NOT NULL
                THEN n.now + least(t.time_to_live, n.default_message_time_to_live) END,
           CASE WHEN t.time_to_live IS NOT NULL THEN least(t.time_to_live, n.default_message_time_to_live) END,
           t.scheduled_at, t.message_id, t.session_id, t.properties::jsonb, t.application_properties::jsonb, t.encoded,
           t.body
      FROM numbers AS n, (
           -- In a list of columns unnest copies no value, unlike in FROM. An array that is NULL gives NULLs.
           SELECT generate_series(0, cardinality(%(bodies)b::bytea[]) - 1) AS i, unnest(%(bodies)b::bytea[]) AS body,
                  unnest(%(sizes)b::int4[]) AS size, unnest(%(body_kinds)b::int2[]) AS body_kind,
                  unnest(%(message_ids)b::text[]) AS message_id, unnest(%(session_ids)b::text[]) AS session_id,
                  unnest(%(times_to_live)s::interval[]) AS time_to_live,
                  unnest(%(scheduled_at)s::timestamptz[]) AS scheduled_at, unnest(%(properties)b::text[]) AS properties,
                  unnest(%(application_properties)b::text[]) AS application_properties,
                  unnest(%(encoded)b::bytea[]) AS encoded) AS t
 RETURNING entity_id, subqueue, sequence_number, state, size, enqueued_at, time_to_live, scheduled_enqueue_at,
           message_id, session_id, properties, application_properties),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, size, enqueued_at, time_to_live,
                                       message_id, session_id, properties, application_properties, details)
    SELECT s.enqueued_at, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s,
           CASE s.state WHEN @STATE_SCHEDULED THEN @EVENT_SCHEDULED ELSE @EVENT_SENT END, s.sequence_number, s.size,
           s.enqueued_at, s.time_to_live, s.message_id, s.session_id, s.properties,
           CASE WHEN pg_column_size(s.application_properties) <= 4096 THEN s.application_properties END,
           CASE s.state WHEN @STATE_SCHEDULED THEN jsonb_build_object('scheduled_enqueue_at', s.scheduled_enqueue_at) END
      FROM numbers AS n CROSS JOIN stored AS s WHERE n.history_level > @HISTORY_OFF)

-- fragment: sent_counts
-- Of a batch without scheduled messages. To group `stored` would cost a send of one message a twelfth more.
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, @STATE_ACTIVE, cardinality(%(bodies)b::bytea[]), @OP_SENT FROM numbers)

-- fragment: sent_counts_by_state
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, state, count(*), CASE state WHEN @STATE_SCHEDULED THEN @OP_SCHEDULED ELSE @OP_SENT END
      FROM stored GROUP BY state)

-- fragment: sent_answer
-- waiting: whether receivers wait for messages, so that the caller wakes them after the commit (docs/design.md D8). idle: the
-- send is to be recorded as activity (touch_by_send).
SELECT n.first, n.now, n.forwards, coalesce(a.waiting_until > clock_timestamp(), false) AS waiting,
       coalesce(a.last_activity_at < n.now - interval '20 s' OR a.last_use IS NOT DISTINCT FROM @USE_CREATE, false) AS idle
  FROM numbers AS n LEFT JOIN vitrine_entity_activity AS a ON a.entity_id = %(entity_id)s

-- fragment: sessions_of_stored
-- Create the sessions of the active messages in `stored` (SB-111). An existing row is locked even if nothing in it changes, so
-- that sends and the closing of the session, which counts its messages, are serialized. Rows are locked in the order of ids.
sessions AS (
    INSERT INTO vitrine_session AS s (entity_id, session_id, first_number)
    SELECT o.entity_id, o.session_id, min(o.sequence_number)
      FROM stored AS o JOIN vitrine_entity AS e ON e.id = o.entity_id AND e.requires_session
     WHERE o.state = @STATE_ACTIVE AND o.subqueue = @SUBQUEUE_MAIN AND o.session_id IS NOT NULL
     GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (entity_id, session_id) DO UPDATE SET first_number = excluded.first_number WHERE s.first_number IS NULL)

-- name: send
-- Store a batch without scheduled messages in a queue. No row: it does not exist, does not accept sends or messages of this size,
-- or is full; entity_status tells which.
WITH
-- include: sent
,
-- include: sent_counts
-- include: sent_answer
;

-- name: send_scheduled
-- As send; messages may be scheduled.
WITH
-- include: sent
,
-- include: sent_counts_by_state
-- include: sent_answer
;

-- name: send_to_sessions
-- As send_scheduled, to a queue that requires sessions.
WITH
-- include: sent
,
-- include: sent_counts_by_state
,
-- include: sessions_of_stored
-- include: sent_answer
;
