-- Storage queues (QS- rules). Rows have subqueue 0 and state 0; lock_token is the pop receipt, which every change of a message
-- replaces; the message's id carries its number, as receipts do. A hold is an invisibility: hold_kind, from held_since until
-- visible_at. In the ledger it is counted under its kind until visible_at, and taken back where it ends before that.

-- fragment: storage_entity
entity AS MATERIALIZED (
    SELECT id, namespace_id, path, now, history_level, (effective ->> 'max_dequeue_count')::int AS max_dequeue_count,
           coalesce((options ->> 'expiry_grace')::float8, 60) * interval '1 s' AS expiry_grace,
           coalesce((options ->> 'strict_visibility')::boolean, false) AS strict_visibility
      FROM vitrine_entity_now WHERE id = %(entity_id)s)

-- fragment: storage_alive
-- Not expired; at its very instant it is (QS-073, QS-078).
(m.expires_at > (SELECT now FROM entity)) IS NOT FALSE

-- fragment: storage_visible
-- What a get may return (QS-020); equal to now is visible (QS-078).
m.entity_id = %(entity_id)s AND m.visible_at <= (SELECT now FROM entity)
AND
    -- include: storage_alive

-- fragment: storage_from_hint
-- The hint spares gets the dead index entries below it. One that lies ahead of a clock that was set back is none.
m.visible_at >= coalesce((SELECT h.visible_from FROM vitrine_queue_head AS h
                           WHERE h.entity_id = %(entity_id)s AND h.subqueue = @SUBQUEUE_MAIN AND NOT %(from_start)s::boolean
                             AND h.visible_from <= (SELECT now FROM entity)), '-infinity')

-- fragment: storage_spent
-- Handed out as often as the queue allows: for the poison queue, and for nobody here (QS-105).
coalesce(m.delivery_count >= (SELECT max_dequeue_count FROM entity), false)

-- fragment: storage_message_id
-- Like a lock token: 60 random bits, other ones than the token's, and the number.
(SELECT substr(s.salt, 25, 8) || '-' || substr(s.salt, 33, 4) || '-8' || substr(s.salt, 21, 3) || '-8' || left(h.hex, 3)
 || '-' || right(h.hex, 12)
   FROM salt AS s, (SELECT lpad(to_hex(m.sequence_number), 15, '0') AS hex) AS h)

-- fragment: storage_expires
-- A life that would pass the year 9999 never ends.
CASE WHEN %(time_to_live)s::interval < timestamptz '9999-12-31 23:59:59+00' - e.now
     THEN e.now + %(time_to_live)s::interval END AS expires_at

-- name: storage_put
-- Append messages in order, with ids and receipts (QS-001, QS-015). No row: the queue is gone.
WITH
-- include: storage_entity
,
-- include: salt
,
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + cardinality(%(bodies)b::bytea[]), bytes_sent = c.bytes_sent + %(bytes)s
     WHERE c.entity_id = (SELECT id FROM entity)
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
           (SELECT n.first + t.i - 1 AS sequence_number, t.body
              FROM numbers AS n, unnest(%(bodies)b::bytea[]) WITH ORDINALITY AS t(body, i)) AS m
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
-- QS-908). Those that another get is taking at this moment are skipped, not waited for (QS-025). spent: how many were met that
-- are for the poison queue: the caller moves them. One row without a number, where only such were met.
WITH
-- include: storage_entity
,
-- include: salt
,
available AS MATERIALIZED (
    SELECT m.ctid AS tid, m.sequence_number, m.message_id, m.visible_at AS old_visible_at, m.hold_kind,
           m.locked_by AS old_holder, m.delivery_count,
           -- include: storage_spent
           AS spent
      FROM vitrine_message AS m
     WHERE
           -- include: storage_visible
       AND
           -- include: storage_from_hint
     ORDER BY m.visible_at, m.sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED),
