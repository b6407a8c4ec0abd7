-- The clients that are connected to processes, and their links (broker_core/clients).

-- fragment: of_live_process
-- Whether client `c` belongs to a process that is not dead.
EXISTS (SELECT FROM vitrine_broker_process AS p WHERE p.epoch = c.epoch AND p.lease_until > clock_timestamp())

-- name: record_clients
-- Write what has changed of a process's clients and links (arrays of objects), and remove those that have ended. age, idle: of a
-- client, in seconds. No row: the process was declared dead, and nothing is written.
WITH process AS MATERIALIZED (
    SELECT epoch, clock_timestamp() AS now FROM vitrine_broker_process
     WHERE epoch = %(epoch)s AND lease_until > to_timestamp(0) FOR KEY SHARE),
ended AS (
    DELETE FROM vitrine_client WHERE epoch = %(epoch)s AND number = ANY (%(ended)s::bigint[])),
ended_links AS (
    DELETE FROM vitrine_client_link WHERE epoch = %(epoch)s AND number = ANY (%(ended_links)s::bigint[])),
written AS (
    INSERT INTO vitrine_client AS c (epoch, number, protocol, peer, port, is_tls, product, version, description, actor, holder,
           namespace, since, last_at, last_request, messages_in, messages_out, bytes_in, bytes_out, messages_per_second,
           bytes_per_second)
    SELECT process.epoch, x.number, x.protocol, x.peer, x.port, x.is_tls, x.product, x.version, x.description, x.actor, x.holder,
           x.namespace, process.now - x.age * interval '1 s', process.now - x.idle * interval '1 s', x.last_request,
           x.messages_in, x.messages_out, x.bytes_in, x.bytes_out, x.messages_per_second, x.bytes_per_second
      FROM process CROSS JOIN jsonb_to_recordset(%(clients)s::text::jsonb) AS x(
           number bigint, protocol text, peer text, port int, is_tls bool, product text, version text, description text,
           actor text, holder text, namespace text, age float8, idle float8, last_request text, messages_in bigint,
           messages_out bigint, bytes_in bigint, bytes_out bigint, messages_per_second float8, bytes_per_second float8)
        ON CONFLICT (epoch, number) DO UPDATE
       SET product = excluded.product, version = excluded.version, description = excluded.description, actor = excluded.actor,
           holder = excluded.holder, namespace = excluded.namespace, last_at = excluded.last_at,
           last_request = excluded.last_request, messages_in = excluded.messages_in, messages_out = excluded.messages_out,
           bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out,
           messages_per_second = excluded.messages_per_second, bytes_per_second = excluded.bytes_per_second),
written_links AS (
    INSERT INTO vitrine_client_link AS l (epoch, client, number, channel, name, namespace, path, subqueue, direction, mode,
           credit, unsettled, messages, messages_per_second)
    SELECT process.epoch, x.client, x.number, x.channel, x.name, x.namespace, x.path, x.subqueue, x.direction, x.mode, x.credit,
           x.unsettled, x.messages, x.messages_per_second
      FROM process CROSS JOIN jsonb_to_recordset(%(links)s::text::jsonb) AS x(
           client bigint, number bigint, channel int, name text, namespace text, path text, subqueue smallint, direction text,
           mode text, credit int, unsettled int, messages bigint, messages_per_second float8)
        ON CONFLICT (epoch, number) DO UPDATE
       SET mode = excluded.mode, credit = excluded.credit, unsettled = excluded.unsettled, messages = excluded.messages,
           messages_per_second = excluded.messages_per_second)
SELECT epoch FROM process;

-- name: remove_clients
-- Remove the clients of a process that ends.
WITH links AS (DELETE FROM vitrine_client_link WHERE epoch = %(epoch)s)
DELETE FROM vitrine_client WHERE epoch = %(epoch)s;

-- name: remove_clients_of_the_dead
-- Remove what processes that were declared dead have left, and the processes, unless RabbitMQ's connections of one remain to be
-- ended.
WITH dead AS MATERIALIZED (
    SELECT c.epoch, c.number FROM vitrine_client AS c
     WHERE NOT EXISTS (SELECT FROM vitrine_broker_process AS p WHERE p.epoch = c.epoch AND p.lease_until > to_timestamp(0))),
clients AS (DELETE FROM vitrine_client AS c USING dead AS d WHERE c.epoch = d.epoch AND c.number = d.number),
links AS (DELETE FROM vitrine_client_link AS l USING dead AS d WHERE l.epoch = d.epoch AND l.client = d.number)
DELETE FROM vitrine_broker_process AS p
 WHERE p.lease_until <= to_timestamp(0) AND NOT EXISTS (SELECT FROM vitrine_connection AS k WHERE k.epoch = p.epoch);

-- name: read_clients
-- The clients of live processes, the newest first: all, one, or those of an actor or with these holders.
SELECT c.*, p.label AS process, clock_timestamp() AS now
  FROM vitrine_client AS c JOIN vitrine_broker_process AS p ON p.epoch = c.epoch AND p.lease_until > clock_timestamp()
 WHERE (%(epoch)s::bigint IS NULL OR c.epoch = %(epoch)s::bigint AND c.number = %(number)s::bigint)
   AND (%(actor)s::text IS NULL OR c.actor = %(actor)s::text)
   AND (%(holders)s::text[] IS NULL OR c.holder = ANY (%(holders)s::text[]))
 ORDER BY c.since DESC, c.epoch DESC, c.number DESC LIMIT %(max_count)s;

-- name: read_client_links
-- The links of these clients, in the order in which they were opened.
SELECT l.* FROM vitrine_client_link AS l
  JOIN unnest(%(epochs)s::bigint[], %(numbers)s::bigint[]) AS c(epoch, number) ON l.epoch = c.epoch AND l.client = c.number
 ORDER BY l.epoch, l.client, l.number;

-- name: close_client
-- Remove a client from the list, and tell its process to close its connections. No row: it is not connected.
WITH links AS (DELETE FROM vitrine_client_link WHERE epoch = %(epoch)s AND client = %(number)s),
closed AS (
    DELETE FROM vitrine_client AS c WHERE c.epoch = %(epoch)s AND c.number = %(number)s AND
       -- include: of_live_process
    RETURNING c.epoch, c.number)
SELECT pg_notify('vitrine_process', 'client ' || epoch || '-' || number || ' closed ' || %(reason)s::text)::text AS notified
  FROM closed;
