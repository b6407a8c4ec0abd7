-- Operations on many messages, and the messages that they hide until they can no longer be undone (docs/design.md D18).

-- name: operation_number
-- A number for a new operation, unique among all databases: it is always taken from the default one.
SELECT nextval('vitrine_operation_number') AS id;

-- name: operation_entity
-- What an operation needs to know of its entity: the highest number assigned so far, the size of a message at most, and the
-- namespace's time.
SELECT e.id, e.path, e.family, e.namespace_name, e.now, e.max_message_size_in_kilobytes * 1024 AS largest,
       c.next_number - 1 AS highest_number
  FROM vitrine_entity_now AS e JOIN vitrine_entity_counter AS c ON c.entity_id = e.id WHERE e.id = %(entity_id)s;

-- name: operation_create
-- Record a requested operation.
INSERT INTO vitrine_operation (id, kind, actor, family, namespace, path, entity_id, selection, options, counted, pace, state,
                               done, skipped, failed, reasons, listed, position, undone, undo_position, requested_at, claimed_by,
                               message)
VALUES (%(id)s, %(kind)s, %(actor)s, %(family)s, %(namespace)s, %(path)s, %(entity_id)s, %(selection)s::jsonb, %(options)s::jsonb,
        %(counted)s::bigint, %(pace)s::float8, 'queued', 0, 0, 0, '{}', '[]', 0, 0, 0, clock_timestamp(), '', '')
RETURNING *;

-- name: operation_of_deletion
-- Record the deletion of an entity, in its transaction, as an operation that is done and can be undone for `keep`.
INSERT INTO vitrine_operation (id, kind, actor, family, namespace, path, entity_id, selection, options, counted, state, done,
                               skipped, failed, reasons, listed, position, undone, undo_position, requested_at, started_at,
                               finished_at, kept_until, claimed_by, message)
VALUES (%(id)s, 'delete', %(actor)s, %(family)s, %(namespace)s, %(path)s, %(entity_id)s, %(selection)s::jsonb,
        %(options)s::jsonb, %(messages)s::bigint, 'done', %(messages)s::bigint, 0, 0, '{}', '[]', 0, 0, 0, clock_timestamp(),
        clock_timestamp(), clock_timestamp(), clock_timestamp() + %(keep)s::interval, '', '');

-- name: operation_restored
-- Record that a deletion was undone.
UPDATE vitrine_operation SET state = 'undone', undone = done WHERE id = %(id)s AND kind = 'delete' AND state = 'done'
RETURNING *;

-- name: operation_claim
-- Claim an operation that is queued, or whose worker has died, for `lease`. No row: it is not to be run, or runs elsewhere.
UPDATE vitrine_operation
   SET claimed_by = %(claim)s, lease_until = clock_timestamp() + %(lease)s::interval,
       state = CASE state WHEN 'queued' THEN 'running' ELSE state END, started_at = coalesce(started_at, clock_timestamp())
 WHERE id = %(id)s AND state IN ('queued', 'running', 'undoing') AND (lease_until IS NULL OR lease_until <= clock_timestamp())
RETURNING *;

-- name: operation_hold
-- Whether this worker still runs the operation in this state, and keep it so until the transaction ends.
SELECT pace FROM vitrine_operation WHERE id = %(id)s AND claimed_by = %(claim)s AND state = %(state)s FOR UPDATE;

-- name: operation_progress
-- Write the progress of a batch, in the batch's transaction.
UPDATE vitrine_operation
   SET done = %(done)s, skipped = %(skipped)s, failed = %(failed)s, reasons = %(reasons)s::jsonb, listed = %(listed)s::jsonb,
       position = %(position)s, undone = %(undone)s, undo_position = %(undo_position)s,
       lease_until = clock_timestamp() + %(lease)s::interval
 WHERE id = %(id)s;

-- name: operation_end
-- End a run, or give it back to be continued ('running', 'undoing'). The end of an undo is not that of the operation.
-- keep: for how long it can be undone; NULL: as before.
UPDATE vitrine_operation
   SET state = %(to)s, message = %(message)s, claimed_by = '', lease_until = NULL,
       finished_at = CASE WHEN %(to)s IN ('running', 'undoing') OR (state = 'undoing' AND finished_at IS NOT NULL)
                          THEN finished_at ELSE clock_timestamp() END,
       kept_until = coalesce(clock_timestamp() + %(keep)s::interval, kept_until)
 WHERE id = %(id)s AND claimed_by = %(claim)s AND state = %(state)s
