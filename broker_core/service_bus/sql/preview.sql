-- The effect that a change of configuration would have now (broker_core/service_bus/preview.py). Read-only.

-- name: preview_change
-- How the fates of the messages of an entity, and of a topic's subscriptions, would change under the `new_` settings: for each
-- change, the number of messages, a checksum of their numbers, and the first few. Reads at most scan_cap messages; `scanned`: how
-- many. If nothing changes, the result is one row without a path. The fates are those of receives and sweeps (SB-025, SB-090,
-- SB-091, SB-920).
WITH target AS MATERIALIZED (
    SELECT e.id, e.path, e.now, e.status, e.max_delivery_count, e.default_message_time_to_live,
           e.dead_lettering_on_message_expiration, e.forward_to, e.forward_dead_lettered_messages_to, e.requires_session,
           e.expires_whole_sessions, x.is_changed,
           least(CASE WHEN x.is_changed THEN %(new_time_to_live)s::interval ELSE own.default_message_time_to_live END,
                 CASE WHEN x.is_changed THEN t.default_message_time_to_live
                      ELSE %(new_time_to_live)s::interval END) AS new_time_to_live
      FROM vitrine_entity_now AS e
      JOIN vitrine_entity AS own ON own.id = e.id
      LEFT JOIN vitrine_entity AS t ON t.id = e.topic_id
     CROSS JOIN LATERAL (SELECT e.id = %(entity_id)s AS is_changed) AS x
     WHERE e.id = %(entity_id)s OR e.topic_id = %(entity_id)s
), scanned_messages AS MATERIALIZED (
    SELECT l.id, m.*
      -- only dead index entries are below the head
      FROM (SELECT t.id, h.subqueue, x.state, CASE x.state WHEN @STATE_ACTIVE THEN h.head ELSE 0 END AS head
              FROM target AS t JOIN vitrine_queue_head AS h ON h.entity_id = t.id
                   AND h.subqueue IN (@SUBQUEUE_MAIN, @SUBQUEUE_DEAD_LETTER)
             CROSS JOIN unnest('{@STATE_ACTIVE,@STATE_DEFERRED}'::smallint[]) AS x(state) ORDER BY t.id, h.subqueue, x.state) AS l
     CROSS JOIN LATERAL (
           SELECT m.subqueue, m.state, m.sequence_number, m.delivery_count, m.enqueued_at, m.expires_at,
                  m.locked_until, m.session_id
             FROM vitrine_message AS m
            WHERE m.entity_id = l.id AND m.subqueue = l.subqueue AND m.state = l.state AND m.sequence_number >= l.head
            ORDER BY m.sequence_number LIMIT %(scan_cap)s) AS m
     LIMIT %(scan_cap)s
), evaluated AS (
    -- Each message twice: under the current and under the new settings.
    SELECT m.id, m.subqueue, m.state, m.sequence_number, c.is_new, c.dead_lettering, c.status, c.forward,
           x.locked, x.expired, x.failures >= c.max_delivery_count AND m.subqueue = @SUBQUEUE_MAIN AS spent,
           -- An expired, unlocked message expires its session (SB-037).
           c.whole_sessions AND m.session_id IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN
           AND m.state = @STATE_ACTIVE AND NOT x.locked
           AND bool_or(x.expired AND m.state = @STATE_ACTIVE AND NOT x.locked)
               OVER (PARTITION BY m.id, c.is_new, m.subqueue, m.session_id) AS session_over,
           m.state = @STATE_DEFERRED AND m.locked_until IS NOT NULL AND NOT x.locked AS lock_ended
      FROM scanned_messages AS m JOIN target AS t ON t.id = m.id
     CROSS JOIN LATERAL (
           SELECT false AS is_new, t.status, t.max_delivery_count, t.default_message_time_to_live AS time_to_live,
                  t.dead_lettering_on_message_expiration AS dead_lettering, false AS drops_locks,
                  CASE m.subqueue WHEN @SUBQUEUE_MAIN THEN t.forward_to ELSE t.forward_dead_lettered_messages_to END AS forward,
                  t.requires_session AND t.expires_whole_sessions AS whole_sessions
           UNION ALL
           SELECT true, %(new_status)s::text, %(new_max_delivery_count)s::int, t.new_time_to_live,
                  %(new_dead_lettering)s::bool, %(new_drops_locks)s::bool,
                  CASE m.subqueue WHEN @SUBQUEUE_MAIN THEN %(new_forward_to)s::text
                       ELSE %(new_forward_dead_lettered_to)s::text END,
                  t.requires_session AND %(new_expires_whole_sessions)s::bool WHERE t.is_changed
           UNION ALL
           SELECT true, t.status, t.max_delivery_count, t.new_time_to_live, t.dead_lettering_on_message_expiration, false,
                  CASE m.subqueue WHEN @SUBQUEUE_MAIN THEN t.forward_to ELSE t.forward_dead_lettered_messages_to END,
                  t.requires_session AND t.expires_whole_sessions WHERE NOT t.is_changed) AS c
     CROSS JOIN LATERAL (
           SELECT coalesce(m.locked_until > t.now, false) AND NOT c.drops_locks AS locked,
                  m.subqueue = @SUBQUEUE_MAIN
                  AND coalesce(coalesce(m.expires_at, m.enqueued_at + c.time_to_live) <= t.now, false) AS expired,
                  m.delivery_count + (m.locked_until IS NOT NULL
                                      AND (m.locked_until <= t.now OR c.drops_locks))::int AS failures) AS x
), fates AS (
    SELECT id, subqueue, sequence_number, is_new,
           CASE WHEN locked THEN 'locked'
                WHEN state = @STATE_ACTIVE AND (expired OR session_over)
                THEN CASE WHEN dead_lettering THEN 'TTLExpiredException' ELSE 'dropped' END
                WHEN spent AND (state = @STATE_ACTIVE OR lock_ended) THEN 'MaxDeliveryCountExceeded'
                WHEN state = @STATE_DEFERRED THEN 'deferred'
                WHEN forward IS NOT NULL AND (subqueue = @SUBQUEUE_DEAD_LETTER OR status IN ('Active', 'SendDisabled'))
                THEN 'forwarded'
                WHEN status NOT IN ('Active', 'SendDisabled') THEN 'undeliverable'
                ELSE 'deliverable' END AS fate
      FROM evaluated
), paired AS (
    SELECT id, subqueue, sequence_number, max(fate) FILTER (WHERE NOT is_new) AS before, max(fate) FILTER (WHERE is_new) AS after
      FROM fates GROUP BY id, subqueue, sequence_number
), changed AS (
    SELECT id, subqueue, before, after, count(*) AS n, bit_xor(hashint8extended(sequence_number, 0)) AS checksum,
           (array_agg(sequence_number ORDER BY sequence_number))[1:5] AS samples
      FROM paired WHERE before <> after GROUP BY id, subqueue, before, after
)
SELECT (SELECT now FROM target WHERE is_changed) AS now, (SELECT count(*) FROM scanned_messages) AS scanned, t.path, c.*
  FROM (SELECT) AS always LEFT JOIN (changed AS c JOIN target AS t ON t.id = c.id) ON true
 ORDER BY t.path, c.subqueue, c.before, c.after;

