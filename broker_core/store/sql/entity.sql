-- Namespaces, entities, rules and clocks. created_at, updated_at and deleted_at are in the database's time, activity in the
-- namespace's. Rows are locked in this order: namespace, topic, subscription.

-- fragment: entity_columns
e.id, e.path, e.family, e.kind, e.topic_id, n.name AS namespace, n.is_system, n.tier, n.behaviour, e.lock_duration,
       e.max_delivery_count,
e.default_message_time_to_live,
       e.dead_lettering_on_message_expiration, e.dead_lettering_on_filter_evaluation_exceptions, e.auto_delete_on_idle,
       e.requires_session, e.requires_duplicate_detection, e.duplicate_detection_history_time_window, e.forward_to,
       e.forward_dead_lettered_messages_to, e.max_size_in_megabytes, e.max_message_size_in_kilobytes, e.status, e.user_metadata,
       e.expiry_mode, e.expires_whole_sessions, e.drops_locks_on_change, e.peek_shows_default_expiry, e.history_level, e.hidden,
       e.kept_properties, e.protected, e.options, e.effective, e.owner_id, e.created_at, e.updated_at

-- fragment: touched_by_change
INSERT INTO vitrine_entity_activity AS a (entity_id, last_activity_at, last_use)
SELECT changed.id, clock.now, @USE_CHANGE FROM changed, clock
ON CONFLICT (entity_id) DO UPDATE SET last_activity_at = greatest(a.last_activity_at, excluded.last_activity_at),
                                      last_use = excluded.last_use

-- fragment: namespace_columns
id, name, family, description, is_system, tier, behaviour, created_at, archive_days, max_size_in_megabytes, keep_messages_for

-- name: create_namespace
-- No row: the name is taken; names are case-insensitive.
INSERT INTO vitrine_namespace (name, family, description, is_system, tier, behaviour, created_at, clock_rate)
VALUES (%(name)s, %(family)s, %(description)s, %(is_system)s, %(tier)s, %(behaviour)s, clock_timestamp(), 1)
ON CONFLICT (lower(name)) DO NOTHING
RETURNING
          -- include: namespace_columns
;

-- name: get_namespace
-- A namespace by its name, case-insensitively. No row: there is none.
SELECT
       -- include: namespace_columns
  FROM vitrine_namespace
 WHERE lower(name) = lower(%(name)s) AND deleted_at IS NULL;

-- name: list_namespaces
-- All namespaces by name.
SELECT
       -- include: namespace_columns
  FROM vitrine_namespace
 WHERE deleted_at IS NULL
 ORDER BY lower(name);

-- name: lock_namespace
-- Locks the row until the end of the transaction, so that no entity can be created in a namespace that is being deleted.
SELECT id FROM vitrine_namespace WHERE lower(name) = lower(%(name)s) AND deleted_at IS NULL FOR UPDATE;

-- fragment: namespace_bytes
-- The size of the messages of all entities of a namespace, dead letters among them.
SELECT sum(c.bytes_sent + (SELECT coalesce(sum(b.bytes), 0) FROM vitrine_count_base AS b
                            WHERE b.entity_id = c.entity_id AND b.until IS NULL)
           + (SELECT coalesce(sum(d.bytes), 0) FROM vitrine_count_delta AS d WHERE d.entity_id = c.entity_id)) AS bytes
  FROM vitrine_entity AS e JOIN vitrine_entity_counter AS c ON c.entity_id = e.id
 WHERE e.namespace_id = n.id AND e.deleted_at IS NULL

-- fragment: entity_bytes
-- The size of the messages of each entity, dead letters among them.
SELECT e.namespace_id, e.path,
       (coalesce(c.bytes_sent, 0) + (SELECT coalesce(sum(b.bytes), 0) FROM vitrine_count_base AS b
                                      WHERE b.entity_id = e.id AND b.until IS NULL)
        + (SELECT coalesce(sum(d.bytes), 0) FROM vitrine_count_delta AS d WHERE d.entity_id = e.id))::bigint AS bytes
  FROM vitrine_entity AS e LEFT JOIN vitrine_entity_counter AS c ON c.entity_id = e.id
 WHERE e.deleted_at IS NULL

-- name: namespaces_by_room
-- What decides whether a namespace accepts sends: of those with a maximum size, whether the messages of its entities have reached
-- it; and Vitrine's own.
SELECT lower(n.name) AS name, n.is_system, n.max_size_in_megabytes * 1048576::bigint AS quota,
       coalesce(u.bytes >= n.max_size_in_megabytes * 1048576::bigint, false) AS is_full
  FROM vitrine_namespace AS n
  LEFT JOIN LATERAL (
       -- include: namespace_bytes
       ) AS u ON n.max_size_in_megabytes IS NOT NULL
 WHERE n.deleted_at IS NULL AND (n.is_system OR n.max_size_in_megabytes IS NOT NULL);

-- name: namespace_size
-- The size of a namespace's messages, and its time.
SELECT coalesce(u.bytes, 0)::bigint AS bytes, c.now
  FROM vitrine_namespace AS n JOIN vitrine_namespace_now AS c ON c.id = n.id
 CROSS JOIN LATERAL (
       -- include: namespace_bytes
       ) AS u
 WHERE n.id = %(namespace_id)s;

