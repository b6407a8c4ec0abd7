"""DuckDB does what the jobs "lives" and "roll up" do, over the same files: the yardstick of `make bench`. Its rules are those of
explorer/analysis/jobs/lives.py and roll_up.py, without chosen properties and carried rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from explorer.analysis.jobs import outcomes
from explorer.analysis.jobs.kinds import BEGINNINGS, LIFE_ENDS, NO_CHANGE, TERMINAL, Kind
from explorer.analysis.jobs.outcomes import LIMIT_REASONS

THREADS = 2
BIN = """
CREATE MACRO bin(v) AS
    CASE WHEN v < 32 THEN v ELSE (floor(log2(v))::INT - 5) * 32 + (v >> (floor(log2(v))::INT - 5)) END;
CREATE MACRO step(t) AS time_bucket(INTERVAL 5 MINUTES, t);
CREATE MACRO passed(since, until) AS greatest(epoch_us(until) - epoch_us(since), 0);
CREATE MACRO normalised(r) AS left(trim(regexp_replace(regexp_replace(regexp_replace(regexp_replace(r,
    '(?i)[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}', '#', 'g'),
    '(?i)\\b[0-9a-f]{{12,}}\\b', '#', 'g'), '\\d+', '#', 'g'), '\\s+', ' ', 'g')), 120);
