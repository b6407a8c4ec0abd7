-- Storage queues (QS- rules). Rows have subqueue 0 and state 0. lock_token is the pop receipt, which every change of a message
-- replaces; message ids contain the sequence number, as receipts do. A hold is a period of invisibility: hold_kind, from
-- held_since until visible_at. The ledger counts it under its kind until visible_at; if it ends earlier, an opposite row is
-- written.

-- fragment: storage_entity
entity AS MATERIALIZED (
    SELECT id, namespace_id, path, now, status, history_level, (effective ->> 'max_dequeue_count')::int AS max_dequeue_count,
           coalesce((options ->> 'expiry_grace')::float8, 60) * interval '1 s' AS expiry_grace,
           coalesce((options ->> 'strict_visibility')::boolean, false) AS strict_visibility
      FROM vitrine_entity_now WHERE id = %(entity_id)s)

-- fragment: storage_alive
-- Not expired; a message expires at the instant expires_at (QS-073, QS-078).
(m.expires_at > (SELECT now FROM entity)) IS NOT FALSE

-- fragment: storage_visible
-- What a get may return (QS-020); visible from the instant visible_at on (QS-078).
m.entity_id = %(entity_id)s AND m.visible_at <= (SELECT now FROM entity)
AND
    -- include: storage_alive

-- fragment: storage_from_hint
-- The hint lets gets skip the dead index entries below it. A hint in the future (the clock was set back) is ignored.
m.visible_at >= coalesce((SELECT h.visible_from FROM vitrine_queue_head AS h
                           WHERE h.entity_id = %(entity_id)s AND h.subqueue = @SUBQUEUE_MAIN AND NOT %(from_start)s::boolean
                             AND h.visible_from <= (SELECT now FROM entity)), '-infinity')

-- fragment: storage_spent
-- Dequeued as often as the queue allows: to be moved to the poison queue, and never returned by a get (QS-105).
coalesce(m.delivery_count >= (SELECT max_dequeue_count FROM entity), false)

-- fragment: storage_message_id
-- As lock_token, with other random bits.
(%(id_prefix)s::text || lpad(to_hex(m.sequence_number), 15, '0'))::uuid::text

-- fragment: storage_expires
-- A message that would expire after the year 9999 never expires.
CASE WHEN %(time_to_live)s::interval < timestamptz '9999-12-31 23:59:59+00' - e.now
     THEN e.now + %(time_to_live)s::interval END AS expires_at

-- name: storage_put
-- Append messages in order, with ids and receipts (QS-001, QS-015). No row: the queue does not exist, or puts are paused
-- (QS-926).
WITH
-- include: storage_entity
,
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + cardinality(%(bodies)b::bytea[]), bytes_sent = c.bytes_sent + %(bytes)s
     WHERE c.entity_id = (SELECT id FROM entity WHERE status IN ('Active', 'ReceiveDisabled'))
 RETURNING c.next_number - cardinality(%(bodies)b::bytea[]) AS first),
stored AS (
    INSERT INTO vitrine_message (entity_id, sequence_number, size, enqueued_at, expires_at, time_to_live,
                                 visible_at, hold_kind, held_since, locked_by, lock_token, message_id, body)
    SELECT %(entity_id)s, m.sequence_number, octet_length(m.body), e.now,
           -- include: storage_expires
           , %(time_to_live)s::interval, e.now + %(visibility)s::interval, CASE WHEN e.held THEN @HOLD_PUT END,
           CASE WHEN e.held THEN e.now END,
           CASE WHEN e.held THEN %(holder)s END,
           -- include: lock_token
           ,
           -- include: storage_message_id
           , m.body
      FROM (SELECT now, %(visibility)s::interval > interval '0' AS held FROM entity) AS e,
           (SELECT n.first + generate_series(0, cardinality(%(bodies)b::bytea[]) - 1) AS sequence_number,
                   unnest(%(bodies)b::bytea[]) AS body  -- copies no value, unlike in FROM
              FROM numbers AS n) AS m
 RETURNING sequence_number, message_id, lock_token, size, enqueued_at, expires_at, time_to_live, visible_at, hold_kind),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, size,
                                       enqueued_at, time_to_live, message_id, details)
    SELECT enqueued_at, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_SENT, sequence_number, 0, size, enqueued_at,
           time_to_live, message_id,
           CASE WHEN hold_kind IS NOT NULL THEN jsonb_build_object('visible_at', visible_at) END
      FROM stored WHERE (SELECT history_level FROM entity) > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL::timestamptz, count(*), @OP_SENT FROM stored
    HAVING count(*) > 0
    UNION ALL
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, hold_kind, visible_at, count(*), NULL FROM stored WHERE hold_kind IS NOT NULL
     GROUP BY hold_kind, visible_at)
