-- Reads of the live feed (broker_core/history/feed.py).

-- fragment: clocks
(SELECT md5(string_agg(concat_ws(' ', n.id, n.clock_base_at, n.clock_base_real, n.clock_rate), ',' ORDER BY n.id))
   FROM vitrine_namespace AS n WHERE n.clock_base_at IS NOT NULL) AS clocks

-- name: feed
-- Events visible to this snapshot but not to the caller's previous one: each exactly once, without delay, and independent of
-- transactions that stay open (docs/design.md D8). One row per message with its last event, among max_events events. Without new
-- events there is one row without an entity, for the snapshot. clocks: changes when a namespace's clock is paused, stepped or
-- resumed. with_flows: also one row for each way that messages took (read_flows), with their number, for the live map.
WITH here AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot
), news AS MATERIALIZED (
    SELECT e.event_id, e.entity_id, e.sequence_number, e.kind,
           CASE WHEN %(with_flows)s::bool THEN e.actor END AS actor,
           CASE WHEN %(with_flows)s::bool THEN e.properties END AS properties,
           CASE WHEN %(with_flows)s::bool THEN e.details END AS details
      FROM vitrine_message_event AS e
     WHERE e.xid >= pg_snapshot_xmin(%(previous)s::pg_snapshot)
       AND NOT pg_visible_in_snapshot(e.xid, %(previous)s::pg_snapshot)
       AND e.entity_id = ANY (%(watched)s::bigint[])
     LIMIT %(max_events)s
), latest AS (
    SELECT DISTINCT ON (entity_id, sequence_number) entity_id, sequence_number, kind FROM news
     ORDER BY entity_id, sequence_number, event_id DESC
), ways AS (
    SELECT
           -- include: flow_of_event
      FROM news AS e WHERE %(with_flows)s::bool
), found AS (
    SELECT entity_id, sequence_number, kind, NULL::bigint AS target_id, NULL::bigint AS origin_id, NULL::text AS exchange,
           NULL::text AS actor, NULL::text AS way, 0 AS messages FROM latest
    UNION ALL
    SELECT NULL, NULL, NULL, target_id, origin_id, exchange, actor, way, count(*)::int
      FROM ways WHERE way IS NOT NULL AND target_id IS NOT NULL GROUP BY target_id, origin_id, exchange, actor, way
)
SELECT here.snapshot::text AS snapshot, (SELECT count(*) FROM news) AS events,
       -- include: clocks
       , l.entity_id, l.sequence_number, l.kind, l.target_id, l.origin_id, l.exchange, l.actor, l.way, l.messages
  FROM here LEFT JOIN found AS l ON true;

-- name: feed_start
-- The position of a follower that starts now.
SELECT pg_current_snapshot()::text AS snapshot,
       -- include: clocks
       ;
