-- Sessions. The row of a session is its lock; what is received through it is locked besides, message by message, to the same
-- instant, so that settling, counts and the end of locks are what they are everywhere. Order of locks: the session's row, then
-- messages; a sender locks the counter first and then the rows of sessions.
-- `entity_id + 0` is what the indexes of a session's messages begin with: nothing but these can then serve, whatever the
-- statistics say. By the primary key, which looks as good to a planner that knows no session, each receive would walk over the
-- messages of all the others.

-- fragment: session_is_over
-- Whether a message of session `s` that nobody holds has expired: by its own time-to-live, or the first of those that live by the
-- default. Then the life of all its messages is over, where the entity wants it so (SB-037, SB-901).
(SELECT e.expires_whole_sessions AND (
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
            ORDER BY x.sequence_number LIMIT 1), false))
   FROM entity AS e)

-- fragment: deliverable_in_session
-- A message of session `s` that its holder may receive now, if the session's life is not over.
m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
AND m.sequence_number >= s.first_number
AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
AND
-- include: neither_expired_nor_spent

-- fragment: takes_receivers
(SELECT requires_session AND status IN ('Active', 'SendDisabled') AND forward_to IS NULL FROM entity)

-- fragment: session_held
-- The row of the session whose lock this token is, locked; no row once the lock has ended.
session AS MATERIALIZED (
    SELECT s.ctid AS tid, s.entity_id, s.session_id, s.first_number, s.locked_until
      FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND s.session_id = %(session_id)s AND s.lock_token = %(session_token)s
       AND s.locked_until > (SELECT now FROM entity) FOR UPDATE),
lock_ends AS MATERIALIZED (SELECT locked_until AS at FROM session)

-- fragment: available_in_session
-- The next messages of `session`, in order: one that is being changed at this moment is waited for, not skipped (SB-114, SB-115).
available AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT s.* FROM session AS s
             WHERE
                   -- include: takes_receivers
               AND NOT
                   -- include: session_is_over
           ) AS s
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid, m.sequence_number, m.message_id, m.lock_token AS old_token, m.locked_until AS old_until,
                  m.locked_by AS old_holder, m.delivery_count + (m.lock_token IS NOT NULL)::int AS failures
             FROM vitrine_message AS m
            WHERE
                  -- include: deliverable_in_session
            ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE) AS found)

-- name: accept_next_session
-- Lock the session with the lowest first number among those that nobody holds and that have something to deliver (SB-113), and
-- receive its first messages at once. A session whose row somebody has at this moment is passed over. One that was changed since
-- this statement began is not taken with what was known of its messages then: it is looked at again.
WITH
-- include: entity
,
-- include: salt
,
session AS MATERIALIZED (
    SELECT s.ctid AS tid, s.entity_id, s.session_id, s.first_number, s.state
      FROM vitrine_session AS s
     WHERE s.entity_id + 0 = %(entity_id)s AND s.first_number IS NOT NULL
       AND (s.locked_until IS NULL OR s.locked_until <= (SELECT now FROM entity))
       AND
           -- include: takes_receivers
       AND (SELECT true FROM vitrine_message AS m
             WHERE
                   -- include: deliverable_in_session
             LIMIT 1)
       AND NOT
           -- include: session_is_over
     ORDER BY s.first_number LIMIT 1 FOR UPDATE SKIP LOCKED),
-- include: lock_ends
,
accepted AS (
    UPDATE vitrine_session
       SET locked_until = (SELECT at FROM lock_ends), lock_token = %(session_token)s, locked_by = %(holder)s
     WHERE ctid = ANY (ARRAY(SELECT tid FROM session)) RETURNING session_id),
-- include: available_in_session
,
-- include: received
,
-- include: touched_by_receive
SELECT s.session_id AS accepted, s.state AS session_state, s.first_number, lock_ends.at AS session_locked_until, e.lock_duration,
       e.default_message_time_to_live, changed.*
  FROM session AS s CROSS JOIN lock_ends CROSS JOIN entity AS e LEFT JOIN changed ON true
 WHERE
       -- include: none_missed_of_available
   AND (SELECT CASE WHEN (SELECT count(*) FROM accepted) = (SELECT count(*) FROM session) THEN true ELSE vitrine_try_again() END)
 ORDER BY changed.sequence_number;