-- name: read_namespace_sizes
-- The size of the messages of each namespace, and what limits it and its archive.
SELECT n.id, n.name, n.family, n.is_system, coalesce(u.entities, 0)::int AS entities, coalesce(u.bytes, 0)::bigint AS bytes,
       n.max_size_in_megabytes, n.archive_days
  FROM vitrine_namespace AS n
  LEFT JOIN (
       SELECT s.namespace_id, count(*) AS entities, sum(s.bytes) AS bytes
         FROM (
              -- include: entity_bytes
              ) AS s GROUP BY s.namespace_id) AS u ON u.namespace_id = n.id
 WHERE n.deleted_at IS NULL
 ORDER BY lower(n.name);

-- name: read_largest_entities
-- The entities whose messages use the most space, the largest first.
SELECT n.name AS namespace_name, s.path, s.bytes
  FROM (
       -- include: entity_bytes
       ) AS s JOIN vitrine_namespace AS n ON n.id = s.namespace_id AND n.deleted_at IS NULL AND NOT n.is_system
 WHERE s.bytes > 0
 ORDER BY s.bytes DESC, lower(n.name), s.path LIMIT %(max_count)s;

-- name: namespace_holds
-- What a namespace contains. Separate from lock_namespace, whose snapshot does not include the changes it waited for.
SELECT (SELECT count(*) FROM vitrine_entity WHERE namespace_id = %(namespace_id)s AND deleted_at IS NULL) AS entities,
       (SELECT count(*) FROM vitrine_entity WHERE namespace_id = %(namespace_id)s AND deleted_at IS NOT NULL) AS deleted_entities,
       (SELECT count(*) FROM vitrine_exchange WHERE namespace_id = %(namespace_id)s) AS exchanges;

-- name: hold_namespace
-- Locks a namespace until the end of the transaction: its tier cannot change, and its entities change one at a time.
SELECT
       -- include: namespace_columns
  FROM vitrine_namespace WHERE lower(name) = lower(%(name)s) AND deleted_at IS NULL FOR NO KEY UPDATE;

-- name: count_queues_and_topics
-- Separate from hold_namespace, whose snapshot does not include the changes it waited for.
SELECT count(*) AS n FROM vitrine_entity WHERE namespace_id = %(namespace_id)s AND deleted_at IS NULL AND topic_id IS NULL;

-- name: update_namespace
-- A NULL parameter leaves its column unchanged. archive_days 0: for ever. max_size_in_megabytes 0: unlimited.
-- keep_messages_for 0: not kept.
UPDATE vitrine_namespace SET description = coalesce(%(description)s::text, description), tier = coalesce(%(tier)s::text, tier),
       behaviour = coalesce(%(behaviour)s::text, behaviour),
       archive_days = nullif(coalesce(%(archive_days)s::integer, archive_days), 0),
       max_size_in_megabytes = nullif(coalesce(%(max_size_in_megabytes)s::integer, max_size_in_megabytes), 0),
       keep_messages_for = nullif(coalesce(%(keep_messages_for)s::interval, keep_messages_for), interval '0')
 WHERE id = %(namespace_id)s
RETURNING
          -- include: namespace_columns
;

-- name: delete_namespace
-- Run after namespace_holds, which says whether the namespace is empty.
WITH policies AS (DELETE FROM vitrine_shared_access_policy WHERE namespace_id = %(namespace_id)s),
account AS (DELETE FROM vitrine_storage_account WHERE namespace_id = %(namespace_id)s),
kept AS (
-- include: forgotten_kept
)
DELETE FROM vitrine_namespace WHERE id = %(namespace_id)s RETURNING id;

-- name: bury_namespace
-- Marks a namespace as deleted whose deleted entities are still referred to by events, and renames it, which frees its name.
-- Retention removes the row (history_forget_namespaces). If the new name is taken (by a virtual host), a number is added. What
-- was deleted before can no longer be restored, also in a new namespace of this name.
WITH policies AS (DELETE FROM vitrine_shared_access_policy WHERE namespace_id = %(namespace_id)s),
account AS (DELETE FROM vitrine_storage_account WHERE namespace_id = %(namespace_id)s),
kept AS (
-- include: forgotten_kept
),
soft_deleted AS (
    DELETE FROM vitrine_soft_deleted
     WHERE entity_id = ANY (ARRAY(SELECT id FROM vitrine_entity WHERE namespace_id = %(namespace_id)s)) RETURNING operation_id),
given_up AS (
    UPDATE vitrine_operation SET kept_until = clock_timestamp() WHERE id IN (SELECT operation_id FROM soft_deleted))
UPDATE vitrine_namespace AS n
   SET deleted_at = clock_timestamp(),
       name = (SELECT f.name
                 FROM generate_series(1, (SELECT count(*) + 1 FROM vitrine_namespace)) AS i
                CROSS JOIN LATERAL (
                      SELECT left(n.name, 200) || ' (deleted ' || to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')
                             || ', ' || n.id || CASE WHEN i > 1 THEN ', ' || i ELSE '' END || ')' AS name) AS f
                WHERE NOT EXISTS (SELECT FROM vitrine_namespace AS o WHERE lower(o.name) = lower(f.name))
                ORDER BY i LIMIT 1)
 WHERE id = %(namespace_id)s RETURNING id;

