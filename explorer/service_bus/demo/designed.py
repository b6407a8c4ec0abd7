"""The failures that the shop is made to have, by its programs (traffic.py) and its examples (shop.py)."""

from __future__ import annotations

from broker_core.service_bus.rules.messages import MAX_DELIVERY_COUNT_EXCEEDED, TTL_EXPIRED
from explorer.demo.parts import DesignedFailure

from .shop import ADDRESS_UNKNOWN, PLAYGROUND, SUBSCRIPTION_PATHS
from .traffic import LEAST_WAITING, NO_RECEIPT, REJECTIONS


def _dead(path: str, why: str, *reasons: str) -> DesignedFailure:
    return DesignedFailure(path, "dead", why, frozenset(reasons))


DESIGNED = (
    _dead("orders", "Some orders name no customer.", MAX_DELIVERY_COUNT_EXCEEDED),
    _dead("payments", "Bank transfers outlast their lock.", MAX_DELIVERY_COUNT_EXCEEDED),
    _dead("invoices", "Some invoices are invalid.", *(reason for reason, _ in REJECTIONS)),
    _dead("notifications", "The app is offline at times.", TTL_EXPIRED),
    _dead(SUBSCRIPTION_PATHS["returns"], "Some returns have no receipt.", NO_RECEIPT),
    _dead(PLAYGROUND, "Examples to repair and resubmit.", ADDRESS_UNKNOWN, MAX_DELIVERY_COUNT_EXCEEDED),
    DesignedFailure(PLAYGROUND, "receivers", "For your own experiments."),
    DesignedFailure("notifications", "receivers", "The app is offline at times."),
    DesignedFailure("stock-levels", "receivers", "The dashboard is offline at times."),
    *(
        DesignedFailure(path, rule, f"They wait until {count} have gathered.")
        for path, count in LEAST_WAITING.items()
        for rule in ("receivers", "old")
    ),
)
