-- Messages of RabbitMQ queues. A ready message has no lock_token; an unacknowledged one has the token and the connection of
-- its delivery, and keeps its position, to which a requeue returns it (RMQ-116). locked_until is not used: deliveries do not
-- expire.

-- fragment: rabbit_entity
-- The queue with its effective settings, and the time in its virtual host.
entity AS MATERIALIZED (
    SELECT id, namespace_id, path, now, status, expiry_mode, history_level, default_message_time_to_live, effective,
           (effective ->> 'message_ttl')::bigint * interval '1 ms' AS message_ttl,
           (effective ->> 'max_priority')::int AS max_priority
      FROM vitrine_entity_now WHERE id = %(entity_id)s)

-- fragment: rabbit_has_expired
-- Whether a message has expired: by its stored expiry, or by a TTL that became effective later (RMQ-010, RMQ-902).
(least(m.expires_at, m.enqueued_at + (SELECT default_message_time_to_live FROM entity)) <= (SELECT now FROM entity)) IS TRUE

-- fragment: rabbit_above_head
-- A message of the queue; all are at or above the head bound.
m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
AND m.sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN)

-- fragment: rabbit_present
-- As rabbit_above_head, if the queue exists.
EXISTS (SELECT FROM entity) AND
-- include: rabbit_above_head

-- fragment: rabbit_with_priority
-- A ready message of a priority queue. + 0 makes the planner use the index on priorities; with the primary key, from whose second
-- column on it can search too, it would sort the whole queue for each delivery.
m.entity_id + 0 = %(entity_id)s AND m.subqueue + 0 = @SUBQUEUE_MAIN AND m.state + 0 = @STATE_ACTIVE
AND m.ready_priority IS NOT NULL

-- fragment: rabbit_available
-- The messages of rabbit_ready in the queue. The includer adds the order, a limit, and that messages locked by concurrent
-- deliveries are skipped.
-- include: rabbit_ready
   AND
       -- include: rabbit_above_head

-- fragment: rabbit_ready
-- The ready messages, or with `past_expired` those that have not expired. None while delivery is paused (RMQ-929). The includer
-- adds the condition on the queue.
SELECT m.ctid AS tid, m.sequence_number, m.priority, m.first_received_at IS NOT NULL AS redelivered,
       -- include: rabbit_has_expired
       AS expired
  FROM vitrine_message AS m
 WHERE EXISTS (SELECT FROM entity) AND m.lock_token IS NULL AND (SELECT status IN ('Active', 'SendDisabled') FROM entity)
   AND NOT (%(past_expired)s AND
       -- include: rabbit_has_expired
   )

-- fragment: rabbit_bounds
-- The bounds of the queue (docs/design.md D17). Deliveries from a priority queue use neither: its index has no unacknowledged
-- messages.
bounds AS MATERIALIZED (
    SELECT head, locked_below, greatest(head, locked_below) AS start, locked_below > head AS passes_locked
      FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN)

-- fragment: rabbit_in_order
-- None while `locked_below` is used (rabbit_past_locked).
-- include: rabbit_bounds
,
available AS MATERIALIZED (
    -- include: rabbit_available
       AND NOT (SELECT passes_locked FROM bounds)
     ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED)

-- fragment: rabbit_past_locked
-- Without walking past the unacknowledged messages below `locked_below`: first those of vitrine_returned below it, then those
-- above.
-- include: rabbit_bounds
,
returned AS MATERIALIZED (
    SELECT found.*
      FROM bounds AS b
     CROSS JOIN LATERAL (
           SELECT m.*
             FROM (SELECT DISTINCT sequence_number FROM vitrine_returned
                    WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN
                      AND sequence_number >= b.head AND sequence_number < b.start ORDER BY sequence_number) AS r
            CROSS JOIN LATERAL (
                  -- include: rabbit_available
                     AND m.sequence_number = r.sequence_number FOR UPDATE SKIP LOCKED) AS m
            LIMIT %(max_count)s) AS found),
