-- Read-only queries of the explorer and of programs (broker_core/reads). They are not activity (SB-190).

-- fragment: clocked
clock AS MATERIALIZED (
    SELECT e.*, clock_timestamp() AS real_now, n.clock_base_at IS NOT NULL AS is_manual,
           CASE WHEN n.clock_base_at IS NULL THEN 1.0 ELSE n.clock_rate END AS rate
      FROM vitrine_entity_now AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE e.id = %(entity_id)s)

-- fragment: clock_columns
c.id AS entity_id, c.namespace_name, c.path, c.family, c.now, c.real_now, c.rate, c.is_manual, c.max_delivery_count,
c.default_message_time_to_live, c.options, c.effective,

-- fragment: message_columns
-- The columns shown in lists, without the body.
m.subqueue, m.state, m.sequence_number, m.delivery_count, m.size, m.enqueued_at, m.expires_at, m.scheduled_enqueue_at,
m.locked_until, m.lock_token, m.locked_by, m.first_received_at, m.last_received_at, m.message_id, m.session_id,
m.properties ->> 'subject' AS subject, m.properties ->> 'correlation_id' AS correlation_id,
m.properties ->> 'content_type' AS content_type, m.dead_letter_reason, m.dead_letter_description, m.dead_lettered_at,
m.visible_at, m.hold_kind, m.held_since, m.renewals, m.owner_id, m.priority, m.deliveries_before

-- name: read_namespaces
-- All namespaces with their clocks. A clock without a base shows the database's time, whatever its rate column.
SELECT n.id, n.name, n.family, n.description, n.is_system, n.behaviour, n.max_size_in_megabytes, n.created_at, c.now,
       clock_timestamp() AS real_now,
       CASE WHEN n.clock_base_at IS NULL THEN 1.0 ELSE n.clock_rate END AS rate, n.clock_base_at IS NOT NULL AS is_manual,
       (SELECT count(*) FROM vitrine_entity AS e WHERE e.namespace_id = n.id AND e.deleted_at IS NULL) AS entities
  FROM vitrine_namespace AS n JOIN vitrine_namespace_now AS c ON c.id = n.id
 WHERE n.deleted_at IS NULL AND (%(name)s::text IS NULL OR lower(n.name) = lower(%(name)s))
 ORDER BY n.name;

-- name: read_entity_names
-- The names of entities, including deleted ones whose row still exists.
SELECT e.id, n.name AS namespace_name, e.path FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE e.id = ANY (%(ids)s::bigint[]);

-- name: read_deleted_entity
-- The entity with this id, or the last one with this path, that was deleted and whose row still exists, with its namespace's
-- clock and its settings.
SELECT e.id, n.name AS namespace_name, e.path, e.kind, e.family, e.created_at, e.deleted_at, e.deleted_by, e.deleted_messages,
       c.now, clock_timestamp() AS real_now, CASE WHEN n.clock_base_at IS NULL THEN 1.0 ELSE n.clock_rate END AS rate,
       n.clock_base_at IS NOT NULL AS is_manual, e.options, e.effective, e.history_level,
       e.lock_duration, e.max_delivery_count, e.default_message_time_to_live, e.dead_lettering_on_message_expiration,
       e.requires_session, e.requires_duplicate_detection, e.duplicate_detection_history_time_window, e.auto_delete_on_idle,
       e.forward_to, e.forward_dead_lettered_messages_to, e.max_size_in_megabytes, e.max_message_size_in_kilobytes, e.status,
       e.user_metadata, e.kept_properties
  FROM vitrine_entity AS e
  JOIN vitrine_namespace AS n ON n.id = e.namespace_id
  JOIN vitrine_namespace_now AS c ON c.id = n.id
 WHERE lower(n.name) = lower(%(namespace)s) AND e.deleted_at IS NOT NULL AND e.key = vitrine_key(e.family, %(path)s)
   AND (%(entity_id)s::bigint IS NULL OR e.id = %(entity_id)s)
 ORDER BY e.deleted_at DESC, e.id DESC LIMIT 1;

-- name: read_names
-- The names of existing entities of some kinds that contain a text; names that begin with it come first. except_namespaces: in
-- lower case.
SELECT x.id, x.namespace_name, x.path FROM (
       SELECT e.id, n.name AS namespace_name, e.path,
              strpos(lower(CASE WHEN %(namespace)s::text IS NULL THEN n.name || '/' || e.path ELSE e.path END),
                     lower(%(part)s)) AS at
         FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
        WHERE e.deleted_at IS NULL AND e.kind = ANY (%(kinds)s::text[])
          AND CASE WHEN %(namespace)s::text IS NULL THEN NOT n.is_system ELSE lower(n.name) = lower(%(namespace)s) END
          AND lower(n.name) <> ALL (%(except_namespaces)s::text[])) AS x
 WHERE x.at > 0 ORDER BY x.at > 1, x.namespace_name, x.path LIMIT %(max_count)s;

-- name: read_property_names
-- The names of the senders' properties among the first messages of some entities of a namespace, of all these the first that have
-- at most max_bytes beside their bodies, so that messages with thousands of names cost no more than others.
SELECT DISTINCT k.name
  FROM (SELECT m.application_properties, sum(m.size) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
          FROM (SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
                 WHERE e.id = ANY (%(entity_ids)s::bigint[]) AND e.deleted_at IS NULL AND lower(n.name) = lower(%(namespace)s)
                 ORDER BY e.id LIMIT %(max_entities)s) AS e
          CROSS JOIN LATERAL (SELECT m.application_properties, m.size - octet_length(m.body) AS size FROM vitrine_message AS m
                               WHERE m.entity_id = e.id LIMIT %(max_messages)s) AS m
          WHERE m.application_properties IS NOT NULL) AS m
 CROSS JOIN LATERAL jsonb_object_keys(m.application_properties) AS k(name)
 WHERE m.bytes <= %(max_bytes)s
 ORDER BY 1 LIMIT %(max_count)s;

-- fragment: sums_of_lists
-- The messages in the rows `l` of the ledger, by list.
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_ACTIVE)::bigint AS active,
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_DEFERRED)::bigint AS deferred,
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_SCHEDULED)::bigint AS scheduled,
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_DEAD_LETTER
                   AND l.state IN (@STATE_ACTIVE, @STATE_DEFERRED))::bigint AS dead_letter,
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_TRANSFER_DEAD_LETTER
                   AND l.state IN (@STATE_ACTIVE, @STATE_DEFERRED))::bigint AS transfer_dead_letter

-- fragment: sums_of_holds
-- The locked and invisible messages in the rows `l` of the ledger, by kind.
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @LEDGER_LOCKED)::bigint AS locked,
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @LEDGER_DEFERRED_LOCKED)::bigint AS deferred_locked,
sum(l.n::float8) FILTER (WHERE l.subqueue = @SUBQUEUE_DEAD_LETTER
                   AND l.state IN (@LEDGER_LOCKED, @LEDGER_DEFERRED_LOCKED))::bigint AS dead_letter_locked,
sum(l.n::float8) FILTER (WHERE l.state = @LEDGER_DELAYED)::bigint AS delayed,
sum(l.n::float8) FILTER (WHERE l.state = @LEDGER_RESCHEDULED)::bigint AS rescheduled,
sum(l.n::float8) FILTER (WHERE l.state = @LEDGER_EXTENDED)::bigint AS extended

-- fragment: counts
-- The sums of a ledger's lists `l` and of its holds `k`; 0 for those that have no row.
coalesce(l.active, 0) AS active, coalesce(l.deferred, 0) AS deferred, coalesce(l.scheduled, 0) AS scheduled,
coalesce(l.dead_letter, 0) AS dead_letter, coalesce(l.transfer_dead_letter, 0) AS transfer_dead_letter,
coalesce(k.locked, 0) AS locked, coalesce(k.deferred_locked, 0) AS deferred_locked,
coalesce(k.dead_letter_locked, 0) AS dead_letter_locked, coalesce(k.delayed, 0) AS delayed,
coalesce(k.rescheduled, 0) AS rescheduled, coalesce(k.extended, 0) AS extended

-- fragment: minute
-- The last minute, rounded to whole buckets.
minute AS MATERIALIZED (SELECT date_bin('10 seconds', now() - interval '50 seconds', timestamptz 'epoch') AS began),
span AS MATERIALIZED (SELECT extract(epoch FROM now() - began)::float8 AS seconds FROM minute)

-- fragment: unfolded_of_minute
-- The messages that passed the entities in the last minute, as far as they are not in vitrine_traffic yet.
SELECT w.entity_id, CASE WHEN w.op IN (@OP_SENT, @OP_SCHEDULED) AND e.kind <> 'topic'
                           OR w.op = @OP_PUBLISHED THEN abs(w.n) END AS sent,
       CASE WHEN w.op IN (@OP_COMPLETED, @OP_RECEIVED_AND_DELETED) THEN abs(w.n) END AS completed
  FROM vitrine_count_delta AS w JOIN entities AS e ON e.id = w.entity_id
 WHERE w.op IS NOT NULL AND w.at >= (SELECT began FROM minute)

-- fragment: oldest_active
-- When the oldest message of e's main queue was enqueued, as in oldest_waiting; without with_oldest only if the entity has a
-- default time-to-live.
LATERAL (
    SELECT m.enqueued_at
      FROM (SELECT m.sequence_number, m.enqueued_at, m.visible_at, m.hold_kind FROM vitrine_message AS m
             WHERE l.active > 0 AND (%(with_oldest)s::boolean OR e.default_message_time_to_live IS NOT NULL) AND
                   -- include: of_main_list
             ORDER BY m.sequence_number LIMIT 100) AS m
     WHERE
           -- include: not_delayed
     ORDER BY m.sequence_number LIMIT 1) AS oldest

-- fragment: expired_by_own
-- The messages of e that expired by their own time-to-live and are not locked, up to expired_cap + 1.
LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE x.visible_at > e.now AND x.hold_kind IN (@HOLD_GET, @HOLD_UPDATE)) AS leased,
           count(*) FILTER (WHERE x.visible_at > e.now AND x.hold_kind IN (@HOLD_PUT, @HOLD_UPDATE_BEFORE_GET)) AS delayed
      FROM (SELECT m.visible_at, m.hold_kind FROM vitrine_message AS m
             WHERE l.active > 0 AND m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
               AND m.expires_at <= e.now
               AND (m.locked_until IS NULL OR m.locked_until <= e.now) AND m.owner_id IS NULL
             LIMIT %(expired_cap)s + 1) AS x) AS own

-- fragment: expired_by_default
-- The same by the entity's default; the oldest expire first, so only these are examined.
LATERAL (
    SELECT count(*) AS n
      FROM (SELECT m.expires_at, m.enqueued_at, m.locked_until FROM vitrine_message AS m
             WHERE l.active > 0 AND oldest.enqueued_at + e.default_message_time_to_live <= e.now
               AND m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
               AND m.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                                   WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN), 1)
             ORDER BY m.sequence_number LIMIT %(expired_cap)s + 1) AS x
     WHERE x.expires_at IS NULL AND x.enqueued_at + e.default_message_time_to_live <= e.now
       AND (x.locked_until IS NULL OR x.locked_until <= e.now)) AS by_default

-- name: read_overview
-- These entities with exact counts (docs/design.md D9), rates and the state of their heads; some index probes each. A lock counts
-- only if it ends after the entity's current time.
WITH entities AS MATERIALIZED (
    SELECT e.*, clock_timestamp() AS real_now, n.clock_base_at IS NOT NULL AS is_manual,
           CASE WHEN n.clock_base_at IS NULL THEN 1.0 ELSE n.clock_rate END AS rate, t.path AS topic_path
      FROM vitrine_entity_now AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
      LEFT JOIN vitrine_entity AS t ON t.id = e.topic_id
     WHERE e.id = ANY (%(ids)s::bigint[])),
ledger AS MATERIALIZED (
    SELECT l.entity_id, sum(l.bytes) FILTER (WHERE l.until IS NULL)::bigint AS bytes,
           -- include: sums_of_lists
           ,
           -- include: sums_of_holds
      FROM (SELECT b.*, e.now
              FROM entities AS e CROSS JOIN LATERAL (
                   SELECT entity_id, subqueue, state, until, n, bytes FROM vitrine_count_base WHERE entity_id = e.id) AS b
            UNION ALL
            SELECT d.entity_id, d.subqueue, d.state, d.until, d.n, d.bytes, e.now
              FROM vitrine_count_delta AS d JOIN entities AS e ON e.id = d.entity_id) AS l
     WHERE l.until IS NULL OR l.until > l.now
     GROUP BY l.entity_id),
-- include: minute
,
passed AS MATERIALIZED (
    SELECT t.entity_id, sum(t.sent) AS sent, sum(t.completed) AS completed
      FROM (SELECT r.* FROM entities AS e CROSS JOIN LATERAL (
                SELECT x.entity_id, x.sent, x.completed FROM vitrine_traffic AS x
                 WHERE x.entity_id = e.id AND x.step = 10 AND x.bucket >= (SELECT began FROM minute)) AS r
            UNION ALL
-- include: unfolded_of_minute
           ) AS t
     GROUP BY t.entity_id),
-- include: dead_letter_queues
SELECT e.id, e.namespace_name, e.path, e.kind, e.topic_id, e.requires_session, e.forward_to, e.family,
       e.effective, e.options, e.status,
       CASE e.kind WHEN 'topic' THEN (SELECT count(*)::int FROM vitrine_entity AS x
                                       WHERE x.topic_id = e.id AND x.deleted_at IS NULL)
            ELSE 0 END AS subscriptions,
       CASE e.kind WHEN 'subscription' THEN (SELECT count(*)::int FROM vitrine_rule AS r WHERE r.subscription_id = e.id)
            ELSE 0 END AS rules,
       CASE e.family WHEN 'rabbitmq' THEN (SELECT count(*)::int FROM vitrine_consumer AS x WHERE x.queue_id = e.id)
            ELSE 0 END AS consumers,
       e.hidden, e.protected, e.history_level, e.now, e.real_now,
       e.rate, e.is_manual,
       -- include: counts
       ,
       coalesce(c.bytes_sent, 0) + coalesce(l.bytes, 0) AS size_bytes,
       coalesce(p.sent, 0) / s.seconds AS sent_rate,
       coalesce(p.completed, 0) / s.seconds AS completed_rate,
       coalesce(a.waiting_until > clock_timestamp(), false) AS consumers_waiting, a.last_receive_at,
       oldest.enqueued_at AS oldest_active_at, own.n + by_default.n AS expired_pending, own.leased AS expired_leased,
       own.delayed AS expired_delayed, e.id IN (SELECT id FROM dead_letter_queues) AS waits_for_operator
  FROM entities AS e
 CROSS JOIN span AS s
  LEFT JOIN ledger AS l ON l.entity_id = e.id
  LEFT JOIN passed AS p ON p.entity_id = e.id
  LEFT JOIN ledger AS k ON k.entity_id = e.id
  LEFT JOIN vitrine_entity_counter AS c ON c.entity_id = e.id
  LEFT JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
  LEFT JOIN
       -- include: oldest_active
       ON true
 CROSS JOIN
       -- include: expired_by_own
 CROSS JOIN
       -- include: expired_by_default
 ORDER BY e.namespace_name, coalesce(e.topic_path, e.path), e.topic_id IS NOT NULL, e.path;   -- a topic, then its subscriptions

