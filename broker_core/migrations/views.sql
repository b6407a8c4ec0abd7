-- The basis of the statements: clocks, names, and entities with their settings.

-- Called by a statement that finds a row changed since its snapshot: it has no effect and is run again
-- (store.failures.TRANSIENT).
CREATE FUNCTION vitrine_try_again() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a row changed while it was waited for' USING ERRCODE = 'serialization_failure'; END $$;

-- The key for finding an entity by its path: case-sensitive in RabbitMQ, case-insensitive elsewhere.
CREATE FUNCTION vitrine_key(family text, path text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE family WHEN 'rabbitmq' THEN path ELSE lower(path) END $$;

-- What descriptions of the same problem have in common: quoted texts, and words with a digit, such as numbers and ids, are `*`.
-- The same as reads.dead_letters.description_pattern.
CREATE FUNCTION vitrine_description_pattern(description text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT regexp_replace(regexp_replace(regexp_replace(left(description, 300),
           $q$"[^"]*"|`[^`]*`|'[^' ]*'$q$, '*', 'g'),
           '[0-9A-Za-z_.-]*[0-9][0-9A-Za-z_.-]*', '*', 'g'),
           '[*]([ ,:;/]*[*])+', '*', 'g') $$;

-- Whether each path finds something in a body, or nothing where it is negated. NULL: the body is not JSON in UTF-8.
CREATE FUNCTION vitrine_json_matches(body bytea, paths text[], negated boolean[]) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE document jsonb;
BEGIN
    BEGIN
        document := convert_from(body, 'UTF8')::jsonb;
    EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
        RETURN NULL;
    END;
    FOR i IN 1..cardinality(paths) LOOP
        IF jsonb_path_exists(document, paths[i]::jsonpath, '{}', true) = negated[i] THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

-- The definition of a namespace's time (D6), used by every statement. The planner inlines the function. A view to be joined would
-- be evaluated for all namespaces, since conditions are not pushed into a subquery with a volatile function.
CREATE FUNCTION vitrine_clock(base_at timestamptz, base_real timestamptz, rate double precision)
RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
SELECT CASE WHEN base_at IS NULL THEN clock_timestamp() ELSE base_at + (clock_timestamp() - base_real) * rate END $$;

CREATE VIEW vitrine_namespace_now AS
SELECT n.id, n.name, n.is_system, n.tier, n.family, n.topology_version,
       vitrine_clock(n.clock_base_at, n.clock_base_real, n.clock_rate) AS now
  FROM vitrine_namespace AS n;

-- The time-to-live of a subscription's messages is limited by that of its topic (SB-022).
CREATE VIEW vitrine_entity_now AS
SELECT e.id, e.namespace_id, e.path, e.key, e.family, e.kind, e.topic_id, e.rules_version, e.lock_duration, e.max_delivery_count,
       CASE WHEN e.topic_id IS NULL THEN e.default_message_time_to_live
            ELSE least(e.default_message_time_to_live,
                       (SELECT t.default_message_time_to_live FROM vitrine_entity AS t WHERE t.id = e.topic_id))
        END AS default_message_time_to_live,
       e.dead_lettering_on_message_expiration, e.dead_lettering_on_filter_evaluation_exceptions, e.auto_delete_on_idle,
       e.requires_session, e.requires_duplicate_detection, e.duplicate_detection_history_time_window, e.forward_to,
       e.forward_dead_lettered_messages_to, e.expires_whole_sessions, e.max_size_in_megabytes,
       e.max_message_size_in_kilobytes, e.status, e.user_metadata,
       -- NULL: as the namespace behaves (SB-902, SB-903, SB-907).
       coalesce(e.expiry_mode, CASE n.behaviour WHEN 'documented' THEN 'on_activity' ELSE 'eager' END) AS expiry_mode,
       coalesce(e.drops_locks_on_change, n.behaviour = 'documented') AS drops_locks_on_change,
       coalesce(e.peek_shows_default_expiry, n.behaviour <> 'documented') AS peek_shows_default_expiry, e.history_level, e.hidden,
       e.protected, e.options, e.effective, e.owner_id, e.created_at, e.updated_at,
       n.name AS namespace_name, n.is_system, n.tier, vitrine_clock(n.clock_base_at, n.clock_base_real, n.clock_rate) AS now
  FROM vitrine_entity AS e
  JOIN vitrine_namespace AS n ON n.id = e.namespace_id
 WHERE e.deleted_at IS NULL;
