-- Shared-access policies: of a namespace if entity_id is NULL, otherwise of that entity.

-- fragment: policy_columns
p.id, p.name, n.name AS namespace, e.path, p.primary_key, p.secondary_key, p.send, p.listen, p.manage, p.created_at, p.updated_at

-- name: lock_policy_scope
-- Serialises changes of one scope's policies, so that their limit holds. No row: no such namespace or entity.
SELECT n.id AS namespace_id, NULL::bigint AS entity_id, n.is_system, n.family
  FROM vitrine_namespace AS n
 WHERE lower(n.name) = lower(%(namespace)s) AND n.deleted_at IS NULL
   FOR UPDATE;

-- name: lock_entity_policy_scope
-- As lock_policy_scope, for an entity.
SELECT n.id AS namespace_id, e.id AS entity_id, n.is_system, n.family
  FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE lower(n.name) = lower(%(namespace)s) AND e.key = vitrine_key(n.family, %(path)s::text) AND e.deleted_at IS NULL
   FOR UPDATE OF e;

-- name: count_policies
-- Run after the scope is locked, as a separate statement: the locking one does not see changes that it waited for.
SELECT count(*) AS n FROM vitrine_shared_access_policy
 WHERE namespace_id = %(namespace_id)s AND entity_id IS NOT DISTINCT FROM %(entity_id)s::bigint;

-- name: create_policy
-- Add a policy. No row: the scope has a policy of this name.
WITH created AS (
    INSERT INTO vitrine_shared_access_policy (namespace_id, entity_id, name, primary_key, secondary_key, send,
                                              listen, manage, created_at, updated_at)
    SELECT %(namespace_id)s::bigint, %(entity_id)s::bigint, %(name)s::text, %(primary_key)s::text, %(secondary_key)s::text,
           %(send)s::bool, %(listen)s::bool, %(manage)s::bool, clock_timestamp(), clock_timestamp()
     WHERE NOT EXISTS (
        SELECT FROM vitrine_shared_access_policy AS p
         WHERE p.namespace_id = %(namespace_id)s::bigint AND p.entity_id IS NOT DISTINCT FROM %(entity_id)s::bigint
           AND lower(p.name) = lower(%(name)s::text))
    RETURNING *)
SELECT
-- include: policy_columns
  FROM created AS p JOIN vitrine_namespace AS n ON n.id = p.namespace_id LEFT JOIN vitrine_entity AS e ON e.id = p.entity_id;

-- name: list_policies
-- The policies of exactly one scope: of the namespace if no path is given.
SELECT
-- include: policy_columns
  FROM vitrine_shared_access_policy AS p
  JOIN vitrine_namespace AS n ON n.id = p.namespace_id LEFT JOIN vitrine_entity AS e ON e.id = p.entity_id
 WHERE lower(n.name) = lower(%(namespace)s)
   AND CASE WHEN %(path)s::text IS NULL THEN p.entity_id IS NULL
            ELSE e.key = vitrine_key(n.family, %(path)s::text) AND e.deleted_at IS NULL END
 ORDER BY p.id;

-- name: list_policies_of
-- The policies of these entities, without those of their namespaces, in the order of their creation.
SELECT p.entity_id,
-- include: policy_columns
  FROM vitrine_shared_access_policy AS p
  JOIN vitrine_namespace AS n ON n.id = p.namespace_id JOIN vitrine_entity AS e ON e.id = p.entity_id
 WHERE p.entity_id = ANY (%(entity_ids)s::bigint[]) AND e.deleted_at IS NULL
 ORDER BY p.id;

-- name: list_all_policies
-- The policies of all namespaces and their entities, without those of deleted ones.
SELECT
-- include: policy_columns
  FROM vitrine_shared_access_policy AS p
  JOIN vitrine_namespace AS n ON n.id = p.namespace_id LEFT JOIN vitrine_entity AS e ON e.id = p.entity_id
 WHERE n.deleted_at IS NULL AND NOT n.is_system AND e.deleted_at IS NULL
 ORDER BY lower(n.name), e.path NULLS FIRST, lower(p.name);