later AS MATERIALIZED (
    -- include: rabbit_available
       AND m.sequence_number >= (SELECT start FROM bounds)
     ORDER BY m.sequence_number LIMIT %(max_count)s - (SELECT count(*) FROM returned) FOR UPDATE SKIP LOCKED),
available AS MATERIALIZED (SELECT * FROM returned UNION ALL SELECT * FROM later),
-- The records of the messages that are delivered now, and of those that others hold or have removed.
forgotten AS (
    DELETE FROM vitrine_returned
     WHERE ctid = ANY (ARRAY(
           SELECT r.tid
             FROM bounds AS b
            CROSS JOIN LATERAL (
                  SELECT ctid AS tid, sequence_number FROM vitrine_returned
                   WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN
                     AND sequence_number >= b.head AND sequence_number < b.start
                   ORDER BY sequence_number LIMIT %(max_count)s + 100 FOR UPDATE SKIP LOCKED) AS r
            WHERE r.sequence_number = ANY (ARRAY(SELECT sequence_number FROM returned WHERE NOT expired))
               OR (SELECT true FROM vitrine_message AS m  -- not EXISTS, for which the planner may read the whole list
                    WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                      AND m.sequence_number = r.sequence_number AND m.lock_token IS NULL
                    LIMIT 1) IS NULL)))

-- fragment: rabbit_by_priority
-- The highest priority first, then in order of arrival (RMQ-160).
-- include: rabbit_bounds
,
available AS MATERIALIZED (
    -- include: rabbit_ready
       AND
           -- include: rabbit_with_priority
     ORDER BY m.ready_priority DESC, m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED)

-- fragment: rabbit_taken
-- The unexpired messages of `available`. place: the index of a delivery's connection in `owner_ids`, `holders` and
-- `consumer_ids`: each message in delivery order has its own, unless there is only one.
taken AS (
    SELECT a.tid, a.redelivered, e.now, e.history_level,
           CASE WHEN cardinality(%(holders)b::text[]) = 1 THEN 1
                ELSE row_number() OVER (ORDER BY a.priority DESC, a.sequence_number) END AS place
      FROM available AS a CROSS JOIN entity AS e WHERE NOT a.expired)

-- fragment: rabbit_delivered
-- Deliver `taken` to connections, which then hold the messages.
-- include: rabbit_taken
,
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , owner_id = (%(owner_ids)b::bigint[])[a.place], locked_by = (%(holders)b::text[])[a.place],
           consumer_id = (%(consumer_ids)b::bigint[])[a.place], ready_priority = NULL,
           first_received_at = coalesce(m.first_received_at, a.now), last_received_at = a.now
      FROM taken AS a WHERE m.ctid = a.tid
 RETURNING
           -- include: rabbit_delivery_columns
           , m.size, m.last_received_at, m.locked_by, a.redelivered, a.history_level),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind, delivery_count, actor)
    SELECT last_received_at, %(entity_id)s, @SUBQUEUE_MAIN, sequence_number, message_id, @EVENT_RECEIVED, delivery_count,
           locked_by
      FROM changed WHERE history_level = @HISTORY_FULL),
summed AS (SELECT count(*) AS n, sum(size) AS bytes FROM changed),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @LEDGER_LOCKED, 'infinity', n, bytes, @OP_RECEIVED FROM summed WHERE n > 0)

-- fragment: rabbit_delivered_no_ack
-- Delete `taken`: the messages will not be acknowledged (RMQ-114).
-- include: rabbit_taken
,
changed AS (
    DELETE FROM vitrine_message AS m USING taken AS a WHERE m.ctid = a.tid
 RETURNING
           -- include: rabbit_delivery_columns
           , m.size, m.first_received_at, (%(holders)b::text[])[a.place] AS holder, a.redelivered, a.now, a.history_level
           -- keeping: , m.body_kind
),
-- kept from: changed AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, actor, enqueued_at, first_received_at, last_received_at)
    SELECT now, %(entity_id)s, @SUBQUEUE_MAIN, sequence_number, message_id, @EVENT_RECEIVED_AND_DELETED, delivery_count,
           holder, enqueued_at, coalesce(first_received_at, now), now
      FROM changed WHERE history_level > @HISTORY_OFF),
