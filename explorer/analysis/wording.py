"""The words of outcomes, as pages name them."""

# In the order of charts and tables.
OUTCOMES = {
    "completed": "completed",
    "received_and_deleted": "received and deleted",
    "dead_lettered": "dead-lettered",
    "moved": "moved to other queues",
    "forwarded": "forwarded",
    "resubmitted": "resubmitted",
    "dropped": "dropped",
    "expired": "expired",
    "purged": "purged",
    "deleted": "deleted",
    "other": "other",
    "still_there": "still in the queue",
}
