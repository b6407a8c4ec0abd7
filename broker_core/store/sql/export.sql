-- Vitrine's own export and import (broker_core/transfer). Locks are not exported, since they belong to their holders. A message
-- of a storage queue keeps its pop receipt and its time of invisibility.

-- name: export_snapshot
-- First in a transaction: all later statements use one snapshot.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: export_namespaces
-- The named namespaces, or all except Vitrine's own. now, rate: of a manual clock.
SELECT n.id, n.name, n.family, n.description, n.is_system, n.tier, n.behaviour,
       n.max_size_in_megabytes, n.keep_messages_for, n.created_at,
       CASE WHEN n.clock_base_at IS NOT NULL THEN v.now END AS now, n.clock_rate AS rate
  FROM vitrine_namespace AS n JOIN vitrine_namespace_now AS v ON v.id = n.id
 WHERE n.deleted_at IS NULL
   AND CASE WHEN %(names)s::text[] IS NULL THEN NOT n.is_system
            ELSE lower(n.name) = ANY (ARRAY(SELECT lower(t.name) FROM unnest(%(names)s::text[]) AS t(name))) END
 ORDER BY lower(n.name);

-- name: export_entity_ids
-- The entities of a namespace without exclusive queues, topics before subscriptions.
SELECT id FROM vitrine_entity WHERE namespace_id = %(namespace_id)s AND deleted_at IS NULL AND owner_id IS NULL
 ORDER BY topic_id IS NOT NULL, lower(path), path;

-- name: export_entity
-- An entity with its counter, activity and bindings, and its namespace's time.
SELECT
-- include: entity_columns
       , c.next_number, a.last_activity_at, a.last_receive_at, v.now,
       coalesce((SELECT jsonb_agg(jsonb_build_array(b.exchange, b.routing_key) ORDER BY b.exchange, b.routing_key)
                   FROM vitrine_celery_binding AS b WHERE b.entity_id = e.id), '[]') AS celery_bindings
  FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id JOIN vitrine_namespace_now AS v ON v.id = n.id
  JOIN vitrine_entity_counter AS c ON c.entity_id = e.id
  LEFT JOIN vitrine_entity_activity AS a ON a.entity_id = e.id
 WHERE e.id = %(entity_id)s AND e.deleted_at IS NULL;

-- name: export_policies
-- The policies of a namespace, or of one of its entities.
SELECT name, primary_key, secondary_key, send, listen, manage FROM vitrine_shared_access_policy
 WHERE namespace_id = %(namespace_id)s AND entity_id IS NOT DISTINCT FROM %(entity_id)s::bigint ORDER BY id;

-- name: export_messages
-- The next messages of an entity in the order of the key, at most max_count and max_bytes, but at least one. delivery_count:
-- includes an ended lock that was not processed yet (SB-090).
SELECT subqueue, state, sequence_number, delivery_count, size, body_kind, enqueued_at, expires_at,
       time_to_live, scheduled_enqueue_at, first_received_at, last_received_at, message_id, session_id, properties,
       application_properties, dead_letter_reason, dead_letter_description, dead_letter_source, dead_lettered_at,
       enqueued_sequence_number, resubmitted_from, transfer, encoded, body, lock_token, locked_by, visible_at, hold_kind,
       held_since, renewals, priority, deliveries_before
  FROM (SELECT m.subqueue, m.state, m.sequence_number,
               m.delivery_count + coalesce(m.subqueue = @SUBQUEUE_MAIN AND m.locked_until <= %(now)s,
                                           false)::int AS delivery_count,
               m.size, m.body_kind, m.enqueued_at, m.expires_at, m.time_to_live, m.scheduled_enqueue_at,
               m.first_received_at, m.last_received_at, m.message_id, m.session_id, m.properties, m.application_properties,
               m.dead_letter_reason, m.dead_letter_description, m.dead_letter_source, m.dead_lettered_at,
               m.enqueued_sequence_number, m.resubmitted_from, m.transfer, m.encoded, m.body, m.lock_token, m.locked_by,
               m.visible_at, m.hold_kind, m.held_since, m.renewals, m.priority, m.deliveries_before,
               sum(m.size) OVER w AS bytes, row_number() OVER w AS place
          FROM (SELECT * FROM vitrine_message
                 WHERE entity_id = %(entity_id)s
                   AND (subqueue, state, sequence_number) > (%(subqueue)s::smallint, %(state)s::smallint,
                                                             %(sequence_number)s::bigint)
                 ORDER BY subqueue, state, sequence_number LIMIT %(max_count)s) AS m
        WINDOW w AS (ORDER BY m.subqueue, m.state, m.sequence_number)) AS m
 WHERE place = 1 OR bytes <= %(max_bytes)s
 ORDER BY subqueue, state, sequence_number;