summed AS (SELECT count(*) AS n, sum(size) AS bytes FROM changed),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, -n, -bytes, @OP_RECEIVED_AND_DELETED FROM summed WHERE n > 0)

-- fragment: rabbit_delivery_columns
m.sequence_number, m.lock_token, m.body, m.message_id, m.properties, m.application_properties, m.encoded, m.delivery_count,
m.enqueued_at, m.priority, m.expires_at

-- fragment: rabbit_deliveries
-- A row for each delivery; if the queue exists, at least one row, with sequence_number NULL if nothing was delivered. expired:
-- expired messages must be removed first.
SELECT
       -- include: rabbit_delivery_columns
       , m.redelivered, s.expired, b.start, b.passes_locked
  FROM entity AS e CROSS JOIN bounds AS b
 CROSS JOIN (SELECT coalesce(bool_or(expired), false) AS expired, count(*) FILTER (WHERE NOT expired) AS n FROM available) AS s
 CROSS JOIN summed AS d
  LEFT JOIN changed AS m ON true
 WHERE CASE WHEN d.n = s.n THEN true ELSE vitrine_try_again() END

-- name: rabbit_publish
-- Store a batch in one queue with consecutive numbers: the counter is locked until commit, so numbers commit in order. No row:
-- the topology has changed since routing. Each message's expiry is computed here (RMQ-008, RMQ-010).
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
                                 application_properties, encoded, priority, ready_priority, body)
    SELECT %(entity_id)s, n.first + t.i, octet_length(t.body), n.now, n.now + x.life, x.life,
           t.message_id, t.properties::jsonb, t.headers::jsonb, t.encoded, x.priority, x.priority, t.body
      FROM numbers AS n
     CROSS JOIN (
           -- as in `sent` of Service Bus
           SELECT generate_series(0, cardinality(%(bodies)b::bytea[]) - 1) AS i, unnest(%(bodies)b::bytea[]) AS body,
                  unnest(%(message_ids)b::text[]) AS message_id, unnest(%(expirations)b::int8[]) AS expiration,
                  unnest(%(properties)b::text[]) AS properties, unnest(%(headers)b::text[]) AS headers,
                  unnest(%(encoded)b::bytea[]) AS encoded) AS t
     CROSS JOIN LATERAL (
           SELECT least(t.expiration * interval '1 ms', n.message_ttl) AS life,
                  CASE WHEN n.max_priority > 0
                       THEN least(coalesce((t.properties::jsonb ->> 'priority')::int, 0), n.max_priority) END AS priority) AS x
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
-- Store numbered copies of messages. An entry is a message to be stored, whose `place` identifies its body; `picks` lists the
-- entries of each queue. Counters are locked in id order to avoid deadlocks. Does nothing without a row of `gate`. Entries are
-- accessed by index instead of joins, which the planner would execute row by row because of low estimates.
given AS MATERIALIZED (
    SELECT %(places)b::int8[] AS places, %(sizes)b::int8[] AS sizes, %(message_ids)b::text[] AS message_ids,
           %(expirations)b::int8[] AS expirations, %(properties)b::text[] AS properties, %(headers)b::text[] AS headers,
           %(details)b::text[] AS details, %(encoded)b::bytea[] AS encoded),
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
           g.headers[x.i]::jsonb AS headers, g.encoded[x.i] AS encoded, g.details[x.i]::jsonb AS details,
           CASE WHEN n.max_priority > 0
                THEN least(coalesce((g.properties[x.i]::jsonb ->> 'priority')::int, 0), n.max_priority) END AS priority
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
entity_id, sequence_number, size, enqueued_at, expires_at, time_to_live, message_id, properties, application_properties, encoded,
priority, ready_priority, body

