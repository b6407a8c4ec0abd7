-- Records of sweep runs, for the page that shows late ones. Times are the database's.

-- name: start_sweep_run
-- Returns the id of the run, for finish_sweep_run.
INSERT INTO vitrine_sweep_run (name, started_at, outcome, error) VALUES (%(name)s, clock_timestamp(), '{}', '') RETURNING id;

-- name: finish_sweep_run
-- A run without finished_at is still running, or its worker died.
UPDATE vitrine_sweep_run SET finished_at = clock_timestamp(), outcome = %(outcome)s::jsonb, error = %(error)s
 WHERE id = %(run_id)s;

-- name: forget_sweep_runs
-- Runs that found nothing to do are kept for a shorter time; the newest of each sweep is always kept.
WITH removed AS (
    DELETE FROM vitrine_sweep_run AS r
     WHERE (r.started_at < clock_timestamp() - %(retention)s::interval
            OR (r.started_at < clock_timestamp() - %(empty_retention)s::interval AND r.error = '' AND r.finished_at IS NOT NULL
                AND NOT EXISTS (SELECT FROM jsonb_each(r.outcome) AS o WHERE o.value NOT IN ('0', '[]', 'null', '""'))))
       AND EXISTS (SELECT FROM vitrine_sweep_run AS later WHERE later.name = r.name AND later.started_at > r.started_at)
    RETURNING 1)
SELECT count(*) AS done FROM removed;
