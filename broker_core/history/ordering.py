"""Puts the events of a message in the order in which they happened, when they are archived.

A receive that notices that the previous lock had ended may write its own event before that of the loss. Both are of one statement,
so they have one transaction and one instant, and the lock had ended by then. Their event ids are exchanged; in the archive, the ids
of a message's events are in order.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind

MESSAGE = ("entity_id", "sequence_number")
_TAKES = pa.array([int(EventKind.RECEIVED), int(EventKind.RECEIVED_AND_DELETED)], pa.int16())


def in_order(events: pa.Table) -> pa.Table:
    """Events (schema.EVENT and further columns), given by message and event id, in order."""
    if events.num_rows < 2:
        return events
    first, second = events.slice(0, events.num_rows - 1), events.slice(1)
    swapped = pc.and_(pc.is_in(first["kind"], _TAKES), pc.equal(second["kind"], int(EventKind.LOCK_LOST)))
    for name in (*MESSAGE, "xid", "at"):
        swapped = pc.and_(swapped, pc.equal(first[name], second[name]))
    swapped = pc.fill_null(pc.and_(swapped, pc.less_equal(second["locked_until"], second["at"])), False)
    places = pc.indices_nonzero(swapped)
    if not len(places):
        return events
    order = pa.array(range(events.num_rows), pa.int64()).to_numpy(zero_copy_only=False).copy()
    order[places], order[pc.add(places, 1)] = order[pc.add(places, 1)], order[places]
    moved = events.take(pa.array(order))
    return moved.set_column(moved.schema.get_field_index("event_id"), moved.schema.field("event_id"), events["event_id"])