-- fragment: rabbit_copy
p.entity_id, p.sequence_number, p.size, g.now, g.now + p.life, p.life, p.message_id, p.properties, p.headers, p.encoded,
p.priority, p.priority

-- name: rabbit_publish_copies
-- Store a batch in several queues, all or nothing. A row for each queue that still exists; none: the topology has changed
-- since routing.
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
 -- A queue was deleted while waiting for its counter: retry, and a new snapshot has another topology version.
 WHERE CASE WHEN (SELECT count(*) FROM numbers) = cardinality(%(entity_ids)b::int8[]) THEN true ELSE vitrine_try_again() END;

-- name: rabbit_take
-- Deliver up to max_count ready messages of a queue, from the head, to be held by the connection until acknowledged (RMQ-019).
WITH
-- include: rabbit_entity
,
-- include: rabbit_in_order
,
-- include: rabbit_delivered
-- include: rabbit_deliveries
 ORDER BY m.sequence_number;

-- name: rabbit_take_past_locked
-- As rabbit_take, without walking past many unacknowledged messages (docs/design.md D17).
WITH
-- include: rabbit_entity
,
-- include: rabbit_past_locked
,
-- include: rabbit_delivered
-- include: rabbit_deliveries
 ORDER BY m.sequence_number;

-- name: rabbit_take_by_priority
-- As rabbit_take, for a priority queue.
WITH
-- include: rabbit_entity
,
-- include: rabbit_by_priority
,
-- include: rabbit_delivered
-- include: rabbit_deliveries
 ORDER BY m.priority DESC, m.sequence_number;

-- name: rabbit_take_no_ack
-- Deliver and delete up to max_count ready messages, from the head (RMQ-114).
WITH
-- include: rabbit_entity
,
-- include: rabbit_in_order
,
-- include: rabbit_delivered_no_ack
-- include: rabbit_deliveries
 ORDER BY m.sequence_number;

-- name: rabbit_take_no_ack_past_locked
-- As rabbit_take_no_ack, without walking past many unacknowledged messages.
WITH
-- include: rabbit_entity
,
-- include: rabbit_past_locked
,
-- include: rabbit_delivered_no_ack
-- include: rabbit_deliveries
 ORDER BY m.sequence_number;

-- name: rabbit_take_no_ack_by_priority
-- As rabbit_take_no_ack, for a priority queue.
WITH
-- include: rabbit_entity
,
-- include: rabbit_by_priority
,
-- include: rabbit_delivered_no_ack
-- include: rabbit_deliveries
 ORDER BY m.priority DESC, m.sequence_number;

-- fragment: rabbit_by_number
-- Messages stored by this transaction, whether or not they have expired.
-- include: rabbit_bounds
,
available AS MATERIALIZED (
    SELECT m.ctid AS tid, m.sequence_number, m.priority, m.first_received_at IS NOT NULL AS redelivered, false AS expired
      FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
       AND m.lock_token IS NULL FOR UPDATE)

-- name: rabbit_deliver_by_number
-- Deliver these messages, just stored, to consumers (RMQ-016).
WITH
-- include: rabbit_entity
,
-- include: rabbit_by_number
,
-- include: rabbit_delivered
-- include: rabbit_deliveries
 ORDER BY m.priority DESC, m.sequence_number;

-- name: rabbit_incoming_deliveries
-- Those of these messages that a connection holds, with their content.
SELECT e.path, m.sequence_number, m.lock_token, m.consumer_id, m.body, m.message_id, m.properties, m.application_properties,
       m.encoded, m.delivery_count, m.enqueued_at, m.first_received_at < m.last_received_at AS redelivered
  FROM vitrine_message AS m JOIN vitrine_entity_now AS e ON e.id = m.entity_id
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
   AND m.owner_id = %(owner_id)s
 ORDER BY m.sequence_number;

