-- Sessions. The row of a session is its lock. Messages received through it are locked individually as well, until the same
-- instant, so that settling, counts and expiry of locks work as for any message. Lock order: the session's row, then messages; a
-- sender locks the counter first and then the rows of sessions. `entity_id + 0` is the leading expression of the indexes on a
-- session's messages, so that only these indexes can be used, whatever the statistics say. With the primary key, which a planner
-- without statistics prefers, each receive would scan the messages of all other sessions.

-- fragment: session_expired
-- Whether an unlocked message of session `s` of entity `e` has expired: by its own time-to-live, or the first of those that use
-- the default. All messages of the session are then expired, if the entity has expires_whole_sessions (SB-037, SB-901).
(e.expires_whole_sessions AND (
    EXISTS (SELECT FROM vitrine_message AS x
             WHERE x.entity_id + 0 = s.entity_id AND x.session_id = s.session_id AND x.subqueue = @SUBQUEUE_MAIN
               AND x.state = @STATE_ACTIVE AND x.expires_at <= e.now
               AND (x.locked_until IS NULL OR x.locked_until <= e.now))
    OR e.default_message_time_to_live IS NOT NULL AND coalesce((
       SELECT x.enqueued_at + e.default_message_time_to_live <= e.now FROM vitrine_message AS x
        WHERE x.entity_id + 0 = s.entity_id AND x.session_id = s.session_id AND x.subqueue = @SUBQUEUE_MAIN
          AND x.state = @STATE_ACTIVE
          AND x.sequence_number >= s.first_number AND x.expires_at IS NULL
          AND (x.locked_until IS NULL OR x.locked_until <= e.now)
        ORDER BY x.sequence_number LIMIT 1), false)))

-- fragment: deliverable_in_session
-- A message of session `s` of entity `e` that its holder may receive now, if the session has not expired.
m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
AND m.sequence_number >= s.first_number
AND (m.locked_until IS NULL OR m.locked_until <= e.now)
AND
-- include: neither_expired_nor_spent

-- fragment: takes_receivers
(e.requires_session AND e.status IN ('Active', 'SendDisabled') AND e.forward_to IS NULL)

-- fragment: session_held
-- Lock the row of the session that this token holds; no row if its lock has ended.
session AS MATERIALIZED (
    SELECT s.ctid AS tid, s.entity_id, s.session_id, s.first_number, s.locked_until
      FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND s.session_id = %(session_id)s AND s.lock_token = %(session_token)s
       AND s.locked_until > (SELECT now FROM entity) FOR UPDATE)

-- fragment: available_in_session
-- The next messages of `session`, in order. A message that is being changed is waited for, not skipped (SB-114, SB-115). Their
-- locks end with the session's.
available AS MATERIALIZED (
    SELECT found.*, e.now, s.locked_until AS until, e.history_level, e.default_message_time_to_live, NULL::bigint AS start,
           false AS passes_locked, false AS idle
      FROM entity AS e
     CROSS JOIN LATERAL (
           SELECT * FROM session AS s
            WHERE
                  -- include: takes_receivers
              AND NOT
                  -- include: session_expired
            OFFSET 0) AS s
     CROSS JOIN LATERAL (
           SELECT
                  -- include: available_columns
             FROM vitrine_message AS m
            WHERE
                  -- include: deliverable_in_session
            ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE) AS found)

-- name: accept_next_session
-- Lock the unlocked session with the lowest first number that has deliverable messages (SB-113), and receive its first messages.
-- A session whose row is locked by another transaction is skipped. If it was changed since this statement began, the statement is
-- run again.
WITH
-- include: entity
,
session AS MATERIALIZED (
    SELECT s.*, e.now + e.lock_duration AS locked_until
      FROM entity AS e
     CROSS JOIN LATERAL (
           SELECT s.ctid AS tid, s.entity_id, s.session_id, s.first_number, s.state
             FROM vitrine_session AS s
            WHERE s.entity_id + 0 = %(entity_id)s AND s.first_number IS NOT NULL
              AND (s.locked_until IS NULL OR s.locked_until <= e.now)
              AND
                  -- include: takes_receivers
              AND (SELECT true FROM vitrine_message AS m
                    WHERE
                          -- include: deliverable_in_session
                    LIMIT 1)
              AND NOT
                  -- include: session_expired
            ORDER BY s.first_number LIMIT 1 FOR UPDATE SKIP LOCKED) AS s),
