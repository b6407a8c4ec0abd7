-- Settling and renewing. Tokens whose lock is lost are missing from the result, and change nothing (SB-071, SB-087).

-- fragment: owned
-- The messages that these tokens hold now, locked in number order so that concurrent settlements cannot deadlock. A token whose
-- lock ended, or that was settled, finds nothing (SB-070, SB-071); nor does any while the entity accepts no settlements (SB-232,
-- SB-233).
owned AS MATERIALIZED (
    SELECT found.*
      FROM entity AS e
     CROSS JOIN (SELECT * FROM unnest(%(numbers)b::bigint[], %(tokens)b::uuid[]) AS t(number, token) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}')
              AND m.sequence_number = t.number AND m.lock_token = t.token AND m.locked_until > e.now FOR UPDATE) AS found
     WHERE e.status IN ('Active', 'SendDisabled'))

-- fragment: unlocked_counts
-- The opposite ledger rows of locks that end early.
SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, (@LEDGER_LOCKED + state)::smallint, old_until, -count(*)::int,
       0::bigint, NULL::smallint
  FROM owned GROUP BY state, old_until

-- fragment: settleable
entity AS MATERIALIZED (
    SELECT now, history_level FROM vitrine_entity_now WHERE id = %(entity_id)s AND status IN ('Active', 'SendDisabled'))

-- fragment: completed_columns
m.sequence_number, m.lock_token, m.state, m.size, m.delivery_count, m.locked_until, m.enqueued_at, m.first_received_at,
m.last_received_at, m.message_id, e.now, e.history_level
-- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body

-- fragment: completed_events
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, locked_until,
                                       enqueued_at, first_received_at, last_received_at, message_id)
    SELECT now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_COMPLETED, sequence_number, delivery_count, locked_until,
           enqueued_at, first_received_at, last_received_at, message_id
      FROM changed WHERE history_level > @HISTORY_OFF)

-- fragment: completed_counts
-- c: numbers and bytes of completed messages, by state and end of their locks.
CROSS JOIN LATERAL (VALUES (c.state, NULL, -c.n, -c.bytes, @OP_COMPLETED),
                           (@LEDGER_LOCKED + c.state, c.locked_until, -c.n, 0, NULL)) AS x(state, until, n, bytes, op)

-- name: complete
-- Delete the messages that these tokens hold (SB-080). Unlike the other settlements it needs no row locks in advance: a DELETE
-- judges a row that was changed in the meantime by its new version. The index returns the rows in the order of their numbers, so
-- that concurrent settlements cannot deadlock. IS TRUE makes the server look tokens up in a hash table.
WITH
-- include: settleable
,
changed AS (
    DELETE FROM vitrine_message AS m
     USING entity AS e
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}')
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
       AND (m.lock_token IN (SELECT unnest(%(tokens)b::uuid[]))) IS TRUE AND m.locked_until > e.now
 RETURNING
           -- include: completed_columns
),
-- kept from: changed AS k
-- include: completed_events
,
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, x.*
      FROM (SELECT state, locked_until, count(*) AS n, sum(size) AS bytes FROM changed GROUP BY state, locked_until) AS c
     -- include: completed_counts
)
SELECT sequence_number, lock_token FROM changed;

-- name: complete_one
-- As complete, with a single token: its plan has a fifth less to set up.
WITH
-- include: settleable
,
changed AS (
    DELETE FROM vitrine_message AS m
     USING entity AS e
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}')
       AND m.sequence_number = (%(numbers)b::bigint[])[1] AND m.lock_token = (%(tokens)b::uuid[])[1] AND m.locked_until > e.now
 RETURNING
           -- include: completed_columns
),
-- kept from: changed AS k
-- include: completed_events
,
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, x.*
      FROM (SELECT state, locked_until, 1 AS n, size AS bytes FROM changed) AS c
     -- include: completed_counts
)
SELECT sequence_number, lock_token FROM changed;