-- name: namespace_contents
-- The numbers of entities and messages in a namespace, and the ids of the entities.
WITH present AS MATERIALIZED (SELECT id, topic_id FROM vitrine_entity
                               WHERE namespace_id = %(namespace_id)s AND deleted_at IS NULL),
counted AS (SELECT entity_id, n FROM vitrine_count_base WHERE state < @LEDGER_LOCKED
            UNION ALL
            SELECT entity_id, n FROM vitrine_count_delta WHERE state < @LEDGER_LOCKED)
SELECT (SELECT count(*) FROM present) AS entities,
       (SELECT coalesce(sum(n), 0)::bigint FROM counted WHERE entity_id IN (SELECT id FROM present)) AS messages,
       ARRAY(SELECT id FROM present ORDER BY id) AS ids;

-- name: get_clock
-- The time and rate of a namespace's clock.
SELECT v.id, v.name, v.is_system, v.now, n.clock_rate AS rate, n.clock_base_at IS NOT NULL AS is_manual
  FROM vitrine_namespace AS n JOIN vitrine_namespace_now AS v ON v.id = n.id
 WHERE lower(n.name) = lower(%(name)s) AND n.deleted_at IS NULL;

-- name: set_clock
-- Move the clock forward by `step`, or to a later instant, and set its rate (NULL: unchanged). An expression over the row's own
-- columns, so after waiting for a concurrent change it is evaluated again with the changed values, and no step is lost.
UPDATE vitrine_namespace
   SET clock_base_at = greatest(CASE WHEN clock_base_at IS NULL THEN clock_timestamp()
                                     ELSE clock_base_at + (clock_timestamp() - clock_base_real) * clock_rate END
                                + %(step)s::interval,
                                %(to)s::timestamptz),
       clock_base_real = clock_timestamp(),
       clock_rate = coalesce(%(rate)s::float8, clock_rate)
 WHERE id = %(namespace_id)s AND NOT is_system
RETURNING id, name, is_system, clock_base_at AS now, clock_rate AS rate, true AS is_manual;

-- name: create_entity
-- The entity with its counter, the heads of its lists and its first activity. No row: the path is taken by an existing entity.
WITH clock AS MATERIALIZED (SELECT id, now FROM vitrine_namespace_now WHERE id = %(namespace_id)s),
entity AS (
    INSERT INTO vitrine_entity AS e (namespace_id, path, family, options, effective, owner_id, kind, topic_id, rules_version,
                                     lock_duration, max_delivery_count,
           default_message_time_to_live, dead_lettering_on_message_expiration, dead_lettering_on_filter_evaluation_exceptions,
           auto_delete_on_idle, requires_session, requires_duplicate_detection, duplicate_detection_history_time_window,
           forward_to, forward_dead_lettered_messages_to, max_size_in_megabytes, max_message_size_in_kilobytes, status,
           user_metadata, expiry_mode, expires_whole_sessions, drops_locks_on_change, peek_shows_default_expiry, history_level,
           hidden, kept_properties, created_at, updated_at)
    SELECT clock.id, %(path)s::text, %(family)s::text, %(options)s::text::jsonb, %(effective)s::text::jsonb, %(owner_id)s::bigint,
           %(kind)s::text, %(topic_id)s::bigint, 1, %(lock_duration)s::interval, %(max_delivery_count)s::int,
           %(default_message_time_to_live)s::interval, %(dead_lettering_on_message_expiration)s::bool,
           %(dead_lettering_on_filter_evaluation_exceptions)s::bool, %(auto_delete_on_idle)s::interval,
           %(requires_session)s::bool, %(requires_duplicate_detection)s::bool,
           %(duplicate_detection_history_time_window)s::interval, %(forward_to)s::text,
           %(forward_dead_lettered_messages_to)s::text, %(max_size_in_megabytes)s::int, %(max_message_size_in_kilobytes)s::int,
           %(status)s::text, %(user_metadata)s::text, %(expiry_mode)s::text, %(expires_whole_sessions)s::bool,
           %(drops_locks_on_change)s::bool, %(peek_shows_default_expiry)s::bool, %(history_level)s::smallint, %(hidden)s::bool,
           %(kept_properties)s::text::jsonb, clock_timestamp(), clock_timestamp()
      FROM clock
    ON CONFLICT (namespace_id, key) WHERE deleted_at IS NULL DO NOTHING
    RETURNING *),
counter AS (INSERT INTO vitrine_entity_counter (entity_id) SELECT id FROM entity),
heads AS (INSERT INTO vitrine_queue_head (entity_id, subqueue) SELECT id, s
            FROM entity, generate_series(@SUBQUEUE_MAIN, @SUBQUEUE_TRANSFER) AS s),
activity AS (
    INSERT INTO vitrine_entity_activity (entity_id, last_activity_at, last_use)
    SELECT entity.id, clock.now, @USE_CREATE FROM entity, clock)
SELECT
-- include: entity_columns
  FROM entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id;

-- name: get_entity
-- An entity by its path, which is case-sensitive only in RabbitMQ. No row: there is none.
SELECT
-- include: entity_columns
  FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE lower(n.name) = lower(%(namespace)s) AND e.key = vitrine_key(n.family, %(path)s) AND e.deleted_at IS NULL;

