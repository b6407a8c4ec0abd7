-- Why a message is or is not delivered now (broker_core/reads, explain). Nothing here writes.

-- name: explain_message
-- One message of a list with the facts that decide its delivery, in one snapshot: its entity's settings, its session's state, and
-- the number of deliverable messages ahead of it, counted up to place_cap and among at most scan_cap rows.
WITH
-- include: entity
,
-- include: explain_clock
, found AS MATERIALIZED (
    SELECT
-- include: message_columns
         , m.transfer
      FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s
       AND m.state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}')
       AND m.sequence_number = %(sequence_number)s
), scanned AS MATERIALIZED (
    SELECT m.ctid AS tid FROM vitrine_message AS m
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
       AND m.sequence_number < %(sequence_number)s
       AND m.sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s)
     ORDER BY m.sequence_number LIMIT %(scan_cap)s
), before AS MATERIALIZED (
    SELECT FROM entity AS e CROSS JOIN vitrine_message AS m
     WHERE m.ctid = ANY (ARRAY(SELECT tid FROM scanned))
       AND (NOT (SELECT in_session FROM clock) OR m.session_id = (SELECT session_id FROM found))
       AND
           -- include: receivable
       AND
           -- include: available
     LIMIT %(place_cap)s::int + 1
)
SELECT
-- include: clock_columns
       f.*, c.kind, c.status, c.requires_session, c.forward_to, c.forward_dead_lettered_messages_to,
       c.dead_lettering_on_message_expiration, c.expiry_mode, c.in_session,
       s.locked_until AS session_locked_until, s.locked_by AS session_locked_by, other.sequence_number AS expired_number,
       other.ends_at AS expired_at,
       (SELECT count(*) FROM before) AS before, (SELECT count(*) FROM scanned) AS scanned
  FROM entity AS e CROSS JOIN clock AS c CROSS JOIN found AS f
  LEFT JOIN vitrine_session AS s ON c.in_session AND s.entity_id = c.id AND s.session_id = f.session_id COLLATE "C"
  LEFT JOIN LATERAL ( -- another message that expired the session
       SELECT m.sequence_number, coalesce(m.expires_at, m.enqueued_at + c.default_message_time_to_live) AS ends_at
         FROM vitrine_message AS m
        WHERE s.session_id IS NOT NULL
          AND
              -- include: session_expired
          AND m.entity_id + 0 = c.id AND m.session_id = f.session_id AND m.session_id IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN
          AND m.state = @STATE_ACTIVE
          AND m.sequence_number <> f.sequence_number
          AND coalesce(m.expires_at, m.enqueued_at + c.default_message_time_to_live) <= c.now
          AND (m.locked_until IS NULL OR m.locked_until <= c.now)
        ORDER BY m.sequence_number LIMIT 1) AS other ON true;

-- fragment: explain_clock
clock AS MATERIALIZED (
    SELECT e.*, clock_timestamp() AS real_now, n.clock_base_at IS NOT NULL AS is_manual,
           CASE WHEN n.clock_base_at IS NULL THEN 1.0 ELSE n.clock_rate END AS rate,
           e.requires_session AND %(subqueue)s = @SUBQUEUE_MAIN AS in_session
      FROM vitrine_entity_now AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE e.id = %(entity_id)s)

-- name: read_list_of
-- The sub-queue that a message is in.
SELECT subqueue FROM vitrine_message
 WHERE entity_id = %(entity_id)s
   AND subqueue = ANY ('{@SUBQUEUE_MAIN,@SUBQUEUE_DEAD_LETTER,@SUBQUEUE_TRANSFER_DEAD_LETTER,@SUBQUEUE_TRANSFER}')
   AND state = ANY ('{@STATE_ACTIVE,@STATE_DEFERRED,@STATE_SCHEDULED}') AND sequence_number = %(sequence_number)s;

-- name: read_published
-- The newest messages published to a topic in the last `seconds` of real time, among the newest max_events events.
SELECT e.sequence_number, e.at, e.message_id, e.session_id, e.properties, e.application_properties,
       coalesce((e.details ->> 'copies')::int, 0) AS copies
  FROM (SELECT * FROM vitrine_message_event
         WHERE recorded_at >= date_trunc('day', clock_timestamp() - make_interval(secs => %(seconds)s::int), 'UTC')
         ORDER BY xid DESC, event_id DESC LIMIT %(max_events)s) AS e
 WHERE e.entity_id = %(entity_id)s AND e.kind = @EVENT_PUBLISHED
   AND e.recorded_at >= clock_timestamp() - make_interval(secs => %(seconds)s::int)
 ORDER BY e.xid DESC, e.sequence_number DESC LIMIT %(max_count)s;