accepted AS (
    UPDATE vitrine_session AS s
       SET locked_until = x.locked_until, lock_token = %(session_token)s, locked_by = %(holder)s
      FROM session AS x WHERE s.ctid = x.tid RETURNING s.session_id),
-- include: available_in_session
,
-- include: received
,
-- include: touched_by_receive
SELECT s.session_id AS accepted, s.state AS session_state, s.first_number, s.locked_until AS session_locked_until,
       e.lock_duration, changed.*
  FROM session AS s CROSS JOIN entity AS e LEFT JOIN changed ON true
 WHERE
       -- include: all_available_changed_or_retry
   AND (SELECT CASE WHEN (SELECT count(*) FROM accepted) = (SELECT count(*) FROM session) THEN true ELSE vitrine_try_again() END)
 ORDER BY changed.sequence_number;

-- name: accept_session
-- Lock this session, whether it has messages or not (SB-112). No row: it is locked, or the entity does not allow receives.
WITH
-- include: entity
,
accepted AS (
    INSERT INTO vitrine_session AS s (entity_id, session_id, locked_until, lock_token, locked_by)
    SELECT e.id, %(session_id)s, e.now + e.lock_duration, %(session_token)s, %(holder)s FROM entity AS e
     WHERE
           -- include: takes_receivers
        ON CONFLICT (entity_id, session_id) DO UPDATE
       SET locked_until = excluded.locked_until, lock_token = excluded.lock_token, locked_by = excluded.locked_by
     WHERE s.locked_until IS NULL OR s.locked_until <= (SELECT now FROM entity)
 RETURNING session_id, state, locked_until),
-- include: touched_by_receive
SELECT a.session_id AS accepted, a.state AS session_state, a.locked_until AS session_locked_until, e.lock_duration
  FROM accepted AS a CROSS JOIN entity AS e;

-- name: receive_from_session
-- Lock the next messages of a held session until the session's lock ends. While it is held there is at least one row, without a
-- sequence number if there is no message. No row: the session's lock is lost.
WITH
-- include: entity
,
-- include: session_held
,
-- include: available_in_session
,
-- include: received
,
-- include: touched_by_receive
SELECT s.first_number, changed.*
  FROM session AS s LEFT JOIN changed ON true
 WHERE
       -- include: all_available_changed_or_retry
 ORDER BY changed.sequence_number;

-- name: receive_and_delete_from_session
-- As receive_from_session, with deletion (SB-123).
WITH
-- include: entity
,
-- include: session_held
,
-- include: available_in_session
,
-- include: received_and_deleted
,
-- include: touched_by_receive
SELECT s.first_number, changed.*
  FROM session AS s LEFT JOIN changed ON true
 WHERE
       -- include: all_available_changed_or_retry
 ORDER BY changed.sequence_number;

-- name: receive_deferred_from_session
-- As receive_deferred, for a held session (SB-120): all numbers must belong to it. While it is held there is at least one row.
WITH
-- include: entity
,
-- include: session_held
,
lock_ends AS MATERIALIZED (SELECT locked_until AS at FROM session),
owned AS MATERIALIZED (
    SELECT found.*
      FROM session AS s CROSS JOIN entity AS e
     CROSS JOIN (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
                  , m.locked_by AS old_holder
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_DEFERRED
              AND m.sequence_number = t.number
              AND m.session_id = s.session_id
              AND (m.locked_until IS NULL OR m.locked_until <= e.now)
              AND
                  -- include: takes_receivers
              FOR UPDATE) AS found),
