-- Messages of RabbitMQ queues. A ready one has no lock_token; an unacknowledged one has the token it was delivered with and the
-- connection that holds it, and stays at its place: so a requeue gives it back where it was (RMQ-116). Neither has locked_until:
-- no clock ends a delivery.

-- fragment: rabbit_entity
-- The queue as it is in force, and its virtual host's time.
entity AS MATERIALIZED (
    SELECT id, namespace_id, path, now, expiry_mode, history_level, default_message_time_to_live, effective,
           (effective ->> 'message_ttl')::bigint * interval '1 ms' AS message_ttl,
           (effective ->> 'max_priority')::int AS max_priority
      FROM vitrine_entity_now WHERE id = %(entity_id)s)

-- fragment: rabbit_life_over
-- Whether a message's life has ended: by the instant stored with it, or by a time-to-live that was put in force since (RMQ-010,
-- RMQ-902).
(least(m.expires_at, m.enqueued_at + (SELECT default_message_time_to_live FROM entity)) <= (SELECT now FROM entity)) IS TRUE

-- fragment: rabbit_present
-- A message of the queue, if that is still there; nothing present lies below its head bound.
EXISTS (SELECT FROM entity) AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
AND m.sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN)

-- fragment: rabbit_available
-- The first ready messages, or with `past_expired` the first of them that live. What another consumer is taking at this moment is
-- skipped.
SELECT m.ctid AS tid, m.sequence_number, m.first_received_at IS NOT NULL AS redelivered,
       -- include: rabbit_life_over
       AS expired
  FROM vitrine_message AS m
 WHERE
       -- include: rabbit_present
   AND m.lock_token IS NULL
   AND NOT (%(past_expired)s AND
       -- include: rabbit_life_over
   )

-- fragment: rabbit_in_order
available AS MATERIALIZED (
    -- include: rabbit_available
     ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED)

-- fragment: rabbit_by_priority
-- The highest level first, within it the order of arrival (RMQ-160).
available AS MATERIALIZED (
    -- include: rabbit_available
       AND m.priority IS NOT NULL
     ORDER BY m.priority DESC, m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED)

-- fragment: rabbit_delivered
-- Delivers what of `available` lives to a connection, which holds it from then on. `expired`: there are some to be taken away
-- first.
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , owner_id = %(owner_id)s, locked_by = %(holder)s,
           first_received_at = coalesce(m.first_received_at, (SELECT now FROM entity)),
           last_received_at = (SELECT now FROM entity)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM available WHERE NOT expired))
 RETURNING m.*),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind, delivery_count, actor)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, c.sequence_number, c.message_id, @EVENT_RECEIVED, c.delivery_count, %(holder)s
      FROM entity AS e, changed AS c WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @LEDGER_LOCKED, 'infinity', count(*), sum(size), @OP_RECEIVED FROM changed
    HAVING count(*) > 0)

-- fragment: rabbit_delivered_for_good
-- Removes what of `available` lives: nobody will acknowledge it (RMQ-114).
changed AS (DELETE FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM available WHERE NOT expired))
             RETURNING m.*),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, actor, enqueued_at, first_received_at, last_received_at)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, c.sequence_number, c.message_id, @EVENT_RECEIVED_AND_DELETED, c.delivery_count,
           %(holder)s, c.enqueued_at, coalesce(c.first_received_at, e.now), e.now
      FROM entity AS e, changed AS c WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, -count(*), -sum(size), @OP_RECEIVED_AND_DELETED FROM changed
    HAVING count(*) > 0)

-- fragment: rabbit_deliveries
-- A row for each delivery; at least one row as long as the queue is there, its number NULL where nothing was delivered.
SELECT c.sequence_number, c.lock_token, c.body, c.message_id, c.properties, c.application_properties, c.delivery_count,
       c.enqueued_at, c.priority, c.expires_at, a.redelivered, s.expired,
       (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN) AS head
  FROM entity AS e
 CROSS JOIN (SELECT coalesce(bool_or(expired), false) AS expired, count(*) FILTER (WHERE NOT expired) AS n FROM available) AS s
  LEFT JOIN changed AS c ON true
  LEFT JOIN available AS a ON a.sequence_number = c.sequence_number
 WHERE CASE WHEN (SELECT count(*) FROM changed) = s.n THEN true ELSE vitrine_try_again() END