SELECT sequence_number, message_id, lock_token, enqueued_at, expires_at, visible_at FROM stored ORDER BY sequence_number;

-- name: storage_get
-- Make up to max_count visible messages invisible, in the order of (visible_at, number), and return them (QS-020, QS-021, QS-071,
-- QS-908); none while gets are paused (QS-926). Messages locked by a concurrent get are skipped (QS-025). spent: the number of
-- messages met that belong in the poison queue; the caller moves them. If there were only such, the result is one row without a
-- sequence number.
WITH
-- include: storage_entity
,
available AS MATERIALIZED (
    SELECT found.*, e.now, e.now + %(visibility)s::interval AS visible_at, e.history_level
      FROM entity AS e
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid, m.visible_at AS old_visible_at, m.hold_kind AS old_kind, m.locked_by AS old_holder,
                  m.delivery_count AS old_count,
                  -- include: storage_spent
                  AS spent
             FROM vitrine_message AS m
            WHERE
                  -- include: storage_visible
              AND
                  -- include: storage_from_hint
            ORDER BY m.visible_at, m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED) AS found
     WHERE e.status IN ('Active', 'SendDisabled')),
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , locked_by = %(holder)s, visible_at = a.visible_at, hold_kind = @HOLD_GET, renewals = 0, held_since = a.now,
           delivery_count = m.delivery_count + 1, first_received_at = coalesce(m.first_received_at, a.now),
           last_received_at = a.now
      FROM available AS a WHERE m.ctid = a.tid AND NOT a.spent
 RETURNING m.sequence_number, m.message_id, m.lock_token, m.enqueued_at, m.expires_at, m.visible_at, m.delivery_count, m.body,
           a.now, a.history_level, a.old_visible_at, a.old_kind, a.old_holder, a.old_count),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, locked_until, actor)
    SELECT now, %(entity_id)s, @SUBQUEUE_MAIN, sequence_number, message_id, @EVENT_RECEIVED, delivery_count, visible_at,
           %(holder)s
      FROM changed WHERE history_level = @HISTORY_FULL
    UNION ALL
    SELECT now, %(entity_id)s, @SUBQUEUE_MAIN, sequence_number, message_id, @EVENT_LOCK_LOST, old_count, old_visible_at,
           old_holder
      FROM changed WHERE old_kind IN (@HOLD_GET, @HOLD_UPDATE) AND history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @HOLD_GET, max(visible_at), count(*), @OP_RECEIVED FROM changed
    HAVING count(*) > 0),
-- include: touched_by_receive
SELECT c.*, m.spent
  FROM (SELECT count(*) FILTER (WHERE spent) AS spent, count(*) FILTER (WHERE NOT spent) AS fit FROM available) AS m
  LEFT JOIN changed AS c ON true
 WHERE (c.sequence_number IS NOT NULL OR m.spent > 0)
   AND (SELECT CASE WHEN (SELECT count(*) FROM changed) = m.fit THEN true ELSE vitrine_try_again() END)
 ORDER BY c.old_visible_at, c.sequence_number;

-- name: storage_refresh_hint
-- Find the first visible message without using the hint, and set the hint to it, so that messages committed below the old hint
-- are found. Run when a get found fewer messages than requested, and periodically. The hint is raised at most once a second, so
-- that polling an empty queue does not write. visible: whether a get would meet a message now; expired: whether storage_expire
-- would remove one. No row: the queue does not exist.
WITH
-- include: storage_entity
,
first AS MATERIALIZED (
    SELECT m.visible_at FROM vitrine_message AS m
     WHERE
           -- include: storage_visible
     ORDER BY m.visible_at, m.sequence_number LIMIT 1),
