"""The kinds of events, as broker_core.common.types.EventKind has them (a test compares), and what they do to lives."""


class Kind:
    SENT = 1
    SCHEDULED = 2
    ACTIVATED = 3
    RECEIVED = 4
    RENEWED = 5
    COMPLETED = 6
    ABANDONED = 7
    RELEASED = 8
    DEFERRED = 9
    DEAD_LETTERED = 10
    EXPIRED = 11
    LOCK_LOST = 12
    CANCELLED = 13
    PURGED = 14
    RESUBMITTED = 15
    DELETED = 16
    FORWARDED = 17
    RECEIVED_AND_DELETED = 18
    DUPLICATE_DROPPED = 19
    PUBLISHED = 20
    DROPPED = 21
    MOVED = 22
    SETTLE_REFUSED = 23
    RESTORED = 24
    EDITED = 25


# What stored actors of keys may begin with, as broker_core.common.actors has them (a test compares).
KEYS = ("key", "http", "amqp")
# After these, the entity no longer has a message of this number.
TERMINAL = (
    *(Kind.ACTIVATED, Kind.COMPLETED, Kind.EXPIRED, Kind.CANCELLED, Kind.PURGED, Kind.RESUBMITTED, Kind.DELETED, Kind.FORWARDED),
    *(Kind.RECEIVED_AND_DELETED, Kind.PUBLISHED, Kind.DROPPED, Kind.MOVED),
)
# A message's life in a list ends when it leaves the list for good. An activated message continues under a new number.
LIFE_ENDS = (*(kind for kind in TERMINAL if kind != Kind.ACTIVATED), Kind.DEAD_LETTERED)
BEGINNINGS = (Kind.SENT, Kind.SCHEDULED, Kind.PUBLISHED)
NO_CHANGE = (Kind.RENEWED, Kind.DUPLICATE_DROPPED, Kind.SETTLE_REFUSED, Kind.EDITED)  # a delivery goes on

GENERATED = "generated"  # with which the actor of generated history begins
