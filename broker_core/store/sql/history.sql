-- The archive's manifest, the events to archive, and the partitions of the event table.

-- name: history_try_lock
-- One archiver at a time; the lock is held until this connection closes.
SELECT pg_try_advisory_lock(hashtextextended('vitrine_archive', 0)) AS locked;

-- name: history_unlock
-- Release the archiver's lock.
SELECT pg_advisory_unlock(hashtextextended('vitrine_archive', 0)) AS unlocked;

-- name: history_cluster
-- The cluster, and the transaction id below which every transaction has been committed or rolled back.
SELECT c.system_identifier,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon
  FROM pg_control_system() AS c;

-- name: history_epoch
-- The newest epoch of a cluster, and the end of its last slice.
SELECT e.id, e.system_identifier, coalesce(last.to_xid, e.from_xid) AS archived_to, last.opened_at
  FROM vitrine_archive_epoch AS e
  LEFT JOIN LATERAL (
       SELECT s.to_xid, s.opened_at FROM vitrine_archive_slice AS s
        WHERE s.epoch_id = e.id AND s.state = 'done' ORDER BY s.to_xid DESC LIMIT 1) AS last ON true
 WHERE e.system_identifier <> 0
 ORDER BY e.id DESC LIMIT 1;

-- name: history_begin_epoch
-- Begin the epoch of this cluster at a transaction id.
INSERT INTO vitrine_archive_epoch (system_identifier, from_xid, began_at)
VALUES (%(system_identifier)s, %(from_xid)s, clock_timestamp());

-- name: history_lock_events
-- Block writers, but not readers, until the transaction ends.
LOCK TABLE vitrine_message_event IN SHARE ROW EXCLUSIVE MODE;

-- name: history_forget_open_slice
-- Delete an open slice whose bounds are another cluster's.
DELETE FROM vitrine_archive_slice WHERE state = 'open';

-- name: history_renumber_events
-- After a move to another cluster, replace the old cluster's transaction ids: 0 for archived events, this transaction's id for
-- the others. An event is archived if its id is below the last slice's end and it was recorded before that slice was opened.
UPDATE vitrine_message_event
   SET xid = CASE WHEN xid < %(archived_to)s::text::xid8 AND recorded_at <= %(opened_at)s::timestamptz THEN '0'::xid8
                  ELSE pg_current_xact_id() END;

-- name: history_current_xid
-- The id of this transaction.
SELECT pg_current_xact_id()::text::bigint AS xid;

-- name: history_open_slice
-- The slice that a killed archiver left.
SELECT id, from_xid, to_xid FROM vitrine_archive_slice WHERE state = 'open';

-- name: history_next_slice
-- Open a slice of about max_events from the end of the last one, not beyond the horizon. No row: there are no events. A
-- transaction with more events is a slice of its own.
WITH first AS (
    SELECT e.xid FROM vitrine_message_event AS e
     WHERE e.xid >= %(from_xid)s::text::xid8 AND e.xid < %(horizon)s::text::xid8
     ORDER BY e.xid LIMIT 1),
beyond AS (
    SELECT e.xid FROM vitrine_message_event AS e
     WHERE e.xid >= %(from_xid)s::text::xid8 AND e.xid < %(horizon)s::text::xid8
     ORDER BY e.xid OFFSET %(max_events)s LIMIT 1)
INSERT INTO vitrine_archive_slice (epoch_id, from_xid, to_xid, state, opened_at)
SELECT %(epoch_id)s, %(from_xid)s,
       CASE WHEN beyond.xid IS NULL THEN %(horizon)s
            WHEN beyond.xid > first.xid THEN beyond.xid::text::bigint
            ELSE first.xid::text::bigint + 1 END,
       'open', clock_timestamp()
  FROM first LEFT JOIN beyond ON true
RETURNING id, from_xid, to_xid;