hint AS (
    UPDATE vitrine_queue_head SET visible_from = (SELECT coalesce((SELECT visible_at FROM first), now) FROM entity)
     WHERE ctid = ANY (ARRAY(
           SELECT h.ctid FROM vitrine_queue_head AS h, (SELECT coalesce((SELECT visible_at FROM first), now) AS at
                                                          FROM entity) AS new
            WHERE h.entity_id = %(entity_id)s AND h.subqueue = @SUBQUEUE_MAIN
              AND (h.visible_from IS NULL OR h.visible_from > new.at OR h.visible_from < new.at - interval '1 s')
              FOR UPDATE OF h SKIP LOCKED)))
SELECT e.now, e.status, EXISTS (SELECT FROM first) AS visible,
       EXISTS (SELECT FROM vitrine_message AS m
                WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                  AND m.expires_at <= e.now - e.expiry_grace) AS expired
  FROM entity AS e;

-- name: storage_peek
-- The messages that a get would return, unchanged (QS-035).
WITH
-- include: storage_entity
SELECT m.sequence_number, m.message_id, m.enqueued_at, m.expires_at, m.delivery_count, m.body
  FROM vitrine_message AS m
 WHERE
       -- include: storage_visible
   AND
       -- include: storage_from_hint
   AND NOT
       -- include: storage_spent
 ORDER BY m.visible_at, m.sequence_number LIMIT %(max_count)s;

-- fragment: storage_columns
-- The columns needed to change or remove a message.
m.sequence_number, m.message_id, m.lock_token, m.locked_by, m.delivery_count, m.size, m.enqueued_at, m.first_received_at,
m.last_received_at, m.visible_at, m.hold_kind, m.expires_at

-- fragment: storage_owned
-- The unexpired messages (QS-073) whose current receipts are given, even if their leases have ended (QS-051, QS-063). Rows are
-- locked in number order so that concurrent calls cannot deadlock.
owned AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT * FROM unnest(%(numbers)b::bigint[], %(message_ids)b::text[],
                                 %(receipts)b::uuid[]) AS t(number, message_id, receipt) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid,
                  -- include: storage_columns
             FROM vitrine_message AS m
            WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = t.number
              AND m.message_id = t.message_id AND m.lock_token = t.receipt
              AND
                  -- include: storage_alive
              FOR UPDATE) AS found)

-- fragment: storage_removed
-- Events and ledger rows of `affected`, which were deleted.
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, enqueued_at, first_received_at, last_received_at, message_id)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, %(kind)s::smallint, g.sequence_number, g.delivery_count,
           CASE WHEN g.hold_kind IS NOT NULL THEN g.visible_at END, g.enqueued_at, g.first_received_at,
           g.last_received_at, g.message_id
      FROM affected AS g, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL::timestamptz, -count(*), -sum(size), %(kind)s::smallint
      FROM affected HAVING count(*) > 0
    UNION ALL
    -- include: storage_ended_holds
)

-- fragment: storage_ended_holds
-- The opposite ledger rows of holds in `affected` that end early. A message without a hold may have a visible_at after `now`: it
-- was released while this statement waited for its row lock.
SELECT %(entity_id)s, @SUBQUEUE_MAIN, hold_kind, visible_at, -count(*), 0, NULL FROM affected
 WHERE hold_kind IS NOT NULL AND visible_at > (SELECT now FROM entity) GROUP BY hold_kind, visible_at

-- name: storage_delete
-- Delete the unexpired messages (QS-073) whose current receipts are given, even if their leases have ended (QS-060, QS-063).
-- Those missing from the result were not found. A row that was changed in the meantime is judged by its new version.
WITH
-- include: storage_entity
,
affected AS (
    DELETE FROM vitrine_message AS m
     USING entity AS e
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
       AND ((m.lock_token, m.message_id) IN (SELECT * FROM unnest(%(receipts)b::uuid[], %(message_ids)b::text[]))) IS TRUE
       AND (m.expires_at > e.now) IS NOT FALSE
 RETURNING
           -- include: storage_columns
           -- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body
),
-- kept from: affected AS k
-- include: storage_removed
SELECT message_id, lock_token FROM affected;