-- name: lock_entity
-- As get_entity; nobody else can change or delete the entity until the transaction ends.
SELECT
-- include: entity_columns
  FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE lower(n.name) = lower(%(namespace)s) AND e.key = vitrine_key(n.family, %(path)s) AND e.deleted_at IS NULL
   FOR UPDATE OF e;

-- name: list_entities
-- A topic comes before its subscriptions.
SELECT
-- include: entity_columns
  FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE (%(namespace)s::text IS NULL OR lower(n.name) = lower(%(namespace)s)) AND e.family = %(family)s
   AND (%(kind)s::text IS NULL OR e.kind = %(kind)s::text) AND (%(topic_id)s::bigint IS NULL OR e.topic_id = %(topic_id)s::bigint)
   AND e.deleted_at IS NULL
 ORDER BY lower(n.name), lower(e.path);

-- name: update_entity
-- A change is activity (SB-190 to SB-192). If max_delivery_count is lowered, some messages may have reached it already: deadlines
-- in the past, for 500 numbers each, make the next receive or sweep check all messages (SB-091).
WITH clock AS MATERIALIZED (SELECT now, max_delivery_count FROM vitrine_entity_now WHERE id = %(entity_id)s),
changed AS (
    UPDATE vitrine_entity
       SET lock_duration = %(lock_duration)s, max_delivery_count = %(max_delivery_count)s,
           default_message_time_to_live = %(default_message_time_to_live)s,
           dead_lettering_on_message_expiration = %(dead_lettering_on_message_expiration)s,
           dead_lettering_on_filter_evaluation_exceptions = %(dead_lettering_on_filter_evaluation_exceptions)s,
           auto_delete_on_idle = %(auto_delete_on_idle)s,
           duplicate_detection_history_time_window = %(duplicate_detection_history_time_window)s, forward_to = %(forward_to)s,
           forward_dead_lettered_messages_to = %(forward_dead_lettered_messages_to)s,
           max_size_in_megabytes = %(max_size_in_megabytes)s, max_message_size_in_kilobytes = %(max_message_size_in_kilobytes)s,
           status = %(status)s, user_metadata = %(user_metadata)s, expiry_mode = %(expiry_mode)s,
           expires_whole_sessions = %(expires_whole_sessions)s, drops_locks_on_change = %(drops_locks_on_change)s,
           peek_shows_default_expiry = %(peek_shows_default_expiry)s, history_level = %(history_level)s, hidden = %(hidden)s,
           kept_properties = %(kept_properties)s::text::jsonb, updated_at = clock_timestamp()
     WHERE id = %(entity_id)s AND deleted_at IS NULL
    RETURNING *),
deadlines AS (
    INSERT INTO vitrine_lock_deadline (entity_id, subqueue, until, first_number, last_number)
    SELECT changed.id, @SUBQUEUE_MAIN, clock.now, n, n + 499
      FROM changed, clock, vitrine_queue_head AS h, vitrine_entity_counter AS c,
           generate_series(h.head, c.next_number - 1, 500) AS n
     WHERE changed.max_delivery_count < clock.max_delivery_count AND h.entity_id = changed.id AND h.subqueue = @SUBQUEUE_MAIN
       AND c.entity_id = changed.id),
activity AS (
-- include: touched_by_change
)
SELECT
-- include: entity_columns
  FROM changed AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id;

-- name: set_status
-- Pause or resume an entity. No row: it was deleted.
UPDATE vitrine_entity SET status = %(status)s, updated_at = clock_timestamp()
 WHERE id = %(entity_id)s AND deleted_at IS NULL RETURNING id;

-- name: set_protected
-- Protect an entity from being deleted, or no longer. No row: it was deleted.
UPDATE vitrine_entity SET protected = %(protected)s, updated_at = clock_timestamp()
 WHERE id = %(entity_id)s AND deleted_at IS NULL RETURNING id;

-- name: hide_entities
-- Hide the present entities of a namespace in the pages about all namespaces.
UPDATE vitrine_entity SET hidden = true WHERE namespace_id = %(namespace_id)s AND NOT hidden AND deleted_at IS NULL;

-- name: protected_entities
-- Those of these entities that are protected from being deleted, with their subscriptions.
SELECT e.id, n.name AS namespace, e.path FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE (e.id = ANY (%(entity_ids)s::bigint[]) OR e.topic_id = ANY (%(entity_ids)s::bigint[]))
   AND e.protected AND e.deleted_at IS NULL
 ORDER BY e.path LIMIT 4;

-- name: record_revisions
-- The settings of these entities as they are now, unless they are those of their last revision.
INSERT INTO vitrine_entity_revision (entity_id, at, actor, settings)
SELECT e.id, clock_timestamp(), %(actor)s, now.settings
  FROM vitrine_entity AS e
 CROSS JOIN LATERAL (
       SELECT to_jsonb(e)
              - '{id,namespace_id,path,family,key,kind,topic_id,rules_version,owner_id,created_at,updated_at,deleted_at}'
                            ::text[] AS settings) AS now
 WHERE e.id = ANY (%(entity_ids)s::bigint[]) AND e.deleted_at IS NULL
   AND now.settings IS DISTINCT FROM (SELECT r.settings FROM vitrine_entity_revision AS r
                                       WHERE r.entity_id = e.id ORDER BY r.id DESC LIMIT 1)
RETURNING entity_id;

