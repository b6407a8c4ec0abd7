-- The connections of processes and their consumers, and what ends with them. Processes: store/sql/process.sql.

-- name: delete_process
-- Unless connections of it remain to be ended.
DELETE FROM vitrine_broker_process AS p
 WHERE p.epoch = %(epoch)s AND NOT EXISTS (SELECT FROM vitrine_connection AS c WHERE c.epoch = p.epoch);

-- name: open_connection
-- Open a connection of a live process. No row: no such virtual host. id NULL: the process was declared dead. The virtual host
-- is locked against deletion.
WITH vhost AS MATERIALIZED (
    SELECT id, name, vitrine_clock(clock_base_at, clock_base_real, clock_rate) AS now
      FROM vitrine_namespace
     WHERE lower(name) = lower(%(vhost)s) AND name = %(vhost)s AND family = 'rabbitmq' AND deleted_at IS NULL
       FOR KEY SHARE),
process AS MATERIALIZED (
    SELECT epoch FROM vitrine_broker_process WHERE epoch = %(epoch)s AND lease_until > to_timestamp(0) FOR KEY SHARE),
opened AS (
    INSERT INTO vitrine_connection (epoch, namespace_id, name, actor, opened_at)
    SELECT process.epoch, vhost.id, %(name)s, %(actor)s, vhost.now FROM vhost, process
    RETURNING id)
SELECT vhost.id AS namespace_id, vhost.name, vhost.now AS opened_at, (SELECT id FROM opened) AS id FROM vhost;

-- name: connections_to
-- The connections to a virtual host.
SELECT c.id FROM vitrine_connection AS c WHERE c.namespace_id = %(namespace_id)s ORDER BY c.id;

-- name: connections_of
-- The connections of a process.
SELECT c.id FROM vitrine_connection AS c WHERE c.epoch = %(epoch)s ORDER BY c.id;

-- name: reassign_to_dead_process
-- Reassign connections that a live process no longer refers to, to a dead one, so that recovery ends them.
WITH dead AS (
    INSERT INTO vitrine_broker_process (label, started_at, lease_until)
    VALUES (%(label)s, clock_timestamp(), to_timestamp(0)) RETURNING epoch)
UPDATE vitrine_connection AS c SET epoch = dead.epoch FROM dead WHERE c.id = ANY (%(connection_ids)s::bigint[])
 RETURNING dead.epoch;

-- name: vhost_of_connection
-- No row: the connection has ended.
SELECT n.name FROM vitrine_connection AS c JOIN vitrine_namespace AS n ON n.id = c.namespace_id WHERE c.id = %(connection_id)s;

-- name: hold_connection
-- Prevent a connection from ending before this transaction does.
SELECT id FROM vitrine_connection WHERE id = %(connection_id)s FOR KEY SHARE;

-- name: lock_connection
-- Prevent deliveries and declarations for a connection that is being ended: both lock the row.
SELECT id FROM vitrine_connection WHERE id = %(connection_id)s FOR UPDATE;

-- name: queues_consumed
-- The queues consumed by a connection, or by one of its channels.
SELECT DISTINCT queue_id FROM vitrine_consumer
 WHERE connection_id = %(connection_id)s AND (%(channel)s::int IS NULL OR channel = %(channel)s::int);

-- name: delete_consumers_of
-- Of a connection, or of one of its channels.
DELETE FROM vitrine_consumer WHERE connection_id = %(connection_id)s AND (%(channel)s::int IS NULL OR channel = %(channel)s::int);

-- name: queues_of_connection
-- The exclusive queues of a connection.
SELECT e.id, e.path FROM vitrine_connection AS c JOIN vitrine_entity AS e ON e.namespace_id = c.namespace_id
 WHERE c.id = %(connection_id)s AND e.owner_id = c.id AND e.deleted_at IS NULL;

-- name: delete_connection
-- The last step of ending a connection: until then other rows refer to its id.
DELETE FROM vitrine_connection WHERE id = %(connection_id)s;

-- name: notify_connection
-- Notify the process of a connection on commit, over the session that holds its epoch: a live process receives it.
SELECT pg_notify('vitrine_process', 'connection ' || %(connection_id)s::bigint || ' ' || %(notice)s::text);

-- name: remote_consumers
-- The consumers that may receive messages of a queue at once, without those in `excluded`; the least loaded first. credit,
-- channel_credit: what the prefetch of the consumer and of its channel leave beside their unacknowledged messages of this queue,
-- and thus at least what they can take; NULL: no limit. The ledger has the number of unacknowledged messages, which bounds the
-- scan.
WITH held AS MATERIALIZED (
    SELECT h.consumer_id, count(*)::int AS n
      FROM (SELECT m.consumer_id FROM vitrine_message AS m
             WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
               AND m.lock_token IS NOT NULL
               AND m.sequence_number >= (SELECT head FROM vitrine_queue_head
                                          WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN)
             ORDER BY m.sequence_number
             LIMIT (SELECT coalesce(sum(l.n), 0)
                      FROM (SELECT n FROM vitrine_count_base
                             WHERE entity_id = %(entity_id)s AND state = @LEDGER_LOCKED AND until = 'infinity'
                            UNION ALL
                            SELECT n FROM vitrine_count_delta
                             WHERE entity_id = %(entity_id)s AND state = @LEDGER_LOCKED AND until = 'infinity') AS l)) AS h
     GROUP BY h.consumer_id),
