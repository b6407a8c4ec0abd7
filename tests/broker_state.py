"""What tests look at beside the broker's own answers: the clock, the events, the ledger."""

from broker_core import namespaces
from broker_core.reads.shared import entity_id_of
from broker_core.store import connections
from broker_core.store.driver import run


def now(address):
    return namespaces.get_clock(address.namespace).now


def bodies(messages):
    return [bytes(message.body).decode() for message in messages]


def entity_id(address):
    return run(entity_id_of(address))


def events(address, sequence_number=None):
    """The events of an entity, or of one number, in order."""
    return (
        connections.current()
        .execute(
            "SELECT * FROM vitrine_message_event WHERE entity_id = %(id)s"
            " AND (%(n)s::bigint IS NULL OR sequence_number = %(n)s) ORDER BY event_id",
            {"id": entity_id(address), "n": sequence_number},
        )
        .fetchall()
    )


def ledger_agrees(address) -> bool:
    """Whether the ledger's counts and bytes equal the messages', in each list and for those held now (docs/design.md D9)."""
    wrong = (
        connections.current()
        .execute(
            """
            WITH clock AS MATERIALIZED (SELECT now FROM vitrine_entity_now WHERE id = %(id)s),
                 ledger AS (SELECT entity_id, subqueue, state, until, n, bytes FROM vitrine_count_base
                          UNION ALL SELECT entity_id, subqueue, state, until, n, bytes FROM vitrine_count_delta),
                 l AS (SELECT subqueue, state, sum(n) AS n FROM ledger, clock
                        WHERE entity_id = %(id)s AND (until IS NULL OR until > now) GROUP BY 1, 2),
                 present AS (SELECT subqueue, state, CASE WHEN owner_id IS NOT NULL THEN 10
                                                          WHEN visible_at > now THEN hold_kind
                                                          WHEN locked_until > now THEN 10 + state END AS held
                               FROM vitrine_message, clock WHERE entity_id = %(id)s),
                 m AS (SELECT subqueue, state, count(*) AS n FROM present GROUP BY 1, 2
                       UNION ALL SELECT subqueue, held, count(*) FROM present WHERE held IS NOT NULL GROUP BY 1, 2),
                 size AS (SELECT (SELECT bytes_sent FROM vitrine_entity_counter WHERE entity_id = %(id)s)
                            + (SELECT coalesce(sum(bytes), 0) FROM ledger WHERE entity_id = %(id)s AND until IS NULL)
                            - (SELECT coalesce(sum(size), 0) FROM vitrine_message WHERE entity_id = %(id)s) AS difference)
            SELECT subqueue, state, l.n AS told, m.n AS found FROM l FULL JOIN m USING (subqueue, state) WHERE
            coalesce(l.n, 0) <> coalesce(m.n, 0) UNION ALL SELECT NULL, NULL, difference, 0 FROM size WHERE difference <> 0
            """,
            {"id": entity_id(address)},
        )
        .fetchall()
    )
    assert wrong == []
    return True


def has_waiting_receiver(address) -> bool:
    """Whether a receiver is known to wait for messages of this entity, in whatever process."""
    query = "SELECT waiting_until > clock_timestamp() FROM vitrine_entity_activity WHERE entity_id = %s"
    return bool(connections.current().execute(query, [entity_id(address)]).fetchone()[0])


def bounds_hold(address) -> bool:
    """Whether no message is below the head of its list, and every available one below `locked_below` is in vitrine_returned or
    named by a deadline that has passed (docs/design.md D17). In one snapshot."""
    text = """
        WITH e AS MATERIALIZED (SELECT id, now FROM vitrine_entity_now WHERE id = %s)
        SELECT m.sequence_number, h.head, h.locked_below
          FROM e JOIN vitrine_message AS m ON m.entity_id = e.id AND m.state = 0
          JOIN vitrine_queue_head AS h ON h.entity_id = e.id AND h.subqueue = m.subqueue
         WHERE m.sequence_number < h.head
            OR m.sequence_number < h.locked_below AND (m.lock_token IS NULL OR m.locked_until <= e.now)
           AND NOT EXISTS (SELECT FROM vitrine_returned AS r WHERE r.entity_id = e.id AND r.subqueue = m.subqueue
                                                               AND r.sequence_number = m.sequence_number)
           AND NOT EXISTS (SELECT FROM vitrine_lock_deadline AS d
                            WHERE d.entity_id = e.id AND d.subqueue = m.subqueue AND d.until <= e.now
                              AND m.sequence_number BETWEEN d.first_number AND d.last_number)
        """
    assert connections.current().execute(text, [entity_id(address.main)]).fetchall() == []
    return True