-- name: storage_update
-- Give a message a new receipt, make it invisible for `visibility` from now, and replace its text if one is given (QS-045,
-- QS-047). Dequeue count, insertion time and expiry stay (QS-048). With strict_visibility, not until after its expiry (QS-903).
WITH
-- include: storage_entity
,
-- include: storage_owned
,
allowed AS MATERIALIZED (
    SELECT o.*, (SELECT now FROM entity) + %(visibility)s::interval AS new_visible_at,
           CASE WHEN %(visibility)s::interval > interval '0'
                THEN CASE o.delivery_count WHEN 0 THEN @HOLD_UPDATE_BEFORE_GET ELSE @HOLD_UPDATE END END AS new_kind
      FROM owned AS o
     WHERE NOT ((SELECT strict_visibility FROM entity)
                AND coalesce(o.expires_at < (SELECT now FROM entity) + %(visibility)s::interval, false))),
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , visible_at = a.new_visible_at, hold_kind = a.new_kind, renewals = coalesce(m.renewals, 0) + 1,
           held_since = CASE WHEN a.new_kind IS NOT NULL THEN (SELECT now FROM entity) END,
           locked_by = CASE WHEN a.new_kind IS NOT NULL THEN %(holder)s END,
           body = coalesce(%(body)b::bytea, m.body), size = coalesce(octet_length(%(body)b::bytea), m.size)
      FROM allowed AS a WHERE m.ctid = a.tid
 RETURNING m.sequence_number, m.lock_token, m.visible_at, m.size),
affected AS (SELECT * FROM allowed),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, message_id, details)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s,
           CASE WHEN a.new_kind IS NULL THEN @EVENT_ABANDONED ELSE @EVENT_RENEWED END, a.sequence_number,
           a.delivery_count, a.new_visible_at, a.message_id,
           CASE WHEN %(body)b::bytea IS NOT NULL THEN jsonb_build_object('text_bytes', octet_length(%(body)b::bytea)) END
      FROM allowed AS a, entity AS e WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, new_kind, new_visible_at, 1, 0::bigint, NULL::smallint FROM allowed
     WHERE new_kind IS NOT NULL
    UNION ALL
    SELECT %(entity_id)s, @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL, 0, c.size - a.size, NULL FROM changed AS c
      JOIN allowed AS a USING (sequence_number) WHERE c.size <> a.size
    UNION ALL
    -- include: storage_ended_holds
)
SELECT sequence_number, lock_token, visible_at FROM changed
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM changed) = (SELECT count(*) FROM allowed) THEN true ELSE vitrine_try_again() END);

-- name: storage_find
-- Run after an update or delete found nothing: whether the message exists. No row: the queue does not exist; a row without a
-- sequence number: the message does not (QS-050).
WITH
-- include: storage_entity
SELECT m.sequence_number, m.lock_token, m.expires_at
  FROM entity AS e
  LEFT JOIN vitrine_message AS m
    ON m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.sequence_number = %(number)s
         AND m.message_id = %(message_id)s
   AND
       -- include: storage_alive
;

-- name: storage_clear
-- Remove up to max_count messages in any state, from a number on and below another (QS-064). They are found by number, not by
-- ctid, so those changed in the meantime are removed as well. last_number: the last number examined (concurrent calls may have
-- removed some of them); NULL: there are no more.
WITH
-- include: storage_entity
,
chosen AS MATERIALIZED (
    SELECT sequence_number FROM vitrine_message
     WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE
       AND sequence_number >= %(from_number)s AND sequence_number < %(below)s
     ORDER BY sequence_number LIMIT %(max_count)s),
affected AS (
    DELETE FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (ARRAY(SELECT sequence_number FROM chosen))
 RETURNING
           -- include: storage_columns
           -- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body
),
-- kept from: affected AS k
-- include: storage_removed
SELECT (SELECT count(*) FROM affected) AS done, (SELECT max(sequence_number) FROM chosen) AS last_number;

