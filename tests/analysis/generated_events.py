"""What must hold of generated events, recomputed from rows alone: dictionaries with the columns of schema.EVENT."""

from collections import Counter, defaultdict

from broker_core.common.types import EventKind as Kind

ENDS = (Kind.COMPLETED, Kind.DEAD_LETTERED, Kind.EXPIRED)  # of a message in the main list
DELIVERY_ENDS = (*ENDS, Kind.ABANDONED, Kind.LOCK_LOST)


def by_message(events):
    """The events of each message, in order. Not those of refused settlements, which change nothing."""
    groups = defaultdict(list)
    for row in sorted(events, key=lambda row: row["event_id"]):
        if row["kind"] != Kind.SETTLE_REFUSED:
            groups[row["entity_id"], row["sequence_number"]].append(row)
    return groups


def deliveries(rows):
    """(the receipt, the event that ended it) of each delivery of a message, in the order of receipts. A receive writes its own
    event before that of the lock whose end it noticed: such a loss is of an earlier receipt."""
    results = []
    for row in rows:
        if row["kind"] == Kind.RECEIVED:
            results.append([row, None])
        elif row["kind"] in DELIVERY_ENDS:
            noticed = row["kind"] == Kind.LOCK_LOST and results and results[-1][0]["at"] == row["at"]
            place = len(results) - 1 - noticed
            if place >= 0 and results[place][1] is None:
                results[place][1] = row
    return results


def check(events, truths):
    """Assert that events are consistent, and as the truths (by the queue's id) say."""
    kinds = {entity_id: Counter() for entity_id in truths}
    attempts, taken = Counter(), defaultdict(list)
    for (entity_id, _), rows in by_message(events).items():
        kinds[entity_id].update(row["kind"] for row in rows)
        assert rows[0]["kind"] == Kind.SENT and sum(row["kind"] == Kind.SENT for row in rows) == 1
        assert sum(row["kind"] in ENDS for row in rows) == 1, "each message ends once"
        assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
        delivered = deliveries(rows)
        attempts[entity_id] += len(delivered)
        lost = [row for row in rows if row["kind"] == Kind.LOCK_LOST]
        assert [id(end) for _, end in delivered if end["kind"] == Kind.LOCK_LOST] == [id(row) for row in lost]
        for place, (receipt, end) in enumerate(delivered):
            assert receipt["at"] < end["at"] and receipt["actor"] == end["actor"] and receipt["delivery_count"] == place
            assert end["locked_until"] == receipt["locked_until"]
            assert (end["kind"] == Kind.LOCK_LOST) == (end["at"] >= receipt["locked_until"])
            if place + 1 < len(delivered):
                assert end["kind"] in (Kind.ABANDONED, Kind.LOCK_LOST) and delivered[place + 1][0]["at"] >= end["at"]
            taken[receipt["actor"]].append(receipt["at"])
    for entity_id, truth in truths.items():
        count = kinds[entity_id]
        assert count[Kind.SENT] == truth.messages - truth.not_ended == sum(count[kind] for kind in ENDS)
        assert count[Kind.DEAD_LETTERED] == count[Kind.PURGED] == truth.dead_lettered
        assert (count[Kind.COMPLETED], count[Kind.LOCK_LOST], count[Kind.ABANDONED]) == (
            truth.completed, truth.locks_lost, truth.abandoned,
        )  # fmt: skip
        assert count[Kind.RECEIVED] == attempts[entity_id] == truth.attempts
    assert sum(row["kind"] == Kind.SETTLE_REFUSED for row in events) == sum(expected.refused for expected in truths.values())
    assert all(row["actor"].startswith("generated:") and '"generated": true' in row["details"] for row in events)
    return kinds