changed AS (
    UPDATE vitrine_message AS m
       SET lock_token =
               -- include: lock_token
           , locked_by = %(holder)s, visible_at = (SELECT now FROM entity) + %(visibility)s::interval,
           hold_kind = @HOLD_GET, renewals = 0, held_since = (SELECT now FROM entity), delivery_count = m.delivery_count + 1,
           first_received_at = coalesce(m.first_received_at, (SELECT now FROM entity)),
           last_received_at = (SELECT now FROM entity)
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM available WHERE NOT spent))
 RETURNING m.sequence_number, m.message_id, m.lock_token, m.enqueued_at, m.expires_at, m.visible_at, m.delivery_count, m.body),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, message_id, kind,
                                       delivery_count, locked_until, actor)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, x.*
      FROM entity AS e, (
           SELECT sequence_number, message_id, @EVENT_RECEIVED, delivery_count, visible_at, %(holder)s FROM changed
           UNION ALL
           SELECT sequence_number, message_id, @EVENT_LOCK_LOST, delivery_count, old_visible_at, old_holder FROM available
            WHERE hold_kind IN (@HOLD_GET, @HOLD_UPDATE) AND NOT spent) AS x
     WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @HOLD_GET, visible_at, count(*), @OP_RECEIVED FROM changed GROUP BY visible_at),
-- include: touched_by_receive
SELECT c.*, m.spent FROM (SELECT count(*) FILTER (WHERE spent) AS spent, count(*) FILTER (WHERE NOT spent) AS fit
                            FROM available) AS m
  LEFT JOIN (changed AS c JOIN available AS a USING (sequence_number)) ON true
 WHERE (c.sequence_number IS NOT NULL OR m.spent > 0)
   AND (SELECT CASE WHEN (SELECT count(*) FROM changed) = m.fit THEN true ELSE vitrine_try_again() END)
 ORDER BY a.old_visible_at, c.sequence_number;

-- name: storage_look
-- Asked when a get found less than asked, and now and then: looks from the beginning, with no trust in the hint, and sets it
-- anew, so that a message that was committed below it is found. Raised at most once a second, so that polling an empty queue does
-- not write. visible: whether a get would meet something now; expired: whether a tidying step would. No row: the queue is gone.
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
SELECT e.now, EXISTS (SELECT FROM first) AS visible,
       EXISTS (SELECT FROM vitrine_message AS m
                WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
                  AND m.expires_at <= e.now - e.expiry_grace) AS expired
  FROM entity AS e;

-- name: storage_peek
-- What a get would return, unchanged (QS-035).
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
-- What changing and removing need to know of a message.
m.sequence_number, m.message_id, m.lock_token, m.locked_by, m.delivery_count, m.size, m.enqueued_at, m.first_received_at,
m.last_received_at, m.visible_at, m.hold_kind, m.expires_at

-- fragment: storage_owned
-- The messages whose current receipts these are, whatever the clock says (QS-051, QS-063), in the order of numbers so that two
-- callers cannot meet crosswise. An expired one is not there (QS-073).
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
-- The events and the ledger's differences of `gone`.
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, enqueued_at, first_received_at, last_received_at, message_id)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, %(kind)s::smallint, g.sequence_number, g.delivery_count,
           CASE WHEN g.hold_kind IS NOT NULL THEN g.visible_at END, g.enqueued_at, g.first_received_at,
           g.last_received_at, g.message_id
      FROM gone AS g, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL::timestamptz, -count(*), -sum(size), %(kind)s::smallint
      FROM gone HAVING count(*) > 0
    UNION ALL
    -- include: storage_ended_holds
)

-- fragment: storage_ended_holds
-- The ledger's counterpart of holds in `gone` that end before their time. A message without one may be visible from after `now`
-- on: somebody made it visible while this statement waited for it.
SELECT %(entity_id)s, @SUBQUEUE_MAIN, hold_kind, visible_at, -count(*), 0, NULL FROM gone
 WHERE hold_kind IS NOT NULL AND visible_at > (SELECT now FROM entity) GROUP BY hold_kind, visible_at