RETURNING *;

-- name: operation_change
-- Change the state on request. A running worker notices with its next batch, which is then rolled back. What an operation
-- removed, and its file, is kept without a limit until it ends again. while_kept: only while it is kept.
UPDATE vitrine_operation
   SET state = %(to)s, claimed_by = '', lease_until = NULL,
       finished_at = CASE WHEN %(to)s = 'stopped' THEN clock_timestamp() ELSE finished_at END,
       kept_until = CASE %(to)s WHEN 'stopped' THEN clock_timestamp() + %(keep)s::interval WHEN 'queued' THEN NULL
                                ELSE kept_until END
 WHERE id = %(id)s AND state = ANY (%(of)s::text[])
   AND (NOT %(while_kept)s::boolean OR kept_until IS NULL OR kept_until > clock_timestamp())
RETURNING *;

-- name: operation_set_pace
-- Change the pace of an operation that is not over.
UPDATE vitrine_operation SET pace = %(pace)s::float8 WHERE id = %(id)s AND state IN ('queued', 'running', 'paused') RETURNING *;

-- fragment: operation_as_read
-- An operation, and whether its entity still exists: with an entity, what was hidden of it is deleted. The row of a deleted
-- entity is removed in the end.
SELECT o.*, clock_timestamp() AS read_at, e.id IS NULL OR e.deleted_at IS NOT NULL AS entity_is_deleted,
       e.deleted_at AS entity_deleted_at
  FROM vitrine_operation AS o LEFT JOIN vitrine_entity AS e ON e.id = o.entity_id

-- name: operation
-- One operation.
-- include: operation_as_read
 WHERE o.id = %(id)s;

-- name: operations
-- The newest operations: of one state or not over, of one kind, in a namespace, of entities whose address has all parts, by
-- people whose name has a part, or only of those that can be undone. namespace, by, parts, except_namespaces: in lower case.
-- include: operation_as_read
 WHERE (%(kind)s::text IS NULL OR o.kind = %(kind)s)
   AND (%(state)s::text IS NULL OR o.state = %(state)s)
   AND (%(namespace)s::text IS NULL OR lower(o.namespace) = %(namespace)s)
   AND (%(by)s = '' OR strpos(lower(o.actor), %(by)s) > 0)
   AND NOT EXISTS (SELECT FROM unnest(%(parts)s::text[]) AS p (part)
                    WHERE strpos(lower(o.namespace || '/' || o.path), p.part) = 0)
   AND (NOT %(undoable)s::boolean OR (o.state IN ('done', 'stopped', 'failed')
                                      AND (o.kept_until IS NULL OR o.kept_until > clock_timestamp())
                                      AND CASE o.kind WHEN 'delete' THEN e.deleted_at IS NOT NULL
                                               ELSE o.done > 0 AND o.kind NOT IN ('release', 'export')
                                                    AND e.id IS NOT NULL AND e.deleted_at IS NULL END))
   AND (NOT %(open_only)s::boolean OR o.state IN ('queued', 'running', 'paused', 'undoing'))
   AND lower(o.namespace) <> ALL (%(except_namespaces)s::text[])
   AND o.id < %(below)s AND (%(entity_id)s::bigint IS NULL OR o.entity_id = %(entity_id)s)
 ORDER BY o.id DESC LIMIT %(max_count)s;

-- name: operations_due
-- Operations that wait for a worker, or whose worker has died.
SELECT id FROM vitrine_operation
 WHERE state IN ('queued', 'running', 'undoing') AND (lease_until IS NULL OR lease_until <= clock_timestamp()) ORDER BY id;

-- fragment: is_free
-- Nobody holds the message: no lock, no connection, no lease, no delay.
((m.locked_until IS NULL OR m.locked_until <= e.now) AND m.owner_id IS NULL AND (m.hold_kind IS NULL OR m.visible_at <= e.now))

-- fragment: operated_entity
entity AS MATERIALIZED (SELECT id, family, now, history_level, requires_session FROM vitrine_entity_now WHERE id = %(entity_id)s)

