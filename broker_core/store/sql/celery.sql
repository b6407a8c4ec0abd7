-- The Celery transport's bindings of queues to exchanges (fanout, topic, named direct exchanges).

-- name: celery_bind
-- Bind a queue of the namespace to an exchange, unless it is bound. Also removes the exchange's bindings of deleted queues.
WITH queue AS MATERIALIZED (
    SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE lower(n.name) = lower(%(namespace)s) AND e.key = vitrine_key(n.family, %(path)s) AND e.deleted_at IS NULL),
forgotten AS (
    DELETE FROM vitrine_celery_binding AS b
     WHERE b.exchange = %(exchange)s
       AND NOT EXISTS (SELECT FROM vitrine_entity AS e WHERE e.id = b.entity_id AND e.deleted_at IS NULL))
INSERT INTO vitrine_celery_binding (entity_id, exchange, routing_key)
SELECT id, %(exchange)s, %(routing_key)s FROM queue
ON CONFLICT (entity_id, exchange, routing_key) DO NOTHING;

-- name: celery_unbind
-- Remove a binding, if it exists.
DELETE FROM vitrine_celery_binding AS b USING vitrine_entity AS e, vitrine_namespace AS n
 WHERE b.entity_id = e.id AND e.namespace_id = n.id AND lower(n.name) = lower(%(namespace)s)
   AND e.key = vitrine_key(n.family, %(path)s)
   AND b.exchange = %(exchange)s AND b.routing_key = %(routing_key)s;

-- name: celery_bound
-- The queues bound to an exchange, each with its routing key.
SELECT e.path, b.routing_key
  FROM vitrine_celery_binding AS b
  JOIN vitrine_entity AS e ON e.id = b.entity_id AND e.deleted_at IS NULL
  JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE lower(n.name) = lower(%(namespace)s) AND b.exchange = %(exchange)s
 ORDER BY b.id;
