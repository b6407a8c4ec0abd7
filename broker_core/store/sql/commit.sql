-- Around a statement that others wait for: it commits before its log is flushed (docs/design.md D3).

-- name: commit_unflushed
-- Let the transaction of this statement commit without a flush. It is acknowledged only after `flush`.
SELECT set_config('synchronous_commit', 'off', true);

-- name: commit_unflushed_in_turn
-- As commit_unflushed, and wait until it is this transaction's turn at the entity. The next statement of the transaction takes
-- its snapshot after the wait. One that waits at the counter's row itself finds the row changed, and looks at it once more.
SELECT set_config('synchronous_commit', 'off', true),
       pg_advisory_xact_lock(hashtextextended('vitrine send ' || %(entity_id)s::bigint, 0));

-- name: flush
-- Flush the log, and with it everything that was committed before. Synchronous standbys are waited for by a commit alone.
SELECT CASE WHEN current_setting('synchronous_standby_names') = '' THEN pg_logical_emit_message(false, '', '', true)
            ELSE pg_logical_emit_message(true, '', '') END AS flushed;

-- name: flush_by_commit
-- As flush, before PostgreSQL 17: the statement's own commit flushes.
SELECT pg_logical_emit_message(true, '', '') AS flushed;