-- name: hide
-- Move these messages of one list out of the entity, to where only an undo finds them. Locked messages stay, unless
-- `include_locked`. A message that is in no row of the result was not in the list. Hiding scheduled messages is activity, as
-- cancelling them is (SB-918).
WITH
-- include: operated_entity
,
chosen AS MATERIALIZED (
    SELECT found.*
      FROM (SELECT DISTINCT number FROM unnest(%(numbers)b::bigint[]) AS t(number) ORDER BY number) AS t
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid, m.sequence_number, m.locked_by,
                  %(include_locked)s::boolean OR
                  -- include: is_free
                  AS free
             FROM vitrine_message AS m CROSS JOIN entity AS e
            WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint AND m.state = ANY (%(states)s::smallint[])
              AND m.sequence_number = t.number FOR UPDATE OF m) AS found),
gone AS (DELETE FROM vitrine_message AS m USING chosen AS c WHERE m.ctid = c.tid AND c.free RETURNING m.*),
hidden AS (
    INSERT INTO vitrine_hidden_message SELECT %(operation_id)s::bigint, clock_timestamp(), NULL::jsonb, g.* FROM gone AS g),
-- kept from: gone AS k
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id, session_id, reason, details)
    SELECT e.now, %(entity_id)s, %(subqueue)s, %(actor)s, @EVENT_PURGED, g.sequence_number, g.delivery_count,
           g.enqueued_at, g.first_received_at, g.last_received_at, g.message_id, g.session_id, %(reason)s::text,
           jsonb_build_object('operation', %(operation_id)s::bigint)
      FROM gone AS g, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, state, NULL::timestamptz, -count(*), -sum(size), @OP_PURGED::smallint
      FROM gone GROUP BY state
    UNION ALL
    SELECT %(entity_id)s, %(subqueue)s, hold_kind, visible_at, -count(*), 0, NULL FROM gone, entity AS e
     WHERE hold_kind IS NOT NULL AND visible_at > e.now GROUP BY hold_kind, visible_at),
-- include: touched_by_cancel
SELECT sequence_number, free, locked_by FROM chosen
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM gone) = (SELECT count(*) FROM chosen WHERE free) THEN true
                    ELSE vitrine_try_again() END)
 ORDER BY sequence_number;

-- name: keep_originals
-- Keep copies of messages that this transaction is about to resubmit or move, so that it can be undone.
INSERT INTO vitrine_hidden_message
SELECT %(operation_id)s::bigint, clock_timestamp(), NULL::jsonb, m.*
  FROM vitrine_message AS m
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint AND m.state = ANY (%(states)s::smallint[])
   AND m.sequence_number = ANY (%(numbers)b::bigint[]);

-- name: keep_copies
-- Record where kept messages went, [[entity, number], ...], and forget those that went nowhere: they are still in their list.
WITH went AS (SELECT t.number, t.copies::jsonb FROM unnest(%(went)b::bigint[], %(copies)b::text[]) AS t(number, copies)),
recorded AS (
    UPDATE vitrine_hidden_message AS h SET copies = w.copies
      FROM went AS w WHERE h.operation_id = %(operation_id)s AND h.sequence_number = w.number)
DELETE FROM vitrine_hidden_message AS h
 WHERE h.operation_id = %(operation_id)s AND h.sequence_number = ANY (%(numbers)b::bigint[])
   AND h.sequence_number NOT IN (SELECT number FROM went);

-- name: operation_bodies
-- The bodies of these messages of one list, as far as nobody holds them, locked.
WITH
-- include: operated_entity
SELECT m.sequence_number, m.body, m.body_kind, m.size - octet_length(m.body) AS beside_body
  FROM vitrine_message AS m CROSS JOIN entity AS e
 WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint AND m.state = ANY (%(states)s::smallint[])
   AND m.sequence_number = ANY (%(numbers)b::bigint[]) AND
       -- include: is_free
 ORDER BY m.sequence_number FOR UPDATE OF m;

-- name: operation_set_bodies
-- Replace the bodies of messages that this transaction has locked.
WITH changed AS (
    UPDATE vitrine_message AS m
       SET body = t.body, size = m.size - octet_length(m.body) + octet_length(t.body)
      FROM unnest(%(numbers)b::bigint[], %(bodies)b::bytea[]) AS t(number, body)
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint AND m.state = ANY (%(states)s::smallint[])
       AND m.sequence_number = t.number
 RETURNING m.state, m.size),
old AS (
    SELECT state, sum(size) AS size FROM vitrine_message
     WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s::smallint AND state = ANY (%(states)s::smallint[])
       AND sequence_number = ANY (%(numbers)b::bigint[])
     GROUP BY state)
INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes)
SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, o.state, 0,
       (SELECT sum(c.size) FROM changed AS c WHERE c.state = o.state) - o.size
  FROM old AS o;