-- name: storage_bounds
-- The range of sequence numbers of a queue's messages. No row: the queue does not exist.
SELECT e.id AS entity_id, e.status,
       coalesce((SELECT head FROM vitrine_queue_head WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN),
                                   1) AS first, c.next_number
  FROM vitrine_entity_now AS e JOIN vitrine_entity_counter AS c ON c.entity_id = e.id WHERE e.id = %(entity_id)s;

-- name: storage_remove
-- Remove messages by number, for an operator; their holders get MessageNotFound.
WITH
-- include: storage_entity
,
affected AS (
    DELETE FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
 RETURNING
           -- include: storage_columns
           -- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body
),
-- kept from: affected AS k
-- include: storage_removed
SELECT sequence_number FROM affected ORDER BY sequence_number;

-- name: storage_release
-- Make invisible messages visible now, for an operator, each with a new receipt; the old receipts stop working.
WITH
-- include: storage_entity
,
owned AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid,
                  -- include: storage_columns
             FROM vitrine_message AS m
            WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = t.number
              AND m.visible_at > (SELECT now FROM entity)
              AND
                  -- include: storage_alive
              FOR UPDATE) AS found),
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , visible_at = (SELECT now FROM entity), hold_kind = NULL, held_since = NULL, locked_by = NULL
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM owned))
 RETURNING m.sequence_number, m.delivery_count),
-- include: storage_released
SELECT sequence_number FROM changed
 WHERE
       -- include: all_changed_or_retry
 ORDER BY sequence_number;

-- name: storage_edit
-- Replace the text of a message that is not leased and has not expired, if it has this version, for an operator (QS-927). It gets
-- a new receipt; the old one stops working. No row: there is no such message.
WITH
-- include: storage_entity
,
judged AS MATERIALIZED (
    SELECT f.*, NULL::bigint AS most,
           CASE WHEN f.visible_at > e.now AND f.hold_kind IN (@HOLD_GET, @HOLD_UPDATE) THEN 'held'
                WHEN f.expires_at <= e.now THEN 'expired'
                WHEN f.has_changed THEN 'changed' END AS problem
      FROM entity AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: editable
                  , m.visible_at, m.visible_at AS held_until, m.hold_kind, m.expires_at
             FROM vitrine_message AS m
            WHERE m.entity_id = e.id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = %(number)s::bigint FOR UPDATE) AS f),
allowed AS MATERIALIZED (SELECT * FROM judged WHERE problem IS NULL),
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           ,
           -- include: edited_columns
      FROM allowed AS a WHERE m.ctid = a.tid
 RETURNING m.xmin::text AS version),
-- include: grown
,
-- include: edited
;

-- fragment: storage_released
-- Events and ledger rows of `owned`, which are visible now as `changed`.
affected AS (SELECT * FROM owned),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, message_id, reason, details)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_RELEASED, o.sequence_number, c.delivery_count,
           o.visible_at, o.message_id, %(reason)s,
           CASE WHEN o.locked_by IS NOT NULL THEN jsonb_build_object('held_by', o.locked_by) END
      FROM owned AS o JOIN changed AS c USING (sequence_number), entity AS e WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    -- include: storage_ended_holds
)

-- name: storage_leased
-- The messages of a queue that a get, or an update after one, has made invisible.
SELECT m.sequence_number FROM vitrine_entity_now AS e JOIN vitrine_message AS m ON m.entity_id = e.id
 WHERE e.id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE AND m.visible_at > e.now
   AND m.hold_kind IN (@HOLD_GET, @HOLD_UPDATE)
 ORDER BY m.sequence_number;

-- name: storage_release_unclaimed
-- Make the messages of a cancelled get visible again; that get is not counted. Messages received or changed since are skipped.
WITH
-- include: storage_entity
,
-- include: storage_owned
,
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , visible_at = (SELECT now FROM entity), hold_kind = NULL, held_since = NULL, locked_by = NULL,
           delivery_count = m.delivery_count - 1
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM owned))
 RETURNING m.sequence_number, m.delivery_count),
-- include: storage_released
SELECT sequence_number FROM changed
 WHERE
       -- include: all_changed_or_retry
;