-- name: rabbit_publish
-- A batch to one queue, with consecutive numbers: the counter is locked from here to commit, so they commit in order. No row: the
-- topology is no longer the one by which the batch was routed. Each message's expiry is fixed here (RMQ-008, RMQ-010).
WITH
-- include: rabbit_entity
,
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + cardinality(%(bodies)b::bytea[]), bytes_sent = c.bytes_sent + %(bytes)s
      FROM entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE c.entity_id = e.id AND n.topology_version = %(topology_version)s
 RETURNING c.next_number - cardinality(%(bodies)b::bytea[]) AS first, e.now, e.message_ttl, e.max_priority, e.history_level),
stored AS (
    INSERT INTO vitrine_message (entity_id, sequence_number, size, enqueued_at, expires_at, time_to_live, message_id, properties,
                                 application_properties, priority, body)
    SELECT %(entity_id)s, n.first + t.i - 1, octet_length(t.body), n.now, n.now + x.life, x.life,
           t.message_id, t.properties::jsonb, t.headers::jsonb,
           CASE WHEN n.max_priority > 0 THEN least(coalesce((t.properties::jsonb ->> 'priority')::int, 0), n.max_priority) END,
           t.body
      FROM numbers AS n,
           unnest(%(bodies)b::bytea[], %(message_ids)b::text[], %(expirations)b::int8[],
                  %(properties)b::text[], %(headers)b::text[])
           WITH ORDINALITY AS t(body, message_id, expiration, properties, headers, i)
     CROSS JOIN LATERAL (SELECT least(t.expiration * interval '1 ms', n.message_ttl) AS life) AS x
 RETURNING sequence_number, size, enqueued_at, time_to_live, message_id, properties, application_properties),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, size, enqueued_at, time_to_live,
                                       message_id, properties, application_properties)
    SELECT enqueued_at, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_SENT, sequence_number, size, enqueued_at,
           time_to_live, message_id, properties,
           CASE WHEN pg_column_size(application_properties) <= 4096 THEN application_properties END
      FROM stored WHERE (SELECT history_level FROM numbers) > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, @STATE_ACTIVE, count(*), @OP_SENT FROM stored HAVING count(*) > 0)
SELECT n.first, n.now,
       -- include: waiting
  FROM numbers AS n;

-- fragment: rabbit_copies
-- Copies of messages, numbered. An entry is a message as it is to be stored, `place` says which body it has; `picks` says which
-- entries each queue gets. Counters are locked in the order of ids, so that two publishers do not meet crosswise. Does nothing
-- without a row of `gate`. Entries are found by their index, not by joins, which the planner would do row by row since it expects
-- few.
given AS MATERIALIZED (
    SELECT %(places)b::int8[] AS places, %(sizes)b::int8[] AS sizes, %(message_ids)b::text[] AS message_ids,
           %(expirations)b::int8[] AS expirations, %(properties)b::text[] AS properties, %(headers)b::text[] AS headers,
           %(details)b::text[] AS details),
target AS MATERIALIZED (
    SELECT t.entity_id, t.picks::int[] AS picks, e.path, e.history_level, e.message_ttl, e.max_priority
      FROM gate, (SELECT * FROM unnest(%(entity_ids)b::int8[], %(picks)b::text[]) AS t(entity_id, picks) ORDER BY entity_id) AS t
     CROSS JOIN LATERAL (SELECT FROM vitrine_entity_counter AS c WHERE c.entity_id = t.entity_id FOR UPDATE) AS c
     CROSS JOIN LATERAL (
           SELECT path, history_level, (effective ->> 'message_ttl')::bigint * interval '1 ms' AS message_ttl,
                  (effective ->> 'max_priority')::int AS max_priority
             FROM vitrine_entity_now WHERE id = t.entity_id) AS e),
numbers AS (
    UPDATE vitrine_entity_counter AS c SET next_number = c.next_number + cardinality(t.picks), bytes_sent = c.bytes_sent + t.bytes
      FROM (SELECT target.*, (SELECT sum(given.sizes[p.i]) FROM unnest(picks) AS p(i)) AS bytes FROM target, given) AS t
     WHERE c.entity_id = t.entity_id
 RETURNING c.next_number - cardinality(t.picks) AS first, t.*),
placed AS MATERIALIZED (
    SELECT n.entity_id, n.path, n.history_level, n.first + p.at - 1 AS sequence_number,
           g.places[x.i] AS place, g.sizes[x.i] AS size, g.message_ids[x.i] AS message_id,
           least(g.expirations[x.i] * interval '1 ms', n.message_ttl) AS life, g.properties[x.i]::jsonb AS properties,
           g.headers[x.i]::jsonb AS headers, g.details[x.i]::jsonb AS details, n.max_priority
      FROM given AS g CROSS JOIN numbers AS n CROSS JOIN LATERAL generate_subscripts(n.picks, 1) AS p(at)
     CROSS JOIN LATERAL (SELECT n.picks[p.at] AS i) AS x),