-- include: failed
,
-- include: apply_failed
,
-- include: received_deferred
,
-- include: touched_by_receive
SELECT e.default_message_time_to_live, locked.*
  FROM session AS s CROSS JOIN entity AS e LEFT JOIN locked ON true
 WHERE
       -- include: all_deferred_changed_or_retry
 ORDER BY locked.sequence_number;

-- name: lock_session
-- Statement 1 of 2 in one transaction, before renew_session, close_session and advance_session: lock the session's row if this
-- token holds it. Statement 2 then has a new snapshot, which includes everything that earlier holders of the row lock received or
-- sent. A single statement would wait for them and still not see their messages.
WITH
-- include: entity
,
-- include: session_held
SELECT session_id FROM session;

-- fragment: received_through_session
-- The unsettled messages received through `session`, in number order. Their locks end with the session's, and the deadlines
-- written with the locks give the range of numbers.
owned AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT m.state, m.sequence_number
              FROM session AS s
             CROSS JOIN LATERAL (
                   SELECT min(first_number) AS first, max(last_number) AS last FROM vitrine_lock_deadline
                    WHERE entity_id = s.entity_id AND until = s.locked_until) AS d
             CROSS JOIN unnest('{@STATE_ACTIVE,@STATE_DEFERRED}'::smallint[]) AS t(state)
             CROSS JOIN LATERAL (
                   SELECT m.state, m.sequence_number FROM vitrine_message AS m
                    WHERE m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN
                      AND m.state = t.state
                      AND m.sequence_number BETWEEN d.first AND d.last AND m.locked_until > (SELECT now FROM entity)) AS m
             ORDER BY m.sequence_number) AS h
     CROSS JOIN entity AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = h.state
              AND m.sequence_number = h.sequence_number
              AND m.locked_until > e.now FOR UPDATE) AS found)

-- name: renew_session
-- Extend the session's lock and those of its messages to lock_duration from now (SB-116).
WITH
-- include: entity
,
-- include: session_held
,
-- include: received_through_session
,
-- include: renewed
,
kept AS (UPDATE vitrine_session SET locked_until = (SELECT now + lock_duration FROM entity)
          WHERE ctid = ANY (ARRAY(SELECT tid FROM session)))
SELECT s.session_id, e.now + e.lock_duration AS locked_until, e.lock_duration FROM session AS s CROSS JOIN entity AS e
 WHERE
       -- include: all_changed_or_retry
;

-- fragment: first_present
-- The lowest number in each `session`; NULL: it has no active message.
present AS MATERIALIZED (
    SELECT s.tid, (SELECT m.sequence_number FROM vitrine_message AS m
                    WHERE m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN
                      AND m.state = @STATE_ACTIVE
                      AND m.sequence_number >= s.first_number
                    ORDER BY m.sequence_number LIMIT 1) AS first_number
      FROM session AS s)

-- fragment: close_sessions
-- Unlock these sessions; delete those with neither an active message nor a state (SB-111).
-- include: first_present
,
forgotten AS (DELETE FROM vitrine_session AS s USING present AS p
               WHERE s.ctid = p.tid AND p.first_number IS NULL AND s.state IS NULL),
kept AS (
    UPDATE vitrine_session AS s SET first_number = p.first_number, locked_until = NULL, lock_token = NULL, locked_by = NULL
      FROM present AS p WHERE s.ctid = p.tid AND (p.first_number IS NOT NULL OR s.state IS NOT NULL))

-- name: close_session
-- Unlock the session, and the unsettled messages received through it; no failed delivery is counted (SB-092, SB-118).
WITH
-- include: entity
,
-- include: session_held
,
-- include: received_through_session
,
-- include: released
,
-- include: close_sessions
SELECT session_id,
       -- include: waiting
  FROM session
 WHERE
       -- include: all_changed_or_retry
;