-- name: history_slice_events
-- The events of a slice with their namespace; columns and types as in broker_core.history.schema.EVENT. The defaults in force
-- come from the revisions of the settings, by the database's time: the first one applies to what was before it, too.
WITH slice AS MATERIALIZED (
    SELECT e.*, n.namespace_id, n.topic_id
      FROM vitrine_message_event AS e LEFT JOIN vitrine_entity AS n ON n.id = e.entity_id
     WHERE e.xid >= %(from_xid)s::text::xid8 AND e.xid < %(to_xid)s::text::xid8),
configured AS MATERIALIZED (SELECT DISTINCT unnest(ARRAY[entity_id, topic_id]) AS id FROM slice),
revisions AS MATERIALIZED (
    SELECT r.entity_id, r.settings, CASE WHEN lag(r.id) OVER w IS NULL THEN '-infinity' ELSE r.at END AS since,
           lead(r.at, 1, 'infinity') OVER w AS until
      FROM configured AS c JOIN vitrine_entity_revision AS r ON r.entity_id = c.id
    WINDOW w AS (PARTITION BY r.entity_id ORDER BY r.id)
     UNION ALL
    SELECT x.id, to_jsonb(x), '-infinity', 'infinity'
      FROM configured AS c JOIN vitrine_entity AS x USING (id)
     WHERE NOT EXISTS (SELECT FROM vitrine_entity_revision AS r WHERE r.entity_id = x.id)),
defaults AS MATERIALIZED (
    SELECT v.entity_id, v.since, v.until,
           s.default_message_time_to_live IS NOT NULL AND s.effective ? 'message_ttl' AS limits_own,
           CASE WHEN t.time_to_live IS NOT NULL
                THEN least(extract(epoch FROM t.time_to_live) * 1000000, 9223372036854775807) END::bigint AS time_to_live_us
      FROM revisions AS v
     CROSS JOIN LATERAL jsonb_populate_record(NULL::vitrine_entity, v.settings) AS s
     CROSS JOIN LATERAL (SELECT coalesce(s.default_message_time_to_live,
                                         (s.effective ->> 'message_ttl')::bigint * interval '1 ms') AS time_to_live) AS t)