-- name: accept_session
-- Lock this session, whether it has messages or not (SB-112). No row: somebody holds it, or the entity lets nobody receive.
WITH
-- include: entity
,
accepted AS (
    INSERT INTO vitrine_session AS s (entity_id, session_id, locked_until, lock_token, locked_by)
    SELECT id, %(session_id)s, now + lock_duration, %(session_token)s, %(holder)s FROM entity
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
-- Lock the next messages of a session that is held, as long as the session is locked. Always a row while it is held: without a
-- number when there is no message. No row: the session's lock is lost.
WITH
-- include: entity
,
-- include: salt
,
-- include: session_held
,
-- include: available_in_session
,
-- include: received
,
-- include: touched_by_receive
SELECT s.first_number, e.default_message_time_to_live, changed.*
  FROM session AS s CROSS JOIN entity AS e LEFT JOIN changed ON true
 WHERE
       -- include: none_missed_of_available
 ORDER BY changed.sequence_number;

-- name: receive_and_delete_from_session
-- The same, removing what is received (SB-123).
WITH
-- include: entity
,
-- include: session_held
,
-- include: available_in_session
,
-- include: received_for_good
,
-- include: touched_by_receive
SELECT s.first_number, e.default_message_time_to_live, changed.*
  FROM session AS s CROSS JOIN entity AS e LEFT JOIN changed ON true
 WHERE
       -- include: none_missed_of_available
 ORDER BY changed.sequence_number;

-- name: receive_deferred_from_session
-- As receive_deferred, of a session that is held (SB-120): the numbers are all its own, or none is found. Always a row while it
-- is held.
WITH
-- include: entity
,
-- include: salt
,
-- include: session_held
,
owned AS MATERIALIZED (
    SELECT found.*
      FROM session AS s
     CROSS JOIN (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_DEFERRED
              AND m.sequence_number = t.number
              AND m.session_id = s.session_id
              AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
              AND
                  -- include: takes_receivers
              FOR UPDATE) AS found),
-- include: failed
,
-- include: buried
,
-- include: received_deferred
,
-- include: touched_by_receive
SELECT e.default_message_time_to_live, locked.*
  FROM session AS s CROSS JOIN entity AS e LEFT JOIN locked ON true
 WHERE
       -- include: none_missed_of_deferred
 ORDER BY locked.sequence_number;

-- name: take_session
-- Statement 1 of 2 in one transaction, before renew_session, close_session and advance_session: the session's row, while this
-- token holds it. Statement 2 then has a new snapshot: it sees all that was received, and sent, by those who had the row. As one
-- statement it would have waited for them and still not know their messages.
WITH
-- include: entity
,
-- include: session_held
SELECT session_id FROM session;

-- fragment: held_by_session
-- What was received through `session` and is not settled, in number order: all such locks end with the session's, and the
-- deadlines that were written with them say where to look.
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
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = h.state
              AND m.sequence_number = h.sequence_number
              AND m.locked_until > (SELECT now FROM entity) FOR UPDATE) AS found)

-- name: renew_session
-- The session's lock and those of its messages end lock_duration from now (SB-116).
WITH
-- include: entity
,
-- include: session_held
,
-- include: held_by_session
,
-- include: renewed
,
kept AS (UPDATE vitrine_session SET locked_until = (SELECT now + lock_duration FROM entity)
          WHERE ctid = ANY (ARRAY(SELECT tid FROM session)))
SELECT s.session_id, e.now + e.lock_duration AS locked_until, e.lock_duration FROM session AS s CROSS JOIN entity AS e
 WHERE
       -- include: none_missed
;