-- name: rabbit_deliver_by_number_no_ack
-- As rabbit_deliver_by_number, for consumers that do not acknowledge.
WITH
-- include: rabbit_entity
,
-- include: rabbit_by_number
,
-- include: rabbit_delivered_no_ack
-- include: rabbit_deliveries
 ORDER BY m.priority DESC, m.sequence_number;

-- fragment: rabbit_owned
-- The messages held by these tokens, in number order to avoid deadlocks.
owned AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT * FROM unnest(%(numbers)b::bigint[], %(tokens)b::uuid[]) AS t(number, token) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid, m.sequence_number, m.lock_token, m.locked_by, m.message_id, m.enqueued_at, m.first_received_at,
                  m.last_received_at, m.size, m.delivery_count,
                  -- include: rabbit_has_expired
                  AS expired
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = t.number
              AND m.lock_token = t.token AND EXISTS (SELECT FROM entity)
              FOR UPDATE) AS found)

-- name: rabbit_acknowledge
-- Delete the messages held by these tokens, even if they have expired (RMQ-019). Tokens missing from the result held nothing. As
-- `complete`, a DELETE that judges a row by its newest version, in the order of the numbers.
WITH entity AS MATERIALIZED (SELECT now, history_level FROM vitrine_entity_now WHERE id = %(entity_id)s),
changed AS (
    DELETE FROM vitrine_message AS m
     USING entity AS e
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[]) AND (m.lock_token IN (SELECT unnest(%(tokens)b::uuid[]))) IS TRUE
 RETURNING m.sequence_number, m.lock_token, m.size, m.delivery_count, m.enqueued_at, m.first_received_at, m.last_received_at,
           m.message_id, e.now, e.history_level
           -- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body
),
-- kept from: changed AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id)
    SELECT now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_COMPLETED, sequence_number, delivery_count,
           enqueued_at, first_received_at, last_received_at, message_id
      FROM changed WHERE history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, x.state, x.until, -c.n, -c.bytes, x.op
      FROM (SELECT count(*) AS n, sum(size) AS bytes FROM changed HAVING count(*) > 0) AS c
     CROSS JOIN (VALUES (@STATE_ACTIVE, NULL::timestamptz, @OP_COMPLETED),
                        (@LEDGER_LOCKED, 'infinity', NULL)) AS x(state, until, op))
SELECT sequence_number, lock_token FROM changed;

-- name: rabbit_requeue
-- Requeue deliveries: ready again in their positions with unchanged expiry (RMQ-020, RMQ-116). Messages at the delivery limit
-- are not changed and returned as spent (RMQ-121). kind: of the event; counts: whether this is a failed delivery; delivered:
-- false if the message never reached the client, and so is not redelivered next time (RMQ-119).
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
       SET lock_token = NULL, owner_id = NULL, consumer_id = NULL, locked_by = NULL, ready_priority = m.priority,
           delivery_count = m.delivery_count + %(counts)s::bool::int,
           first_received_at = CASE WHEN %(delivered)s OR m.delivery_count > 0 OR m.first_received_at < m.last_received_at
                                    THEN m.first_received_at END
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM judged WHERE NOT spent)) RETURNING m.subqueue, m.sequence_number, m.priority),
returned AS (
    -- include: returned
      FROM changed AS r WHERE r.priority IS NULL),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, message_id, reason)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, CASE %(kind)s::int WHEN @EVENT_LOCK_LOST THEN o.locked_by ELSE %(actor)s END,
           %(kind)s, o.sequence_number, o.delivery_count + %(counts)s::bool::int, o.message_id, %(reason)s
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

-- name: rabbit_deliveries
-- Which of these messages are unacknowledged, and the connection that holds each.
SELECT m.sequence_number, m.lock_token, m.owner_id
  FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[]) AND m.owner_id IS NOT NULL
 ORDER BY m.sequence_number;

-- name: rabbit_held_of
-- The unacknowledged messages of a queue.
SELECT m.lock_token FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.owner_id IS NOT NULL
 ORDER BY m.sequence_number;