SELECT e.event_id, e.recorded_at, e.xid::text::bigint AS xid, e.at, e.entity_id, e.subqueue,
       e.sequence_number, e.kind, e.message_id, e.delivery_count, e.locked_until, e.actor, e.reason, e.enqueued_at,
       e.first_received_at, e.last_received_at, e.session_id, e.size,
       -- NULL where there is none: least() alone would return the other argument.
       CASE WHEN e.time_to_live IS NOT NULL
            THEN least(extract(epoch FROM e.time_to_live) * 1000000, 9223372036854775807) END::bigint AS time_to_live_us,
       e.properties::text AS properties, e.application_properties::text AS application_properties, e.details::text AS details,
       d.time_to_live_us AS entity_time_to_live_us, t.time_to_live_us AS topic_time_to_live_us,
       coalesce(d.limits_own, false) AS default_limits_own,
       k.link, CASE WHEN k.link IS NOT NULL THEN coalesce((o.other ->> 'entity')::bigint, (o.other ->> 'entity_id')::bigint,
                                                           e.entity_id) END AS linked_entity_id,
       CASE jsonb_typeof(o.other) WHEN 'number' THEN (o.other #>> '{}')::bigint
                                  WHEN 'object' THEN (o.other ->> 'sequence_number')::bigint END AS linked_sequence_number,
       coalesce(e.namespace_id, 0) AS namespace_id
  FROM slice AS e
  LEFT JOIN defaults AS d ON d.entity_id = e.entity_id AND e.recorded_at >= d.since AND e.recorded_at < d.until
  LEFT JOIN defaults AS t ON t.entity_id = e.topic_id AND e.recorded_at >= t.since AND e.recorded_at < t.until
 CROSS JOIN LATERAL (
       SELECT CASE WHEN e.details ? 'to' THEN 'to'
                   WHEN jsonb_typeof(e.details -> 'from') = 'number' THEN 'activated_from'
                   WHEN e.details ? 'from' THEN 'from'
                   WHEN e.details ? 'resubmitted_from' THEN 'resubmitted_from'
                   WHEN e.details ? 'published_from' THEN 'published_from' END AS link) AS k
 CROSS JOIN LATERAL (
       SELECT CASE jsonb_typeof(x.linked) WHEN 'array' THEN x.linked -> 0 ELSE x.linked END AS other
         FROM (SELECT e.details -> CASE k.link WHEN 'activated_from' THEN 'from' ELSE k.link END AS linked) AS x) AS o;

-- name: history_finish_slice
-- Mark a slice as done and record its files. No row: it was done already.
WITH finished AS (
    UPDATE vitrine_archive_slice SET state = 'done', done_at = clock_timestamp(), events = %(events)s
     WHERE id = %(slice_id)s AND state = 'open' RETURNING id)
INSERT INTO vitrine_archive_file (slice_id, slices, imported, content, day, namespace_id, path, rows, bytes, schema_version,
                                  checksum, first_at, last_at)
SELECT finished.id, '{}', false, f.*
  FROM finished, unnest(%(content)s::text[], %(day)s::date[], %(namespace_id)s::bigint[], %(path)s::text[],
                        %(rows)s::bigint[], %(bytes)s::bigint[], %(schema_version)s::smallint[], %(checksum)s::text[],
                        %(first_at)s::timestamptz[], %(last_at)s::timestamptz[]) AS f
RETURNING id;

-- name: history_events_in_slice
-- How many events of a slice the event table still has; its day partitions may have been dropped.
SELECT count(*) AS events FROM vitrine_message_event AS e
 WHERE e.xid >= %(from_xid)s::text::xid8 AND e.xid < %(to_xid)s::text::xid8;

-- name: history_slice_in_files
-- How many compacted files have rows of a slice.
SELECT count(*) AS files FROM vitrine_archive_file AS f WHERE f.slice_id IS NULL AND %(slice_id)s = ANY (f.slices);

-- name: history_reopen_slice
-- Remove a finished slice from the manifest, so that it is written again. Not for one of which a compacted file has rows.
WITH removed AS (DELETE FROM vitrine_archive_file WHERE slice_id = %(slice_id)s)
UPDATE vitrine_archive_slice SET state = 'open', done_at = NULL WHERE id = %(slice_id)s AND state = 'done'
RETURNING id, from_xid, to_xid;

-- name: history_snapshot
-- Transactions below xmin had ended, those from xmax on had not begun.
SELECT pg_snapshot_xmin(s)::text::bigint AS xmin, pg_snapshot_xmax(s)::text::bigint AS xmax FROM pg_current_snapshot() AS s;

-- name: history_horizon_holder
-- The oldest open transaction that has written; no later event can be archived until it ends.
SELECT a.pid, a.application_name, a.state, a.xact_start, clock_timestamp() - a.xact_start AS age
  FROM pg_stat_activity AS a
 WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid()
 ORDER BY age(a.backend_xid) DESC LIMIT 1;

-- name: history_partitions
-- The day partitions of the event table, oldest first, without the default one. Names end in the UTC day. indexes: what follows
-- this name in those of its indexes.
SELECT c.relname AS name, to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       ARRAY(SELECT substr(x.relname, length(c.relname) + 1) FROM pg_index AS of JOIN pg_class AS x ON x.oid = of.indexrelid
              WHERE of.indrelid = c.oid) AS indexes
  FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'vitrine_message_event'::regclass AND c.relname ~ '^vitrine_message_event_[0-9]{8}$'
 ORDER BY c.relname;

-- name: history_forget_entities
-- Delete up to max_count rows of entities that were deleted, with their messages, before the first day with events, so that no
-- event refers to them. A topic is deleted after its subscriptions.
WITH forgotten AS MATERIALIZED (
       SELECT e.id FROM vitrine_entity AS e
        WHERE e.deleted_at IS NOT NULL
          AND greatest(e.deleted_at, e.updated_at) < %(first_day)s::date::timestamp AT TIME ZONE 'UTC'
          AND NOT EXISTS (SELECT FROM vitrine_entity_activity AS a WHERE a.entity_id = e.id)
          AND NOT EXISTS (SELECT FROM vitrine_entity AS s WHERE s.topic_id = e.id)
        ORDER BY e.id LIMIT %(max_count)s FOR UPDATE SKIP LOCKED),
revisions AS (DELETE FROM vitrine_entity_revision WHERE entity_id = ANY (ARRAY(SELECT id FROM forgotten))),
properties AS (DELETE FROM vitrine_archived_properties WHERE entity_id = ANY (ARRAY(SELECT id FROM forgotten)))
DELETE FROM vitrine_entity WHERE id = ANY (ARRAY(SELECT id FROM forgotten));

-- name: history_forget_namespaces
-- Delete the rows of deleted namespaces that have no entity rows any more.
DELETE FROM vitrine_namespace AS n
 WHERE n.deleted_at IS NOT NULL AND NOT EXISTS (SELECT FROM vitrine_entity AS e WHERE e.namespace_id = n.id);

-- name: history_days_in_default
-- Days with events in the default partition, because their own was missing.
SELECT DISTINCT (d.recorded_at AT TIME ZONE 'UTC')::date AS day FROM vitrine_message_event_default AS d ORDER BY 1;

-- name: history_archived_rows
-- The number of events of a day in the archive, without those that were never in the event table.
SELECT coalesce(sum(f.rows), 0)::bigint AS rows
  FROM vitrine_archive_file AS f
 WHERE f.content = 'events' AND f.day = %(day)s AND NOT f.imported;

-- name: history_try_lock_files
-- One process at a time replaces files; the lock is held until it is released or this connection closes.
SELECT pg_try_advisory_lock(hashtextextended('vitrine_archive_files', 0)) AS locked;

-- name: history_unlock_files
-- Release the lock on replacing files.
SELECT pg_advisory_unlock(hashtextextended('vitrine_archive_files', 0)) AS unlocked;

-- name: history_unused
-- The files that no reader has opened or will open, unless it began before `age` ago.
SELECT u.path FROM vitrine_archive_unused_file AS u WHERE u.since < clock_timestamp() - %(age)s::interval ORDER BY u.id;

-- name: history_forget_unused
-- A file was deleted.
DELETE FROM vitrine_archive_unused_file WHERE path = %(path)s;

-- name: history_forget_days
-- Remove the files of days that are older than their namespace keeps them from the manifest; they become unused. Roll-ups are
-- kept. The events of a day must have been dropped from the event table: dropping compares their number with the archive.
WITH old AS (
     DELETE FROM vitrine_archive_file AS f USING vitrine_namespace AS n
      WHERE n.id = f.namespace_id AND f.content IN ('events', 'lives') AND f.day < %(today)s::date - n.archive_days
        AND (f.imported OR f.day < %(first_day)s::date)
     RETURNING f.path, f.day, n.name)
, unused AS (INSERT INTO vitrine_archive_unused_file (path, since) SELECT old.path, clock_timestamp() FROM old)
SELECT old.name, min(old.day) AS first_day, max(old.day) AS last_day, count(*) AS files FROM old GROUP BY old.name ORDER BY 1;

-- name: history_reserve_numbers
-- Take numbers from an entity's counter, as a send would.
UPDATE vitrine_entity_counter SET next_number = next_number + %(count)s
 WHERE entity_id = %(entity_id)s
RETURNING next_number - %(count)s AS first_number;

-- name: history_copy_events
-- Write generated events, given as CSV (explorer/analysis/generation.py).
COPY vitrine_message_event (recorded_at, at, entity_id, subqueue, sequence_number, kind, message_id, delivery_count, locked_until,
                            actor, reason, enqueued_at, first_received_at, last_received_at, session_id, size, time_to_live,
                            application_properties, details)
FROM STDIN (FORMAT csv);

-- name: history_count_generated
-- Count the generated events of this transaction in the traffic of their entities and namespaces, as far as it is kept
-- (forget_ended_counts). The times follow from the events (roll_up_times).
INSERT INTO vitrine_traffic AS t (entity_id, step, bucket, sent, received, completed, dead_lettered, expired, abandoned,
                                  active_change, dead_change)
SELECT o.id, s.step, date_bin(make_interval(secs => s.step), h.recorded_at, 'epoch'),
       count(*) FILTER (WHERE h.kind = @EVENT_SENT), count(*) FILTER (WHERE h.kind = @EVENT_RECEIVED),
       count(*) FILTER (WHERE h.kind = @EVENT_COMPLETED), count(*) FILTER (WHERE h.kind = @EVENT_DEAD_LETTERED),
       count(*) FILTER (WHERE h.kind = @EVENT_EXPIRED), count(*) FILTER (WHERE h.kind = @EVENT_ABANDONED),
       count(*) FILTER (WHERE h.kind = @EVENT_SENT)
           - count(*) FILTER (WHERE h.kind IN (@EVENT_COMPLETED, @EVENT_EXPIRED, @EVENT_DEAD_LETTERED)),
       count(*) FILTER (WHERE h.kind = @EVENT_DEAD_LETTERED) - count(*) FILTER (WHERE h.kind = @EVENT_PURGED)
  FROM vitrine_message_event AS h JOIN vitrine_entity AS e ON e.id = h.entity_id
  JOIN (VALUES (10, interval '1 day'), (60, '7 days'), (3600, '90 days')) AS s(step, kept) ON h.recorded_at >= now() - s.kept
 CROSS JOIN LATERAL (VALUES (e.id), (-e.namespace_id)) AS o(id)
 WHERE h.xid = pg_current_xact_id() AND h.kind NOT IN (@EVENT_LOCK_LOST, @EVENT_SETTLE_REFUSED)
 GROUP BY 1, 2, 3
    ON CONFLICT (entity_id, step, bucket) DO UPDATE
   SET sent = t.sent + excluded.sent, received = t.received + excluded.received, completed = t.completed + excluded.completed,
       dead_lettered = t.dead_lettered + excluded.dead_lettered, expired = t.expired + excluded.expired,
       abandoned = t.abandoned + excluded.abandoned, active_change = t.active_change + excluded.active_change,
       dead_change = t.dead_change + excluded.dead_change;

-- name: history_forget_revisions
-- Forget all revisions of an entity's settings but the last one, before they are dated in a generated past.
DELETE FROM vitrine_entity_revision
 WHERE entity_id = %(entity_id)s AND id < (SELECT max(id) FROM vitrine_entity_revision WHERE entity_id = %(entity_id)s);

-- name: history_date_revisions
-- Date the revisions of an entity's settings, in their order, in a generated past.
UPDATE vitrine_entity_revision AS r SET at = d.at
  FROM (SELECT id, (%(ats)s::timestamptz[])[row_number() OVER (ORDER BY id)] AS at
          FROM vitrine_entity_revision WHERE entity_id = %(entity_id)s) AS d
 WHERE r.id = d.id AND d.at IS NOT NULL;

-- name: history_next_slice_id
-- The id of a slice that is entered when its files are written.
SELECT nextval(pg_get_serial_sequence('vitrine_archive_slice', 'id')) AS id;

-- name: history_next_number
-- The next number of an entity's counter.
SELECT next_number FROM vitrine_entity_counter WHERE entity_id = %(entity_id)s;

-- name: history_revisions
-- The revisions of the settings of all entities.
SELECT r.id AS revision_id, r.entity_id, e.path, e.kind, e.family, r.at AS since, r.actor, r.settings::text AS settings,
       e.namespace_id
  FROM vitrine_entity_revision AS r JOIN vitrine_entity AS e ON e.id = r.entity_id
 ORDER BY r.entity_id, r.id;