-- fragment: first_present
-- The lowest number present in each `session`; NULL: it has no active message.
present AS MATERIALIZED (
    SELECT s.tid, (SELECT m.sequence_number FROM vitrine_message AS m
                    WHERE m.entity_id + 0 = s.entity_id AND m.session_id = s.session_id AND m.subqueue = @SUBQUEUE_MAIN
                      AND m.state = @STATE_ACTIVE
                      AND m.sequence_number >= s.first_number
                    ORDER BY m.sequence_number LIMIT 1) AS first_number
      FROM session AS s)

-- fragment: let_go
-- Nobody holds these sessions from now on; what has neither an active message nor a state is there no more (SB-111).
-- include: first_present
,
forgotten AS (DELETE FROM vitrine_session AS s USING present AS p
               WHERE s.ctid = p.tid AND p.first_number IS NULL AND s.state IS NULL),
kept AS (
    UPDATE vitrine_session AS s SET first_number = p.first_number, locked_until = NULL, lock_token = NULL, locked_by = NULL
      FROM present AS p WHERE s.ctid = p.tid AND (p.first_number IS NOT NULL OR s.state IS NOT NULL))

-- name: close_session
-- Let the session go, and with it what was received through it and not settled; no failed delivery is counted (SB-092, SB-118).
WITH
-- include: entity
,
-- include: session_held
,
-- include: held_by_session
,
-- include: released
,
-- include: let_go
SELECT session_id,
       -- include: waiting
  FROM session
 WHERE
       -- include: none_missed
;

-- name: advance_session
-- After take_session: raise the bound of a session that is held, so that its receives skip what is gone.
WITH
-- include: entity
,
-- include: session_held
,
-- include: first_present
UPDATE vitrine_session AS s SET first_number = p.first_number
  FROM present AS p WHERE s.ctid = p.tid AND s.first_number IS DISTINCT FROM p.first_number;

-- name: get_session_state
-- No row: this token holds the session no more (SB-119).
WITH
-- include: entity
SELECT s.state AS session_state FROM vitrine_session AS s
 WHERE s.entity_id = %(entity_id)s AND s.session_id = %(session_id)s AND s.lock_token = %(session_token)s
   AND s.locked_until > (SELECT now FROM entity);

-- name: set_session_state
-- Only the holder writes the state (SB-119).
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
-- As peek, the messages of one session (SB-145); nobody has to hold it.
WITH
-- include: entity
,
-- include: touched_by_send
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
-- End the locks of all sessions of an entity now. Before those of its messages: then no receive is under way that could lock
-- more.
WITH
-- include: entity
,
held AS MATERIALIZED (
    SELECT s.session_id FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND s.locked_until > (SELECT now FROM entity) ORDER BY s.session_id FOR UPDATE),
ended AS (
    UPDATE vitrine_session AS s SET locked_until = NULL, lock_token = NULL, locked_by = NULL
      FROM held AS h WHERE s.entity_id = %(entity_id)s AND s.session_id = h.session_id RETURNING 1)
SELECT count(*) AS done FROM ended;

-- name: expire_sessions
-- Take away up to max_count messages of sessions whose life is over, but those that somebody holds (SB-037). Of each session the
-- message that decides it goes last: what a batch leaves behind is no younger for it. Sessions that live by the entity's default
-- are walked in the order of their first numbers, from a number on; last_number: how far this call looked, NULL when all that
-- follow are younger.
WITH
-- include: entity
,
own AS MATERIALIZED (
    SELECT DISTINCT m.session_id
      FROM (SELECT m.session_id FROM vitrine_message AS m
             WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
               AND m.expires_at <= (SELECT now FROM entity)
               AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
             ORDER BY m.expires_at LIMIT %(max_count)s) AS m),
