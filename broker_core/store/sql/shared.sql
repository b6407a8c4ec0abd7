-- Fragments shared by several statements. `entity`: the entity's settings and its namespace's time, read once per statement.
--
-- @SUBQUEUE_MAIN, @STATE_ACTIVE, @EVENT_SENT and the like are the numbers of enums in common/types.py (statements.NAMED).

-- Each statement writes its own events and ledger rows, with only the columns that it has. A common tail with fixed columns was
-- measured on send, receive and complete: 1 to 3 % more CPU for one message, no difference for batches; and each statement had to
-- list all sixteen columns of an event, most of them typed NULLs.

-- fragment: entity
entity AS MATERIALIZED (
    SELECT id, path, kind, topic_id, is_system, tier, now, status, lock_duration, max_delivery_count,
           default_message_time_to_live, peek_shows_default_expiry, dead_lettering_on_message_expiration, max_size_in_megabytes,
           max_message_size_in_kilobytes, expiry_mode, history_level, rules_version, forward_to,
           forward_dead_lettered_messages_to, requires_session, expires_whole_sessions, duplicate_detection_history_time_window
      FROM vitrine_entity_now WHERE id = %(entity_id)s)

-- fragment: unless_touched
-- The row of the entity's activity, unless activity other than its creation was recorded within the last 20 s or another
-- transaction is changing it. So activity is recorded (SB-190) at most every 20 s and without waiting for a lock. No row if the
-- entity was deleted.
ctid = ANY (ARRAY(
       SELECT ctid FROM vitrine_entity_activity
        WHERE entity_id = %(entity_id)s
          AND last_activity_at <= (SELECT now FROM entity)
              - CASE WHEN last_use IS NOT DISTINCT FROM @USE_CREATE THEN interval '0' ELSE interval '20 s' END
          FOR UPDATE SKIP LOCKED))

-- fragment: touched_by_send
touched AS (
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_SEND
     WHERE
           -- include: unless_touched
)

-- fragment: touched_by_peek
touched AS (
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_PEEK
     WHERE
           -- include: unless_touched
)

-- fragment: touched_by_cancel
-- Messages of these states left the entity; if they may have been scheduled, idleness begins now (SB-918).
touched AS (
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_CANCEL
     WHERE
           -- include: unless_touched
       AND @STATE_SCHEDULED = ANY (%(states)s::smallint[]))

-- fragment: touched_by_receive
-- Record a receive as activity (SB-190) and as what expiry on activity waits for (SB-902): at most every 20 s, and without
-- waiting.
touched AS (
    UPDATE vitrine_entity_activity
       SET last_activity_at = (SELECT now FROM entity), last_receive_at = (SELECT now FROM entity), last_use = @USE_RECEIVE
     WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM vitrine_entity_activity
            WHERE entity_id = (SELECT id FROM entity)
              AND (last_receive_at IS NULL OR last_receive_at < (SELECT now FROM entity) - interval '20 s')
              FOR UPDATE SKIP LOCKED)))

-- fragment: waiting
-- Whether receivers are waiting for messages of this entity; if so, the caller wakes them after the commit (docs/design.md D8).
(SELECT coalesce(max(waiting_until) > clock_timestamp(), false)
   FROM vitrine_entity_activity WHERE entity_id = %(entity_id)s) AS waiting

-- fragment: candidate
-- The columns that settling and sweeping need of a message of entity `e`. failures: its failed deliveries, counting a lock that
-- it has (SB-090); none are counted in a dead-letter queue (SB-089). ends_at: when it expires (SB-020, SB-921).
m.ctid AS tid, m.state, m.sequence_number, m.lock_token, m.locked_until AS old_until, m.message_id, m.enqueued_at,
m.first_received_at, m.last_received_at, m.size,
m.delivery_count + (m.lock_token IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN)::int AS failures,
coalesce(m.expires_at, m.enqueued_at + e.default_message_time_to_live) AS ends_at