-- name: find_policies
-- All policies of one name that apply at a path: the entity's first, then the namespace's. Names are compared without case.
SELECT
-- include: policy_columns
  FROM vitrine_shared_access_policy AS p
  JOIN vitrine_namespace AS n ON n.id = p.namespace_id LEFT JOIN vitrine_entity AS e ON e.id = p.entity_id
 WHERE lower(n.name) = lower(%(namespace)s) AND lower(p.name) = lower(%(name)s)
   AND (p.entity_id IS NULL OR (e.key = vitrine_key(n.family, %(path)s::text) AND e.deleted_at IS NULL))
 ORDER BY p.entity_id NULLS LAST;

-- name: search_policies
-- Policies of one name: of the Service Bus namespace `label`, or, if there is none of that name, of all, of which at most `most`
-- are read. path: at which they apply; empty: those of namespaces; NULL: those of entities, too. An entity's come first. Without
-- a policy: one row without an id.
WITH named AS MATERIALIZED (
    SELECT id FROM vitrine_namespace
     WHERE lower(name) = lower(%(label)s::text) AND family = 'service_bus' AND deleted_at IS NULL),
candidates AS MATERIALIZED (
    SELECT * FROM vitrine_shared_access_policy AS p
     WHERE lower(p.name) = lower(%(name)s::text)
       AND (NOT EXISTS (SELECT FROM named) OR p.namespace_id IN (SELECT id FROM named))
     LIMIT CASE WHEN EXISTS (SELECT FROM named) THEN NULL ELSE %(most)s::bigint END),
found AS (
    SELECT
    -- include: policy_columns
      FROM candidates AS p
      JOIN vitrine_namespace AS n ON n.id = p.namespace_id LEFT JOIN vitrine_entity AS e ON e.id = p.entity_id
     WHERE n.deleted_at IS NULL
       AND (p.entity_id IS NULL
            OR e.deleted_at IS NULL AND (%(path)s::text IS NULL OR e.key = vitrine_key(n.family, %(path)s::text))))
SELECT EXISTS (SELECT FROM named) AS is_named, (SELECT count(*) FROM candidates) AS candidates, found.*
  FROM (VALUES (1)) AS one LEFT JOIN found ON true
 ORDER BY found.path IS NULL;

-- name: stored_policies
-- Policies by their ids, without those of deleted namespaces and entities.
SELECT
-- include: policy_columns
  FROM vitrine_shared_access_policy AS p
  JOIN vitrine_namespace AS n ON n.id = p.namespace_id LEFT JOIN vitrine_entity AS e ON e.id = p.entity_id
 WHERE p.id = ANY (%(ids)s::bigint[]) AND n.deleted_at IS NULL AND e.deleted_at IS NULL;

-- name: update_policy
-- Change a policy; NULL keeps a value. No row: there is no policy of this name.
WITH changed AS (
    UPDATE vitrine_shared_access_policy
       SET send = coalesce(%(send)s::bool, send), listen = coalesce(%(listen)s::bool, listen),
           manage = coalesce(%(manage)s::bool, manage), primary_key = coalesce(%(primary_key)s::text, primary_key),
           secondary_key = coalesce(%(secondary_key)s::text, secondary_key), updated_at = clock_timestamp()
     WHERE namespace_id = %(namespace_id)s AND entity_id IS NOT DISTINCT FROM %(entity_id)s::bigint
       AND lower(name) = lower(%(name)s)
    RETURNING *)
SELECT
-- include: policy_columns
  FROM changed AS p JOIN vitrine_namespace AS n ON n.id = p.namespace_id LEFT JOIN vitrine_entity AS e ON e.id = p.entity_id;

-- name: delete_policy
-- Delete a policy. No row: there is no policy of this name.
DELETE FROM vitrine_shared_access_policy
 WHERE namespace_id = %(namespace_id)s AND entity_id IS NOT DISTINCT FROM %(entity_id)s::bigint AND lower(name) = lower(%(name)s)
RETURNING id;
