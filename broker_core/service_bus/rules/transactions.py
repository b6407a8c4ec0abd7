"""Check the scope and size of a transaction (SB-160 to SB-167). Pure functions."""

from __future__ import annotations

from broker_core.common.errors import NotAllowed
from broker_core.common.types import EntityAddress

from .limits import Limits

SECONDS_AT_MOST = 120.0  # from the first operation (SB-162)


def check_scope(addresses: list[EntityAddress], new: EntityAddress) -> None:
    """Raise NotAllowed unless all addresses are one entity, or a topic and its subscriptions (SB-161)."""
    for address in addresses[:1]:
        if _root(address) != _root(new):
            raise NotAllowed(
                f"A transaction covers one entity, or a topic and its subscriptions. This one covers {address.main}; "
                f"{new} cannot be part of it. To send to other entities as well, start it with via= (SB-161, SB-166)."
            )


def check_namespace(via: EntityAddress, new: EntityAddress) -> None:
    """Raise NotAllowed for a send to another namespace, which messages cannot be forwarded to (SB-166)."""
    if via.namespace.lower() != new.namespace.lower():
        raise NotAllowed(f"A transaction is limited to its namespace: {new} is not in '{via.namespace}'.")


def check_size(messages: int, limits: Limits) -> None:
    """Raise NotAllowed for more messages than a transaction may have (SB-162)."""
    if messages > limits.messages_per_transaction:
        raise NotAllowed(
            f"A transaction has at most {limits.messages_per_transaction} messages; this would be number {messages} (SB-162)."
        )


def _root(address: EntityAddress) -> tuple[str, str]:
    """The entity that scopes a transaction; for a subscription, its topic."""
    entity = address.topic or address
    return entity.namespace.lower(), entity.path.lower()
