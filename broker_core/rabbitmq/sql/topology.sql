-- Exchanges, bindings, queues and policies of a virtual host. Changes are serialised by locking the row of the virtual host
-- first.

-- name: lock_vhost
-- Prevent other topology changes until the transaction ends. Publishers only read the row and are not blocked.
SELECT id, name, family, topology_version FROM vitrine_namespace WHERE lower(name) = lower(%(vhost)s) AND deleted_at IS NULL
   FOR NO KEY UPDATE;

-- name: share_vhost
-- Prevent topology changes until the transaction ends, for an operation that repeated changes have kept from routing.
SELECT id FROM vitrine_namespace WHERE lower(name) = lower(%(vhost)s) AND deleted_at IS NULL FOR SHARE;

-- name: topology_changed
-- In the transaction of the change, which holds the virtual host: raises the version and records what changed, for caches. A
-- version is never reused, even after a rollback, since the transaction may have cached it. is_itemized: otherwise caches
-- reload the whole topology.
WITH before AS MATERIALIZED (SELECT topology_version AS version FROM vitrine_namespace WHERE id = %(namespace_id)s),
raised AS (
    UPDATE vitrine_namespace SET topology_version = nextval('vitrine_topology_version') WHERE id = %(namespace_id)s
     RETURNING topology_version AS version),
recorded AS (
    INSERT INTO vitrine_topology_change (version, previous, namespace_id, queues, exchanges, bindings)
    SELECT raised.version, before.version, %(namespace_id)s::bigint,
           ARRAY(SELECT e.path FROM vitrine_entity AS e WHERE e.id = ANY (%(queue_ids)s::bigint[])),   -- including deleted ones
           %(exchanges)s::text[], %(bindings)s::bigint[]
      FROM before, raised WHERE %(is_itemized)s::bool),
pruned AS (                                           -- of all hosts, skipping rows pruned concurrently
    DELETE FROM vitrine_topology_change
     WHERE version IN (SELECT c.version FROM vitrine_topology_change AS c
                        WHERE c.version < (SELECT version FROM raised) - 1000 LIMIT 100 FOR UPDATE SKIP LOCKED))
SELECT version FROM raised;

-- name: insert_exchanges
-- Existing exchanges are not changed.
INSERT INTO vitrine_exchange AS x (namespace_id, name, type, durable, auto_delete, internal, arguments, effective, created_at)
SELECT %(namespace_id)s::bigint, t.name, t.type, t.durable, t.auto_delete, t.internal, t.arguments::jsonb,
       t.effective::jsonb, clock_timestamp()
  FROM unnest(%(names)s::text[], %(types)s::text[], %(durable)s::bool[], %(auto_delete)s::bool[],
              %(internal)s::bool[], %(arguments)s::text[],
              %(effective)s::text[]) AS t(name, type, durable, auto_delete, internal, arguments, effective)
ON CONFLICT (namespace_id, name) DO NOTHING
RETURNING x.id, x.name;

-- name: find_rabbitmq_queue
-- A queue by its exact name. No row: no such virtual host; id NULL: no such queue. ready: including expired messages not yet
-- at the head (RMQ-013).
SELECT n.id AS namespace_id, n.name AS vhost, n.family, e.id, e.path AS name, e.options, e.effective, e.owner_id,
       e.history_level, e.created_at,
       (SELECT coalesce(sum(CASE l.state WHEN @STATE_ACTIVE THEN l.n ELSE -l.n END), 0)::bigint
          FROM (SELECT state, until, n FROM vitrine_count_base
                 WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN AND state IN (@STATE_ACTIVE, @LEDGER_LOCKED)
                UNION ALL
                SELECT state, until, n FROM vitrine_count_delta
                 WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN AND state IN (@STATE_ACTIVE, @LEDGER_LOCKED)
               ) AS l) AS ready,
       (SELECT count(*) FROM vitrine_consumer AS c WHERE c.queue_id = e.id) AS consumers
  FROM vitrine_namespace AS n
  LEFT JOIN vitrine_entity AS e ON e.namespace_id = n.id AND e.key = %(name)s AND e.deleted_at IS NULL
 WHERE lower(n.name) = lower(%(vhost)s) AND n.deleted_at IS NULL;

