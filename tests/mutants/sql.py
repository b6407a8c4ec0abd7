"""Faults in statements: (statement, text, what stands there instead, tests that should fail).

The text is that of the statement as it is run: without comments and indentation, names such as @STATE_ACTIVE allowed.
"""

BROKER, SESSIONS = "service_bus/test_broker.py", "service_bus/test_sessions.py"
STORAGE, QUEUES = "queue_storage/test_messages.py", "queue_storage/test_queues.py"
DELIVERING, CONSUMERS = "rabbitmq/test_delivering.py", "rabbitmq/test_consumers.py"
TWO = "crash/test_two_processes.py"
FAILURE = "m.delivery_count + (m.lock_token IS NOT NULL AND m.subqueue = @SUBQUEUE_MAIN)::int"
LOCK_ENDED = "AND (m.locked_until IS NULL OR m.locked_until <= (SELECT now FROM entity))"
HELD = "AND m.locked_until > (SELECT now FROM entity)"

MUTANTS: list[tuple[str, str, str, str]] = [
    ("receive", f"delivery_count = {FAILURE},", "delivery_count = m.delivery_count + (m.lock_token IS NOT NULL)::int,", BROKER),
    ("receive", f"delivery_count = {FAILURE},", "delivery_count = m.delivery_count,", BROKER),
    ("receive", LOCK_ENDED, "", BROKER),
    ("receive", LOCK_ENDED, LOCK_ENDED.replace("<=", "<"), BROKER),
    ("receive", "AND (SELECT status FROM entity) IN ('Active', 'SendDisabled')", "", BROKER),
    ("receive", "> (SELECT now FROM entity)) IS NOT FALSE", ">= (SELECT now FROM entity)) IS NOT FALSE", BROKER),
    ("receive", "< (SELECT max_delivery_count FROM entity)", "<= (SELECT max_delivery_count FROM entity)", BROKER),
    ("receive", "ORDER BY changed.sequence_number", "ORDER BY changed.sequence_number DESC", BROKER),
    ("receive_deferred", "delivery_count = f.failures,", "delivery_count = m.delivery_count,", BROKER),
    ("complete", HELD, "", BROKER),
    ("complete", "AND m.lock_token = t.token", "", BROKER),
    ("complete", "-sum(size)", "0", BROKER),
    ("abandon", HELD, HELD.replace(">", ">="), BROKER),
    ("abandon", "o.failures >= e.max_delivery_count", "o.failures > e.max_delivery_count", BROKER),
    ("abandon", "delivery_count = CASE WHEN m.subqueue = @SUBQUEUE_MAIN THEN f.failures ELSE 0 END,", "", BROKER),
    ("abandon", "SET head = least(head,", "SET head = greatest(head,", BROKER),
    ("release", "FROM owned GROUP BY state, old_until", "FROM owned WHERE false GROUP BY state, old_until", BROKER),
    ("renew", "SET locked_until = (SELECT now + lock_duration FROM entity)", "SET locked_until = m.locked_until", BROKER),
    ("renew", HELD, "", BROKER),
    ("peek", "found.locked_until <= e.now AND found.subqueue = @SUBQUEUE_MAIN", "found.locked_until <= e.now", BROKER),
    ("peek", "found.scheduled_enqueue_at + found.time_to_live", "found.enqueued_at + found.time_to_live", BROKER),
    ("activate", "enqueued_at = m.scheduled_enqueue_at,", "enqueued_at = (SELECT now FROM entity),", BROKER),
    ("cancel_scheduled", "AND m.scheduled_enqueue_at > (SELECT now FROM entity)", "", BROKER),
    ("peek_session", "AND m.session_id = %(session_id)s", "", SESSIONS),
    ("storage_update", "renewals = coalesce(m.renewals, 0) + 1,", "renewals = coalesce(m.renewals, 0),", STORAGE),
    ("storage_get", "renewals = 0,", "renewals = m.renewals,", STORAGE),
    (
        "storage_update",
        "WHEN 0 THEN @HOLD_UPDATE_BEFORE_GET ELSE",
        "WHEN 0 THEN @HOLD_UPDATE ELSE",
        QUEUES,
    ),
    ("rabbit_requeue", "delivery_count = m.delivery_count + %(counts)s::int", "delivery_count = m.delivery_count", DELIVERING),
    ("rabbit_acknowledge", "AND m.lock_token = t.token", "", DELIVERING),
    ("rabbit_deliver_by_number", "count(*), sum(size), @OP_RECEIVED FROM changed", "0, 0, @OP_RECEIVED FROM changed", CONSUMERS),
    ("remote_consumers", "coalesce(max(h.n), 0), 0)::int", "0, 0)::int", TWO),
    ("remote_consumers", "c.queue_id = %(entity_id)s AND", "false AND", TWO),
]
