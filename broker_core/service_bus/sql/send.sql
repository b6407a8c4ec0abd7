-- Sending to one entity.

-- fragment: sent
-- Store a batch with consecutive numbers, or nothing. The counter stays locked until the commit, so numbers are committed in
-- order and without gaps (SB-004, SB-924).
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + cardinality(%(bodies)b::bytea[]), bytes_sent = c.bytes_sent + %(bytes)s
      FROM entity AS e
     WHERE c.entity_id = e.id AND e.status IN ('Active', 'ReceiveDisabled')
       AND %(largest)s <= e.max_message_size_in_kilobytes * 1024
       -- The bytes removed before the last roll-up are nearly always enough; the later ones are read only if the entity is nearly
       -- full (SB-012).
       AND CASE WHEN c.bytes_sent + %(bytes)s <= e.max_size_in_megabytes * 1048576::bigint
                     - (SELECT coalesce(sum(bytes), 0) FROM vitrine_count_base WHERE entity_id = %(entity_id)s AND until IS NULL)
                THEN true
                ELSE c.bytes_sent + %(bytes)s <= e.max_size_in_megabytes * 1048576::bigint
                     - (SELECT coalesce(sum(bytes), 0) FROM vitrine_count_base WHERE entity_id = %(entity_id)s AND until IS NULL)
                     - (SELECT coalesce(sum(bytes), 0) FROM vitrine_count_delta WHERE entity_id = %(entity_id)s) END
 -- A topic stores only scheduled messages here; those that have come due in the meantime wait to be published (SB-051).
 RETURNING c.next_number - cardinality(%(bodies)b::bytea[]) AS first,
           CASE WHEN e.kind = 'topic' THEN '-infinity' ELSE e.now END AS due_before, e.now, e.default_message_time_to_live,
           e.history_level),
stored AS (
    INSERT INTO vitrine_message (entity_id, sequence_number, state, size, body_kind, enqueued_at, expires_at, time_to_live,
                                 scheduled_enqueue_at, message_id, session_id, properties, application_properties, encoded, body)
    SELECT %(entity_id)s, n.first + t.i - 1, CASE WHEN t.scheduled_at > n.due_before THEN @STATE_SCHEDULED ELSE @STATE_ACTIVE END,
           t.size, coalesce(t.body_kind, @BODY_DATA), n.now,
           -- Only a time-to-live of its own is stored; that of a scheduled message starts when it is due (SB-024).
           CASE WHEN (t.scheduled_at > n.due_before) IS NOT TRUE AND t.time_to_live IS NOT NULL
                THEN n.now + least(t.time_to_live, n.default_message_time_to_live) END,
           CASE WHEN t.time_to_live IS NOT NULL THEN least(t.time_to_live, n.default_message_time_to_live) END,
           t.scheduled_at, t.message_id, t.session_id, t.properties::jsonb, t.application_properties::jsonb, t.encoded,
           t.body
      FROM numbers AS n,
           unnest(%(bodies)b::bytea[], %(sizes)b::int4[], %(body_kinds)b::int2[],
                  %(message_ids)b::text[], %(session_ids)b::text[], %(times_to_live)s::interval[],
                  %(scheduled_at)s::timestamptz[], %(properties)b::text[], %(application_properties)b::text[],
                  %(encoded)b::bytea[]) WITH ORDINALITY
           AS t(body, size, body_kind, message_id, session_id, time_to_live, scheduled_at, properties, application_properties,
                encoded, i)
 RETURNING entity_id, subqueue, sequence_number, state, size, enqueued_at, time_to_live, scheduled_enqueue_at,
           message_id, session_id, properties, application_properties),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, size, enqueued_at, time_to_live,
                                       message_id, session_id, properties, application_properties, details)
    SELECT enqueued_at, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s,
           CASE state WHEN @STATE_SCHEDULED THEN @EVENT_SCHEDULED ELSE @EVENT_SENT END, sequence_number, size,
           enqueued_at, time_to_live, message_id, session_id, properties,
           CASE WHEN pg_column_size(application_properties) <= 4096 THEN application_properties END,
           CASE state WHEN @STATE_SCHEDULED THEN jsonb_build_object('scheduled_enqueue_at', scheduled_enqueue_at) END
      FROM stored WHERE (SELECT history_level FROM numbers) > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, state, count(*), CASE state WHEN @STATE_SCHEDULED THEN @OP_SCHEDULED ELSE @OP_SENT END
      FROM stored GROUP BY state),
-- include: touched_by_send

-- fragment: touched_by_send
-- Record activity for auto-delete (SB-190), at most every 20 s and without waiting for a lock.
touched AS (
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity)
     WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM vitrine_entity_activity
            WHERE entity_id = %(entity_id)s AND last_activity_at < (SELECT now FROM entity) - interval '20 s'
              FOR UPDATE SKIP LOCKED)))

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
-- Store a batch in a queue. No row: it does not exist, does not accept sends or messages of this size, or is full; entity_status
-- tells which.
WITH
-- include: entity
,
-- include: sent
SELECT n.first, n.now, (SELECT forward_to IS NOT NULL FROM entity) AS forwards,
       -- include: waiting
  FROM numbers AS n;

-- name: send_to_sessions
-- As send, to a queue that requires sessions.
WITH
-- include: entity
,
-- include: sent
,
-- include: sessions_of_stored
SELECT n.first, n.now, (SELECT forward_to IS NOT NULL FROM entity) AS forwards,
       -- include: waiting
  FROM numbers AS n;