consumer AS MATERIALIZED (
    SELECT c.*, coalesce(h.n, 0) AS held,
           sum(coalesce(h.n, 0)) OVER (PARTITION BY c.connection_id, c.channel) AS held_by_channel
      FROM vitrine_consumer AS c LEFT JOIN held AS h ON h.consumer_id = c.id
     WHERE c.queue_id = %(entity_id)s)
SELECT c.id, c.connection_id, x.actor AS holder, c.channel, c.priority, c.no_ack,
       CASE WHEN c.prefetch > 0 THEN greatest(c.prefetch - c.held, 0) END AS credit,
       CASE WHEN c.channel_prefetch > 0 THEN greatest(c.channel_prefetch - c.held_by_channel, 0)::int END AS channel_credit
  FROM consumer AS c
  JOIN vitrine_connection AS x ON x.id = c.connection_id
  JOIN vitrine_broker_process AS p ON p.epoch = x.epoch AND p.lease_until > clock_timestamp()
 WHERE c.id <> ALL (%(excluded)s::bigint[])
   AND (NOT %(single_active)s OR c.id = (SELECT min(id) FROM vitrine_consumer WHERE queue_id = %(entity_id)s))
 ORDER BY c.held, c.id;

-- name: use_queue
-- Record the use of a queue by a get, a declaration or a consumer, which restarts its x-expires (RMQ-041) unless it has
-- expired.
WITH found AS MATERIALIZED (
    SELECT e.id, e.owner_id, e.now, e.auto_delete_on_idle IS NOT NULL AS expires,
           -- include: unused_for_too_long
           AS is_over
      FROM vitrine_entity_now AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
     WHERE lower(e.namespace_name) = lower(%(vhost)s) AND e.key = %(name)s AND e.family = 'rabbitmq'),
touched AS (
    UPDATE vitrine_entity_activity AS a SET last_activity_at = greatest(a.last_activity_at, f.now)
      FROM found AS f WHERE a.entity_id = f.id AND f.expires AND NOT f.is_over)
SELECT id, owner_id, is_over FROM found;

-- name: restart_expiry
-- Restart the x-expires of these queues: their last consumer ended (RMQ-043), or a policy was applied (RMQ-048).
UPDATE vitrine_entity_activity AS a SET last_activity_at = greatest(a.last_activity_at, e.now)
  FROM vitrine_entity_now AS e
 WHERE e.id = ANY (%(entity_ids)s) AND a.entity_id = e.id AND e.auto_delete_on_idle IS NOT NULL;

-- name: lock_unused_queue
-- Lock an expired queue against use until the transaction ends; no row: it has not expired, or does not exist.
SELECT e.id, e.path FROM vitrine_entity_now AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
 WHERE e.id = %(entity_id)s AND
       -- include: unused_for_too_long
   FOR UPDATE OF a;

-- name: lock_queue_to_consume
-- Serialises starting and ending consumers of a queue.
SELECT e.id, e.options, e.effective FROM vitrine_entity AS e
 WHERE e.id = %(entity_id)s AND e.deleted_at IS NULL FOR NO KEY UPDATE;

-- name: add_consumer
-- Register a consumer; the first one arms an auto-delete queue. No row: an exclusive consumer prevents it (RMQ-149).
WITH others AS MATERIALIZED (
    SELECT count(*) AS n, coalesce(bool_or(exclusive), false) AS exclusive FROM vitrine_consumer WHERE queue_id = %(queue_id)s),
added AS (
    INSERT INTO vitrine_consumer (connection_id, channel, queue_id, tag, no_ack, exclusive, priority,
                                  prefetch, channel_prefetch, arguments, began_at)
    SELECT %(connection_id)s, %(channel)s, e.id, %(tag)s, %(no_ack)s, %(exclusive)s, %(priority)s, %(prefetch)s,
           %(channel_prefetch)s, %(arguments)s::text::jsonb, e.now
      FROM others, vitrine_entity_now AS e
     WHERE e.id = %(queue_id)s AND NOT others.exclusive AND NOT (%(exclusive)s AND others.n > 0)
    RETURNING id),
armed AS (
    UPDATE vitrine_entity SET options = options || '{"had_consumer": true}'
     WHERE id = %(queue_id)s AND (options->>'auto_delete')::bool AND NOT (options->>'had_consumer')::bool
       AND EXISTS (SELECT FROM added))
