"""Faults in statements: (statement, text, what stands there instead, tests that should fail).

The text is that of the statement as it is run: without comments and indentation, names such as @STATE_ACTIVE allowed.
"""

BROKER, SESSIONS = "service_bus/test_broker.py", "service_bus/test_sessions.py"
STORAGE, QUEUES = "queue_storage/test_messages.py", "queue_storage/test_queues.py"
DELIVERING, CONSUMERS = "rabbitmq/test_delivering.py", "rabbitmq/test_consumers.py"
TWO = "crash/test_two_processes.py"
FAILURE = "m.delivery_count + (m.lock_token IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN)::int AS failures"
LOCK_ENDED = "AND (m.locked_until IS NULL OR m.locked_until <= e.now)"
LOCKED = "service_bus/test_locked_messages.py"
HELD = "AND m.locked_until > e.now"

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        "receive",
        FAILURE,
        "m.delivery_count + (m.lock_token IS NOT NULL)::int AS failures",
        f"{BROKER}::test_peek_counts_a_lock_that_has_ended",
    ),
    (
        "receive",
        "delivery_count = a.failures,",
        "delivery_count = m.delivery_count,",
        f"{BROKER}::test_a_lock_ends_at_its_exact_time",
    ),
    ("receive", LOCK_ENDED, "", f"{BROKER}::test_receivers_get_disjoint_messages_in_order"),
    ("receive", LOCK_ENDED, LOCK_ENDED.replace("<=", "<"), f"{BROKER}::test_a_lock_ends_at_its_exact_time"),
    (
        "receive",
        "e.status IN ('Active', 'SendDisabled')",
        "true",
        f"{BROKER}::test_a_status_allows_or_refuses_sends_and_receives",
    ),
    (
        "receive",
        "> e.now) IS NOT FALSE",
        ">= e.now) IS NOT FALSE",
        f"{BROKER}::test_expired_messages_are_never_delivered",
    ),
    (
        "receive",
        "< e.max_delivery_count",
        "<= e.max_delivery_count",
        f"{BROKER}::test_a_spent_message_is_never_delivered_even_before_a_sweep",
    ),
    (
        "receive",
        "ORDER BY m.sequence_number LIMIT",
        "ORDER BY m.sequence_number DESC LIMIT",
        f"{BROKER}::test_receivers_get_disjoint_messages_in_order",
    ),
    (
        "receive_deferred",
        "delivery_count = f.failures,",
        "delivery_count = m.delivery_count,",
        f"{BROKER}::test_a_lock_of_a_deferred_message_that_ends_is_a_failed_delivery",
    ),
    ("receive", "AND h.locked_below <= h.head", "", f"{LOCKED}::test_released_messages_are_found_immediately_and_in_order"),
    ("abandon", "r.state = @STATE_ACTIVE AND NOT", "false AND NOT", LOCKED),
    ("release", "r.state = @STATE_ACTIVE AND NOT", "false AND NOT", LOCKED),
    (
        "end_locks",
        "r.state = @STATE_ACTIVE AND NOT",
        "false AND NOT",
        f"{LOCKED}::test_a_message_whose_lock_ended_among_others_is_found_immediately",
    ),
    ("receive_past_locked", "%(past_deadlines)s OR NOT", "true OR NOT", LOCKED),
    ("dead_letter", "locked_below = least(h.locked_below, m.first)", "locked_below = h.locked_below", LOCKED),
    ("complete", HELD, "", f"{BROKER}::test_a_lock_ends_at_its_exact_time"),
    (
        "complete",
        "AND (m.lock_token IN (SELECT unnest(%(tokens)b::uuid[]))) IS TRUE",
        "",
        f"{BROKER}::test_an_earlier_lock_cannot_settle_a_message_that_is_locked_again",
    ),
    ("complete", "sum(size) AS bytes", "0 AS bytes", f"{BROKER}::test_purge_keeps_locked_and_later_messages"),
    ("abandon", HELD, HELD.replace(">", ">="), f"{BROKER}::test_an_abandon_at_the_instant_at_which_the_lock_ends_is_too_late"),
    (
        "abandon",
        "o.failures >= e.max_delivery_count",
        "o.failures > e.max_delivery_count",
        f"{BROKER}::test_the_last_allowed_abandon_dead_letters_immediately",
    ),
    (
        "abandon",
        "delivery_count = CASE WHEN m.subqueue = @SUBQUEUE_MAIN THEN f.failures ELSE 0 END,",
        "",
        f"{BROKER}::test_abandon_counts_and_changes_properties",
    ),
    (
        "abandon",
        "SET head = least(h.head,",
        "SET head = greatest(h.head,",
        f"{BROKER}::test_a_message_dead_lettered_by_an_abandon_is_found_below_the_head",
    ),
    (
        "release",
        "FROM owned GROUP BY state, old_until",
        "FROM owned WHERE false GROUP BY state, old_until",
        f"{BROKER}::test_a_release_does_not_count_as_a_delivery",
    ),
    (
        "renew",
        "SET locked_until = (SELECT now + lock_duration FROM entity)",
        "SET locked_until = m.locked_until",
        f"{BROKER}::test_a_renewed_lock_holds_until_its_new_end",
    ),
    ("renew", HELD, "", f"{BROKER}::test_a_lock_ends_at_its_exact_time"),
    (
        "peek",
        "found.locked_until <= e.now AND found.subqueue = @SUBQUEUE_MAIN",
        "found.locked_until <= e.now",
        f"{BROKER}::test_peek_counts_a_lock_that_has_ended",
    ),
    (
        "peek",
        "found.scheduled_enqueue_at + found.time_to_live",
        "found.enqueued_at + found.time_to_live",
        f"{BROKER}::test_peek_shows_a_due_message_as_active_with_its_end",
    ),
    (
        "activate",
        "enqueued_at = m.scheduled_enqueue_at,",
        "enqueued_at = (SELECT now FROM entity),",
        f"{BROKER}::test_a_scheduled_message_appears_when_due_under_a_new_number",
    ),
    (
        "cancel_scheduled",
        "AND m.scheduled_enqueue_at > (SELECT now FROM entity)",
        "",
        f"{BROKER}::test_cancelling_scheduled_messages_is_all_or_nothing",
    ),
    ("peek_session", "AND m.session_id = %(session_id)s", "", f"{SESSIONS}::test_any_client_can_peek_a_session"),
    (
        "storage_update",
        "renewals = coalesce(m.renewals, 0) + 1,",
        "renewals = coalesce(m.renewals, 0),",
        f"{STORAGE}::test_updates_are_counted_until_the_next_get",
    ),
    ("storage_get", "renewals = 0,", "renewals = m.renewals,", f"{STORAGE}::test_updates_are_counted_until_the_next_get"),
    (
        "storage_update",
        "WHEN 0 THEN @HOLD_UPDATE_BEFORE_GET ELSE",
        "WHEN 0 THEN @HOLD_UPDATE ELSE",
        QUEUES,
    ),
    (
        "rabbit_requeue",
        "delivery_count = m.delivery_count + %(counts)s::bool::int",
        "delivery_count = m.delivery_count",
        DELIVERING,
    ),
    ("rabbit_acknowledge", "IS TRUE", "IS NOT NULL", DELIVERING),
    ("rabbit_deliver_by_number", "sum(size) AS bytes FROM changed)", "0::bigint AS bytes FROM changed)", CONSUMERS),
    ("remote_consumers", "greatest(c.prefetch - c.held, 0)", "c.prefetch", TWO),
    ("remote_consumers", "WHERE c.queue_id = %(entity_id)s)", "WHERE false)", TWO),
]
