-- Duplicate detection, and forwarding from one entity to another.

-- name: claim_ids
-- Record these message ids as seen, and return those that are new within the entity's window (SB-130, SB-132). The counter is
-- locked first, as in every send, so that sends of the same ids are serialized.
WITH
-- include: entity
,
counter AS MATERIALIZED (SELECT FROM vitrine_entity_counter WHERE entity_id = %(entity_id)s FOR UPDATE)
INSERT INTO vitrine_seen_id AS s (entity_id, message_id, seen_at)
SELECT e.id, i.message_id, e.now
  FROM entity AS e, counter, (SELECT DISTINCT message_id FROM unnest(%(message_ids)b::text[]) AS i(message_id)) AS i ORDER BY 2
    ON CONFLICT (entity_id, message_id) DO UPDATE SET seen_at = excluded.seen_at, sequence_number = NULL
 WHERE s.seen_at + (SELECT duplicate_detection_history_time_window FROM entity) <= excluded.seen_at
RETURNING message_id;

-- name: record_ids
-- Record the sequence numbers of new ids, and write an event for each dropped duplicate on the message that was kept (SB-931).
WITH
-- include: entity
,
recorded AS (
    UPDATE vitrine_seen_id AS s SET sequence_number = t.number
      FROM unnest(%(message_ids)b::text[], %(numbers)b::int8[]) AS t(message_id, number)
     WHERE s.entity_id = %(entity_id)s AND s.message_id = t.message_id
 RETURNING s.message_id, s.sequence_number),
kept AS (
    SELECT message_id, sequence_number FROM recorded
    UNION ALL
    SELECT message_id, sequence_number FROM vitrine_seen_id
     WHERE entity_id = %(entity_id)s AND message_id = ANY (%(duplicates)b::text[])
       AND message_id NOT IN (SELECT message_id FROM recorded))
INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, message_id)
SELECT e.now, e.id, @SUBQUEUE_MAIN, %(actor)s, @EVENT_DUPLICATE_DROPPED, coalesce(k.sequence_number, 0), d.message_id
  FROM entity AS e, unnest(%(duplicates)b::text[]) AS d(message_id) JOIN kept AS k USING (message_id)
 WHERE e.history_level > @HISTORY_OFF;

-- name: forget_seen_ids
-- Remove ids that have left the window of their entity, except those locked by a concurrent send.
WITH forgotten AS (
DELETE FROM vitrine_seen_id
 WHERE ctid = ANY (ARRAY(
       SELECT s.ctid FROM vitrine_entity_now AS e
        CROSS JOIN LATERAL (SELECT ctid FROM vitrine_seen_id AS s
                             WHERE s.entity_id = e.id AND s.seen_at <= e.now - e.duplicate_detection_history_time_window
                             ORDER BY s.seen_at LIMIT %(max_count)s FOR UPDATE SKIP LOCKED) AS s
        WHERE e.requires_duplicate_detection LIMIT %(max_count)s)) RETURNING 1)
SELECT count(*) AS done FROM forgotten;

-- name: lock_forwarder
-- Let only one transaction at a time forward from a list, so that messages leave it in order (SB-170).
SELECT pg_advisory_xact_lock(
           hashtextextended('vitrine forward ' || %(entity_id)s::bigint || ' ' || %(subqueue)s::int, 0));

-- name: forwardable
-- Messages of a list that are to be forwarded, lowest number first: available messages of the main list, unlocked dead letters,
-- and those that a transaction sent via this entity (SB-166), except to destinations known to be full.
WITH
-- include: entity
SELECT m.*, e.now, e.path AS path, e.default_message_time_to_live, e.namespace_id AS namespace_id, e.namespace_name AS namespace,
       CASE m.subqueue WHEN @SUBQUEUE_MAIN THEN e.forward_to WHEN @SUBQUEUE_DEAD_LETTER THEN e.forward_dead_lettered_messages_to
            ELSE m.transfer ->> 'to' END AS target
  FROM vitrine_entity_now AS e, vitrine_message AS m
 WHERE e.id = %(entity_id)s AND m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE
   AND m.sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = %(entity_id)s AND subqueue = %(subqueue)s)
   AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))
   AND CASE m.subqueue
            WHEN @SUBQUEUE_MAIN THEN e.forward_to IS NOT NULL AND e.status IN ('Active', 'SendDisabled')
                 AND (coalesce(m.expires_at,
                               m.enqueued_at + e.default_message_time_to_live) > (SELECT now FROM entity)) IS NOT FALSE
            WHEN @SUBQUEUE_DEAD_LETTER THEN e.forward_dead_lettered_messages_to IS NOT NULL
            ELSE lower(m.transfer ->> 'to') <> ALL (%(waited_for)b::text[]) END
 ORDER BY m.sequence_number LIMIT %(max_count)s FOR UPDATE OF m SKIP LOCKED;