-- name: operation_repaired
-- Record in the events that this transaction wrote of these messages that an operation repaired their bodies.
UPDATE vitrine_message_event
   SET details = coalesce(details, '{}') || jsonb_build_object('repaired_by', %(operation_id)s::bigint)
 WHERE xid = pg_current_xact_id() AND entity_id = %(entity_id)s AND subqueue = %(subqueue)s::smallint
   AND sequence_number = ANY (%(numbers)b::bigint[]);

-- name: operation_reset_bodies
-- Give messages that were not moved the bodies that they had.
WITH kept AS (
    SELECT h.sequence_number, h.body, h.size FROM vitrine_hidden_message AS h
     WHERE h.operation_id = %(operation_id)s AND h.sequence_number = ANY (%(numbers)b::bigint[])),
old AS (
    SELECT m.state, sum(k.size - m.size) AS size
      FROM vitrine_message AS m JOIN kept AS k ON k.sequence_number = m.sequence_number
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint AND m.state = ANY (%(states)s::smallint[])
     GROUP BY m.state),
changed AS (
    UPDATE vitrine_message AS m SET body = k.body, size = k.size
      FROM kept AS k
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s::smallint AND m.state = ANY (%(states)s::smallint[])
       AND m.sequence_number = k.sequence_number)
INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes)
SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, state, 0, size FROM old;

-- name: hidden
-- The next hidden messages of an operation, locked.
SELECT sequence_number, entity_id, copies FROM vitrine_hidden_message
 WHERE operation_id = %(operation_id)s AND sequence_number > %(after)s
 ORDER BY sequence_number LIMIT %(max_count)s FOR UPDATE;

-- name: withdraw
-- Remove the copies of moved messages, all copies of a message or none: where one was taken or is held, the others stay.
-- Returns the numbers of the originals whose copies were removed.
WITH wanted AS MATERIALIZED (
    SELECT t.original, t.entity_id, t.number
      FROM unnest(%(originals)b::bigint[], %(entity_ids)b::bigint[], %(numbers)b::bigint[]) AS t(original, entity_id, number)
     ORDER BY t.entity_id, t.number),
present AS MATERIALIZED (
    SELECT w.original, found.*
      FROM wanted AS w
     CROSS JOIN LATERAL (
           SELECT m.ctid AS tid FROM vitrine_message AS m JOIN vitrine_entity_now AS e ON e.id = m.entity_id
            WHERE m.entity_id = w.entity_id AND m.subqueue = @SUBQUEUE_MAIN
              AND m.state = ANY ('{@STATE_ACTIVE,@STATE_SCHEDULED}') AND m.sequence_number = w.number AND
                  -- include: is_free
              FOR UPDATE OF m SKIP LOCKED) AS found),
whole AS MATERIALIZED (
    SELECT original FROM wanted GROUP BY original
    HAVING count(*) = (SELECT count(*) FROM present AS p WHERE p.original = wanted.original)),
gone AS (
    DELETE FROM vitrine_message AS m USING present AS p
     WHERE m.ctid = p.tid AND p.original IN (SELECT original FROM whole) RETURNING m.*),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id, session_id, reason, details)
    SELECT e.now, g.entity_id, g.subqueue, %(actor)s, @EVENT_PURGED, g.sequence_number, g.delivery_count,
           g.enqueued_at, g.first_received_at, g.last_received_at, g.message_id, g.session_id, 'undone',
           jsonb_build_object('operation', %(operation_id)s::bigint)
      FROM gone AS g JOIN vitrine_entity_now AS e ON e.id = g.entity_id WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT entity_id, subqueue, state, -count(*), -sum(size), @OP_PURGED FROM gone GROUP BY 1, 2, 3),
touched AS (  -- to take scheduled ones away is activity, as in `hide`
    UPDATE vitrine_entity_activity AS a SET last_activity_at = greatest(a.last_activity_at, e.now), last_use = @USE_CANCEL
      FROM vitrine_entity_now AS e
     WHERE a.entity_id = e.id
       AND a.ctid = ANY (ARRAY(SELECT ctid FROM vitrine_entity_activity
                                WHERE entity_id IN (SELECT entity_id FROM gone WHERE state = @STATE_SCHEDULED)
                                  FOR UPDATE SKIP LOCKED)))
SELECT original FROM whole
 WHERE (SELECT CASE WHEN (SELECT count(*) FROM gone) = (SELECT count(*) FROM present JOIN whole USING (original))
                    THEN true ELSE vitrine_try_again() END)
 ORDER BY original;