-- name: lock_rabbitmq_queue
-- Block publishing to a queue and new consumers until the transaction ends, so that its counts remain true.
SELECT e.id FROM vitrine_entity AS e JOIN vitrine_entity_counter AS c ON c.entity_id = e.id WHERE e.id = %(entity_id)s FOR UPDATE;

-- name: bindings_of_queues
-- The bindings to queues that are about to be soft-deleted, as JSON.
SELECT queue_id, jsonb_agg(to_jsonb(b)) AS bindings FROM vitrine_binding AS b
 WHERE queue_id = ANY (%(entity_ids)s::bigint[]) GROUP BY queue_id;

-- name: keep_soft_deleted_bindings
-- Keep the bindings of a queue that was soft-deleted.
UPDATE vitrine_soft_deleted SET bindings = %(bindings)s::jsonb WHERE entity_id = %(entity_id)s;

-- name: unbind_queues
-- Delete the bindings and consumers of queues that are about to be deleted. Returns the bindings with their source exchanges.
WITH consumers AS (DELETE FROM vitrine_consumer WHERE queue_id = ANY (%(entity_ids)s))
DELETE FROM vitrine_binding WHERE queue_id = ANY (%(entity_ids)s) RETURNING id, source_id;

-- name: delete_idle_exchanges
-- Delete those of these exchanges that are auto-delete and have no binding as source, with the bindings to them. Returns their
-- names, those bindings, and the source exchanges of these (RMQ-313).
WITH idle AS (
    SELECT x.id FROM vitrine_exchange AS x
     WHERE x.id = ANY (%(ids)s) AND x.auto_delete AND NOT EXISTS (SELECT FROM vitrine_binding AS b WHERE b.source_id = x.id)),
bindings AS (DELETE FROM vitrine_binding WHERE exchange_id IN (SELECT id FROM idle) RETURNING id, source_id),
gone AS (DELETE FROM vitrine_exchange WHERE id IN (SELECT id FROM idle) RETURNING name)
SELECT ARRAY(SELECT name FROM gone) AS names, ARRAY(SELECT id FROM bindings) AS bindings,
       ARRAY(SELECT DISTINCT source_id FROM bindings) AS sources;

-- name: find_exchange
-- No row: no such virtual host; id NULL: no such exchange.
SELECT n.id AS namespace_id, n.name AS vhost, n.family, x.id, x.name, x.type, x.durable, x.auto_delete, x.internal,
       x.arguments, x.effective,
       EXISTS (SELECT FROM vitrine_binding AS b WHERE b.source_id = x.id) AS in_use
  FROM vitrine_namespace AS n LEFT JOIN vitrine_exchange AS x ON x.namespace_id = n.id AND x.name = %(name)s
 WHERE lower(n.name) = lower(%(vhost)s) AND n.deleted_at IS NULL;

-- name: delete_exchange
-- With all its bindings. Returns them with their source exchanges.
WITH bindings AS (DELETE FROM vitrine_binding WHERE source_id = %(id)s OR exchange_id = %(id)s RETURNING id, source_id),
gone AS (DELETE FROM vitrine_exchange WHERE id = %(id)s)
SELECT id, source_id FROM bindings;

-- name: find_binding_ends
-- The source and destination of a binding, and the binding if it exists. No row: no such virtual host.
SELECT n.id AS namespace_id, n.name AS vhost, n.family, s.id AS source_id, s.type, q.id AS queue_id,
       q.owner_id, d.id AS exchange_id, coalesce(bq.id, bd.id) AS binding_id
  FROM vitrine_namespace AS n
  LEFT JOIN vitrine_exchange AS s ON s.namespace_id = n.id AND s.name = %(source)s
  LEFT JOIN vitrine_entity AS q ON q.namespace_id = n.id AND q.key = %(queue)s::text AND q.deleted_at IS NULL
  LEFT JOIN vitrine_exchange AS d ON d.namespace_id = n.id AND d.name = %(exchange)s::text
  LEFT JOIN vitrine_binding AS bq ON bq.source_id = s.id AND bq.queue_id = q.id AND bq.exchange_id IS NULL
       AND bq.routing_key = %(routing_key)s AND bq.arguments_hash = %(arguments_hash)s
  LEFT JOIN vitrine_binding AS bd ON bd.source_id = s.id AND bd.queue_id IS NULL AND bd.exchange_id = d.id
       AND bd.routing_key = %(routing_key)s AND bd.arguments_hash = %(arguments_hash)s
 WHERE lower(n.name) = lower(%(vhost)s) AND n.deleted_at IS NULL;