-- name: forward_target
-- The entity at the path that messages are forwarded to.
SELECT id, path, kind, status, requires_session, requires_duplicate_detection, max_message_size_in_kilobytes * 1024 AS largest
  FROM vitrine_entity_now WHERE namespace_id = %(namespace_id)s AND key = lower(%(path)s);

-- name: remove_forwarded
-- Remove messages that were stored at their destination in the same transaction (SB-170).
WITH
-- include: entity
,
removed AS (
    DELETE FROM vitrine_message AS m
     USING unnest(%(numbers)b::int8[], %(new_numbers)b::int8[]) AS t(number, new_number)
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE AND m.sequence_number = t.number
 RETURNING m.*, t.new_number),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, delivery_count,
                                       enqueued_at, first_received_at, last_received_at, message_id, session_id, details)
    SELECT e.now, e.id, g.subqueue, 'process:broker', @EVENT_FORWARDED, g.sequence_number, g.delivery_count,
           g.enqueued_at, g.first_received_at, g.last_received_at, g.message_id, g.session_id,
           jsonb_strip_nulls(jsonb_build_object(
               'to', jsonb_build_object('entity', %(to_id)s::bigint, 'sequence_number', g.new_number),
               'duplicate', CASE WHEN g.new_number IS NULL THEN true END))
      FROM removed AS g, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, @STATE_ACTIVE, -count(*), -sum(size), @OP_FORWARDED FROM removed
    HAVING count(*) > 0)
SELECT count(*) AS done FROM removed;

-- name: forward_failed
-- Move messages that cannot be forwarded to the entity's dead-letter queue, or to its transfer dead-letter queue if they were
-- dead letters or sent by a transaction (SB-166, SB-173, SB-174, SB-917).
WITH
-- include: entity
,
moved AS (
    UPDATE vitrine_message AS m
       SET subqueue = %(to_subqueue)s, delivery_count = 0, lock_token = NULL, locked_until = NULL, locked_by = NULL,
           dead_lettered_at = e.now, dead_letter_source = e.path, dead_letter_reason = t.reason,
           dead_letter_description = t.description
      FROM entity AS e,
           unnest(%(numbers)b::int8[], %(reasons)b::text[], %(descriptions)b::text[]) AS t(number, reason, description)
     WHERE m.entity_id = %(entity_id)s AND m.subqueue = %(subqueue)s AND m.state = @STATE_ACTIVE AND m.sequence_number = t.number
 RETURNING m.*),
lowered AS (
    UPDATE vitrine_queue_head AS h SET head = least(h.head, m.first), locked_below = least(h.locked_below, m.first)
      FROM (SELECT min(sequence_number) AS first FROM moved HAVING count(*) > 0) AS m
     WHERE h.entity_id = %(entity_id)s AND h.subqueue = %(to_subqueue)s),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, enqueued_at,
                                       first_received_at, last_received_at, message_id, session_id, reason, details)
    SELECT e.now, e.id, %(subqueue)s, 'process:broker', @EVENT_DEAD_LETTERED, m.sequence_number, m.enqueued_at,
           m.first_received_at, m.last_received_at, m.message_id, m.session_id, m.dead_letter_reason,
           jsonb_build_object('description', m.dead_letter_description, 'to_subqueue', m.subqueue)
      FROM moved AS m, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT %(entity_id)s::bigint, %(subqueue)s::smallint, @STATE_ACTIVE::smallint, -count(*), NULL::smallint FROM moved
    HAVING count(*) > 0
    UNION ALL
    SELECT %(entity_id)s, %(to_subqueue)s, @STATE_ACTIVE, count(*), @OP_DEAD_LETTERED FROM moved HAVING count(*) > 0)