-- fragment: dead_letter_queues
-- The queues among the namespaces of `entities` whose messages wait for an operator: the poison queues of storage queues, and the
-- queues that only collect dead letters in RabbitMQ. These are bound to a dead-letter exchange, have none of their own, and no
-- consumer.
dead_letter_queues AS MATERIALIZED (
    WITH sources AS MATERIALIZED (
        SELECT s.id, s.namespace_id, s.family, s.effective
          FROM (SELECT DISTINCT namespace_id FROM entities WHERE family <> 'service_bus') AS n
          JOIN vitrine_entity AS s ON s.namespace_id = n.namespace_id
         WHERE s.deleted_at IS NULL AND s.effective ?| '{poison_queue,dead_letter_exchange}')
    SELECT q.id
      FROM (SELECT q.id FROM sources AS s JOIN vitrine_entity AS q ON q.namespace_id = s.namespace_id AND q.key =
                   CASE WHEN s.effective ? 'poison_queue' THEN lower(s.effective ->> 'poison_queue')
                        WHEN s.effective ->> 'dead_letter_exchange' = '' THEN s.effective ->> 'dead_letter_routing_key' END
            UNION
            SELECT b.queue_id
              FROM sources AS s JOIN vitrine_exchange AS x
                ON x.namespace_id = s.namespace_id AND x.name = s.effective ->> 'dead_letter_exchange'
              JOIN vitrine_binding AS b ON b.source_id = x.id AND b.queue_id <> s.id
            UNION
            SELECT e.id FROM entities AS e WHERE e.family = 'queue_storage' AND e.path LIKE '%%-poison') AS f
      JOIN vitrine_entity AS q ON q.id = f.id AND q.deleted_at IS NULL
     WHERE q.family = 'queue_storage'
        OR NOT q.effective ? 'dead_letter_exchange' AND NOT EXISTS (SELECT FROM vitrine_consumer AS c WHERE c.queue_id = q.id))

-- fragment: listed
-- The entities of a namespace, topic, kind or family, or all. parts: all in the shown address, which is "topic/name" for a
-- subscription; prefix: of the path. The system's own are left out unless `system` is set. except_namespaces: in lower case.
-- paused: whether something is disabled.
entities AS MATERIALIZED (
    SELECT e.id, e.namespace_id, e.namespace_name, e.path, e.kind, e.family, e.status, e.now, e.default_message_time_to_live,
           e.topic_id,
           CASE WHEN e.topic_id IS NOT NULL
                THEN (SELECT t.path FROM vitrine_entity AS t WHERE t.id = e.topic_id) END AS topic_path
      FROM vitrine_entity_now AS e
     WHERE (%(namespace)s::text IS NULL OR lower(e.namespace_name) = lower(%(namespace)s))
       AND (%(topic_id)s::bigint IS NULL OR e.topic_id = %(topic_id)s)
       AND (%(hidden)s::boolean OR NOT e.hidden) AND (%(system)s::boolean OR NOT e.is_system)
       AND lower(e.namespace_name) <> ALL (%(except_namespaces)s::text[])
       AND (%(kind)s::text IS NULL OR e.kind = %(kind)s) AND (%(family)s::text IS NULL OR e.family = %(family)s)
       AND (%(prefix)s::text IS NULL OR starts_with(lower(e.path), lower(%(prefix)s)))
       AND (%(paused)s::boolean IS NULL OR (e.status <> 'Active') = %(paused)s)
       AND (%(parts)s::text[] IS NULL
            OR NOT EXISTS (
               SELECT FROM lower(e.namespace_name || '/'
                                 || CASE WHEN e.topic_id IS NULL THEN e.path
                                         ELSE regexp_replace(e.path, '/subscriptions/(?!.*/)', '/', 'i') END) AS shown
                CROSS JOIN unnest(%(parts)s) AS p (part)
                WHERE strpos(shown, lower(p.part)) = 0)))

-- name: read_listed
-- The ids of the listed entities from one place on, in the order of read_overview.
WITH
-- include: listed
SELECT e.id FROM entities AS e
 ORDER BY e.namespace_name, coalesce(e.topic_path, e.path), e.topic_id IS NOT NULL, e.path
 LIMIT %(max_count)s OFFSET %(first)s;

-- name: prepare_for_sums
-- Let the next statements of this transaction add up all entities in memory, with a plan for their number, which never compares
-- each with each.
SELECT set_config('work_mem', '64MB', true), set_config('plan_cache_mode', 'force_custom_plan', true) AS plans,
       set_config('enable_nestloop', 'off', true) AS joins;

-- fragment: tallies
-- The listed entities with their counts, the ledger and the traffic being read once for all. neglected: 1 if there are available
-- messages that nobody has asked for within the last minute. entities: 1, for sums.
moved AS MATERIALIZED (                                  -- entities of namespaces with a manual clock
    SELECT e.id, e.now FROM entities AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE n.clock_base_at IS NOT NULL),
lists AS MATERIALIZED (
    SELECT l.entity_id,
           -- include: sums_of_lists
      FROM (SELECT entity_id, subqueue, state, n FROM vitrine_count_base WHERE until IS NULL AND n <> 0
            UNION ALL SELECT entity_id, subqueue, state, n FROM vitrine_count_delta WHERE until IS NULL AND n <> 0) AS l
     GROUP BY l.entity_id),
holds AS MATERIALIZED (
    SELECT l.entity_id,
           -- include: sums_of_holds
      FROM (SELECT entity_id, subqueue, state, until, n FROM vitrine_count_base WHERE until IS NOT NULL AND n <> 0
            UNION ALL
            SELECT entity_id, subqueue, state, until, n FROM vitrine_count_delta WHERE until IS NOT NULL AND n <> 0) AS l
      LEFT JOIN moved AS m ON m.id = l.entity_id
     WHERE l.until > coalesce(m.now, clock_timestamp())
     GROUP BY l.entity_id),
-- include: minute
,
passed AS MATERIALIZED (
    SELECT t.entity_id, sum(t.sent) AS sent, sum(t.completed) AS completed
      FROM (SELECT x.entity_id, x.sent, x.completed FROM vitrine_traffic AS x
             WHERE x.step = 10 AND x.bucket >= (SELECT began FROM minute)
            UNION ALL
-- include: unfolded_of_minute
           ) AS t
     GROUP BY t.entity_id),
-- include: dead_letter_queues
,
tallies AS (
    SELECT t.*, 1 AS entities, least(t.expired_found, %(expired_cap)s) AS expired_pending,
           (t.is_idle AND NOT t.waits_for_operator
             AND t.active - t.locked - t.delayed - t.rescheduled - t.extended
                 > least(t.expired_found, %(expired_cap)s) - t.expired_leased - t.expired_delayed)::int AS neglected
      FROM (
           SELECT e.id, e.namespace_name, e.path, e.topic_path, e.kind, e.family, e.status,
                  coalesce(p.sent, 0) AS sent,
                  coalesce(p.completed, 0) AS completed, oldest.enqueued_at AS oldest_active_at,
                  own.n + CASE WHEN e.default_message_time_to_live IS NULL THEN 0 ELSE (
                              SELECT by_default.n FROM
                                     -- include: expired_by_default
                              ) END AS expired_found, own.leased AS expired_leased, own.delayed AS expired_delayed,
                  d.id IS NOT NULL AS waits_for_operator,
                  e.status IN ('Active', 'SendDisabled') AND (a.waiting_until > statement_timestamp()) IS NOT TRUE
                    AND (a.last_receive_at >= e.now - interval '1 minute') IS NOT TRUE
                    AND NOT (e.family = 'rabbitmq' AND EXISTS (SELECT FROM vitrine_consumer AS x WHERE x.queue_id = e.id))
                  AS is_idle,
                  -- include: counts
             FROM entities AS e
             LEFT JOIN lists AS l ON l.entity_id = e.id
             LEFT JOIN holds AS k ON k.entity_id = e.id
             LEFT JOIN passed AS p ON p.entity_id = e.id
             LEFT JOIN dead_letter_queues AS d ON d.id = e.id
             LEFT JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
             LEFT JOIN
                  -- include: oldest_active
                  ON true
            CROSS JOIN
                  -- include: expired_by_own
           ) AS t)

-- fragment: tally_sums
-- The sums of the tallies `t`, or of such sums; sent and completed are of the last minute.
t.waits_for_operator, min(t.namespace_name) AS namespace_name, min(t.path) AS path, sum(t.entities)::bigint AS entities,
sum(t.active)::bigint AS active, sum(t.locked)::bigint AS locked, sum(t.deferred)::bigint AS deferred,
sum(t.scheduled)::bigint AS scheduled, sum(t.dead_letter)::bigint AS dead_letter,
sum(t.transfer_dead_letter)::bigint AS transfer_dead_letter, sum(t.deferred_locked)::bigint AS deferred_locked,
sum(t.dead_letter_locked)::bigint AS dead_letter_locked, sum(t.delayed)::bigint AS delayed,
sum(t.rescheduled)::bigint AS rescheduled, sum(t.extended)::bigint AS extended,
sum(t.expired_found)::bigint AS expired_found, sum(t.expired_pending)::bigint AS expired_pending,
sum(t.expired_leased)::bigint AS expired_leased, sum(t.expired_delayed)::bigint AS expired_delayed,
sum(t.sent)::float8 AS sent, sum(t.completed)::float8 AS completed, min(t.oldest_active_at) AS oldest_active_at,
sum(t.neglected)::bigint AS neglected

-- fragment: prefix
-- How the name of the listed entity `t` begins, up to the first separator after `within`; NULL: it has none.
(left(coalesce(t.topic_path, t.path), length(%(within)s::text))
 || substring(substr(coalesce(t.topic_path, t.path), length(%(within)s) + 1) FROM '^[^/.-]*[/.-]'))

-- fragment: column_of_tally
-- The number in the column `f` of the tally `t`, by which entities are sorted and filtered; NULL: the column is the name.
CASE f.name
     WHEN '' THEN NULL
     WHEN 'name' THEN NULL
     WHEN 'attention' THEN CASE WHEN t.dead_letter + t.transfer_dead_letter > 0 THEN 1e15 + t.dead_letter
                                WHEN t.waits_for_operator AND t.active > 0 THEN 1e15 + t.active
                                WHEN t.neglected = 1 THEN 1e12 + t.active WHEN t.status <> 'Active' THEN 1 ELSE 0 END
     WHEN 'neglected' THEN t.neglected
     WHEN 'sent' THEN t.sent
     WHEN 'completed' THEN t.completed
     WHEN 'oldest' THEN coalesce(extract(epoch FROM t.oldest_active_at), 1e12)
     WHEN 'dead' THEN CASE WHEN t.waits_for_operator THEN t.active
                           WHEN t.family = 'service_bus' AND t.kind <> 'topic'
                           THEN t.dead_letter + t.transfer_dead_letter ELSE -1 END
     WHEN 'expired' THEN CASE t.kind WHEN 'topic' THEN -1 ELSE t.expired_pending END
     WHEN 'waiting' THEN CASE t.family WHEN 'queue_storage'
                                       THEN greatest(t.delayed + t.rescheduled - t.expired_delayed, 0)
                                       WHEN 'rabbitmq' THEN -1 ELSE t.scheduled END
     WHEN 'scheduled' THEN t.scheduled
     WHEN 'delayed' THEN greatest(t.delayed - t.expired_delayed, 0)
     WHEN 'rescheduled' THEN t.rescheduled
     WHEN 'extended' THEN t.extended
     WHEN 'leased' THEN t.locked
     WHEN 'unacked' THEN t.locked
     WHEN 'ready' THEN t.active - t.locked
     WHEN 'total' THEN t.active
     WHEN 'deferred' THEN CASE WHEN t.kind = 'topic' OR t.family <> 'service_bus' THEN -1 ELSE t.deferred END
     WHEN 'locked' THEN CASE t.kind WHEN 'topic' THEN -1 ELSE t.locked END
     WHEN 'held' THEN CASE WHEN t.kind = 'topic' THEN -1
                           WHEN t.family = 'queue_storage'
                           THEN greatest(t.locked + t.extended - t.expired_leased, 0) ELSE t.locked END
     ELSE CASE t.kind WHEN 'topic' THEN -1
          ELSE greatest(t.active - t.locked - t.delayed - t.rescheduled - t.extended
                        - (t.expired_pending - t.expired_leased - t.expired_delayed), 0) END
END::float8

-- name: read_tallies
-- The listed entities added up by family, kind and whether their messages wait for an operator. seconds: of the last minute.
WITH
-- include: listed
,
-- include: tallies
SELECT NULL::bigint AS id, t.family, t.kind, s.seconds,
       -- include: tally_sums
  FROM tallies AS t CROSS JOIN span AS s
 GROUP BY t.family, t.kind, t.waits_for_operator, s.seconds
 ORDER BY namespace_name, path;

-- name: read_tree
-- A page of the listed entities as a table with groups: three or more in a namespace (a topic with its subscriptions is one)
-- whose names begin alike up to the first of / . - are an item, others are one each; `within` is a prefix that all have and that
-- does not count. Items are in the order of the column `sort`. Groups are open if there are at most open_below entities, or one
-- item alone, except those in `toggled`, of which the opposite holds; up to max_children of each are returned.
-- level 0: the sums of all listed; 1: an item's; 2: an entity of an open group; 3: of each namespace with an item on the page.
-- place: of the item among `items`. first_neglected: the ids of the first five. seconds: of the last minute. counts: columns, of
-- which each must be between its `lows` and `highs`.
WITH
-- include: listed
,
-- include: tallies
,
prefixes AS (
    SELECT n.namespace_name, n.prefix
      FROM (SELECT t.namespace_name, t.topic_path,
                   -- include: prefix
                   AS prefix FROM entities AS t WHERE %(grouped)s::boolean) AS n
     WHERE n.prefix IS NOT NULL
     GROUP BY n.namespace_name, n.prefix HAVING count(*) FILTER (WHERE n.topic_path IS NULL) >= 3),
counted AS MATERIALIZED (
    SELECT t.*, p.prefix AS prefix_of_group, coalesce(t.topic_path, t.path) AS base,
           (SELECT
                   -- include: column_of_tally
              FROM (SELECT %(sort)s::text AS name) AS f) AS value
      FROM tallies AS t LEFT JOIN prefixes AS p ON p.namespace_name = t.namespace_name AND p.prefix =
           -- include: prefix
     WHERE %(counts)s::text[] IS NULL
        OR NOT EXISTS (SELECT FROM unnest(%(counts)s, %(lows)s::bigint[], %(highs)s::bigint[]) AS f (name, low, high)
                        WHERE ((
                               -- include: column_of_tally
                               ) BETWEEN f.low AND f.high) IS NOT TRUE)
      ),
parts AS MATERIALIZED (                                  -- the sums of groups, and of all others of a namespace together
    SELECT t.prefix_of_group, t.family, t.kind, CASE %(sort)s WHEN 'oldest' THEN min(t.value) ELSE sum(t.value) END AS value,
           -- include: tally_sums
      FROM counted AS t GROUP BY t.namespace_name, t.prefix_of_group, t.family, t.kind, t.waits_for_operator),
items AS MATERIALIZED (
    SELECT g.namespace_name, g.prefix_of_group, NULL::bigint AS id, sum(g.entities)::bigint AS members,
           CASE %(sort)s WHEN 'oldest' THEN min(g.value) ELSE sum(g.value) END AS value,
           g.prefix_of_group AS base, false AS is_beneath, min(g.path) AS path
      FROM parts AS g WHERE g.prefix_of_group IS NOT NULL GROUP BY g.namespace_name, g.prefix_of_group
    UNION ALL
    SELECT g.namespace_name, NULL, g.id, 1, g.value, g.base, g.topic_path IS NOT NULL, g.path
      FROM counted AS g WHERE g.prefix_of_group IS NULL),
paged AS MATERIALIZED (
    SELECT i.*, (i.all_members <= %(open_below)s::int OR i.items = 1)
                <> (i.namespace_name || '/' || i.prefix_of_group = ANY (%(toggled)s::text[])) AS is_open
      FROM (SELECT i.*, count(*) OVER () AS items, sum(i.members) OVER () AS all_members,
                   row_number() OVER (ORDER BY CASE WHEN %(descending)s::boolean THEN -i.value ELSE i.value END,
                                               i.namespace_name, i.base, i.is_beneath, i.path) AS place
              FROM items AS i) AS i
     WHERE CASE WHEN %(descending)s AND i.value IS NULL THEN i.items - i.place + 1 ELSE i.place END
           BETWEEN %(first)s::bigint + 1 AND %(first)s + %(max_count)s::bigint),
