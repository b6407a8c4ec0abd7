-- Entities as clients that administer them see them: a page by name, with what is counted.

-- name: describe_entities
-- Entities by name: one of a path, those of a kind, or the subscriptions of a topic. A topic has the messages of its
-- subscriptions, and is used with them (SB-191). accessed_at: NULL: not used since it was created.
WITH page AS MATERIALIZED (
    SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE lower(n.name) = lower(%(namespace)s) AND n.deleted_at IS NULL AND e.family = 'service_bus' AND e.deleted_at IS NULL
       AND (%(path)s::text IS NULL OR e.key = vitrine_key(n.family, %(path)s::text))
       AND (%(kind)s::text IS NULL OR e.kind = %(kind)s::text)
       AND (%(topic_id)s::bigint IS NULL OR e.topic_id = %(topic_id)s::bigint)
     ORDER BY e.key OFFSET %(first)s LIMIT %(max_count)s),
members AS MATERIALIZED (
    SELECT id, id AS member_id FROM page
    UNION ALL
    SELECT p.id, s.id FROM page AS p JOIN vitrine_entity AS s ON s.topic_id = p.id AND s.deleted_at IS NULL),
ledger AS MATERIALIZED (
    SELECT l.id, sum(l.bytes)::bigint AS bytes,
           sum(l.n) FILTER (WHERE l.subqueue = @SUBQUEUE_TRANSFER AND l.state = @STATE_ACTIVE)::bigint AS transfer,
           -- include: sums_of_lists
      FROM (SELECT m.id, b.subqueue, b.state, CASE WHEN m.id = m.member_id THEN b.n END AS n, b.bytes
              FROM members AS m CROSS JOIN LATERAL (
                   SELECT subqueue, state, n, bytes FROM vitrine_count_base WHERE entity_id = m.member_id AND until IS NULL) AS b
            UNION ALL
            SELECT m.id, d.subqueue, d.state, CASE WHEN m.id = m.member_id THEN d.n END, d.bytes
              FROM vitrine_count_delta AS d JOIN members AS m ON m.member_id = d.entity_id WHERE d.until IS NULL) AS l
     GROUP BY l.id),
used AS MATERIALIZED (
    SELECT m.id, sum(c.bytes_sent)::bigint AS bytes_sent, count(*) - 1 AS subscriptions,
           max(a.last_activity_at) FILTER (WHERE a.last_use IS DISTINCT FROM @USE_CREATE) AS accessed_at
      FROM members AS m
      LEFT JOIN vitrine_entity_counter AS c ON c.entity_id = m.member_id
      LEFT JOIN vitrine_entity_activity AS a ON a.entity_id = m.member_id
     GROUP BY m.id),
filters AS MATERIALIZED (
    SELECT m.id, count(*) FILTER (WHERE r.filter ->> 'type' = 'correlation') AS correlation,
           count(*) FILTER (WHERE r.filter ->> 'type' <> 'correlation') AS sql
      FROM members AS m JOIN vitrine_rule AS r ON r.subscription_id = m.member_id
     GROUP BY m.id)
SELECT
       -- include: entity_columns
       , coalesce(l.active, 0) AS active, coalesce(l.deferred, 0) AS deferred, coalesce(l.scheduled, 0) AS scheduled,
       coalesce(l.dead_letter, 0) AS dead_letter, coalesce(l.transfer_dead_letter, 0) AS transfer_dead_letter,
       coalesce(l.transfer, 0) AS transfer, coalesce(u.bytes_sent, 0) + coalesce(l.bytes, 0) AS size_bytes, u.accessed_at,
       u.subscriptions, coalesce(f.sql, 0) AS sql_filters, coalesce(f.correlation, 0) AS correlation_filters
  FROM page AS p
  JOIN vitrine_entity AS e ON e.id = p.id
  JOIN vitrine_namespace AS n ON n.id = e.namespace_id
  JOIN used AS u ON u.id = p.id
  LEFT JOIN ledger AS l ON l.id = p.id
  LEFT JOIN filters AS f ON f.id = p.id
 ORDER BY e.key;