-- fragment: storage_moved
-- Move `chosen` to another queue of the account, as new messages with new ids and receipts, a dequeue count of 0 and a reference
-- to their origin (QS-109). It is one statement, so no message is ever in both queues or in neither (QS-110). Without a target it
-- does nothing.
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + (SELECT count(*) FROM chosen), bytes_sent = c.bytes_sent + (SELECT sum(size) FROM chosen)
     WHERE c.entity_id = (SELECT id FROM target) AND EXISTS (SELECT FROM chosen)
 RETURNING c.next_number - (SELECT count(*) FROM chosen) AS first),
placed AS MATERIALIZED (
    SELECT c.sequence_number AS old_number,
           n.first + row_number() OVER (ORDER BY c.visible_at, c.sequence_number) - 1 AS new_number
      FROM chosen AS c, numbers AS n),
affected AS (
    DELETE FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (ARRAY(SELECT old_number FROM placed))
 RETURNING
           -- include: storage_columns
           , m.resubmitted_from, m.body),
stored AS (
    INSERT INTO vitrine_message (entity_id, sequence_number, size, enqueued_at, expires_at, time_to_live,
                                 visible_at, lock_token, message_id, resubmitted_from, body)
    SELECT (SELECT id FROM target), m.sequence_number, m.size, e.now,
           -- include: storage_expires
           , %(time_to_live)s::interval, e.now,
           -- include: lock_token
           ,
           -- include: storage_message_id
           , jsonb_build_object('entity_id', e.id, 'path', e.path, 'sequence_number', m.old_number, 'message_id', m.message_id,
                                'dequeue_count', m.delivery_count, 'max_dequeue_count', e.max_dequeue_count, 'enqueued_at',
                                m.enqueued_at, 'reason', %(reason)s::text, 'at', e.now, 'times',
                                coalesce((m.resubmitted_from ->> 'times')::int, 0) + 1),
           m.body
      FROM entity AS e,
           (SELECT p.new_number AS sequence_number, p.old_number, g.message_id, g.delivery_count, g.enqueued_at, g.size,
                                g.resubmitted_from, g.body
                           FROM affected AS g JOIN placed AS p ON p.old_number = g.sequence_number) AS m
 RETURNING *),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, size,
                                       enqueued_at, time_to_live, first_received_at, last_received_at,
                                       message_id, reason, details)
    SELECT e.now, e.id, @SUBQUEUE_MAIN, %(actor)s, @EVENT_MOVED, g.sequence_number, g.delivery_count, NULL::integer,
           g.enqueued_at, NULL::interval, g.first_received_at, g.last_received_at, g.message_id, %(reason)s::text,
           jsonb_build_object('to', jsonb_build_array(
               jsonb_build_object('entity', t.id, 'path', t.path, 'sequence_number', p.new_number)))
      FROM entity AS e, target AS t, affected AS g JOIN placed AS p ON p.old_number = g.sequence_number
     WHERE e.history_level > @HISTORY_OFF
    UNION ALL
    SELECT e.now, t.id, @SUBQUEUE_MAIN, %(actor)s, @EVENT_SENT, s.sequence_number, 0, s.size, s.enqueued_at, s.time_to_live, NULL,
           NULL, s.message_id, NULL,
           jsonb_build_object('from', jsonb_build_object('entity', e.id, 'path', e.path, 'sequence_number', p.old_number,
                                                         'reason', %(reason)s::text))
      FROM entity AS e, target AS t, stored AS s JOIN placed AS p ON p.new_number = s.sequence_number
     WHERE t.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL::timestamptz, -count(*), -sum(size), @OP_MOVED FROM affected
    HAVING count(*) > 0
    UNION ALL
    SELECT (SELECT id FROM target), @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL, count(*), 0, @OP_SENT FROM stored HAVING count(*) > 0
    UNION ALL
    -- include: storage_ended_holds
)
SELECT old_number, new_number FROM placed
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM affected) = (SELECT count(*) FROM placed) THEN true ELSE vitrine_try_again() END)
 ORDER BY old_number;

-- fragment: storage_target
target AS MATERIALIZED (
    SELECT t.id, t.path, t.history_level FROM vitrine_entity_now AS t JOIN entity AS e ON e.namespace_id = t.namespace_id
     WHERE t.id = %(target_id)s)