-- name: insert_binding
-- No row: the binding already exists (RMQ-350).
INSERT INTO vitrine_binding (source_id, queue_id, exchange_id, routing_key, arguments, arguments_hash, created_at)
VALUES (%(source_id)s, %(queue_id)s, %(exchange_id)s, %(routing_key)s, %(arguments)s::text::jsonb,
        %(arguments_hash)s, clock_timestamp())
ON CONFLICT DO NOTHING
RETURNING id;

-- name: delete_binding
-- No row: it did not exist.
DELETE FROM vitrine_binding WHERE id = %(id)s RETURNING id;

-- name: put_policy
-- Create or replace a policy. created: whether it is new.
INSERT INTO vitrine_policy (namespace_id, name, is_operator, pattern, apply_to, priority, definition)
VALUES (%(namespace_id)s, %(name)s, %(is_operator)s, %(pattern)s, %(apply_to)s, %(priority)s::float8, %(definition)s::text::jsonb)
ON CONFLICT (namespace_id, is_operator, name) DO UPDATE
   SET pattern = excluded.pattern, apply_to = excluded.apply_to, priority = excluded.priority, definition = excluded.definition
RETURNING xmax = 0 AS created;

-- name: delete_rabbitmq_policy
-- No row: no such policy.
DELETE FROM vitrine_policy WHERE namespace_id = %(namespace_id)s AND is_operator = %(is_operator)s AND name = %(name)s
 RETURNING id;

-- name: policies_of
-- All policies of a virtual host by precedence (RMQ-917), operator policies last.
SELECT p.name, p.is_operator, p.pattern, p.apply_to, p.priority, p.definition
  FROM vitrine_policy AS p WHERE p.namespace_id = %(namespace_id)s ORDER BY p.is_operator, p.priority DESC, p.name;

-- name: queues_of
-- The columns from which effective settings are computed.
SELECT e.id, e.path AS name, e.options, e.effective, e.owner_id, e.default_message_time_to_live,
       e.auto_delete_on_idle, e.expiry_mode
  FROM vitrine_entity AS e WHERE e.namespace_id = %(namespace_id)s AND e.deleted_at IS NULL ORDER BY e.path;

-- name: exchanges_of
-- The columns from which effective settings are computed.
SELECT x.id, x.name, x.type, x.durable, x.auto_delete, x.internal, x.arguments, x.effective
  FROM vitrine_exchange AS x WHERE x.namespace_id = %(namespace_id)s ORDER BY x.name;

-- name: set_queue_effects
-- Write the effective settings of queues. A changed x-expires starts now (RMQ-048).
WITH clock AS MATERIALIZED (SELECT now FROM vitrine_namespace_now WHERE id = %(namespace_id)s),
wanted AS (
    SELECT * FROM unnest(%(ids)s::int8[], %(options)s::text[], %(effective)s::text[], %(times_to_live)s::interval[],
                         %(idle)s::interval[],
                         %(expiry_modes)s::text[]) AS t(id, options, effective, time_to_live, idle, expiry_mode)),
before AS MATERIALIZED (SELECT id, auto_delete_on_idle AS idle FROM vitrine_entity WHERE id = ANY (%(ids)s::int8[])),
changed AS (
    UPDATE vitrine_entity AS e
       SET options = w.options::jsonb, effective = w.effective::jsonb, default_message_time_to_live = w.time_to_live,
           auto_delete_on_idle = w.idle, expiry_mode = w.expiry_mode, updated_at = clock_timestamp()
      FROM wanted AS w WHERE e.id = w.id AND e.deleted_at IS NULL
 RETURNING e.id, e.auto_delete_on_idle AS idle),