-- name: export_sessions
-- The next sessions with a state; others are derived from their messages.
SELECT session_id, state, state_updated_at FROM vitrine_session
 WHERE entity_id = %(entity_id)s AND (%(after)s::text IS NULL OR session_id > %(after)s::text) AND state IS NOT NULL
 ORDER BY session_id LIMIT %(max_count)s;

-- name: export_seen
-- The next message ids that an entity has seen (SB-130).
SELECT message_id, seen_at, sequence_number FROM vitrine_seen_id
 WHERE entity_id = %(entity_id)s AND (%(after)s::text IS NULL OR message_id > %(after)s::text) ORDER BY message_id
 LIMIT %(max_count)s;

-- name: export_exchanges
-- The exchanges of a virtual host, including the predeclared ones.
SELECT name, type, durable, auto_delete, internal, arguments, created_at FROM vitrine_exchange
 WHERE namespace_id = %(namespace_id)s ORDER BY name;

-- name: export_bindings
-- The bindings between exchanges, and to the queues that were exported.
SELECT s.name AS source, q.path AS queue, d.name AS exchange, b.routing_key, b.arguments
  FROM vitrine_exchange AS s JOIN vitrine_binding AS b ON b.source_id = s.id
  LEFT JOIN vitrine_entity AS q ON q.id = b.queue_id LEFT JOIN vitrine_exchange AS d ON d.id = b.exchange_id
 WHERE s.namespace_id = %(namespace_id)s AND (b.queue_id IS NULL OR b.queue_id = ANY (%(entity_ids)s::bigint[]))
 ORDER BY s.name, q.path, d.name, b.routing_key, b.arguments_hash;

-- name: import_exchange
-- Insert an exchange as it was exported.
INSERT INTO vitrine_exchange (namespace_id, name, type, durable, auto_delete, internal, arguments, effective, created_at)
VALUES (%(namespace_id)s, %(name)s, %(type)s, %(durable)s, %(auto_delete)s, %(internal)s, %(arguments)s::text::jsonb, '{}',
        coalesce(%(created_at)s::timestamptz, (SELECT created_at FROM vitrine_namespace WHERE id = %(namespace_id)s)))
RETURNING id;

-- name: import_namespace
-- A namespace as exported; a manual clock continues from its exported time. No row: the name is taken.
INSERT INTO vitrine_namespace (name, family, description, is_system, tier, behaviour, max_size_in_megabytes, keep_messages_for,
                               created_at, clock_base_at, clock_base_real, clock_rate)
VALUES (%(name)s, %(family)s, %(description)s, false, %(tier)s, %(behaviour)s, %(max_size)s::integer,
        %(keep_messages_for)s::interval, %(created_at)s,
        %(now)s::timestamptz,
        CASE WHEN %(now)s::timestamptz IS NOT NULL THEN clock_timestamp() END, %(rate)s)
ON CONFLICT (lower(name)) DO NOTHING
RETURNING id;

-- name: import_entity
-- Restores the dates, numbers and protection of an entity after create_entity.
WITH entity AS (
    UPDATE vitrine_entity SET created_at = %(created_at)s, updated_at = %(updated_at)s, protected = %(protected)s
     WHERE id = %(entity_id)s RETURNING id),
counter AS (UPDATE vitrine_entity_counter SET next_number = %(next_number)s, copies_bound = 2::bigint ^ 60
             WHERE entity_id = %(entity_id)s),
activity AS (
    -- With a manual clock, which continues, so does its idleness; otherwise this begins with the import, so that an old file is
    -- not deleted at once.
    UPDATE vitrine_entity_activity AS a
       SET last_activity_at = CASE WHEN n.clock_base_at IS NULL THEN a.last_activity_at
                                   ELSE coalesce(%(last_activity_at)s::timestamptz, a.last_activity_at) END,
           last_receive_at = %(last_receive_at)s::timestamptz
      FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
     WHERE a.entity_id = %(entity_id)s AND e.id = %(entity_id)s),