-- name: advance_session
-- After lock_session: raise the first number of a held session, so that its receives skip removed messages.
WITH
-- include: entity
,
-- include: session_held
,
-- include: first_present
UPDATE vitrine_session AS s SET first_number = p.first_number
  FROM present AS p WHERE s.ctid = p.tid AND s.first_number IS DISTINCT FROM p.first_number;

-- name: get_session_state
-- The state of a held session. No row: this token no longer holds it (SB-119).
WITH
-- include: entity
SELECT s.state AS session_state FROM vitrine_session AS s
 WHERE s.entity_id = %(entity_id)s AND s.session_id = %(session_id)s AND s.lock_token = %(session_token)s
   AND s.locked_until > (SELECT now FROM entity);

-- name: set_session_state
-- Set the state of a held session (SB-119). No row: this token no longer holds it.
WITH
-- include: entity
UPDATE vitrine_session AS s SET state = %(state)b, state_updated_at = (SELECT now FROM entity)
 WHERE s.entity_id = %(entity_id)s AND s.session_id = %(session_id)s AND s.lock_token = %(session_token)s
   AND s.locked_until > (SELECT now FROM entity)
RETURNING s.session_id;

-- name: list_sessions
-- Sessions with an active message or a state, or those whose state was set after an instant (SB-122).
SELECT s.session_id, m.first_number, s.locked_until, s.locked_by, octet_length(s.state) AS state_size, s.state_updated_at
  FROM vitrine_entity_now AS e
  JOIN vitrine_session AS s ON s.entity_id = e.id
  LEFT JOIN LATERAL (
       SELECT m.sequence_number AS first_number FROM vitrine_message AS m
        WHERE m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN
          AND m.state = @STATE_ACTIVE AND m.sequence_number >= s.first_number
        ORDER BY m.sequence_number LIMIT 1) AS m ON true
 WHERE e.id = %(entity_id)s
   AND CASE WHEN %(updated_since)s::timestamptz IS NULL THEN s.state IS NOT NULL OR m.first_number IS NOT NULL
            ELSE s.state_updated_at > %(updated_since)s END
 ORDER BY s.session_id OFFSET %(skip)s LIMIT %(top)s;

-- name: peek_session
-- As peek, for the messages of one session (SB-145), which does not have to be locked.
WITH
-- include: entity
,
-- include: touched_by_peek
SELECT
       -- include: peeked
  FROM entity AS e, (
       SELECT m.* FROM unnest('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}'::smallint[]) AS t(state) CROSS JOIN LATERAL (
              SELECT * FROM vitrine_message AS m
               WHERE m.entity_id + 0 = %(entity_id)s AND m.session_id = %(session_id)s AND m.subqueue = @SUBQUEUE_MAIN
                 AND m.state = t.state
                 AND m.sequence_number >= %(from_number)s ORDER BY m.sequence_number LIMIT %(max_count)s) AS m
        WHERE %(subqueue)s = @SUBQUEUE_MAIN
       UNION ALL
       (SELECT * FROM vitrine_message AS m
         WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.subqueue <> @SUBQUEUE_MAIN
           AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}')
           AND m.sequence_number >= %(from_number)s AND m.session_id = %(session_id)s
         ORDER BY m.sequence_number LIMIT %(max_count)s)) AS found
 CROSS JOIN LATERAL (SELECT found.state = @STATE_SCHEDULED AND found.scheduled_enqueue_at <= e.now AS now) AS due
 ORDER BY found.sequence_number LIMIT %(max_count)s;

-- name: drop_session_locks
-- End the locks of all sessions of an entity now, or of one. Run before those of its messages are ended, so that no concurrent
-- receive can lock more.
WITH
-- include: entity
,
held AS MATERIALIZED (
    SELECT s.session_id FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND s.locked_until > (SELECT now FROM entity)
       AND (%(session_id)s::text IS NULL OR s.session_id = %(session_id)s) ORDER BY s.session_id FOR UPDATE),