SELECT added.id, others.n = 0 AS is_first FROM added, others;

-- name: set_channel_prefetch
-- The prefetch of a channel, with its consumers (RMQ-141): other processes estimate by it how many messages they can take.
UPDATE vitrine_consumer SET channel_prefetch = %(prefetch)s WHERE connection_id = %(connection_id)s AND channel = %(channel)s;

-- name: remove_consumer
-- No row: it ended with its queue, channel or connection.
DELETE FROM vitrine_consumer WHERE id = %(consumer_id)s RETURNING queue_id;

-- name: queues_without_consumers
-- Of queues that lost consumers, those that have none left: auto-delete queues are deleted, others become unused.
SELECT e.id, e.path, (e.options->>'auto_delete')::bool AND (e.options->>'had_consumer')::bool AS is_auto_delete
  FROM vitrine_entity AS e
 WHERE e.id = ANY (%(entity_ids)s) AND e.deleted_at IS NULL
   AND NOT EXISTS (SELECT FROM vitrine_consumer AS c WHERE c.queue_id = e.id);

-- name: lock_queues_of_consumers
-- Prevents new consumers until the transaction ends.
SELECT id FROM vitrine_entity WHERE id = ANY (%(entity_ids)s) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE;

-- name: channel_consumers
-- The consumers of a channel whose queues still exist. may_take: only the first consumer of a single-active-consumer queue is
-- active (RMQ-148). consumer_id NULL: no consumers; no row: the connection has ended.
SELECT c.id AS consumer_id,
       NOT (coalesce((e.effective->>'single_active_consumer')::bool, false)
            AND EXISTS (SELECT FROM vitrine_consumer AS o WHERE o.queue_id = c.queue_id AND o.id < c.id)) AS may_take
  FROM vitrine_connection AS k
  LEFT JOIN (vitrine_consumer AS c JOIN vitrine_entity AS e ON e.id = c.queue_id AND e.deleted_at IS NULL)
         ON c.connection_id = k.id AND c.channel = %(channel)s
 WHERE k.id = %(connection_id)s;

-- name: notify_waiting_consumers
-- Notify the processes that wait for messages of these queues, which are being deleted, on commit.
SELECT pg_notify('vitrine_wake', entity_id::text) FROM vitrine_entity_activity
 WHERE entity_id = ANY (%(entity_ids)b::bigint[]) AND waiting_until > clock_timestamp();

-- name: active_consumer
-- The single active consumer of a queue: the first one (RMQ-148).
SELECT min(id) AS id FROM vitrine_consumer WHERE queue_id = %(entity_id)s;

-- name: overdue_deliveries
-- Deliveries not acknowledged within their queue's timeout, 30 minutes by default (RMQ-126, RMQ-127, RMQ-924). The number of
-- unacknowledged messages bounds the scan of each queue; they are mostly at its head. Also deliveries of ended connections,
-- which a suspended process may have made.
SELECT e.id AS entity_id, e.namespace_name AS vhost, e.path, m.owner_id, m.lock_token, m.sequence_number,
       t.timeout AS milliseconds
  FROM (SELECT l.entity_id, sum(l.n) AS n
          FROM (SELECT entity_id, n FROM vitrine_count_base WHERE state = @LEDGER_LOCKED AND until = 'infinity'
                UNION ALL SELECT entity_id, n FROM vitrine_count_delta WHERE state = @LEDGER_LOCKED AND until = 'infinity') AS l
         GROUP BY l.entity_id HAVING sum(l.n) > 0) AS unacked
  JOIN vitrine_entity_now AS e ON e.id = unacked.entity_id AND e.family = 'rabbitmq'
 CROSS JOIN LATERAL (SELECT coalesce((e.effective->>'consumer_timeout')::bigint, %(default_timeout)s::bigint) AS timeout) AS t
 CROSS JOIN LATERAL (
       SELECT owner_id, lock_token, sequence_number, last_received_at FROM vitrine_message
        WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE AND owner_id IS NOT NULL
          AND sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN)
        ORDER BY sequence_number LIMIT unacked.n) AS m
 WHERE t.timeout > 0 AND m.last_received_at + t.timeout * interval '1 ms' <= e.now
    OR NOT EXISTS (SELECT FROM vitrine_connection AS c WHERE c.id = m.owner_id)
 ORDER BY e.id, m.sequence_number LIMIT %(max_count)s;

-- name: settlement_failure
-- Whether a connection still exists, and the shortest acknowledgement timeout of those of the queues that exist; NULL: none
-- does.
SELECT EXISTS (SELECT FROM vitrine_connection WHERE id = %(connection_id)s) AS is_connected,
       (SELECT min(coalesce((e.effective->>'consumer_timeout')::bigint, %(default_timeout)s::bigint)) FROM vitrine_entity AS e
         WHERE e.id = ANY (%(entity_ids)s) AND e.deleted_at IS NULL) AS milliseconds;
