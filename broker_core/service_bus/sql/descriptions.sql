-- Entities as clients that administer them see them: a page by name, with what is counted.

-- name: page_of_entities
-- The ids of a page of the queues or topics of a namespace, by name.
SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE lower(n.name) = lower(%(namespace)s) AND n.deleted_at IS NULL
   AND e.family = 'service_bus' AND e.kind = %(kind)s AND e.deleted_at IS NULL
 ORDER BY e.key OFFSET %(first)s LIMIT %(max_count)s;

-- name: page_of_subscriptions
-- The ids of a page of a topic's subscriptions, by name.
SELECT id FROM vitrine_entity WHERE topic_id = %(topic_id)s AND deleted_at IS NULL
 ORDER BY key OFFSET %(first)s LIMIT %(max_count)s;

-- name: describe_entities
-- These entities by name. A topic has the messages of its subscriptions, and is used with them (SB-191). accessed_at: NULL: not
-- used since it was created. What is counted for an entity is read by its index: sums in LATERAL are not merged into a join, for
-- which whole tables would be read.
WITH page AS MATERIALIZED (
    SELECT id, kind FROM vitrine_entity WHERE id = ANY (%(ids)s::bigint[]) AND deleted_at IS NULL),
members AS MATERIALIZED (
    SELECT id, id AS member_id FROM page
    UNION ALL
    SELECT p.id, s.id
      FROM page AS p CROSS JOIN LATERAL (
           SELECT id FROM vitrine_entity WHERE p.kind = 'topic' AND topic_id = p.id AND deleted_at IS NULL OFFSET 0) AS s),
changed AS MATERIALIZED (  -- as yet in no base
    SELECT l.entity_id, sum(l.bytes)::bigint AS bytes,
           sum(l.n) FILTER (WHERE l.subqueue = @SUBQUEUE_TRANSFER AND l.state = @STATE_ACTIVE)::bigint AS transfer,
           -- include: sums_of_lists
      FROM vitrine_count_delta AS l WHERE l.until IS NULL AND l.entity_id IN (SELECT member_id FROM members)
     GROUP BY l.entity_id),
member AS MATERIALIZED (
    SELECT m.id, m.id = m.member_id AS is_own, coalesce(c.bytes, 0) + coalesce(b.bytes, 0) + coalesce(d.bytes, 0) AS bytes,
           coalesce(b.active, 0) + coalesce(d.active, 0) AS active, coalesce(b.deferred, 0) + coalesce(d.deferred, 0) AS deferred,
           coalesce(b.scheduled, 0) + coalesce(d.scheduled, 0) AS scheduled,
           coalesce(b.dead_letter, 0) + coalesce(d.dead_letter, 0) AS dead_letter,
           coalesce(b.transfer_dead_letter, 0) + coalesce(d.transfer_dead_letter, 0) AS transfer_dead_letter,
           coalesce(b.transfer, 0) + coalesce(d.transfer, 0) AS transfer, a.accessed_at, f.correlation, f.sql
      FROM members AS m
     CROSS JOIN LATERAL (
           SELECT sum(l.bytes)::bigint AS bytes,
                  sum(l.n) FILTER (WHERE l.subqueue = @SUBQUEUE_TRANSFER AND l.state = @STATE_ACTIVE)::bigint AS transfer,
                  -- include: sums_of_lists
             FROM vitrine_count_base AS l WHERE l.entity_id = m.member_id AND l.until IS NULL) AS b
     CROSS JOIN LATERAL (SELECT sum(bytes_sent)::bigint AS bytes FROM vitrine_entity_counter WHERE entity_id = m.member_id) AS c
     CROSS JOIN LATERAL (
           SELECT max(last_activity_at) FILTER (WHERE last_use IS DISTINCT FROM @USE_CREATE) AS accessed_at
             FROM vitrine_entity_activity WHERE entity_id = m.member_id) AS a
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE filter ->> 'type' = 'correlation') AS correlation,
                  count(*) FILTER (WHERE filter ->> 'type' <> 'correlation') AS sql
             FROM vitrine_rule WHERE subscription_id = m.member_id) AS f
      LEFT JOIN changed AS d ON d.entity_id = m.member_id),
described AS MATERIALIZED (
    SELECT id, sum(bytes)::bigint AS size_bytes, count(*) - 1 AS subscriptions, max(accessed_at) AS accessed_at,
           sum(sql)::bigint AS sql_filters, sum(correlation)::bigint AS correlation_filters,
           max(active) FILTER (WHERE is_own) AS active, max(deferred) FILTER (WHERE is_own) AS deferred,
           max(scheduled) FILTER (WHERE is_own) AS scheduled, max(dead_letter) FILTER (WHERE is_own) AS dead_letter,
           max(transfer_dead_letter) FILTER (WHERE is_own) AS transfer_dead_letter,
           max(transfer) FILTER (WHERE is_own) AS transfer
      FROM member GROUP BY id)
SELECT
       -- include: entity_columns
       , d.active, d.deferred, d.scheduled, d.dead_letter, d.transfer_dead_letter, d.transfer, d.size_bytes, d.accessed_at,
       d.subscriptions, d.sql_filters, d.correlation_filters
  FROM described AS d
  JOIN vitrine_entity AS e ON e.id = d.id
  JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 ORDER BY e.key;