-- fragment: settings_of_revision
-- The settings of a revision as columns of x.
r.id AS revision_id, r.at, r.actor, r.settings,
       x.lock_duration, x.max_delivery_count, x.default_message_time_to_live,
       x.dead_lettering_on_message_expiration, x.dead_lettering_on_filter_evaluation_exceptions, x.auto_delete_on_idle,
       x.requires_session, x.requires_duplicate_detection, x.duplicate_detection_history_time_window, x.forward_to,
       x.forward_dead_lettered_messages_to, x.max_size_in_megabytes, x.max_message_size_in_kilobytes, x.status,
       x.user_metadata, x.expiry_mode, x.expires_whole_sessions, x.drops_locks_on_change, x.peek_shows_default_expiry,
       x.history_level, x.hidden, x.kept_properties, x.protected, x.options, x.effective

-- name: read_revisions
-- The newest revisions of an entity's settings, newest first.
SELECT
       -- include: settings_of_revision
  FROM vitrine_entity_revision AS r
 CROSS JOIN LATERAL jsonb_populate_record(NULL::vitrine_entity, r.settings) AS x
 WHERE r.entity_id = %(entity_id)s
 ORDER BY r.id DESC LIMIT %(max_count)s;

-- name: read_settings_at
-- The settings that an entity had at an instant of real time; NULL: now. The first revision applies to what was before it, too;
-- without any, the settings are those of now.
SELECT
       -- include: settings_of_revision
  FROM vitrine_entity AS e
  LEFT JOIN LATERAL (
       SELECT v.* FROM vitrine_entity_revision AS v
        CROSS JOIN LATERAL (SELECT v.at <= coalesce(%(at)s::timestamptz, 'infinity') AS is_before) AS b
        WHERE v.entity_id = e.id
        ORDER BY b.is_before DESC, CASE WHEN b.is_before THEN -v.id ELSE v.id END LIMIT 1) AS r ON true
 CROSS JOIN LATERAL jsonb_populate_record(NULL::vitrine_entity, coalesce(r.settings, to_jsonb(e))) AS x
 WHERE e.id = %(entity_id)s;

-- name: raise_rules_version
-- A topic's rules or subscriptions have changed: processes that cached its rules read them again.
UPDATE vitrine_entity SET rules_version = rules_version + 1 WHERE id = %(topic_id)s RETURNING rules_version;

-- name: delete_entities
-- Frees the names at once. Removing the counters waits for running sends; a later send finds no counter and fails with
-- EntityNotFound (SB-240). The sweep removes the messages in batches. deleted_messages: how many there were. operation_id: the
-- operation that can restore the entities for `keep` of real time, until which the sweep leaves them; NULL: none can.
WITH deleted AS (
    UPDATE vitrine_entity AS e
       SET deleted_at = clock_timestamp(), deleted_by = %(actor)s,
           deleted_messages = (
               SELECT coalesce(sum(l.n), 0)
                 FROM (SELECT state, n FROM vitrine_count_base WHERE entity_id = e.id AND until IS NULL
                       UNION ALL
                       SELECT state, n FROM vitrine_count_delta WHERE entity_id = e.id AND until IS NULL) AS l
                WHERE l.state IN (@STATE_ACTIVE, @STATE_DEFERRED, @STATE_SCHEDULED))
     WHERE id = ANY (%(entity_ids)s) AND deleted_at IS NULL
 RETURNING id, deleted_messages),
counter AS (DELETE FROM vitrine_entity_counter WHERE entity_id IN (SELECT id FROM deleted) RETURNING *),
rules AS (DELETE FROM vitrine_rule WHERE subscription_id IN (SELECT id FROM deleted) RETURNING *),
policies AS (DELETE FROM vitrine_shared_access_policy WHERE entity_id IN (SELECT id FROM deleted) RETURNING *),
soft_deleted AS (
    INSERT INTO vitrine_soft_deleted (entity_id, operation_id, until, next_number, bytes_sent, copies_bound, rules, policies)
    SELECT c.entity_id, %(operation_id)s::bigint, clock_timestamp() + %(keep)s::interval, c.next_number, c.bytes_sent,
           c.copies_bound, (SELECT jsonb_agg(to_jsonb(r)) FROM rules AS r WHERE r.subscription_id = c.entity_id),
           (SELECT jsonb_agg(to_jsonb(p)) FROM policies AS p WHERE p.entity_id = c.entity_id)
      FROM counter AS c WHERE %(operation_id)s::bigint IS NOT NULL)
SELECT id, deleted_messages FROM deleted;

-- name: soft_deleted_by
-- The entities that an operation deleted and can still restore, locked. is_taken: another entity has the name. missing_topic: the
-- topic of a subscription that exists no longer and is not restored with it.
SELECT s.entity_id, s.until, e.namespace_id, e.path, e.kind, e.topic_id,
       EXISTS (SELECT FROM vitrine_entity AS o
                WHERE o.namespace_id = e.namespace_id AND o.key = e.key AND o.deleted_at IS NULL) AS is_taken,
       (SELECT t.path FROM vitrine_entity AS t
         WHERE t.id = e.topic_id AND t.deleted_at IS NOT NULL
           AND NOT EXISTS (SELECT FROM vitrine_soft_deleted AS x
                            WHERE x.entity_id = t.id AND x.operation_id = s.operation_id)) AS missing_topic
  FROM vitrine_soft_deleted AS s JOIN vitrine_entity AS e ON e.id = s.entity_id
 WHERE s.operation_id = %(operation_id)s AND s.until > clock_timestamp()
 ORDER BY e.topic_id IS NOT NULL, s.entity_id
   FOR UPDATE OF s;

