"""The outcomes of messages: codes of the events that end a life, and what reasons say about them. Without PySpark, so that pages
use the same definitions as jobs."""

from .kinds import Kind

COMPLETED = Kind.COMPLETED
DEAD_LETTERED = Kind.DEAD_LETTERED
EXPIRED = Kind.EXPIRED
CANCELLED = Kind.CANCELLED
PURGED = Kind.PURGED
RESUBMITTED = Kind.RESUBMITTED
DELETED = Kind.DELETED
FORWARDED = Kind.FORWARDED
RECEIVED_AND_DELETED = Kind.RECEIVED_AND_DELETED
PUBLISHED = Kind.PUBLISHED
DROPPED = Kind.DROPPED
MOVED = Kind.MOVED
STILL_THERE = 0  # the message had not left when the analysis began

# Outcomes of messages that were lost: no receiver processed them where they were.
LOST = (EXPIRED, DEAD_LETTERED, DROPPED, MOVED, PURGED, DELETED)
# Outcomes that have a reason.
WITH_REASON = (DEAD_LETTERED, MOVED, DROPPED)
# Reasons of a dead-lettering, move or drop because the time-to-live ended: the outcome is "expired", wherever the message went.
EXPIRY_REASONS = ("TTLExpiredException", "expired")
# Reasons that the broker writes: no receiver settled the message, so no processing time is known.
BROKER_REASONS = (
    *("TTLExpiredException", "MaxDeliveryCountExceeded", "HeaderSizeExceeded"),  # Service Bus
    *("MaxDequeueCountExceeded", "Requeued"),  # Queue Storage: to the poison queue and, by an operator, back
    *("expired", "maxlen", "delivery_limit", "moved"),  # RabbitMQ, "moved" by an operator; a receiver's reason is "rejected"
)
# Reasons for which the broker or an operator took a message away: its delivery did not fail.
TAKEN_AWAY = (*EXPIRY_REASONS, "HeaderSizeExceeded", "Requeued", "maxlen", "moved")
# Those of them because the maximum of deliveries was reached.
LIMIT_REASONS = ("MaxDeliveryCountExceeded", "MaxDequeueCountExceeded", "delivery_limit")

# The names of outcomes in results.
COLUMNS = {
    "completed": COMPLETED,
    "expired": EXPIRED,
    "dead_lettered": DEAD_LETTERED,
    "moved": MOVED,
    "forwarded": FORWARDED,
    "resubmitted": RESUBMITTED,
    "dropped": DROPPED,
    "received_and_deleted": RECEIVED_AND_DELETED,
    "purged": PURGED,
    "deleted": DELETED,
    "still_there": STILL_THERE,
}