-- name: abandon
-- Release these locks as failed deliveries (SB-081, SB-090). Messages that have expired or reached the maximum delivery count
-- leave the queue (SB-027, SB-091); the others are available again at their position (SB-063).
WITH
-- include: entity
,
-- include: owned
,
-- include: failed
,
-- include: apply_failed
,
kept AS (
    UPDATE vitrine_message AS m
       SET lock_token = NULL, locked_until = NULL, locked_by = NULL,
           delivery_count = CASE WHEN m.subqueue = @SUBQUEUE_MAIN THEN f.failures ELSE 0 END,
           application_properties = coalesce(m.application_properties || %(properties)s::jsonb, %(properties)s::jsonb,
                                             m.application_properties)
      FROM failed AS f WHERE m.ctid = f.tid AND f.fate = 'keep'
 RETURNING m.subqueue, m.state, m.sequence_number),
returned AS (
    -- include: returned
      FROM kept AS r, entity AS e
     WHERE
           -- include: returned_to_a_list
),
changed AS (SELECT FROM kept UNION ALL SELECT FROM moved UNION ALL SELECT FROM dropped),
events AS (
    INSERT INTO vitrine_message_event (
        -- include: event_columns
    )
    SELECT e.now, %(entity_id)s, %(subqueue)s, x.*
      FROM entity AS e, (
           SELECT %(actor)s, @EVENT_ABANDONED::smallint, sequence_number, failures, old_until, NULL::timestamptz,
                  NULL::timestamptz, NULL::timestamptz, message_id, NULL,
                  CASE WHEN %(properties)s::jsonb IS NOT NULL THEN jsonb_build_object('properties', %(properties)s::jsonb) END
             FROM failed WHERE (SELECT history_level FROM entity) = @HISTORY_FULL
           UNION ALL
           SELECT %(actor)s, b.* FROM (
                  -- include: failed_events
           ) AS b) AS x
     WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, (@LEDGER_LOCKED + state)::smallint, old_until, -count(*)::int,
           0::bigint, @OP_ABANDONED::smallint
      FROM owned GROUP BY state, old_until
    UNION ALL
    -- include: failed_counts
)
SELECT sequence_number, lock_token, (SELECT forward_dead_lettered_messages_to IS NOT NULL FROM entity) AS forwards,
       -- include: waiting
  FROM owned
 WHERE
       -- include: all_changed_or_retry
;

-- fragment: released
-- Release the locks of `owned`; no failed delivery is counted.
changed AS (
    UPDATE vitrine_message AS m SET lock_token = NULL, locked_until = NULL, locked_by = NULL
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM owned)) RETURNING m.subqueue, m.state, m.sequence_number),
returned AS (
    -- include: returned
      FROM changed AS r, entity AS e
     WHERE
           -- include: returned_to_a_list
),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, message_id)
    SELECT e.now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_RELEASED, o.sequence_number,
           o.failures - (%(subqueue)s = @SUBQUEUE_MAIN)::int, o.old_until, o.message_id
      FROM owned AS o, entity AS e WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    -- include: unlocked_counts
)

-- name: release
-- Release locks as if the messages had never been delivered: no failed delivery is counted (SB-090, SB-926).
WITH
-- include: entity
,
-- include: owned
,
-- include: released
SELECT sequence_number, lock_token,
       -- include: waiting
  FROM owned
 WHERE
       -- include: all_changed_or_retry
;

-- name: defer
-- Defer messages: they keep their position and delivery count, and can only be received by number (SB-083).
WITH
-- include: entity
,
-- include: owned
,
changed AS (
    UPDATE vitrine_message AS m
       SET state = @STATE_DEFERRED, lock_token = NULL, locked_until = NULL, locked_by = NULL,
           application_properties = coalesce(m.application_properties || %(properties)s::jsonb, %(properties)s::jsonb,
                                             m.application_properties)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM owned)) RETURNING m.sequence_number),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, message_id, details)
    SELECT e.now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_DEFERRED, o.sequence_number,
           o.failures - (%(subqueue)s = @SUBQUEUE_MAIN)::int, o.old_until, o.message_id,
           CASE WHEN %(properties)s::jsonb IS NOT NULL THEN jsonb_build_object('properties', %(properties)s::jsonb) END
      FROM owned AS o, entity AS e WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, @STATE_ACTIVE::smallint, NULL::timestamptz, -count(*), 0, @OP_DEFERRED
      FROM owned WHERE state = @STATE_ACTIVE HAVING count(*) > 0
    UNION ALL
    SELECT %(entity_id)s, %(subqueue)s, @STATE_DEFERRED, NULL, count(*), 0, NULL FROM owned WHERE state = @STATE_ACTIVE
    HAVING count(*) > 0
    UNION ALL
    -- include: unlocked_counts
)
SELECT sequence_number, lock_token FROM owned
 WHERE
       -- include: all_changed_or_retry