-- name: restore_entities
-- Restore these soft-deleted entities: their rows, numbers, rules, keys and bindings. Bindings whose exchange exists no
-- longer stay away. Being restored is activity.
WITH taken AS (DELETE FROM vitrine_soft_deleted WHERE entity_id = ANY (%(entity_ids)s::bigint[]) RETURNING *),
entity AS (
    UPDATE vitrine_entity SET deleted_at = NULL, deleted_by = NULL, deleted_messages = NULL, updated_at = clock_timestamp()
     WHERE id IN (SELECT entity_id FROM taken)
 RETURNING id, namespace_id),
counters AS (
    INSERT INTO vitrine_entity_counter (entity_id, next_number, bytes_sent, copies_bound)
    SELECT entity_id, next_number, bytes_sent, copies_bound FROM taken),
rules AS (
    INSERT INTO vitrine_rule SELECT r.* FROM taken AS t CROSS JOIN jsonb_populate_recordset(NULL::vitrine_rule, t.rules) AS r),
policies AS (
    INSERT INTO vitrine_shared_access_policy
    SELECT p.* FROM taken AS t CROSS JOIN jsonb_populate_recordset(NULL::vitrine_shared_access_policy, t.policies) AS p),
bindings AS (
    INSERT INTO vitrine_binding
    SELECT b.* FROM taken AS t CROSS JOIN jsonb_populate_recordset(NULL::vitrine_binding, t.bindings) AS b
     WHERE EXISTS (SELECT FROM vitrine_exchange AS x WHERE x.id = b.source_id)
 RETURNING id),
activity AS (
    UPDATE vitrine_entity_activity AS a
       SET last_activity_at = greatest(a.last_activity_at, n.now), last_use = @USE_RESTORE, waiting_until = NULL
      FROM entity AS e JOIN vitrine_namespace_now AS n ON n.id = e.namespace_id WHERE a.entity_id = e.id)
SELECT (SELECT count(*) FROM entity) AS entities, ARRAY(SELECT id FROM bindings) AS bindings;

-- name: end_soft_deletions
-- Give up entities that can no longer be restored. One that is being restored is left.
DELETE FROM vitrine_soft_deleted
 WHERE entity_id = ANY (ARRAY(SELECT entity_id FROM vitrine_soft_deleted
                               WHERE until <= clock_timestamp() FOR UPDATE SKIP LOCKED));

-- name: create_rule
-- Adding a rule is activity of the subscription (SB-192). No row: there is a rule of this name.
WITH clock AS MATERIALIZED (SELECT now FROM vitrine_entity_now WHERE id = %(subscription_id)s),
created AS (
    INSERT INTO vitrine_rule (subscription_id, name, filter, action, created_at)
    VALUES (%(subscription_id)s, %(name)s, %(filter)s::text::jsonb, %(action)s::text::jsonb, clock_timestamp())
    ON CONFLICT (subscription_id, lower(name)) DO NOTHING
    RETURNING *),
changed AS (SELECT subscription_id AS id FROM created),
activity AS (
-- include: touched_by_change
)
SELECT name, filter, action, created_at FROM created;

-- name: replace_rule
-- As create_rule, for an existing rule. No row: there is none of this name.
WITH clock AS MATERIALIZED (SELECT now FROM vitrine_entity_now WHERE id = %(subscription_id)s),
replaced AS (
    UPDATE vitrine_rule SET filter = %(filter)s::text::jsonb, action = %(action)s::text::jsonb
     WHERE subscription_id = %(subscription_id)s AND lower(name) = lower(%(name)s)
    RETURNING *),
changed AS (SELECT subscription_id AS id FROM replaced),
activity AS (
-- include: touched_by_change
)
SELECT name, filter, action, created_at FROM replaced;

-- name: delete_rule
-- Not activity (SB-196). No row: there is none of this name.
DELETE FROM vitrine_rule WHERE subscription_id = %(subscription_id)s AND lower(name) = lower(%(name)s) RETURNING id;

-- name: list_rules
-- The rules of a subscription by name, `$Default` first. first: how many to leave out. max_count: NULL: all.
SELECT name, filter, action, created_at FROM vitrine_rule WHERE subscription_id = %(subscription_id)s
 ORDER BY lower(name) <> '$default', lower(name) OFFSET %(first)s::bigint LIMIT %(max_count)s::bigint;

-- name: get_rule
-- One rule of a subscription. No row: there is none of this name.
SELECT name, filter, action, created_at FROM vitrine_rule
 WHERE subscription_id = %(subscription_id)s AND lower(name) = lower(%(name)s::text);

-- name: count_subscriptions
-- The number of a topic's subscriptions.
SELECT count(*) AS n FROM vitrine_entity WHERE topic_id = %(topic_id)s AND deleted_at IS NULL;