-- name: storage_delete
-- Remove messages for good (QS-060). What is missing from the answer was not there under this receipt.
WITH
-- include: storage_entity
,
-- include: storage_owned
,
gone AS (
    DELETE FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM owned))
 RETURNING
           -- include: storage_columns
),
-- include: storage_removed
SELECT sequence_number, message_id FROM gone
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM gone) = (SELECT count(*) FROM owned) THEN true ELSE vitrine_try_again() END);

-- name: storage_update
-- A new receipt, invisible from now on for so long, and another text where one is given (QS-045, QS-047). Count, insertion and
-- end of life stay (QS-048). Where the queue is strict, not over the end of its life (QS-903).
WITH
-- include: storage_entity
,
-- include: salt
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
gone AS (SELECT * FROM allowed),
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
-- Asked after an update or a delete found nothing: is the message there? No row: the queue is gone; one without a number: the
-- message is (QS-050).
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
-- Remove up to max_count messages, whatever they are, from a number on and below another (QS-064). Found by their numbers, not by
-- place, so what changes meanwhile goes as well. last_number: of those looked at, of which others may have removed any; none:
-- there are no more.
WITH
-- include: storage_entity
,
chosen AS MATERIALIZED (
    SELECT sequence_number FROM vitrine_message
     WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE
       AND sequence_number >= %(from_number)s AND sequence_number < %(below)s
     ORDER BY sequence_number LIMIT %(max_count)s),
gone AS (
    DELETE FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (ARRAY(SELECT sequence_number FROM chosen))
 RETURNING
           -- include: storage_columns
),
-- include: storage_removed
SELECT (SELECT count(*) FROM gone) AS done, (SELECT max(sequence_number) FROM chosen) AS last_number;

-- name: storage_bounds
-- Between which numbers messages are now. No row: the queue is gone.
SELECT e.id AS entity_id, coalesce((SELECT head FROM vitrine_queue_head WHERE entity_id = e.id AND subqueue = @SUBQUEUE_MAIN),
                                   1) AS first, c.next_number
  FROM vitrine_entity_now AS e JOIN vitrine_entity_counter AS c ON c.entity_id = e.id WHERE e.id = %(entity_id)s;

-- name: storage_remove
-- Remove messages by number, for an operator: whoever holds one finds it gone.
WITH
-- include: storage_entity
,
gone AS (
    DELETE FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (%(numbers)b::bigint[])
 RETURNING
           -- include: storage_columns
),
-- include: storage_removed
SELECT sequence_number FROM gone ORDER BY sequence_number;

-- name: storage_release
-- Make invisible messages visible now, for an operator, with a new receipt each: whoever held one finds its receipt no more.
WITH
-- include: storage_entity
,
-- include: salt
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
       -- include: none_missed
 ORDER BY sequence_number;

-- fragment: storage_released
-- The events and the ledger's differences of `owned`, which are visible now as `changed`.
gone AS (SELECT * FROM owned),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       locked_until, message_id, details)
    SELECT e.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_RELEASED, o.sequence_number, c.delivery_count,
           o.visible_at, o.message_id,
           CASE WHEN o.locked_by IS NOT NULL THEN jsonb_build_object('held_by', o.locked_by) END
      FROM owned AS o JOIN changed AS c USING (sequence_number), entity AS e WHERE e.history_level = @HISTORY_FULL),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    -- include: storage_ended_holds
)

-- name: storage_give_back
-- Make messages visible now that were got for nobody: that get does not count. What was got or changed by another since is not
-- touched.
WITH
-- include: storage_entity
,
-- include: salt
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
       -- include: none_missed
;