;

-- name: dead_letter
-- Move to the dead-letter queue with the receiver's reason (SB-082, SB-103). The delivery count is not raised.
WITH
-- include: entity
,
-- include: owned
,
failed AS MATERIALIZED (
    SELECT *, 'dead_letter' AS fate, %(reason)s::text AS reason, %(description)s::text AS description FROM owned),
-- include: apply_failed
,
events AS (
    INSERT INTO vitrine_message_event (
        -- include: event_columns
    )
    SELECT e.now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_DEAD_LETTERED, o.sequence_number, o.failures - 1,
           o.old_until, o.enqueued_at, o.first_received_at, o.last_received_at, o.message_id, %(reason)s,
           jsonb_strip_nulls(jsonb_build_object('description', %(description)s::text, 'properties', %(properties)s::jsonb))
      FROM owned AS o, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    -- include: unlocked_counts
    UNION ALL
    -- include: failed_counts
)
SELECT sequence_number, lock_token, (SELECT forward_dead_lettered_messages_to IS NOT NULL FROM entity) AS forwards,
       -- include: waiting
  FROM owned
 WHERE
       -- include: all_failed_changed_or_retry
;

-- name: dead_letter_unlocked
-- Move messages that nobody holds to the dead-letter queue, on behalf of an operator (SB-078). Messages whose lock has ended but
-- was not processed yet, and expired ones, are left to what becomes of them by themselves.
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
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}')
              AND m.sequence_number = t.number AND m.lock_token IS NULL
              AND (m.state = @STATE_DEFERRED
                   OR (coalesce(m.expires_at, m.enqueued_at + e.default_message_time_to_live) <= e.now) IS NOT TRUE)
              FOR UPDATE) AS found),
failed AS MATERIALIZED (
    SELECT *, 'dead_letter' AS fate, %(reason)s::text AS reason, %(description)s::text AS description FROM owned),
-- include: apply_failed
,
events AS (
    INSERT INTO vitrine_message_event (
        -- include: event_columns
    )
    SELECT e.now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_DEAD_LETTERED, o.sequence_number, o.failures,
           NULL, o.enqueued_at, o.first_received_at, o.last_received_at, o.message_id, %(reason)s,
           jsonb_strip_nulls(jsonb_build_object('description', %(description)s::text))
      FROM owned AS o, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    -- include: failed_counts
)
SELECT sequence_number, (SELECT forward_dead_lettered_messages_to IS NOT NULL FROM entity) AS forwards,
       -- include: waiting
  FROM owned
 WHERE
       -- include: all_failed_changed_or_retry
;

