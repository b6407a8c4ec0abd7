"""What a person or a program asks without changing anything: lists, counts, search, timelines, health.

Nothing here counts as activity (SB-190): looking at a queue does not keep it from being deleted when idle. Every function takes
an `actor` and needs Right.BROWSE; what shows bodies needs Right.SEE_BODIES as well. State follows from the clock of the namespace
(docs/design.md D5, D6): each answer carries the instant it is true for. What is capped says so.
"""

from .broker_health import (
    Health,
    SweepRun,
    health,
    last_sweep_runs,
    sweep_runs,
)
from .dead_groups import DeadLetterGroup, Groups, groups
from .entities import (
    Counts,
    EntityRow,
    NamespaceRow,
    TrafficPoint,
    counts,
    entity,
    namespaces,
    now,
    overview,
    subscriptions,
    traffic,
)
from .messages import (
    BODY_BYTES,
    EXPIRED,
    Body,
    Explanation,
    MessageDetail,
    MessageFilter,
    MessageRow,
    Tab,
    body,
    list_messages,
    message,
    messages_by_number,
)
from .names import (
    MOST_NAMES,
    Name,
    Names,
    names,
)
from .next_changes import (
    Change,
    NextChange,
    next_change,
)
from .session_lists import (
    SessionRow,
    sessions,
)
from .shared import (
    EXPIRED_CAP_OF_MANY,
    PAGE_ROWS,
    Capped,
    ClockReading,
    LinkedMessage,
    Page,
)
from .timelines import (
    Event,
    EventFilter,
    Found,
    SearchResult,
    events,
    find,
    gone,
    timeline,
)