-- name: storage_poison
-- The poison queue of a queue, and whether gets would meet a spent message now.
WITH
-- include: storage_entity
SELECT n.name AS namespace_name, q.effective ->> 'poison_queue' AS poison_queue, q.history_level,
       q.effective ? 'poison_queue' AND EXISTS (
           SELECT FROM (SELECT
                               -- include: storage_spent
                               AS spent
                          FROM vitrine_message AS m
                         WHERE
                               -- include: storage_visible
                         ORDER BY m.visible_at, m.sequence_number LIMIT %(max_count)s) AS met WHERE spent) AS spent
  FROM entity AS e JOIN vitrine_entity AS q ON q.id = e.id JOIN vitrine_namespace AS n ON n.id = q.namespace_id;

-- name: storage_preview_options
-- How the fates of a queue's messages would change under the `new_` options: for each change, the number of messages, a checksum
-- of their numbers, and the first few. Reads at most scan_cap messages; `scanned`: how many. If nothing changes, the result is
-- one row without fates. is_redirected: the poison queue changes, so messages bound for it change as well. Messages that expire
-- before they become visible are never moved.
WITH
-- include: storage_entity
,
scanned_messages AS MATERIALIZED (
    SELECT sequence_number, delivery_count, visible_at, expires_at FROM vitrine_message
     WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE ORDER BY sequence_number
     LIMIT %(scan_cap)s),
fates AS (
    -- Each message twice: under the current and under the new options.
    SELECT m.sequence_number, c.is_new,
           CASE WHEN m.expires_at <= e.now THEN CASE WHEN m.expires_at <= e.now - c.grace THEN 'removed' ELSE 'expired' END
                WHEN coalesce(m.delivery_count < c.most, true) THEN 'stays'
                WHEN m.visible_at <= e.now THEN 'spent'
                WHEN m.expires_at <= m.visible_at THEN 'stays'
                ELSE 'spent once visible' END AS fate
      FROM scanned_messages AS m CROSS JOIN entity AS e
     CROSS JOIN LATERAL (VALUES (false, e.max_dequeue_count, e.expiry_grace),
                                (true, %(new_max_dequeue_count)s::int, %(new_expiry_grace)s::interval)) AS c(is_new, most, grace)
), paired AS (
    SELECT sequence_number, max(fate) FILTER (WHERE NOT is_new) AS before, max(fate) FILTER (WHERE is_new) AS after
      FROM fates GROUP BY sequence_number
), changed AS (
    SELECT before, after, count(*) AS n, bit_xor(hashint8extended(sequence_number, 0)) AS checksum,
           (array_agg(sequence_number ORDER BY sequence_number))[1:5] AS samples
      FROM paired WHERE before <> after OR %(is_redirected)s::boolean AND after IN ('spent', 'spent once visible')
     GROUP BY before, after
)
SELECT (SELECT now FROM entity) AS now, (SELECT count(*) FROM scanned_messages) AS scanned, c.*
  FROM (SELECT) AS always LEFT JOIN changed AS c ON true ORDER BY c.after, c.before;

-- name: storage_move_spent
-- Move spent messages to the poison queue (QS-105): those among the first max_count visible ones, which gets would meet.
WITH
-- include: storage_entity
,
-- include: storage_target
,
met AS MATERIALIZED (
    SELECT m.ctid AS tid FROM vitrine_message AS m
     WHERE
           -- include: storage_visible
     ORDER BY m.visible_at, m.sequence_number LIMIT %(max_count)s),
chosen AS MATERIALIZED (
    SELECT m.sequence_number, m.size, m.visible_at FROM vitrine_message AS m
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM met)) AND
           -- include: storage_visible
       AND
           -- include: storage_spent
       FOR UPDATE SKIP LOCKED),
-- include: storage_moved
;

-- name: storage_move
-- Move messages by number, for an operator. Leased messages are left alone.
WITH
-- include: storage_entity
,
-- include: storage_target
,
chosen AS MATERIALIZED (
    SELECT m.sequence_number, m.size, m.visible_at FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
       AND (m.visible_at <= (SELECT now FROM entity) OR m.hold_kind IN (@HOLD_PUT, @HOLD_UPDATE_BEFORE_GET))
       AND
           -- include: storage_alive
       FOR UPDATE SKIP LOCKED),