singles AS MATERIALIZED (SELECT g.* FROM counted AS g WHERE g.id = ANY (ARRAY(SELECT id FROM paged)))
SELECT s.seconds, x.*
  FROM span AS s CROSS JOIN (
SELECT 0 AS level, 0::bigint AS place, NULL::bigint AS id, NULL::text AS prefix_of_group, false AS is_open,
       (SELECT count(*) FROM items) AS items, NULL::float8 AS value, t.family, t.kind,
       -- include: tally_sums
       , ARRAY(SELECT x.id FROM counted AS x WHERE x.neglected = 1 ORDER BY x.namespace_name, x.path LIMIT 5) AS first_neglected
  FROM parts AS t GROUP BY t.family, t.kind, t.waits_for_operator
UNION ALL
SELECT 1, p.place, p.id, NULL, false, p.items, p.value, t.family, t.kind,
       -- include: tally_sums
       , NULL
  FROM paged AS p JOIN singles AS t ON t.id = p.id
 GROUP BY p.place, p.id, p.items, p.value, t.family, t.kind, t.waits_for_operator
UNION ALL
SELECT 1, p.place, NULL, p.prefix_of_group, p.is_open, p.items, p.value, t.family, t.kind,
       -- include: tally_sums
       , NULL
  FROM paged AS p JOIN parts AS t ON t.namespace_name = p.namespace_name AND t.prefix_of_group = p.prefix_of_group
 GROUP BY p.place, p.prefix_of_group, p.is_open, p.items, p.value, t.family, t.kind, t.waits_for_operator
UNION ALL
SELECT 2, t.place, t.id, NULL, true, t.rank, NULL, t.family, t.kind,
       -- include: tally_sums
       , NULL
  FROM (SELECT p.place, g.*
          FROM paged AS p CROSS JOIN LATERAL (
               SELECT g.*, row_number() OVER (ORDER BY CASE WHEN %(descending)s THEN -g.value ELSE g.value END, g.base,
                                                       g.topic_path IS NOT NULL, g.path) AS rank
                 FROM counted AS g WHERE g.namespace_name = p.namespace_name AND g.prefix_of_group = p.prefix_of_group
                ORDER BY rank LIMIT %(max_children)s::bigint) AS g
         WHERE p.is_open) AS t
 GROUP BY t.place, t.id, t.rank, t.family, t.kind, t.waits_for_operator
UNION ALL
SELECT 3, 0, NULL, NULL, true, 0, NULL, t.family, t.kind,
       -- include: tally_sums
       , NULL
  FROM parts AS t WHERE %(sort)s = 'name' AND t.namespace_name IN (SELECT namespace_name FROM paged)
 GROUP BY t.namespace_name, t.family, t.kind, t.waits_for_operator) AS x
 ORDER BY x.level, x.place, x.items;

-- name: read_counts
-- The counts of one entity from the ledger, as in read_overview.
WITH entity AS MATERIALIZED (SELECT now FROM vitrine_entity_now WHERE id = %(entity_id)s),
ledger AS MATERIALIZED (
    SELECT
           -- include: sums_of_lists
           ,
           -- include: sums_of_holds
      FROM (SELECT subqueue, state, until, n FROM vitrine_count_base WHERE entity_id = %(entity_id)s
            UNION ALL SELECT subqueue, state, until, n FROM vitrine_count_delta WHERE entity_id = %(entity_id)s) AS l
     WHERE l.until IS NULL OR l.until > (SELECT now FROM entity))
SELECT e.now,
       -- include: counts
  FROM entity AS e CROSS JOIN ledger AS l CROSS JOIN ledger AS k;

-- fragment: in_list_order
CASE WHEN NOT %(by_due)s::boolean THEN NULL WHEN %(descending)s::boolean THEN -extract(epoch FROM m.scheduled_enqueue_at)
     ELSE extract(epoch FROM m.scheduled_enqueue_at) END,
CASE WHEN %(descending)s::boolean THEN -m.sequence_number ELSE m.sequence_number END

-- fragment: matches
-- Whether message `m` of an entity with clock `c` matches the conditions of a filter (reads/matching.py), except those on values
-- in JSON. Conditions of a kind are parallel arrays, NULL if there are none; in each, a condition that does not hold is looked
-- for. A negated condition holds if the text, property or number is missing.
AND (%(holds)s::smallint[] IS NULL OR CASE
     -- an unacknowledged message does not expire (RMQ-019)
     WHEN m.owner_id IS NOT NULL THEN @LEDGER_LOCKED
     WHEN least(m.expires_at, m.enqueued_at + c.default_message_time_to_live) <= c.now THEN -1
     WHEN m.visible_at > c.now THEN coalesce(m.hold_kind, @HOLD_GET) ELSE 0 END = ANY (%(holds)s::smallint[]))
AND (%(text_fields)s::text[] IS NULL OR NOT EXISTS (
     SELECT FROM unnest(%(text_fields)s::text[], %(text_patterns)s::text[], %(text_exact)s::boolean[],
                        %(text_negated)s::boolean[]) AS t(field, pattern, exact, negated)
      CROSS JOIN LATERAL (SELECT CASE t.field
            WHEN 'id' THEN m.message_id
            WHEN 'session' THEN m.session_id COLLATE "default"
            WHEN 'reason' THEN CASE c.family WHEN 'queue_storage' THEN m.resubmitted_from ->> 'reason'
                               ELSE m.dead_letter_reason END
            WHEN 'origin' THEN m.resubmitted_from ->> 'path'
            WHEN 'description' THEN m.dead_letter_description
            WHEN 'held-by' THEN m.locked_by
            WHEN 'entity' THEN c.namespace_name || '/' || c.path
            WHEN 'any' THEN concat_ws(E'\n', m.message_id, m.properties ->> 'correlation_id', m.properties ->> 'subject',
                                      m.session_id, m.dead_letter_reason, m.dead_letter_description)
            ELSE m.properties ->> t.field END AS value OFFSET 0) AS v
      WHERE coalesce(CASE WHEN t.exact THEN v.value LIKE t.pattern
                     ELSE lower(v.value) LIKE lower(t.pattern) END, false) = t.negated))
AND (%(property_names)s::text[] IS NULL OR NOT EXISTS (
     SELECT FROM unnest(%(property_names)s::text[], %(property_operators)s::text[], %(property_patterns)s::text[],
                        %(property_texts)s::text[], %(property_numbers)s::numeric[], %(property_negated)s::boolean[])
                 AS t(name, operator, pattern, text, number, negated)
      CROSS JOIN LATERAL (SELECT m.application_properties -> t.name ->> 1 AS value OFFSET 0) AS v
      CROSS JOIN LATERAL (SELECT CASE
            WHEN t.number IS NULL THEN CASE WHEN v.value COLLATE "C" < t.text THEN -1 WHEN v.value = t.text THEN 0 ELSE 1 END
            WHEN v.value ~ '^-?\d+(\.\d+)?([eE][+-]?\d{1,3})?$' THEN sign(v.value::numeric - t.number) END AS order OFFSET 0) AS o
      WHERE coalesce(CASE t.operator
            WHEN '' THEN m.application_properties ? t.name
            WHEN ':' THEN lower(v.value) LIKE lower(t.pattern)
            WHEN '=' THEN v.value LIKE t.pattern
            WHEN '>' THEN v.value IS NOT NULL AND o.order > 0
            WHEN '>=' THEN v.value IS NOT NULL AND o.order >= 0
            WHEN '<' THEN v.value IS NOT NULL AND o.order < 0
            WHEN '<=' THEN v.value IS NOT NULL AND o.order <= 0 END, false) = t.negated))
AND (%(number_fields)s::text[] IS NULL OR NOT EXISTS (
     SELECT FROM unnest(%(number_fields)s::text[], %(number_lows)s::bigint[], %(number_highs)s::bigint[],
                        %(number_negated)s::boolean[]) AS t(field, low, high, negated)
      CROSS JOIN LATERAL (SELECT CASE t.field
            WHEN 'number' THEN m.sequence_number WHEN 'deliveries' THEN m.delivery_count WHEN 'size' THEN m.size
            WHEN 'priority' THEN m.priority END AS value OFFSET 0) AS v
      WHERE (v.value IS NOT NULL AND coalesce(v.value >= t.low, true) AND coalesce(v.value <= t.high, true)) = t.negated))
AND (%(time_fields)s::text[] IS NULL OR NOT EXISTS (
     SELECT FROM unnest(%(time_fields)s::text[], %(time_starts)s::timestamptz[], %(time_ends)s::timestamptz[],
                        %(age_lows)s::interval[], %(age_highs)s::interval[], %(time_negated)s::boolean[])
                 AS t(field, starts, ends, low, high, negated)
      CROSS JOIN LATERAL (SELECT CASE WHEN t.field IN ('dead-at', 'dead-age') THEN m.dead_lettered_at
                                 ELSE m.enqueued_at END AS value OFFSET 0) AS v
      WHERE (v.value IS NOT NULL AND coalesce(v.value >= t.starts, true) AND coalesce(v.value < t.ends, true)
             AND coalesce(v.value <= c.now - t.low, true) AND coalesce(v.value > c.now - t.high, true)) = t.negated))
AND (%(states)s::text[] IS NULL OR NOT EXISTS (
     SELECT FROM unnest(%(states)s::text[], %(state_negated)s::boolean[]) AS t(state, negated)
      CROSS JOIN LATERAL (SELECT
            m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AS waits,
            m.owner_id IS NOT NULL OR coalesce(m.locked_until > c.now, false) AS held,
            coalesce(CASE WHEN c.family = 'rabbitmq' THEN least(m.expires_at, m.enqueued_at + c.default_message_time_to_live)
                     ELSE coalesce(m.expires_at, m.enqueued_at + c.default_message_time_to_live) END <= c.now, false) AS ended,
            coalesce(m.visible_at > c.now, false) AS invisible OFFSET 0) AS s
      WHERE CASE t.state
            WHEN 'active' THEN s.waits AND NOT s.held AND NOT s.ended AND NOT s.invisible
            WHEN 'locked' THEN s.held OR s.invisible AND NOT s.ended
            WHEN 'expired' THEN s.waits AND s.ended AND NOT s.held
            WHEN 'deferred' THEN m.state = @STATE_DEFERRED
            WHEN 'scheduled' THEN m.state = @STATE_SCHEDULED
            WHEN 'dead' THEN m.subqueue <> @SUBQUEUE_MAIN
            ELSE false END = t.negated))
AND (%(body_parts)s::bytea[] IS NULL OR NOT EXISTS (
     SELECT FROM unnest(%(body_parts)s::bytea[], %(body_negated)s::boolean[]) AS t(part, negated)
      WHERE (position(t.part IN m.body) > 0) = t.negated))

-- fragment: json_matches
-- Whether the conditions on values in JSON hold; NULL: there are some, and the body is not JSON.
CASE WHEN %(json_paths)s::text[] IS NULL THEN true
     ELSE vitrine_json_matches(m.body, %(json_paths)s::text[], %(json_negated)s::boolean[]) END

-- name: read_messages
-- Up to max_count messages of one list that match the filter, among the next max_scanned ones in the requested direction.
-- Without a match there is one row without a number, with `scanned` and `last_scanned`.
-- The rows to examine are found in the key alone; there is a scan for each direction, one of which a constant filter disables.
-- list_states: the list; by_due: the scheduled messages in the order of their instants. locked: only those, or only the others.
-- If bodies are searched, only rows within max_bytes of bodies are examined, but at least one. at_end: there are no more rows.
WITH
-- include: clocked
, head AS MATERIALIZED (                                                    -- below the head are only dead index entries
    SELECT coalesce((SELECT head FROM vitrine_queue_head
                      WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s), 1) AS number
), looked_at AS MATERIALIZED (
    (SELECT m.* FROM unnest(%(list_states)s::smallint[]) AS s(state) CROSS JOIN LATERAL (
            SELECT ctid AS tid, sequence_number, NULL::timestamptz AS due FROM vitrine_message
             WHERE %(descending)s::boolean AND NOT %(by_due)s::boolean
               AND entity_id = %(entity_id)s AND subqueue = %(subqueue)s AND state = s.state AND sequence_number < %(beyond)s
               AND sequence_number <= %(highest)s
               AND sequence_number
                   >= greatest(CASE s.state WHEN @STATE_ACTIVE THEN (SELECT number FROM head) ELSE 1 END, %(lowest)s)
             ORDER BY sequence_number DESC LIMIT %(max_scanned)s) AS m
      ORDER BY m.sequence_number DESC LIMIT %(max_scanned)s)
    UNION ALL
    (SELECT m.* FROM unnest(%(list_states)s::smallint[]) AS s(state) CROSS JOIN LATERAL (
            SELECT ctid AS tid, sequence_number, NULL::timestamptz AS due FROM vitrine_message
             WHERE NOT %(descending)s::boolean AND NOT %(by_due)s::boolean
               AND entity_id = %(entity_id)s AND subqueue = %(subqueue)s AND state = s.state AND sequence_number > %(beyond)s
               AND sequence_number <= %(highest)s
               AND sequence_number
                   >= greatest(CASE s.state WHEN @STATE_ACTIVE THEN (SELECT number FROM head) ELSE 1 END, %(lowest)s)
             ORDER BY sequence_number LIMIT %(max_scanned)s) AS m
      ORDER BY m.sequence_number LIMIT %(max_scanned)s)
    UNION ALL
    (SELECT ctid AS tid, sequence_number, scheduled_enqueue_at AS due FROM vitrine_message
      WHERE %(descending)s::boolean AND %(by_due)s::boolean
        AND entity_id = %(entity_id)s AND subqueue = %(subqueue)s AND state = @STATE_SCHEDULED
        AND sequence_number BETWEEN %(lowest)s AND %(highest)s
        AND (scheduled_enqueue_at, sequence_number) < (%(beyond_due)s::timestamptz, %(beyond)s::bigint)
      ORDER BY scheduled_enqueue_at DESC, sequence_number DESC LIMIT %(max_scanned)s)
    UNION ALL
    (SELECT ctid AS tid, sequence_number, scheduled_enqueue_at AS due FROM vitrine_message
      WHERE NOT %(descending)s::boolean AND %(by_due)s::boolean
        AND entity_id = %(entity_id)s AND subqueue = %(subqueue)s AND state = @STATE_SCHEDULED
        AND sequence_number BETWEEN %(lowest)s AND %(highest)s
        AND (scheduled_enqueue_at, sequence_number) > (%(beyond_due)s::timestamptz, %(beyond)s::bigint)
      ORDER BY scheduled_enqueue_at, sequence_number LIMIT %(max_scanned)s)
), taken AS MATERIALIZED (
    SELECT tid, sequence_number, due FROM looked_at WHERE NOT %(reads_bodies)s::boolean
    UNION ALL
    SELECT tid, sequence_number, due FROM (
        SELECT ctid AS tid, sequence_number, CASE WHEN %(by_due)s::boolean THEN scheduled_enqueue_at END AS due,
               sum(size) OVER (ORDER BY
                               -- include: in_list_order
                              ) - size AS before
          FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM looked_at WHERE %(reads_bodies)s::boolean))) AS x
     WHERE before < %(max_bytes)s
), judged AS MATERIALIZED (                                                   -- matches NULL: the body is not JSON
    SELECT m.ctid AS tid, m.sequence_number, m.scheduled_enqueue_at,
-- include: json_matches
           AS matches
      FROM vitrine_message AS m, clock AS c
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM taken))
       AND (%(locked)s::boolean IS NULL OR (m.locked_until > c.now) IS TRUE = %(locked)s::boolean)