-- fragment: storage_moved
-- Moves `chosen` to another queue of the account: new messages there with new ids and receipts and a count of 0, each with a link
-- to what it was (QS-109). One statement, so none is in both queues, and none in neither (QS-110). Where the target is gone
-- nothing happens.
numbers AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + (SELECT count(*) FROM chosen), bytes_sent = c.bytes_sent + (SELECT sum(size) FROM chosen)
     WHERE c.entity_id = (SELECT id FROM target) AND EXISTS (SELECT FROM chosen)
 RETURNING c.next_number - (SELECT count(*) FROM chosen) AS first),
placed AS MATERIALIZED (
    SELECT c.sequence_number AS old_number,
           n.first + row_number() OVER (ORDER BY c.visible_at, c.sequence_number) - 1 AS new_number
      FROM chosen AS c, numbers AS n),
gone AS (
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
                           FROM gone AS g JOIN placed AS p ON p.old_number = g.sequence_number) AS m
 RETURNING *),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, size,
                                       enqueued_at, time_to_live, first_received_at, last_received_at,
                                       message_id, reason, details)
    SELECT e.now, e.id, @SUBQUEUE_MAIN, %(actor)s, @EVENT_MOVED, g.sequence_number, g.delivery_count, NULL::integer,
           g.enqueued_at, NULL::interval, g.first_received_at, g.last_received_at, g.message_id, %(reason)s::text,
           jsonb_build_object('to', jsonb_build_array(
               jsonb_build_object('entity', t.id, 'path', t.path, 'sequence_number', p.new_number)))
      FROM entity AS e, target AS t, gone AS g JOIN placed AS p ON p.old_number = g.sequence_number
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
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL::timestamptz, -count(*), -sum(size), @OP_MOVED FROM gone
    HAVING count(*) > 0
    UNION ALL
    SELECT (SELECT id FROM target), @SUBQUEUE_MAIN, @STATE_ACTIVE, NULL, count(*), 0, @OP_SENT FROM stored HAVING count(*) > 0
    UNION ALL
    -- include: storage_ended_holds
)
SELECT old_number, new_number FROM placed
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM gone) = (SELECT count(*) FROM placed) THEN true ELSE vitrine_try_again() END)
 ORDER BY old_number;

-- fragment: storage_target
target AS MATERIALIZED (
    SELECT t.id, t.path, t.history_level FROM vitrine_entity_now AS t JOIN entity AS e ON e.namespace_id = t.namespace_id
     WHERE t.id = %(target_id)s)

-- name: storage_poison
-- Where spent messages of a queue go, and whether gets would meet one now.
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
-- What becomes of messages were the queue's options the `new_` ones: for each way it changes, how many, a checksum of which, and
-- the first few. Looks at no more than scan_cap messages; `scanned` says how many. Always answers: with nothing that changes
-- there is one row without a fate. is_redirected: the poison queue is another one, so what goes there changes, too. What would
-- expire before it is visible is never moved.
WITH
-- include: storage_entity
,
looked_at AS MATERIALIZED (
    SELECT sequence_number, delivery_count, visible_at, expires_at FROM vitrine_message
     WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE ORDER BY sequence_number
     LIMIT %(scan_cap)s),
fated AS (
    -- Each message twice: as things are, and as they would be.
    SELECT m.sequence_number, c.is_new,
           CASE WHEN m.expires_at <= e.now THEN CASE WHEN m.expires_at <= e.now - c.grace THEN 'removed' ELSE 'expired' END
                WHEN coalesce(m.delivery_count < c.most, true) THEN 'stays'
                WHEN m.visible_at <= e.now THEN 'spent'
                WHEN m.expires_at <= m.visible_at THEN 'stays'
                ELSE 'spent once visible' END AS fate
      FROM looked_at AS m CROSS JOIN entity AS e
     CROSS JOIN LATERAL (VALUES (false, e.max_dequeue_count, e.expiry_grace),
                                (true, %(new_max_dequeue_count)s::int, %(new_expiry_grace)s::interval)) AS c(is_new, most, grace)
), paired AS (
    SELECT sequence_number, max(fate) FILTER (WHERE NOT is_new) AS before, max(fate) FILTER (WHERE is_new) AS after
      FROM fated GROUP BY sequence_number
), changed AS (
    SELECT before, after, count(*) AS n, bit_xor(hashint8extended(sequence_number, 0)) AS checksum,
           (array_agg(sequence_number ORDER BY sequence_number))[1:5] AS samples
      FROM paired WHERE before <> after OR %(is_redirected)s::boolean AND after IN ('spent', 'spent once visible')
     GROUP BY before, after
)
SELECT (SELECT now FROM entity) AS now, (SELECT count(*) FROM looked_at) AS scanned, c.*
  FROM (SELECT) AS always LEFT JOIN changed AS c ON true ORDER BY c.after, c.before;