walked AS MATERIALIZED (
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
over AS MATERIALIZED (
    SELECT o.session_id, coalesce(own_.sequence_number, w.sequence_number) AS decider,
           coalesce((SELECT first_number FROM vitrine_session WHERE entity_id = %(entity_id)s AND session_id = o.session_id),
                    1) AS first_number
      FROM (SELECT session_id FROM own UNION SELECT session_id FROM walked WHERE expired) AS o
      LEFT JOIN walked AS w ON w.session_id = o.session_id AND w.expired
      LEFT JOIN LATERAL (
           SELECT m.sequence_number FROM vitrine_message AS m
            WHERE m.entity_id + 0 = %(entity_id)s AND m.session_id = o.session_id AND m.subqueue = @SUBQUEUE_MAIN
              AND m.state = @STATE_ACTIVE
              AND m.expires_at <= (SELECT now FROM entity)
              AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
            ORDER BY m.expires_at LIMIT 1) AS own_ ON true),
found AS MATERIALIZED (
    SELECT x.sequence_number
      FROM over AS o
     CROSS JOIN LATERAL (
           (SELECT false AS is_last, m.sequence_number FROM vitrine_message AS m
             WHERE m.entity_id + 0 = %(entity_id)s AND m.session_id = o.session_id AND m.subqueue = @SUBQUEUE_MAIN
               AND m.state = @STATE_ACTIVE
               AND m.sequence_number >= o.first_number AND m.sequence_number <> o.decider
               AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
             ORDER BY m.sequence_number LIMIT %(max_count)s)
           UNION ALL
           SELECT true, o.decider) AS x
     ORDER BY o.session_id, x.is_last, x.sequence_number LIMIT %(max_count)s),
owned AS MATERIALIZED (
    SELECT m.*
      FROM (SELECT * FROM found ORDER BY sequence_number) AS f
     CROSS JOIN LATERAL (
           SELECT
                  -- include: candidate
             FROM vitrine_message AS m
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = @SUBQUEUE_MAIN AND m.state = @STATE_ACTIVE
              AND m.sequence_number = f.sequence_number
              AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity)) FOR UPDATE) AS m),
-- include: expired_tail
SELECT (SELECT count(*) FROM owned) AS done, ARRAY(SELECT session_id FROM over ORDER BY session_id) AS session_ids,
       CASE WHEN (SELECT count(*) FROM walked) = %(max_count)s
             AND NOT (SELECT coalesce(bool_or(NOT expired AND sequence_number <= (SELECT max(first_number) FROM walked)), false)
                        FROM walked)
            THEN (SELECT max(first_number) FROM walked) END AS last_number
 WHERE
       -- include: none_missed_of_failed
;

-- name: session_entities
-- Entities that require sessions, for the sweep that forgets some.
SELECT id AS entity_id FROM vitrine_entity_now WHERE requires_session ORDER BY id;

-- name: take_idle_sessions
-- Statement 1 of 2 in one transaction: of the next max_count sessions by id those that nobody holds and whose row is not what it
-- would be had they been closed. last: how far this call looked; NULL: to the end.
WITH
-- include: entity
,
walked AS MATERIALIZED (
    SELECT s.* FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND (%(after)s::text IS NULL OR s.session_id > %(after)s)
     ORDER BY s.session_id LIMIT %(max_count)s),
stale AS MATERIALIZED (
    SELECT s.session_id
      FROM walked AS s
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
       CASE WHEN (SELECT count(*) FROM walked) = %(max_count)s THEN (SELECT max(session_id) FROM walked) END AS last;

-- name: take_free_sessions
-- As take_idle_sessions, of these sessions all that nobody holds.
WITH
-- include: entity
SELECT s.session_id
  FROM (SELECT id FROM unnest(%(session_ids)b::text[]) AS t(id) ORDER BY id) AS t
 CROSS JOIN LATERAL (
       SELECT s.session_id FROM vitrine_session AS s
        WHERE s.entity_id = %(entity_id)s AND s.session_id = t.id
          AND (s.locked_until IS NULL OR s.locked_until <= (SELECT now FROM entity)) FOR UPDATE SKIP LOCKED) AS s;

-- name: settle_sessions
-- Statement 2 of 2: as if they had been closed.
WITH session AS MATERIALIZED (
    SELECT s.ctid AS tid, s.entity_id, s.session_id, s.first_number FROM vitrine_session AS s
     WHERE s.entity_id = %(entity_id)s AND s.session_id = ANY (%(session_ids)b::text[])),
-- include: let_go
SELECT count(*) AS done FROM present;