renewed AS (
    UPDATE vitrine_entity_activity AS a SET last_activity_at = greatest(a.last_activity_at, clock.now)
      FROM changed AS c JOIN before AS b USING (id), clock
     WHERE a.entity_id = c.id AND c.idle IS NOT NULL AND c.idle IS DISTINCT FROM b.idle)
SELECT id FROM changed;

-- name: set_exchange_effects
-- Write the effective settings of exchanges.
UPDATE vitrine_exchange AS x SET effective = w.effective::jsonb
  FROM unnest(%(ids)s::int8[], %(effective)s::text[]) AS w(id, effective) WHERE x.id = w.id RETURNING x.id;

-- fragment: routed_exchanges
coalesce(json_agg(json_build_array(x.name, x.type, x.durable, x.auto_delete, x.internal, x.arguments, x.effective)), '[]')
FROM vitrine_exchange AS x

-- fragment: routed_bindings
coalesce(json_agg(json_build_array(b.id, s.name, coalesce(q.path, d.name), b.queue_id IS NOT NULL, b.routing_key, b.arguments)),
         '[]')
  FROM vitrine_exchange AS s JOIN vitrine_binding AS b ON b.source_id = s.id
  LEFT JOIN vitrine_entity AS q ON q.id = b.queue_id LEFT JOIN vitrine_exchange AS d ON d.id = b.exchange_id

-- fragment: routed_queues
coalesce(json_agg(json_build_array(e.path, e.id, e.effective, e.options ->> 'type', e.owner_id, e.history_level, e.status)), '[]')
FROM vitrine_entity AS e

-- name: topology
-- The whole routing topology of a virtual host and its version, in one snapshot.
SELECT n.id, n.name, n.family, n.topology_version AS version,
       (SELECT
-- include: routed_exchanges
         WHERE x.namespace_id = n.id) AS exchanges,
       (SELECT
-- include: routed_bindings
         WHERE s.namespace_id = n.id) AS bindings,
       (SELECT
-- include: routed_queues
         WHERE e.namespace_id = n.id AND e.deleted_at IS NULL) AS queues
  FROM vitrine_namespace AS n WHERE lower(n.name) = lower(%(vhost)s) AND n.deleted_at IS NULL;

-- name: topology_since
-- Topology changes since a version: the changed objects, those of them that exist, and the later versions, each with its
-- predecessor; in one snapshot. If the versions have a gap, the record is incomplete. No row: no such virtual host.
WITH host AS MATERIALIZED (
    SELECT id, name, family, topology_version AS version FROM vitrine_namespace
     WHERE lower(name) = lower(%(vhost)s) AND deleted_at IS NULL),
change AS MATERIALIZED (
    SELECT c.* FROM vitrine_topology_change AS c JOIN host ON c.namespace_id = host.id WHERE c.version > %(since)s),
touched AS MATERIALIZED (
    SELECT ARRAY(SELECT DISTINCT unnest(queues) FROM change) AS queues,
           ARRAY(SELECT DISTINCT unnest(exchanges) FROM change) AS exchanges,
           ARRAY(SELECT DISTINCT unnest(bindings) FROM change) AS bindings)
SELECT host.*, t.queues AS changed_queues, t.exchanges AS changed_exchanges, t.bindings AS changed_bindings,
       ARRAY(SELECT version FROM change ORDER BY version) AS versions,
       ARRAY(SELECT previous FROM change ORDER BY version) AS previous,
       (SELECT
-- include: routed_exchanges
         WHERE x.namespace_id = host.id AND x.name = ANY (t.exchanges)) AS exchanges,
       (SELECT
-- include: routed_bindings
         WHERE s.namespace_id = host.id AND b.id = ANY (t.bindings)) AS bindings,
       (SELECT
-- include: routed_queues
         WHERE e.namespace_id = host.id AND e.key = ANY (t.queues) AND e.deleted_at IS NULL) AS queues
  FROM host, touched AS t;