-- name: count_rules
-- The numbers of correlation filters and other filters in the rules of a topic's subscriptions, without one rule.
SELECT count(*) FILTER (WHERE r.filter ->> 'type' = 'correlation') AS correlation,
       count(*) FILTER (WHERE r.filter ->> 'type' <> 'correlation') AS sql
  FROM vitrine_rule AS r JOIN vitrine_entity AS e ON e.id = r.subscription_id
 WHERE e.topic_id = %(topic_id)s AND e.deleted_at IS NULL
   AND NOT (r.subscription_id = %(subscription_id)s AND lower(r.name) = lower(%(name)s));

-- name: find_entity
-- The id of an address. Names are compared without case, except those of RabbitMQ.
SELECT e.id, e.family, e.kind, e.requires_session, e.requires_duplicate_detection
  FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE lower(n.name) = lower(%(namespace)s) AND e.key = vitrine_key(n.family, %(path)s) AND e.deleted_at IS NULL;

-- fragment: forwarding_sources
-- The entities that have messages to forward to entity `e`.
ARRAY(SELECT s.id
        FROM vitrine_entity AS t
       CROSS JOIN LATERAL (
             SELECT s.* FROM vitrine_entity AS s
              WHERE s.namespace_id = t.namespace_id AND lower(s.forward_to) = t.key AND s.deleted_at IS NULL
             UNION ALL
             SELECT s.* FROM vitrine_entity AS s
              WHERE s.namespace_id = t.namespace_id AND lower(s.forward_dead_lettered_messages_to) = t.key
                AND lower(s.forward_to) IS DISTINCT FROM t.key AND s.deleted_at IS NULL) AS s
       WHERE t.id = e.id
         AND (EXISTS (SELECT FROM vitrine_message WHERE entity_id = coalesce(s.topic_id, s.id) AND state = @STATE_SCHEDULED
                                                    AND scheduled_enqueue_at <= e.now)
              OR EXISTS (
                 SELECT FROM unnest('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER}'::smallint[]) AS l(subqueue)
                  CROSS JOIN LATERAL (
                        SELECT FROM vitrine_message AS m
                         WHERE m.entity_id = s.id AND m.subqueue = l.subqueue AND m.state = @STATE_ACTIVE
                           AND m.sequence_number >= (SELECT head FROM vitrine_queue_head
                                                      WHERE entity_id = s.id AND subqueue = l.subqueue)
                         LIMIT 1) AS m
                  WHERE CASE l.subqueue WHEN @SUBQUEUE_MAIN THEN s.forward_to
                             ELSE s.forward_dead_lettered_messages_to END IS NOT NULL)))

-- name: entity_status
-- Run after an operation found no messages, or too few: the entity's status, and whether maintenance has anything to do now. No
-- row: it does not exist.
WITH
-- include: entity
SELECT e.now, e.kind, e.topic_id, e.is_system, e.tier, e.status, e.rules_version, e.forward_to,
       e.forward_dead_lettered_messages_to, e.expiry_mode, e.max_size_in_megabytes * 1048576::bigint AS quota,
       e.max_message_size_in_kilobytes * 1024 AS largest,
       EXISTS (SELECT FROM vitrine_message WHERE entity_id = coalesce(e.topic_id, e.id) AND state = @STATE_SCHEDULED
                                             AND scheduled_enqueue_at <= e.now) AS scheduled,
       EXISTS (SELECT FROM vitrine_lock_deadline WHERE entity_id = e.id AND until <= e.now) AS locks,
       -- The lists in which receives pass locked messages (advance_head).
       ARRAY(SELECT subqueue FROM vitrine_queue_head WHERE entity_id = e.id AND locked_below > head) AS passes_locked,
       -- A receive is to be recorded as activity.
       EXISTS (SELECT FROM vitrine_entity_activity
                WHERE entity_id = e.id AND (last_receive_at IS NULL OR last_receive_at < e.now - interval '20 s')) AS idle,
       -- include: may_have_expired
       AS expired,
       e.requires_session AND e.expires_whole_sessions AS whole_sessions,
       -- include: forwarding_sources
       AS sources
  FROM entity AS e;

-- name: touch_by_send
-- After a send that returned `idle`, and after its commit: an entity has one row for its activity.
WITH
-- include: entity
,
-- include: touched_by_send
SELECT;

-- name: touch_by_receive
-- As touch_by_send, after a receive, also one without messages.
WITH
-- include: entity
,
-- include: touched_by_receive
SELECT;

-- name: watch_entities
-- Mark the entities that a process waits for (docs/design.md D8), so that senders notify it; this counts as a receive (SB-195).
-- For each list, whether a receive may have something to do: messages, due changes, or a refusal. No row: the entity does not
-- exist. is_marked: otherwise another transaction is changing the mark, and the entity is to be checked again.
WITH listed AS MATERIALIZED (
    SELECT l.place, l.subqueue, l.kind AS list_kind, l.session_id, l.session_token, e.id, e.now, e.status, e.kind, e.topic_id,
           e.namespace_id, e.key, e.default_message_time_to_live, e.forward_to, e.forward_dead_lettered_messages_to
      FROM unnest(%(entity_ids)b::int8[], %(subqueues)b::int2[], %(kinds)b::int2[], %(session_ids)b::text[],
                  %(session_tokens)b::uuid[]) WITH ORDINALITY AS l(entity_id, subqueue, kind, session_id, session_token, place)
     CROSS JOIN LATERAL (SELECT * FROM vitrine_entity_now WHERE id = l.entity_id OFFSET 0) AS e),
