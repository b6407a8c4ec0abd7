-- Messages that are stored as copies: those of a topic in its subscriptions, and forwarded ones. `entries` are the messages to be
-- stored, each given once; `picks` lists, for each target entity, the entries it gets. So each body is sent to the database once,
-- whatever the number of copies.

-- fragment: copies
-- Store the copies if `gate` returned a row (its `first` is the topic's number of the first message; NULL without a topic).
-- Counters are locked in the order of ids, so that concurrent publishes cannot deadlock.
entries AS MATERIALIZED (
    SELECT t.i::int AS i, t.place, t.size, coalesce(t.body_kind, @BODY_DATA) AS body_kind, t.message_id, t.session_id,
           t.time_to_live, t.scheduled_at, t.properties::jsonb AS properties,
           t.application_properties::jsonb AS application_properties, t.enqueued_at, t.enqueued_number,
           t.encoded, coalesce(t.list, @SUBQUEUE_MAIN) AS list, t.reason, t.description, t.source, t.transfer::jsonb AS transfer,
           (%(bodies)b::bytea[])[t.place + 1] AS body
      FROM unnest(%(places)b::int4[], %(sizes)b::int4[], %(body_kinds)b::int2[], %(message_ids)b::text[], %(session_ids)b::text[],
                  %(times_to_live)s::interval[], %(scheduled_at)s::timestamptz[], %(properties)b::text[],
                  %(application_properties)b::text[], %(enqueued_at)s::timestamptz[], %(enqueued_numbers)b::int8[],
                  %(lists)b::int2[], %(reasons)b::text[], %(descriptions)b::text[], %(sources)b::text[],
                  %(transfers)b::text[], %(encoded)b::bytea[]) WITH ORDINALITY
           AS t(place, size, body_kind, message_id, session_id, time_to_live, scheduled_at, properties,
                application_properties, enqueued_at, enqueued_number, list, reason, description, source, transfer,
                encoded, i)),
target AS MATERIALIZED (
    SELECT id, path, kind, default_message_time_to_live, history_level, requires_session, forward_to,
           forward_dead_lettered_messages_to
      FROM vitrine_entity_now WHERE id = ANY (%(entity_ids)b::int8[])),
locked AS MATERIALIZED (
    SELECT t.entity_id, t.picks::int[] AS picks
      FROM gate, (SELECT * FROM unnest(%(entity_ids)b::int8[], %(picks)b::text[]) AS t(entity_id, picks) ORDER BY entity_id) AS t
     CROSS JOIN LATERAL (SELECT FROM vitrine_entity_counter AS c WHERE c.entity_id = t.entity_id FOR UPDATE) AS c),
copies AS MATERIALIZED (
    SELECT l.entity_id, p.i, p.place - 1 AS place FROM locked AS l
     CROSS JOIN LATERAL unnest(l.picks) WITH ORDINALITY AS p(i, place)),
numbers AS (
    UPDATE vitrine_entity_counter AS c SET next_number = c.next_number + l.n, bytes_sent = c.bytes_sent + l.bytes
      FROM (SELECT entity_id, count(*) AS n, sum(size) AS bytes FROM copies JOIN entries USING (i) GROUP BY entity_id) AS l
     WHERE c.entity_id = l.entity_id
 RETURNING c.entity_id, c.next_number - l.n AS first),
stored AS (
    INSERT INTO vitrine_message (entity_id, subqueue, sequence_number, state, size, body_kind, enqueued_at,
                                 expires_at, time_to_live, scheduled_enqueue_at, message_id, session_id, properties,
                                 application_properties, enqueued_sequence_number, dead_letter_reason, dead_letter_description,
                                 dead_letter_source, dead_lettered_at, transfer, encoded, body)
    SELECT c.entity_id, m.list, n.first + c.place,
           CASE WHEN x.is_scheduled THEN @STATE_SCHEDULED ELSE @STATE_ACTIVE END, m.size, m.body_kind, x.enqueued_at,
           CASE WHEN NOT x.is_scheduled AND m.time_to_live IS NOT NULL
                THEN x.enqueued_at + least(m.time_to_live, t.default_message_time_to_live) END,
           CASE WHEN m.time_to_live IS NOT NULL THEN least(m.time_to_live, t.default_message_time_to_live) END,
           m.scheduled_at, m.message_id, m.session_id, m.properties, m.application_properties,
           coalesce(m.enqueued_number, g.first + m.place), m.reason, m.description,
           CASE m.list WHEN @SUBQUEUE_DEAD_LETTER THEN t.path ELSE m.source END,
           CASE m.list WHEN @SUBQUEUE_DEAD_LETTER THEN g.now END, m.transfer, m.encoded, m.body
      FROM gate AS g, copies AS c JOIN numbers AS n USING (entity_id) JOIN entries AS m USING (i)
      JOIN target AS t ON t.id = c.entity_id
     CROSS JOIN LATERAL (
           -- A scheduled time set by an action applies at the destination of a forward, not in the subscription itself (SB-052).
           -- All messages stored at a topic are scheduled; those that have come due since are still to be published.
           SELECT coalesce(m.enqueued_at, g.now) AS enqueued_at,
                  (m.list = @SUBQUEUE_MAIN
                   AND CASE t.kind WHEN 'queue' THEN m.scheduled_at > g.now ELSE t.kind = 'topic' END)
                  IS TRUE AS is_scheduled) AS x
 RETURNING entity_id, subqueue, sequence_number, state, size, enqueued_at, time_to_live, message_id, session_id,
           enqueued_sequence_number, scheduled_enqueue_at, dead_letter_reason, dead_letter_description),
origins AS MATERIALIZED (
    SELECT x.number, jsonb_build_object('published_from',
                                        jsonb_build_object('entity', %(from_id)s::bigint, 'sequence_number', x.number)) AS details
      FROM (SELECT DISTINCT coalesce(m.enqueued_number, g.first + m.place) AS number FROM gate AS g, entries AS m) AS x),
events AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, size, enqueued_at, time_to_live,
                                       message_id, session_id, reason, details)
    SELECT g.now, s.entity_id, s.subqueue, %(actor)s,
           CASE WHEN s.subqueue = @SUBQUEUE_DEAD_LETTER THEN @EVENT_DEAD_LETTERED
                WHEN s.state = @STATE_SCHEDULED THEN @EVENT_SCHEDULED ELSE @EVENT_SENT END, s.sequence_number, s.size,
           s.enqueued_at, s.time_to_live, s.message_id, s.session_id,
           CASE s.subqueue WHEN @SUBQUEUE_DEAD_LETTER THEN s.dead_letter_reason END,
           CASE WHEN s.subqueue = @SUBQUEUE_DEAD_LETTER
                THEN o.details || jsonb_build_object('description', s.dead_letter_description)
                WHEN s.state = @STATE_SCHEDULED
                THEN o.details || jsonb_build_object('scheduled_enqueue_at', s.scheduled_enqueue_at)
                ELSE o.details END
      FROM stored AS s JOIN target AS t ON t.id = s.entity_id JOIN origins AS o ON o.number = s.enqueued_sequence_number,
           gate AS g
     WHERE t.history_level > @HISTORY_OFF AND s.subqueue <> @SUBQUEUE_TRANSFER),