-- name: list_exchanges
-- The exchanges of a virtual host by name, or one by its exact name. bindings: number of bindings from it.
SELECT x.id, x.name, x.type, x.durable, x.auto_delete, x.internal, x.arguments, x.effective, x.created_at,
       (SELECT count(*) FROM vitrine_binding AS b WHERE b.source_id = x.id) AS bindings
  FROM vitrine_namespace AS n JOIN vitrine_exchange AS x ON x.namespace_id = n.id
 WHERE lower(n.name) = lower(%(vhost)s) AND (%(name)s::text IS NULL OR x.name = %(name)s::text)
 ORDER BY x.name;

-- name: list_bindings
-- The bindings of a virtual host, of an exchange as source or destination, or to a queue.
SELECT b.id, s.name AS source, q.path AS queue, d.name AS exchange, b.routing_key, b.arguments, b.arguments_hash, b.created_at
  FROM vitrine_namespace AS n JOIN vitrine_exchange AS s ON s.namespace_id = n.id JOIN vitrine_binding AS b ON b.source_id = s.id
  LEFT JOIN vitrine_entity AS q ON q.id = b.queue_id LEFT JOIN vitrine_exchange AS d ON d.id = b.exchange_id
 WHERE lower(n.name) = lower(%(vhost)s) AND (%(source)s::text IS NULL OR s.name = %(source)s::text)
   AND (%(queue)s::text IS NULL OR q.path = %(queue)s::text) AND (%(exchange)s::text IS NULL OR d.name = %(exchange)s::text)
 ORDER BY s.name, q.path, d.name, b.routing_key, b.arguments_hash, b.id;

-- name: list_rabbitmq_queues
-- The queues of a virtual host, or one by its exact name, with their counts as in find_rabbitmq_queue. The ledger is read once
-- for all.
WITH queue AS MATERIALIZED (
    SELECT e.id, n.name AS vhost, e.path AS name, e.options, e.effective, e.owner_id, e.history_level, e.created_at
      FROM vitrine_namespace AS n JOIN vitrine_entity AS e ON e.namespace_id = n.id AND e.deleted_at IS NULL
     WHERE lower(n.name) = lower(%(vhost)s) AND n.family = 'rabbitmq' AND (%(name)s::text IS NULL OR e.key = %(name)s::text)),
ledger AS MATERIALIZED (
    SELECT l.entity_id, sum(CASE l.state WHEN @STATE_ACTIVE THEN l.n ELSE -l.n END)::bigint AS ready
      FROM (SELECT entity_id, state, n FROM vitrine_count_base
             WHERE entity_id = ANY (ARRAY(SELECT id FROM queue)) AND subqueue = @SUBQUEUE_MAIN
               AND state IN (@STATE_ACTIVE, @LEDGER_LOCKED)
            UNION ALL
            SELECT entity_id, state, n FROM vitrine_count_delta
             WHERE entity_id = ANY (ARRAY(SELECT id FROM queue)) AND subqueue = @SUBQUEUE_MAIN
               AND state IN (@STATE_ACTIVE, @LEDGER_LOCKED)) AS l
     GROUP BY l.entity_id)
SELECT q.*, coalesce(l.ready, 0) AS ready, (SELECT count(*) FROM vitrine_consumer AS c WHERE c.queue_id = q.id) AS consumers
  FROM queue AS q LEFT JOIN ledger AS l ON l.entity_id = q.id
 ORDER BY q.name;

-- name: empty_vhost
-- Delete the exchanges, bindings and policies of a virtual host. Its queues and connections have been deleted before.
WITH bindings AS (DELETE FROM vitrine_binding
                   WHERE source_id IN (SELECT id FROM vitrine_exchange WHERE namespace_id = %(namespace_id)s)),
exchanges AS (DELETE FROM vitrine_exchange WHERE namespace_id = %(namespace_id)s),
policies AS (DELETE FROM vitrine_policy WHERE namespace_id = %(namespace_id)s)
SELECT 1 AS done;