-- include: matches
), found AS MATERIALIZED (
    SELECT
-- include: message_columns
      FROM vitrine_message AS m
     WHERE m.ctid = ANY (ARRAY(
           SELECT m.tid FROM judged AS m WHERE m.matches
            ORDER BY
                     -- include: in_list_order
            LIMIT %(max_count)s))
)
SELECT
-- include: clock_columns
       s.scanned, s.last_scanned, s.last_due, s.scanned = l.n AND l.n < %(max_scanned)s AS at_end, j.not_json, j.matched, f.*
  FROM clock AS c
 CROSS JOIN (SELECT count(*) AS scanned, CASE WHEN %(descending)s::boolean THEN min(due) ELSE max(due) END AS last_due,
                    CASE WHEN %(by_due)s::boolean THEN (
                              SELECT CASE WHEN %(descending)s::boolean THEN min(x.sequence_number) ELSE max(x.sequence_number) END
                                FROM taken AS x
                               WHERE x.due = (SELECT CASE WHEN %(descending)s::boolean THEN min(due) ELSE max(due) END
                                                FROM taken))
                         WHEN %(descending)s::boolean THEN min(sequence_number) ELSE max(sequence_number)
                    END AS last_scanned FROM taken) AS s
 CROSS JOIN (SELECT count(*) AS n FROM looked_at) AS l
 CROSS JOIN (SELECT count(*) FILTER (WHERE matches IS NULL) AS not_json, count(*) FILTER (WHERE matches) AS matched
               FROM judged) AS j
  LEFT JOIN found AS f ON true
 ORDER BY CASE WHEN NOT %(by_due)s::boolean THEN NULL
               WHEN %(descending)s::boolean THEN -extract(epoch FROM f.scheduled_enqueue_at)
               ELSE extract(epoch FROM f.scheduled_enqueue_at) END,
          CASE WHEN %(descending)s::boolean THEN -f.sequence_number ELSE f.sequence_number END;

-- name: read_frequent_values
-- The most frequent values of a field, or of the application property `name`, that contain `part`, among the newest max_scanned
-- messages of a list, or fewer if these have more than max_bytes beside their bodies. field "names": names of application
-- properties.
WITH newest AS MATERIALIZED (
    SELECT m.tid, sum(m.size) OVER (ORDER BY m.sequence_number DESC) AS bytes
      FROM unnest(%(list_states)s::smallint[]) AS s(state) CROSS JOIN LATERAL (
           SELECT ctid AS tid, sequence_number, size - octet_length(body) AS size FROM vitrine_message
            WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s AND state = s.state
            ORDER BY sequence_number DESC LIMIT %(max_scanned)s) AS m
     ORDER BY m.sequence_number DESC LIMIT %(max_scanned)s)
SELECT v.value, count(*) AS n
  FROM vitrine_message AS m
 CROSS JOIN LATERAL (
       SELECT CASE %(field)s::text
              WHEN 'session' THEN m.session_id COLLATE "default"
              WHEN 'reason' THEN m.dead_letter_reason
              WHEN 'description' THEN m.dead_letter_description
              WHEN 'held-by' THEN m.locked_by
              WHEN 'property' THEN m.application_properties -> %(name)s::text ->> 1
              ELSE m.properties ->> %(field)s::text END AS value
        WHERE %(field)s::text <> 'names'
       UNION ALL
       SELECT name FROM jsonb_object_keys(m.application_properties) AS k(name) WHERE %(field)s::text = 'names') AS v
 WHERE m.ctid = ANY (ARRAY(SELECT tid FROM newest WHERE bytes <= %(max_bytes)s))
   AND strpos(lower(v.value), lower(%(part)s::text)) > 0
 GROUP BY v.value ORDER BY n DESC, v.value LIMIT %(max_count)s;

-- name: read_messages_by_number
-- These messages of one entity, in any list.
WITH
-- include: clocked
SELECT
-- include: clock_columns
-- include: message_columns
  FROM clock AS c CROSS JOIN unnest(%(numbers)s::bigint[]) AS t(number)
 CROSS JOIN LATERAL (
       SELECT * FROM vitrine_message
        WHERE entity_id = %(entity_id)s
          AND subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}')
          AND state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}')
          AND sequence_number = t.number) AS m
 ORDER BY m.sequence_number;

-- name: read_properties_by_number
-- The properties of these messages of one entity, in any list.
SELECT m.sequence_number, m.properties, m.application_properties
  FROM unnest(%(numbers)s::bigint[]) AS t(number)
 CROSS JOIN LATERAL (
       SELECT * FROM vitrine_message
        WHERE entity_id = %(entity_id)s
          AND subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}')
          AND state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}')
          AND sequence_number = t.number) AS m;

-- name: read_sessions
-- Sessions with messages, state or a lock, by id after a given one. Messages are counted up to a cap.
SELECT c.now, s.session_id, n.messages, CASE WHEN s.locked_until > c.now THEN s.locked_until END AS locked_until,
       CASE WHEN s.locked_until > c.now THEN s.locked_by END AS locked_by,
       CASE WHEN s.locked_until > c.now THEN s.lock_token END AS lock_token,
       octet_length(s.state) AS state_size, substring(s.state FROM 1 FOR %(state_bytes)s::int) AS state, s.state_updated_at
  FROM vitrine_entity_now AS c JOIN vitrine_session AS s ON s.entity_id = c.id
 CROSS JOIN LATERAL (
       SELECT count(*) AS messages FROM (
           SELECT FROM vitrine_message AS m
            WHERE m.entity_id + 0 = c.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.session_id = s.session_id
            LIMIT %(message_cap)s + 1) AS x) AS n
 WHERE c.id = %(entity_id)s AND (%(after)s::text IS NULL OR s.session_id > %(after)s)
   AND (%(part)s::text IS NULL OR strpos(s.session_id, %(part)s) > 0)
   AND (%(holder)s::text IS NULL OR (s.locked_by = %(holder)s AND s.locked_until > c.now))
   AND (n.messages > 0 OR s.state IS NOT NULL OR s.locked_until > c.now)
 ORDER BY s.session_id
 LIMIT %(max_count)s;

-- name: read_rules
-- The rules of subscriptions, by name.
SELECT subscription_id, name, filter, action, created_at FROM vitrine_rule
 WHERE subscription_id = ANY (%(ids)s::bigint[]) ORDER BY subscription_id, lower(name);

-- name: read_message
-- One message of an entity without its body.
WITH
-- include: clocked
SELECT
-- include: clock_columns
-- include: message_columns
     , m.properties, m.application_properties, m.time_to_live, m.dead_letter_source, m.enqueued_sequence_number,
       m.resubmitted_from, m.transfer, m.encoded, m.body_kind, octet_length(m.body) AS body_size, m.xmin::text AS version
  FROM clock AS c JOIN vitrine_message AS m ON m.entity_id = %(entity_id)s
 WHERE m.subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}')
   AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}') AND m.sequence_number = %(sequence_number)s;

-- name: read_contents
-- These messages of one list with their bodies, lowest number first: as many as have max_bytes together, but at least one.
WITH
-- include: clocked
, sized AS MATERIALIZED (
    SELECT m.tid, sum(m.bytes) OVER (ORDER BY m.sequence_number) - m.bytes AS before
      FROM unnest(%(numbers)s::bigint[]) AS t(number)
     CROSS JOIN LATERAL (
           SELECT ctid AS tid, sequence_number, octet_length(body) AS bytes FROM vitrine_message
            WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s::smallint
              AND state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}') AND sequence_number = t.number) AS m)
SELECT
-- include: clock_columns
-- include: message_columns
     , m.properties, m.application_properties, m.time_to_live, m.dead_letter_source, m.enqueued_sequence_number,
       m.resubmitted_from, m.transfer, m.encoded, m.body_kind, octet_length(m.body) AS body_size, m.body,
       m.xmin::text AS version
  FROM clock AS c CROSS JOIN sized AS s JOIN vitrine_message AS m ON m.ctid = s.tid
 WHERE s.before < %(max_bytes)s::bigint
 ORDER BY m.sequence_number;

-- name: read_body
-- Part of a body. Bodies are stored uncompressed, so only the needed part is read.
SELECT substring(body FROM %(offset)s::int + 1 FOR %(length)s::int) AS content, octet_length(body) AS total, body_kind,
       properties ->> 'content_type' AS content_type
  FROM vitrine_message
 WHERE entity_id = %(entity_id)s AND subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}')
   AND state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}') AND sequence_number = %(sequence_number)s;

-- name: kept_period
-- The address of an entity, which may be deleted, and how long ended messages of its namespace are kept now.
SELECT n.name AS namespace, e.path, n.keep_messages_for
  FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE e.id = %(entity_id)s;

-- name: read_kept_message
-- What is kept of a message that ended, without its body. removed_at, ended_at: the real time, and the namespace's, of the event
-- that ended it. The entity may be deleted.
SELECT m.slot, m.kept_for, m.body_kind, m.properties, m.application_properties, m.encoded, octet_length(m.body) AS body_size
  FROM vitrine_kept_message AS m
 WHERE m.slot = ANY (%(slots)s::smallint[]) AND m.removed_at = %(removed_at)s::timestamptz AND m.entity_id = %(entity_id)s
   AND m.sequence_number = %(sequence_number)s
   AND %(ended_at)s::timestamptz + m.kept_for > (SELECT v.now FROM vitrine_entity AS e
                                                   JOIN vitrine_namespace_now AS v ON v.id = e.namespace_id
                                                  WHERE e.id = %(entity_id)s)
 LIMIT 1;

-- name: read_kept_body
-- Part of the body of a kept message. until: the end of its time, by the namespace's clock.
SELECT substring(m.body FROM %(offset)s::int + 1 FOR %(length)s::int) AS content, octet_length(m.body) AS total, m.body_kind,
       m.properties ->> 'content_type' AS content_type
  FROM vitrine_kept_message AS m
 WHERE m.slot = ANY (%(slots)s::smallint[]) AND m.removed_at = %(removed_at)s::timestamptz AND m.entity_id = %(entity_id)s
   AND m.sequence_number = %(sequence_number)s
   AND %(until)s::timestamptz > (SELECT v.now FROM vitrine_entity AS e JOIN vitrine_namespace_now AS v ON v.id = e.namespace_id
                                  WHERE e.id = %(entity_id)s)
 LIMIT 1;

-- name: kept_in_namespace
-- The number and size of the kept messages of a namespace.
SELECT count(*) AS messages, coalesce(sum(octet_length(m.body)), 0)::bigint AS bytes
  FROM vitrine_kept_message AS m
 WHERE m.entity_id = ANY (ARRAY(SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
                                 WHERE lower(n.name) = lower(%(namespace)s)));

-- name: allow_bitmap_scans
-- Until the end of the transaction.
SELECT set_config('enable_bitmapscan', 'on', true);

-- name: join_by_hashing
-- Until the end of the transaction. A search joins up to 20,000 messages with their entities; a plan made without knowing how
-- many could compare each with each.
SELECT set_config('enable_nestloop', 'off', true);

-- name: read_message_events
-- The events of one message, newest first. The index, on days that are over, is on the hash, so both conditions are needed.
SELECT event_id, recorded_at, at, entity_id, subqueue, sequence_number, kind, message_id, delivery_count,
       locked_until, actor, reason, enqueued_at, first_received_at, last_received_at, session_id, size, time_to_live, properties,
       application_properties, details
  FROM vitrine_message_event
 WHERE hashint8extended(sequence_number, entity_id) = hashint8extended(%(sequence_number)s::bigint, %(entity_id)s::bigint)
   AND sequence_number = %(sequence_number)s AND entity_id = %(entity_id)s
 ORDER BY event_id DESC
 LIMIT %(max_count)s;

-- name: read_events
-- The newest events below (xid, event_id) that match the filter, among the next max_scanned ones, in descending order of
-- transactions, the only order with an index. Without a match there is one row, as in read_messages.
WITH looked_at AS MATERIALIZED (
    SELECT event_id, recorded_at, at, entity_id, subqueue, sequence_number, kind, message_id, delivery_count, locked_until, actor,
           reason, enqueued_at, first_received_at, last_received_at, session_id, size, time_to_live, properties,
           application_properties, details, xid
      FROM vitrine_message_event
     WHERE xid <= %(below_xid)s::xid8 AND (xid < %(below_xid)s::xid8 OR event_id < %(below_event)s)
       AND recorded_at >= coalesce(%(since)s::timestamptz, '-infinity')  -- without OR: prunes partitions of other days
       AND recorded_at < coalesce(%(until)s::timestamptz, 'infinity')
     ORDER BY xid DESC, event_id DESC LIMIT %(max_scanned)s
), last_one AS (
    SELECT xid::text AS last_xid, event_id AS last_event FROM looked_at ORDER BY looked_at.xid, event_id LIMIT 1
), found AS (
    SELECT * FROM looked_at
     WHERE (%(entity_id)s::bigint IS NULL OR entity_id = %(entity_id)s)
       AND (%(namespace)s::text IS NULL
            OR entity_id IN (SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
                              WHERE lower(n.name) = lower(%(namespace)s)))
       AND (%(except_namespaces)s::text[] IS NULL
            OR entity_id NOT IN (SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
                                  WHERE lower(n.name) = ANY (%(except_namespaces)s::text[])))
       AND (%(kinds)s::smallint[] IS NULL OR kind = ANY (%(kinds)s::smallint[]))
       AND (%(actors)s::text[] IS NULL OR actor = ANY (%(actors)s::text[])
            OR EXISTS (SELECT FROM unnest(%(prefixes)s::text[]) AS p(text) WHERE starts_with(actor, p.text)))
       AND (%(message_id)s::text IS NULL OR message_id = %(message_id)s)
       AND (%(sequence_number)s::bigint IS NULL OR sequence_number = %(sequence_number)s)
     ORDER BY looked_at.xid DESC, event_id DESC LIMIT %(max_count)s
)
SELECT s.scanned, l.last_xid, l.last_event, f.event_id, f.recorded_at, f.at, f.entity_id, f.subqueue, f.sequence_number, f.kind,
       f.message_id, f.delivery_count, f.locked_until, f.actor, f.reason, f.enqueued_at, f.first_received_at, f.last_received_at,
       f.session_id, f.size, f.time_to_live, f.properties, f.application_properties, f.details, f.xid::text AS xid
  FROM (SELECT count(*) AS scanned FROM looked_at) AS s
  LEFT JOIN last_one AS l ON true
  LEFT JOIN found AS f ON true
 ORDER BY f.xid DESC, f.event_id DESC;

-- name: read_position
-- Where the events of all namespaces are now: what is committed, and the highest number given to an event.
SELECT pg_current_snapshot()::text AS snapshot,
       coalesce(pg_sequence_last_value(pg_get_serial_sequence('vitrine_message_event', 'event_id')::regclass), 0) AS event_id;

-- name: read_events_since
-- The newest events of a namespace that are visible to this snapshot but not to an earlier one: on days with indexes by that of
-- entities, which is on entity_id + 0, and on later ones among all events since. Without any there is one row, for the snapshot.
WITH found AS MATERIALIZED (
    SELECT event_id, recorded_at, at, entity_id, subqueue, sequence_number, kind, message_id, delivery_count, locked_until, actor,
           reason, enqueued_at, first_received_at, last_received_at, session_id, size, time_to_live, properties,
           application_properties, details
      FROM vitrine_message_event
     WHERE xid >= pg_snapshot_xmin(%(since)s::pg_snapshot)
       AND entity_id + 0 = ANY (ARRAY(SELECT e.id FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
                                       WHERE lower(n.name) = lower(%(namespace)s)))
       AND NOT pg_visible_in_snapshot(xid, %(since)s::pg_snapshot)
     ORDER BY event_id DESC LIMIT %(max_count)s)
