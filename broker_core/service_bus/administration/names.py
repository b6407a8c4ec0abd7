"""The names in the documents of the administration API: namespaces, and the elements of each kind of entity in their order.

Clients of the service read and write the elements of a description in this order (SB, section 7.4).
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.common.types import EntityKind

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
