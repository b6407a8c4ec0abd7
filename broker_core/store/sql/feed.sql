-- Reads of the live feed (broker_core/history/feed.py).

-- fragment: clocks
(SELECT md5(string_agg(concat_ws(' ', n.id, n.clock_base_at, n.clock_base_real, n.clock_rate), ',' ORDER BY n.id))
   FROM vitrine_namespace AS n WHERE n.clock_base_at IS NOT NULL) AS clocks

-- name: feed
-- Events visible to this snapshot but not to the caller's previous one: each exactly once, without delay, and independent of
-- transactions that stay open (docs/design.md D8). One row per message with its last event, among max_events events. Without new
-- events there is one row without an entity, for the snapshot. clocks: changes when a namespace's clock is paused, stepped or
-- resumed.
WITH here AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot
), news AS MATERIALIZED (
    SELECT e.event_id, e.entity_id, e.sequence_number, e.kind
      FROM vitrine_message_event AS e
     WHERE e.xid >= pg_snapshot_xmin(%(previous)s::pg_snapshot)
       AND NOT pg_visible_in_snapshot(e.xid, %(previous)s::pg_snapshot)
       AND e.entity_id = ANY (%(watched)s::bigint[])
     LIMIT %(max_events)s
), latest AS (
    SELECT DISTINCT ON (entity_id, sequence_number) entity_id, sequence_number, kind FROM news
     ORDER BY entity_id, sequence_number, event_id DESC
)
SELECT here.snapshot::text AS snapshot, (SELECT count(*) FROM news) AS events,
       -- include: clocks
       , l.entity_id, l.sequence_number, l.kind
  FROM here LEFT JOIN latest AS l ON true;

-- name: feed_start
-- The position of a follower that starts now.
SELECT pg_current_snapshot()::text AS snapshot,
       -- include: clocks
       ;