SELECT count(*) AS done FROM moved;

-- name: entities_with_transfers
-- Entities that may have messages to forward, with the list. namespace NULL: all.
SELECT e.id AS entity_id, s.subqueue
  FROM vitrine_entity_now AS e
 CROSS JOIN (VALUES (@SUBQUEUE_MAIN::smallint), (@SUBQUEUE_DEAD_LETTER::smallint), (@SUBQUEUE_TRANSFER::smallint)) AS s(subqueue)
 WHERE CASE s.subqueue WHEN @SUBQUEUE_MAIN THEN e.forward_to IS NOT NULL
            WHEN @SUBQUEUE_DEAD_LETTER THEN e.forward_dead_lettered_messages_to IS NOT NULL ELSE true END
   AND (%(namespace)s::text IS NULL OR lower(e.namespace_name) = lower(%(namespace)s))
   AND EXISTS (SELECT FROM vitrine_message AS m
                WHERE m.entity_id = e.id AND m.subqueue = s.subqueue AND m.state = @STATE_ACTIVE
                  AND m.sequence_number >= (SELECT head FROM vitrine_queue_head WHERE entity_id = e.id AND subqueue = s.subqueue))
 ORDER BY 1, 2;

-- name: forwarding_loops
-- Of these destinations of an entity's forwards, by their place, those from which messages come back to the entity, or to the
-- topic of a subscription, in at most max_hops forwards, with the fewest. Whether rules match is not considered. drops: the
-- entity, or the topic, detects duplicates.
WITH RECURSIVE home AS MATERIALIZED (
    SELECT t.id, t.key, t.namespace_id, t.requires_duplicate_detection
      FROM vitrine_entity AS e JOIN vitrine_entity AS t ON t.id = coalesce(e.topic_id, e.id) WHERE e.id = %(entity_id)s),
way (place, key, hops) AS (
    SELECT d.place, lower(d.path), 1 FROM unnest(%(paths)b::text[]) WITH ORDINALITY AS d(path, place)
    UNION
    SELECT w.place, lower(s.forward_to), w.hops + 1
      FROM way AS w CROSS JOIN home AS h
      JOIN vitrine_entity AS t ON t.namespace_id = h.namespace_id AND t.key = w.key AND t.deleted_at IS NULL
     CROSS JOIN LATERAL (
           SELECT t.forward_to
           UNION ALL
           SELECT s.forward_to FROM vitrine_entity AS s WHERE s.topic_id = t.id AND s.deleted_at IS NULL) AS s
     WHERE w.hops < %(max_hops)s AND w.key <> h.key AND s.forward_to IS NOT NULL)
SELECT w.place, min(w.hops) AS hops, h.requires_duplicate_detection AS drops
  FROM way AS w JOIN home AS h ON h.key = w.key GROUP BY w.place, h.requires_duplicate_detection ORDER BY w.place;

-- name: take_due_at_topic
-- Remove and return the due scheduled messages of a topic, to be published (SB-051).
WITH
-- include: entity
,
due AS MATERIALIZED (
    SELECT ctid AS tid FROM vitrine_message
     WHERE entity_id = %(entity_id)s AND state = @STATE_SCHEDULED AND scheduled_enqueue_at <= (SELECT now FROM entity)
     ORDER BY scheduled_enqueue_at, sequence_number LIMIT %(max_count)s FOR UPDATE SKIP LOCKED),
taken AS (DELETE FROM vitrine_message AS m WHERE m.ctid = ANY (ARRAY(SELECT tid FROM due)) RETURNING m.*),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, enqueued_at, message_id)
    SELECT e.now, e.id, @SUBQUEUE_MAIN, 'process:broker', @EVENT_ACTIVATED, t.sequence_number,
           t.scheduled_enqueue_at, t.message_id
      FROM taken AS t, entity AS e WHERE e.history_level > @HISTORY_OFF),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, bytes, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_SCHEDULED, -count(*), -sum(size), @OP_ACTIVATED FROM taken
    HAVING count(*) > 0)
SELECT t.*, e.default_message_time_to_live FROM taken AS t, entity AS e ORDER BY t.scheduled_enqueue_at, t.sequence_number;