sent AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, size, enqueued_at, time_to_live,
                                       message_id, properties, application_properties, details)
    SELECT g.now, p.entity_id, @SUBQUEUE_MAIN, %(actor)s, @EVENT_SENT, p.sequence_number, p.size, g.now, p.life,
           p.message_id, p.properties,
           CASE WHEN pg_column_size(p.headers) <= 4096 THEN p.headers END, p.details
      FROM placed AS p, gate AS g WHERE p.history_level > @HISTORY_OFF),
arrived AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT entity_id, @SUBQUEUE_MAIN, @STATE_ACTIVE, cardinality(picks), @OP_SENT FROM numbers)

-- fragment: rabbit_copy_columns
entity_id, sequence_number, size, enqueued_at, expires_at, time_to_live, message_id, properties, application_properties, priority,
body

-- fragment: rabbit_copy
p.entity_id, p.sequence_number, p.size, g.now, g.now + p.life, p.life, p.message_id, p.properties, p.headers,
CASE WHEN p.max_priority > 0 THEN least(coalesce((p.properties ->> 'priority')::int, 0), p.max_priority) END

-- name: rabbit_publish_copies
-- A batch to several queues, all of it or nothing. A row for each queue that is not deleted meanwhile; none: the topology is no
-- longer the one by which the batch was routed.
WITH gate AS MATERIALIZED (
    SELECT now FROM vitrine_namespace_now WHERE id = %(namespace_id)s AND topology_version = %(topology_version)s),
-- include: rabbit_copies
,
stored AS (
    INSERT INTO vitrine_message (
        -- include: rabbit_copy_columns
    )
    SELECT
           -- include: rabbit_copy
           , (%(bodies)b::bytea[])[p.place + 1]
      FROM placed AS p, gate AS g)
SELECT n.entity_id, n.first,
       coalesce((SELECT a.waiting_until > clock_timestamp() FROM vitrine_entity_activity AS a WHERE a.entity_id = n.entity_id),
                false) AS waiting
  FROM numbers AS n
 -- A queue that was deleted while its counter was waited for: with a new snapshot the topology is another.
 WHERE CASE WHEN (SELECT count(*) FROM numbers) = cardinality(%(entity_ids)b::int8[]) THEN true ELSE vitrine_try_again() END;

-- name: rabbit_take
-- Deliver up to max_count ready messages of a queue, the head first; they are the connection's until it acknowledges them
-- (RMQ-019).
WITH
-- include: rabbit_entity
,
-- include: salt
,
-- include: rabbit_in_order
,
-- include: rabbit_delivered
-- include: rabbit_deliveries
 ORDER BY c.sequence_number;

-- name: rabbit_take_by_priority
-- The same of a queue with priorities.
WITH
-- include: rabbit_entity
,
-- include: salt
,
-- include: rabbit_by_priority
,
-- include: rabbit_delivered
-- include: rabbit_deliveries
 ORDER BY c.priority DESC, c.sequence_number;

-- name: rabbit_take_for_good
-- Deliver and remove up to max_count ready messages, the head first (RMQ-114).
WITH
-- include: rabbit_entity
,
-- include: rabbit_in_order
,
-- include: rabbit_delivered_for_good
-- include: rabbit_deliveries
 ORDER BY c.sequence_number;

-- name: rabbit_take_for_good_by_priority
-- The same of a queue with priorities.
WITH
-- include: rabbit_entity
,
-- include: rabbit_by_priority
,
-- include: rabbit_delivered_for_good
-- include: rabbit_deliveries
 ORDER BY c.priority DESC, c.sequence_number;

-- fragment: rabbit_by_number
-- Messages that this transaction has stored: whether their life is over does not count.
available AS MATERIALIZED (
    SELECT m.ctid AS tid, m.sequence_number, m.first_received_at IS NOT NULL AS redelivered, false AS expired
      FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
       AND m.lock_token IS NULL FOR UPDATE)

-- name: rabbit_hand_over
-- Deliver these messages, just stored, to a consumer that takes them at once (RMQ-016).
WITH
-- include: rabbit_entity
,
-- include: salt
,
-- include: rabbit_by_number
,
-- include: rabbit_delivered
-- include: rabbit_deliveries
 ORDER BY c.sequence_number;