-- name: preview_delete
-- The numbers of messages that deleting an entity, with a topic's subscriptions, would delete, by list: exact, from the ledger.
-- `locked`: how many of them are locked. If there are none, the result is one row without a path.
WITH target AS MATERIALIZED (
    SELECT e.id, e.path, e.now FROM vitrine_entity_now AS e WHERE e.id = %(entity_id)s OR e.topic_id = %(entity_id)s
), counted AS (
    SELECT t.path, l.subqueue, sum(l.n) FILTER (WHERE l.state < @LEDGER_LOCKED) AS n,
           coalesce(sum(l.n) FILTER (WHERE l.state >= @LEDGER_LOCKED AND l.until > t.now), 0) AS locked
      FROM target AS t JOIN (
           SELECT entity_id, subqueue, state, until, n FROM vitrine_count_base
           UNION ALL SELECT entity_id, subqueue, state, until, n FROM vitrine_count_delta) AS l ON l.entity_id = t.id
     GROUP BY t.path, l.subqueue
)
SELECT (SELECT now FROM target WHERE id = %(entity_id)s) AS now, (SELECT count(*) FROM target) AS entities, c.path, c.subqueue,
       c.n::bigint AS n, c.locked::bigint AS locked
  FROM (SELECT) AS always LEFT JOIN counted AS c ON c.n > 0
 ORDER BY c.path, c.subqueue;
