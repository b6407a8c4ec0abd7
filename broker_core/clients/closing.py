"""An operator closes a client's connections, in whichever process it is."""

from __future__ import annotations

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.store import connections, driver
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .reading import parsed_id

MOST_REASON = 200  # characters


def close_client(client_id: str, reason: str, *, actor: Actor | None = None) -> bool:
    """Close the connections of a client, as its protocol does; it gets the reason, if its protocol has a place for it. Returns
    whether it was connected. Raises InvalidArgument."""
    if (key := parsed_id(client_id)) is None:
        raise InvalidArgument("client", f"{client_id[:80]!r} is not the id of a client")
    if not isinstance(reason, str) or not 0 < len(reason) <= MOST_REASON or not reason.isprintable():
        raise InvalidArgument("reason", f"must have 1 to {MOST_REASON} printable characters")
    (actor or Actor.local()).require(Right.OPERATE, f"the client {client_id}")
    with connections.using(connections.DEFAULT):
        return driver.run(_close(*key, reason))


def _close(epoch: int, number: int, reason: str) -> Steps[bool]:
    return bool((yield call("close_client", epoch=epoch, number=number, reason=reason)))