-- name: rabbit_held
-- The unacknowledged messages of a connection, by queue. The ledger has their number, which bounds the scan of each queue.
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

-- fragment: rabbit_ready_count
-- The number of ready messages of a queue, and their bytes: all less the unacknowledged ones.
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
-- The number of ready messages of these queues (RMQ-128), and their bytes (RMQ-090). Includes expired messages not yet at the
-- head (RMQ-013).
SELECT q.id AS entity_id, r.n::bigint AS n, r.bytes::bigint AS bytes
  FROM unnest(%(entity_ids)b::bigint[]) AS q(id) CROSS JOIN LATERAL
       -- include: rabbit_ready_count
       AS r;

-- name: rabbit_lock_counters
-- Block publishing to these queues until commit, so that the result of `rabbit_ready` remains true.
SELECT c.entity_id
  FROM (SELECT DISTINCT id FROM unnest(%(entity_ids)b::bigint[]) AS t(id) ORDER BY id) AS t
 CROSS JOIN LATERAL (SELECT entity_id FROM vitrine_entity_counter WHERE entity_id = t.id FOR UPDATE) AS c;

-- fragment: rabbit_departing
-- The columns needed to dead-letter a message, without its body. Without `dead_letters`, properties are not read.
m.sequence_number, m.message_id, m.priority, m.lock_token, m.size, (SELECT now FROM entity) AS now,
-- include: rabbit_has_expired
AS expired,
CASE WHEN %(dead_letters)s THEN m.properties END AS properties,
CASE WHEN %(dead_letters)s THEN m.application_properties END AS application_properties,
CASE WHEN %(dead_letters)s THEN m.encoded END AS encoded

-- name: rabbit_lock_departing_by_token
-- Lock the messages held by these tokens for removal.
WITH
-- include: rabbit_entity
SELECT found.*
  FROM (SELECT * FROM unnest(%(numbers)b::bigint[], %(tokens)b::uuid[]) AS t(number, token) ORDER BY number) AS t
 CROSS JOIN LATERAL (
       SELECT
              -- include: rabbit_departing
         FROM vitrine_message AS m
        WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
          AND m.sequence_number = t.number AND m.lock_token = t.token
          AND EXISTS (SELECT FROM entity)
          FOR UPDATE) AS found;

-- name: rabbit_lock_departing_by_number
-- Lock those of these messages that are ready and have expired.
WITH
-- include: rabbit_entity
SELECT
       -- include: rabbit_departing
  FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
   AND m.lock_token IS NULL AND
       -- include: rabbit_has_expired
 ORDER BY m.sequence_number FOR UPDATE SKIP LOCKED;

-- fragment: rabbit_expired_prefix
SELECT
       -- include: rabbit_departing
  FROM vitrine_message AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM walked
                            WHERE place < coalesce((SELECT min(place) FROM walked WHERE NOT expired), 9223372036854775807)))
   AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL AND
       -- include: rabbit_has_expired
 ORDER BY m.priority DESC, m.sequence_number FOR UPDATE SKIP LOCKED

-- fragment: rabbit_walk
-- The first ready messages in delivery order.
SELECT m.ctid AS tid, m.sequence_number, m.priority, m.size,
       -- include: rabbit_has_expired
       AS expired
  FROM vitrine_message AS m
 WHERE EXISTS (SELECT FROM entity) AND m.lock_token IS NULL

-- fragment: rabbit_walked
walked AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.sequence_number) AS place
      FROM (
            -- include: rabbit_walk
               AND
                   -- include: rabbit_above_head
             ORDER BY m.sequence_number LIMIT %(max_count)s) AS w)

-- fragment: rabbit_walked_by_priority
walked AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.priority DESC, w.sequence_number) AS place
      FROM (
            -- include: rabbit_walk
               AND
                   -- include: rabbit_with_priority
             ORDER BY m.ready_priority DESC, m.sequence_number LIMIT %(max_count)s) AS w)