-- name: rabbit_handed_over
-- Those of these messages that a connection holds, with what is delivered of them.
SELECT e.path, m.sequence_number, m.lock_token, m.body, m.message_id, m.properties, m.application_properties,
       m.delivery_count, m.enqueued_at, m.first_received_at < m.last_received_at AS redelivered
  FROM vitrine_message AS m JOIN vitrine_entity_now AS e ON e.id = m.entity_id
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
   AND m.owner_id = %(owner_id)s
 ORDER BY m.sequence_number;

-- name: rabbit_hand_over_for_good
-- The same for one that acknowledges nothing.
WITH
-- include: rabbit_entity
,
-- include: rabbit_by_number
,
-- include: rabbit_delivered_for_good
-- include: rabbit_deliveries
 ORDER BY c.sequence_number;

-- fragment: rabbit_owned
-- The messages that these tokens hold, in number order so that two settlers cannot meet crosswise.
owned AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT * FROM unnest(%(numbers)b::bigint[], %(tokens)b::uuid[]) AS t(number, token) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid, m.sequence_number, m.lock_token, m.locked_by, m.message_id, m.enqueued_at, m.first_received_at,
                  m.last_received_at, m.size, m.delivery_count,
                  -- include: rabbit_life_over
                  AS expired
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = t.number
              AND m.lock_token = t.token AND EXISTS (SELECT FROM entity)
              FOR UPDATE) AS found)

-- name: rabbit_acknowledge
-- Remove what these tokens hold, also after the end of its life (RMQ-019). A token missing from the answer held nothing.
WITH
-- include: rabbit_entity
,
-- include: rabbit_owned
,
changed AS (DELETE FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM owned)) RETURNING m.sequence_number),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_COMPLETED, o.sequence_number, o.delivery_count,
           o.enqueued_at, o.first_received_at, o.last_received_at, o.message_id
      FROM owned AS o, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, x.state, x.until, -count(*), -sum(size), x.op
      FROM owned, (VALUES (@STATE_ACTIVE::smallint, NULL::timestamptz, @OP_COMPLETED::smallint),
                   (@LEDGER_LOCKED, 'infinity', NULL)) AS x(state, until, op)
     GROUP BY x.state, x.until, x.op)
SELECT sequence_number, lock_token FROM owned
 WHERE
       -- include: all_changed_or_retry
;

-- name: rabbit_requeue
-- Give these deliveries back: ready again at their place, with the instant their life ends at (RMQ-020, RMQ-116). One that was
-- returned as often as the queue allows is left as it is and answered as spent (RMQ-121). kind: of the event; counts: whether it
-- is a failed delivery.
WITH
-- include: rabbit_entity
,
-- include: rabbit_owned
,
judged AS MATERIALIZED (
    SELECT o.*, %(counts)s AND coalesce(o.delivery_count >= (SELECT (effective ->> 'delivery_limit')::int FROM entity),
                                        false) AS spent FROM owned AS o),
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token = NULL, owner_id = NULL, locked_by = NULL, delivery_count = m.delivery_count + %(counts)s::bool::int
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM judged WHERE NOT spent)) RETURNING m.sequence_number),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, message_id)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, CASE %(kind)s::int WHEN @EVENT_LOCK_LOST THEN o.locked_by ELSE %(actor)s END,
           %(kind)s, o.sequence_number, o.delivery_count + %(counts)s::bool::int, o.message_id
      FROM judged AS o, entity AS e WHERE e.history_level = @HISTORY_FULL AND NOT o.spent),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @LEDGER_LOCKED, 'infinity', -count(*), -sum(size), %(kind)s FROM judged
     WHERE NOT spent HAVING count(*) > 0)
SELECT sequence_number, lock_token, spent, expired, (SELECT effective ?| '{max_length,max_length_bytes}' FROM entity) AS limited,
       -- include: waiting
  FROM judged
 WHERE CASE WHEN (SELECT count(*) FROM changed) = (SELECT count(*) FROM judged WHERE NOT spent) THEN true
            ELSE vitrine_try_again() END;

-- name: rabbit_held
-- What a connection to a virtual host holds, queue by queue. The ledger says how many deliveries a queue has out, so looking ends
-- with the last of them.
WITH queue AS MATERIALIZED (
    SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE lower(n.name) = lower(%(vhost)s) AND e.deleted_at IS NULL)