-- fragment: of_main_list
-- The active messages `m` of e's main queue; the oldest is the first.
m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
AND m.sequence_number >= coalesce((SELECT head FROM vitrine_queue_head
                                    WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN), 1)

-- fragment: not_delayed
-- Whether `m` is none of the storage messages that were put with a delay and are not due.
(m.visible_at > e.now AND m.hold_kind IN (@HOLD_PUT, @HOLD_UPDATE_BEFORE_GET)) IS NOT TRUE

-- fragment: oldest_waiting
-- The oldest active message of e's main queue. A delayed one is left out if it is among the first hundred.
(SELECT m.enqueued_at
   FROM (SELECT m.sequence_number, m.enqueued_at, m.visible_at, m.hold_kind FROM vitrine_message AS m
          WHERE
                -- include: of_main_list
          ORDER BY m.sequence_number LIMIT 100) AS m
  WHERE
        -- include: not_delayed
  ORDER BY m.sequence_number LIMIT 1)

-- fragment: may_have_expired
-- Whether the main list of entity `e` has expired messages, by their own expires_at, or may have some that expire by the default
-- time-to-live.
(EXISTS (SELECT FROM vitrine_message
          WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE AND expires_at <= e.now)
 OR e.default_message_time_to_live IS NOT NULL AND EXISTS (
    SELECT FROM vitrine_message
     WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE
       AND sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN)))

-- fragment: lock_token
-- 60 random bits, new with each receive, and the sequence number in the last 60 bits: a token identifies its message, so settling
-- needs no index on tokens, which each lock would have to update. token_prefix is made by statements.call.
(%(token_prefix)s::text || lpad(to_hex(m.sequence_number), 15, '0'))::uuid

-- fragment: all_changed_or_retry
-- If a row was changed between this statement's snapshot and its row lock, the new version is locked, which an UPDATE by ctid
-- does not find. The statement is then rolled back and run again with a new snapshot.
(SELECT CASE WHEN (SELECT count(*) FROM changed) = (SELECT count(*) FROM owned) THEN true ELSE vitrine_try_again() END)

-- fragment: all_failed_changed_or_retry
-- As all_changed_or_retry, for the messages of `failed` that are moved or dropped.
(SELECT CASE WHEN (SELECT count(*) FROM moved) + (SELECT count(*) FROM dropped)
                  = (SELECT count(*) FROM failed WHERE fate <> 'keep')
             THEN true ELSE vitrine_try_again() END)

-- fragment: failed
-- The fate of each message of `owned` whose delivery failed or that may have expired: expiry comes first (SB-027, SB-920), then
-- the maximum delivery count (SB-091); otherwise it is kept. A deferred message expires only when it is received (SB-036).
failed AS MATERIALIZED (
    SELECT o.*,
           CASE WHEN NOT x.expired AND NOT x.spent AND NOT x.too_large THEN 'keep'
                -- its session expires as a whole
                WHEN x.expired AND o.state = @STATE_ACTIVE AND e.requires_session AND e.expires_whole_sessions THEN 'keep'
                WHEN x.expired AND NOT e.dead_lettering_on_message_expiration THEN 'drop' ELSE 'dead_letter' END AS fate,
           CASE WHEN x.expired THEN 'TTLExpiredException' WHEN x.too_large THEN 'HeaderSizeExceeded'
                ELSE 'MaxDeliveryCountExceeded' END AS reason,
           CASE WHEN x.expired THEN 'The message expired and was dead lettered.'
                WHEN x.too_large THEN 'The size quota for this stream has been exceeded.'
                ELSE 'Message could not be consumed after ' || e.max_delivery_count || ' delivery attempts.' END AS description
      FROM owned AS o
     CROSS JOIN entity AS e
     CROSS JOIN LATERAL (
           SELECT %(subqueue)s = @SUBQUEUE_MAIN AND (o.state = @STATE_ACTIVE OR %(expires_deferred)s)
           AND coalesce(o.ends_at <= e.now, false) AS expired,
                  %(subqueue)s = @SUBQUEUE_MAIN AND o.failures >= e.max_delivery_count AS spent,
                  -- Properties added by an abandon may exceed the limit of a message.
                  CASE WHEN %(subqueue)s = @SUBQUEUE_MAIN AND %(properties)s::jsonb IS NOT NULL
                       THEN (SELECT octet_length((coalesce(m.application_properties, '{}')
                                                  || %(properties)s::jsonb)::text) > 65536
                               FROM vitrine_message AS m WHERE m.ctid = o.tid)
                       ELSE false END AS too_large) AS x)

