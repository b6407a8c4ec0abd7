"""The documents of the administration API: their namespaces, the elements of each kind of entity in their order, and what is
read and written in several of them. Pure functions.

Clients of the service read and write the elements of a description in this order (SB, section 7.4).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import UTC, datetime

from broker_core.common.types import EntityKind
from broker_core.wire.xml import Element

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

DESCRIPTION: Mapping[EntityKind, str] = {
    EntityKind.QUEUE: "QueueDescription",
    EntityKind.TOPIC: "TopicDescription",
    EntityKind.SUBSCRIPTION: "SubscriptionDescription",
}
RULE_DESCRIPTION = "RuleDescription"

ORDER: Mapping[EntityKind, tuple[str, ...]] = {
    EntityKind.QUEUE: (
        *("LockDuration", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "RequiresSession", "DefaultMessageTimeToLive"),
        *("DeadLetteringOnMessageExpiration", "DuplicateDetectionHistoryTimeWindow", "MaxDeliveryCount"),
        *("EnableBatchedOperations", "SizeInBytes", "MessageCount", "IsAnonymousAccessible", "AuthorizationRules", "Status"),
        *("ForwardTo", "UserMetadata", "CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails"),
        *("AutoDeleteOnIdle", "EnablePartitioning", "ForwardDeadLetteredMessagesTo", "EntityAvailabilityStatus"),
        *("EnableExpress", "MaxMessageSizeInKilobytes"),
    ),
    EntityKind.TOPIC: (
        *("DefaultMessageTimeToLive", "MaxSizeInMegabytes", "RequiresDuplicateDetection", "DuplicateDetectionHistoryTimeWindow"),
        *("EnableBatchedOperations", "SizeInBytes", "FilteringMessagesBeforePublishing", "IsAnonymousAccessible"),
        *("AuthorizationRules", "Status", "UserMetadata", "CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering"),
        *("CountDetails", "SubscriptionCount", "SqlFilterCount", "CorrelationFilterCount", "AutoDeleteOnIdle"),
        *("EnablePartitioning", "EnableSubscriptionPartitioning", "EntityAvailabilityStatus", "EnableExpress"),
        "MaxMessageSizeInKilobytes",
    ),
    EntityKind.SUBSCRIPTION: (
        *("LockDuration", "RequiresSession", "DefaultMessageTimeToLive", "DeadLetteringOnMessageExpiration"),
        *("DeadLetteringOnFilterEvaluationExceptions", "MessageCount", "MaxDeliveryCount", "EnableBatchedOperations", "Status"),
        *("ForwardTo", "CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails", "UserMetadata", "ForwardDeadLetteredMessagesTo"),
        *("AutoDeleteOnIdle", "EntityAvailabilityStatus"),
    ),
}


def children_of(parent: Element, names: Container[str]) -> dict[str, Element]:
    """The children of Service Bus with these names. Raises InvalidXml if one is given twice. Elements that are nil are left
    out."""
    found: dict[str, Element] = {}
    for child in parent.children:
        if child.namespace != SERVICE_BUS or child.name not in names:
            continue
        if child.attributes.get(f"{INSTANCE} nil", "").strip() in ("true", "1"):
            continue
        if child.name in found:
            child.refuse(f"{child.name[:80]} is given twice")
        found[child.name] = child
    return found


def type_of(found: Element) -> str:
    """The name of its i:type, without a prefix; empty: it has none."""
    return found.attributes.get(f"{INSTANCE} type", "").rpartition(":")[2].strip()


def instant(at: datetime) -> str:
    """As .NET writes an instant, with seven decimal places."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}0Z"
