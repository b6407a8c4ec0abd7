-- A virtual host's exchanges, bindings, queues and policies. Whoever changes them holds the host's row first, so they change one after the other.

-- name: hold_vhost
-- Nobody else changes its topology before the transaction ends. Publishers only read the row, and are not kept.
SELECT id, name, family, topology_version FROM vitrine_namespace WHERE lower(name) = lower(%(vhost)s) FOR NO KEY UPDATE;

-- name: topology_changed
-- In the same transaction as the change: who remembers what a message is routed by reads it again.
UPDATE vitrine_namespace SET topology_version = topology_version + 1 WHERE id = %(namespace_id)s RETURNING topology_version;

-- name: insert_exchanges
-- Those that are there already stay as they are.
INSERT INTO vitrine_exchange AS x (namespace_id, name, type, durable, auto_delete, internal, arguments, effective, created_at)
SELECT %(namespace_id)s::bigint, t.name, t.type, t.durable, t.auto_delete, t.internal, t.arguments::jsonb, t.effective::jsonb, clock_timestamp()
  FROM unnest(%(names)s::text[], %(types)s::text[], %(durable)s::bool[], %(auto_delete)s::bool[], %(internal)s::bool[], %(arguments)s::text[],
              %(effective)s::text[]) AS t(name, type, durable, auto_delete, internal, arguments, effective)
ON CONFLICT (namespace_id, name) DO NOTHING
RETURNING x.id, x.name;

-- fragment: ready_and_consumers
-- Ready are those that nobody holds, expired ones that wait for the head included (RMQ-013).
(SELECT coalesce(sum(CASE l.state WHEN 0 THEN l.n ELSE -l.n END), 0)::bigint
   FROM (SELECT state, until, n FROM vitrine_count_base WHERE entity_id = e.id AND subqueue = 0 AND state IN (0, 10)
         UNION ALL SELECT state, until, n FROM vitrine_count_delta WHERE entity_id = e.id AND subqueue = 0 AND state IN (0, 10)) AS l) AS ready,
(SELECT count(*) FROM vitrine_consumer AS c WHERE c.queue_id = e.id) AS consumers

-- name: find_rabbitmq_queue
-- A queue by its exact name; no row: the host is not there. id NULL: the queue is not.
SELECT n.id AS namespace_id, n.name AS vhost, n.family, e.id, e.path AS name, e.options, e.effective, e.owner_id, e.history_level, e.created_at,
       -- include: ready_and_consumers
  FROM vitrine_namespace AS n
  LEFT JOIN vitrine_entity AS e ON e.namespace_id = n.id AND e.key = %(name)s AND e.deleted_at IS NULL
 WHERE lower(n.name) = lower(%(vhost)s);

-- name: lock_rabbitmq_queue
-- Nobody sends to it or starts to consume from it before the transaction ends: what is counted afterwards stays so.
SELECT e.id FROM vitrine_entity AS e JOIN vitrine_entity_counter AS c ON c.entity_id = e.id WHERE e.id = %(entity_id)s FOR UPDATE;

-- name: unbind_queues
-- Queues about to be deleted lose their bindings and consumers. The exchanges that they were bound to.
WITH consumers AS (DELETE FROM vitrine_consumer WHERE queue_id = ANY (%(entity_ids)s)),
bindings AS (DELETE FROM vitrine_binding WHERE queue_id = ANY (%(entity_ids)s) RETURNING source_id)
SELECT DISTINCT source_id FROM bindings;

-- name: delete_idle_exchanges
-- Of these, the auto-delete ones whose last binding as source has gone; with the bindings to them. Whose bindings those were (RMQ-307).
WITH idle AS (
    SELECT x.id FROM vitrine_exchange AS x
     WHERE x.id = ANY (%(ids)s) AND x.auto_delete AND NOT EXISTS (SELECT FROM vitrine_binding AS b WHERE b.source_id = x.id)),
bindings AS (DELETE FROM vitrine_binding WHERE exchange_id IN (SELECT id FROM idle) RETURNING source_id),
gone AS (DELETE FROM vitrine_exchange WHERE id IN (SELECT id FROM idle) RETURNING id)
SELECT (SELECT count(*) FROM gone) AS deleted, ARRAY(SELECT DISTINCT source_id FROM bindings) AS sources;