-- fragment: apply_failed
-- Apply the fates of `failed`. Messages keep their numbers, so they may arrive below the bounds of the dead-letter queue. These
-- are therefore lowered in the same statement, even if they are low enough, to wait for a transaction that is raising them.
moved AS (
    UPDATE vitrine_message AS m
       SET subqueue = @SUBQUEUE_DEAD_LETTER, state = @STATE_ACTIVE, delivery_count = 0, deliveries_before = f.failures,
           lock_token = NULL, locked_until = NULL, locked_by = NULL, dead_lettered_at = (SELECT now FROM entity),
           dead_letter_source = (SELECT path FROM entity), dead_letter_reason = f.reason, dead_letter_description = f.description,
           application_properties = coalesce(m.application_properties || %(properties)s::jsonb, %(properties)s::jsonb,
                                             m.application_properties)
      FROM failed AS f WHERE m.ctid = f.tid AND f.fate = 'dead_letter'
 RETURNING m.sequence_number),
dropped AS (
    DELETE FROM vitrine_message AS m USING failed AS f WHERE m.ctid = f.tid AND f.fate = 'drop'
 RETURNING m.sequence_number
           -- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body
),
-- kept from: dropped AS k
lowered AS (
    UPDATE vitrine_queue_head AS h SET head = least(h.head, m.first), locked_below = least(h.locked_below, m.first)
      FROM (SELECT min(sequence_number) AS first FROM moved HAVING count(*) > 0) AS m
     WHERE h.entity_id = %(entity_id)s AND h.subqueue = @SUBQUEUE_DEAD_LETTER)

-- fragment: failed_counts
SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, state, NULL::timestamptz, -count(*)::int,
       CASE fate WHEN 'drop' THEN -sum(size) ELSE 0 END::bigint, CASE fate WHEN 'drop' THEN @OP_EXPIRED END::smallint
  FROM failed WHERE fate <> 'keep' GROUP BY state, fate
UNION ALL
SELECT %(entity_id)s::bigint, @SUBQUEUE_DEAD_LETTER::smallint, @STATE_ACTIVE::smallint, NULL, count(*)::int, 0::bigint,
       @OP_DEAD_LETTERED::smallint
  FROM failed WHERE fate = 'dead_letter' HAVING count(*) > 0

-- fragment: failed_events
SELECT CASE fate WHEN 'dead_letter' THEN @EVENT_DEAD_LETTERED ELSE @EVENT_EXPIRED END::smallint AS kind, sequence_number,
       failures, NULL::timestamptz AS locked_until, enqueued_at, first_received_at, last_received_at, message_id, reason,
       CASE fate WHEN 'dead_letter' THEN jsonb_build_object('description', description) END AS details
  FROM failed WHERE fate <> 'keep'

-- fragment: kept
-- The insert of a statement's variant `..._keeping` (statements.py): k is the CTE with the rows that it deletes.
    INSERT INTO vitrine_kept_message (slot, kept_for, entity_id, sequence_number, body_kind, properties, application_properties,
                                      encoded, body)
    SELECT %(kept_slot)s::smallint, %(kept_for)s::interval, %(entity_id)s::bigint, k.sequence_number, k.body_kind, k.properties,
           k.application_properties, k.encoded, k.body

-- fragment: editable
-- What an edit needs of the message `m`, which it locks (docs/design.md D22). xmin changes with each change of a row.
m.ctid AS tid, m.state, m.sequence_number, m.delivery_count, m.message_id, m.enqueued_at, m.size, m.locked_by AS held_by,
%(size)s::int - m.size AS growth, m.xmin::text IS DISTINCT FROM %(version)s::text AS has_changed