ended AS (
    UPDATE vitrine_session AS s SET locked_until = NULL, lock_token = NULL, locked_by = NULL
      FROM held AS h WHERE s.entity_id = %(entity_id)s AND s.session_id = h.session_id RETURNING 1)
SELECT count(*) AS done FROM ended;

-- name: locked_in_session
-- The numbers of the locked messages of a session.
SELECT m.sequence_number
  FROM vitrine_entity_now AS e JOIN vitrine_message AS m ON m.entity_id + 0 = e.id
 WHERE e.id = %(entity_id)s AND m.session_id = %(session_id)s AND m.subqueue = @SUBQUEUE_MAIN
   AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED}') AND m.locked_until > e.now
 ORDER BY m.sequence_number;

-- name: expire_sessions
-- Dead-letter or drop up to max_count messages of expired, unlocked sessions (SB-037). The message that decides a session's
-- expiry is removed last, so that a session that is only partly removed stays expired. Sessions whose messages use the entity's
-- default are scanned in the order of their first numbers, from a number on; last_number: the last one scanned, NULL if all
-- others are younger.
WITH
-- include: entity
,
with_expired AS MATERIALIZED (
    SELECT DISTINCT m.session_id
      FROM (SELECT m.session_id FROM vitrine_message AS m
             WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
               AND m.expires_at <= (SELECT now FROM entity)
               AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
             ORDER BY m.expires_at LIMIT %(max_count)s) AS m),
scanned AS MATERIALIZED (
    SELECT s.session_id, s.first_number, h.sequence_number, h.enqueued_at + e.default_message_time_to_live <= e.now AS expired
      FROM entity AS e
     CROSS JOIN LATERAL (
           SELECT * FROM vitrine_session AS s
            WHERE s.entity_id = %(entity_id)s AND s.first_number >= %(from_number)s AND e.default_message_time_to_live IS NOT NULL
            ORDER BY s.first_number LIMIT %(max_count)s) AS s
      LEFT JOIN LATERAL (
           SELECT m.sequence_number, m.enqueued_at FROM vitrine_message AS m
            WHERE m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN
              AND m.state = @STATE_ACTIVE
              AND m.sequence_number >= s.first_number AND m.expires_at IS NULL
              AND (m.locked_until IS NULL OR m.locked_until <= e.now)
            ORDER BY m.sequence_number LIMIT 1) AS h ON true),
expired_sessions AS MATERIALIZED (
    SELECT o.session_id, coalesce(first_expired.sequence_number, w.sequence_number) AS deciding_number,
           coalesce((SELECT first_number FROM vitrine_session WHERE entity_id = %(entity_id)s AND session_id = o.session_id),
                    1) AS first_number
      FROM (SELECT session_id FROM with_expired UNION SELECT session_id FROM scanned WHERE expired) AS o
      LEFT JOIN scanned AS w ON w.session_id = o.session_id AND w.expired
      LEFT JOIN LATERAL (
           SELECT m.sequence_number FROM vitrine_message AS m
            WHERE m.entity_id + 0 = %(entity_id)s AND m.session_id = o.session_id AND m.subqueue = @SUBQUEUE_MAIN
              AND m.state = @STATE_ACTIVE
              AND m.expires_at <= (SELECT now FROM entity)
              AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
            ORDER BY m.expires_at LIMIT 1) AS first_expired ON true),
found AS MATERIALIZED (
    SELECT x.sequence_number
      FROM expired_sessions AS o
     CROSS JOIN LATERAL (
           (SELECT false AS is_last, m.sequence_number FROM vitrine_message AS m
             WHERE m.entity_id + 0 = %(entity_id)s AND m.session_id = o.session_id AND m.subqueue = @SUBQUEUE_MAIN
               AND m.state = @STATE_ACTIVE
               AND m.sequence_number >= o.first_number AND m.sequence_number <> o.deciding_number
               AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
             ORDER BY m.sequence_number LIMIT %(max_count)s)
           UNION ALL
           SELECT true, o.deciding_number) AS x
     ORDER BY o.session_id, x.is_last, x.sequence_number LIMIT %(max_count)s),
