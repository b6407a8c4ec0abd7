-- Reads of the ways that messages take (broker_core/reads/flows.py, broker_core/history/feed.py).

-- fragment: flow_of_event
-- Of an event `e` that moves a message: where to (the entity that the event concerns, or the one that it was forwarded to), the
-- entity from which it came, the exchange it was published to, and by whom. way: I into the entity, O to a receiver, D to its
-- dead-letter queue; NULL: the event moves nothing.
CASE e.kind WHEN @EVENT_FORWARDED THEN (e.details #>> '{to,entity}')::bigint ELSE e.entity_id END AS target_id,
CASE WHEN e.kind = @EVENT_FORWARDED THEN e.entity_id
     WHEN e.kind = @EVENT_SENT AND e.details IS NOT NULL
     THEN coalesce(e.details #>> '{published_from,entity}', e.details #>> '{from,entity}')::bigint END AS origin_id,
CASE e.kind WHEN @EVENT_SENT THEN nullif(e.properties ->> 'exchange', '') END AS exchange,
e.actor,
CASE WHEN e.details ? 'generated' THEN NULL
     WHEN e.kind IN (@EVENT_SENT, @EVENT_SCHEDULED, @EVENT_PUBLISHED, @EVENT_FORWARDED) THEN 'I'
     WHEN e.kind IN (@EVENT_RECEIVED, @EVENT_RECEIVED_AND_DELETED) THEN 'O'
     WHEN e.kind = @EVENT_DEAD_LETTERED THEN 'D' END AS way

-- name: read_flows
-- How many messages went which way in the last `seconds`, among the newest max_events events of all namespaces. seconds of
-- the result: the time that these events cover.
WITH here AS MATERIALIZED (
    SELECT clock_timestamp() - make_interval(secs => %(seconds)s::int) AS since
), newest AS MATERIALIZED (
    SELECT e.recorded_at, e.entity_id, e.kind, e.actor, e.properties, e.details
      FROM vitrine_message_event AS e
     WHERE e.recorded_at >= (SELECT date_trunc('day', since, 'UTC') FROM here)   -- reads only the newest partitions
     ORDER BY e.xid DESC, e.event_id DESC LIMIT %(max_events)s
), flows AS (
    SELECT e.recorded_at, n.name AS namespace_name,
           -- include: flow_of_event
      FROM newest AS e JOIN vitrine_entity AS x ON x.id = e.entity_id JOIN vitrine_namespace AS n ON n.id = x.namespace_id
     WHERE e.recorded_at >= (SELECT since FROM here)
       AND (%(namespace)s::text IS NULL OR lower(n.name) = lower(%(namespace)s)))
SELECT f.namespace_name, f.target_id, f.origin_id, f.exchange, f.actor, f.way, count(*)::int AS messages,
       CASE WHEN (SELECT count(*) FROM newest) < %(max_events)s THEN (%(seconds)s::int)::float8
            ELSE greatest(1, extract(epoch FROM clock_timestamp() - greatest((SELECT min(recorded_at) FROM newest),
                                                                             (SELECT since FROM here))))::float8 END AS seconds
  FROM flows AS f WHERE f.way IS NOT NULL AND f.target_id IS NOT NULL
 GROUP BY f.namespace_name, f.target_id, f.origin_id, f.exchange, f.actor, f.way;

-- name: read_links
-- The ways that messages can take between the entities and exchanges of a namespace, or of all: copies to subscriptions,
-- forwarding, bindings, and where dead letters go (dead). A source or target is an entity, or an exchange by its name. label: a
-- routing key, or the number of rules or bindings.
WITH here AS MATERIALIZED (
    SELECT e.*, n.name AS namespace_name
      FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE e.deleted_at IS NULL AND (NOT e.hidden OR %(namespace)s::text IS NOT NULL) AND NOT n.is_system AND n.deleted_at IS NULL
       AND (%(namespace)s::text IS NULL OR lower(n.name) = lower(%(namespace)s))
), exchanges AS MATERIALIZED (
    SELECT x.*, n.name AS namespace_name
      FROM vitrine_exchange AS x JOIN vitrine_namespace AS n ON n.id = x.namespace_id
     WHERE n.deleted_at IS NULL AND (%(namespace)s::text IS NULL OR lower(n.name) = lower(%(namespace)s))
), links AS (
    SELECT e.namespace_name, 'copy' AS kind, e.topic_id AS source_id, NULL AS source_exchange, e.id AS target_id,
           NULL AS target_exchange, (SELECT count(*) FROM vitrine_rule AS r WHERE r.subscription_id = e.id) AS parts,
           NULL AS routing_key
      FROM here AS e WHERE e.topic_id IS NOT NULL
    UNION ALL
    SELECT s.namespace_name, f.kind, s.id, NULL, t.id, NULL, 1, NULL
      FROM here AS s
     CROSS JOIN LATERAL (VALUES ('forward', s.forward_to), ('dead', s.forward_dead_lettered_messages_to),
                                ('dead', s.effective ->> 'poison_queue'),
                                ('dead', CASE s.effective ->> 'dead_letter_exchange'
                                         WHEN '' THEN coalesce(s.effective ->> 'dead_letter_routing_key', s.path) END))
                        AS f(kind, path)
      JOIN here AS t ON t.namespace_id = s.namespace_id AND t.topic_id IS NULL AND lower(t.path) = lower(f.path)
    UNION ALL
    SELECT s.namespace_name, 'dead', s.id, NULL, NULL, x.name, 1, s.effective ->> 'dead_letter_routing_key'
      FROM here AS s JOIN exchanges AS x ON x.namespace_id = s.namespace_id AND x.name = s.effective ->> 'dead_letter_exchange'
    UNION ALL
    SELECT x.namespace_name, 'alternate', NULL, x.name, NULL, a.name, 1, NULL
      FROM exchanges AS x JOIN exchanges AS a ON a.namespace_id = x.namespace_id AND a.name = x.effective ->> 'alternate_exchange'
    UNION ALL
    SELECT x.namespace_name, 'binding', NULL, x.name, b.queue_id, t.name, count(*), min(b.routing_key)
      FROM vitrine_binding AS b JOIN exchanges AS x ON x.id = b.source_id LEFT JOIN exchanges AS t ON t.id = b.exchange_id
     GROUP BY x.namespace_name, x.name, b.queue_id, t.name)
SELECT * FROM links ORDER BY namespace_name, kind, source_id, source_exchange, target_id, target_exchange
 LIMIT %(max_links)s;

-- name: read_actor_known
-- Whether an event names an actor, among max_events of all; examined: how many were looked at. actors: how it may be stored;
-- prefixes: with what it may begin.
WITH looked_at AS (SELECT actor FROM vitrine_message_event LIMIT %(max_events)s)
SELECT count(*) AS examined,
       bool_or(actor = ANY (%(actors)s::text[])
               OR EXISTS (SELECT FROM unnest(%(prefixes)s::text[]) AS p(text) WHERE starts_with(actor, p.text))) IS TRUE AS known
  FROM looked_at;

-- name: read_actor_activity
-- How many events of each kind an actor caused in each entity in the last `seconds`, among the newest max_events events of all
-- namespaces. actors: how it may be stored; prefixes: with what it may begin. recent: those of the last rate_seconds;
-- rate_seconds of the result: the time that these cover. What arrives from elsewhere, such as the
-- copies of a topic, was not sent here. Without an event there is one row.
WITH here AS MATERIALIZED (
    SELECT clock_timestamp() AS now, clock_timestamp() - make_interval(secs => %(seconds)s::int) AS since,
           clock_timestamp() - make_interval(secs => %(rate_seconds)s::int) AS recently
), newest AS MATERIALIZED (
    SELECT e.recorded_at, e.entity_id, e.kind, e.actor, e.details
      FROM vitrine_message_event AS e
     WHERE e.recorded_at >= (SELECT date_trunc('day', since, 'UTC') FROM here)   -- reads only the newest partitions
     ORDER BY e.xid DESC, e.event_id DESC LIMIT %(max_events)s
), looked_at AS MATERIALIZED (
    SELECT count(*) AS examined, count(*) FILTER (WHERE recorded_at >= h.since) AS within,
           CASE WHEN count(*) < %(max_events)s THEN h.since ELSE greatest(min(recorded_at), h.since) END AS since
      FROM here AS h LEFT JOIN newest ON true GROUP BY h.since
), own AS (
    SELECT e.entity_id, e.kind, count(*)::int AS events, max(e.recorded_at) AS last_at,
           (count(*) FILTER (WHERE e.recorded_at >= (SELECT recently FROM here)))::int AS recent
      FROM newest AS e
     WHERE e.recorded_at >= (SELECT since FROM here)
       AND (e.actor = ANY (%(actors)s::text[])
            OR EXISTS (SELECT FROM unnest(%(prefixes)s::text[]) AS p(text) WHERE starts_with(e.actor, p.text)))
       AND (e.kind <> @EVENT_SENT OR e.details IS NULL OR NOT e.details ?| '{published_from,from}')
     GROUP BY e.entity_id, e.kind)
SELECT l.within AS examined, l.since, h.now,
       greatest(1, extract(epoch FROM h.now - greatest(l.since, h.recently)))::float8 AS rate_seconds, o.*
  FROM here AS h CROSS JOIN looked_at AS l
  LEFT JOIN (SELECT own.*, n.name AS namespace_name, x.path, x.family, x.deleted_at IS NOT NULL AS is_deleted
               FROM own JOIN vitrine_entity AS x ON x.id = own.entity_id JOIN vitrine_namespace AS n ON n.id = x.namespace_id
              WHERE %(except_namespaces)s::text[] IS NULL OR lower(n.name) <> ALL (%(except_namespaces)s::text[])) AS o ON true;