SELECT pg_current_snapshot()::text AS snapshot, f.* FROM (SELECT) AS one LEFT JOIN found AS f ON true ORDER BY f.event_id;

-- name: read_find_in_events
-- Messages with a message id, newest first, found by their events; includes removed messages.
SELECT e.entity_id, e.sequence_number, max(e.event_id) AS last_event,
       (array_agg(e.kind ORDER BY e.event_id DESC))[1] AS last_kind, (array_agg(e.at ORDER BY e.event_id DESC))[1] AS last_at,
       (array_agg(e.reason ORDER BY e.event_id DESC))[1] AS reason, min(e.message_id) AS message_id
  FROM vitrine_message_event AS e
 WHERE e.message_id = %(message_id)s
 GROUP BY e.entity_id, e.sequence_number
 ORDER BY last_event DESC
 LIMIT %(max_count)s;

-- name: search_events_of_id
-- Messages with exactly this id, present or removed, newest first: by their first event that is kept. last_kind, last_reason: of
-- their last event.
WITH found AS MATERIALIZED (
    SELECT DISTINCT ON (entity_id, sequence_number) event_id, entity_id, sequence_number, subqueue, kind, message_id, session_id,
           coalesce(enqueued_at, at) AS at, actor, properties, last_value(kind) OVER of_message AS last_kind,
           last_value(reason) OVER of_message AS last_reason
      FROM vitrine_message_event WHERE message_id = %(message_id)s
    WINDOW of_message AS (PARTITION BY entity_id, sequence_number ORDER BY event_id
                          ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
     ORDER BY entity_id, sequence_number, kind IN (@EVENT_SENT, @EVENT_SCHEDULED, @EVENT_PUBLISHED) DESC, event_id
)
SELECT m.entity_id, m.sequence_number, m.subqueue, m.kind, m.message_id, m.session_id, m.at,
       CASE WHEN m.kind IN (@EVENT_SENT, @EVENT_SCHEDULED, @EVENT_PUBLISHED) THEN m.actor END AS actor,
       m.properties ->> 'subject' AS subject, m.properties ->> 'correlation_id' AS correlation_id,
       n.name AS namespace_name, e.path, e.family, e.deleted_at, c.now, m.last_kind, m.last_reason
  FROM found AS m JOIN vitrine_entity AS e ON e.id = m.entity_id JOIN vitrine_namespace AS n ON n.id = e.namespace_id
  JOIN vitrine_namespace_now AS c ON c.id = n.id
 WHERE %(with_system)s::boolean OR NOT n.is_system
 ORDER BY m.event_id DESC LIMIT %(max_count)s;

-- name: search_outcomes
-- How messages left: their last events among the next max_read events from a transaction on.
WITH looked_at AS MATERIALIZED (
    SELECT event_id, entity_id, sequence_number, kind, reason FROM vitrine_message_event
     WHERE xid >= %(from_xid)s::text::xid8 ORDER BY xid LIMIT %(max_read)s
)
SELECT DISTINCT ON (l.entity_id, l.sequence_number) l.entity_id, l.sequence_number, l.kind, l.reason
  FROM unnest(%(entity_ids)s::bigint[], %(numbers)s::bigint[]) AS p (entity_id, number)
  JOIN looked_at AS l ON l.entity_id = p.entity_id AND l.sequence_number = p.number
 ORDER BY l.entity_id, l.sequence_number, l.event_id DESC;

-- name: read_find_in_messages
-- Stored messages with a message id, among the first max_scanned rows of the table; includes messages without events (history
-- off, or older). Without a match there is one row without a number, with `scanned`.
WITH looked_at AS MATERIALIZED (
    SELECT entity_id, subqueue, sequence_number, message_id FROM vitrine_message LIMIT %(max_scanned)s
), found AS (
    SELECT l.*
      FROM looked_at AS l JOIN vitrine_entity AS e ON e.id = l.entity_id JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE l.message_id = %(message_id)s AND (%(with_system)s::boolean OR NOT n.is_system) LIMIT %(max_count)s
)
SELECT s.scanned, f.* FROM (SELECT count(*) AS scanned FROM looked_at) AS s LEFT JOIN found AS f ON true;

-- name: read_present
-- Which of these messages are stored, and in which list.
SELECT m.entity_id, m.subqueue, m.sequence_number
  FROM unnest(%(entity_ids)s::bigint[], %(numbers)s::bigint[]) AS t(entity_id, number)
 CROSS JOIN LATERAL (
       SELECT entity_id, subqueue, sequence_number FROM vitrine_message
        WHERE entity_id = t.entity_id AND subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}')
          AND state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}')
          AND sequence_number = t.number) AS m;

-- fragment: times_sums
sum(t.waiting_sum) AS waiting_sum, max(t.waiting_max) AS waiting_max, vitrine_histogram_sum(t.waiting) AS waiting,
sum(t.processing_sum) AS processing_sum, max(t.processing_max) AS processing_max,
vitrine_histogram_sum(t.processing) AS processing

-- name: read_candidates
-- Some of the entities that may need a person: `most` of each sort, those with the most messages first. What the reader then
-- decides on exact counts is among them: neglected ones may turn out to have no available message. candidates: how many there are
-- of any sort. Without a candidate there is one row with their number only. Dead letters, or messages of a queue that collects
-- them, are new if they came since `since`; a few more entities are marked than have any. quota_share: of the stored bytes of a
-- queue, or of the messages of a RabbitMQ queue with a length limit; NULL: less than fuller_than. The oldest message is looked
-- for where it may matter: not if there is no receiver and no lock.
WITH
-- include: listed
,
-- include: dead_letter_queues
,
lists AS MATERIALIZED (
    SELECT l.entity_id, sum(l.bytes::float8) AS bytes,
           -- include: sums_of_lists
      FROM (SELECT entity_id, subqueue, state, n, bytes FROM vitrine_count_base WHERE until IS NULL AND (n <> 0 OR bytes <> 0)
            UNION ALL SELECT entity_id, subqueue, state, n, bytes FROM vitrine_count_delta WHERE until IS NULL) AS l
     GROUP BY l.entity_id),
locked AS MATERIALIZED (
    SELECT entity_id FROM vitrine_count_base WHERE until IS NOT NULL AND n <> 0 GROUP BY entity_id
    UNION SELECT entity_id FROM vitrine_count_delta WHERE until IS NOT NULL AND n <> 0),
grown AS MATERIALIZED (
    SELECT g.entity_id, bool_or(g.in_dead) AS in_dead, bool_or(g.in_main) AS in_main
      FROM (SELECT entity_id, dead_change > 0 AS in_dead, active_change > 0 AS in_main FROM vitrine_traffic
             WHERE step = 60 AND bucket >= %(since)s::timestamptz AND entity_id > 0 AND (dead_change > 0 OR active_change > 0)
            UNION ALL
            SELECT entity_id, subqueue <> @SUBQUEUE_MAIN, subqueue = @SUBQUEUE_MAIN FROM vitrine_count_delta
             WHERE n > 0 AND until IS NULL AND at >= %(since)s::timestamptz) AS g
     GROUP BY g.entity_id),
large AS MATERIALIZED (                                  -- those that may be so full
    SELECT c.entity_id AS id FROM vitrine_entity_counter AS c WHERE c.bytes_sent >= %(fuller_than)s::float8 * 1048576
     UNION SELECT e.id FROM vitrine_entity AS e WHERE e.family = 'rabbitmq' AND e.effective ? 'max_length'),
quotas AS MATERIALIZED (
    SELECT q.id, x.share
      FROM large AS f JOIN vitrine_entity AS q ON q.id = f.id LEFT JOIN vitrine_entity_counter AS c ON c.entity_id = q.id
      LEFT JOIN lists AS l ON l.entity_id = q.id
     CROSS JOIN LATERAL (
           SELECT CASE q.family WHEN 'service_bus' THEN (coalesce(c.bytes_sent, 0) + coalesce(l.bytes, 0))
                                                        / (q.max_size_in_megabytes * 1048576.0)
                       WHEN 'rabbitmq' THEN coalesce(l.active, 0) / nullif((q.effective ->> 'max_length')::float8, 0)
                  END::float8 AS share) AS x
     WHERE q.deleted_at IS NULL AND x.share >= %(fuller_than)s::float8),
known AS MATERIALIZED (
    SELECT k.*, e.now - oldest.enqueued_at AS age, oldest.enqueued_at <= e.now - %(older_than)s::interval AS is_old
      FROM (
           SELECT e.id, e.now, e.default_message_time_to_live, coalesce(l.active, 0) AS active,
                  e.status <> 'Active' AS is_disabled,
                  CASE WHEN d.id IS NULL THEN coalesce(l.dead_letter, 0) + coalesce(l.transfer_dead_letter, 0)
                       ELSE coalesce(l.active, 0) END AS dead,
                  coalesce(CASE WHEN d.id IS NULL THEN g.in_dead ELSE g.in_main END, false) AS has_new,
                  l.active > 0 AND (a.waiting_until > clock_timestamp()) IS NOT TRUE
                    AND (a.last_receive_at >= e.now - interval '1 minute') IS NOT TRUE
                    AND NOT (e.family = 'rabbitmq' AND EXISTS (SELECT FROM vitrine_consumer AS x WHERE x.queue_id = e.id))
                  AS is_idle, h.entity_id IS NOT NULL AS has_locks, q.share AS quota_share
             FROM entities AS e
             LEFT JOIN lists AS l ON l.entity_id = e.id
             LEFT JOIN locked AS h ON h.entity_id = e.id
             LEFT JOIN grown AS g ON g.entity_id = e.id
             LEFT JOIN dead_letter_queues AS d ON d.id = e.id
             LEFT JOIN quotas AS q ON q.id = e.id
             LEFT JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
            WHERE e.kind <> 'topic' OR e.status <> 'Active') AS k
     CROSS JOIN LATERAL (SELECT k.id, k.now, k.default_message_time_to_live) AS e
     CROSS JOIN LATERAL (SELECT CASE WHEN NOT k.is_idle OR k.has_locks OR k.is_disabled THEN k.active ELSE 0 END AS active) AS l
      LEFT JOIN
           -- include: oldest_active
           ON true),
chosen AS (
    (SELECT id FROM known WHERE dead >= %(many_dead)s::bigint OR (dead > 0 AND has_new)
      ORDER BY has_new DESC, dead DESC, id LIMIT %(most)s::bigint)
    UNION (SELECT id FROM known WHERE is_idle ORDER BY active DESC, id LIMIT %(most)s::bigint)
    UNION (SELECT id FROM known WHERE is_disabled ORDER BY active DESC, id LIMIT %(most)s::bigint)
    UNION (SELECT id FROM known WHERE is_old ORDER BY age DESC, id LIMIT %(most)s::bigint)
    UNION (SELECT id FROM known WHERE quota_share IS NOT NULL ORDER BY quota_share DESC, id LIMIT %(most)s::bigint))
SELECT k.id, k.quota_share, s.*
  FROM (SELECT count(*) FILTER (WHERE dead >= %(many_dead)s::bigint OR (dead > 0 AND has_new) OR is_idle OR is_disabled OR is_old
                                      OR quota_share IS NOT NULL) AS candidates
          FROM known) AS s
  LEFT JOIN known AS k ON k.id = ANY (ARRAY(SELECT id FROM chosen));

-- fragment: depth_changes
-- How a difference `l` of the ledger changes the numbers of active messages and of dead letters.
CASE WHEN l.until IS NULL AND l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_ACTIVE THEN l.n ELSE 0 END,
CASE WHEN l.until IS NULL AND l.subqueue IN (@SUBQUEUE_DEAD_LETTER, @SUBQUEUE_TRANSFER_DEAD_LETTER)
      AND l.state IN (@STATE_ACTIVE, @STATE_DEFERRED) THEN l.n ELSE 0 END

-- name: read_depth_changes
-- How the messages of each of these entities changed by minute since `since`, and how long the completed ones had waited.
SELECT t.entity_id, date_bin('1 min', t.at, 'epoch') AS at, sum(t.active_change)::bigint AS active_change,
       sum(t.dead_change)::bigint AS dead_change, sum(t.completed)::bigint AS completed, sum(t.waiting_sum)::float8 AS waiting_sum
  FROM (SELECT entity_id, bucket AS at, active_change, dead_change,
               CASE WHEN waiting_sum > 0 THEN completed ELSE 0 END AS completed, waiting_sum
          FROM vitrine_traffic WHERE entity_id = ANY (%(ids)s::bigint[]) AND step = 60 AND bucket >= %(since)s
        UNION ALL
        SELECT l.entity_id, l.at,
               -- include: depth_changes
               , 0, 0
          FROM vitrine_count_delta AS l
         WHERE l.entity_id = ANY (%(ids)s::bigint[]) AND l.at >= %(since)s AND l.until IS NULL) AS t
 GROUP BY 1, 2;

-- name: read_top_reasons
-- The most frequent reason among the latest dead letters of each of these entities. reasons: some of all their reasons.
SELECT DISTINCT ON (g.entity_id) g.entity_id, g.reason, g.description, g.n, g.scanned, g.reasons[:%(reasons_cap)s::int] AS reasons
  FROM (
       SELECT e.id AS entity_id, m.reason, min(m.description) AS description, count(*) AS n,
              sum(count(*)) OVER (PARTITION BY e.id)::bigint AS scanned, array_agg(m.reason) OVER (PARTITION BY e.id) AS reasons
         FROM unnest(%(ids)s::bigint[]) AS e(id) CROSS JOIN LATERAL (
              SELECT dead_letter_reason AS reason, left(dead_letter_description, 200) AS description FROM vitrine_message
               WHERE entity_id = e.id AND subqueue = @SUBQUEUE_DEAD_LETTER AND state = @STATE_ACTIVE
               ORDER BY sequence_number DESC LIMIT %(scan_cap)s) AS m
        GROUP BY e.id, m.reason) AS g
 WHERE g.reason IS NOT NULL
 ORDER BY g.entity_id, g.n DESC, g.reason;

-- name: read_traffic
-- The traffic of some entities, or of namespaces (as in vitrine_traffic: their negative ids), added up by intervals of `width`
-- seconds since `since`, from the rows of one step and from what was not rolled up yet. Empty intervals have no row. active_now
-- and dead_now are true in the same snapshot. oldest_at: as in vitrine_traffic, of the end of the interval; oldest_before: of the
-- last one with traffic before `since`. Without traffic there is one row with these only.
WITH unfolded AS (
    SELECT date_bin('10 s', l.at, 'epoch') AS at, l.n, l.op, l.subqueue, l.state, e.kind
      FROM vitrine_count_delta AS l JOIN vitrine_entity AS e ON e.id = l.entity_id
     WHERE (e.id = ANY (%(ids)s::bigint[]) OR e.kind <> 'topic' AND -e.namespace_id = ANY (%(ids)s::bigint[]))
       AND l.at >= %(since)s),
oldest AS MATERIALIZED (
    SELECT now() - (e.now - o.enqueued_at) AS at
      FROM vitrine_entity_now AS e CROSS JOIN LATERAL
           -- include: oldest_waiting
           AS o
     WHERE cardinality(%(ids)s::bigint[]) = 1 AND e.id = (%(ids)s::bigint[])[1]),
counted AS (
    SELECT bucket AS at, t.sent, t.received, t.completed, t.dead_lettered, t.expired, t.abandoned, t.active_change, t.dead_change,
           t.waiting_sum, t.waiting_max, t.waiting, t.processing_sum, t.processing_max, t.processing, t.oldest_at
      FROM vitrine_traffic AS t
     WHERE t.entity_id = ANY (%(ids)s::bigint[]) AND t.step = %(step)s AND t.bucket >= %(since)s
    UNION ALL
    SELECT l.at,
           -- include: traffic_counts
           , 0, 0, '{}', 0, 0, '{}', (SELECT o.at FROM oldest AS o WHERE o.at < l.at + interval '10 s')
      FROM unfolded AS l GROUP BY l.at, l.kind),