due AS MATERIALIZED (
    SELECT a.tid, l.now
      FROM (SELECT DISTINCT ON (id) id, now FROM listed ORDER BY id) AS l
     CROSS JOIN LATERAL (
           SELECT ctid AS tid FROM vitrine_entity_activity
            WHERE entity_id = l.id
              AND (waiting_until < clock_timestamp() + %(renewed_below)s * interval '1 s') IS NOT FALSE
              FOR UPDATE SKIP LOCKED) AS a),
marked AS (
    UPDATE vitrine_entity_activity AS a
       SET waiting_until = clock_timestamp() + %(seconds)s * interval '1 s',
           last_activity_at = greatest(a.last_activity_at, d.now), last_receive_at = greatest(a.last_receive_at, d.now),
           last_use = @USE_RECEIVE
      FROM due AS d WHERE a.ctid = d.tid RETURNING a.entity_id)
SELECT e.place,
       EXISTS (SELECT FROM marked WHERE entity_id = e.id)
       OR EXISTS (SELECT FROM vitrine_entity_activity
                   WHERE entity_id = e.id AND waiting_until >= clock_timestamp() + %(renewed_below)s * interval '1 s')
       AS is_marked,
       e.status NOT IN ('Active', 'SendDisabled')
       OR CASE e.subqueue WHEN @SUBQUEUE_MAIN THEN e.forward_to IS NOT NULL
               WHEN @SUBQUEUE_DEAD_LETTER THEN e.forward_dead_lettered_messages_to IS NOT NULL ELSE false END
       OR CASE e.list_kind
               WHEN @WAIT_MESSAGES THEN EXISTS (
                    SELECT FROM vitrine_queue_head AS h
                     WHERE h.entity_id = e.id AND h.subqueue = e.subqueue
                       AND (EXISTS (SELECT FROM vitrine_message AS m
                                     WHERE m.entity_id = e.id AND m.subqueue = e.subqueue AND m.state = @STATE_ACTIVE
                                       AND m.sequence_number >= greatest(h.head, h.locked_below)
                                       AND (m.lock_token IS NULL OR m.locked_until <= e.now))
                            OR EXISTS (SELECT FROM vitrine_returned AS r
                                        WHERE r.entity_id = e.id AND r.subqueue = e.subqueue
                                          AND r.sequence_number >= h.head AND r.sequence_number < h.locked_below)))
               WHEN @WAIT_NEXT_SESSION THEN EXISTS (
                    SELECT FROM vitrine_session AS s
                     WHERE s.entity_id + 0 = e.id AND s.first_number IS NOT NULL
                       AND (s.locked_until IS NULL OR s.locked_until <= e.now)
                       AND EXISTS (SELECT FROM vitrine_message AS m
                                    WHERE m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id
                                      AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                                      AND m.sequence_number >= s.first_number
                                      AND (m.lock_token IS NULL OR m.locked_until <= e.now)))
               WHEN @WAIT_THIS_SESSION THEN NOT EXISTS (
                    SELECT FROM vitrine_session AS s
                     WHERE s.entity_id = e.id AND s.session_id = e.session_id AND s.locked_until > e.now)
               ELSE NOT EXISTS (
                    SELECT FROM vitrine_session AS s
                     WHERE s.entity_id = e.id AND s.session_id = e.session_id AND s.lock_token = e.session_token
                       AND s.locked_until > e.now)
                    OR EXISTS (
                    SELECT FROM vitrine_message AS m
                     WHERE m.entity_id + 0 = e.id AND m.session_id = e.session_id AND m.subqueue = @SUBQUEUE_MAIN
                       AND m.state = @STATE_ACTIVE AND (m.lock_token IS NULL OR m.locked_until <= e.now)) END
       OR EXISTS (SELECT FROM vitrine_message WHERE entity_id = coalesce(e.topic_id, e.id) AND state = @STATE_SCHEDULED
                                                AND scheduled_enqueue_at <= e.now)
       OR EXISTS (SELECT FROM vitrine_lock_deadline WHERE entity_id = e.id AND until <= e.now)
       OR
          -- include: may_have_expired
       OR cardinality(
          -- include: forwarding_sources
          ) > 0 AS is_ready
  FROM listed AS e;

-- name: wake
-- Notify the receivers that wait for this entity, once: the first transaction to clear the mark sends the notification.
WITH claimed AS (
    UPDATE vitrine_entity_activity SET waiting_until = NULL
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM vitrine_entity_activity
                              WHERE entity_id = %(entity_id)s AND waiting_until > clock_timestamp() FOR UPDATE SKIP LOCKED))
 RETURNING entity_id)
SELECT pg_notify('vitrine_wake', entity_id::text) FROM claimed;

-- name: record_refusals
-- Record settlements that were refused, since their locks were no longer valid; only of numbers that the entity has given.
INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, reason)
SELECT e.now, e.id, %(subqueue)s, %(actor)s, @EVENT_SETTLE_REFUSED, n.number, %(what)s
  FROM vitrine_entity_now AS e
  JOIN vitrine_entity_counter AS c ON c.entity_id = e.id
 CROSS JOIN unnest(%(numbers)s::bigint[]) AS n(number)
 WHERE e.id = %(entity_id)s AND e.history_level = @HISTORY_FULL AND n.number > 0 AND n.number < c.next_number;
