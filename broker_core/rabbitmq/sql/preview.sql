-- The effects of a policy change (broker_core/rabbitmq/policy_preview.py). Nothing here writes or locks.

-- name: rabbit_preview
-- What happens to the ready messages of these queues with the current (`old_`) and the changed settings (`new_`): `stays`,
-- `expired` at the head or, with exact expiry, anywhere (RMQ-012, RMQ-901), or `maxlen` from the head (RMQ-090, RMQ-091,
-- RMQ-099); in the order of tidying. Reads at most scan_cap messages, from the heads. A row for each message removed in either
-- case; at least one for each queue with messages, its number NULL if none is removed. ready: messages of the queue; seen:
-- messages read.
WITH queue AS MATERIALIZED (
    SELECT q.id, q.now, q.exact, q.by_priority, h.head, t.old_ttl, t.old_drops, t.old_length, t.old_bytes, t.new_ttl,
           t.new_drops, t.new_length, t.new_bytes, r.n, r.bytes
      FROM unnest(%(ids)s::int8[], %(old_ttls)s::interval[], %(old_drops)s::bool[],
                  %(old_lengths)s::int8[], %(old_bytes)s::int8[], %(new_ttls)s::interval[], %(new_drops)s::bool[],
                  %(new_lengths)s::int8[], %(new_bytes)s::int8[])
           AS t(id, old_ttl, old_drops, old_length, old_bytes, new_ttl, new_drops, new_length, new_bytes)
      JOIN (SELECT id, now, expiry_mode = 'eager' AS exact,
                   coalesce((effective ->> 'max_priority')::int > 0, false) AS by_priority
              FROM vitrine_entity_now) AS q ON q.id = t.id
      JOIN vitrine_queue_head AS h ON h.entity_id = q.id AND h.subqueue = @SUBQUEUE_MAIN
     CROSS JOIN LATERAL
           -- include: rabbit_ready_count
           AS r
     WHERE r.n > 0
), looked_at AS MATERIALIZED (
    SELECT q.id, m.*
      FROM (SELECT * FROM queue ORDER BY id) AS q
     CROSS JOIN LATERAL (
           (SELECT m.sequence_number, 0::smallint AS level, m.size, m.enqueued_at, m.expires_at FROM vitrine_message AS m
             WHERE NOT q.by_priority AND m.entity_id = q.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
               AND m.sequence_number >= q.head
               AND m.lock_token IS NULL
             ORDER BY m.sequence_number LIMIT %(scan_cap)s)
           UNION ALL
           (SELECT m.sequence_number, m.priority, m.size, m.enqueued_at, m.expires_at FROM vitrine_message AS m
             WHERE q.by_priority AND m.entity_id + 0 = q.id AND m.subqueue + 0 = @SUBQUEUE_MAIN AND m.state + 0 = @STATE_ACTIVE
               AND m.ready_priority IS NOT NULL
             ORDER BY m.ready_priority DESC, m.sequence_number LIMIT %(scan_cap)s)) AS m
     LIMIT %(scan_cap)s
), placed AS MATERIALIZED (
    SELECT m.*, row_number() OVER (PARTITION BY m.id ORDER BY m.level DESC, m.sequence_number) AS place,
           count(*) OVER (PARTITION BY m.id) AS seen, sum(m.size) OVER (PARTITION BY m.id) AS seen_bytes
      FROM looked_at AS m
), aged AS (
    -- Each message with the old and the new settings.
    SELECT m.id, m.sequence_number, m.place, m.size, m.seen, m.seen_bytes, q.exact, q.n, q.bytes, c.*,
           coalesce(least(m.expires_at, m.enqueued_at + c.ttl) <= q.now, false) AS over
      FROM placed AS m JOIN queue AS q ON q.id = m.id
     CROSS JOIN LATERAL (
           SELECT false AS is_new, q.old_ttl AS ttl, q.old_drops AS drops, q.old_length AS max_length, q.old_bytes AS max_bytes
           UNION ALL SELECT true, q.new_ttl, q.new_drops, q.new_length, q.new_bytes) AS c
), expiring AS (
    SELECT a.*,
           a.over AND (a.exact OR place < coalesce(min(place) FILTER (WHERE NOT a.over) OVER w, 9223372036854775807)) AS expired
      FROM aged AS a WINDOW w AS (PARTITION BY id, is_new)
), counted AS (
    -- With exact expiry, unread messages may have expired as well: then fewer exceed the limit.
    SELECT e.*, count(*) FILTER (WHERE NOT expired) OVER up_to AS rest_place,
           coalesce(sum(size) FILTER (WHERE NOT expired) OVER up_to, 0) - size AS rest_before,
           n - count(*) FILTER (WHERE expired) OVER w - CASE WHEN exact THEN n - seen ELSE 0 END AS n_left,
           bytes - coalesce(sum(size) FILTER (WHERE expired) OVER w, 0)
           - CASE WHEN exact THEN bytes - seen_bytes ELSE 0 END AS bytes_left
      FROM expiring AS e WINDOW w AS (PARTITION BY id, is_new), up_to AS (PARTITION BY id, is_new ORDER BY place)
), fated AS (
    SELECT id, sequence_number, place, is_new,
           CASE WHEN expired THEN 'expired'
                WHEN drops AND (coalesce(rest_place <= n_left - max_length, false)
                                OR coalesce(bytes_left - rest_before > max_bytes, false))
                THEN 'maxlen' ELSE 'stays' END AS fate
      FROM counted
), paired AS (
    SELECT id, sequence_number, place, max(fate) FILTER (WHERE NOT is_new) AS before, max(fate) FILTER (WHERE is_new) AS after
      FROM fated GROUP BY id, sequence_number, place
)
SELECT q.id AS entity_id, q.now, q.n::bigint AS ready, coalesce(s.seen, 0)::bigint AS seen,
       m.sequence_number, m.size, m.message_id, p.before, p.after, m.properties, m.application_properties,
       m.encoded
  FROM queue AS q
  LEFT JOIN (SELECT id, count(*) AS seen FROM looked_at GROUP BY id) AS s ON s.id = q.id
  LEFT JOIN (paired AS p JOIN vitrine_message AS m
             ON m.entity_id = p.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                  AND m.sequence_number = p.sequence_number)
    ON p.id = q.id AND (p.before <> 'stays' OR p.after <> 'stays')
 ORDER BY q.id, p.after = 'maxlen', p.place;