-- name: rabbit_lock_departing_at_head
-- Lock up to max_count expired messages ahead of the first ready message that has not expired (RMQ-012).
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked
-- include: rabbit_expired_prefix
;

-- name: rabbit_lock_departing_at_head_by_priority
-- As rabbit_lock_departing_at_head, for a priority queue (RMQ-027).
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked_by_priority
-- include: rabbit_expired_prefix
;

-- name: rabbit_lock_departing_anywhere
-- In a queue with exact expiry: lock up to max_count ready messages past their stored expiry, in any position (RMQ-901).
WITH
-- include: rabbit_entity
SELECT
       -- include: rabbit_departing
  FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.expires_at <= (SELECT now FROM entity) AND m.lock_token IS NULL
   AND (SELECT expiry_mode FROM entity) = 'eager'
 ORDER BY m.expires_at, m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED;

-- fragment: rabbit_excess
-- Those of `walked` by which the queue exceeds its limit (RMQ-090, RMQ-091). They are determined before they are locked, so
-- that a message concurrently taken by a consumer is not replaced by the next one.
excess AS MATERIALIZED (
    SELECT w.tid
      FROM (SELECT tid, place, sum(size) OVER (ORDER BY place) - size AS before FROM walked) AS w,
           entity AS q CROSS JOIN LATERAL
           -- include: rabbit_ready_count
           AS r
     WHERE w.place <= r.n - (q.effective ->> 'max_length')::bigint
        OR r.bytes - w.before > (q.effective ->> 'max_length_bytes')::bigint)
SELECT
       -- include: rabbit_departing
  FROM vitrine_message AS m
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM excess))
   AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL
 ORDER BY m.priority DESC, m.sequence_number FOR UPDATE SKIP LOCKED

-- name: rabbit_lock_departing_by_queue_ttl
-- In a priority queue with exact expiry: lock the messages that expired by a later TTL; they are the oldest (RMQ-902).
WITH
-- include: rabbit_entity
,
walked AS MATERIALIZED (
    SELECT w.*, row_number() OVER (ORDER BY w.sequence_number) AS place
      FROM (
            -- include: rabbit_walk
               AND (SELECT expiry_mode FROM entity) = 'eager' AND
                   -- include: rabbit_above_head
             ORDER BY m.sequence_number LIMIT %(max_count)s) AS w)
-- include: rabbit_expired_prefix
;

-- name: rabbit_lock_departing_excess
-- Lock up to max_count messages from the head that exceed the queue's limit. The caller holds the queue's counter.
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked
,
-- include: rabbit_excess
;

-- name: rabbit_lock_departing_excess_by_priority
-- As rabbit_lock_departing_excess, for a priority queue: the highest priority first (RMQ-099).
WITH
-- include: rabbit_entity
,
-- include: rabbit_walked_by_priority
,
-- include: rabbit_excess
;

-- name: rabbit_remove_and_store
-- Remove messages locked by this transaction and store the resulting dead letters or moved copies, in one step without loss or
-- duplication (RMQ-911). No row: the topology has changed since routing.
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
-- kept from: gone AS k WHERE k.sequence_number NOT IN (SELECT place FROM placed)
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
-- The sequence numbers of messages in a range, in order.
WITH
-- include: rabbit_entity
SELECT m.sequence_number
  FROM vitrine_message AS m
 WHERE
       -- include: rabbit_present
   AND m.sequence_number > %(after)s AND m.sequence_number <= %(last_number)s
 ORDER BY m.sequence_number LIMIT %(max_count)s;

-- name: rabbit_movable
-- The columns that decide whether these messages can be moved. is_unacked: unacknowledged. Locks nothing.
WITH
-- include: rabbit_entity
SELECT m.lock_token IS NOT NULL AS is_unacked,
       -- include: rabbit_departing
  FROM vitrine_message AS m
 WHERE EXISTS (SELECT FROM entity) AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
 ORDER BY m.sequence_number;