-- name: storage_move_spent
-- Visible messages that were handed out as often as allowed, to the poison queue (QS-105): those among the first max_count
-- visible ones, which are those that gets meet.
WITH
-- include: storage_entity
,
-- include: storage_target
,
-- include: salt
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
-- Messages by number, for an operator. Those that a consumer holds are left alone.
WITH
-- include: storage_entity
,
-- include: storage_target
,
-- include: salt
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

-- name: storage_groups
-- Messages among the first scan_cap that live, by where they came from and why: which may be moved, and how many consumers hold.
WITH
-- include: storage_entity
,
looked_at AS MATERIALIZED (
    SELECT m.sequence_number, m.resubmitted_from ->> 'path' AS origin, m.resubmitted_from ->> 'reason' AS reason,
           NOT (m.visible_at <= (SELECT now FROM entity) OR m.hold_kind IN (@HOLD_PUT, @HOLD_UPDATE_BEFORE_GET)) AS held
      FROM (SELECT * FROM vitrine_message WHERE entity_id = %(entity_id)s AND subqueue = @SUBQUEUE_MAIN AND state = @STATE_ACTIVE
             ORDER BY sequence_number LIMIT %(scan_cap)s) AS m
     WHERE
           -- include: storage_alive
)
SELECT origin, reason, coalesce(array_agg(sequence_number ORDER BY sequence_number) FILTER (WHERE NOT held), '{}') AS numbers,
       count(*) FILTER (WHERE held) AS held, (SELECT count(*) FROM looked_at) AS scanned
  FROM looked_at GROUP BY origin, reason ORDER BY count(*) DESC, origin, reason;

-- name: storage_origins
-- What messages of a queue say of where they came from: those of a poison queue, and those that were brought back from one.
SELECT m.sequence_number, m.resubmitted_from FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
   AND m.sequence_number = ANY (%(numbers)b::bigint[])
 ORDER BY m.sequence_number;

-- name: storage_expire
-- Remove up to max_count messages that have been expired for the queue's grace (QS-074, QS-923).
WITH
-- include: storage_entity
,
chosen AS MATERIALIZED (
    SELECT m.sequence_number FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.expires_at <= (SELECT now - expiry_grace FROM entity)
     ORDER BY m.expires_at LIMIT %(max_count)s FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM vitrine_message AS m
     WHERE m.entity_id = (SELECT id FROM entity) AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
       AND m.sequence_number = ANY (ARRAY(SELECT sequence_number FROM chosen))
 RETURNING
           -- include: storage_columns
),
-- include: storage_removed
SELECT count(*) AS done FROM gone;

-- name: storage_count
-- Messages that have not expired (QS-075, QS-901): the ledger's, less those that have and are not removed yet.
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
-- One message with what bears on whether a get returns it, and how many visible ones a get would return before it, counted to
-- place_cap.
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

-- name: storage_set_options
-- What a queue is set to.
WITH changed AS (
    UPDATE vitrine_entity
       SET options = %(options)s::text::jsonb, effective = %(effective)s::text::jsonb, history_level = %(history_level)s,
           updated_at = clock_timestamp()
     WHERE id = %(entity_id)s AND deleted_at IS NULL
 RETURNING *)
SELECT
-- include: entity_columns
  FROM changed AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id;