summed AS (
    SELECT date_bin(make_interval(secs => %(width)s), t.at, 'epoch') AS at,
           -- include: traffic_sums
           ,
           -- include: times_sums
           , (array_agg(t.oldest_at ORDER BY t.at DESC, t.oldest_at DESC NULLS LAST))[1] AS oldest_at
      FROM counted AS t GROUP BY 1),
entities AS MATERIALIZED (
    SELECT e.id FROM vitrine_entity AS e
     WHERE e.deleted_at IS NULL AND (e.id = ANY (%(ids)s::bigint[]) OR -e.namespace_id = ANY (%(ids)s::bigint[]))),
present AS (
    SELECT coalesce(sum(l.n) FILTER (WHERE l.subqueue = @SUBQUEUE_MAIN), 0)::bigint AS active_now,
           coalesce(sum(l.n) FILTER (WHERE l.subqueue <> @SUBQUEUE_MAIN), 0)::bigint AS dead_now
      FROM (SELECT entity_id, subqueue, state, n FROM vitrine_count_base WHERE until IS NULL AND n <> 0
            UNION ALL SELECT entity_id, subqueue, state, n FROM vitrine_count_delta WHERE until IS NULL AND n <> 0) AS l
      JOIN entities AS e ON e.id = l.entity_id
     WHERE l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_ACTIVE
        OR l.subqueue IN (@SUBQUEUE_DEAD_LETTER, @SUBQUEUE_TRANSFER_DEAD_LETTER) AND l.state IN (@STATE_ACTIVE, @STATE_DEFERRED))
SELECT p.active_now, p.dead_now, s.*,
       (SELECT t.oldest_at FROM vitrine_traffic AS t
         WHERE cardinality(%(ids)s::bigint[]) = 1 AND t.entity_id = (%(ids)s::bigint[])[1] AND t.step = %(step)s
           AND t.bucket < %(since)s ORDER BY t.bucket DESC LIMIT 1) AS oldest_before
  FROM present AS p LEFT JOIN summed AS s ON true ORDER BY s.at;

-- name: read_recent_traffic
-- What came into and left each of these entities, and how their active messages and dead letters changed, by minute since then.
SELECT t.entity_id, date_bin('1 min', t.at, 'epoch') AS at, sum(t.sent)::bigint AS sent, sum(t.completed)::bigint AS completed,
       sum(t.active_change)::bigint AS active_change, sum(t.dead_change)::bigint AS dead_change
  FROM (SELECT entity_id, bucket AS at, sent, completed, active_change, dead_change FROM vitrine_traffic
         WHERE entity_id = ANY (%(ids)s::bigint[]) AND step = 60 AND bucket >= %(since)s
        UNION ALL
        SELECT l.entity_id, l.at, CASE WHEN l.op = ANY (CASE e.kind WHEN 'topic' THEN '{@OP_PUBLISHED}'::int[]
                                                                    ELSE '{@OP_SENT,@OP_SCHEDULED}' END) THEN abs(l.n) ELSE 0 END,
               CASE WHEN l.op IN (@OP_COMPLETED, @OP_RECEIVED_AND_DELETED) THEN abs(l.n) ELSE 0 END,
               -- include: depth_changes
          FROM vitrine_count_delta AS l JOIN vitrine_entity AS e ON e.id = l.entity_id
         WHERE e.id = ANY (%(ids)s::bigint[]) AND l.entity_id = ANY (%(ids)s::bigint[]) AND l.at >= %(since)s) AS t
 GROUP BY 1, 2;

-- name: read_traffic_namespaces
-- The ids of a namespace, or of all but Vitrine's own.
SELECT id FROM vitrine_namespace
 WHERE deleted_at IS NULL AND CASE WHEN %(namespace)s::text IS NULL THEN NOT is_system
                                   ELSE lower(name) = lower(%(namespace)s) END;

-- name: read_collecting_queues
-- The ids of the queues in these namespaces whose messages wait for an operator.
WITH entities AS MATERIALIZED (
    SELECT e.id, e.namespace_id, e.family, e.path FROM vitrine_entity AS e
     WHERE e.namespace_id = ANY (%(namespace_ids)s::bigint[]) AND e.family <> 'service_bus' AND e.deleted_at IS NULL),
-- include: dead_letter_queues
SELECT id FROM dead_letter_queues;

-- name: read_sweep_runs
-- The latest runs of one sweep or of all.
SELECT id, name, started_at, finished_at, outcome, error FROM vitrine_sweep_run
 WHERE (%(name)s::text IS NULL OR name = %(name)s)
 ORDER BY started_at DESC, id DESC LIMIT %(max_count)s;

-- name: read_last_sweep_runs
-- The latest run of each sweep.
SELECT DISTINCT ON (name) id, name, started_at, finished_at, outcome, error FROM vitrine_sweep_run
 ORDER BY name, started_at DESC, id DESC;

-- name: read_health
-- The oldest snapshot of another connection to the server, for which vacuum and the archive wait, and sizes on disk.
SELECT clock_timestamp() AS read_at, o.age AS oldest_snapshot_age, o.who AS oldest_snapshot_by,
       (pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        - pg_snapshot_xmin(pg_current_snapshot())::text::bigint) AS horizon_age,
       pg_database_size(current_database()) AS database_bytes, pg_total_relation_size('vitrine_message') AS message_bytes,
       (SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('vitrine_message_event')) AS event_bytes,
       vitrine_kept_bytes() AS kept_bytes,
       (SELECT count(*) FROM vitrine_count_delta) AS ledger_waiting,
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections,
       pg_size_bytes(current_setting('shared_buffers')) AS buffer_bytes
  FROM (SELECT) AS nothing
  LEFT JOIN LATERAL (
       SELECT clock_timestamp() - xact_start AS age,
              concat_ws(', ', nullif(application_name, ''), usename, state, 'process ' || pid) AS who
         FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND backend_type = 'client backend'
        ORDER BY xact_start LIMIT 1) AS o ON true;

-- name: next_changes
-- The next max_count changes in an entity by the clock alone, the earliest of all kinds. Each kind takes one index probe, or
-- examines at most `cap` messages from the head on. number NULL: the change affects the queue itself, or a session.
WITH entity AS MATERIALIZED (
    SELECT e.id, e.family, e.now, e.default_message_time_to_live AS ttl, e.requires_session, e.auto_delete_on_idle, e.forward_to,
           coalesce((e.options ->> 'expiry_grace')::float8, 60) * interval '1 s' AS grace,
           coalesce((e.effective ->> 'consumer_timeout')::bigint, %(default_timeout)s::bigint) * interval '1 ms' AS timeout
      FROM vitrine_entity_now AS e WHERE e.id = %(entity_id)s
), first AS MATERIALIZED (                              -- expiry by the default, and unacknowledged messages, have no index
    SELECT m.sequence_number, m.enqueued_at, m.expires_at, m.owner_id, m.last_received_at, m.locked_until
      FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND (SELECT ttl IS NOT NULL OR family = 'rabbitmq' FROM entity)
       AND m.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                           WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN), 1)
     ORDER BY m.sequence_number LIMIT %(cap)s
)
SELECT what, at, number
  FROM (
    (SELECT 'due' AS what, scheduled_enqueue_at AS at, sequence_number AS number FROM vitrine_message
      WHERE entity_id = %(entity_id)s AND state = @STATE_SCHEDULED AND scheduled_enqueue_at > (SELECT now FROM entity)
      ORDER BY scheduled_enqueue_at LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'lock', d.until, m.sequence_number
       FROM (SELECT until, subqueue, first_number, last_number FROM vitrine_lock_deadline
              WHERE entity_id = %(entity_id)s AND until > (SELECT now FROM entity) ORDER BY until LIMIT %(cap)s) AS d
      CROSS JOIN LATERAL (                              -- only deadlines with a message that is still locked until then
            SELECT m.sequence_number FROM vitrine_message AS m
             WHERE m.entity_id = %(entity_id)s AND m.subqueue = d.subqueue
               AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}'::smallint[])
               AND m.sequence_number BETWEEN d.first_number AND d.last_number AND m.locked_until = d.until
             ORDER BY m.sequence_number LIMIT %(max_count)s) AS m
      ORDER BY d.until, m.sequence_number LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'session', locked_until, NULL FROM vitrine_session
      WHERE entity_id = %(entity_id)s AND (SELECT requires_session FROM entity) AND locked_until > (SELECT now FROM entity)
      ORDER BY locked_until LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'visible', visible_at, sequence_number FROM vitrine_message
      WHERE entity_id = %(entity_id)s AND visible_at IS NOT NULL AND visible_at > (SELECT now FROM entity)
        AND (expires_at IS NULL OR expires_at > (SELECT now FROM entity))
      ORDER BY visible_at LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'life', x.expires_at, x.sequence_number
       FROM (SELECT expires_at, enqueued_at, sequence_number, locked_until, owner_id FROM vitrine_message
              WHERE entity_id = %(entity_id)s AND expires_at IS NOT NULL AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE
                AND expires_at > (SELECT now FROM entity)
              ORDER BY expires_at LIMIT %(cap)s) AS x
      WHERE x.owner_id IS NULL                          -- a held message does not expire, except in a storage queue
        AND (x.locked_until IS NULL OR x.locked_until <= x.expires_at OR (SELECT family = 'queue_storage' FROM entity))
        AND (SELECT family <> 'rabbitmq' OR ttl IS NULL OR x.enqueued_at + ttl >= x.expires_at FROM entity)
      ORDER BY x.expires_at LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'life', f.enqueued_at + e.ttl, f.sequence_number FROM first AS f CROSS JOIN entity AS e
      WHERE f.owner_id IS NULL AND f.enqueued_at + e.ttl > e.now
        AND (f.expires_at IS NULL OR e.family = 'rabbitmq' AND f.expires_at > f.enqueued_at + e.ttl)
        AND (f.locked_until IS NULL OR f.locked_until <= f.enqueued_at + e.ttl)
      ORDER BY 2 LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'removal', m.expires_at + e.grace, m.sequence_number FROM entity AS e, vitrine_message AS m
      WHERE e.family = 'queue_storage' AND m.entity_id = %(entity_id)s AND m.expires_at IS NOT NULL
        AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
        AND m.expires_at > (SELECT now - grace FROM entity) AND m.expires_at <= (SELECT now FROM entity)
      ORDER BY m.expires_at LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'unacknowledged', f.last_received_at + e.timeout, f.sequence_number FROM first AS f CROSS JOIN entity AS e
      WHERE f.owner_id IS NOT NULL AND e.timeout > interval '0' AND f.last_received_at + e.timeout > e.now
      ORDER BY 2 LIMIT %(max_count)s)
    UNION ALL
    (SELECT 'queue', q.at, NULL
       FROM entity AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
      CROSS JOIN LATERAL (SELECT
            -- include: unused_since
            + e.auto_delete_on_idle AS at) AS q
      WHERE e.family = 'rabbitmq' AND q.at > e.now
        AND NOT EXISTS (SELECT FROM vitrine_consumer AS c WHERE c.queue_id = e.id))
    UNION ALL
    (SELECT 'idle', q.at, NULL
       FROM entity AS e JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
      CROSS JOIN LATERAL (SELECT
            -- include: idle_at
            AS at) AS q
      WHERE e.family = 'service_bus' AND q.at > e.now AND (
            -- include: kept_from_idleness
            ) IS NULL)) AS x
 WHERE at IS NOT NULL
 ORDER BY at, number LIMIT %(max_count)s;

-- name: idleness
-- When an entity of Service Bus has been idle for its auto-delete interval, why it is not deleted then, and its last use or that
-- of its subscriptions. No row: it is never deleted on idle.
SELECT e.now, e.auto_delete_on_idle AS after,
       -- include: idle_at
       AS at,
       -- include: kept_from_idleness
       AS kept_by, u.path AS used_path, u.last_activity_at AS used_at, u.last_use
  FROM vitrine_entity_now AS e
  JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
 CROSS JOIN LATERAL (
       SELECT s.path, x.last_activity_at, x.last_use
         FROM vitrine_entity AS s JOIN vitrine_entity_activity AS x ON x.entity_id = s.id
        WHERE (s.id = e.id OR s.topic_id = e.id) AND s.deleted_at IS NULL ORDER BY x.last_activity_at DESC, s.id LIMIT 1) AS u
 WHERE e.id = %(entity_id)s AND e.family = 'service_bus' AND e.auto_delete_on_idle IS NOT NULL;

-- name: read_past_numbers
-- The messages that an entity had at an instant of its clock, by their events: how many by the kind of the last one, and the
-- numbers of at most `cap`, those that were not just waiting first; then of the max_gone that left last. 32 is above all kinds.
-- before, after: the instants of the events around it; after_recorded: when that one was recorded. first: of the first event.
WITH last AS MATERIALIZED (
    SELECT sequence_number, max(at) FILTER (WHERE at < %(at)s::timestamptz) AS before, min(at) AS first,
           max(event_id * 32 + kind) FILTER (
               WHERE kind NOT IN (@EVENT_SETTLE_REFUSED, @EVENT_DUPLICATE_DROPPED, @EVENT_EDITED)) AS last
      FROM vitrine_message_event WHERE entity_id = %(entity_id)s AND at <= %(at)s::timestamptz
     GROUP BY sequence_number
), later AS (
    SELECT min(at) AS after, min(recorded_at) AS after_recorded
      FROM vitrine_message_event WHERE entity_id = %(entity_id)s AND at > %(at)s::timestamptz
), around AS (
    SELECT earlier.before, later.after, later.after_recorded, least(earlier.first, later.after) AS first
      FROM (SELECT max(before) AS before, min(first) AS first FROM last) AS earlier CROSS JOIN later
), present AS MATERIALIZED (
    SELECT sequence_number, (last & 31)::smallint AS kind FROM last
     WHERE (last & 31)::smallint <> ALL (%(terminal)s::smallint[]))
SELECT ARRAY(SELECT sequence_number FROM present ORDER BY kind = @EVENT_SENT, sequence_number LIMIT %(cap)s) AS numbers,
       ARRAY(SELECT sequence_number FROM last WHERE (last & 31)::smallint = ANY (%(terminal)s::smallint[])
              ORDER BY last DESC LIMIT %(max_gone)s) AS gone,
       (SELECT jsonb_object_agg(kind, n) FROM (SELECT kind, count(*) AS n FROM present GROUP BY kind) AS x) AS by_kind,
       around.*
  FROM around;

-- name: read_past_events
-- The events of these messages of an entity until an instant, in their order. recorded_until: when they were recorded by, so that
-- later partitions are not read.
SELECT v.event_id, v.recorded_at, v.at, v.entity_id, v.sequence_number, v.subqueue, v.kind, v.delivery_count, v.locked_until,
       v.enqueued_at, v.first_received_at, v.last_received_at, v.time_to_live, v.message_id, v.session_id, v.size, v.actor,
       v.reason, v.details, (v.properties ->> 'priority')::int AS priority, NULL::jsonb AS properties,
       NULL::jsonb AS application_properties
  FROM vitrine_message_event AS v
 WHERE v.entity_id = %(entity_id)s AND v.at <= %(at)s::timestamptz
   AND v.recorded_at <= coalesce(%(recorded_until)s::timestamptz, 'infinity')
   AND v.sequence_number IN (SELECT number FROM unnest(%(numbers)s::bigint[]) AS t(number))
 ORDER BY v.event_id;