-- include: storage_moved
;

-- name: storage_origins
-- The recorded origins of messages that were moved to a poison queue or requeued from one.
SELECT m.sequence_number, m.resubmitted_from FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
 ORDER BY m.sequence_number;

-- name: storage_expire
-- Remove up to max_count messages whose expiry_grace has passed (QS-074, QS-923).
WITH
-- include: storage_entity
,
chosen AS MATERIALIZED (
    SELECT m.sequence_number FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.expires_at <= (SELECT now - expiry_grace FROM entity)
     ORDER BY m.expires_at LIMIT %(max_count)s FOR UPDATE SKIP LOCKED),
affected AS (
    DELETE FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (ARRAY(SELECT sequence_number FROM chosen))
 RETURNING
           -- include: storage_columns
           -- keeping: , m.body_kind, m.properties, m.application_properties, m.encoded, m.body
),
-- kept from: affected AS k
-- include: storage_removed
SELECT count(*) AS done FROM affected;

-- name: storage_count
-- The number of unexpired messages (QS-075, QS-901): the ledger's count, less the expired ones that are not removed yet.
WITH
-- include: storage_entity
SELECT (SELECT coalesce(sum(n), 0) FROM (
            SELECT n FROM vitrine_count_base
             WHERE entity_id = e.id AND until IS NULL AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE
            UNION ALL
            SELECT n FROM vitrine_count_delta
             WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE) AS l)::bigint
       - (SELECT count(*) FROM vitrine_message AS m WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN
                                                      AND m.state = @STATE_ACTIVE AND m.expires_at <= e.now) AS n
  FROM entity AS e;

-- name: storage_explain
-- One message with the facts that decide whether a get returns it. before: the number of visible messages ahead of it, counted up
-- to place_cap.
WITH
-- include: storage_entity
, clock AS MATERIALIZED (
    SELECT e.*, clock_timestamp() AS real_now, n.clock_base_at IS NOT NULL AS is_manual,
           CASE WHEN n.clock_base_at IS NULL THEN 1.0 ELSE n.clock_rate END AS rate
      FROM vitrine_entity_now AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE e.id = %(entity_id)s)
, found AS MATERIALIZED (
    SELECT
-- include: message_columns
      FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = %(number)s)
SELECT
-- include: clock_columns
       f.*,
       (SELECT count(*) FROM (
            SELECT FROM vitrine_message AS m
             WHERE
                   -- include: storage_visible
               AND (m.visible_at, m.sequence_number) < (f.visible_at, f.sequence_number)
               AND NOT
                   -- include: storage_spent
             LIMIT %(place_cap)s::int + 1) AS x) AS before
  FROM clock AS c CROSS JOIN found AS f;

-- name: storage_queue_page
-- Queues of an account in the order of their names' bytes, whatever the database's collation (QS-091).
SELECT e.path AS name, CASE WHEN %(with_metadata)s::boolean THEN e.options -> 'metadata' END AS metadata
  FROM vitrine_entity AS e
 WHERE e.namespace_id = (SELECT a.namespace_id
                           FROM vitrine_namespace AS s JOIN vitrine_storage_account AS a ON a.namespace_id = s.id
                          WHERE lower(s.name) = lower(%(account)s::text) AND s.deleted_at IS NULL)
   AND e.key COLLATE "C" > %(after)s::text AND starts_with(e.key, %(prefix)s::text) AND e.deleted_at IS NULL
 ORDER BY e.key COLLATE "C"
 LIMIT %(limit)s;

-- name: storage_set_options
-- Set a queue's options.
WITH changed AS (
    UPDATE vitrine_entity
       SET options = %(options)s::text::jsonb, effective = %(effective)s::text::jsonb, history_level = %(history_level)s,
           updated_at = clock_timestamp()
     WHERE id = %(entity_id)s AND deleted_at IS NULL
 RETURNING *)
SELECT
-- include: entity_columns
  FROM changed AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id;