-- name: edit
-- Replace the body, the application properties, or both, of a message of the main list that nobody holds and that has not
-- expired, if it has this version (SB-079). No row: there is no such message.
WITH
-- include: entity
,
judged AS MATERIALIZED (
    SELECT f.*, e.max_size AS most,
           CASE WHEN f.held_until > e.now THEN 'held'
                WHEN f.state <> @STATE_SCHEDULED AND f.ends_at <= e.now THEN 'expired'
                WHEN f.has_changed THEN 'changed'
                WHEN f.growth > 0 AND e.max_size < f.growth + (
                     -- Copies are counted at their topic (SB-012).
                     SELECT sum(u.bytes_sent + u.removed)
                       FROM vitrine_entity AS s
                      CROSS JOIN LATERAL (
                            SELECT c.bytes_sent, (SELECT coalesce(sum(b.bytes), 0) FROM vitrine_count_base AS b
                                                   WHERE b.entity_id = s.id AND b.until IS NULL)
                                   + (SELECT coalesce(sum(d.bytes), 0) FROM vitrine_count_delta AS d
                                       WHERE d.entity_id = s.id) AS removed
                              FROM vitrine_entity_counter AS c WHERE c.entity_id = s.id) AS u
                      WHERE (s.id = e.root_id OR s.topic_id = e.root_id) AND s.deleted_at IS NULL) THEN 'full' END AS problem
      FROM (SELECT e.*, r.id AS root_id, r.max_size_in_megabytes * 1048576::bigint AS max_size
              FROM entity AS e JOIN vitrine_entity AS r ON r.id = coalesce(e.topic_id, e.id)) AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: editable
                  , m.locked_until AS held_until,
                  coalesce(m.expires_at, m.enqueued_at + e.default_message_time_to_live) AS ends_at
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN
              AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}') AND m.sequence_number = %(number)s::bigint
              FOR UPDATE) AS f),
-- include: changed_content
,
-- As in `grown`. A topic has the upper bound of its copies' bytes; it comes first, as when it publishes.
counters AS MATERIALIZED (
    SELECT c.entity_id, c.entity_id = e.id AS is_own, a.growth
      FROM allowed AS a CROSS JOIN entity AS e JOIN vitrine_entity_counter AS c ON c.entity_id IN (e.topic_id, e.id)
     WHERE a.growth > 0 ORDER BY c.entity_id FOR UPDATE OF c),
grown AS (
    UPDATE vitrine_entity_counter AS c
       SET bytes_sent = c.bytes_sent + CASE WHEN l.is_own THEN l.growth ELSE 0 END,
           copies_bound = c.copies_bound + CASE WHEN l.is_own THEN 0 ELSE l.growth END
      FROM counters AS l WHERE c.entity_id = l.entity_id),
-- include: edited
;

-- fragment: renewed
-- Extend the locks of `owned` to lock_duration from now.
changed AS (
    UPDATE vitrine_message AS m
       SET locked_until = (SELECT now + lock_duration FROM entity), renewals = coalesce(m.renewals, 0) + 1
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM owned))
 RETURNING m.sequence_number, m.state, m.locked_until),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, message_id)
    SELECT e.now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_RENEWED, o.sequence_number,
           o.failures - (%(subqueue)s = @SUBQUEUE_MAIN)::int, e.now + e.lock_duration, o.message_id
      FROM owned AS o, entity AS e WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s, @LEDGER_LOCKED + state, locked_until, count(*), 0, NULL::smallint FROM changed
     GROUP BY state, locked_until
    UNION ALL
    -- include: unlocked_counts
),
deadline AS (
    INSERT INTO vitrine_lock_deadline (entity_id, subqueue, until, first_number, last_number)
    SELECT %(entity_id)s, %(subqueue)s, locked_until, min(sequence_number), max(sequence_number) FROM changed
     GROUP BY locked_until)

-- name: renew
-- Extend the locks that are still held to lock_duration from now; the tokens stay (SB-064).
WITH
-- include: entity
,
-- include: owned
,
-- include: renewed
SELECT o.sequence_number, o.lock_token, e.now + e.lock_duration AS locked_until, e.lock_duration FROM owned AS o, entity AS e
 WHERE
       -- include: all_changed_or_retry
;

-- name: properties_too_large
-- The first of these messages whose application properties, with those to be added, exceed the limit, in bytes of their JSON.
SELECT m.sequence_number, x.size
  FROM vitrine_message AS m
 CROSS JOIN LATERAL (
       SELECT octet_length((coalesce(m.application_properties, '{}')
                            || coalesce(%(properties)s::jsonb, '{}'))::text) AS size) AS x
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.sequence_number = ANY (%(numbers)b::bigint[])
   AND x.size > %(largest)s
 ORDER BY m.sequence_number LIMIT 1;
