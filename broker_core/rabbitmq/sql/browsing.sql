-- Read-only statements for the explorer. They do not count as use of a queue and do not mark messages as redelivered
-- (RMQ-906).

-- name: browse_message_facts
-- Metadata of these messages of a queue. redelivered: delivered before the current delivery, if any.
SELECT m.sequence_number, m.properties ->> 'exchange' AS exchange, m.properties ->> 'routing_key' AS routing_key,
       m.properties ->> 'expiration' AS expiration, m.application_properties -> 'x-death' AS deaths,
       m.first_received_at IS NOT NULL AND (m.owner_id IS NULL OR m.delivery_count > 0) AS redelivered,
       m.owner_id, k.name AS connection
  FROM vitrine_message AS m LEFT JOIN vitrine_connection AS k ON k.id = m.owner_id
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)s::bigint[]);

-- name: browse_queue_head
-- The first messages of a queue in delivery order, with the number of expired messages behind the first deliverable one
-- (RMQ-013). Reads at most `cap` messages.
WITH entity AS MATERIALIZED (
    SELECT id, now, default_message_time_to_live AS ttl, (effective ->> 'max_priority')::int > 0 AS by_priority
      FROM vitrine_entity_now WHERE id = %(entity_id)s
), head AS MATERIALIZED (
    SELECT coalesce((SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN),
                    1) AS number
), looked_at AS MATERIALIZED (
    SELECT m.sequence_number, coalesce(m.priority, 0) AS priority, m.owner_id,
           least(m.expires_at, m.enqueued_at + (SELECT ttl FROM entity)) <= (SELECT now FROM entity) AS is_over,
           coalesce(m.application_properties ? 'x-death', false) AS has_died
      FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number >= (SELECT number FROM head)
     ORDER BY m.sequence_number LIMIT %(cap)s
), ready AS MATERIALIZED (
    SELECT l.sequence_number, coalesce(l.is_over, false) AS is_over,
           row_number() OVER (ORDER BY CASE WHEN (SELECT by_priority FROM entity) THEN -l.priority END NULLS LAST,
                              l.sequence_number) AS place
      FROM looked_at AS l WHERE l.owner_id IS NULL
), first_alive AS MATERIALIZED (
    SELECT sequence_number, place FROM ready WHERE NOT is_over ORDER BY place LIMIT 1
)
SELECT (SELECT count(*) FROM looked_at) AS scanned, (SELECT count(*) FROM looked_at WHERE has_died) AS died,
       (SELECT count(*) FROM ready AS r WHERE r.is_over AND r.place > (SELECT place FROM first_alive)) AS behind_the_head,
       (SELECT count(*) FROM ready AS r
         WHERE r.is_over AND r.place < coalesce((SELECT place FROM first_alive), 'infinity'::float8)) AS at_the_head,
       (SELECT sequence_number FROM first_alive) AS head,
       (SELECT
        -- include: unused_since
        + e.auto_delete_on_idle FROM vitrine_entity AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
         WHERE e.id = %(entity_id)s AND NOT EXISTS (SELECT FROM vitrine_consumer AS c WHERE c.queue_id = e.id)) AS expires_at,
       (SELECT k.name FROM vitrine_entity AS e JOIN vitrine_connection AS k ON k.id = e.owner_id
         WHERE e.id = %(entity_id)s) AS owner;

-- name: browse_consumers
-- Consumers of a virtual host, of one of its queues, or of one connection, in registration order for each queue.
SELECT c.id, c.tag, c.channel, c.no_ack, c.exclusive, c.priority, c.prefetch, c.arguments, c.began_at, c.connection_id,
       k.name AS connection, k.actor, q.id AS entity_id, q.path AS queue
  FROM vitrine_consumer AS c JOIN vitrine_connection AS k ON k.id = c.connection_id
  JOIN vitrine_entity AS q ON q.id = c.queue_id JOIN vitrine_namespace AS n ON n.id = q.namespace_id
 WHERE lower(n.name) = lower(%(vhost)s) AND (%(queue)s::text IS NULL OR q.path = %(queue)s::text)
   AND (%(connection_id)s::bigint IS NULL OR c.connection_id = %(connection_id)s::bigint)
 ORDER BY q.path, c.id LIMIT %(max_count)s;

-- name: browse_connections
-- Connections of a virtual host, or of an actor, with their process; lease_left: how long that is considered alive without
-- renewing its lease.
SELECT k.id, k.name, k.actor, k.opened_at, n.name AS vhost,
       vitrine_clock(n.clock_base_at, n.clock_base_real, n.clock_rate) AS now,
       p.epoch, p.label AS process, p.started_at, p.lease_until,
       p.lease_until - clock_timestamp() AS lease_left,
       (SELECT count(*) FROM vitrine_consumer AS c WHERE c.connection_id = k.id) AS consumers,
       ARRAY(SELECT e.path FROM vitrine_entity AS e WHERE e.owner_id = k.id AND e.deleted_at IS NULL
             ORDER BY e.path LIMIT 20) AS owned
  FROM vitrine_connection AS k JOIN vitrine_broker_process AS p ON p.epoch = k.epoch
  JOIN vitrine_namespace AS n ON n.id = k.namespace_id
 WHERE (%(vhost)s::text IS NULL OR lower(n.name) = lower(%(vhost)s)) AND (%(actor)s::text IS NULL OR k.actor = %(actor)s)
 ORDER BY k.id LIMIT %(max_count)s;