counted AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT entity_id, subqueue, state, count(*),
           CASE WHEN subqueue = @SUBQUEUE_DEAD_LETTER THEN @OP_DEAD_LETTERED WHEN subqueue = @SUBQUEUE_TRANSFER THEN NULL
                WHEN state = @STATE_SCHEDULED THEN @OP_SCHEDULED ELSE @OP_SENT END
      FROM stored GROUP BY entity_id, subqueue, state),
-- include: sessions_of_stored

-- fragment: published_columns
-- The entities with waiting receivers, and those that forward what was stored.
ARRAY(SELECT a.entity_id FROM vitrine_entity_activity AS a
       WHERE a.entity_id = ANY (%(entity_ids)b::int8[]) AND a.waiting_until > clock_timestamp()) AS waiting,
ARRAY(SELECT t.id FROM target AS t WHERE t.forward_to IS NOT NULL OR t.forward_dead_lettered_messages_to IS NOT NULL) AS forwards

-- name: publish
-- Store a topic's batch in its subscriptions, all of it or nothing (SB-003, SB-210). The topic's own numbers are assigned to
-- every message, matched or not (SB-014). No row: the topic does not exist, does not accept sends or messages of this size
-- (SB-231), is full, or its rules have another version than the one that `picks` was computed from.
WITH
-- include: entity
,
used AS MATERIALIZED (
    -- Copies are stored in the subscriptions and counted at the topic. Computed only if the upper bound in the topic's row
    -- exceeds the quota; the bound is then made exact.
    SELECT coalesce(sum(u.bytes_sent + u.removed), 0) AS bytes,
           (SELECT next_number FROM vitrine_entity_counter WHERE entity_id = %(entity_id)s) AS next_number
      FROM vitrine_entity AS s
     CROSS JOIN LATERAL (
           SELECT u.bytes_sent, (SELECT coalesce(sum(b.bytes), 0) FROM vitrine_count_base AS b
                                  WHERE b.entity_id = u.entity_id AND b.until IS NULL) AS removed
             FROM vitrine_entity_counter AS u WHERE u.entity_id = s.id OFFSET 0) AS u
     WHERE (s.topic_id = %(entity_id)s OR s.id = %(entity_id)s) AND s.deleted_at IS NULL),
