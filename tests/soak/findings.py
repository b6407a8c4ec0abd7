"""Findings, and what the database has of an entity."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

from broker_core.common.types import EntityAddress
from broker_core.common.types import EventKind as Kind
from tests.broker_state import ledger_agrees

MOST_TOLD = 20  # findings of one kind that are spelled out


@dataclass
class Findings:
    """wrong: what must not be, in words. did: how much of what was done, for the reader to see that something was."""

    wrong: list[str] = field(default_factory=list)
    did: Counter = field(default_factory=Counter)

    def __add__(self, other: Findings) -> Findings:
        return Findings(list(dict.fromkeys([*self.wrong, *other.wrong])), self.did | other.did)

    def of_event(self, path: str, event: Any, what: str) -> None:
        """A finding about an event."""
        self.wrong.append(
            f"{path} {event.sequence_number}: {what}"
            f" (event {event.event_id}, {Kind(event.kind).name} at {event.at} by {event.actor})"
        )

    def heed(self, entry: dict[str, Any]) -> None:
        """What any client may have noted: a crash, a refusal, something done."""
        if entry["kind"] == "crash":
            self.wrong.append(f"a client crashed: {entry['trace']}")
        elif entry["kind"] == "refused":
            self.did[f"refusals by {entry['by']}"] += 1
        elif entry["kind"] == "did":
            self.did[entry["what"]] += entry["count"]

    def tell(self) -> str:
        did = ", ".join(f"{count:,} {what}" for what, count in sorted(self.did.items()))
        return "\n".join(
            [did, *self.wrong[:MOST_TOLD], *([f"... {len(self.wrong)} in all"] if len(self.wrong) > MOST_TOLD else [])]
        )


def entities_of(connection: psycopg.Connection, namespace: str) -> list[Any]:
    """All entities that a namespace ever had: their ids, paths, options, and whether they are deleted."""
    query = """
        SELECT e.id, e.path, e.options, e.effective, e.owner_id, e.deleted_at IS NOT NULL AS is_deleted
          FROM vitrine_entity AS e JOIN vitrine_namespace AS n ON n.id = e.namespace_id WHERE n.name = %s ORDER BY e.id
    """
    return connection.execute(query, [namespace]).fetchall()


def events_of(connection: psycopg.Connection, entity_id: int, *, by_statement: bool = False):
    """An entity's events, message by message, each in the order in which the message lived through them.

    by_statement: in the order of the statements that wrote them, each of which locked all of its messages before.
    """
    order = "min(event_id) OVER (PARTITION BY xid), sequence_number, event_id" if by_statement else "sequence_number, event_id"
    return connection.execute(f"SELECT * FROM vitrine_message_event WHERE entity_id = %s ORDER BY {order}", [entity_id])


def rows_of(connection: psycopg.Connection, entity_id: int) -> dict[int, Any]:
    query = "SELECT * FROM vitrine_message WHERE entity_id = %s"
    return {row.sequence_number: row for row in connection.execute(query, [entity_id])}


def next_number_of(connection: psycopg.Connection, entity_id: int) -> int:
    """The number that an entity's next message gets."""
    return connection.execute("SELECT next_number FROM vitrine_entity_counter WHERE entity_id = %s", [entity_id]).fetchone()[0]


def compare_ledger(connection: psycopg.Connection, address: EntityAddress, entity_id: int, findings: Findings) -> None:
    """The ledger's counts and bytes against the messages', and its holds against those that have not ended by themselves."""
    try:
        ledger_agrees(address)
    except AssertionError as exc:
        findings.wrong.append(f"{address.path}: the ledger disagrees: {exc}")
    query = """
        WITH ledger AS (
            SELECT state, until, sum(n) AS n
              FROM (SELECT state, until, n FROM vitrine_count_base WHERE entity_id = %(id)s
                    UNION ALL SELECT state, until, n FROM vitrine_count_delta WHERE entity_id = %(id)s) AS l
             WHERE state >= 10 GROUP BY 1, 2 HAVING sum(n) <> 0),
        held AS (
            SELECT CASE WHEN owner_id IS NULL THEN hold_kind ELSE 10 END AS state,
                   CASE WHEN owner_id IS NULL THEN visible_at ELSE 'infinity' END AS until, count(*) AS n
              FROM vitrine_message WHERE entity_id = %(id)s AND (owner_id IS NOT NULL OR hold_kind IS NOT NULL) GROUP BY 1, 2)
        SELECT state, until::text, l.n AS ledger, h.n AS held FROM ledger AS l FULL JOIN held AS h USING (state, until)
         WHERE coalesce(l.n, 0) <> coalesce(h.n, 0) AND until > clock_timestamp() + interval '0.1 s'
    """
    if differences := connection.execute(query, {"id": entity_id}).fetchall():
        findings.wrong.append(f"{address.path}: the ledger has other holds than there are: {[tuple(d) for d in differences[:5]]}")