-- name: browse_unacked_of_consumers
-- How many messages each consumer of a queue has not acknowledged. Reads at most `cap` messages, from the head of the queue.
SELECT x.consumer_id, count(*)::int AS unacked
  FROM (SELECT y.consumer_id FROM vitrine_message AS y
         WHERE y.entity_id = %(entity_id)s AND y.subqueue = @SUBQUEUE_MAIN AND y.state = @STATE_ACTIVE
           AND y.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                               WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN), 1)
         ORDER BY y.sequence_number LIMIT %(cap)s) AS x
 WHERE x.consumer_id IS NOT NULL GROUP BY x.consumer_id;

-- name: browse_unacked
-- Unacknowledged messages by queue and connection. Reads at most `cap` messages of each queue, from its head, where most of
-- them are.
SELECT e.id AS entity_id, e.path AS queue, m.owner_id, count(*) AS unacked, bool_or(m.scanned >= %(cap)s) AS capped
  FROM vitrine_entity AS e
 CROSS JOIN LATERAL (
       SELECT x.owner_id, count(*) OVER () AS scanned FROM (
           SELECT y.owner_id FROM vitrine_message AS y
            WHERE y.entity_id = e.id AND y.subqueue = @SUBQUEUE_MAIN AND y.state = @STATE_ACTIVE
              AND y.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                                  WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN), 1)
            ORDER BY y.sequence_number LIMIT %(cap)s) AS x) AS m
 WHERE e.id = ANY (%(entity_ids)s::bigint[]) AND m.owner_id IS NOT NULL
 GROUP BY e.id, e.path, m.owner_id ORDER BY e.path, m.owner_id;

-- name: browse_vhost_counts
-- The number of objects in a virtual host. No row: no such virtual host.
SELECT (SELECT count(*) FROM vitrine_exchange AS x WHERE x.namespace_id = n.id) AS exchanges,
       (SELECT count(*) FROM vitrine_binding AS b JOIN vitrine_exchange AS x ON x.id = b.source_id
         WHERE x.namespace_id = n.id) AS bindings,
       (SELECT count(*) FROM vitrine_policy AS p WHERE p.namespace_id = n.id) AS policies,
       (SELECT count(*) FROM vitrine_connection AS k WHERE k.namespace_id = n.id) AS connections,
       (SELECT count(*) FROM vitrine_consumer AS c JOIN vitrine_connection AS k ON k.id = c.connection_id
         WHERE k.namespace_id = n.id) AS consumers
  FROM vitrine_namespace AS n WHERE lower(n.name) = lower(%(vhost)s);

-- name: browse_place
-- How many messages would be delivered before this one. Reads at most `cap` messages, from the head of the queue.
WITH entity AS MATERIALIZED (
    SELECT id, now, default_message_time_to_live AS ttl, coalesce((effective ->> 'max_priority')::int, 0) > 0 AS by_priority
      FROM vitrine_entity_now WHERE id = %(entity_id)s
), own AS MATERIALIZED (
    SELECT sequence_number, coalesce(priority, 0) AS priority FROM vitrine_message
     WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE
       AND sequence_number = %(sequence_number)s
), looked_at AS MATERIALIZED (
    SELECT m.sequence_number, coalesce(m.priority, 0) AS priority, m.owner_id,
           least(m.expires_at, m.enqueued_at + (SELECT ttl FROM entity)) <= (SELECT now FROM entity) AS is_over,
           coalesce(m.application_properties ? 'x-death', false) AS has_died
      FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                           WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN), 1)
     ORDER BY m.sequence_number LIMIT %(cap)s
)
SELECT (SELECT count(*) FROM looked_at) >= %(cap)s AS capped,
       (SELECT count(*) FROM looked_at AS l, own AS o
         WHERE l.owner_id IS NULL AND l.is_over IS NOT TRUE
           AND CASE WHEN (SELECT by_priority FROM entity)
                    THEN l.priority > o.priority OR (l.priority = o.priority AND l.sequence_number < o.sequence_number)
                    ELSE l.sequence_number < o.sequence_number END) AS before;

-- name: rabbit_published
-- What was published in a virtual host in the last `seconds` of real time, to one exchange or to all, among the newest max_events
-- events: a row for each queue and kind of publication, with the newest message.
SELECT e.properties ->> 'exchange' AS exchange, e.properties ->> 'routing_key' AS routing_key, e.properties -> 'bcc' AS blind,
       e.application_properties AS headers, q.path, count(*)::int AS messages, max(e.sequence_number) AS number,
       max(e.at) AS last_at
  FROM (SELECT * FROM vitrine_message_event
         WHERE recorded_at >= date_trunc('day', clock_timestamp() - make_interval(secs => %(seconds)s::int), 'UTC')
         ORDER BY xid DESC, event_id DESC LIMIT %(max_events)s) AS e
  JOIN vitrine_entity AS q ON q.id = e.entity_id
 WHERE q.namespace_id = %(namespace_id)s AND e.kind = @EVENT_SENT AND e.properties ? 'exchange'
   AND e.recorded_at >= clock_timestamp() - make_interval(secs => %(seconds)s::int)
   AND (%(exchange)s::text IS NULL OR e.properties ->> 'exchange' = %(exchange)s)
 GROUP BY 1, 2, 3, 4, 5;