gate AS (
    UPDATE vitrine_entity_counter AS c
       SET next_number = c.next_number + %(count)s,
           copies_bound = %(bytes)s
                          + CASE WHEN c.copies_bound + c.bytes_sent + %(bytes)s <= e.max_size_in_megabytes * 1048576::bigint
                                 THEN c.copies_bound ELSE (SELECT bytes FROM used) - c.bytes_sent END
      FROM entity AS e
     WHERE c.entity_id = e.id AND e.status = 'Active' AND e.rules_version = %(rules_version)s
       AND %(largest)s <= e.max_message_size_in_kilobytes * 1024
       -- As in `send`, the bytes removed since the last roll-up are read only if the topic is nearly full (SB-012).
       AND CASE WHEN c.copies_bound + c.bytes_sent + %(bytes)s <= e.max_size_in_megabytes * 1048576::bigint THEN true
                -- the statement waited for another publisher
                WHEN (SELECT next_number FROM used) <> c.next_number THEN vitrine_try_again()
                WHEN (SELECT bytes FROM used) + %(bytes)s <= e.max_size_in_megabytes * 1048576::bigint THEN true
                ELSE (SELECT bytes FROM used) + %(bytes)s <= e.max_size_in_megabytes * 1048576::bigint
                     - (SELECT coalesce(sum(d.bytes), 0) FROM vitrine_count_delta AS d
                          JOIN vitrine_entity AS s ON s.id = d.entity_id
                         WHERE (s.topic_id = %(entity_id)s OR s.id = %(entity_id)s) AND s.deleted_at IS NULL) END
 RETURNING c.next_number - %(count)s AS first, e.now, e.history_level),
-- include: copies
,
published AS (
    INSERT INTO vitrine_message_event (at, entity_id, subqueue, actor, kind, sequence_number, size,
                                       enqueued_at, message_id, session_id, properties, application_properties, details)
    SELECT g.now, %(entity_id)s, @SUBQUEUE_MAIN, %(actor)s, @EVENT_PUBLISHED, g.first + m.place, m.size,
           coalesce(m.enqueued_at, g.now), m.message_id, m.session_id, m.properties,
           CASE WHEN pg_column_size(m.application_properties) <= 4096 THEN m.application_properties END,
           jsonb_build_object('copies', coalesce(o.copies, 0))
      FROM gate AS g CROSS JOIN entries AS m
      LEFT JOIN (SELECT o.place, count(*) AS copies FROM copies JOIN entries AS o USING (i)
                  GROUP BY o.place) AS o ON o.place = m.place
     WHERE m.i <= %(count)s AND g.history_level > @HISTORY_OFF),
traffic AS (
    INSERT INTO vitrine_count_delta (entity_id, subqueue, state, n, op)
    SELECT %(entity_id)s::bigint, @SUBQUEUE_MAIN, @STATE_ACTIVE, x.n, x.op
      FROM gate, (VALUES (%(count)s::int, @OP_PUBLISHED::smallint), (-%(count)s::int, NULL)) AS x(n, op)),
-- include: touched_by_send
SELECT gate.first, gate.now,
       -- include: published_columns
  FROM gate;

-- name: deliver
-- Store messages of one entity at the end of another: a queue, or a topic if they are scheduled. No row: the target does not
-- exist, is disabled or full, or does not accept messages of this size.
WITH
-- include: entity
,
gate AS (
    SELECT NULL::bigint AS first, e.now
      FROM entity AS e JOIN vitrine_entity_counter AS c ON c.entity_id = e.id
     WHERE e.status IN ('Active', 'ReceiveDisabled') AND %(largest)s <= e.max_message_size_in_kilobytes * 1024
       AND c.bytes_sent + %(bytes)s <= e.max_size_in_megabytes * 1048576::bigint
           - (SELECT coalesce(sum(bytes), 0) FROM vitrine_count_base WHERE entity_id = %(entity_id)s AND until IS NULL)
           - (SELECT coalesce(sum(bytes), 0) FROM vitrine_count_delta WHERE entity_id = %(entity_id)s)),
-- include: copies
,
-- include: touched_by_send
SELECT numbers.first, gate.now,
       -- include: published_columns
  FROM gate, numbers;  -- no row if the target was deleted while its counter was waited for

-- name: topic_rules
-- The rules of a topic's subscriptions, and their version. A subscription without rules has one row without a rule, a topic
-- without subscriptions one row without a subscription.
SELECT t.rules_version, s.id AS entity_id, s.requires_session,
       s.dead_lettering_on_filter_evaluation_exceptions AS dead_letter_filter_errors, r.name, r.filter, r.action
  FROM vitrine_entity AS t
  LEFT JOIN vitrine_entity AS s ON s.topic_id = t.id AND s.deleted_at IS NULL
  LEFT JOIN vitrine_rule AS r ON r.subscription_id = s.id
 WHERE t.id = %(entity_id)s AND t.deleted_at IS NULL
 ORDER BY s.id, r.id;