SELECT h.entity_id, e.path, m.sequence_number, m.lock_token
  FROM (SELECT entity_id, sum(n) AS n
          FROM (SELECT entity_id, n FROM vitrine_count_base
                 WHERE entity_id = ANY (ARRAY(SELECT id FROM queue)) AND state = @LEDGER_LOCKED AND until = 'infinity'
                UNION ALL
                SELECT entity_id, n FROM vitrine_count_delta
                 WHERE entity_id = ANY (ARRAY(SELECT id FROM queue)) AND state = @LEDGER_LOCKED AND until = 'infinity') AS l
         GROUP BY entity_id HAVING sum(n) > 0) AS h
  JOIN vitrine_entity_now AS e ON e.id = h.entity_id
 CROSS JOIN LATERAL (
       SELECT m.sequence_number, m.lock_token, m.owner_id FROM vitrine_message AS m
        WHERE m.entity_id = h.entity_id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NOT NULL
          AND m.sequence_number >= (SELECT head FROM vitrine_queue_head
                                     WHERE entity_id = h.entity_id AND subqueue = @SUBQUEUE_MAIN)
        ORDER BY m.sequence_number LIMIT h.n) AS m
 WHERE m.owner_id = %(owner_id)s
 ORDER BY h.entity_id, m.sequence_number;

-- fragment: rabbit_ready
-- How many messages of a queue are ready, and their bytes: those that are there less those that are delivered.
(SELECT coalesce(sum(CASE WHEN l.state = @STATE_ACTIVE THEN l.n ELSE -l.n END), 0) AS n,
        coalesce(sum(CASE WHEN l.state = @STATE_ACTIVE THEN l.bytes ELSE -l.bytes END), 0)
        + coalesce((SELECT bytes_sent FROM vitrine_entity_counter WHERE entity_id = q.id), 0) AS bytes
   FROM (SELECT b.state, b.n, b.bytes FROM vitrine_count_base AS b
          WHERE b.entity_id = q.id AND b.subqueue = @SUBQUEUE_MAIN
            AND (b.state = @STATE_ACTIVE AND b.until IS NULL OR b.state = @LEDGER_LOCKED AND b.until = 'infinity')
         UNION ALL
         SELECT d.state, d.n, d.bytes FROM vitrine_count_delta AS d
          WHERE d.entity_id = q.id AND d.subqueue = @SUBQUEUE_MAIN
            AND (d.state = @STATE_ACTIVE OR d.state = @LEDGER_LOCKED AND d.until = 'infinity')) AS l)

-- name: rabbit_ready
-- How many messages of these queues are ready (RMQ-128), and their bytes (RMQ-090). Expired ones that wait for the head are
-- counted (RMQ-013).
SELECT q.id AS entity_id, r.n::bigint AS n, r.bytes::bigint AS bytes
  FROM unnest(%(entity_ids)b::bigint[]) AS q(id) CROSS JOIN LATERAL
       -- include: rabbit_ready
       AS r;

-- name: rabbit_lock_counters
-- From here to commit nobody else publishes to these queues: what `rabbit_ready` says then holds.
SELECT c.entity_id
  FROM (SELECT DISTINCT id FROM unnest(%(entity_ids)b::bigint[]) AS t(id) ORDER BY id) AS t
 CROSS JOIN LATERAL (SELECT entity_id FROM vitrine_entity_counter WHERE entity_id = t.id FOR UPDATE) AS c;

-- fragment: rabbit_dying
-- What the death of a message is made of; its body stays where it is. Without `dead_letters` it just goes.
m.sequence_number, m.message_id, m.priority, m.lock_token, m.size, (SELECT now FROM entity) AS now,
-- include: rabbit_life_over
AS expired,
CASE WHEN %(dead_letters)s THEN m.properties END AS properties,
CASE WHEN %(dead_letters)s THEN m.application_properties END AS application_properties

-- name: rabbit_dying_by_token
-- Hold what these tokens hold, to take it away.
WITH
-- include: rabbit_entity
SELECT found.*
  FROM (SELECT * FROM unnest(%(numbers)b::bigint[], %(tokens)b::uuid[]) AS t(number, token) ORDER BY number) AS t
 CROSS JOIN LATERAL (
       SELECT
              -- include: rabbit_dying
         FROM vitrine_message AS m
        WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
          AND m.sequence_number = t.number AND m.lock_token = t.token
          AND EXISTS (SELECT FROM entity)
          FOR UPDATE) AS found;

-- name: rabbit_dying_by_number
-- Hold these messages if they are ready and their life is over.
WITH
-- include: rabbit_entity
SELECT
       -- include: rabbit_dying
  FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
   AND m.lock_token IS NULL AND
       -- include: rabbit_life_over
 ORDER BY m.sequence_number FOR UPDATE SKIP LOCKED;