owned AS MATERIALIZED (
    SELECT m.*
      FROM (SELECT * FROM found ORDER BY sequence_number) AS f
     CROSS JOIN entity AS e
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = f.sequence_number
              AND (m.locked_until IS NULL OR m.locked_until <= e.now) FOR UPDATE) AS m),
-- include: expired_tail
SELECT (SELECT count(*) FROM owned) AS done, ARRAY(SELECT session_id FROM expired_sessions ORDER BY session_id) AS session_ids,
       CASE WHEN (SELECT count(*) FROM scanned) = %(max_count)s
             AND NOT (SELECT coalesce(bool_or(NOT expired AND sequence_number <= (SELECT max(first_number) FROM scanned)), false)
                        FROM scanned)
            THEN (SELECT max(first_number) FROM scanned) END AS last_number
 WHERE
       -- include: all_failed_changed_or_retry
;

-- name: session_entities
-- Entities that require sessions, for the sweep that removes stale sessions.
SELECT id AS entity_id FROM vitrine_entity_now WHERE requires_session ORDER BY id;

-- name: lock_stale_sessions
-- Statement 1 of 2 in one transaction: of the next max_count sessions by id, lock the unheld ones whose row differs from what
-- closing would leave. last: the last id scanned; NULL: there are no more.
WITH
-- include: entity
,
scanned AS MATERIALIZED (
    SELECT s.* FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND (%(after)s::text IS NULL OR s.session_id > %(after)s)
     ORDER BY s.session_id LIMIT %(max_count)s),
stale AS MATERIALIZED (
    SELECT s.session_id
      FROM scanned AS s
      LEFT JOIN LATERAL (
           SELECT m.sequence_number FROM vitrine_message AS m
            WHERE m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN
              AND m.state = @STATE_ACTIVE
              AND m.sequence_number >= s.first_number
            ORDER BY m.sequence_number LIMIT 1) AS m ON true
     WHERE (s.locked_until IS NULL OR s.locked_until <= (SELECT now FROM entity))
       AND (m.sequence_number IS DISTINCT FROM s.first_number OR m.sequence_number IS NULL AND s.state IS NULL)),
taken AS MATERIALIZED (
    SELECT s.session_id
      FROM stale AS t
     CROSS JOIN LATERAL (
           SELECT s.session_id FROM vitrine_session AS s
            WHERE s.entity_id = %(entity_id)s AND s.session_id = t.session_id
              AND (s.locked_until IS NULL OR s.locked_until <= (SELECT now FROM entity)) FOR UPDATE SKIP LOCKED) AS s)
SELECT ARRAY(SELECT session_id FROM taken) AS session_ids,
       CASE WHEN (SELECT count(*) FROM scanned) = %(max_count)s THEN (SELECT max(session_id) FROM scanned) END AS last;

-- name: lock_unheld_sessions
-- As lock_stale_sessions, for all unheld ones of the given sessions.
WITH
-- include: entity
SELECT s.session_id
  FROM (SELECT id FROM unnest(%(session_ids)b::text[]) AS t(id) ORDER BY id) AS t
 CROSS JOIN LATERAL (
       SELECT s.session_id FROM vitrine_session AS s
        WHERE s.entity_id = %(entity_id)s AND s.session_id = t.id
          AND (s.locked_until IS NULL OR s.locked_until <= (SELECT now FROM entity)) FOR UPDATE SKIP LOCKED) AS s;

-- name: reset_sessions
-- Statement 2 of 2: update the locked sessions as closing them would.
WITH session AS MATERIALIZED (
    SELECT s.ctid AS tid, s.entity_id, s.session_id, s.first_number FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND s.session_id = ANY (%(session_ids)b::text[])),
-- include: close_sessions
SELECT count(*) AS done FROM present;