bindings AS (
    INSERT INTO vitrine_celery_binding (entity_id, exchange, routing_key)
    SELECT %(entity_id)s::bigint, t.exchange, t.routing_key
      FROM unnest(%(exchanges)s::text[], %(routing_keys)s::text[]) AS t(exchange, routing_key)
    ON CONFLICT (entity_id, exchange, routing_key) DO NOTHING)
SELECT id FROM entity;

-- name: import_rule
-- No row: there is a rule of this name.
INSERT INTO vitrine_rule (subscription_id, name, filter, action, created_at)
VALUES (%(subscription_id)s, %(name)s, %(filter)s::text::jsonb, %(action)s::text::jsonb, %(created_at)s)
ON CONFLICT (subscription_id, lower(name)) DO NOTHING
RETURNING id;

-- name: import_messages
-- Messages of an entity as exported; the first event of each says that it was imported.
WITH entity AS MATERIALIZED (SELECT id, now, history_level FROM vitrine_entity_now WHERE id = %(entity_id)s),
stored AS (
    INSERT INTO vitrine_message (entity_id, subqueue, state, sequence_number, delivery_count, size, body_kind, enqueued_at,
                                 expires_at, time_to_live, scheduled_enqueue_at, first_received_at, last_received_at,
                                 message_id, session_id, properties, application_properties, dead_letter_reason,
                                 dead_letter_description, dead_letter_source, dead_lettered_at, enqueued_sequence_number,
                                 resubmitted_from, transfer, encoded, body, lock_token, locked_by, visible_at, hold_kind,
                                 held_since, renewals, priority, ready_priority, deliveries_before)
    SELECT %(entity_id)s, t.subqueue, t.state, t.sequence_number, t.delivery_count, t.size, t.body_kind, t.enqueued_at,
           t.expires_at, t.time_to_live, t.scheduled_enqueue_at, t.first_received_at, t.last_received_at, t.message_id,
           t.session_id, t.properties::jsonb, t.application_properties::jsonb, t.dead_letter_reason, t.dead_letter_description,
           t.dead_letter_source, t.dead_lettered_at, t.enqueued_sequence_number, t.resubmitted_from::jsonb, t.transfer::jsonb,
           t.encoded, t.body, t.lock_token, t.locked_by, t.visible_at, t.hold_kind, t.held_since, t.renewals, t.priority,
           t.priority, t.deliveries_before
      FROM unnest(%(subqueue)s::int2[], %(state)s::int2[], %(sequence_number)s::int8[],
                  %(delivery_count)s::int4[], %(size)s::int4[], %(body_kind)s::int2[], %(enqueued_at)s::timestamptz[],
                  %(expires_at)s::timestamptz[], %(time_to_live)s::interval[], %(scheduled_enqueue_at)s::timestamptz[],
                  %(first_received_at)s::timestamptz[], %(last_received_at)s::timestamptz[], %(message_id)s::text[],
                  %(session_id)s::text[], %(properties)s::text[], %(application_properties)s::text[],
                  %(dead_letter_reason)s::text[], %(dead_letter_description)s::text[], %(dead_letter_source)s::text[],
                  %(dead_lettered_at)s::timestamptz[], %(enqueued_sequence_number)s::int8[], %(resubmitted_from)s::text[],
                  %(transfer)s::text[], %(encoded)b::bytea[], %(body)b::bytea[], %(lock_token)s::uuid[], %(locked_by)s::text[],
                  %(visible_at)s::timestamptz[], %(hold_kind)s::int2[], %(held_since)s::timestamptz[],
                  %(renewals)s::int4[], %(priority)s::int2[], %(deliveries_before)s::int4[])
           AS t(subqueue, state, sequence_number, delivery_count, size, body_kind, enqueued_at, expires_at,
                time_to_live, scheduled_enqueue_at, first_received_at, last_received_at, message_id, session_id, properties,
                application_properties, dead_letter_reason, dead_letter_description, dead_letter_source, dead_lettered_at,
                enqueued_sequence_number, resubmitted_from, transfer, encoded, body, lock_token, locked_by, visible_at, hold_kind,
                held_since, renewals, priority, deliveries_before)
 RETURNING subqueue, state, sequence_number, delivery_count, size, enqueued_at, time_to_live, message_id, session_id, properties,
           application_properties)
INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, size,
                                   enqueued_at, time_to_live, message_id, session_id, properties, application_properties, details)