-- fragment: edited_columns
-- A new body is plain bytes. Sections that the sender encoded stay: the columns decide where both say something.
body = coalesce(%(body)b::bytea, m.body),
body_kind = CASE WHEN %(body)b::bytea IS NULL THEN m.body_kind ELSE @BODY_DATA END,
application_properties = CASE WHEN %(properties)s::jsonb IS NULL THEN m.application_properties
                              ELSE nullif(%(properties)s::jsonb, '{}') END,
size = %(size)s::int

-- fragment: changed_content
-- The edit of a message of which `judged` has no problem.
allowed AS MATERIALIZED (SELECT * FROM judged WHERE problem IS NULL),
changed AS (
    UPDATE vitrine_message AS m
       SET
           -- include: edited_columns
      FROM allowed AS a WHERE m.ctid = a.tid
 RETURNING m.xmin::text AS version)

-- fragment: grown
-- More bytes count as sent, fewer as removed (fragment edited): sends rely on it that the ledger has no other differences.
grown AS (
    UPDATE vitrine_entity_counter AS c SET bytes_sent = c.bytes_sent + a.growth
      FROM allowed AS a WHERE c.entity_id = %(entity_id)s AND a.growth > 0)

-- fragment: edited
-- The event and the ledger row of a message that was edited, and the answer: its new version, or what is against it.
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, size, enqueued_at,
                                       message_id, reason, details)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_EDITED, a.sequence_number, a.delivery_count, %(size)s::int,
           a.enqueued_at, a.message_id, %(reason)s,
           jsonb_build_object('size_before', a.size, 'changed', array_remove(ARRAY[
               CASE WHEN %(body)b::bytea IS NOT NULL THEN 'body' END,
               CASE WHEN %(properties)s::jsonb IS NOT NULL THEN 'properties' END], NULL))
           || CASE WHEN pg_column_size(%(properties)s::jsonb) <= 4096
                   THEN jsonb_build_object('properties', %(properties)s::jsonb) ELSE '{}' END
      FROM allowed AS a, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes)
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, state, 0, growth FROM allowed WHERE growth < 0)
SELECT j.problem, j.held_by, j.held_until, j.most, c.version
  FROM judged AS j LEFT JOIN changed AS c ON true
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM changed) = (SELECT count(*) FROM allowed) THEN true ELSE vitrine_try_again() END)

-- name: kept_entities
-- The entities whose ended messages are kept (docs/design.md D20): how long, and in which slot those that end now are stored. A
-- clock that is not real may need the longest time for any period. used: how many bytes are stored. highest: the highest id of an
-- entity.
SELECT e.id AS entity_id, n.keep_messages_for AS period,
       vitrine_kept_slot(CASE WHEN n.clock_base_at IS NULL THEN n.keep_messages_for ELSE interval '7 days' END) AS slot,
       (SELECT vitrine_kept_bytes()) AS used, (SELECT max(id) FROM vitrine_entity) AS highest
  FROM vitrine_namespace AS n JOIN vitrine_entity AS e ON e.namespace_id = n.id
 WHERE n.keep_messages_for IS NOT NULL AND n.deleted_at IS NULL AND e.history_level > @HISTORY_OFF
   AND (e.deleted_at IS NULL OR EXISTS (SELECT FROM vitrine_entity_activity AS a WHERE a.entity_id = e.id));

-- name: kept_bytes
-- The disk space of all kept messages.
SELECT vitrine_kept_bytes() AS bytes;

-- name: drop_kept
-- Empty the slots whose time is over. Returns how many bytes they had.
SELECT vitrine_drop_kept() AS bytes;

-- fragment: forgotten_kept
DELETE FROM vitrine_kept_message
 WHERE entity_id = ANY (ARRAY(SELECT id FROM vitrine_entity WHERE namespace_id = %(namespace_id)s))

-- fragment: event_columns
at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, locked_until,
enqueued_at, first_received_at, last_received_at, message_id, reason, details