-- fragment: rabbit_expired_prefix
SELECT
       -- include: rabbit_dying
  FROM vitrine_message AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM walked
                            WHERE place < coalesce((SELECT min(place) FROM walked WHERE NOT expired), 9223372036854775807)))
   AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL AND
       -- include: rabbit_life_over
 ORDER BY m.priority DESC, m.sequence_number FOR UPDATE SKIP LOCKED

-- fragment: rabbit_walk
-- The first ready messages, in the order they would be delivered in, with their places.
SELECT m.ctid AS tid, m.sequence_number, m.priority, m.size,
       -- include: rabbit_life_over
       AS expired
  FROM vitrine_message AS m
 WHERE
       -- include: rabbit_present
   AND m.lock_token IS NULL

-- fragment: rabbit_walked
walked AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.sequence_number) AS place
      FROM (
            -- include: rabbit_walk
             ORDER BY m.sequence_number LIMIT %(max_count)s) AS w)

-- fragment: rabbit_walked_by_priority
walked AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.priority DESC, w.sequence_number) AS place
      FROM (
            -- include: rabbit_walk
               AND m.priority IS NOT NULL
             ORDER BY m.priority DESC, m.sequence_number LIMIT %(max_count)s) AS w)

-- name: rabbit_dying_at_head
-- Hold the expired messages before the first ready one that lives (RMQ-012), up to max_count.
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked
-- include: rabbit_expired_prefix
;

-- name: rabbit_dying_at_head_by_priority
-- The same of a queue with priorities (RMQ-027).
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked_by_priority
-- include: rabbit_expired_prefix
;

-- name: rabbit_dying_anywhere
-- In a queue that expires exactly: hold up to max_count ready messages past the instant stored with them, wherever they stand
-- (RMQ-901).
WITH
-- include: rabbit_entity
SELECT
       -- include: rabbit_dying
  FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.expires_at <= (SELECT now FROM entity) AND m.lock_token IS NULL
   AND (SELECT expiry_mode FROM entity) = 'eager'
 ORDER BY m.expires_at, m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED;

-- fragment: rabbit_over
-- Of `walked`, those in whose presence the queue has more than it may (RMQ-090, RMQ-091). Which ones they are is settled before
-- they are held, so that one that a consumer takes at this moment is not made up for with the next.
over AS MATERIALIZED (
    SELECT w.tid
      FROM (SELECT tid, place, sum(size) OVER (ORDER BY place) - size AS before FROM walked) AS w,
           entity AS q CROSS JOIN LATERAL
           -- include: rabbit_ready
           AS r
     WHERE w.place <= r.n - (q.effective ->> 'max_length')::bigint
        OR r.bytes - w.before > (q.effective ->> 'max_length_bytes')::bigint)
SELECT
       -- include: rabbit_dying
  FROM vitrine_message AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM over))
   AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL
 ORDER BY m.priority DESC, m.sequence_number FOR UPDATE SKIP LOCKED

-- name: rabbit_dying_by_default
-- In a queue with priorities that expires exactly: hold those that a time-to-live put in force since has ended. They are the
-- oldest (RMQ-902).
WITH
-- include: rabbit_entity
,
walked AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.sequence_number) AS place
      FROM (
            -- include: rabbit_walk
               AND (SELECT expiry_mode FROM entity) = 'eager'
             ORDER BY m.sequence_number LIMIT %(max_count)s) AS w)
-- include: rabbit_expired_prefix
;

-- name: rabbit_dying_over
-- Hold up to max_count messages from the head that are more than the queue's limit. Run while the queue's counter is held.
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked
,
-- include: rabbit_over
;

-- name: rabbit_dying_over_by_priority
-- The same of a queue with priorities: the highest goes first (RMQ-099).
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked_by_priority
,
-- include: rabbit_over
;

-- name: rabbit_bury
-- Take messages away that this transaction holds, and store what becomes of them elsewhere, if anything: one step, in which
-- nothing is lost or doubled (RMQ-911). No row: the topology is no longer the one by which they were routed.
WITH
-- include: rabbit_entity
,
gate AS MATERIALIZED (
    SELECT e.now, e.history_level FROM entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE n.topology_version = %(topology_version)s),
gone AS (
    DELETE FROM vitrine_message AS m
     WHERE EXISTS (SELECT FROM gate)
       AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
 RETURNING m.*),
-- include: rabbit_copies
,
stored AS (
    INSERT INTO vitrine_message (
        -- include: rabbit_copy_columns
    )
    SELECT
           -- include: rabbit_copy
           , s.body
      FROM placed AS p JOIN gone AS s ON s.sequence_number = p.place, gate AS g),