-- name: restore
-- Return hidden messages to their list, with their numbers and all that they had. Their numbers may lie below the bounds of the
-- list, which are lowered. Counts as a send (SB-190). Without an entity nothing happens.
WITH
-- include: operated_entity
,
taken AS (
    DELETE FROM vitrine_hidden_message AS h USING entity AS e
     WHERE h.operation_id = %(operation_id)s AND h.entity_id = e.id AND h.sequence_number = ANY (%(numbers)b::bigint[])
 RETURNING h.*),
stored AS (
    INSERT INTO vitrine_message (
           entity_id, subqueue, state, sequence_number, delivery_count, size, body_kind, enqueued_at, expires_at, time_to_live,
           scheduled_enqueue_at, locked_until, lock_token, locked_by, first_received_at, last_received_at, message_id, session_id,
           properties, application_properties, encoded, dead_letter_reason, dead_letter_description, dead_letter_source,
           dead_lettered_at, enqueued_sequence_number, resubmitted_from, body, transfer, visible_at, hold_kind, held_since,
           renewals, owner_id, consumer_id, priority, ready_priority, deliveries_before)
    SELECT entity_id, subqueue, state, sequence_number, delivery_count, size, body_kind, enqueued_at, expires_at, time_to_live,
           scheduled_enqueue_at, locked_until, lock_token, locked_by, first_received_at, last_received_at, message_id, session_id,
           properties, application_properties, encoded, dead_letter_reason, dead_letter_description, dead_letter_source,
           dead_lettered_at, enqueued_sequence_number, resubmitted_from, body, transfer, visible_at, hold_kind, held_since,
           renewals, owner_id, consumer_id, priority, ready_priority, deliveries_before
      FROM taken
 RETURNING *),
lowered AS (
    UPDATE vitrine_queue_head AS h
       SET head = least(h.head, s.first), locked_below = least(h.locked_below, s.first),
           visible_from = least(h.visible_from, s.visible_at)
      FROM (SELECT subqueue, min(sequence_number) AS first, min(visible_at) AS visible_at FROM stored
             WHERE state = @STATE_ACTIVE GROUP BY subqueue) AS s
     WHERE h.entity_id = %(entity_id)s AND h.subqueue = s.subqueue),
sessions AS (
    INSERT INTO vitrine_session AS s (entity_id, session_id, first_number)
    SELECT o.entity_id, o.session_id, min(o.sequence_number) FROM stored AS o, entity AS e
     WHERE e.requires_session AND o.state = @STATE_ACTIVE AND o.subqueue = @SUBQUEUE_MAIN AND o.session_id IS NOT NULL
     GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (entity_id, session_id) DO UPDATE SET first_number = least(s.first_number, excluded.first_number)),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count, size,
                                       enqueued_at, first_received_at, last_received_at, message_id, session_id, details)
    SELECT e.now, s.entity_id, s.subqueue, %(actor)s, @EVENT_RESTORED, s.sequence_number, s.delivery_count, s.size,
           s.enqueued_at, s.first_received_at, s.last_received_at, s.message_id, s.session_id,
           jsonb_build_object('operation', %(operation_id)s::bigint)
      FROM stored AS s, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, until, n, bytes, op)
    SELECT entity_id, subqueue, state, NULL::timestamptz, count(*), sum(size), @OP_RESTORED::smallint FROM stored GROUP BY 1, 2, 3
    UNION ALL
    SELECT entity_id, subqueue, hold_kind, visible_at, count(*), 0, NULL FROM stored, entity AS e
     WHERE hold_kind IS NOT NULL AND visible_at > e.now GROUP BY 1, 2, 3, 4),
touched AS (  -- to get a message is no use of a queue of RabbitMQ (RMQ-041)
    UPDATE vitrine_entity_activity SET last_activity_at = (SELECT now FROM entity), last_use = @USE_RESTORE
     WHERE
           -- include: unless_touched
       AND (SELECT family FROM entity) <> 'rabbitmq')
SELECT (SELECT count(*) FROM stored) AS done, (SELECT count(*) FROM entity) > 0 AS is_present,
       -- include: waiting
;

-- name: import_store
-- Store the lines of a file that an operation imports.
INSERT INTO vitrine_import_line (operation_id, line, content)
SELECT %(operation_id)s::bigint, t.line, t.content
  FROM unnest(%(lines)b::bigint[], %(contents)b::text[]) AS t(line, content);