-- name: rabbit_hold_movable
-- Lock those of these messages that are ready. Messages locked by others are skipped.
WITH
-- include: rabbit_entity
SELECT m.sequence_number,
       -- include: rabbit_has_expired
       AS expired
  FROM vitrine_message AS m
 WHERE EXISTS (SELECT FROM entity) AND m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[]) AND m.lock_token IS NULL
 ORDER BY m.sequence_number FOR UPDATE SKIP LOCKED;

-- name: rabbit_purge
-- Delete up to max_count ready messages up to a number; unacknowledged ones stay, and nothing is dead-lettered (RMQ-028).
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
-- kept from: changed AS k
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

-- name: rabbit_edit
-- Replace the body, the headers, or both, of a ready message that has not expired, if it has this version, for an operator
-- (RMQ-931). No row: there is no such message.
WITH
-- include: rabbit_entity
,
judged AS MATERIALIZED (
    SELECT f.*, NULL::timestamptz AS held_until, (q.effective ->> 'max_length_bytes')::bigint AS most,
           CASE WHEN f.is_held THEN 'held'
                WHEN f.expired THEN 'expired'
                WHEN f.has_changed THEN 'changed'
                WHEN f.growth > 0 AND (q.effective ->> 'max_length_bytes')::bigint < f.growth + (
                     SELECT r.bytes FROM
                            -- include: rabbit_ready_count
                            AS r) THEN 'full' END AS problem
      FROM entity AS q
     CROSS JOIN LATERAL (
           SELECT
                  -- include: editable
                  , m.lock_token IS NOT NULL AS is_held,
                  -- include: rabbit_has_expired
                  AS expired
             FROM vitrine_message AS m
            WHERE m.entity_id = q.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = %(number)s::bigint FOR UPDATE) AS f),
-- include: changed_content
,
-- include: grown
,
-- include: edited
;

-- name: rabbit_last_number
-- The last sequence number assigned in a queue.
SELECT next_number - 1 AS last_number FROM vitrine_entity_counter WHERE entity_id = %(entity_id)s;

-- name: rabbit_now
-- The time in a virtual host.
SELECT now FROM vitrine_namespace_now WHERE id = %(namespace_id)s;

-- name: rabbit_is_topology_current
-- Whether a virtual host's topology still has this version.
SELECT EXISTS (SELECT FROM vitrine_namespace
                WHERE id = %(namespace_id)s AND topology_version = %(topology_version)s) AS is_current;

-- name: rabbit_queues_due
-- Those of these queues that exceed their limit or have expired messages to remove now.
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
              -- By a TTL that became effective later, the oldest expires first.
              OR e.default_message_time_to_live IS NOT NULL AND e.now >= e.default_message_time_to_live + (
                 SELECT m.enqueued_at FROM vitrine_message AS m
                  WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.lock_token IS NULL
                    AND m.sequence_number >= (SELECT head FROM vitrine_queue_head
                                               WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN)
                  ORDER BY m.sequence_number LIMIT 1) AS expired) AS x
 WHERE e.family = 'rabbitmq' AND l.n > 0 AND (x.over OR x.expired)
 ORDER BY e.id;

-- name: rabbit_heads_due
-- The dead-lettering queues of a virtual host with a message to remove now: the next to be delivered, or any in a queue with
-- exact expiry. For consumers waiting for dead letters: one or two index probes per queue.
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
           AND m.entity_id + 0 = e.id AND m.subqueue + 0 = @SUBQUEUE_MAIN AND m.state + 0 = @STATE_ACTIVE
           AND m.ready_priority IS NOT NULL
         ORDER BY m.ready_priority DESC, m.sequence_number LIMIT 1)
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

-- name: hold_connection_unless_ending
-- Prevent a connection from ending before this transaction does. Skips one that is being ended, since waiting for it could
-- deadlock.
SELECT id FROM vitrine_connection WHERE id = %(connection_id)s FOR KEY SHARE SKIP LOCKED;