went AS MATERIALIZED (
    SELECT place,
           jsonb_build_object(
               'to', jsonb_agg(jsonb_build_object('entity', entity_id, 'path', path, 'sequence_number', sequence_number)
                               ORDER BY entity_id)) AS details
      FROM placed GROUP BY place),
fates AS MATERIALIZED (
    SELECT g.sequence_number, g.delivery_count, g.enqueued_at, g.first_received_at, g.last_received_at, g.message_id, g.size,
           g.lock_token IS NOT NULL AS was_held, f.kind, f.why, f.i
      FROM gone AS g
      JOIN unnest(%(numbers)b::bigint[], %(kinds)b::int2[], %(whys)b::text[]) WITH ORDINALITY AS f(number, kind, why, i)
        ON f.number = g.sequence_number),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, enqueued_at,
                                       first_received_at, last_received_at, message_id, reason, details)
    SELECT g.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, f.kind, f.sequence_number, f.delivery_count,
           f.enqueued_at, f.first_received_at, f.last_received_at, f.message_id, %(reason)s,
           coalesce(w.details, CASE WHEN f.why IS NOT NULL THEN jsonb_build_object('description', f.why) END)
      FROM fates AS f CROSS JOIN gate AS g LEFT JOIN went AS w ON w.place = f.sequence_number
     WHERE g.history_level > @HISTORY_OFF
     ORDER BY f.i),
left_ AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN::smallint, @STATE_ACTIVE::smallint, NULL::timestamptz, -count(*), -sum(size),
           kind FROM fates GROUP BY kind
    UNION ALL
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, @LEDGER_LOCKED, 'infinity', -count(*), -sum(size), NULL FROM fates WHERE was_held
    HAVING count(*) > 0)
SELECT (SELECT count(*) FROM fates) AS done, (SELECT count(*) FROM numbers) AS targets,
       ARRAY(SELECT entity_id FROM numbers ORDER BY entity_id) AS stored_in,
       ARRAY(SELECT first FROM numbers ORDER BY entity_id) AS firsts, ARRAY(SELECT a.entity_id FROM vitrine_entity_activity AS a
              WHERE a.entity_id = ANY (%(entity_ids)b::int8[]) AND a.waiting_until > clock_timestamp()) AS waiting
  FROM gate;

-- name: rabbit_numbers
-- The numbers of messages that are there, in order, after one and up to another.
WITH
-- include: rabbit_entity
SELECT m.sequence_number
  FROM vitrine_message AS m
 WHERE
       -- include: rabbit_present
   AND m.sequence_number > %(after)s AND m.sequence_number <= %(last_number)s
 ORDER BY m.sequence_number LIMIT %(max_count)s;

-- name: rabbit_movable
-- What moving these messages is decided by. held: a consumer has it. Nobody is held up, and nothing is held.
WITH
-- include: rabbit_entity
SELECT m.lock_token IS NOT NULL AS held,
       -- include: rabbit_dying
  FROM vitrine_message AS m
 WHERE EXISTS (SELECT FROM entity) AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
 ORDER BY m.sequence_number;

-- name: rabbit_hold_movable
-- Hold those of these messages that are ready. What somebody else is taking or moving at this moment is skipped.
WITH
-- include: rabbit_entity
SELECT m.sequence_number,
       -- include: rabbit_life_over
       AS expired
  FROM vitrine_message AS m
 WHERE EXISTS (SELECT FROM entity) AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[]) AND m.lock_token IS NULL
 ORDER BY m.sequence_number FOR UPDATE SKIP LOCKED;

-- name: rabbit_purge
-- Remove up to max_count ready messages up to a number; unacknowledged ones stay, and nothing is dead-lettered (RMQ-028).
WITH
-- include: rabbit_entity
,
walked AS MATERIALIZED (
    SELECT m.ctid AS tid FROM vitrine_message AS m
     WHERE
           -- include: rabbit_present
       AND m.sequence_number <= %(last_number)s AND m.lock_token IS NULL
     ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED),
changed AS (DELETE FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM walked)) RETURNING m.*),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_PURGED, c.sequence_number, c.delivery_count, c.enqueued_at,
           c.first_received_at, c.last_received_at, c.message_id
      FROM changed AS c, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, -count(*), -sum(size), @OP_PURGED FROM changed
    HAVING count(*) > 0)
SELECT (SELECT count(*) FROM changed) AS done, (SELECT count(*) FROM walked) AS walked
 WHERE EXISTS (SELECT FROM entity);