-- name: import_next
-- The numbers of the next lines of an import.
SELECT line FROM vitrine_import_line WHERE operation_id = %(operation_id)s AND line > %(after)s ORDER BY line LIMIT %(max_count)s;

-- name: import_lines
-- These lines of an import, as far as they were not sent.
SELECT line, content FROM vitrine_import_line
 WHERE operation_id = %(operation_id)s AND line = ANY (%(lines)b::bigint[]) AND copies IS NULL ORDER BY line;

-- name: import_sent
-- Record where the messages of these lines are, [[entity, number], ...], and forget the lines.
UPDATE vitrine_import_line AS i SET copies = w.copies::jsonb, content = ''
  FROM unnest(%(lines)b::bigint[], %(copies)b::text[]) AS w(line, copies)
 WHERE i.operation_id = %(operation_id)s AND i.line = w.line;

-- name: import_copies
-- Where the next messages of an import are.
SELECT line, copies FROM vitrine_import_line
 WHERE operation_id = %(operation_id)s AND line > %(after)s AND copies IS NOT NULL ORDER BY line LIMIT %(max_count)s;

-- name: export_store
-- Store the next part of the file of an export. Returns how many bytes the file has then.
INSERT INTO vitrine_export_part (operation_id, last_number, content, bytes)
VALUES (%(operation_id)s, %(last_number)s, %(content)s, octet_length(%(content)s::text) + coalesce(
        (SELECT bytes FROM vitrine_export_part WHERE operation_id = %(operation_id)s ORDER BY last_number DESC LIMIT 1), 0))
RETURNING bytes;

-- name: export_part
-- The next part of the file of an export.
SELECT last_number, content FROM vitrine_export_part
 WHERE operation_id = %(operation_id)s AND last_number > %(after)s ORDER BY last_number LIMIT 1;

-- fragment: no_longer_kept
-- The operation is over, and the time is past for which what it removed, or its file, is kept.
o.kept_until <= clock_timestamp() AND o.state IN ('done', 'stopped', 'failed', 'undone')

-- name: purge_hidden
-- Delete up to max_count hidden messages of operations that can no longer be undone, and as many records of imported messages and
-- parts of exported files. The operations are locked, so that none is resumed or undone meanwhile.
WITH gone AS (
    DELETE FROM vitrine_hidden_message
     WHERE ctid = ANY (ARRAY(
           SELECT h.ctid FROM vitrine_operation AS o JOIN vitrine_hidden_message AS h ON h.operation_id = o.id
            WHERE
                  -- include: no_longer_kept
            LIMIT %(max_count)s FOR UPDATE SKIP LOCKED))
 RETURNING 1),
imported AS (
    DELETE FROM vitrine_import_line
     WHERE ctid = ANY (ARRAY(
           SELECT i.ctid FROM vitrine_operation AS o JOIN vitrine_import_line AS i ON i.operation_id = o.id
            WHERE i.copies IS NOT NULL AND
                  -- include: no_longer_kept
            LIMIT %(max_count)s FOR UPDATE SKIP LOCKED))),
exported AS (
    DELETE FROM vitrine_export_part
     WHERE ctid = ANY (ARRAY(
           SELECT p.ctid FROM vitrine_operation AS o JOIN vitrine_export_part AS p ON p.operation_id = o.id
            WHERE
                  -- include: no_longer_kept
            LIMIT %(max_count)s FOR UPDATE SKIP LOCKED)))
SELECT count(*) AS done FROM gone;

-- name: forget_operations
-- Delete the records of operations that ended before the retention of the history, and of which nothing can be restored.
WITH gone AS (
    DELETE FROM vitrine_operation
     WHERE id = ANY (ARRAY(
           SELECT o.id FROM vitrine_operation AS o
            WHERE o.state IN ('done', 'stopped', 'failed', 'undone')
              AND o.finished_at < clock_timestamp() - %(retention)s::interval
              AND NOT EXISTS (SELECT FROM vitrine_hidden_message AS h WHERE h.operation_id = o.id)
            LIMIT %(max_count)s FOR UPDATE SKIP LOCKED))
 RETURNING id),
imported AS (DELETE FROM vitrine_import_line AS i USING gone WHERE i.operation_id = gone.id),
exported AS (DELETE FROM vitrine_export_part AS p USING gone WHERE p.operation_id = gone.id)
SELECT count(*) AS done FROM gone;