-- name: read_lock_places
-- The listed entities with locked messages, and those that may have locked sessions. locks: how many messages are locked, leased
-- or unacknowledged, from the ledger.
WITH
-- include: listed
, locked AS MATERIALIZED (
    SELECT l.entity_id, sum(l.n)::bigint AS n
      FROM (SELECT entity_id, state, until, n FROM vitrine_count_base WHERE until IS NOT NULL
            UNION ALL SELECT entity_id, state, until, n FROM vitrine_count_delta WHERE until IS NOT NULL) AS l
      JOIN entities AS e ON e.id = l.entity_id
     WHERE l.until > e.now AND l.state IN (@LEDGER_LOCKED, @LEDGER_DEFERRED_LOCKED, @LEDGER_EXTENDED)
     GROUP BY l.entity_id)
SELECT e.id, e.namespace_name, e.path, e.family, greatest(h.n, 0) AS locks
  FROM entities AS e JOIN vitrine_entity AS x ON x.id = e.id LEFT JOIN locked AS h ON h.entity_id = e.id
 WHERE h.n > 0 OR x.requires_session;

-- fragment: locks_of_entities
-- The locked messages and sessions of these entities. Locked messages of Service Bus are found through the deadlines of their
-- locks, leased ones by when they become visible, unacknowledged ones from the head of their queue; at most `cap` of each are
-- examined in an entity. Sessions are all read, 0.1 us each: an index on their locks would cost every accept its HOT update.
places AS MATERIALIZED (
    SELECT e.id AS entity_id, e.namespace_name, e.path, e.family, e.now, e.lock_duration, e.requires_session, t.place,
           n.clock_base_at IS NOT NULL AS is_manual
      FROM unnest(%(entity_ids)s::bigint[]) WITH ORDINALITY AS t(id, place) JOIN vitrine_entity_now AS e ON e.id = t.id
      JOIN vitrine_namespace AS n ON n.id = e.namespace_id),
locks AS MATERIALIZED (
    SELECT p.place, s.session_id AS key, NULL::bigint AS number, @SUBQUEUE_MAIN::smallint AS subqueue, NULL::smallint AS state,
           s.session_id, NULL AS message_id, s.locked_by AS holder, s.locked_until - p.lock_duration AS since,
           s.locked_until AS until, NULL::integer AS renewals
      FROM places AS p CROSS JOIN LATERAL (
           SELECT * FROM vitrine_session AS s
            WHERE s.entity_id = p.entity_id AND p.requires_session AND s.locked_until > p.now
            ORDER BY s.session_id LIMIT %(cap)s) AS s
    UNION ALL
    SELECT DISTINCT ON (p.place, m.sequence_number) p.place, NULL, m.sequence_number, m.subqueue, m.state, m.session_id,
           m.message_id, m.locked_by, m.last_received_at, m.locked_until, coalesce(m.renewals, 0)
      FROM places AS p CROSS JOIN LATERAL (
           SELECT until, subqueue, first_number, last_number FROM vitrine_lock_deadline
            WHERE entity_id = p.entity_id AND until > p.now ORDER BY until DESC LIMIT %(cap)s) AS d
     CROSS JOIN LATERAL (
           SELECT * FROM vitrine_message AS m
            WHERE m.entity_id = p.entity_id AND m.subqueue = d.subqueue AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}')
              AND m.sequence_number BETWEEN d.first_number AND d.last_number AND m.locked_until = d.until
           OFFSET 0) AS m                               -- so that it is never joined from a scan of all messages
    UNION ALL
    SELECT p.place, NULL, m.sequence_number, m.subqueue, m.state, NULL, m.message_id, m.locked_by, m.held_since, m.visible_at,
           m.renewals
      FROM places AS p CROSS JOIN LATERAL (
           SELECT * FROM vitrine_message AS m
            WHERE m.entity_id = p.entity_id AND p.family = 'queue_storage' AND m.visible_at IS NOT NULL AND m.visible_at > p.now
            ORDER BY m.visible_at, m.sequence_number LIMIT %(cap)s) AS m
     WHERE m.hold_kind IN (@HOLD_GET, @HOLD_UPDATE) AND (m.expires_at > p.now) IS NOT FALSE
    UNION ALL
    SELECT p.place, NULL, m.sequence_number, m.subqueue, m.state, NULL, m.message_id, m.locked_by, m.last_received_at, NULL, NULL
      FROM places AS p CROSS JOIN LATERAL (
           SELECT * FROM vitrine_message AS m
            WHERE m.entity_id = p.entity_id AND p.family = 'rabbitmq' AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                                  WHERE entity_id = p.entity_id AND subqueue = @SUBQUEUE_MAIN), 1)
            ORDER BY m.sequence_number LIMIT %(cap)s) AS m
     WHERE m.owner_id IS NOT NULL)

-- fragment: held_by
-- Whether lock `l` has this holder. holder: a part of the name. actors: exactly one of these, or it begins with one of prefixes.
(%(holder)s::text IS NULL OR strpos(lower(coalesce(l.holder, '')), lower(%(holder)s::text)) > 0)
   AND (%(actors)s::text[] IS NULL OR l.holder = ANY (%(actors)s::text[])
        OR EXISTS (SELECT FROM unnest(%(prefixes)s::text[]) AS p(text) WHERE starts_with(l.holder, p.text)))

-- name: read_locks
-- The locks of these entities, in this order: of each, its sessions by id, then its messages by number. after_session,
-- after_number: where a page begins in the first of them. Of one holder: see held_by.
WITH
-- include: locks_of_entities
SELECT p.entity_id, p.namespace_name, p.path, p.family, p.now, p.is_manual, l.*
  FROM locks AS l JOIN places AS p ON p.place = l.place
 WHERE
       -- include: held_by
   AND (l.place > 1 OR l.number > coalesce(%(after_number)s::bigint, -1)
        OR %(after_number)s::bigint IS NULL AND (%(after_session)s::text IS NULL OR l.key > %(after_session)s COLLATE "C"))
 ORDER BY l.place, l.number NULLS FIRST, l.key LIMIT %(max_count)s;

-- name: read_lock_holders
-- Who holds the locks of these entities, those with the most first. Of one holder: see held_by.
WITH
-- include: locks_of_entities
SELECT l.holder, count(*) FILTER (WHERE l.number IS NOT NULL) AS messages, count(*) FILTER (WHERE l.number IS NULL) AS sessions
  FROM locks AS l
 WHERE
       -- include: held_by
 GROUP BY l.holder ORDER BY count(*) DESC, l.holder;

-- name: read_oldest_messages
-- The oldest message of each state in an entity (reads/oldest_messages.py). Each state takes one index probe, or examines at most
-- `cap` messages from the head of its list on, or so many locks.
WITH
-- include: locks_of_entities
, entity AS MATERIALIZED (
    SELECT e.id, e.family, e.now, e.default_message_time_to_live AS ttl FROM vitrine_entity_now AS e
     WHERE e.id = ANY (%(entity_ids)s::bigint[]))
(SELECT 'active' AS state, m.sequence_number AS number, m.enqueued_at AS at
   FROM entity AS e CROSS JOIN LATERAL (
        SELECT m.sequence_number, m.enqueued_at, m.expires_at, m.locked_until, m.owner_id, m.visible_at
          FROM vitrine_message AS m
         WHERE
               -- include: of_main_list
         ORDER BY m.sequence_number LIMIT %(cap)s) AS m
  WHERE m.owner_id IS NULL AND (m.locked_until > e.now) IS NOT TRUE AND (m.visible_at > e.now) IS NOT TRUE
    AND (e.family = 'service_bus' OR (least(m.expires_at, m.enqueued_at + e.ttl) <= e.now) IS NOT TRUE)
  ORDER BY m.sequence_number LIMIT 1)
UNION ALL
(SELECT 'locked', l.number, l.since FROM locks AS l
  WHERE l.number IS NOT NULL AND l.subqueue = @SUBQUEUE_MAIN AND l.state = @STATE_ACTIVE
  ORDER BY l.since, l.number LIMIT 1)
UNION ALL
(SELECT 'scheduled', m.sequence_number, m.scheduled_enqueue_at
   FROM entity AS e CROSS JOIN LATERAL (
        SELECT m.sequence_number, m.scheduled_enqueue_at FROM vitrine_message AS m
         WHERE m.entity_id = e.id AND m.state = @STATE_SCHEDULED
         ORDER BY m.scheduled_enqueue_at, m.sequence_number LIMIT 1) AS m)
UNION ALL
(SELECT 'scheduled', m.sequence_number, m.visible_at
   FROM entity AS e CROSS JOIN LATERAL (
        SELECT m.sequence_number, m.visible_at, m.hold_kind, m.expires_at FROM vitrine_message AS m
         WHERE m.entity_id = e.id AND e.family = 'queue_storage' AND m.visible_at IS NOT NULL AND m.visible_at > e.now
         ORDER BY m.visible_at, m.sequence_number LIMIT %(cap)s) AS m
  WHERE m.hold_kind IN (@HOLD_PUT, @HOLD_UPDATE_BEFORE_GET) AND (m.expires_at <= e.now) IS NOT TRUE
  ORDER BY m.visible_at, m.sequence_number LIMIT 1)
UNION ALL
(SELECT 'deferred', m.sequence_number, m.enqueued_at
   FROM entity AS e CROSS JOIN LATERAL (
        SELECT m.sequence_number, m.enqueued_at FROM vitrine_message AS m
         WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_DEFERRED
         ORDER BY m.sequence_number LIMIT 1) AS m)
UNION ALL
(SELECT 'expired', m.sequence_number, m.at
   FROM entity AS e CROSS JOIN LATERAL (
        (SELECT m.sequence_number, least(m.expires_at, m.enqueued_at + e.ttl) AS at, m.owner_id FROM vitrine_message AS m
          WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.expires_at <= e.now
          ORDER BY m.expires_at LIMIT %(cap)s)
        UNION ALL                                       -- by the default of the queue
        (SELECT m.sequence_number, least(m.expires_at, m.enqueued_at + e.ttl), m.owner_id FROM vitrine_message AS m
          WHERE e.ttl IS NOT NULL AND
                -- include: of_main_list
          ORDER BY m.sequence_number LIMIT %(cap)s)) AS m
  WHERE e.family <> 'service_bus' AND m.owner_id IS NULL AND m.at <= e.now
  ORDER BY m.at, m.sequence_number LIMIT 1)
UNION ALL
(SELECT CASE s.subqueue WHEN @SUBQUEUE_DEAD_LETTER THEN 'dead-letter' ELSE 'transfer-dead-letter' END, m.number, m.at
   FROM entity AS e CROSS JOIN unnest('{@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}'::smallint[]) AS s(subqueue)
  CROSS JOIN LATERAL (
        SELECT m.sequence_number AS number, m.dead_lettered_at AS at
          FROM (SELECT m.sequence_number, m.dead_lettered_at FROM vitrine_message AS m
                 WHERE m.entity_id = e.id AND m.subqueue = s.subqueue AND m.state = @STATE_ACTIVE
                   AND m.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                                       WHERE entity_id = e.id AND subqueue = s.subqueue), 1)
                 ORDER BY m.sequence_number LIMIT %(cap)s) AS m
         ORDER BY m.dead_lettered_at, m.sequence_number LIMIT 1) AS m);

-- name: read_dead_places
-- The listed entities' lists of messages that failed, with their sizes by the ledger: dead-letter queues, poison queues of
-- storage queues, and queues of RabbitMQ of whose newest 100 messages one has died.
WITH
-- include: listed
, lists AS MATERIALIZED (
    SELECT l.entity_id, l.subqueue, sum(l.n)::bigint AS n
      FROM (SELECT entity_id, subqueue, state, n FROM vitrine_count_base WHERE until IS NULL
            UNION ALL SELECT entity_id, subqueue, state, n FROM vitrine_count_delta WHERE until IS NULL) AS l
      JOIN entities AS e ON e.id = l.entity_id
     WHERE l.state = @STATE_ACTIVE GROUP BY l.entity_id, l.subqueue)
SELECT e.id, e.namespace_name, e.path, e.family, l.subqueue, l.n
  FROM lists AS l JOIN entities AS e ON e.id = l.entity_id
 WHERE l.n > 0
   AND CASE WHEN l.subqueue <> @SUBQUEUE_MAIN THEN l.subqueue IN (@SUBQUEUE_DEAD_LETTER, @SUBQUEUE_TRANSFER_DEAD_LETTER)
            WHEN e.family = 'queue_storage' THEN e.path LIKE '%%-poison' OR EXISTS (
                 SELECT FROM vitrine_entity AS q JOIN vitrine_entity AS p ON p.namespace_id = q.namespace_id
                  WHERE p.id = e.id AND q.effective ->> 'poison_queue' = p.path)
            WHEN e.family = 'rabbitmq' THEN EXISTS (
                 SELECT FROM (SELECT m.application_properties FROM vitrine_message AS m
                               WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                               ORDER BY m.sequence_number DESC LIMIT 100) AS m
                  WHERE m.application_properties ? 'x-death')
            ELSE false END;

-- fragment: reason_and_origin
-- Why and where a message failed; '': it is not known, or the message failed in this entity. m: the message; p: its entity.
coalesce(CASE p.family WHEN 'service_bus' THEN m.dead_letter_reason
              WHEN 'rabbitmq' THEN m.application_properties -> 'x-last-death-reason' ->> 1
              ELSE m.resubmitted_from ->> 'reason' END, '') AS reason,
coalesce(CASE p.family WHEN 'service_bus' THEN ''
              WHEN 'rabbitmq' THEN m.application_properties -> 'x-last-death-queue' ->> 1
              ELSE m.resubmitted_from ->> 'path' END, '') AS origin

-- name: read_dead_reasons
-- Why and where these messages of a list failed, and how often they were delivered before, or in RabbitMQ, how often they died,
-- by x-death, of which a publisher's own may count anything. NULL: it is not known.
SELECT m.sequence_number AS number,
-- include: reason_and_origin
     , CASE p.family WHEN 'service_bus' THEN m.deliveries_before
            WHEN 'rabbitmq' THEN (
                SELECT sum((d.value ->> 1)::bigint)::bigint
                  FROM jsonb_path_query(m.application_properties, '$."x-death"[1][*][1].count') AS d(value)
                 WHERE d.value ->> 1 ~ '^[0-9]{1,15}$')
            ELSE (m.resubmitted_from ->> 'dequeue_count')::int END AS attempts
  FROM vitrine_message AS m JOIN vitrine_entity AS p ON p.id = m.entity_id
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)s::bigint[]);

-- name: read_dead_groups
-- The newest messages of these lists, at most as many as `caps` says of each, grouped by why and where they failed. recent: how
-- many of them failed in each of the last twelve periods of five minutes, by its place, 0 for the newest. examined: how many
-- messages all groups have.
WITH places AS MATERIALIZED (
    SELECT t.place, t.subqueue, t.cap, e.id AS entity_id, e.namespace_name, e.path, e.family, e.now
      FROM unnest(%(entity_ids)s::bigint[], %(subqueues)s::smallint[], %(caps)s::bigint[]) WITH ORDINALITY
           AS t(id, subqueue, cap, place)
      JOIN vitrine_entity_now AS e ON e.id = t.id),
scanned AS MATERIALIZED (
    SELECT p.place, m.sequence_number AS number, f.at, f.reason, f.origin, f.resubmitted,
           coalesce(vitrine_description_pattern(m.dead_letter_description), '') AS description,
           CASE WHEN f.at > p.now - interval '1 hour' THEN least(extract(epoch FROM p.now - f.at)::int / 300, 11) END AS period
      FROM places AS p CROSS JOIN LATERAL (
           SELECT * FROM vitrine_message AS m
            WHERE m.entity_id = p.entity_id AND m.subqueue = p.subqueue AND m.state = @STATE_ACTIVE
            ORDER BY m.sequence_number DESC LIMIT p.cap) AS m
     CROSS JOIN LATERAL (
           SELECT coalesce(m.dead_lettered_at, m.enqueued_at) AS at,
-- include: reason_and_origin
                , CASE p.family WHEN 'rabbitmq' THEN coalesce(m.application_properties ? 'x-death-before-move', false)
                       ELSE coalesce((m.resubmitted_from ->> 'times')::int, 0)
                            > CASE p.family WHEN 'service_bus' THEN 0 ELSE 2 END END AS resubmitted OFFSET 0) AS f
     WHERE p.family <> 'rabbitmq' OR m.application_properties ? 'x-death'),