-- name: rabbit_last_number
-- The highest number a queue has given.
SELECT next_number - 1 AS last_number FROM vitrine_entity_counter WHERE entity_id = %(entity_id)s;

-- name: rabbit_now
-- The time in a virtual host.
SELECT now FROM vitrine_namespace_now WHERE id = %(namespace_id)s;

-- name: rabbit_topology_is
-- Whether a virtual host's topology is still of this version.
SELECT EXISTS (SELECT FROM vitrine_namespace
                WHERE id = %(namespace_id)s AND topology_version = %(topology_version)s) AS is_current;

-- name: rabbit_queues_due
-- Which of these queues have more than they may, or something expired to be taken away now.
WITH ledger AS MATERIALIZED (
    SELECT l.entity_id, sum(CASE WHEN l.state = @STATE_ACTIVE THEN l.n ELSE -l.n END) AS n,
           sum(CASE WHEN l.state = @STATE_ACTIVE THEN l.bytes ELSE -l.bytes END) AS bytes
      FROM (SELECT entity_id, subqueue, state, until, n, bytes FROM vitrine_count_base
            UNION ALL SELECT entity_id, subqueue, state, until, n, bytes FROM vitrine_count_delta) AS l
     WHERE l.entity_id = ANY (%(entity_ids)b::bigint[]) AND l.subqueue = @SUBQUEUE_MAIN
       AND (l.state = @STATE_ACTIVE AND l.until IS NULL OR l.state = @LEDGER_LOCKED AND l.until = 'infinity')
     GROUP BY l.entity_id)
SELECT e.id AS entity_id, e.namespace_name, e.path, x.over, x.expired
  FROM ledger AS l JOIN vitrine_entity_now AS e ON e.id = l.entity_id JOIN vitrine_entity_counter AS c ON c.entity_id = e.id
 CROSS JOIN LATERAL (
       SELECT coalesce(l.n > (e.effective ->> 'max_length')::bigint, false)
              OR coalesce(c.bytes_sent + l.bytes > (e.effective ->> 'max_length_bytes')::bigint, false) AS over,
              EXISTS (SELECT FROM vitrine_message AS m
                       WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                         AND m.expires_at <= e.now AND m.lock_token IS NULL)
              -- By a time put in force since, the oldest expires first.
              OR e.default_message_time_to_live IS NOT NULL AND e.now >= e.default_message_time_to_live + (
                 SELECT m.enqueued_at FROM vitrine_message AS m
                  WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL
                    AND m.sequence_number >= (SELECT head FROM vitrine_queue_head
                                               WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN)
                  ORDER BY m.sequence_number LIMIT 1) AS expired) AS x
 WHERE e.family = 'rabbitmq' AND l.n > 0 AND (x.over OR x.expired)
 ORDER BY e.id;

-- name: rabbit_heads_due
-- The queues of a virtual host that dead-letter and have something to be taken away now: the one that would be delivered next, or
-- in a queue that expires exactly any. For who waits elsewhere for what they dead-letter: a probe or two of an index for each.
SELECT e.path
  FROM vitrine_entity_now AS e
 CROSS JOIN LATERAL (
       (SELECT least(m.expires_at, m.enqueued_at + e.default_message_time_to_live) <= e.now AS is_over
          FROM vitrine_message AS m
         WHERE coalesce((e.effective ->> 'max_priority')::int, 0) = 0
           AND m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL
           AND m.sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN)
         ORDER BY m.sequence_number LIMIT 1)
        UNION ALL
       (SELECT least(m.expires_at, m.enqueued_at + e.default_message_time_to_live) <= e.now
          FROM vitrine_message AS m
         WHERE (e.effective ->> 'max_priority')::int > 0
           AND m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL
           AND m.priority IS NOT NULL
         ORDER BY m.priority DESC, m.sequence_number LIMIT 1)
        UNION ALL
       (SELECT true
          FROM vitrine_message AS m
         WHERE e.expiry_mode = 'eager'
           AND m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL
           AND m.expires_at <= e.now
         LIMIT 1)) AS x
 WHERE e.namespace_id = (SELECT id FROM vitrine_namespace WHERE lower(name) = lower(%(vhost)s))
   AND e.effective ? 'dead_letter_exchange' AND x.is_over
 ORDER BY e.id LIMIT %(max_count)s;

-- name: rabbit_give_to
-- A connection does not end before this transaction does. One that is ending is not waited for, since who ends it may wait for
-- what is held here.
SELECT id FROM vitrine_connection WHERE id = %(connection_id)s FOR KEY SHARE SKIP LOCKED;
