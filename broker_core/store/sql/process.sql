-- Processes that own what ends with them: each has an epoch, a lease and an advisory lock.

-- fragment: epoch_key
hashtextextended('vitrine epoch ' || epoch, 0)

-- name: register_process
-- Create an epoch. Its advisory lock is acquired before the row is visible to others, and lasts as long as the session.
WITH process AS (
    INSERT INTO vitrine_broker_process (label, started_at, lease_until)
    VALUES (%(label)s, clock_timestamp(), clock_timestamp() + %(lease)s::interval)
    RETURNING epoch)
SELECT epoch, pg_advisory_lock(
       -- include: epoch_key
       )::text AS locked
  FROM process;

-- name: renew_lease
-- No row: the process was declared dead, which is final.
UPDATE vitrine_broker_process SET lease_until = clock_timestamp() + %(lease)s::interval
 WHERE epoch = %(epoch)s AND lease_until > to_timestamp(0)
RETURNING epoch;

-- name: mark_dead_processes
-- Mark processes as dead whose lock is free (killed) or whose lease has expired (stopped or disconnected). This is final.
UPDATE vitrine_broker_process SET lease_until = to_timestamp(0)
 WHERE lease_until <= clock_timestamp()
    OR pg_try_advisory_xact_lock(
       -- include: epoch_key
       )
RETURNING epoch;

-- name: record_listener
-- Store what a process listens on, and what it refused. No row: the process was declared dead, which is final.
UPDATE vitrine_broker_process SET listener = %(listener)s::text::jsonb
 WHERE epoch = %(epoch)s AND lease_until > to_timestamp(0)
RETURNING epoch;

-- name: read_listeners
-- The processes that listen, the oldest first. One that was killed is left out at once, as its lock is free.
SELECT epoch, label, started_at, listener FROM vitrine_broker_process
 WHERE listener IS NOT NULL AND lease_until > clock_timestamp()
   AND NOT pg_try_advisory_xact_lock_shared(
       -- include: epoch_key
       )
 ORDER BY epoch;