"""
LIVES = """
COPY (
WITH event AS (
    SELECT *, subqueue = 0 AS main, kind IN {begins} AS begun, kind NOT IN {no_change} AS is_step
      FROM read_parquet({files}, hive_partitioning = true)
), told AS (
    SELECT *,
           count(*) FILTER (kind = {received} AND main) OVER until_now AS deliveries,
           count(*) FILTER (kind = {renewed} AND main) OVER until_now AS renewals,
           count(*) FILTER (kind = {lost} AND main) OVER until_now AS locks_lost,
           count(*) FILTER (kind = {received} AND NOT main) OVER until_now AS other_deliveries,
           count(*) FILTER (kind = {renewed} AND NOT main) OVER until_now AS other_renewals,
           count(*) FILTER (kind = {lost} AND NOT main) OVER until_now AS other_locks_lost,
           first_value(CASE WHEN begun THEN {{
               'ttl': time_to_live_us, 'entity': entity_time_to_live_us, 'topic': topic_time_to_live_us, 'session': session_id,
               'size': size, 'id': message_id, 'scheduled': coalesce(link = 'activated_from', false),
               'from_entity': linked_entity_id, 'from_number': linked_sequence_number, 'enqueued_at': enqueued_at}} END
               IGNORE NULLS) OVER until_now AS first,
           last_value(CASE WHEN kind IN ({received}, {renewed}) THEN locked_until END IGNORE NULLS) OVER until_now AS until,
           last_value(CASE WHEN is_step THEN {{'kind': kind, 'at': "at", 'actor': actor, 'locked_until': locked_until,
               'subqueue': subqueue}} END IGNORE NULLS) OVER until_now AS step,
           last_value(CASE WHEN is_step THEN {{'kind': kind, 'at': "at", 'actor': actor, 'locked_until': locked_until,
               'subqueue': subqueue}} END IGNORE NULLS) OVER before AS began,
           lead(kind, 1) OVER message AS next_1, lead(kind, 2) OVER message AS next_2, lead(kind, 3) OVER message AS next_3
      FROM event
    WINDOW message AS (PARTITION BY entity_id, sequence_number ORDER BY event_id),
           until_now AS (PARTITION BY entity_id, sequence_number ORDER BY event_id
                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
           before AS (PARTITION BY entity_id, sequence_number ORDER BY event_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), judged AS (
    SELECT *,
           kind IN {ends} AND NOT (coalesce(next_1, 0) = {restored}
               OR (coalesce(next_1, 0) IN {no_change} AND coalesce(next_2, 0) = {restored})) AS ends_life,
           kind = {at_once} OR coalesce(is_step AND kind <> {received} AND began.kind = {received}, false) AS ends_attempt,
           next_1 IS NULL AND step.kind NOT IN {terminal} AS stays, normalised(reason) AS error,
           kind IN {with_reason} AND coalesce(reason IN {expiry}, false) AS expired,
           kind IN {with_reason} AND NOT coalesce(reason IN {by_broker}, false) AS by_receiver,
           kind IN {with_reason} AND coalesce(reason IN {limits}, false) AS by_limit,
           CASE WHEN first IS NULL THEN NULL
                WHEN first.ttl IS NULL OR coalesce(default_limits_own AND
                     least(entity_time_to_live_us, topic_time_to_live_us) < first.ttl, false)
                THEN least(entity_time_to_live_us, topic_time_to_live_us) ELSE first.ttl END AS in_force
      FROM told
)
SELECT CASE WHEN ends_life OR ends_attempt THEN 'lives' ELSE 'open' END AS content, recorded_at::DATE AS day, namespace,
       entity_id, sequence_number, "at" AS ended_at, reason, error, delivery_count, actor AS settled_by,
       coalesce(starts_with(actor, 'generated'), false) AS generated,
       CASE WHEN ends_life THEN kind END AS outcome,
       CASE WHEN ends_life THEN CASE WHEN expired THEN {expires} ELSE kind END END AS result,
       CASE WHEN ends_life AND NOT expired THEN error END AS cause,
       CASE WHEN kind = {dead} THEN 0 ELSE subqueue END AS subqueue,
       enqueued_at, first_received_at, last_received_at,
       passed(enqueued_at, first_received_at) AS waiting_us,
       CASE WHEN first_received_at IS NULL THEN least(passed(enqueued_at, "at"), in_force) END AS never_received_us,
       CASE WHEN kind = {completed} OR by_receiver THEN passed(last_received_at, "at") END AS processing_us,
       CASE WHEN subqueue = 0 THEN deliveries ELSE other_deliveries END AS deliveries,
       CASE WHEN subqueue = 0 THEN renewals ELSE other_renewals END AS renewals,
       CASE WHEN subqueue = 0 THEN locks_lost ELSE other_locks_lost END AS locks_lost,
       first.ttl AS time_to_live_us, in_force AS time_to_live_in_force_us,
       CASE WHEN in_force = coalesce(first.entity, entity_time_to_live_us) THEN 'entity' ELSE 'own' END AS time_to_live_source,
       first.size AS size, coalesce(message_id, first.id) AS message_id, first.session AS session_id,
       first.scheduled AS scheduled, first.from_entity AS from_entity_id, first.from_number AS from_sequence_number,
       CASE WHEN link = 'to' THEN linked_entity_id END AS to_entity_id,
       CASE WHEN ends_attempt THEN kind END AS attempt_outcome, began.subqueue AS attempt_subqueue,
       CASE WHEN ends_attempt THEN deliveries + other_deliveries END AS attempt, began.at AS attempt_received_at,
       began.locked_until AS attempt_locked_until, until AS attempt_lock_ended_at, began.actor AS attempt_received_by,
       CASE WHEN kind IN ({completed}, {abandoned}, {deferred}) OR by_receiver OR (kind = {released} AND began.actor = actor)
            THEN passed(began.at, "at") ELSE passed(began.at, least("at", until)) END AS attempt_held_us,
       passed(began.at, began.locked_until) AS attempt_lock_us,
       kind = {abandoned} OR kind = {lost} OR by_limit AS attempt_failed
  FROM judged WHERE ends_life OR ends_attempt OR stays
) TO '{output}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (content, day, namespace));
"""
ROWS = "(SELECT * FROM read_parquet({files}, hive_partitioning = true))"
ENTERED = "outcome IS NOT NULL AND enqueued_at IS NOT NULL AND outcome <> {cancelled}"
COUNTS = """
COPY (
    SELECT day, namespace, entity_id, subqueue, 0 AS measure, step(enqueued_at) AS step, step(ended_at) AS end_step,
           result AS outcome, cause, count(*) AS messages, count(*) FILTER (generated) AS generated
      FROM {rows} WHERE {entered} GROUP BY ALL
     UNION ALL
    SELECT day, namespace, entity_id, attempt_subqueue, 6, step(attempt_received_at), step(ended_at), attempt_outcome, error,
           count(*), count(*) FILTER (generated)
      FROM {rows} WHERE attempt_outcome IS NOT NULL GROUP BY ALL
) TO '{output}/counts.parquet' (COMPRESSION zstd)
"""
HISTOGRAMS = """
COPY (
WITH binned AS (
    SELECT day, namespace, entity_id, subqueue, step(enqueued_at) AS step, m.measure, m.bin, count(*) AS n
      FROM {rows}, LATERAL (VALUES (1, bin(waiting_us)), (2, bin(never_received_us)), (3, bin(processing_us))) AS m(measure, bin)
     WHERE {entered} AND m.bin IS NOT NULL GROUP BY ALL
)
SELECT day, namespace, entity_id, subqueue, step, list(measure ORDER BY measure, bin) AS measures,
       list(bin ORDER BY measure, bin) AS bins, list(n ORDER BY measure, bin) AS counts
  FROM binned GROUP BY ALL
) TO '{output}/histograms.parquet' (COMPRESSION zstd)
"""


def lives(files: Sequence[str], output: Path) -> float:
    """Derive lives, attempts and open messages. Returns processor seconds."""
    names = {
        "begins": BEGINNINGS, "no_change": NO_CHANGE, "ends": LIFE_ENDS, "terminal": TERMINAL, "received": Kind.RECEIVED,
        "renewed": Kind.RENEWED, "lost": Kind.LOCK_LOST, "restored": Kind.RESTORED, "at_once": Kind.RECEIVED_AND_DELETED,
        "with_reason": outcomes.WITH_REASON, "expiry": outcomes.EXPIRY_REASONS, "by_broker": outcomes.BROKER_REASONS,
        "limits": LIMIT_REASONS, "expires": outcomes.EXPIRED, "dead": Kind.DEAD_LETTERED, "completed": Kind.COMPLETED,
        "abandoned": Kind.ABANDONED, "deferred": Kind.DEFERRED, "released": Kind.RELEASED,
    }  # fmt: skip
    return _run(LIVES.format(files=list(files), output=output, **names), output)


def roll_up(files: Sequence[str], output: Path) -> float:
    """Count lives and attempts by steps of five minutes. Returns processor seconds."""
    rows, entered = ROWS.format(files=list(files)), ENTERED.format(cancelled=outcomes.CANCELLED)
    statements = [statement.format(rows=rows, entered=entered, output=output) for statement in (COUNTS, HISTOGRAMS)]
    return _run("; ".join(statements), output)


def rows(question: str, files: Sequence[str]) -> tuple:
    """The row of a question about files, such as `count(*)`."""
    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT {question} FROM {ROWS.format(files=list(files))}").fetchone()
    assert row is not None
    return row


def _run(statements: str, output: Path) -> float:
    output.mkdir(parents=True)
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(BIN.format())
        began = time.process_time()
        connection.execute(statements)
        return time.process_time() - began