periods AS (
    SELECT place, reason, description, origin, period, count(*) AS n, count(*) FILTER (WHERE resubmitted) AS resubmitted,
           min(at) AS first_at, max(at) AS last_at, max(number) AS newest
      FROM scanned GROUP BY place, reason, description, origin, period)
SELECT p.entity_id, p.namespace_name, p.path, p.family, p.subqueue, p.now, g.reason, g.description, g.origin,
       sum(g.n)::bigint AS n, sum(g.resubmitted)::bigint AS resubmitted, min(g.first_at) AS first_at, max(g.last_at) AS last_at,
       max(g.newest) AS newest, sum(sum(g.n)) OVER ()::bigint AS examined,
       coalesce(jsonb_object_agg(g.period, g.n) FILTER (WHERE g.period IS NOT NULL), '{}') AS recent
  FROM periods AS g JOIN places AS p ON p.place = g.place
 GROUP BY p.place, p.entity_id, p.namespace_name, p.path, p.family, p.subqueue, p.now, g.reason, g.description, g.origin
 ORDER BY n DESC, last_at DESC, p.place LIMIT %(max_count)s;

-- name: search_messages
-- Stored messages of all entities that match, among the next max_scanned ones before a place, in descending order of the key:
-- from entity to entity, the newest entity first, and in each list the newest message first. If bodies are searched, only rows
-- within max_bytes of bodies are examined, but at least one. rest_before: of the oldest event; only messages that have none are
-- wanted. only: of these entities; NULL: of all. Without a match there is one row without a number.
WITH in_all AS (
    SELECT ctid AS tid, entity_id, subqueue, state, sequence_number FROM vitrine_message
     WHERE %(only)s::bigint[] IS NULL AND (entity_id, subqueue, state, sequence_number)
           < (%(entity_id)s::bigint, %(subqueue)s::smallint, %(state)s::smallint, %(number)s::bigint)
     ORDER BY entity_id DESC, subqueue DESC, state DESC, sequence_number DESC LIMIT %(max_scanned)s
), in_some AS (
    SELECT m.* FROM unnest(%(only)s::bigint[]) AS e(id) CROSS JOIN LATERAL (
           SELECT ctid AS tid, entity_id, subqueue, state, sequence_number FROM vitrine_message
            WHERE entity_id = e.id AND (entity_id, subqueue, state, sequence_number)
                  < (%(entity_id)s::bigint, %(subqueue)s::smallint, %(state)s::smallint, %(number)s::bigint)
            ORDER BY entity_id DESC, subqueue DESC, state DESC, sequence_number DESC LIMIT %(max_scanned)s) AS m
     ORDER BY m.entity_id DESC, m.subqueue DESC, m.state DESC, m.sequence_number DESC LIMIT %(max_scanned)s
), looked_at AS MATERIALIZED (SELECT * FROM in_all UNION ALL SELECT * FROM in_some
), taken AS MATERIALIZED (
    SELECT tid, entity_id, subqueue, state, sequence_number FROM looked_at WHERE NOT %(reads_bodies)s::boolean
    UNION ALL
    SELECT tid, entity_id, subqueue, state, sequence_number FROM (
        SELECT ctid AS tid, entity_id, subqueue, state, sequence_number,
               sum(size) OVER (ORDER BY entity_id DESC, subqueue DESC, state DESC, sequence_number DESC) - size AS before
          FROM vitrine_message WHERE ctid = ANY (ARRAY(SELECT tid FROM looked_at WHERE %(reads_bodies)s::boolean))) AS x
     WHERE before < %(max_bytes)s
), entities AS MATERIALIZED (
    SELECT e.*, clock_timestamp() AS real_now, n.clock_base_at IS NOT NULL AS is_manual,
           CASE WHEN n.clock_base_at IS NULL THEN 1.0 ELSE n.clock_rate END AS rate
      FROM vitrine_entity_now AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE e.id = ANY (ARRAY(SELECT DISTINCT entity_id FROM taken)) AND (%(with_system)s::boolean OR NOT e.is_system)
), judged AS MATERIALIZED (
    SELECT m.ctid AS tid, m.entity_id, m.subqueue, m.state, m.sequence_number,
-- include: json_matches
           AS matches
      FROM vitrine_message AS m JOIN entities AS c ON c.id = m.entity_id
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM taken))
       AND m.subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER}')
       AND (%(rest_before)s::timestamptz IS NULL OR c.history_level = @HISTORY_OFF OR c.created_at < %(rest_before)s
            AND (c.is_manual OR m.enqueued_at < %(rest_before)s))
-- include: matches
), chosen AS MATERIALIZED (
    SELECT * FROM judged WHERE matches
     ORDER BY entity_id DESC, subqueue DESC, state DESC, sequence_number DESC LIMIT %(max_count)s
), last_one AS (
    SELECT entity_id AS last_entity, subqueue AS last_subqueue, state AS last_state, sequence_number AS last_number
      FROM taken ORDER BY entity_id, subqueue, state, sequence_number LIMIT 1
)
SELECT s.scanned, s.scanned = n.n AND n.n < %(max_scanned)s AS at_end, j.not_json, l.*, f.*
  FROM (SELECT count(*) AS scanned FROM taken) AS s
 CROSS JOIN (SELECT count(*) AS n FROM looked_at) AS n
 CROSS JOIN (SELECT count(*) FILTER (WHERE matches IS NULL) AS not_json FROM judged) AS j
  LEFT JOIN last_one AS l ON true
  LEFT JOIN (SELECT
-- include: clock_columns
-- include: message_columns
               FROM vitrine_message AS m JOIN entities AS c ON c.id = m.entity_id
              WHERE m.ctid = ANY (ARRAY(SELECT tid FROM chosen))) AS f ON true
 ORDER BY f.entity_id DESC, f.subqueue DESC, f.state DESC, f.sequence_number DESC;

-- fragment: searched_columns
event_id, xid, recorded_at, at, entity_id, subqueue, sequence_number, kind, message_id, session_id, size, properties,
application_properties, actor

-- fragment: found_in_events
-- Of the events `looked_at`, the messages that match by what their first event keeps of them, newest first.
first_events AS MATERIALIZED (
    SELECT l.*, l.at AS enqueued_at, @STATE_ACTIVE::smallint AS state, NULL::timestamptz AS expires_at,
           NULL::timestamptz AS locked_until, NULL::timestamptz AS visible_at, NULL::smallint AS hold_kind,
           NULL::bigint AS owner_id, NULL::text AS dead_letter_reason, NULL::text AS dead_letter_description,
           NULL::timestamptz AS dead_lettered_at, NULL::text AS locked_by, NULL::integer AS delivery_count,
           NULL::smallint AS priority, NULL::bytea AS body, NULL::jsonb AS resubmitted_from
      FROM looked_at AS l
     WHERE l.kind IN (@EVENT_SENT, @EVENT_SCHEDULED, @EVENT_PUBLISHED)
), entities AS MATERIALIZED (
    SELECT e.id, n.name AS namespace_name, e.path, e.family, e.default_message_time_to_live, e.deleted_at, c.now
      FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
      JOIN vitrine_namespace_now AS c ON c.id = n.id
     WHERE e.id = ANY (ARRAY(SELECT DISTINCT entity_id FROM first_events)) AND (%(with_system)s::boolean OR NOT n.is_system)
), found AS (
    SELECT m.event_id, m.xid, m.recorded_at, m.at, m.entity_id, m.subqueue, m.sequence_number, m.kind, m.message_id,
           m.session_id, m.size, m.actor, m.properties ->> 'subject' AS subject,
           m.properties ->> 'correlation_id' AS correlation_id,
           c.namespace_name, c.path, c.family, c.deleted_at, c.now
      FROM first_events AS m JOIN entities AS c ON c.id = m.entity_id
     WHERE true
-- include: matches
     ORDER BY m.xid DESC, m.event_id DESC LIMIT %(max_count)s
)

-- fragment: found_columns
f.event_id, f.xid::text AS xid, f.recorded_at, f.at, f.entity_id, f.subqueue, f.sequence_number, f.kind, f.message_id,
f.session_id, f.size, f.actor, f.subject, f.correlation_id, f.namespace_name, f.path, f.family, f.deleted_at, f.now

-- name: search_events
-- Messages that match by what their first event keeps of them, present or removed, also of deleted entities, newest first: among
-- the next max_scanned events below (xid, event_id). back_to: when the last of these was recorded, or the one at that place if
-- there are none. Without a match there is one row without a number.
WITH looked_at AS MATERIALIZED (
    SELECT
-- include: searched_columns
      FROM vitrine_message_event
     WHERE xid <= %(below_xid)s::xid8 AND (xid < %(below_xid)s::xid8 OR event_id < %(below_event)s)
     ORDER BY xid DESC, event_id DESC LIMIT %(max_scanned)s
), last_one AS (
    SELECT xid::text AS last_xid, event_id AS last_event FROM looked_at ORDER BY looked_at.xid, event_id LIMIT 1
),
-- include: found_in_events
SELECT s.scanned, s.scanned = %(max_scanned)s AS more,
       coalesce(s.back_to, (SELECT recorded_at FROM vitrine_message_event WHERE xid >= %(below_xid)s::xid8
                             ORDER BY xid LIMIT 1)) AS back_to,
       l.last_xid, l.last_event,
-- include: found_columns
  FROM (SELECT count(*) AS scanned, min(recorded_at) AS back_to FROM looked_at) AS s
  LEFT JOIN last_one AS l ON true
  LEFT JOIN found AS f ON true
 ORDER BY f.xid DESC, f.event_id DESC;

-- name: search_events_of
-- The same among the events of some entities: those of days with indexes by the index of entities, those of later days among the
-- next max_scanned events of all entities. Of the entities' own first events, at most max_read are examined, and of days with
-- indexes at most max_each of each entity. last_xid, last_event: the place down to which all was examined.
WITH days AS MATERIALIZED (
    SELECT coalesce(min(to_date(right(c.relname, 8), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC', 'infinity') AS since
      FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'vitrine_message_event'::regclass AND c.relname ~ '^vitrine_message_event_[0-9]{8}$'
       AND to_regclass(c.relname || '_entity') IS NULL
), passed AS MATERIALIZED (
    SELECT count(*) AS n, CASE WHEN count(*) = %(max_scanned)s THEN min(xid) ELSE '0'::xid8 END AS low,
           min(recorded_at) AS back_to
      FROM (SELECT xid, recorded_at FROM vitrine_message_event
             WHERE recorded_at >= (SELECT since FROM days) AND xid <= %(below_xid)s::xid8
               AND (xid < %(below_xid)s::xid8 OR event_id < %(below_event)s)
             ORDER BY xid DESC LIMIT %(max_scanned)s) AS x
), of_newest_days AS (
    SELECT
-- include: searched_columns
      FROM vitrine_message_event
     WHERE recorded_at >= (SELECT since FROM days) AND xid >= (SELECT low FROM passed) AND xid <= %(below_xid)s::xid8
       AND (xid < %(below_xid)s::xid8 OR event_id < %(below_event)s)
       AND entity_id = ANY (%(only)s::bigint[]) AND kind IN (@EVENT_SENT, @EVENT_SCHEDULED, @EVENT_PUBLISHED)
     ORDER BY xid DESC, event_id DESC LIMIT %(max_read)s
), of_indexed_days AS MATERIALIZED (
    SELECT x.* FROM unnest(%(only)s::bigint[]) AS e(id) CROSS JOIN LATERAL (
           SELECT
-- include: searched_columns
                  , row_number() OVER (ORDER BY xid DESC, event_id DESC) AS place
             FROM vitrine_message_event
            WHERE recorded_at < (SELECT since FROM days) AND xid >= (SELECT low FROM passed) AND xid <= %(below_xid)s::xid8
              AND (xid < %(below_xid)s::xid8 OR event_id < %(below_event)s)
              AND entity_id + 0 = e.id AND kind IN (@EVENT_SENT, @EVENT_SCHEDULED, @EVENT_PUBLISHED)
            ORDER BY xid DESC, event_id DESC LIMIT %(max_each)s) AS x
), floor AS MATERIALIZED (                                  -- an entity may have more events below it than were read
    SELECT xid, event_id FROM of_indexed_days WHERE place = %(max_each)s ORDER BY xid DESC, event_id DESC LIMIT 1
), looked_at AS MATERIALIZED (
    SELECT x.* FROM (SELECT * FROM of_newest_days
                     UNION ALL
                     SELECT
-- include: searched_columns
                       FROM of_indexed_days) AS x
     WHERE NOT EXISTS (SELECT FROM floor AS f WHERE (x.xid, x.event_id) < (f.xid, f.event_id))
     ORDER BY x.xid DESC, x.event_id DESC LIMIT %(max_read)s
), counted AS (
    SELECT count(*) AS n, min(recorded_at) AS back_to, count(*) FILTER (WHERE recorded_at < (SELECT since FROM days)) AS old
      FROM looked_at
), last_one AS (                                            -- of those that were read, if there may be more; a row at most
    SELECT xid, event_id FROM (SELECT xid, event_id FROM looked_at ORDER BY looked_at.xid, looked_at.event_id LIMIT 1) AS l
     WHERE (SELECT n FROM counted) = %(max_read)s
    UNION ALL
    SELECT xid, event_id FROM floor WHERE (SELECT n FROM counted) < %(max_read)s
),
-- include: found_in_events
SELECT p.n + s.old AS scanned, l.xid IS NOT NULL OR p.low > '0'::xid8 AS more,
       coalesce(CASE WHEN l.xid IS NOT NULL THEN s.back_to ELSE least(p.back_to, s.back_to) END,
                (SELECT recorded_at FROM vitrine_message_event WHERE xid >= %(below_xid)s::xid8 ORDER BY xid LIMIT 1)) AS back_to,
       coalesce(l.xid, p.low)::text AS last_xid, coalesce(l.event_id, 0) AS last_event,
-- include: found_columns
  FROM passed AS p
 CROSS JOIN counted AS s
  LEFT JOIN last_one AS l ON true
  LEFT JOIN found AS f ON true
 ORDER BY f.xid DESC, f.event_id DESC;

-- name: search_entities
-- The entities whose names match all patterns, the newest first, up to max_count. with_deleted: also those that are deleted.
SELECT e.id FROM (SELECT e.id, e.path, e.deleted_at, n.is_system, n.name AS namespace_name
                    FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id) AS e
 WHERE (%(with_system)s::boolean OR NOT e.is_system) AND (%(with_deleted)s::boolean OR e.deleted_at IS NULL) AND NOT EXISTS (
       SELECT FROM unnest(%(patterns)s::text[], %(exact)s::boolean[]) AS t(pattern, exact)
        WHERE NOT CASE WHEN t.exact THEN e.namespace_name || '/' || e.path LIKE t.pattern
                       ELSE lower(e.namespace_name || '/' || e.path) LIKE lower(t.pattern) END)
 ORDER BY e.id DESC LIMIT %(max_count)s;

-- name: search_totals
-- About how many messages and events there are, by the statistics of the tables.
SELECT (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'vitrine_message'::regclass) AS messages,
       (SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
          FROM pg_partition_tree('vitrine_message_event') AS p JOIN pg_class AS c ON c.oid = p.relid WHERE p.isleaf) AS events;