SELECT e.now, e.id, s.subqueue, %(actor)s, CASE s.state WHEN @STATE_SCHEDULED THEN @EVENT_SCHEDULED ELSE @EVENT_SENT END,
       s.sequence_number, s.delivery_count, s.size, s.enqueued_at, s.time_to_live, s.message_id, s.session_id, s.properties,
       CASE WHEN pg_column_size(s.application_properties) <= 4096 THEN s.application_properties END, '{"imported": true}'
  FROM stored AS s, entity AS e WHERE e.history_level > @HISTORY_OFF;

-- name: import_sessions
-- Sessions with a state; import_finish_service_bus sets their first numbers.
INSERT INTO vitrine_session (entity_id, session_id, state, state_updated_at)
SELECT %(entity_id)s, t.session_id, t.state, t.state_updated_at
  FROM unnest(%(session_id)s::text[], %(state)b::bytea[], %(state_updated_at)s::timestamptz[])
       AS t(session_id, state, state_updated_at);

-- name: import_seen
-- Message ids that an entity had seen, as exported.
INSERT INTO vitrine_seen_id (entity_id, message_id, seen_at, sequence_number)
SELECT %(entity_id)s, t.message_id, t.seen_at, t.sequence_number
  FROM unnest(%(message_id)s::text[], %(seen_at)s::timestamptz[],
              %(sequence_number)s::int8[]) AS t(message_id, seen_at, sequence_number);

-- name: import_finish
-- After all messages of an entity: set the ledger and the heads of its lists. twice: a number that two messages have.
WITH present AS MATERIALIZED (
    SELECT subqueue, state, count(*) AS n, sum(size) AS bytes, min(sequence_number) AS first FROM vitrine_message
     WHERE entity_id = %(entity_id)s GROUP BY subqueue, state),
counted AS (
    INSERT INTO vitrine_count_base (entity_id, subqueue, state, until, n, bytes)
    SELECT %(entity_id)s, subqueue, state, NULL, n, 0 FROM present),
sent AS (
    UPDATE vitrine_entity_counter SET bytes_sent = (SELECT coalesce(sum(bytes), 0) FROM present) WHERE entity_id = %(entity_id)s
 RETURNING next_number),
heads AS (
    UPDATE vitrine_queue_head AS h
       SET head = coalesce((SELECT first FROM present AS p WHERE p.subqueue = h.subqueue AND p.state = @STATE_ACTIVE),
                           (SELECT next_number FROM sent))
     WHERE h.entity_id = %(entity_id)s)
SELECT coalesce((SELECT sum(n) FROM present), 0)::bigint AS messages,
       (SELECT sequence_number FROM vitrine_message WHERE entity_id = %(entity_id)s GROUP BY sequence_number HAVING count(*) > 1
         LIMIT 1) AS twice;

-- name: import_finish_service_bus
-- Set the sessions, and write deadlines that make the next receive or sweep check messages at their maximum delivery count.
WITH entity AS MATERIALIZED (SELECT id, now, requires_session, max_delivery_count FROM vitrine_entity_now
                              WHERE id = %(entity_id)s),
sessions AS (
    INSERT INTO vitrine_session AS s (entity_id, session_id, first_number)
    SELECT e.id, m.session_id, min(m.sequence_number)
      FROM entity AS e JOIN vitrine_message AS m ON m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
           AND m.session_id IS NOT NULL
     WHERE e.requires_session GROUP BY 1, 2
        ON CONFLICT (entity_id, session_id) DO UPDATE SET first_number = excluded.first_number)
INSERT INTO vitrine_lock_deadline (entity_id, subqueue, until, first_number, last_number)
SELECT e.id, @SUBQUEUE_MAIN, e.now, min(m.sequence_number), max(m.sequence_number)
  FROM entity AS e JOIN vitrine_message AS m
    ON m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.delivery_count >= e.max_delivery_count
 GROUP BY e.id, e.now, m.sequence_number / 500;

-- name: import_finish_queue_storage
-- Set the ledger of a storage queue's invisible messages, by reason and end.
INSERT INTO vitrine_count_base (entity_id, subqueue, state, until, n, bytes)
SELECT e.id, @SUBQUEUE_MAIN, coalesce(m.hold_kind, @HOLD_GET), m.visible_at, count(*), 0
  FROM vitrine_entity_now AS e JOIN vitrine_message AS m ON m.entity_id = e.id AND m.visible_at > e.now
 WHERE e.id = %(entity_id)s GROUP BY e.id, coalesce(m.hold_kind, @HOLD_GET), m.visible_at;
